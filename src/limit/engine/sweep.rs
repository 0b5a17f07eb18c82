//! Requests remove idle tenants, a few at a time.

use std::{hash::BuildHasher, sync::atomic::Ordering::Relaxed, time::Duration};

use super::{
    Engine, SHARDS, Shard,
    meter::Context,
    row::{Place, Row},
    row_bytes,
};
use crate::{
    tenant::LimitKey,
    util::{clock::saturating_nanos, lock::lock},
};

/// How long a sweep takes to go through all shards.
const SWEEP_ROUND: Duration = Duration::from_secs(30);

/// After a lull, a request sweeps at most this many shards …
const MOST_SHARDS_A_SWEEP: u64 = 31;

/// … and stops early after looking at this many rows.
const ENOUGH_ROWS_A_SWEEP: usize = 256;

impl Engine {
    /// Removes idle rows of the next shards, if it is time: of all shards that are due, or until a few hundred rows were
    /// checked. Requests thus free memory a little at a time. Returns whether the last bucket is gone.
    #[inline]
    pub(in crate::limit) fn sweep(&self, context: Context<'_>) -> bool {
        let (now, due) = (context.now.as_nanos(), self.sweep_at.load(Relaxed));
        now >= due && self.sweep_due(now, due, context)
    }

    #[cold]
    fn sweep_due(&self, now: u64, due: u64, context: Context<'_>) -> bool {
        let interval = saturating_nanos(SWEEP_ROUND) / SHARDS as u64;
        if self.sweep_at.compare_exchange(due, now.saturating_add(interval), Relaxed, Relaxed).is_err() {
            return false;
        }
        self.swept_at.fetch_max(context.unix_now.as_nanos(), Relaxed);
        let (mut rows_seen, mut ended) = (0, false);
        for _ in 0..=((now - due) / interval).min(MOST_SHARDS_A_SWEEP) {
            if rows_seen >= ENOUGH_ROWS_A_SWEEP {
                break;
            }
            let turn = self.sweep_next.fetch_add(1, Relaxed);
            rows_seen += self.shards.get(turn % SHARDS).map_or(0, |shard| self.sweep_shard(shard, context));
            ended |= self.overflow.sweep(turn, context);
        }
        ended
    }

    /// Removes the idle rows of one shard, and returns how many rows there were.
    fn sweep_shard(&self, shard: &Shard, context: Context<'_>) -> usize {
        // A named tenant's next row would count what others have spent in its bucket since.
        let keeps_named = self.overflow.began().is_some();
        let mut kept = Vec::new();
        let mut rows = lock(&shard.0);
        let rows_seen = rows.table.len();
        rows.table.retain(|(tenant, row)| {
            if !row.is_idle(context) {
                return true;
            }
            if keeps_named && row.place() == Place::Named {
                kept.push(tenant.clone());
                return true;
            }
            self.forget(tenant, row, context);
            false
        });
        drop(rows);
        for tenant in kept.iter().filter(|tenant| !self.plans.is_named(tenant)) {
            self.remove_unnamed(shard, tenant, context);
        }
        rows_seen
    }

    /// Removes the idle row of a tenant that was named when the row was last used.
    fn remove_unnamed(&self, shard: &Shard, tenant: &LimitKey, context: Context<'_>) {
        let hash = self.hasher.hash_one(tenant.as_bytes());
        let mut rows = lock(&shard.0);
        if let Ok(mut found) = rows.table.find_entry(hash, |(own, _)| own == tenant) {
            let (_, row) = found.get_mut();
            if row.place() == Place::Named && row.is_idle(context) {
                self.forget(tenant, row, context);
                found.remove();
            }
        }
    }

    /// Releases the memory and the room of a row. Call it before the row is removed.
    fn forget(&self, tenant: &LimitKey, row: &mut Row, context: Context<'_>) {
        row.release(context);
        self.bytes.give_back(row_bytes(tenant, row));
        if row.place() == Place::Unnamed {
            self.remove_one_unnamed();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{super::spend::SpendRequest, *};
    use crate::{
        limit::{
            decision::{Ask, Decision},
            plans::table::Plans,
            quota::Quota,
        },
        util::clock::{Moment, UnixTime},
    };

    const HOUR: u64 = 3_600_000_000_000;

    fn at(engine: &Engine, now: u64) -> Context<'_> {
        let (now, unix_now) = (Moment::from_nanos(now), UnixTime::from_nanos(now));
        Context { now, unix_now, swept_at: 0, bytes: &engine.bytes }
    }

    fn tenant(name: &str) -> LimitKey {
        LimitKey::parse(name).unwrap()
    }

    fn spend(engine: &Engine, tenant: &LimitKey, context: Context<'_>) {
        let mut decision = Decision::UNLIMITED;
        engine
            .spend(
                SpendRequest { key: engine.key(tenant), context, ask: Ask::new(1, false), began: &Cell::new(false) },
                &mut decision,
            )
            .unwrap();
    }

    fn engine(plans: &Plans) -> Engine {
        Engine::new(plans.clone(), usize::MAX, usize::MAX)
    }

    #[test]
    fn a_request_sweeps_the_shards_that_are_due_up_to_a_limit() {
        let engine = engine(&Plans::new(Quota::per_hour(9).unwrap()));
        let interval = saturating_nanos(SWEEP_ROUND) / SHARDS as u64;
        let mut now = HOUR;
        for (passed, swept) in [(0, 32), (interval - 1, 32), (1, 33), (4 * interval, 37), (HOUR, 69)] {
            now += passed;
            engine.sweep(at(&engine, now));
            assert_eq!(engine.sweep_next.load(Relaxed), swept);
        }
    }

    #[test]
    fn a_request_stops_to_sweep_after_a_few_hundred_rows() {
        let engine = engine(&Plans::new(Quota::per_hour(9).unwrap()));
        for number in 0..16_000 {
            spend(&engine, &tenant(&format!("tenant-{number}")), at(&engine, HOUR));
        }
        engine.sweep(at(&engine, HOUR));
        assert!((2..32).contains(&engine.sweep_next.load(Relaxed)));
    }

    #[test]
    fn a_tenant_that_is_not_named_any_more_keeps_its_row_until_it_is_idle() {
        let plans = Plans::new(Quota::per_hour(9).unwrap());
        let (engine, acme) = (engine(&plans), tenant("acme"));
        plans.set(acme.clone(), Quota::per_hour(5).unwrap());
        spend(&engine, &acme, at(&engine, HOUR));
        let shard = engine.shard(engine.key(&acme).hash).unwrap();
        for (now, rows) in [(HOUR, 1), (2 * HOUR - 1, 1), (3 * HOUR, 0)] {
            engine.remove_unnamed(shard, &acme, at(&engine, now));
            assert_eq!(engine.tenants(), rows);
        }
    }
    /// Sweeps all shards. Returns how often that ended the sharing of buckets.
    fn sweep_all(engine: &Engine, now: u64) -> usize {
        let swept = (0..SHARDS).filter(|_| {
            engine.sweep_at.store(0, Relaxed);
            engine.sweep(at(engine, now))
        });
        swept.count()
    }

    #[test]
    fn an_idle_row_is_kept_while_others_share_buckets_and_its_tenant_is_named() {
        let plans = Plans::new(Quota::per_hour(9).unwrap());
        let (engine, [acme, bob]) = (Engine::new(plans.clone(), 0, usize::MAX), ["acme", "bob"].map(tenant));
        plans.set(acme.clone(), Quota::per_hour(5).unwrap());
        spend(&engine, &acme, at(&engine, HOUR));
        spend(&engine, &bob, at(&engine, 2 * HOUR));
        assert_eq!((sweep_all(&engine, 2 * HOUR + 1), engine.tenants()), (0, 2));
        plans.remove(&acme);
        assert_eq!((sweep_all(&engine, 2 * HOUR + 1), engine.tenants()), (0, 1));
        assert_eq!((sweep_all(&engine, 3 * HOUR), engine.tenants()), (1, 0), "the last bucket is gone");
    }
}
