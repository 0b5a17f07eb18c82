//! Idle tenants are removed, and so are all their bytes.

use std::time::Duration;

use proptest::{collection::vec, prelude::*};
use tollgate::{Limiter, Plan, Plans, testing::ManualClock};

use crate::{
    engine::{Engine, InMemory, tenant},
    schedule::{PlanSpec, QuotaSpec, RuleSpec, cases},
};

/// Sends enough requests over enough time to sweep every tenant.
fn sweep_all(engine: &InMemory, clock: &ManualClock) {
    let monitor = tenant("monitor");
    engine.set_plan(&monitor, Plan::unlimited());
    for _ in 0..512 {
        clock.advance(Duration::from_millis(200));
        assert!(engine.check(&monitor, 1).is_admitted());
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn idle_tenants_are_removed_and_no_byte_remains(
        requests in vec((0..40_u32, 1..4_u32, 0..3_000_u64, 0..60_u32), 1..300),
        max_tenants in 1..60_usize,
        long_names in any::<bool>(),
    ) {
        let quota = |name, limit, seconds: u64, rule| QuotaSpec {
            name,
            limit,
            window: seconds * 1_000_000_000,
            rule,
            shadow: false,
        };
        let window = |slices| RuleSpec::Window { slices };
        let plans = [
            PlanSpec::Limited(vec![quota(0, 30, 60, window(240))]),
            PlanSpec::Limited(vec![quota(0, 20, 10, window(1000)), quota(2, 90, 600, window(7))]),
            PlanSpec::Limited(vec![quota(1, 9, 60, RuleSpec::Fixed)]),
            PlanSpec::Limited(vec![quota(1, 9, 60, RuleSpec::Smooth)]),
            PlanSpec::Unlimited,
            PlanSpec::Denied,
        ];
        let clock = ManualClock::new();
        let builder = Limiter::builder(Plans::new(plans[0].plan())).max_tenants(max_tenants);
        let engine = InMemory::of(builder, clock.clone());
        let padding = if long_names { "a name that is not stored inline".replace(' ', "-") } else { String::new() };
        let mut spends = Vec::new();
        for (who, units, millis, choice) in requests {
            clock.advance(Duration::from_millis(millis));
            let who = tenant(&format!("{padding}{who}"));
            match choice {
                0..6 => engine.set_plan(&who, plans[choice as usize].plan()),
                6..9 => engine.remove_plan(&who),
                9 => engine.set_default_plan(plans[units as usize % 2].plan()),
                10 => engine.reset(&who),
                11..20 => spends.pop().into_iter().for_each(|spend| engine.refund(spend)),
                _ => {
                    spends.push(engine.check(&who, units).into_spend());
                }
            }
        }
        clock.advance(Duration::from_secs(3_600));
        sweep_all(&engine, &clock);
        prop_assert_eq!(engine.limiter.tenants(), 0);
        prop_assert_eq!(engine.limiter.bytes(), 0);
    }
}
