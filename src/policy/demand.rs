//! [`Policy`]: one demand.

use std::fmt;

use super::MethodSet;
use crate::error::ConfigError;

/// What a login has to prove: one method for each slot.
///
/// The order of the steps does not matter, and no two of them prove the same
/// [`FactorClass`](super::FactorClass). By default it is one step, by any method.
///
/// ```
/// use tollgate::{Method, Policy};
///
/// let any_two = Policy::any(2)?;
/// let strict = Policy::slots([Method::Password.into(), Method::Sms | Method::Passkey])?;
/// assert!(strict.is_met_by(Method::Passkey | Method::Password));
/// assert!(!strict.is_met_by(Method::Passkey | Method::Sms));
/// // both prove the same phone
/// assert!(!any_two.is_met_by(Method::Sms | Method::Whatsapp));
/// assert!(Policy::slots([Method::Sms, Method::Whatsapp]).is_err());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// In order, so that the same demand is the same value.
    slots: Vec<MethodSet>,
}

const SETTING: &str = "policy";

impl Policy {
    /// The most steps that a policy can have: as many as there are factor classes.
    pub const MAX_STEPS: usize = 5;

    /// One step for each slot, by one of its methods.
    pub fn slots(slots: impl IntoIterator<Item = impl Into<MethodSet>>) -> Result<Self, ConfigError> {
        // one more than allowed is enough to see that there are too many
        let mut slots: Vec<MethodSet> = slots.into_iter().take(Self::MAX_STEPS + 1).map(Into::into).collect();
        slots.sort_unstable();
        let policy = Self { slots };
        let error = |reason: &'static str| Err(ConfigError::new(SETTING, &policy, reason));
        if policy.slots.is_empty() || policy.slots.len() > Self::MAX_STEPS {
            return error("must have 1 to 5 steps");
        }
        if policy.slots.iter().any(|slot| slot.is_empty()) {
            return error("has a slot without a method");
        }
        if !MethodSet::ALL.distinct_subsets().any(|set| policy.is_met_by(set)) {
            return error("can't be met by methods that prove different things");
        }
        Ok(policy)
    }

    /// So many steps, from 1 to 5, each by any method.
    pub fn any(steps: usize) -> Result<Self, ConfigError> {
        if !(1..=Self::MAX_STEPS).contains(&steps) {
            return Err(ConfigError::new(SETTING, format!("{steps} steps"), "must have 1 to 5 steps"));
        }
        Ok(Self { slots: vec![MethodSet::ALL; steps] })
    }

    /// How many steps it demands.
    pub fn steps(&self) -> usize {
        self.slots.len()
    }

    /// Whether some of these methods, no two of one factor class, fill all slots.
    pub fn is_met_by(&self, proved: MethodSet) -> bool {
        proved.distinct_subsets().filter(|set| set.len() == self.steps()).any(|set| fills(set, &self.slots))
    }

    pub(super) fn sets(&self) -> &[MethodSet] {
        &self.slots
    }
}

/// Whether each slot can have a method of its own.
fn fills(methods: MethodSet, slots: &[MethodSet]) -> bool {
    let Some((slot, rest)) = slots.split_first() else { return true };
    slot.intersection(methods).iter().any(|method| fills(methods.without(method), rest))
}

/// One step, by any method.
impl Default for Policy {
    fn default() -> Self {
        Self { slots: vec![MethodSet::ALL] }
    }
}

/// Such as `2 steps: password; and sms or email`.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.steps() {
            1 => f.write_str("1 step: ")?,
            steps => write!(f, "{steps} steps: ")?,
        }
        if self.steps() > 1 && self.slots.iter().all(|slot| *slot == MethodSet::ALL) {
            return f.write_str("each by any method");
        }
        for (place, slot) in self.slots.iter().enumerate() {
            if place > 0 {
                f.write_str("; and ")?;
            }
            match *slot {
                MethodSet::ALL => f.write_str("any method")?,
                slot if slot.is_empty() => f.write_str("none")?,
                slot => f.write_str(&slot.to_string().replace(", ", " or "))?,
            }
        }
        Ok(())
    }
}
