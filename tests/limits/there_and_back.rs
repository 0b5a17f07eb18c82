//! Plans that change, also there and back. A refund of a spend from before a change finds nothing, so it never takes off
//! units that were spent later.

use std::time::Duration;

use proptest::{collection::vec, prelude::*, sample::Index};
use tollgate::{Limiter, Plan, Plans, Quota, limit::Spend, testing::ManualClock};

use crate::{
    engine::{Engine, InMemory, tenant},
    schedule::cases,
};

const HOUR: Duration = Duration::from_secs(3_600);

#[derive(Clone, Debug)]
enum Step {
    Spend(u32),
    Refund(Index),
    Plan(usize),
    /// Sets an equal plan for the tenant, or removes it.
    Own(bool),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..4_u32).prop_map(Step::Spend),
        4 => any::<Index>().prop_map(Step::Refund),
        3 => (0..5_usize).prop_map(Step::Plan),
        1 => any::<bool>().prop_map(Step::Own),
        1 => (0..4_000_u64).prop_map(Step::Pass),
    ];
    vec(step, 1..60)
}

/// Returns plans that are the same objects each time they come back.
fn plans() -> [Plan; 5] {
    let window = Quota::per_hour(8).unwrap();
    [
        Plan::from(window),
        Plan::from(Quota::smooth(8, HOUR, 3).unwrap()),
        Plan::from(Quota::fixed(8, HOUR).unwrap()),
        Plan::new([window, Quota::per_minute(4).unwrap().with_name("burst").unwrap()]).unwrap(),
        Plan::from(Quota::per_second(5).unwrap()),
    ]
}

fn builder(plan: &Plan, shares_a_bucket: bool) -> InMemory {
    let most = if shares_a_bucket { 1 } else { 100 };
    let engine = InMemory::of(Limiter::builder(Plans::new(plan.clone())).max_tenants(most), ManualClock::new());
    // it takes the only row
    assert!(engine.check(&tenant("first"), 1).is_admitted());
    engine
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn a_refund_from_before_a_change_finds_nothing(
        first in 0..5_usize,
        shares_a_bucket in any::<bool>(),
        steps in steps(),
    ) {
        let plans = plans();
        let engine = builder(&plans[first], shares_a_bucket);
        let (acme, mut current, mut changes) = (tenant("acme"), first, 0);
        let mut spends: Vec<(i32, Spend)> = Vec::new();
        for step in steps {
            match step {
                Step::Spend(units) => {
                    let decision = engine.check(&acme, units);
                    if decision.is_admitted() {
                        spends.push((changes, decision.into_spend()));
                    }
                }
                Step::Refund(which) if !spends.is_empty() => {
                    let (spent_after, spend) = spends.swap_remove(which.index(spends.len()));
                    let before = engine.peek(&acme);
                    engine.refund(spend);
                    if spent_after != changes {
                        prop_assert_eq!(engine.peek(&acme), before);
                    }
                }
                Step::Plan(which) => {
                    changes += i32::from(which != current);
                    current = which;
                    engine.remove_plan(&acme);
                    engine.set_default_plan(plans[which].clone());
                }
                // in a bucket, it would get its own row
                Step::Own(is_own) if !shares_a_bucket => match is_own {
                    true => engine.set_plan(&acme, plans[current].clone()),
                    false => engine.remove_plan(&acme),
                },
                Step::Refund(_) | Step::Own(_) => {}
                Step::Pass(seconds) => engine.clock().advance(Duration::from_secs(seconds)),
            }
            // the limiter sees each change
            engine.peek(&acme);
        }
    }
}

/// A smaller burst in between forgets units, and the refund would take off those that were spent since.
#[test]
fn a_refund_from_before_a_change_does_not_admit_too_much() {
    let [_, smooth, fixed, ..] = plans();
    for shares_a_bucket in [false, true] {
        let engine = builder(&fixed, shares_a_bucket);
        let acme = tenant("acme");
        let spend = engine.check(&acme, 8).into_spend();
        for plan in [&smooth, &fixed] {
            engine.set_default_plan(plan.clone());
            _ = engine.check(&acme, 0);
        }
        assert!(engine.check(&acme, 5).is_admitted(), "three units are known");
        engine.refund(spend);
        assert!(!engine.check(&acme, 1).is_admitted());
    }
}

/// No other quotas apply then.
#[test]
fn an_equal_plan_is_no_change_and_nor_is_a_time_without_limits() {
    let equal = || Plan::from(Quota::per_hour(8).unwrap());
    let changes: [&[fn(&InMemory)]; 3] = [
        &[|engine| engine.set_plan(&tenant("acme"), Quota::per_hour(8).unwrap().into())],
        &[|engine| engine.set_default_plan(Quota::per_hour(8).unwrap().into())],
        &[
            |engine| engine.set_plan(&tenant("acme"), Plan::unlimited()),
            |engine| engine.set_plan(&tenant("acme"), Quota::per_hour(8).unwrap().into()),
        ],
    ];
    for changes in changes {
        let engine = builder(&equal(), false);
        let acme = tenant("acme");
        let spend = engine.check(&acme, 8).into_spend();
        for change in changes {
            change(&engine);
            _ = engine.check(&acme, 0);
        }
        engine.refund(spend);
        assert!(engine.check(&acme, 8).is_admitted());
    }
}
