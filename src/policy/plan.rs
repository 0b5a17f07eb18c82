//! [`LoginPlan`]: what one login may do.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    demand::Policy,
    method::{Method, MethodSet},
};

/// The steps of one login, fixed when it starts.
///
/// It holds every set of methods that meets all demands with the fewest steps.
/// Each step goes towards one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredPlan")]
pub struct LoginPlan {
    /// Never none, all of one size, in order.
    sets: Vec<MethodSet>,
    #[serde(skip_serializing_if = "Option::is_none")]
    acr: Option<String>,
}

impl LoginPlan {
    /// The fewest of the enabled methods that meet all of these; nothing where none do.
    pub(super) fn of(demands: &[&Policy], enabled: MethodSet, acr: Option<&str>) -> Result<Self, Unsatisfiable> {
        let meets = |set: &MethodSet| demands.iter().all(|demand| demand.is_filled_by(*set));
        let mut sets: Vec<MethodSet> = enabled.distinct_subsets().filter(meets).collect();
        // without a demand the empty set is one of them, and a login without a step is none
        let fewest = sets.iter().map(|set| set.len()).min().filter(|steps| *steps > 0).ok_or(Unsatisfiable(()))?;
        sets.retain(|set| set.len() == fewest);
        Ok(Self { sets, acr: acr.map(str::to_owned) })
    }

    /// How many steps the login has.
    pub fn steps(&self) -> usize {
        self.sets.first().map_or(0, |set| set.len())
    }

    /// The name among the requested `acr_values` that was known, and so applies.
    pub fn acr(&self) -> Option<&str> {
        self.acr.as_deref()
    }

    /// Every method that some step can use.
    pub fn methods(&self) -> MethodSet {
        self.sets.iter().fold(MethodSet::EMPTY, |all, set| all.union(*set))
    }

    /// The methods that can come next, after these were proved; none where the
    /// plan is met, or can't be met any more.
    pub fn next(&self, proved: MethodSet) -> MethodSet {
        let ahead = self.sets.iter().filter(|set| proved.is_subset(**set));
        let all = ahead.fold(MethodSet::EMPTY, |all, set| all.union(*set));
        all.iter().filter(|method| !proved.contains(*method)).collect()
    }

    /// Whether this one can come next, after these were proved.
    pub fn allows(&self, proved: MethodSet, method: Method) -> bool {
        self.next(proved).contains(method)
    }

    /// Of what was proved, the most that leads on to one of its ways.
    pub(crate) fn closest(&self, proved: MethodSet) -> MethodSet {
        let overlaps = self.sets.iter().map(|set| set.intersection(proved));
        overlaps.fold(MethodSet::EMPTY, |best, one| if one.len() > best.len() { one } else { best })
    }

    /// Whether these are enough: some of them are all steps of the plan.
    pub fn is_met_by(&self, proved: MethodSet) -> bool {
        self.sets.iter().any(|set| set.is_subset(proved))
    }

    /// Every set of methods that meets it.
    pub(super) fn sets(&self) -> &[MethodSet] {
        &self.sets
    }
}

/// A [`LoginPlan`] as it is stored, not checked yet.
#[derive(Deserialize)]
struct StoredPlan {
    sets: Vec<MethodSet>,
    #[serde(default)]
    acr: Option<String>,
}

impl TryFrom<StoredPlan> for LoginPlan {
    type Error = &'static str;

    fn try_from(stored: StoredPlan) -> Result<Self, Self::Error> {
        let StoredPlan { sets, acr } = stored;
        let steps = sets.first().map_or(0, |set| set.len());
        let usable = |set: &MethodSet| set.len() == steps && set.is_distinct();
        if steps == 0 || !sets.iter().all(usable) || !sets.is_sorted_by(|one, next| one < next) {
            return Err("this is no plan");
        }
        Ok(Self { sets, acr })
    }
}

/// The enabled methods can't meet what is demanded of a login.
///
/// [`Policies::explain`](super::Policies::explain) says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsatisfiable(());

impl fmt::Display for Unsatisfiable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the enabled methods can't meet what is demanded of this login")
    }
}

impl std::error::Error for Unsatisfiable {}
