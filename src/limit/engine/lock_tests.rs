//! The locks of the rows: how tenants spread over them, and a test that holds all of them while another thread works.

use std::{sync::mpsc, thread, time::Duration};

use super::{Engine, SHARDS, place_of};
use crate::{
    limit::{plans::table::Plans, quota::Quota},
    tenant::LimitKey,
    util::lock::lock,
};

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

#[test]
fn rows_spread_over_all_shards_and_half_of_them_get_more() {
    let engine = Engine::new(Plans::new(Quota::per_hour(1).unwrap()), 1_000, usize::MAX);
    let tenant = |number: u32| LimitKey::parse(format!("tenant-{number}")).unwrap();
    let mut rows = vec![0_u32; SHARDS];
    (0..200_000).for_each(|number| rows[place_of(engine.key(&tenant(number)).hash)] += 1);
    assert!(SHARDS >= 1_024 && rows.iter().all(|rows| *rows > 0));
    let (few, many) = rows.split_at(SHARDS / 2);
    let ratio = f64::from(many.iter().sum::<u32>()) / f64::from(few.iter().sum::<u32>());
    assert!((1.38..1.45).contains(&ratio), "{ratio}");
}
