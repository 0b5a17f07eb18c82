//! `smooth`: the same decisions as governor, and the bound that its docs state.

use std::num::NonZeroU32;

use governor::{RateLimiter, clock::FakeRelativeClock};
use proptest::{collection::vec, prelude::*, sample::select};
use tollgate::{Quota, clock::Clock, testing::ManualClock};

use crate::{
    engine::{Engine, InMemory, nanos, tenant},
    schedule::cases,
};

#[derive(Clone, Debug)]
struct Run {
    units: u32,
    per: u64,
    burst: u32,
    /// The gap before each request, its tenant and its units.
    requests: Vec<(u64, usize, u32)>,
}

fn runs() -> impl Strategy<Value = Run> {
    let per = select(vec![1_000_000, 7_000_000, 1_000_000_000, 60_000_000_000_u64]);
    (1..50_u32, per, 1..50_u32).prop_flat_map(|(units, per, burst)| {
        let step = per / u64::from(units);
        let gap = prop_oneof![
            6 => Just(0),
            3 => 0..2 * step,
            2 => select(vec![1, step - 1, step, step + 1]),
            1 => 0..2 * per,
        ];
        let cost = prop_oneof![3 => Just(1), 1 => 1..60_u32];
        vec((gap, 0..2_usize, cost), 1..150).prop_map(move |requests| Run { units, per, burst, requests })
    })
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn decisions_equal_those_of_governor(run in runs()) {
        let Run { units, per, burst, requests } = run;
        let clock = ManualClock::new();
        let ours =
            InMemory::new(clock.clone(), Quota::smooth(units, nanos(per), burst).unwrap());
        let its_clock = FakeRelativeClock::default();
        let interval = nanos(per.div_ceil(u64::from(units)));
        let quota = governor::Quota::with_period(interval).unwrap();
        let governor = RateLimiter::hashmap_with_clock(
            quota.allow_burst(NonZeroU32::new(burst).unwrap()),
            its_clock.clone(),
        );
        let names = ["acme", "globex"];
        for (gap, who, cost) in requests {
            clock.advance(nanos(gap));
            its_clock.advance(nanos(gap));
            let decision = ours.check(&tenant(names[who]), cost);
            match governor.check_key_n(&names[who], NonZeroU32::new(cost).unwrap()) {
                Ok(Ok(())) => prop_assert!(decision.is_admitted()),
                Ok(Err(until)) => {
                    prop_assert!(!decision.is_admitted());
                    let reset = decision.standing().unwrap().reset();
                    prop_assert_eq!(reset.as_nanos(), until.earliest_possible().as_u64());
                }
                Err(_) => prop_assert_eq!(decision.standing().unwrap().reset_unix(), None),
            }
        }
    }

    #[test]
    fn a_window_admits_at_most_the_burst_and_the_rate(run in runs()) {
        let Run { units, per, burst, requests } = run;
        let clock = ManualClock::new();
        let limiter =
            InMemory::new(clock.clone(), Quota::smooth(units, nanos(per), burst).unwrap());
        let mut admitted = Vec::new();
        for (gap, _, cost) in requests {
            clock.advance(nanos(gap));
            if limiter.check(&tenant("acme"), cost).is_admitted() {
                admitted.push((clock.now().as_nanos(), cost));
            }
            let now = clock.now().as_nanos();
            let in_window = admitted.iter().filter(|(at, _)| now - at < per);
            prop_assert!(in_window.map(|(_, cost)| cost).sum::<u32>() <= burst + units);
        }
    }

    /// A refund returns at most the units that have not come back by themselves.
    #[test]
    fn a_refund_returns_at_most_what_was_spent(run in runs()) {
        let Run { units, per, burst, requests } = run;
        let clock = ManualClock::new();
        let quota = Quota::smooth(units, nanos(per), burst).unwrap();
        let limiter = InMemory::new(clock.clone(), quota).limiter;
        let acme = tenant("acme");
        for (gap, refunds, cost) in requests {
            clock.advance(nanos(gap));
            let before = limiter.peek(&acme).unwrap().remaining();
            let decision = limiter.check(&acme, cost);
            if decision.is_admitted() && refunds > 0 {
                clock.advance(nanos(gap));
                let kept = limiter.peek(&acme).unwrap().remaining();
                let after = limiter.refund(decision.into_spend()).unwrap().remaining();
                prop_assert!((kept..=kept + cost).contains(&after));
                prop_assert!(gap > 0 || after == before);
            }
        }
    }
}
