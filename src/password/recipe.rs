//! The algorithm and the parameters that turn a password and a salt into an output.

use argon2::{Algorithm, Params, Version};

/// Everything an output depends on, apart from the password and the salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recipe {
    pub(super) algorithm: Algorithm,
    pub(super) version: Version,
    pub(super) cost: Cost,
}

impl Recipe {
    /// The recipe of new hashes: argon2id, version 19.
    pub(super) fn new(cost: Cost) -> Self {
        Self { algorithm: Algorithm::Argon2id, version: Version::V0x13, cost }
    }
}

/// The three parameters of argon2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) memory_kib: u32,
    pub(super) iterations: u32,
    pub(super) parallelism: u32,
}

impl Cost {
    /// The minimum that OWASP recommends.
    pub(super) const DEFAULT: Self = Self { memory_kib: 19_456, iterations: 2, parallelism: 1 };
    /// The minimum that argon2 supports.
    pub(super) const LEAST: Self = Self { memory_kib: 8, iterations: 1, parallelism: 1 };
    /// The maximum that is ever run: 256 MiB, 16 iterations, 8 lanes. A planted hash can't exhaust the machine.
    pub(super) const MOST: Self = Self { memory_kib: 256 * 1024, iterations: 16, parallelism: 8 };

    /// Returns whether argon2 supports these parameters and they are within bounds.
    pub(super) fn is_usable(self) -> bool {
        !self.is_below(Self::LEAST) && !Self::MOST.is_below(self) && self.memory_kib >= 8 * self.parallelism
    }

    /// Returns the parameters for an output of this length, or `None` if argon2 does not support them.
    pub(super) fn params(self, output: usize) -> Option<Params> {
        Params::new(self.memory_kib, self.iterations, self.parallelism, Some(output)).ok()
    }

    /// Returns whether any parameter is lower than in `other`.
    pub(super) fn is_below(self, other: Self) -> bool {
        self.memory_kib < other.memory_kib || self.iterations < other.iterations || self.parallelism < other.parallelism
    }

    /// Returns the cost of a second run that, added to `spent`, is as much work as one run at this cost. Returns `None`
    /// if nothing is left to do.
    pub(super) fn rest(self, spent: Self) -> Option<Self> {
        let rest = self.work().checked_sub(spent.work())?.checked_div(u64::from(self.iterations))?;
        let rest = Self { memory_kib: u32::try_from(rest).ok()?, parallelism: 1, ..self };
        rest.is_usable().then_some(rest)
    }

    /// Returns the number of KiB that one run writes.
    pub(super) fn work(self) -> u64 {
        u64::from(self.memory_kib) * u64::from(self.iterations)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn costs() -> impl Strategy<Value = Cost> {
        (8..=262_144_u32, 1..=16_u32, 1..=8_u32)
            .prop_map(|(memory_kib, iterations, parallelism)| Cost { memory_kib, iterations, parallelism })
            .prop_filter("usable", |cost| cost.is_usable())
    }

    proptest! {
        #[test]
        fn the_first_and_the_second_run_add_up_to_the_required_work(whole in costs(), spent in costs()) {
            let both = spent.work() + whole.rest(spent).map_or(0, Cost::work);
            // argon2's own minimum
            let least = 9 * u64::from(whole.iterations);
            prop_assert!(both >= spent.work().max(whole.work().saturating_sub(least)));
            prop_assert!(both <= spent.work().max(whole.work()));
        }
    }
}
