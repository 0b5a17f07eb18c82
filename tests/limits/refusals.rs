//! Refusals that are repeated. Each must end as soon as it no longer holds.

use std::{
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    thread,
    time::Duration,
};

use tollgate::{Limiter, Plan, Plans, Quota, testing::ManualClock};

use crate::engine::{Engine, InMemory, nanos, tenant};

const SECOND: Duration = Duration::from_secs(1);

fn hourly(limit: u32) -> Quota {
    Quota::per_hour(limit).unwrap()
}

/// Creates an engine in which acme has spent its 9 units, and requests of one and four units were refused several
/// times.
fn refusing() -> InMemory {
    let engine = InMemory::new(ManualClock::new(), hourly(9));
    assert!(engine.check(&tenant("acme"), 9).is_admitted());
    refuse(&engine);
    engine
}

fn refuse(engine: &InMemory) {
    for units in [1, 1, 4, 4, 1, 4] {
        let decision = engine.check(&tenant("acme"), units);
        assert!(!decision.is_admitted());
        assert_eq!(decision.standing().map(tollgate::tenant::Standing::remaining), Some(0));
        assert_eq!(decision.retry_after(), Duration::from_secs(3_600));
    }
}

#[test]
fn a_flood_of_refusals_takes_no_memory() {
    let engine = refusing();
    let memory = || (engine.limiter.tenants(), engine.limiter.bytes());
    let before = memory();
    for _ in 0..1_000 {
        refuse(&engine);
    }
    assert_eq!(memory(), before);
}

#[test]
fn a_reset_ends_a_refusal_at_once() {
    for units in [1, 4] {
        let engine = refusing();
        engine.reset(&tenant("acme"));
        assert!(engine.check(&tenant("acme"), units).is_admitted());
    }
}

#[test]
fn a_refund_ends_a_refusal_at_once() {
    for units in [1, 4] {
        let engine = InMemory::new(ManualClock::new(), hourly(9));
        let spends: Vec<_> = (0..9).map(|_| engine.check(&tenant("acme"), 1).into_spend()).collect();
        refuse(&engine);
        for spend in spends.into_iter().take(units as usize) {
            assert!(!engine.check(&tenant("acme"), units).is_admitted());
            engine.refund(spend);
        }
        assert!(engine.check(&tenant("acme"), units).is_admitted());
    }
}

#[test]
fn a_changed_plan_ends_a_refusal_at_once() {
    let raised = || Plan::from(hourly(13));
    let changes: [&dyn Fn(&InMemory); 4] = [
        &|engine| engine.set_plan(&tenant("acme"), raised()),
        &|engine| engine.set_default_plan(raised()),
        &|engine| engine.set_default_plan(Plan::unlimited()),
        &|engine| {
            engine.set_plan(&tenant("acme"), Plan::denied());
            assert!(engine.check(&tenant("acme"), 4).standing().is_none(), "the tenant is denied, not limited");
            engine.set_plan(&tenant("acme"), raised());
        },
    ];
    for change in changes {
        for units in [1, 4] {
            let engine = refusing();
            change(&engine);
            assert!(engine.check(&tenant("acme"), units).is_admitted());
        }
    }
}

#[test]
fn a_function_that_chooses_another_plan_ends_a_refusal_at_once() {
    let limit = Arc::new(AtomicU32::new(9));
    let chosen = Arc::clone(&limit);
    let plans = [9, 13].map(|limit| (limit, Plan::from(hourly(limit))));
    let choose = move |_: &_| {
        let limit = chosen.load(SeqCst);
        plans.iter().find(|(of, _)| *of == limit).map(|(_, plan)| plan.clone())
    };
    let engine = InMemory::of(Limiter::builder(Plans::by(hourly(1), choose)), ManualClock::new());
    assert!(engine.check(&tenant("acme"), 9).is_admitted());
    refuse(&engine);
    limit.store(13, SeqCst);
    assert!(engine.check(&tenant("acme"), 4).is_admitted());
    assert!(!engine.check(&tenant("acme"), 1).is_admitted());
    limit.store(9, SeqCst);
    assert_eq!(engine.check(&tenant("acme"), 1).standing().map(tollgate::tenant::Standing::limit), Some(9));
}

/// While units come back, a repeated refusal shows the current remaining units.
#[test]
fn a_repeated_refusal_of_many_units_shows_the_current_remaining_units() {
    let engine = InMemory::new(ManualClock::new(), Quota::per_minute(10).unwrap());
    let at = |seconds: u32| engine.clock().set(tollgate::clock::Moment::default() + seconds * SECOND);
    let refused = || {
        let decision = engine.check(&tenant("acme"), 8);
        let standing = *decision.standing().unwrap();
        (decision.is_admitted(), standing.remaining(), standing.reset().as_nanos() / SECOND.as_nanos() as u64)
    };
    assert!(engine.check(&tenant("acme"), 5).is_admitted());
    at(30);
    assert!(engine.check(&tenant("acme"), 5).is_admitted());
    for (now, left) in [(31, 0), (32, 0), (59, 0), (60, 5), (61, 5), (89, 5)] {
        at(now);
        assert_eq!(refused(), (false, left, 90), "after {now} seconds");
    }
    // a smaller request is admitted, after which even less remains
    assert!(engine.check(&tenant("acme"), 2).is_admitted());
    assert_eq!(refused(), (false, 3, 90));
    at(90);
    assert_eq!(refused(), (true, 0, 149));
}

/// No tenant is refused because of another, or with another's figures.
#[test]
fn thousands_of_refused_tenants_do_not_affect_each_other() {
    let engine = InMemory::new(ManualClock::new(), hourly(1));
    let names: Vec<_> = (0..3_000).map(|number| tenant(&format!("tenant-{number}"))).collect();
    for (name, limit) in names.iter().zip(1..) {
        engine.set_plan(name, hourly(limit).into());
    }
    for (name, limit) in names.iter().zip(1..) {
        assert!(engine.check(name, limit).is_admitted());
    }
    for _ in 0..2 {
        for (name, limit) in names.iter().zip(1..) {
            let decision = engine.check(name, 1);
            let standing = decision.standing().unwrap();
            assert_eq!((decision.is_admitted(), standing.limit(), standing.remaining()), (false, limit, 0));
            engine.clock().advance(nanos(1));
        }
    }
    for name in names.iter().step_by(2) {
        engine.reset(name);
    }
    for (number, name) in names.iter().enumerate() {
        assert_eq!(engine.check(name, 1).is_admitted(), number % 2 == 0);
    }
}

/// One thread is refused all the time. The other makes room and must not be refused afterwards.
#[test]
fn a_refusal_of_another_thread_ends_when_it_no_longer_holds() {
    let engine = InMemory::new(ManualClock::new(), hourly(15));
    let (acme, is_done) = (tenant("acme"), AtomicBool::new(false));
    // once these units are spent, the other thread's ten and more never fit
    assert!(engine.check(&acme, 6).is_admitted());
    thread::scope(|scope| {
        scope.spawn(|| {
            for units in (10..=15).cycle().take_while(|_| !is_done.load(SeqCst)) {
                assert!(!engine.check(&acme, units).is_admitted());
                _ = engine.check(&tenant("other"), 7);
            }
        });
        let wrong = (0..3_000).find(|_| {
            let (first, second) = (engine.check(&acme, 9), engine.check(&acme, 9));
            let is_right = first.is_admitted() && !second.is_admitted();
            engine.refund(first.into_spend());
            !is_right
        });
        is_done.store(true, SeqCst);
        assert_eq!(wrong, None);
    });
}
