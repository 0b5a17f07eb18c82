//! The in-memory engine: the rows of all tenants, which are removed when idle.
//!
//! A row is only read and changed under the lock of its shard. No user code runs and no other row is touched under that
//! lock. Plans are looked up before it is taken.

mod admitted;
mod calls;
mod charge;
mod convert;
#[cfg(test)]
pub(super) mod lock_tests;
pub(super) mod meter;
mod overflow;
mod row;
#[cfg(test)]
mod row_tests;
#[cfg(feature = "smooth")]
mod smooth;
pub(super) mod spend;
mod sweep;
mod window;

use std::{
    hash::BuildHasher,
    sync::{
        Mutex,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use self::{
    admitted::Admitted,
    meter::Context,
    overflow::{NewRow, Overflow, is_before},
    row::{Place, Row},
    window::ByteBudget,
};
#[cfg(feature = "redis")]
use super::plan::Plan;
use super::plans::cache::PlanCache;
use super::{
    decision::{CallEnd, CallInMemory, Charge, Payer},
    plan::PlanKind,
    plans::table::{PlanFound, Plans},
};
#[cfg(feature = "redis")]
use crate::util::clock::UnixTime;
use crate::{
    tenant::{LimitKey, Standing, TenantError, TenantName},
    util::lock::lock,
};

/// The number of shards. Small ones keep the pauses for growing and sweeping short.
const SHARDS: usize = 1024;

pub(super) struct Engine {
    /// A number that no other limiter of the process has.
    pub(super) id: u64,
    pub(super) plans: Plans,
    pub(super) plan_cache: Option<PlanCache>,
    pub(super) bytes: ByteBudget,
    max_tenants: usize,
    shards: Box<[Shard]>,
    overflow: Overflow,
    unnamed: AtomicUsize,
    generations: AtomicU32,
    sweep_at: AtomicU64,
    /// The latest wall-clock time of a sweep, in nanoseconds since the Unix epoch.
    pub(super) swept_at: AtomicU64,
    sweep_next: AtomicUsize,
    hasher: RandomState,
}

/// A part of the rows, behind a lock of its own. It has a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Shard(Mutex<Rows>);

/// The rows of a shard, and how many requests they have admitted.
#[derive(Default)]
struct Rows {
    table: HashTable<(LimitKey, Row)>,
    admitted: Admitted,
}

/// A tenant to look up. Hashed once in a request.
#[derive(Clone, Copy)]
pub(super) struct TenantKey<'a> {
    pub(super) hash: u64,
    name: &'a [u8],
    is_checked: bool,
}

impl TenantKey<'_> {
    /// Returns the key, if the name is valid. The name of a row always is.
    pub(super) fn limit_key(&self) -> Result<LimitKey, TenantError> {
        match self.is_checked {
            true => Ok(LimitKey::trusted(self.name)),
            false => LimitKey::parse(self.name),
        }
    }
}

/// Why a request can't be decided on.
#[derive(Clone, Debug)]
pub(super) enum Undecided {
    /// The name of the tenant is not valid.
    Name(TenantError),
    /// The plan of the tenant must be looked up first.
    NeedsPlan,
}

impl From<TenantError> for Undecided {
    fn from(error: TenantError) -> Self {
        Self::Name(error)
    }
}

impl Engine {
    pub(super) fn new(plans: Plans, max_tenants: usize, max_bytes: usize) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT_ID.fetch_add(1, Relaxed),
            plans,
            plan_cache: None,
            bytes: ByteBudget::new(max_bytes),
            max_tenants,
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            overflow: Overflow::new(),
            unnamed: AtomicUsize::new(0),
            generations: AtomicU32::new(0),
            sweep_at: AtomicU64::new(0),
            swept_at: AtomicU64::new(0),
            sweep_next: AtomicUsize::new(0),
            hasher: RandomState::default(),
        }
    }

    /// Returns the number of rows, buckets included.
    pub(super) fn tenants(&self) -> usize {
        self.shards.iter().map(|shard| lock(&shard.0).table.len()).sum::<usize>() + self.overflow.len()
    }

    /// Returns how many requests were admitted and charged, of all tenants with a limit.
    pub(super) fn admitted(&self) -> u64 {
        self.shards.iter().map(|shard| lock(&shard.0).admitted.requests()).sum()
    }

    /// Returns how many requests of this tenant were admitted since the first call for it, while it is watched.
    pub(super) fn watch(&self, tenant: &LimitKey) -> u64 {
        let shard = self.shard(self.key(tenant).hash);
        shard.map_or(0, |shard| lock(&shard.0).admitted.watch(tenant))
    }

    pub(super) fn key<'a>(&self, tenant: &'a LimitKey) -> TenantKey<'a> {
        let name = tenant.as_bytes();
        TenantKey { hash: self.hasher.hash_one(name), name, is_checked: true }
    }

    #[inline]
    pub(super) fn key_of_name<'a>(&self, name: &'a TenantName<'a>) -> TenantKey<'a> {
        let text = name.as_bytes();
        TenantKey { hash: self.hasher.hash_one(text), name: text, is_checked: name.is_checked() }
    }

    /// Refunds a charge as far as it still counts, and returns the standing of the tenant after it.
    pub(super) fn refund(&self, charge: &Charge, context: Context<'_>) -> Option<Standing> {
        self.on_payer(&charge.payer, context, |row| {
            row.refund(context, charge.past, &charge.marks, charge.units);
            row.peek(context, charge.is_anonymous)
        })?
    }

    /// Ends a call, and charges what it has used. The row keeps its plan: no function that chooses plans runs.
    pub(super) fn end_call(&self, call: &CallInMemory, end: CallEnd, context: Context<'_>) {
        let key = self.key(&call.key);
        let end_in_row = || {
            self.with_row(key, |row, _| row.end_call(context, call.id, end));
        };
        match call.bucket {
            None => end_in_row(),
            Some(bucket) => self.overflow.end_call(bucket, |row| row.end_call(context, call.id, end), end_in_row),
        }
    }

    /// Makes the quotas of the tenant count at least this much, as a shared server did at a time. Spends from buckets don't change.
    #[cfg(feature = "redis")]
    pub(super) fn raise(&self, tenant: &LimitKey, context: Context<'_>, plan: &Plan, used: &[u32], at: UnixTime) {
        self.on_row(self.key(tenant), context, |row, _| row.raise(context, plan, used, at));
    }

    /// Returns the units that count of each quota of this plan, or `None` if the tenant shares a bucket, or has another plan
    /// now.
    #[cfg(feature = "redis")]
    pub(super) fn counts(&self, tenant: &LimitKey, context: Context<'_>, plan: &Plan) -> Option<Vec<u32>> {
        match self.on_row(self.key(tenant), context, |row, _| row.counts(context, plan)) {
            Some(counts) => counts,
            None => self.overflow.began().is_none().then(|| vec![0; plan.limits().len()]),
        }
    }

    /// Returns whether the tenant has a row of its own.
    pub(super) fn knows(&self, tenant: &LimitKey) -> bool {
        self.has_row(self.key(tenant))
    }

    /// Uses the row or the bucket that paid, if it exists.
    fn on_payer<T>(&self, payer: &Payer, context: Context<'_>, use_row: impl FnOnce(&mut Row) -> T) -> Option<T> {
        match payer {
            Payer::Tenant(tenant) => self.on_row(self.key(tenant), context, |row, _| use_row(row)),
            Payer::Bucket(bucket) => self.overflow.on_bucket(*bucket, use_row),
            #[cfg(feature = "redis")]
            Payer::Shared(_) => None,
        }
    }

    /// Clears the spends in the tenant's own row.
    pub(super) fn reset(&self, key: TenantKey<'_>, context: Context<'_>) {
        self.on_row(key, context, |row, _| row.reset(context, self.next_generation()));
    }

    /// Returns the standing of the tenant, for authenticated requests, in the row that it would spend from next. Creates no row.
    pub(super) fn peek(&self, tenant: &LimitKey, context: Context<'_>) -> Option<Standing> {
        let key = self.key(tenant);
        loop {
            if let Some(standing) = self.on_row(key, context, |row, _| row.peek(context, false)) {
                return standing;
            }
            let (found, named_since) = self.plans.find(tenant);
            if !matches!(found.plan.kind(), PlanKind::Limited { .. }) {
                return None;
            }
            let unnamed = named_since.map(|_| self.plans.unnamed(tenant, found.epoch));
            let mut buckets = self.overflow.lock(key.hash);
            if self.has_row(key) {
                continue;
            }
            let peeking = NewRow { context, tenant: key.hash, moves_calls: false };
            let mut row = match &unnamed {
                Some(unnamed) => self.new_row(&mut buckets, &found, (Place::Named, named_since), unnamed, peeking),
                None if self.has_room() => self.new_row(&mut buckets, &found, (Place::Unnamed, None), &found, peeking),
                None => {
                    match buckets.peek(&found, || self.next_generation(), context, |row| row.peek(context, false)) {
                        Some(standing) => return standing,
                        None => Row::new(found.plan.clone(), Place::Bucket, found.epoch, 0),
                    }
                }
            };
            let standing = row.peek(context, false);
            row.release(context);
            return standing;
        }
    }

    /// Uses the row of a tenant, if there is one. The row has the current plan.
    #[inline]
    fn on_row<T>(
        &self,
        key: TenantKey<'_>,
        context: Context<'_>,
        use_row: impl FnOnce(&mut Row, &mut Admitted) -> T,
    ) -> Option<T> {
        let epoch = self.plans.epoch();
        let has_function = self.plans.has_function();
        let used = self.with_row(key, |row, admitted| match row.epoch() == epoch && !has_function {
            true => Ok(use_row(row, admitted)),
            false => Err(use_row),
        });
        match used? {
            Ok(value) => Some(value),
            Err(use_row) => {
                let tenant = LimitKey::trusted(key.name);
                if self.has_stale_plan(&tenant, context) {
                    return self.with_row(key, use_row);
                }
                let found = self.plans.find(&tenant);
                self.on_row_with_plan(key, found, context, use_row)
            }
        }
    }

    /// Uses the row of a tenant, if there is one, after giving it this plan.
    #[cold]
    fn on_row_with_plan<T>(
        &self,
        key: TenantKey<'_>,
        mut found: (PlanFound, Option<u32>),
        context: Context<'_>,
        mut use_row: impl FnOnce(&mut Row, &mut Admitted) -> T,
    ) -> Option<T> {
        loop {
            let (plan_found, named_since) = &found;
            let place = if named_since.is_some() { Place::Named } else { Place::Unnamed };
            let used = self.with_row(key, |row, admitted| {
                // another thread may have read a newer plan
                if is_before(plan_found.epoch, row.epoch()) {
                    return Err(use_row);
                }
                let was = row.place();
                row.adopt(&plan_found.plan, place, plan_found.epoch, || self.next_generation(), context);
                match (was, place) {
                    (Place::Named, Place::Unnamed) => _ = self.unnamed.fetch_add(1, Relaxed),
                    (Place::Unnamed, Place::Named) => self.remove_one_unnamed(),
                    _ => {}
                }
                Ok(use_row(row, admitted))
            });
            match used? {
                Ok(value) => return Some(value),
                Err(not_used) => use_row = not_used,
            }
            found = self.plans.find(&LimitKey::trusted(key.name));
        }
    }

    /// Returns whether a source must look up the plan. Until it has, a row keeps the plan that it has.
    fn has_stale_plan(&self, tenant: &LimitKey, context: Context<'_>) -> bool {
        self.plan_cache.as_ref().is_some_and(|plans| plans.is_stale(&self.plans, tenant, context.now))
    }

    fn has_row(&self, key: TenantKey<'_>) -> bool {
        self.with_row(key, |_, _| ()).is_some()
    }

    /// Locks the row of a tenant and uses it, if there is one.
    #[inline]
    fn with_row<T>(&self, key: TenantKey<'_>, use_row: impl FnOnce(&mut Row, &mut Admitted) -> T) -> Option<T> {
        let mut rows = lock(&self.shard(key.hash)?.0);
        let Rows { table, admitted } = &mut *rows;
        let (_, row) = table.find_mut(key.hash, |(tenant, _)| tenant.as_bytes() == key.name)?;
        Some(use_row(row, admitted))
    }

    #[inline]
    fn shard(&self, hash: u64) -> Option<&Shard> {
        self.shards.get(place_of(hash))
    }

    /// Takes the room for one more unnamed tenant, if there is any.
    fn take_room(&self) -> bool {
        let room = self.room();
        self.bytes.has_room()
            && self.unnamed.fetch_update(Relaxed, Relaxed, |now| (now < room).then_some(now + 1)).is_ok()
    }

    fn has_room(&self) -> bool {
        self.bytes.has_room() && self.unnamed.load(Relaxed) < self.room()
    }

    fn room(&self) -> usize {
        self.max_tenants.saturating_sub(self.plans.named_count())
    }

    fn remove_one_unnamed(&self) {
        _ = self.unnamed.fetch_update(Relaxed, Relaxed, |now| now.checked_sub(1));
    }

    fn next_generation(&self) -> u32 {
        self.generations.fetch_add(1, Relaxed)
    }
}

/// Returns the number of a shard. Those of the second half get √2 times as many rows as the others, so that not all tables
/// double at the same time: memory per tenant then varies less.
#[inline]
fn place_of(hash: u64) -> usize {
    const FIRST: u64 = SHARDS as u64 / 2;
    const SECOND: u64 = FIRST * 1_414 / 1_000;
    // the tables themselves use the lowest and the highest bits
    let spot = ((hash >> 16 & u64::from(u32::MAX)) * (FIRST + SECOND)) >> 32;
    let place = if spot < FIRST { spot } else { FIRST + (spot - FIRST) * FIRST / SECOND };
    place as usize
}

/// Returns the bytes of a row and its name.
fn row_bytes(tenant: &LimitKey, row: &Row) -> usize {
    row.bytes_in_map::<LimitKey>() + tenant.heap_bytes()
}
