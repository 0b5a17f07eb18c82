//! Changed plans and shared buckets: spent units stay spent.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use tollgate::{Limiter, Plan, Plans, Quota, testing::ManualClock};

use crate::engine::{Engine, InMemory, tenant};

fn hourly(limit: u32) -> Quota {
    Quota::per_hour(limit).unwrap()
}

fn named(quota: Quota, name: &str) -> Quota {
    quota.with_name(name).unwrap()
}

/// Creates a limiter with room for one unnamed tenant, and fills it.
fn full(quotas: Plans) -> InMemory {
    let engine = InMemory::of(Limiter::builder(quotas).max_tenants(1), ManualClock::new());
    assert_eq!(admitted(&engine, "early", 1), 1);
    engine
}

/// Sends requests and returns how many are admitted. Each result must match a peek before it.
fn admitted(engine: &InMemory, name: &str, requests: usize) -> usize {
    let admits = |_: &usize| {
        let peeked = engine.peek(&tenant(name)).map(|told| told.remaining() > 0);
        let admits = engine.check(&tenant(name), 1).is_admitted();
        assert!(peeked.is_none_or(|peeked| peeked == admits), "a peek predicts the next request");
        admits
    };
    (0..requests).filter(admits).count()
}

#[test]
fn in_a_bucket_the_plan_chosen_by_the_function_applies() {
    for default in [Plan::unlimited(), Plan::denied(), hourly(100).into()] {
        // plans that are created anew each time count as one plan, and different plans as two
        let engine = full(Plans::by(default, |tenant| match tenant.as_str() {
            "early" => Some(hourly(7).into()),
            "one" => Some(hourly(1).into()),
            "two" => Some(hourly(2).into()),
            _ => None,
        }));
        assert_eq!(admitted(&engine, "one", 5), 1);
        assert_eq!(admitted(&engine, "two", 5), 2);
        engine.set_default_plan(hourly(50).into());
        assert_eq!(admitted(&engine, "one", 5), 0, "the default plan does not affect it");
    }
}

#[test]
fn in_a_bucket_the_current_default_applies() {
    let engine = full(Plans::by(hourly(3), |_| None));
    assert_eq!(admitted(&engine, "late", 5), 3);
    engine.set_default_plan(hourly(5).into());
    assert_eq!(admitted(&engine, "late", 5), 2);
    engine.set_default_plan(Plan::unlimited());
    assert_eq!(admitted(&engine, "late", 5), 5);
    engine.set_default_plan(hourly(5).into());
    assert_eq!(admitted(&engine, "late", 5), 0);
}

#[test]
fn a_tenant_with_a_new_plan_gets_no_row_while_its_old_bucket_counts() {
    let limit = Arc::new(AtomicU32::new(0));
    let chosen = Arc::clone(&limit);
    let quotas = Plans::by(hourly(3), move |tenant| {
        let limit = chosen.load(SeqCst);
        (tenant.as_str() == "late" && limit > 0).then(|| hourly(limit).into())
    });
    let engine = full(quotas);
    assert_eq!(admitted(&engine, "late", 5), 3);
    limit.store(2, SeqCst);
    assert_eq!(admitted(&engine, "late", 5), 2);
    limit.store(0, SeqCst);
    assert_eq!(admitted(&engine, "late", 5), 0);
}

#[test]
fn a_tenant_that_is_named_while_in_a_bucket_keeps_what_it_spent() {
    for by_function in [false, true] {
        let function = move |_: &_| by_function.then(|| hourly(3).into());
        for plan in [hourly(3), hourly(1), named(Quota::per_day(3).unwrap(), "other")] {
            let engine = full(Plans::by(hourly(if by_function { 9 } else { 3 }), function));
            assert_eq!(admitted(&engine, "late", 5), 3);
            engine.set_plan(&tenant("late"), Plan::unlimited());
            assert_eq!(admitted(&engine, "late", 5), 5);
            engine.set_plan(&tenant("late"), plan.into());
            assert_eq!(admitted(&engine, "late", 5), 0, "{plan:?}");
            engine.set_plan(&tenant("late"), hourly(5).into());
            assert_eq!(admitted(&engine, "late", 5), 2);
        }
    }
}

#[test]
fn a_named_tenant_does_not_pay_for_others_in_its_bucket() {
    let engine = full(Plans::new(Quota::per_minute(1).unwrap()));
    let sweep_all = |engine: &InMemory| {
        let monitor = tenant("monitor");
        engine.set_plan(&monitor, Plan::unlimited());
        for number in 0..1_024 {
            engine.clock().advance(Duration::from_millis(120));
            assert!(engine.check(&monitor, 1).is_admitted());
            if number % 4 == 0 {
                // keeps the bucket from becoming idle
                (0..3 * 4096).step_by(16).for_each(|late| _ = engine.check(&tenant(&format!("late-{late}")), 1));
            }
        }
    };
    engine.set_plan(&tenant("before"), hourly(9).into());
    (0..3 * 4096).for_each(|number| _ = engine.check(&tenant(&format!("late-{number}")), 1));
    assert_eq!(admitted(&engine, "before", 9), 9, "the tenant was named before buckets were used");
    let since = (0..64).map(|number| tenant(&format!("since-{number}")));
    for since in since.clone() {
        engine.set_plan(&since, Quota::per_minute(1).unwrap().into());
        _ = engine.check(&since, 1);
    }
    sweep_all(&engine);
    for since in since {
        assert!(engine.check(&since, 1).is_admitted(), "it keeps what it may have spent, but only once");
    }
}

#[test]
fn quotas_with_new_names_start_from_what_is_known() {
    let minute = Quota::per_minute(3).unwrap();
    let smooth = Quota::smooth(3, Duration::from_secs(3_600), 3).unwrap();
    let fixed = Quota::fixed(3, Duration::from_secs(3_600)).unwrap();
    let shadow = named(Quota::per_day(1).unwrap(), "shadow").shadow();
    let olds = [
        Plan::from(hourly(3)),
        Plan::from(smooth),
        Plan::from(fixed),
        Plan::new([minute, named(hourly(3), "hour")]).unwrap(),
        Plan::new([shadow, hourly(3)]).unwrap(),
    ];
    let news = [
        Plan::new([named(minute, "a"), named(Quota::per_day(3).unwrap(), "b")]).unwrap(),
        Plan::new([named(smooth, "a"), named(fixed, "b"), named(hourly(3), "c")]).unwrap(),
        Plan::new([hourly(3), named(minute, "a")]).unwrap(),
        Plan::from(named(minute, "a")),
    ];
    for (old, new) in olds.iter().flat_map(|old| news.iter().map(move |new| (old, new))) {
        let engine = InMemory::new(ManualClock::new(), old.clone());
        assert_eq!(admitted(&engine, "acme", 5), 3);
        engine.set_default_plan(new.clone());
        assert_eq!(admitted(&engine, "acme", 5), 0, "from {old:?} to {new:?}");
    }
}

#[test]
fn a_copied_meter_keeps_the_times() {
    let engine = InMemory::new(ManualClock::new(), hourly(3));
    let minutes = |minutes: u64| engine.clock().advance(Duration::from_secs(60 * minutes));
    for _ in 0..3 {
        assert_eq!(admitted(&engine, "acme", 1), 1);
        minutes(10);
    }
    engine.set_default_plan(Plan::new([named(hourly(3), "a"), named(Quota::per_minute(3).unwrap(), "b")]).unwrap());
    assert_eq!(admitted(&engine, "acme", 1), 0);
    minutes(30);
    assert_eq!(admitted(&engine, "acme", 5), 1);
}

#[test]
fn the_meters_of_several_quotas_are_counted() {
    let bytes = |plan: Plan| {
        let engine = InMemory::new(ManualClock::new(), hourly(3));
        assert_eq!(admitted(&engine, "acme", 1), 1);
        engine.set_default_plan(plan);
        assert_eq!(admitted(&engine, "acme", 1), 1);
        engine.limiter.bytes()
    };
    let six = || Plan::new((0..6).map(|number| named(hourly(3), &format!("q{number}")))).unwrap();
    let engine = InMemory::new(ManualClock::new(), six());
    assert_eq!(admitted(&engine, "acme", 1), 1);
    let one = bytes(hourly(4).into());
    assert_eq!(bytes(six()), engine.limiter.bytes());
    assert!(engine.limiter.bytes() >= one + 6 * 40);
    engine.set_default_plan(hourly(3).into());
    assert_eq!(admitted(&engine, "acme", 1), 1);
    assert_eq!(engine.limiter.bytes(), one);
}
