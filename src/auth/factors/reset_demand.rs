//! The factors that an account must prove for a new password.

use std::sync::atomic::Ordering::Relaxed;

use super::{credentials::row::Credentials, enrolment::factors::Factors};
use crate::{
    auth::core::Core,
    policy::{LoginPlan, Method, MethodSet, ResetDemand},
    session::UserId,
    store::StoreError,
    tenant::Tenant,
    user::Account,
};

impl Core {
    /// Returns the factors that an account must prove, once its user has proved a step. The time that this takes depends on the
    /// account.
    pub(crate) async fn reset_demand(
        &self,
        tenant: &Tenant,
        user: &UserId,
        proved: MethodSet,
    ) -> Result<ResetDemand, StoreError> {
        let account = self.accounts.of_user(tenant, Some(user)).await?;
        let credentials = self.credentials.get(tenant, user).await?;
        Ok(match &account {
            Some(account) => self.reset_demand_of(tenant, account, credentials.as_ref(), proved),
            // gone meanwhile
            None => ResetDemand {
                usable: MethodSet::EMPTY,
                steps: usize::MAX,
                policy_steps: usize::MAX,
                needs_factor: true,
            },
        })
    }

    /// As many classes as the strictest login that the account could complete with a password, and its second factor if it has
    /// enrolled one. So a mailbox alone never opens an account whose logins need two steps, or may need two at a client that is
    /// not listed. A recovery code that this login has `proved` counts, even if it was the last one.
    pub(crate) fn reset_demand_of(
        &self,
        tenant: &Tenant,
        account: &Account,
        credentials: Option<&Credentials>,
        proved: MethodSet,
    ) -> ResetDemand {
        // it will have a password, perhaps its first one
        let factors =
            Factors { core: self, tenant, account, credentials, proved: Method::Password.into(), without: None };
        let listed = self.clients.listed_at(tenant);
        let clients = listed.iter().map(|client| client.demands());
        let mut plans =
            self.policies.completable_plans(tenant, clients, factors.usable(1), |plan| factors.usable_in(plan));
        // routes of the site and clients that are not listed may ask for more
        let least = self.route_steps.load(Relaxed).max(if self.clients.lists_all() { 1 } else { 2 });
        plans.extend((1..=least).rev().find_map(|least| factors.longer_plan(least)));
        let most = plans.iter().map(LoginPlan::steps).max().unwrap_or(1);
        let mut usable = factors.usable(most);
        let counts_used = || credentials.is_some_and(|row| row.has_recovery_codes(|it| it.suffices_for(most)));
        if proved.contains(Method::RecoveryCode) && counts_used() {
            usable = usable.with(Method::RecoveryCode);
        }
        let needs_factor = !usable.intersection(Method::Passkey | Method::Totp).is_empty();
        let with_factor = |plan: LoginPlan| {
            let mut plan = plan.asking_enrolled();
            let first = plan.methods().that_can_be_first().iter().next();
            let enrolled = credentials.map(|row| row.factors(self.enabled(tenant), &plan)).unwrap_or_default();
            plan.demand_factor(first.map(MethodSet::from).unwrap_or_default(), enrolled);
            plan.steps()
        };
        let steps = match needs_factor {
            true => plans.into_iter().map(with_factor).fold(2, usize::max),
            false => most,
        };
        ResetDemand { usable, steps, policy_steps: most, needs_factor }
    }
}
