//! How many random scripts are played.

use proptest::test_runner::{Config, RngSeed};

/// The same scripts each time, and more of them where `PROPTEST_CASES` says so: one for each `share` of its cases. Others
/// with `PROPTEST_RNG_SEED`.
pub(crate) fn config(share: u32, seed: u64) -> Config {
    let asked = Config::default();
    let rng_seed = match asked.rng_seed {
        RngSeed::Random => RngSeed::Fixed(seed),
        fixed => fixed,
    };
    Config { cases: asked.cases / share, rng_seed, ..asked }
}
