//! The plan of a login that sets a new password.

use super::{
    method::{Method, MethodSet},
    plan::LoginPlan,
};

/// The methods that prove an enrolled second factor.
const FACTORS: MethodSet = MethodSet::EMPTY.with(Method::Passkey).with(Method::Totp).with(Method::RecoveryCode);

/// What an account needs for a new password, known once its user has proved a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResetDemand {
    /// The methods that the account can prove.
    pub(crate) usable: MethodSet,
    /// The number of factor classes: as many as the strictest login of the account has steps.
    pub(crate) steps: usize,
    /// Whether one of them has to be the second factor that the account has enrolled.
    pub(crate) needs_factor: bool,
}

impl ResetDemand {
    /// The methods that prove a step of a reset: all but the password, and sign-ins elsewhere.
    pub(crate) const METHODS: MethodSet = FACTORS.with(Method::Email).with(Method::Sms).with(Method::Whatsapp);

    /// Returns whether these methods are enough.
    pub(crate) fn is_met_by(&self, proved: MethodSet) -> bool {
        proved.classes() >= self.steps && (!self.needs_factor || !proved.intersection(FACTORS).is_empty())
    }
}

impl LoginPlan {
    /// Returns the plan of a reset before its first proof, which is the same for all accounts. Returns `None` if no enabled
    /// method can be the first step.
    pub(crate) fn of_reset(enabled: MethodSet) -> Option<Self> {
        Self::from_policies(&[], (enabled.intersection(ResetDemand::METHODS), 1), None).ok()
    }

    /// Demands what an account needs after its user has proved these methods. If the account has too few, the steps that remain
    /// can't be proved.
    pub(super) fn demand_for_reset(&mut self, proved: MethodSet, demand: ResetDemand) {
        if demand.is_met_by(proved) {
            return;
        }
        let most = ResetDemand::METHODS.classes();
        let steps = demand.steps.max(proved.len() + 1).min(most);
        let sets_of = |methods: MethodSet| -> Vec<MethodSet> {
            let leads = |set: &MethodSet| {
                set.len() == steps
                    && proved.is_subset(*set)
                    && (!demand.needs_factor || !set.intersection(FACTORS).is_empty())
            };
            methods.union(proved).distinct_subsets().filter(leads).collect()
        };
        let own = sets_of(demand.usable.intersection(ResetDemand::METHODS));
        self.sets = if own.is_empty() { sets_of(ResetDemand::METHODS) } else { own };
        // a factor that is weaker than two steps counts where each login of the account asks for it
        self.is_extended = demand.needs_factor && steps > 1;
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
        let demand = |usable: MethodSet, steps, needs_factor| ResetDemand { usable, steps, needs_factor };
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
}
