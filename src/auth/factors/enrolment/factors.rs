//! The methods that an account can use, and whether they are more than one factor.

use std::iter;

use crate::{
    auth::{
        core::Core,
        factors::credentials::{credential::Strength, row::Credentials},
    },
    policy::{LoginPlan, Method, MethodSet},
    tenant::Tenant,
    user::Account,
};

/// The account of a user, and the credentials that it has.
#[derive(Clone, Copy)]
pub(crate) struct Factors<'a> {
    pub(crate) core: &'a Core,
    pub(crate) tenant: &'a Tenant,
    pub(crate) account: &'a Account,
    pub(crate) credentials: Option<&'a Credentials>,
    /// The methods that the user has proved. They include the password of an account that is not marked as having one.
    pub(crate) proved: MethodSet,
}

impl<'a> Factors<'a> {
    /// Returns the methods that the account can use in a login of this many steps, if no policy names methods.
    pub(crate) fn usable(&self, steps: usize) -> MethodSet {
        self.usable_if(|strength| strength.suffices_for(steps))
    }

    /// Returns the methods that the account can use in a login of this plan.
    pub(crate) fn usable_in(&self, plan: &LoginPlan) -> MethodSet {
        self.usable_if(|strength| strength.counts_for(plan))
    }

    fn usable_if(&self, counts: impl Fn(&Strength) -> bool) -> MethodSet {
        let can_use = |method: &Method| {
            *method == Method::Password && self.proved.contains(Method::Password)
                || self.core.can_prove(self.tenant, *method, (self.account, self.credentials), &counts)
        };
        self.core.enabled(self.tenant).iter().filter(can_use).collect()
    }

    /// Returns whether the account has a second factor, which changes then need.
    pub(crate) fn has_second(&self) -> bool {
        self.usable(2).classes() > 1
    }

    /// Returns a check that allows the first second factor of an account. It is asked again when that is stored, so that of two
    /// enrolments at the same time one wins.
    pub(crate) fn may_add_first(self) -> impl Fn(&Credentials) -> bool + Send + Sync + use<'a> {
        move |row| !Factors { credentials: Some(row), ..self }.has_second()
    }
}

/// Returns how many factor classes must be proved: as many as the longest login of this tenant that the account can
/// complete has steps, and at least two if the account can complete a login of two.
///
/// A credential counts here for the logins that would accept it, and no others. If a weak one were a second factor, its
/// owner could never prove two; if proofs of it made two, a thief of the first factor could enrol the second.
pub(crate) fn required_proofs(factors: Factors<'_>) -> usize {
    let Factors { core, tenant, .. } = factors;
    let listed = core.clients.listed();
    let clients = listed.iter().filter(|client| client.tenant() == tenant).map(|client| client.demands());
    let most = core.policies.most_steps(tenant, clients, factors.usable(1), |plan| factors.usable_in(plan));
    let of_two = |methods| core.policies.longer_plan(tenant, None, None, (methods, 2));
    let has_two = of_two(factors.usable(2)).is_ok_and(|plan| of_two(factors.usable_in(&plan)).is_ok());
    most.max(if has_two { 2 } else { 1 })
}

/// Returns whether the account can sign in to this site with these credentials.
pub(crate) fn can_sign_in(factors: Factors<'_>) -> bool {
    let policies = &factors.core.policies;
    policies.most_steps(factors.tenant, iter::empty(), factors.usable(1), |plan| factors.usable_in(plan)) > 0
}
