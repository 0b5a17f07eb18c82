//! Concurrent threads. The clock moves little or not at all while they spend, so the bound is exact.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use tollgate::{
    EventLog, Limiter, Plan, Plans, Quota, Tenant,
    event::{EventKind, Query},
    testing::ManualClock,
};

use crate::engine::{Engine, InMemory, tenant};

fn hourly(limit: u32) -> Quota {
    Quota::per_hour(limit).unwrap()
}

fn tenants(count: usize) -> Vec<Tenant> {
    (0..count).map(|number| tenant(&format!("tenant-{number}"))).collect()
}

/// Runs `work` on several threads, and repeats `meanwhile` until they are done.
fn hammer(threads: usize, work: impl Fn(usize) + Sync, meanwhile: impl Fn(usize) + Sync) {
    let at_work = AtomicUsize::new(threads);
    thread::scope(|scope| {
        for number in 0..threads {
            let (work, at_work) = (&work, &at_work);
            scope.spawn(move || {
                work(number);
                at_work.fetch_sub(1, SeqCst);
            });
        }
        let mut round = 0;
        while at_work.load(SeqCst) > 0 {
            meanwhile(round);
            round += 1;
            thread::yield_now();
        }
    });
}

#[test]
fn of_concurrent_attempts_exactly_the_limit_is_admitted_in_each_window() {
    for (threads, tenant_count) in [(2, 1), (4, 16), (8, 3)] {
        let clock = ManualClock::new();
        let engine = InMemory::new(clock.clone(), Quota::per_minute(100).unwrap());
        let all = tenants(tenant_count);
        for _window in 0..3 {
            let admitted: Vec<_> = all.iter().map(|_| AtomicUsize::new(0)).collect();
            let attempts = 160 / threads;
            let work = |number: usize| {
                for attempt in 0..attempts * tenant_count {
                    let which = (attempt + number) % tenant_count;
                    let admits = engine.check(&all[which], 1).is_admitted();
                    admitted[which].fetch_add(usize::from(admits), SeqCst);
                }
            };
            hammer(threads, work, |_| {});
            assert!(admitted.iter().all(|count| count.load(SeqCst) == 100), "{admitted:?}");
            clock.advance(Duration::from_secs(60));
        }
    }
}

/// Rows are replaced, swept and read while time moves. No spend may be lost or counted twice.
#[test]
fn quotas_that_change_back_and_forth_and_sweeps_lose_no_spend() {
    let clock = ManualClock::new();
    let engine = InMemory::new(clock.clone(), hourly(50));
    let all = tenants(8);
    let admitted: Vec<_> = all.iter().map(|_| AtomicUsize::new(0)).collect();
    let spend = |which: usize| {
        let admits = engine.check(&all[which], 1).is_admitted();
        admitted[which].fetch_add(usize::from(admits), SeqCst);
    };
    let monitor = tenant("monitor");
    engine.set_plan(&monitor, Plan::unlimited());
    let change = |round: usize| {
        let which = &all[round % all.len()];
        match round % 7 {
            0 => engine.set_default_plan(hourly(100).into()),
            1 => engine.set_plan(which, hourly(70).slices(7).unwrap().into()),
            2 => engine.set_default_plan(hourly(50).slices(1000).unwrap().into()),
            4 => engine.set_plan(which, Plan::denied()),
            3 | 5 => engine.remove_plan(which),
            _ => clock.advance(Duration::from_millis(120)),
        }
        assert!(engine.check(&monitor, 1).is_admitted());
        engine.peek(which);
    };
    let work = |number: usize| {
        for attempt in 0..2_000 {
            spend((attempt + number) % all.len());
        }
    };
    hammer(4, work, change);
    all.iter().for_each(|tenant| engine.remove_plan(tenant));
    engine.set_default_plan(hourly(100).into());
    (0..all.len() * 100).for_each(|attempt| spend(attempt % all.len()));
    assert!(admitted.iter().all(|count| count.load(SeqCst) == 100), "{admitted:?}");
}

#[test]
fn concurrent_refunds_return_each_unit_once() {
    let engine = InMemory::new(ManualClock::new(), hourly(100));
    let all = tenants(2);
    let kept: Vec<_> = all.iter().map(|_| AtomicUsize::new(0)).collect();
    let work = |number: usize| {
        for attempt in 0..1_000 {
            let which = (attempt + number) % all.len();
            let decision = engine.check(&all[which], 1);
            if decision.is_admitted() {
                match attempt % 3 {
                    0 => _ = kept[which].fetch_add(1, SeqCst),
                    _ => engine.refund(decision.into_spend()),
                }
            }
        }
    };
    hammer(4, work, |_| {});
    for (tenant, kept) in all.iter().zip(&kept) {
        let rest = (0..200).filter(|_| engine.check(tenant, 1).is_admitted()).count();
        assert_eq!(kept.load(SeqCst) + rest, 100);
    }
}

#[test]
fn each_reset_clears_one_limit_and_no_more() {
    let engine = InMemory::new(ManualClock::new(), hourly(50));
    let acme = tenant("acme");
    let (admitted, resets) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = |_| {
        for _ in 0..1_000 {
            let admits = engine.check(&acme, 1).is_admitted();
            admitted.fetch_add(usize::from(admits), SeqCst);
        }
    };
    hammer(4, work, |_| {
        resets.fetch_add(1, SeqCst);
        engine.reset(&acme);
    });
    assert!(admitted.load(SeqCst) <= 50 * (resets.load(SeqCst) + 1));
}

/// Threads that send a tenant's first requests concurrently create one row and take one place.
#[test]
fn tenants_first_seen_by_many_threads_take_one_place_each() {
    const THREADS: usize = 4;
    let (clock, log) = (ManualClock::new(), EventLog::new());
    let quotas = Plans::new(Quota::per_minute(3).unwrap());
    let builder = Limiter::builder(quotas).max_tenants(1_000).events(log.clone());
    let engine = InMemory::of(builder, clock.clone());
    let barrier = Barrier::new(THREADS);
    let work = |_| {
        for tenant in tenants(600) {
            barrier.wait();
            _ = engine.check(&tenant, 1);
        }
    };
    hammer(THREADS, work, |_| {});
    assert_eq!(engine.limiter.tenants(), 600);

    let monitor = tenant("monitor");
    engine.set_plan(&monitor, Plan::unlimited());
    clock.advance(Duration::from_secs(60));
    for _ in 0..512 {
        clock.advance(Duration::from_millis(200));
        assert!(engine.check(&monitor, 1).is_admitted());
    }
    assert_eq!(engine.limiter.tenants(), 0);
    // the monitor has one place, so exactly 999 are left
    for number in 0..999 {
        _ = engine.check(&tenant(&format!("stranger-{number}")), 1);
    }
    let overflows = || log.read_events(&Query::new().kind(EventKind::OverflowBegan)).events.len();
    assert_eq!(overflows(), 0);
    _ = engine.check(&tenant("one-too-many"), 1);
    assert_eq!(overflows(), 1);
}
