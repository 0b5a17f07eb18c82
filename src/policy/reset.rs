//! The plan of a login that sets a new password.

use super::{
    method::{Method, MethodSet},
    plan::LoginPlan,
};

/// The factors that an account must prove for a new password. They are known once the user has proved a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResetDemand {
    /// The methods that the account can prove strongly enough for `policy_steps`. Others don't count.
    pub(crate) usable: MethodSet,
    /// The number of factor classes: as many as the strictest login of the account has steps.
    pub(crate) steps: usize,
    /// The number of steps without the one that is added for an enrolled factor. It decides how strong a credential must be to
    /// count.
    pub(crate) policy_steps: usize,
    /// Whether one of them has to be the second factor that the account has enrolled.
    pub(crate) needs_factor: bool,
}

impl ResetDemand {
    /// The methods that prove a step of a reset: all but the password, and sign-ins elsewhere.
    pub(crate) const METHODS: MethodSet =
        MethodSet::ENROLLED.with(Method::Email).with(Method::Sms).with(Method::Whatsapp);

    /// Returns whether these methods are enough.
    pub(crate) fn is_met_by(&self, proved: MethodSet) -> bool {
        let proved = proved.intersection(self.usable);
        proved.classes() >= self.steps && (!self.needs_factor || !proved.intersection(MethodSet::ENROLLED).is_empty())
    }
}

impl LoginPlan {
    /// Returns the plan of a reset before its first proof, which is the same for all accounts. Returns `None` if no enabled
    /// method can be the first step.
    pub(crate) fn of_reset(enabled: MethodSet) -> Option<Self> {
        Self::from_policies(&[], (enabled.intersection(ResetDemand::METHODS), 1), None).ok()
    }

    /// Sets the demand of an account after its user has proved these methods. If the account has too few, the steps that remain
    /// can't be proved.
    pub(super) fn demand_for_reset(&mut self, proved: MethodSet, demand: ResetDemand) {
        if demand.is_met_by(proved) {
            return;
        }
        let most = ResetDemand::METHODS.classes();
        let counting = proved.intersection(demand.usable);
        let steps = demand.steps.saturating_add(proved.len() - counting.len()).max(proved.len() + 1).min(most);
        let lacking: MethodSet = proved.iter().filter(|method| !counting.contains(*method)).collect();
        let sets_of = |methods: MethodSet| methods.union(proved).distinct_subsets();
        let leads = |set: &MethodSet| set.len() == steps && proved.is_subset(*set);
        let has_factor =
            |set: &MethodSet| set.intersection(MethodSet::ENROLLED).iter().any(|method| !lacking.contains(method));
        let own = sets_of(demand.usable.intersection(ResetDemand::METHODS)).filter(leads);
        let own: Vec<_> = own.filter(|set| !demand.needs_factor || has_factor(set)).collect();
        self.sets = if own.is_empty() { sets_of(ResetDemand::METHODS).filter(leads).collect() } else { own };
        self.is_extended = demand.steps > demand.policy_steps;
    }
}

#[cfg(test)]
mod tests {
    use Method::{Email, Passkey, Password, RecoveryCode, Sms, Totp};

    use super::*;

    /// Returns the steps of a reset and its next methods after these were proved.
    fn after(proved: MethodSet, demand: ResetDemand) -> (usize, MethodSet) {
        let mut plan = LoginPlan::of_reset(MethodSet::ALL).unwrap();
        plan.demand_for_reset(proved, demand);
        (plan.steps(), plan.next(proved))
    }

    #[test]
    fn c129_a_reset_needs_as_many_classes_as_the_strictest_login_without_the_password() {
        let demand =
            |usable: MethodSet, steps, needs_factor| ResetDemand { usable, steps, policy_steps: steps, needs_factor };
        let first = LoginPlan::of_reset(MethodSet::ALL).unwrap().next(MethodSet::EMPTY);
        assert!(!first.contains(Password) && !first.contains(Totp) && first.contains(Email));
        assert!(LoginPlan::of_reset(Password.into()).is_none());

        let mailbox = MethodSet::from(Email);
        assert_eq!(after(mailbox, demand(mailbox, 1, false)), (1, MethodSet::EMPTY));
        assert_eq!(after(mailbox, demand(Email | Sms, 2, false)), (2, Sms.into()));
        assert_eq!(after(mailbox, demand(Email | Totp | RecoveryCode, 2, true)), (2, Totp | RecoveryCode));
        // another contact is no second factor where the account has enrolled one
        assert_eq!(after(mailbox, demand(Email | Sms | Passkey, 2, true)), (2, Passkey.into()));
        assert_eq!(after(Passkey.into(), demand(Email | Passkey, 2, true)), (2, mailbox));
        // too few: there is a step that nothing of the account can prove
        let (steps, next) = after(mailbox, demand(mailbox, 2, false));
        assert!(steps == 2 && !next.contains(Email) && !next.contains(Password));
        assert_eq!(after(mailbox, demand(mailbox, 6, true)).0, 4);
        assert!(!demand(mailbox, 6, true).is_met_by(ResetDemand::METHODS));
    }

    #[test]
    fn c129_a_credential_that_is_too_weak_for_the_logins_counts_for_nothing() {
        // the account has a passkey that does not count in logins of two steps
        let demand = ResetDemand { usable: Email | Sms, steps: 2, policy_steps: 2, needs_factor: false };
        assert!(!demand.is_met_by(Email | Passkey) && demand.is_met_by(Email | Sms));
        assert_eq!(after(Passkey.into(), demand), (3, Email | Sms));
        assert_eq!(after(Email | Passkey, demand), (3, Sms.into()));
        let demand = ResetDemand { usable: Email | Totp, needs_factor: true, ..demand };
        assert_eq!(after(Email | Passkey, demand), (3, Totp.into()));
        // only a step that is added for a factor accepts weaker ones than the steps of the reset
        let mut plan = LoginPlan::of_reset(MethodSet::ALL).unwrap();
        plan.demand_for_reset(Email.into(), demand);
        assert_eq!(plan.policy_steps(), 2);
        plan.demand_for_reset(Email.into(), ResetDemand { policy_steps: 1, ..demand });
        assert_eq!(plan.policy_steps(), 1);
    }
}
