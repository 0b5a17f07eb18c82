//! Logins of users who have enrolled a second factor.

use super::{method::MethodSet, plan::LoginPlan, reset::ResetDemand};

/// The methods by which an account can prove the second factor that it has enrolled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EnrolledFactors {
    /// The methods that count for the number of steps. Empty if the account has neither an authenticator app nor a passkey that
    /// counts: recovery codes alone are no second factor.
    pub(crate) all: MethodSet,
    /// The methods that also count for policies that name methods.
    pub(crate) counting: MethodSet,
    /// The factors that the account must prove, if the login sets a new password.
    pub(crate) reset: Option<ResetDemand>,
}

impl LoginPlan {
    /// Returns whether a login that has proved these methods still depends on what its account has enrolled.
    pub(crate) fn depends_on_factors(&self, proved: MethodSet) -> bool {
        self.asks_enrolled && !self.is_extended && proved.intersection(MethodSet::ENROLLED).is_empty()
    }

    /// Demands the second factor of an account that has proved these methods: in one of the remaining steps if the policies
    /// accept it there, otherwise in one more step.
    pub(crate) fn demand_factor(&mut self, proved: MethodSet, factors: EnrolledFactors) {
        if let Some(demand) = factors.reset {
            return self.demand_for_reset(proved, demand);
        }
        if proved.is_empty() || factors.all.is_empty() || !self.depends_on_factors(proved) {
            return;
        }
        let ahead = self.sets.iter().copied().filter(|set| proved.is_subset(*set));
        let leads = |set: &MethodSet| !set.intersection(factors.counting).is_empty();
        let leading: Vec<_> = ahead.clone().filter(leads).collect();
        if !leading.is_empty() {
            self.sets = leading;
            return;
        }
        // sets with another second factor, which this account can't prove, are no use
        let others = ahead.filter(|set| set.intersection(MethodSet::ENROLLED).is_empty());
        let mut longer: Vec<_> = others.flat_map(|set| factors.all.iter().map(move |more| set.with(more))).collect();
        if !longer.is_empty() {
            longer.sort_unstable();
            self.sets = longer;
            self.is_extended = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use Method::{Email, Passkey, Password, RecoveryCode, Sms, Sso, Totp};

    use super::{
        super::{Method, Policies, Policy},
        *,
    };
    use crate::tenant::Tenant;

    fn plan(policy: Policy) -> LoginPlan {
        Policies::new(policy).plan(&Tenant::parse("acme").unwrap(), None, None, MethodSet::ALL).unwrap()
    }

    fn factors(all: MethodSet, counting: MethodSet) -> EnrolledFactors {
        EnrolledFactors { all, counting, reset: None }
    }

    /// Returns the steps of a plan and its next methods after these were proved.
    fn after(policy: Policy, proved: MethodSet, factors: EnrolledFactors) -> (usize, MethodSet) {
        let mut plan = plan(policy);
        plan.demand_factor(proved, factors);
        (plan.steps(), plan.next(proved))
    }

    #[test]
    fn the_methods_of_a_reset_are_all_but_the_password_and_sign_ins_elsewhere() {
        let all = MethodSet::ENROLLED.with(Email).with(Sms).with(Method::Whatsapp);
        assert_eq!(ResetDemand::METHODS, all);
        assert!(!all.contains(Password) && !all.contains(Sso));
    }

    #[test]
    fn b08_c131_a_login_of_one_step_gets_one_more() {
        let any = || Policy::any(1).unwrap();
        let app = factors(Totp | RecoveryCode, MethodSet::EMPTY);
        for first in [Password, Sms, Email, Sso] {
            assert_eq!(after(any(), first.into(), app), (2, Totp | RecoveryCode), "{first}");
        }
        let both = factors(Totp | Passkey, Totp | Passkey);
        assert_eq!(after(any(), Password.into(), both), (2, Totp | Passkey));
        // before the first proof, after the factor, and without one
        assert_eq!(after(any(), MethodSet::EMPTY, app).0, 1);
        assert_eq!(after(any(), Passkey.into(), both), (1, MethodSet::EMPTY));
        assert_eq!(after(any(), Password.into(), EnrolledFactors::default()), (1, MethodSet::EMPTY));
        assert_eq!(after(any().without_enrolled_second_factor(), Password.into(), app), (1, MethodSet::EMPTY));
    }

    #[test]
    fn b08_c131_an_open_step_is_used_if_the_factor_counts_there() {
        let two = || Policy::any(2).unwrap();
        let strong = factors(Totp | RecoveryCode, Totp | RecoveryCode);
        assert_eq!(after(two(), Password.into(), strong), (2, Totp | RecoveryCode));
        assert_eq!(after(two(), Password | Totp, strong), (2, MethodSet::EMPTY));
        // one that does not count for the policies fills none of their steps, but is asked for
        let other = factors(Totp.into(), MethodSet::EMPTY);
        assert_eq!(after(two(), Password.into(), other).0, 3);
        assert_eq!(after(two(), Password | Email, other), (3, Totp.into()));
        // three steps: the other one stays free
        let three = Policy::any(3).unwrap();
        assert_eq!(after(three, Password.into(), strong), (3, MethodSet::ALL.without(Password)));
    }

    #[test]
    fn b08_c131_named_methods_are_never_a_way_around_the_factor() {
        let named = || Policy::slots([Password.into(), Email | Totp]).unwrap();
        let strong = factors(Totp.into(), Totp.into());
        assert_eq!(after(named(), Password.into(), strong), (2, Totp.into()));
        // who begins with the mailbox can't leave out the app
        assert_eq!(after(named(), Email.into(), strong), (3, Password | Totp));
        // a policy that demands a second factor by name stays as it is
        let key = Policy::slots([Password, Passkey]).unwrap();
        assert_eq!(after(key, Password.into(), strong), (2, Passkey.into()));
    }

    #[test]
    fn b08_an_extended_plan_keeps_the_steps_of_the_policies_and_is_not_extended_again() {
        let mut plan = plan(Policy::slots([Password, Email]).unwrap());
        let app = factors(Totp.into(), Totp.into());
        plan.demand_factor(Password.into(), app);
        assert_eq!((plan.steps(), plan.policy_steps(), plan.is_extended), (3, 2, true));
        let before = plan.clone();
        plan.demand_factor(Password | Email, factors(Passkey.into(), Passkey.into()));
        assert_eq!(plan, before);
    }
}
