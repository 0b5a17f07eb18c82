//! Which locks a request takes. The tests hold locks while another thread works.

use std::{
    cell::Cell,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use super::{Engine, SHARDS, meter::Context, place_of, spend::SpendRequest};
use crate::{
    limit::{
        decision::{Ask, Decision},
        plan::Plan,
        plans::table::Plans,
        quota::Quota,
    },
    tenant::LimitKey,
    util::{
        clock::{Moment, UnixTime},
        lock::lock,
    },
};

fn engine(quotas: Plans) -> Arc<Engine> {
    Arc::new(Engine::new(quotas, 1_000, usize::MAX))
}

fn tenant(number: u32) -> LimitKey {
    LimitKey::parse(format!("tenant-{number}")).unwrap()
}

/// Returns whether a request of this tenant is admitted.
fn spend(engine: &Engine, tenant: &LimitKey, units: u32, is_anonymous: bool) -> bool {
    let (now, unix_now) = (Moment::from_nanos(5), UnixTime::from_nanos(5));
    let context = Context { now, unix_now, swept_at: 0, bytes: &engine.bytes };
    let ask = Ask { refundable: true, ..Ask::new(units, is_anonymous) };
    let mut decision = Decision::UNLIMITED;
    engine
        .spend(SpendRequest { key: engine.key(tenant), context, ask, began: &Cell::new(false) }, &mut decision)
        .unwrap();
    decision.is_admitted()
}

/// Does the work while every row, and every bucket, is locked. Returns `None` if it does not end within this time.
pub(in crate::limit) fn while_all_is_locked<T: Send + 'static>(
    engine: &Engine,
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let shards: Vec<_> = engine.shards.iter().map(|shard| lock(&shard.0)).collect();
    let buckets: Vec<_> = (0..64).map(|number| engine.overflow.lock(number)).collect();
    let (done, ended) = mpsc::channel();
    let thread = thread::spawn(move || _ = done.send(work()));
    let result = ended.recv_timeout(patience).ok();
    drop((shards, buckets));
    thread.join().unwrap();
    result
}

/// Returns whether the work ends within this time while every row, and every bucket, is locked.
fn ends_while_all_is_locked(
    engine: &Arc<Engine>,
    patience: Duration,
    work: impl FnOnce(&Engine) + Send + 'static,
) -> bool {
    let own = Arc::clone(engine);
    while_all_is_locked(engine, patience, move || work(&own)).is_some()
}

/// Returns whether requests of several costs are refused, authenticated and anonymous ones.
fn is_refused(engine: &Engine) -> bool {
    let mut all = [(1, false), (5, false), (1, true), (3, true)].into_iter().cycle().take(100);
    all.all(|(units, is_anonymous)| !spend(engine, &tenant(1), units, is_anonymous))
}

#[test]
fn a_refused_tenant_takes_no_lock_also_with_costs_that_differ() {
    let hourly = || Quota::per_hour(9).unwrap();
    let plan = Plan::from(hourly());
    for quotas in [
        Plans::new(hourly()),
        Plans::by(hourly(), move |_| Some(plan.clone())),
        Plans::new(hourly().reserve(0.5).unwrap()),
    ] {
        quotas.set(tenant(2), Plan::unlimited());
        let (engine, acme) = (engine(quotas), tenant(1));
        assert!(spend(&engine, &acme, 9, false));
        assert!(is_refused(&engine));
        assert!(spend(&engine, &acme, 0, false), "it changes nothing");
        assert!(ends_while_all_is_locked(&engine, Duration::from_secs(20), |engine| assert!(is_refused(engine))));
    }
    let engine = engine(Plans::new(hourly()));
    let admitted = |engine: &Engine| assert!(spend(engine, &tenant(1), 1, false));
    assert!(!ends_while_all_is_locked(&engine, Duration::from_millis(50), admitted), "the locks are held");
}

#[test]
fn rows_spread_over_all_shards_and_half_of_them_get_more() {
    let engine = engine(Plans::new(Quota::per_hour(1).unwrap()));
    let mut rows = vec![0_u32; SHARDS];
    (0..200_000).for_each(|number| rows[place_of(engine.key(&tenant(number)).hash)] += 1);
    assert!(SHARDS >= 1_024 && rows.iter().all(|rows| *rows > 0));
    let (few, many) = rows.split_at(SHARDS / 2);
    let ratio = f64::from(many.iter().sum::<u32>()) / f64::from(few.iter().sum::<u32>());
    assert!((1.38..1.45).contains(&ratio), "{ratio}");
}
