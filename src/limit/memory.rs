//! The engine in memory: all rows, found without a lock, forgotten when idle.

use std::{
    hash::{BuildHasher, BuildHasherDefault, Hash, Hasher},
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use foldhash::fast::RandomState;
use papaya::{Equivalent, ResizeMode};

use super::{
    budget::Budget,
    journal::Journal,
    meter::Context,
    plan::Terms,
    quotas::Quotas,
    row::{Place, Row},
};
use crate::{
    clock::{Moment, saturating_nanos},
    tenant::Tenant,
};

/// So many maps, so that growing or sweeping one is a short stop.
const SHARDS: usize = 1024;

/// So many buckets that tenants share for whom there is no room.
const BUCKETS: u64 = 4096;

/// How long a sweep takes to visit every shard.
const SWEEP_ROUND: Duration = Duration::from_secs(30);

pub(super) struct Memory {
    pub(super) quotas: Quotas,
    pub(super) max_tenants: usize,
    pub(super) budget: Budget,
    shards: Box<[Shard]>,
    strangers: AtomicUsize,
    buckets: AtomicUsize,
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
            buckets: AtomicUsize::new(0),
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
        let key = Lookup { hash: hash(tenant), tenant };
        loop {
            if let Some(found) = self.on_row(&key, context, |row| use_row(tenant, row)) {
                return found;
            }
            // read before the plan: a change in between is seen at the next use
            let epoch = self.quotas.epoch();
            let plan = self.quotas.plan(tenant);
            if !matches!(plan.terms(), Terms::Limited { .. }) {
                // nothing to remember
                if let Some(found) = use_row(tenant, &Row::new(plan, Place::Named, epoch)) {
                    return found;
                }
            } else if self.quotas.is_named(tenant) {
                self.insert_new(&key, Row::new(plan, Place::Named, epoch));
            } else {
                let _door = self.shard(key.hash).door.lock().unwrap_or_else(PoisonError::into_inner);
                if self.has_row(&key) {
                    // another thread made it, and took the room for it
                    continue;
                }
                if self.bucket_in_use(&key, context.now).is_some() || !self.take_room() {
                    return self.spend_from_bucket(&key, context, journal, use_row);
                }
                self.insert_new(&key, Row::new(plan, Place::Stranger, epoch));
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
        self.on_row(&Lookup { hash: hash(tenant), tenant }, context, use_row)
    }

    /// Runs `use_row` on the row that the tenant would spend from next, without making one.
    pub(super) fn look<T>(&self, tenant: &Tenant, context: Context<'_>, use_row: impl Fn(&Row) -> Option<T>) -> T {
        let key = Lookup { hash: hash(tenant), tenant };
        loop {
            let found = self.on_row(&key, context, &use_row).or_else(|| {
                let bucket = self.bucket_in_use(&key, context.now)?;
                self.on_own_row(&bucket, context, &use_row)
            });
            let fresh = || use_row(&Row::new(self.quotas.plan(tenant), Place::Stranger, 0));
            if let Some(found) = found.or_else(fresh) {
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
        loop {
            let row = rows.get(key, &guard)?;
            if self.is_current(key, row, context)
                && let Some(found) = use_row(row)
            {
                return Some(found);
            }
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
                (Place::Stranger, Place::Named) => _ = self.strangers.fetch_sub(1, Relaxed),
                _ => {}
            }
        });
        false
    }

    /// Adds a row whose room is taken, unless there is one by now; says whether it did.
    fn insert_new(&self, key: &Lookup<'_>, row: Row) -> bool {
        let (place, rows) = (row.place, self.shard(key.hash).rows.pin());
        let inserted = rows.try_insert(key.owned(), row).is_ok();
        match inserted {
            true => self.budget.force(key.row_bytes()),
            false if place == Place::Stranger => _ = self.strangers.fetch_sub(1, Relaxed),
            false => {}
        }
        inserted
    }

    /// Takes the room for one more stranger, if there is any.
    fn take_room(&self) -> bool {
        let room = self.max_tenants.saturating_sub(self.quotas.named_count());
        self.budget.has_room()
            && self.strangers.fetch_update(Relaxed, Relaxed, |now| (now < room).then_some(now + 1)).is_ok()
    }

    /// This tenant's bucket, if what was spent from it still counts, so that the tenant can't leave it.
    fn bucket_in_use(&self, key: &Lookup<'_>, now: Moment) -> Option<Tenant> {
        if self.buckets.load(Relaxed) == 0 {
            return None;
        }
        let bucket = Tenant::bucket(key.hash % BUCKETS);
        let key = Lookup { hash: hash(&bucket), tenant: &bucket };
        let idle = self.shard(key.hash).rows.pin().get(&key).is_none_or(|row| row.is_idle(now));
        (!idle).then_some(bucket)
    }

    fn spend_from_bucket<T>(
        &self,
        key: &Lookup<'_>,
        context: Context<'_>,
        journal: &Journal,
        mut use_row: impl FnMut(&Tenant, &Row) -> Option<T>,
    ) -> T {
        let bucket = Tenant::bucket(key.hash % BUCKETS);
        let key = Lookup { hash: hash(&bucket), tenant: &bucket };
        loop {
            if let Some(found) = self.on_row(&key, context, |row| use_row(&bucket, row)) {
                return found;
            }
            let fresh = Row::new(self.quotas.default(), Place::Bucket, self.quotas.epoch());
            if self.insert_new(&key, fresh) && self.buckets.fetch_add(1, Relaxed) == 0 {
                journal.overflow_began(context.now);
            }
        }
    }

    /// Forgets what is idle in the next shard, if it is time. So memory is given back a little at a time, by the
    /// requests themselves.
    pub(super) fn sweep(&self, context: Context<'_>, journal: &Journal) {
        let (now, due) = (context.now.as_nanos(), self.sweep_at.load(Relaxed));
        if now < due {
            return;
        }
        let next = now.saturating_add(saturating_nanos(SWEEP_ROUND) / SHARDS as u64);
        if self.sweep_at.compare_exchange(due, next, Relaxed, Relaxed).is_err() {
            return;
        }
        let turn = self.sweep_next.fetch_add(1, Relaxed);
        let Some(shard) = self.shards.get(turn % SHARDS) else { return };
        let guard = shard.rows.guard();
        for (key, row) in shard.rows.iter(&guard) {
            if row.retire_if_idle(context) {
                shard.rows.remove(key, &guard);
                self.budget.give_back(key.row_bytes());
                match row.place {
                    Place::Stranger => _ = self.strangers.fetch_sub(1, Relaxed),
                    Place::Bucket if self.buckets.fetch_sub(1, Relaxed) == 1 => journal.overflow_ended(context.now),
                    Place::Bucket | Place::Named => {}
                }
            }
        }
    }

    fn shard(&self, hash: u64) -> &Shard {
        // the map itself uses the lowest and the highest bits
        #[expect(clippy::indexing_slicing, reason = "the remainder is a valid index")]
        &self.shards[(hash >> 32) as usize % SHARDS]
    }
}

/// The tenant whose row it is.
#[derive(Debug, PartialEq, Eq)]
struct Key(Tenant);

/// A tenant and its hash, so that it is hashed once in a request.
#[derive(Debug)]
struct Lookup<'a> {
    hash: u64,
    tenant: &'a Tenant,
}

impl Lookup<'_> {
    fn owned(&self) -> Key {
        Key(self.tenant.clone())
    }

    fn row_bytes(&self) -> usize {
        row_bytes(self.tenant)
    }
}

impl Key {
    fn row_bytes(&self) -> usize {
        row_bytes(&self.0)
    }
}

/// With a seed of this process, for callers choose the names.
pub(super) fn hash(tenant: &Tenant) -> u64 {
    static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::default);
    SEED.hash_one(tenant)
}

/// What a row takes in all: itself, the slack of the map and of the allocator, and a long name.
fn row_bytes(tenant: &Tenant) -> usize {
    const SLACK: usize = 32;
    size_of::<(Key, Row)>() + SLACK + tenant.heap_bytes()
}

impl Equivalent<Key> for Lookup<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self.tenant == key.0
    }
}

/// Only when a map grows.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(hash(&self.0));
    }
}

impl Hash for Lookup<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Passes on the hash that the key brings.
#[derive(Debug, Default)]
struct Ready(u64);

impl Hasher for Ready {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
