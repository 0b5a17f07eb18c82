//! How strongly a credential was vouched for when it was enrolled.

use serde::{Deserialize, Serialize};

use crate::policy::{LoginPlan, MethodSet};

/// What vouches for a credential: how many steps, and by which methods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Strength {
    /// The number of steps that a login can have at most for the credential to count in it: how many factors were proved for
    /// it, or two for the first second factor of a user, for which one was proved.
    steps: u8,
    /// The methods that were proved when it was enrolled. If one of them was a credential, also those with which that one was
    /// enrolled, and so on. A policy that names methods must be met by each of these sets, so that no credential vouches for
    /// more than was vouched for itself.
    proved: Vec<MethodSet>,
}

impl Strength {
    /// That of passwords and contacts, and of credentials for which the application or the operator vouches.
    pub(crate) const FULL: &'static Self = &Self { steps: u8::MAX, proved: Vec::new() };
    /// That of a credential that counts in no login.
    pub(crate) const NONE: &'static Self = &Self { steps: 0, proved: Vec::new() };

    /// Returns the strength of a credential that is enrolled with these proofs: their number, their methods, and the strength
    /// of each.
    pub(crate) fn of_proofs<'s>(
        steps: usize,
        methods: MethodSet,
        strengths: impl IntoIterator<Item = &'s Strength>,
    ) -> Self {
        let through = strengths.into_iter().flat_map(|strength| strength.proved.iter().copied());
        let proved = MethodSet::smallest([methods].into_iter().chain(through));
        Self { steps: u8::try_from(steps).unwrap_or(u8::MAX - 1), proved }
    }

    /// Returns whether the credential can count in a login of this many steps, if no policy names methods.
    pub(crate) fn suffices_for(&self, steps: usize) -> bool {
        usize::from(self.steps) >= steps
    }

    /// Returns whether the credential counts in a login with this plan: by its number of steps, and for policies that name
    /// methods also by the methods that vouched for it.
    pub(crate) fn counts_for(&self, plan: &LoginPlan) -> bool {
        let is_vouched = || !self.proved.is_empty() && self.proved.iter().all(|set| plan.is_named_by(*set));
        self.counts_for_steps(plan) && (!plan.names_methods() || self.is_full() || is_vouched())
    }

    /// Returns whether the credential counts in a login with this plan, if no policy names methods.
    pub(crate) fn counts_for_steps(&self, plan: &LoginPlan) -> bool {
        let steps = plan.policy_steps();
        // a first second factor counts for one step more than were proved for it
        let is_proved = || self.proved.iter().all(|set| set.classes() >= steps);
        self.suffices_for(steps) && (!plan.refuses_self_enrolment() || self.is_full() || is_proved())
    }

    /// Returns whether an authenticator can prove a step of a login with this plan. For a step that was added for an enrolled
    /// factor, the methods that policies name don't matter, because the other steps meet the policies.
    pub(crate) fn counts_as_factor(&self, plan: &LoginPlan) -> bool {
        self.counts_for(plan) || plan.is_extended() && self.counts_for_steps(plan)
    }

    pub(crate) fn is_full(&self) -> bool {
        self == Self::FULL
    }
}
