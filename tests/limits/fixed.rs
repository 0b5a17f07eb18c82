//! `fixed`: the calendar window.

use proptest::{collection::vec, prelude::*, sample::select};
use tollgate::{Clock, Quota, UnixTime, testing::ManualClock};

use crate::{
    engine::{Engine, InMemory, nanos, tenant},
    schedule::cases,
};

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn a_calendar_window_admits_at_most_the_limit_and_any_other_window_twice_that(
        limit in 1..20_u32,
        period in select(vec![1_000_000, 7_000_000, 60_000_000_000, 86_400_000_000_000_u64]),
        start in 0..4_000_000_000_000_000_000_u64,
        requests in vec((0..2_400_u64, 1..5_u32, any::<bool>(), 0..4_000_000_000_u64), 1..150),
    ) {
        let clock = ManualClock::new();
        clock.set_wall(UnixTime::from_nanos(start));
        let limiter = InMemory::new(clock.clone(), Quota::fixed(limit, nanos(period)).unwrap());
        let mut admitted = Vec::new();
        for (parts, units, at_once, wall) in requests {
            if !at_once {
                clock.advance(nanos(period / 1_200 * parts));
            }
            // a jump of the wall clock moves no boundary
            clock.set_wall(UnixTime::from_secs(wall));
            let now = clock.now().as_nanos();
            let this_window = (start + now) / period;
            let spent = |counts: &dyn Fn(u64) -> bool| -> u32 {
                let counted = admitted.iter().filter(|(at, _)| counts(*at));
                counted.map(|(_, units)| units).sum()
            };
            let here = spent(&|at| (start + at) / period == this_window);
            let around = spent(&|at| now - at < period);
            let decision = limiter.check(&tenant("acme"), units);
            prop_assert_eq!(decision.is_admitted(), here + units <= limit);
            if decision.is_admitted() {
                prop_assert!(around + units <= 2 * limit);
                admitted.push((now, units));
            } else if units <= limit {
                let ends = (this_window + 1) * period - start;
                prop_assert_eq!(decision.standing().unwrap().reset().as_nanos(), ends);
            }
        }
    }
}
