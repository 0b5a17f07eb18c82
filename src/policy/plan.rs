//! The plan of a login.

use super::{
    demand::Policy,
    method::{Method, MethodSet},
};
use crate::store::{
    StoreError,
    compact::{Reader, RowPart, Writer, row_text},
};

/// The steps of a login, fixed when it starts.
///
/// It contains every set of methods that satisfies all policies with the fewest steps. Each step must lead towards one
/// of these sets. The plan of a user who has enrolled a second factor changes once, after the first proved step: every
/// set then contains such a factor, if necessary in one more step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginPlan {
    /// Never empty, all of the same size, sorted.
    pub(super) sets: Vec<MethodSet>,
    /// The smallest sets that meet every policy that names methods. Empty if all policies only count steps.
    named: Vec<MethodSet>,
    /// Whether a credential counts only if as many factors as the plan has steps were proved for it, so that users can't enrol
    /// their first second factor by themselves.
    pub(crate) without_self_enrolment: bool,
    acr: Option<String>,
    /// Whether the login needs the second factor that its account has enrolled.
    pub(crate) asks_enrolled: bool,
    /// Whether one step more than the policies need was added for that factor, which is the only step that it can fill.
    pub(crate) is_extended: bool,
}

row_text!(Method: as_str, |reader| Method::from_name(reader.text()?););

impl RowPart for MethodSet {
    fn write_part(&self, writer: &mut Writer) -> Result<(), StoreError> {
        self.to_bits().write_part(writer)
    }

    fn read_part(reader: &mut Reader<'_>) -> Option<Self> {
        Self::from_bits(RowPart::read_part(reader)?)
    }
}

impl RowPart for LoginPlan {
    fn write_part(&self, writer: &mut Writer) -> Result<(), StoreError> {
        let Self { sets, named, without_self_enrolment, acr, asks_enrolled, is_extended } = self;
        acr.write_part(writer)?;
        [without_self_enrolment, asks_enrolled, is_extended]
            .into_iter()
            .try_for_each(|flag| flag.write_part(writer))?;
        sets.write_part(writer)?;
        named.write_part(writer)
    }

    fn read_part(reader: &mut Reader<'_>) -> Option<Self> {
        let acr = RowPart::read_part(reader)?;
        let mut flag = || bool::read_part(reader);
        let (without_self_enrolment, asks_enrolled, is_extended) = (flag()?, flag()?, flag()?);
        let (sets, named) = (Vec::<MethodSet>::read_part(reader)?, RowPart::read_part(reader)?);
        let steps = sets.first().map_or(0, |set| set.len());
        let usable = |set: &MethodSet| set.len() == steps && set.is_distinct() && !set.that_can_be_first().is_empty();
        let is_valid =
            steps > usize::from(is_extended) && sets.iter().all(usable) && sets.is_sorted_by(|one, next| one < next);
        is_valid.then_some(Self { sets, named, without_self_enrolment, acr, asks_enrolled, is_extended })
    }
}

impl LoginPlan {
    /// Returns the plan for these policies and the enabled methods, with at least this many steps.
    pub(super) fn from_policies(
        demands: &[&Policy],
        (enabled, least): (MethodSet, usize),
        acr: Option<&str>,
    ) -> Result<Self, Unsatisfiable> {
        // a login can't begin with a code of an authenticator, so it can't consist of one alone
        let meets = |set: &MethodSet| {
            set.len() >= least
                && !set.that_can_be_first().is_empty()
                && demands.iter().all(|demand| demand.is_filled_by(*set))
        };
        let mut sets: Vec<MethodSet> = enabled.distinct_subsets().filter(meets).collect();
        let fewest = sets.iter().map(|set| set.len()).min().ok_or(Unsatisfiable(()))?;
        sets.retain(|set| set.len() == fewest);
        let mut naming = demands.iter().filter(|demand| demand.names_methods()).peekable();
        let named = match naming.peek() {
            None => Vec::new(),
            Some(_) => {
                let naming: Vec<_> = naming.collect();
                MethodSet::smallest(
                    enabled.distinct_subsets().filter(|set| naming.iter().all(|demand| demand.is_filled_by(*set))),
                )
            }
        };
        let without_self_enrolment = demands.iter().any(|demand| demand.without_self_enrolment);
        let asks_enrolled = demands.iter().any(|demand| demand.asks_enrolled);
        let acr = acr.map(str::to_owned);
        Ok(Self { sets, named, without_self_enrolment, acr, asks_enrolled, is_extended: false })
    }

    /// Returns whether a policy of this plan names methods, instead of only counting steps.
    pub(crate) fn names_methods(&self) -> bool {
        !self.named.is_empty()
    }

    /// Returns whether these methods meet every policy of this plan that names methods, whatever the number of steps.
    pub(crate) fn is_named_by(&self, proved: MethodSet) -> bool {
        !self.names_methods() || self.named.iter().any(|set| set.is_subset(proved))
    }

    /// Returns whether a credential that was proved in a login with this plan counts for another plan, too: that has no more
    /// steps, and what it names is met by all methods that this plan names.
    pub(crate) fn is_no_weaker_than(&self, other: &Self) -> bool {
        let names =
            !other.names_methods() || self.names_methods() && self.named.iter().all(|set| other.is_named_by(*set));
        // a credential that was proved in an added step may count for nothing
        let is_as_long = !self.is_extended || self.policy_steps() >= other.steps();
        is_as_long && names && (self.without_self_enrolment || !other.without_self_enrolment)
    }

    /// Returns whether a login with this plan that has proved these methods has met what another plan demands of its account's
    /// second factor: it was asked for, or proved without being asked for.
    #[cfg(feature = "login")]
    pub(crate) fn asks_as_much_as(&self, other: &Self, proved: MethodSet) -> bool {
        self.asks_enrolled || !other.depends_on_factors(proved)
    }

    /// Returns a plan that asks for the enrolled factor, whatever the policies say.
    #[cfg(feature = "login")]
    pub(crate) fn asking_enrolled(self) -> Self {
        Self { asks_enrolled: true, ..self }
    }

    /// Returns the number of steps.
    pub fn steps(&self) -> usize {
        self.sets.first().map_or(0, |set| set.len())
    }

    /// Returns the number of steps that the policies need: without the one that was added for an enrolled factor.
    pub(crate) fn policy_steps(&self) -> usize {
        self.steps() - usize::from(self.is_extended)
    }

    /// Returns the value of `acr_values` that applies.
    pub fn acr(&self) -> Option<&str> {
        self.acr.as_deref()
    }

    /// Returns all methods that any step can use.
    pub fn methods(&self) -> MethodSet {
        self.sets.iter().fold(MethodSet::EMPTY, |all, set| all.union(*set))
    }

    /// Returns the methods that can come next after these. Empty if the plan is complete or can't
    /// be completed any more. The first step is never a code of an authenticator.
    pub fn next(&self, proved: MethodSet) -> MethodSet {
        let ahead = self.sets.iter().filter(|set| proved.is_subset(**set));
        let all = ahead.fold(MethodSet::EMPTY, |all, set| all.union(*set));
        let all = if proved.is_empty() { all.that_can_be_first() } else { all };
        all.iter().filter(|method| !proved.contains(*method)).collect()
    }

    /// Returns whether this method can come next after these.
    pub fn allows(&self, proved: MethodSet, method: Method) -> bool {
        self.next(proved).contains(method)
    }

    /// Returns the largest part of `proved` that leads towards an accepted set.
    pub(crate) fn closest(&self, proved: MethodSet) -> MethodSet {
        let overlaps = self.sets.iter().map(|set| set.intersection(proved));
        // the first one of several that are as large
        overlaps.rev().max_by_key(|set| set.len()).unwrap_or_default()
    }

    /// Returns whether these methods complete the plan. Additional methods don't matter.
    pub fn is_met_by(&self, proved: MethodSet) -> bool {
        self.sets.iter().any(|set| set.is_subset(proved))
    }
}

/// The error of a login whose policies can't be satisfied with the enabled methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsatisfiable(());

crate::util::fmt::text_error!(Unsatisfiable, "the enabled methods can't satisfy the policies of this login");
