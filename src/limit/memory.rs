//! The engine in memory: all rows, found without a lock, forgotten when idle.

use std::{
    hash::BuildHasherDefault,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use papaya::ResizeMode;

use super::{
    budget::Budget,
    journal::Journal,
    key::{Key, Lookup, Ready, SEED},
    meter::Context,
    overflow::Overflow,
    plan::{Plan, Terms},
    quotas::Quotas,
    row::{Place, Row},
};
use crate::{
    tenant::Tenant,
    util::clock::{Moment, saturating_nanos},
};

/// So many maps, so that growing or sweeping one is a short stop.
const SHARDS: usize = 1024;

/// So many buckets that tenants of one plan share for whom there is no room.
const BUCKETS: u64 = 4096;

/// How long a sweep takes to visit every shard.
const SWEEP_ROUND: Duration = Duration::from_secs(30);

/// After a lull, a request sweeps at most so many shards …
const MOST_SHARDS_A_SWEEP: u64 = 15;

/// … and no further one once it has looked at so many rows.
const ENOUGH_ROWS_A_SWEEP: usize = 256;

pub(super) struct Memory {
    pub(super) quotas: Quotas,
    pub(super) max_tenants: usize,
    pub(super) budget: Budget,
    shards: Box<[Shard]>,
    strangers: AtomicUsize,
    overflow: Overflow,
    sweep_at: AtomicU64,
    sweep_next: AtomicUsize,
}

struct Shard {
    rows: papaya::HashMap<Key, Row, BuildHasherDefault<Ready>>,
    /// Held while a tenant without a row gets one, or spends from a bucket: so a tenant never spends in both.
    door: Mutex<()>,
}

impl Memory {
    pub(super) fn new(quotas: Quotas, max_tenants: usize, max_bytes: usize) -> Self {
        let collector = Arc::new(seize::Collector::new());
        let shard = || Shard {
            rows: papaya::HashMap::builder()
                .hasher(BuildHasherDefault::default())
                .resize_mode(ResizeMode::Blocking)
                .shared_collector(Arc::clone(&collector))
                .build(),
            door: Mutex::new(()),
        };
        Self {
            quotas,
            max_tenants,
            budget: Budget::new(max_bytes),
            shards: (0..SHARDS).map(|_| shard()).collect(),
            strangers: AtomicUsize::new(0),
            overflow: Overflow::default(),
            sweep_at: AtomicU64::new(0),
            sweep_next: AtomicUsize::new(0),
        }
    }

    pub(super) fn with_bounds(mut self, max_tenants: Option<usize>, max_bytes: Option<usize>) -> Self {
        self.max_tenants = max_tenants.unwrap_or(self.max_tenants);
        if let Some(most) = max_bytes {
            self.budget = Budget::new(most);
        }
        self
    }

    /// How many rows there are.
    pub(super) fn tenants(&self) -> usize {
        self.shards.iter().map(|shard| shard.rows.len()).sum()
    }

    /// Runs `use_row` on the row that the tenant spends from, which is made if need be; with it comes the tenant whose
    /// row it is. It gives `None` when the row is gone, and is then run on the next.
    pub(super) fn spend<T>(
        &self,
        tenant: &Tenant,
        context: Context<'_>,
        journal: &Journal,
        mut use_row: impl FnMut(&Tenant, &Row) -> Option<T>,
    ) -> T {
        let key = Lookup::of(tenant);
        loop {
            if let Some(found) = self.on_row(&key, context, |row| use_row(tenant, row)) {
                return found;
            }
            // read before the plan: a change in between is seen at the next use
            let epoch = self.quotas.epoch();
            let (plan, named_since) = self.quotas.find(tenant);
            if !matches!(plan.terms(), Terms::Limited { .. }) {
                // nothing to remember
                if let Some(found) = use_row(tenant, &Row::new(plan, Place::Named, epoch)) {
                    return found;
                }
                continue;
            }
            let unnamed = named_since.map(|_| self.quotas.unnamed(tenant));
            let _door = self.shard(key.hash).door.lock().unwrap_or_else(PoisonError::into_inner);
            if self.has_row(&key) {
                // another thread made it, and took the room for it
            } else if let (Some(since), Some(unnamed)) = (named_since, unnamed) {
                self.insert_new(&key, self.named_row(&key, &plan, &unnamed, since, epoch, context), context);
            } else if self.take_room() {
                self.insert_new(&key, self.own_row(&key, &plan, &plan, Place::Stranger, epoch, context), context);
            } else if let Some(found) = self.spend_from_bucket(&key, &plan, epoch, context, journal, &mut use_row) {
                return found;
            }
        }
    }

    /// Runs `use_row` on the tenant's own row, if it has one that is not gone.
    pub(super) fn on_own_row<T>(
        &self,
        tenant: &Tenant,
        context: Context<'_>,
        use_row: impl FnMut(&Row) -> Option<T>,
    ) -> Option<T> {
        self.on_row(&Lookup::of(tenant), context, use_row)
    }

    /// Runs `use_row` on the row that the tenant would spend from next, without making one.
    pub(super) fn look<T>(&self, tenant: &Tenant, context: Context<'_>, use_row: impl Fn(&Row) -> Option<T>) -> T {
        let key = Lookup::of(tenant);
        loop {
            if let Some(found) = self.on_row(&key, context, &use_row) {
                return found;
            }
            let epoch = self.quotas.epoch();
            let (plan, named_since) = self.quotas.find(tenant);
            let is_limited = matches!(plan.terms(), Terms::Limited { .. });
            let (bucket, _) = self.bucket(&key, &plan);
            let found = match named_since {
                Some(since) if is_limited => {
                    let unnamed = self.quotas.unnamed(tenant);
                    let row = self.named_row(&key, &plan, &unnamed, since, epoch, context);
                    let found = use_row(&row);
                    row.discard(context);
                    found
                }
                None if is_limited && self.is_in_use(&bucket, context.now) => {
                    self.on_own_row(&bucket, context, &use_row)
                }
                _ => use_row(&Row::new(plan, Place::Stranger, epoch)),
            };
            if let Some(found) = found {
                return found;
            }
        }
    }

    fn on_row<T>(
        &self,
        key: &Lookup<'_>,
        context: Context<'_>,
        mut use_row: impl FnMut(&Row) -> Option<T>,
    ) -> Option<T> {
        let rows = &self.shard(key.hash).rows;
        let guard = rows.guard();
        let mut asked = false;
        loop {
            let row = rows.get(key, &guard)?;
            // once is enough: a function that answers differently each time would keep us here for ever
            if (asked || self.is_current(key, row, context))
                && let Some(found) = use_row(row)
            {
                return Some(found);
            }
            asked = true;
            // swept or replaced under our hands
            thread::yield_now();
        }
    }

    fn has_row(&self, key: &Lookup<'_>) -> bool {
        self.shard(key.hash).rows.pin().contains_key(key)
    }

    /// Whether the row still has the tenant's plan; else a row with the new plan takes its place.
    fn is_current(&self, key: &Lookup<'_>, row: &Row, context: Context<'_>) -> bool {
        let epoch = self.quotas.epoch();
        if row.epoch() == epoch && !self.quotas.has_function() {
            return true;
        }
        let (plan, place) = match row.place {
            Place::PlanBucket => return true,
            Place::Bucket => (self.quotas.default(), Place::Bucket),
            _ if self.quotas.is_named(key.tenant) => (self.quotas.plan(key.tenant), Place::Named),
            _ => (self.quotas.plan(key.tenant), Place::Stranger),
        };
        if plan == *row.plan() && place == row.place {
            row.set_epoch(epoch);
            return true;
        }
        row.replace(plan.after(row.plan()), place, epoch, context, |new| {
            self.shard(key.hash).rows.pin().insert(key.owned(), new);
            match (row.place, place) {
                (Place::Named, Place::Stranger) => _ = self.strangers.fetch_add(1, Relaxed),
                (Place::Stranger, Place::Named) => self.one_stranger_less(),
                _ => {}
            }
        });
        false
    }

    /// Adds a row whose room is taken, unless there is one by now; says whether it did.
    fn insert_new(&self, key: &Lookup<'_>, row: Row, context: Context<'_>) -> bool {
        let (place, bytes) = (row.place, row_bytes(key.tenant) + row.boxed_bytes());
        let rows = self.shard(key.hash).rows.pin();
        // counted first: a sweep may find the row at once
        self.budget.force(bytes);
        match rows.try_insert(key.owned(), row) {
            Ok(_) => true,
            Err(there_is_one) => {
                self.budget.give_back(bytes);
                there_is_one.not_inserted.discard(context);
                if place == Place::Stranger {
                    self.one_stranger_less();
                }
                false
            }
        }
    }

    /// Takes the room for one more stranger, if there is any.
    fn take_room(&self) -> bool {
        let room = self.max_tenants.saturating_sub(self.quotas.named_count());
        self.budget.has_room()
            && self.strangers.fetch_update(Relaxed, Relaxed, |now| (now < room).then_some(now + 1)).is_ok()
    }

    fn one_stranger_less(&self) {
        _ = self.strangers.fetch_update(Relaxed, Relaxed, |now| now.checked_sub(1));
    }

    /// The row of a named tenant that has none: it counts what the tenant may have spent in a bucket before.
    fn named_row(
        &self,
        key: &Lookup<'_>,
        plan: &Plan,
        unnamed: &Plan,
        since: u32,
        epoch: u32,
        context: Context<'_>,
    ) -> Row {
        match self.overflow.began() {
            Some(began) if began < since => self.own_row(key, plan, unnamed, Place::Named, epoch, context),
            _ => Row::new(plan.clone(), Place::Named, epoch),
        }
    }

    /// A row for a tenant that may have shared a bucket, as one with the plan `shared_under`: it counts what that bucket
    /// counts, so that leaving it forgives nothing, and nobody has to stay in it.
    fn own_row(
        &self,
        key: &Lookup<'_>,
        plan: &Plan,
        shared_under: &Plan,
        place: Place,
        epoch: u32,
        context: Context<'_>,
    ) -> Row {
        while let Some(bucket) = self.bucket_in_use(key, shared_under, context.now) {
            let copied = |row: &Row| row.copied(plan, place, epoch, context);
            if let Some(row) = self.on_own_row(&bucket, context, copied) {
                return row;
            }
        }
        Row::new(plan.clone(), place, epoch)
    }

    /// The bucket of this tenant, if it has this plan.
    fn bucket(&self, key: &Lookup<'_>, plan: &Plan) -> (Tenant, Place) {
        let number = key.hash % BUCKETS;
        if *plan == self.quotas.default() {
            return (Tenant::bucket(number, None), Place::Bucket);
        }
        (Tenant::bucket(number, Some(plan.fingerprint(&*SEED))), Place::PlanBucket)
    }

    /// The bucket that this tenant may have spent from, if anything there still counts.
    fn bucket_in_use(&self, key: &Lookup<'_>, plan: &Plan, now: Moment) -> Option<Tenant> {
        self.overflow.began()?;
        let buckets = [self.bucket(key, plan).0, Tenant::bucket(key.hash % BUCKETS, None)];
        buckets.into_iter().find(|bucket| self.is_in_use(bucket, now))
    }

    fn is_in_use(&self, bucket: &Tenant, now: Moment) -> bool {
        let key = Lookup::of(bucket);
        self.shard(key.hash).rows.pin().get(&key).is_some_and(|row| !row.is_idle(now))
    }

    /// `None` if the quotas are not those of this epoch any more.
    fn spend_from_bucket<T>(
        &self,
        key: &Lookup<'_>,
        plan: &Plan,
        epoch: u32,
        context: Context<'_>,
        journal: &Journal,
        mut use_row: impl FnMut(&Tenant, &Row) -> Option<T>,
    ) -> Option<T> {
        let (bucket, place) = self.bucket(key, plan);
        let key = Lookup::of(&bucket);
        loop {
            let found = self.on_row(&key, context, |row| {
                // the tenant may be named by now, and be taken for one that never spent from a bucket
                let is_late = self.overflow.began().is_some_and(|began| began > epoch);
                if is_late || (place == Place::Bucket && row.plan() != plan) {
                    return Some(None);
                }
                use_row(&bucket, row).map(Some)
            });
            if let Some(found) = found {
                return found;
            }
            // counted before it is there to be swept
            if self.overflow.one_more(epoch) {
                journal.overflow_began(context.now);
            }
            if !self.insert_new(&key, Row::new(plan.clone(), place, epoch), context) {
                self.one_bucket_less(context, journal);
            }
        }
    }

    fn one_bucket_less(&self, context: Context<'_>, journal: &Journal) {
        if self.overflow.one_less() {
            journal.overflow_ended(context.now);
        }
    }

    /// Forgets what is idle in the next shards, if it is time: as many as are due, or until a few hundred rows were
    /// looked at. So memory is given back a little at a time, by the requests themselves.
    #[inline]
    pub(super) fn sweep(&self, context: Context<'_>, journal: &Journal) {
        let (now, due) = (context.now.as_nanos(), self.sweep_at.load(Relaxed));
        if now >= due {
            self.sweep_due(now, due, context, journal);
        }
    }

    #[cold]
    fn sweep_due(&self, now: u64, due: u64, context: Context<'_>, journal: &Journal) {
        let interval = saturating_nanos(SWEEP_ROUND) / SHARDS as u64;
        if self.sweep_at.compare_exchange(due, now.saturating_add(interval), Relaxed, Relaxed).is_err() {
            return;
        }
        let mut rows_seen = 0;
        for _ in 0..=((now - due) / interval).min(MOST_SHARDS_A_SWEEP) {
            if rows_seen >= ENOUGH_ROWS_A_SWEEP {
                break;
            }
            let turn = self.sweep_next.fetch_add(1, Relaxed);
            rows_seen += self.shards.get(turn % SHARDS).map_or(0, |shard| self.sweep_shard(shard, context, journal));
        }
    }

    fn sweep_shard(&self, shard: &Shard, context: Context<'_>, journal: &Journal) -> usize {
        let guard = shard.rows.guard();
        let mut rows_seen = 0;
        for (key, row) in shard.rows.iter(&guard) {
            rows_seen += 1;
            if self.may_retire(key, row) && row.retire_if_idle(context) {
                shard.rows.remove(key, &guard);
                self.budget.give_back(row_bytes(&key.0) + row.boxed_bytes());
                match row.place {
                    Place::Stranger => self.one_stranger_less(),
                    Place::Bucket | Place::PlanBucket => self.one_bucket_less(context, journal),
                    Place::Named => {}
                }
            }
        }
        rows_seen
    }

    /// Not a tenant that was named while there were buckets: its next row would count what others spent in its bucket
    /// since.
    fn may_retire(&self, key: &Key, row: &Row) -> bool {
        let Some(began) = self.overflow.began() else { return true };
        row.place != Place::Named || self.quotas.named_since(&key.0).is_none_or(|since| since <= began)
    }

    fn shard(&self, hash: u64) -> &Shard {
        // the map itself uses the lowest and the highest bits
        #[expect(clippy::indexing_slicing, reason = "the remainder is a valid index")]
        &self.shards[(hash >> 32) as usize % SHARDS]
    }
}

/// What a row takes in all: itself, the slack of the map and of the allocator, and a long name.
fn row_bytes(tenant: &Tenant) -> usize {
    const SLACK: usize = 32;
    size_of::<(Key, Row)>() + SLACK + tenant.heap_bytes()
}
