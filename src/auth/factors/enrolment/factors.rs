//! The methods that an account can use, and whether they are more than one factor.

use crate::{
    auth::{
        core::Core,
        factors::credentials::{credential::Strength, row::Credentials},
    },
    policy::{FactorClass, LoginPlan, Method, MethodSet},
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
    /// A class of factors that counts for nothing.
    pub(crate) without: Option<FactorClass>,
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

    /// Returns the plan of a login to the site with at least this many steps, if the account can complete it.
    pub(crate) fn longer_plan(&self, least: usize) -> Option<LoginPlan> {
        let plan = |methods| self.core.policies.longer_plan(self.tenant, None, None, (methods, least)).ok();
        plan(self.usable(least)).and_then(|first| plan(self.usable_in(&first)))
    }

    fn usable_if(&self, counts: impl Fn(&Strength) -> bool) -> MethodSet {
        let can_use = |method: &Method| {
            *method == Method::Password && self.proved.contains(Method::Password)
                || self.core.can_prove(self.tenant, *method, (self.account, self.credentials), &counts)
        };
        let counts = |method: &Method| self.without != Some(method.class());
        self.core.enabled(self.tenant).iter().filter(counts).filter(can_use).collect()
    }

    /// Returns whether the account has two factors that count in logins of two steps.
    pub(crate) fn has_two(&self) -> bool {
        self.usable(2).classes() > 1
    }

    /// Returns whether the account has a passkey or an authenticator app besides another factor, however weak it is. A thief of
    /// that other factor does not have it, so nothing is enrolled next to it without a proof of it.
    pub(crate) fn has_enrolled(&self) -> bool {
        let all = self.usable_if(|_| true);
        all.classes() > 1 && (all.contains(Method::Passkey) || all.contains(Method::Totp))
    }

    /// Returns whether a login that begins without such a factor asks for it.
    pub(crate) fn is_asked_for_enrolled(&self) -> bool {
        let all = self.usable_if(|_| true);
        self.has_enrolled() && all.iter().any(|method| !MethodSet::ENROLLED.contains(method))
    }

    /// Returns a check that allows the first second factor of an account. It is asked again when that is stored, so that of two
    /// enrolments at the same time one wins. `is_factor_proved` tells whether the user has also proved a passkey or an app that
    /// is too weak to be the second of two factors.
    pub(crate) fn may_add_first(self, is_factor_proved: bool) -> impl Fn(&Credentials) -> bool + Send + Sync + use<'a> {
        move |row| {
            let with = Factors { credentials: Some(row), ..self };
            !with.has_two() && (is_factor_proved || !with.has_enrolled())
        }
    }
}
