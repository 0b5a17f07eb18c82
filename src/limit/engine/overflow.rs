//! The buckets that tenants share when a limiter is full.
//!
//! A tenant without its own row spends from a bucket, which it shares with other tenants of the same plan. When there is
//! room again, or when the configuration names the tenant, it gets a row that starts with the units counted in its bucket.
//!
//! Invariants:
//!
//! - A tenant gets a row, or spends from a bucket, only while its [`Buckets`] are locked, and after checking that it has
//!   no row. So it never spends from both, and no spend is missed when a row is created.
//! - Buckets with the same number share one lock. It covers all buckets that a tenant may have spent from: that of its plan,
//!   and that of the default plan.
//! - The open calls of a tenant move from its bucket to its row while the bucket is locked, and a call ends under the same
//!   lock. So a call is found in one of them.
//! - Locks are taken in one order: buckets first, then one shard of the rows. No user code runs under either.
//! - A new row of a named tenant counts its bucket only if the buckets began before the tenant was named. A spend
//!   from a bucket is therefore refused if the buckets began after the epoch in which the caller looked up its plan: the
//!   tenant may have been named in between.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use foldhash::fast::RandomState;

use super::{
    meter::Context,
    row::{Place, Row},
};
use crate::{
    limit::{
        decision::{Ask, BucketId, Decision, Marks, Past},
        plan::Plan,
        plans::table::PlanFound,
    },
    util::lock::lock,
};

/// The number of buckets for each plan.
const BUCKETS: u64 = 4096;

/// The number of locks that they share.
const STRIPES: usize = 64;

type Rows = HashMap<BucketId, Row, RandomState>;

#[derive(Default)]
pub(super) struct Overflow {
    stripes: Box<[Mutex<Rows>]>,
    /// The number of buckets, and the epoch in which the first one was created. Stored in one word, so that they agree.
    state: AtomicU64,
    hasher: RandomState,
}

/// The locked buckets of one tenant.
pub(super) struct Buckets<'a> {
    overflow: &'a Overflow,
    number: u16,
    rows: MutexGuard<'a, Rows>,
}

/// A row that a tenant gets, or would get.
#[derive(Clone, Copy)]
pub(super) struct NewRow<'a> {
    pub(super) context: Context<'a>,
    /// The hash of its key.
    pub(super) tenant: u64,
    /// Whether the open calls of the tenant leave their bucket.
    pub(super) moves_calls: bool,
}

/// A spend from a bucket.
pub(super) struct BucketSpend {
    pub(super) bucket: BucketId,
    pub(super) past: Past,
    /// The number of the call that was opened.
    pub(super) call: Option<u64>,
    /// Whether this is the first bucket.
    pub(super) began: bool,
}

impl Overflow {
    pub(super) fn new() -> Self {
        Self { stripes: (0..STRIPES).map(|_| Mutex::default()).collect(), ..Self::default() }
    }

    /// Locks the buckets of the tenant with this hash.
    pub(super) fn lock(&self, hash: u64) -> Buckets<'_> {
        self.lock_number((hash % BUCKETS) as u16)
    }

    fn lock_number(&self, number: u16) -> Buckets<'_> {
        #[expect(clippy::indexing_slicing, reason = "the remainder is a valid index")]
        let stripe = &self.stripes[usize::from(number) % STRIPES];
        Buckets { overflow: self, number, rows: lock(stripe) }
    }

    /// Uses a bucket, if it exists.
    pub(super) fn on_bucket<T>(&self, id: BucketId, use_row: impl FnOnce(&mut Row) -> T) -> Option<T> {
        self.lock_number(id.number).rows.get_mut(&id).map(use_row)
    }

    /// Ends a call in a bucket, or in the row of its tenant if it has moved there. No call moves meanwhile.
    pub(super) fn end_call(
        &self,
        id: BucketId,
        end_in_bucket: impl FnOnce(&mut Row) -> bool,
        end_in_row: impl FnOnce(),
    ) {
        let mut buckets = self.lock_number(id.number);
        if !buckets.rows.get_mut(&id).is_some_and(end_in_bucket) {
            end_in_row();
        }
    }

    /// Removes idle buckets of one stripe. Returns whether the last bucket is gone.
    pub(super) fn sweep(&self, turn: usize, context: Context<'_>) -> bool {
        if self.began().is_none() {
            return false;
        }
        let mut ended = false;
        // a truncated number still has the same stripe
        self.lock_number(turn as u16).rows.retain(|_, row| {
            let is_idle = row.is_idle(context);
            if is_idle {
                row.release(context);
                context.bytes.give_back(bucket_bytes(row));
                ended |= self.one_less();
            }
            !is_idle
        });
        ended
    }

    /// Returns the number of buckets.
    pub(super) fn len(&self) -> usize {
        self.state.load(SeqCst) as u32 as usize
    }

    /// Returns the epoch in which the first bucket was made. A tenant that was named by then has never spent from a
    /// bucket of now.
    pub(super) fn began(&self) -> Option<u32> {
        let state = self.state.load(SeqCst);
        (state as u32 > 0).then_some((state >> 32) as u32)
    }

    /// Counts a bucket. Returns whether it is the first.
    fn one_more(&self, epoch: u32) -> bool {
        let more = |state: u64| match state as u32 {
            0 => u64::from(epoch) << 32 | 1,
            _ => state + 1,
        };
        self.state.fetch_update(SeqCst, SeqCst, |state| Some(more(state))).is_ok_and(|before| before as u32 == 0)
    }

    /// Counts a bucket less. Returns whether it was the last.
    fn one_less(&self) -> bool {
        let less = |state: u64| (state as u32 > 0).then(|| state - 1);
        self.state.fetch_update(SeqCst, SeqCst, less).is_ok_and(|before| before as u32 == 1)
    }
}

impl Buckets<'_> {
    /// Spends from the bucket of this plan. Returns `None` if the plan is out of date; look it up again then.
    pub(super) fn spend(
        &mut self,
        found: &PlanFound,
        generation: impl Fn() -> u32,
        (context, ask, tenant): (Context<'_>, Ask, u64),
        marks: &mut Marks,
        decision: &mut Decision,
    ) -> Option<BucketSpend> {
        let id = self.id(&found.plan, found.is_default);
        let mut began = false;
        let overflow = self.overflow;
        let row = self.rows.entry(id).or_insert_with(|| {
            began = overflow.one_more(found.epoch);
            let row = Row::new(found.plan.clone(), Place::Bucket, found.epoch, generation());
            context.bytes.force(bucket_bytes(&row));
            row
        });
        let is_late = overflow.began().is_some_and(|began| is_before(found.epoch, began));
        if is_late || !adopt(row, found, generation, context) {
            return None;
        }
        let call = row.decide(context, ask, marks, decision);
        if call.is_some() {
            row.name_newest_call(tenant);
        }
        Some(BucketSpend { bucket: id, past: row.past(), call, began })
    }

    /// Fills an empty row with all that the tenant may have spent from a bucket, as one with the plan `shared_under`.
    /// Its own calls come along.
    pub(super) fn inherit(&mut self, empty: Row, shared_under: &PlanFound, terms: NewRow<'_>) -> Row {
        let NewRow { context, tenant, moves_calls } = terms;
        let ids = [self.id(&shared_under.plan, shared_under.is_default), self.id(&shared_under.plan, true)];
        let mut ids = ids.to_vec();
        ids.dedup();
        let mut calls = Vec::new();
        for id in &ids {
            if let Some(bucket) = self.rows.get_mut(id) {
                calls.extend(bucket.calls_of_tenant(context, tenant, moves_calls));
            }
        }
        let mut row = empty;
        for id in &ids {
            if let Some(bucket) = self.rows.get_mut(id)
                && !bucket.is_idle(context)
            {
                row = bucket.copied(&row, context);
                break;
            }
        }
        row.add_calls(calls, context);
        row
    }

    /// Uses the bucket of this plan, if there is one that is not idle.
    pub(super) fn peek<T>(
        &mut self,
        found: &PlanFound,
        generation: impl FnOnce() -> u32,
        context: Context<'_>,
        use_row: impl FnOnce(&mut Row) -> T,
    ) -> Option<T> {
        let id = self.id(&found.plan, found.is_default);
        let row = self.rows.get_mut(&id)?;
        (!row.is_idle(context) && adopt(row, found, generation, context)).then(|| use_row(row))
    }

    fn id(&self, plan: &Plan, is_default: bool) -> BucketId {
        let plan = (!is_default).then(|| plan.fingerprint(&self.overflow.hasher));
        BucketId { number: self.number, plan }
    }
}

/// Sets the plan of a bucket. Returns `false` if the bucket has a newer one.
fn adopt(row: &mut Row, found: &PlanFound, generation: impl FnOnce() -> u32, context: Context<'_>) -> bool {
    let is_current = !is_before(found.epoch, row.epoch());
    if is_current {
        row.adopt(&found.plan, Place::Bucket, found.epoch, generation, context);
    }
    is_current
}

/// Returns whether an epoch is older than another. Epochs wrap around.
pub(super) fn is_before(epoch: u32, other: u32) -> bool {
    epoch.wrapping_sub(other) > u32::MAX / 2
}

fn bucket_bytes(row: &Row) -> usize {
    row.bytes_in_map::<BucketId>()
}
