//! The number of cases and the seed of random tests.

use proptest::test_runner::{Config, RngSeed};

/// Runs the same cases each time. `PROPTEST_CASES` runs more of them, divided by `share`. `PROPTEST_RNG_SEED` runs
/// different ones.
pub(crate) fn config(share: u32, seed: u64) -> Config {
    let asked = Config::default();
    let rng_seed = match asked.rng_seed {
        RngSeed::Random => RngSeed::Fixed(seed),
        fixed => fixed,
    };
    Config { cases: asked.cases / share, rng_seed, ..asked }
}
