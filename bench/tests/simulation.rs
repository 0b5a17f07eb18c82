//! A small run of the simulation.

use tollgate_bench::simulation::{Counting, Scale, simulate_all};

#[test]
fn the_engine_admits_no_more_than_the_limit_whatever_happens_to_nodes() {
    for seed in 1..=5 {
        let scale = Scale::small(seed);
        for spread in [20, 2] {
            let outcome = |counting| simulate_all(&scale, counting, spread);
            let (plain, leased) = (outcome(Counting::Plain), outcome(Counting::Leased));
            assert_eq!((plain.over, leased.over), (0, 0), "seed {seed}, {spread} nodes of each tenant");
            assert!(leased.calls < plain.calls, "{leased:?}");
            assert!(leased.by_fallback > 0, "some nodes were cut off");
        }
        // the run is able to show it: nodes that count alone admit more
        assert!(simulate_all(&scale, Counting::Alone(1), 20).over > 0);
    }
}
