//! The in-memory engine: the rows of all tenants, which are removed when idle.
//!
//! A row is only read and changed under the lock of its shard. No user code runs and no other row is touched under that
//! lock. Plans are looked up before it is taken.

mod sweep;

use std::{
    cell::Cell,
    hash::{BuildHasher, RandomState as StdRandomState},
    sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use dashmap::{DashMap, SharedValue};
use foldhash::fast::RandomState;

use super::{
    board::{self, Board, TenantHash},
    decision::{Charge, Decision, Marks, NO_MARKS, Past, Payer},
    meter::Context,
    overflow::{Buckets, Overflow, PlanFound, is_before},
    plan::{Plan, Terms},
    quotas::Quotas,
    row::{Place, Row},
    window::ByteBudget,
};
use crate::tenant::{Standing, Tenant, TenantError, TenantName};

/// The number of maps, each with [`SHARDS_OF_A_MAP`] shards. Small maps keep the pauses for growing and sweeping short.
const MAPS: usize = 512;

/// The minimum number of shards in a map.
const SHARDS_OF_A_MAP: usize = 2;

pub(super) struct Engine {
    pub(super) quotas: Quotas,
    pub(super) bytes: ByteBudget,
    max_tenants: usize,
    maps: Box<[Rows]>,
    board: Board,
    overflow: Overflow,
    strangers: AtomicUsize,
    generations: AtomicU32,
    sweep_at: AtomicU64,
    sweep_next: AtomicUsize,
    hasher: RandomState,
    /// Computes the second hash of the board, with a key from the operating system.
    second_hasher: StdRandomState,
}

type Rows = DashMap<Tenant, Row, RandomState>;

/// A tenant to look up. Hashed once in a request.
#[derive(Clone, Copy)]
pub(super) struct Lookup<'a> {
    pub(super) hash: u64,
    name: &'a [u8],
    source: Source<'a>,
}

#[derive(Clone, Copy)]
enum Source<'a> {
    Tenant(&'a Tenant),
    Name(&'a TenantName<'a>),
}

impl Lookup<'_> {
    /// Returns the tenant, if its name is valid. The name of a row always is.
    pub(super) fn tenant(&self) -> Result<Tenant, TenantError> {
        match self.source {
            Source::Tenant(tenant) => Ok(tenant.clone()),
            Source::Name(name) => name.to_tenant(),
        }
    }
}

/// A request to spend.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) units: u32,
    /// Whether the spend may be refunded.
    pub(super) refundable: bool,
    /// The limiter that a refund must come back to.
    pub(super) limiter: u64,
}

impl Engine {
    pub(super) fn new(quotas: Quotas, max_tenants: usize, max_bytes: usize) -> Self {
        let map = |_| DashMap::with_capacity_and_hasher_and_shard_amount(0, RandomState::default(), SHARDS_OF_A_MAP);
        Self {
            quotas,
            bytes: ByteBudget::new(max_bytes),
            max_tenants,
            maps: (0..MAPS).map(map).collect(),
            board: Board::new(),
            overflow: Overflow::new(),
            strangers: AtomicUsize::new(0),
            generations: AtomicU32::new(0),
            sweep_at: AtomicU64::new(0),
            sweep_next: AtomicUsize::new(0),
            hasher: RandomState::default(),
            second_hasher: StdRandomState::new(),
        }
    }

    /// Returns the number of rows, buckets included.
    pub(super) fn tenants(&self) -> usize {
        self.maps.iter().map(DashMap::len).sum::<usize>() + self.overflow.len()
    }

    pub(super) fn lookup<'a>(&self, tenant: &'a Tenant) -> Lookup<'a> {
        let name = tenant.as_bytes();
        Lookup { hash: self.hasher.hash_one(name), name, source: Source::Tenant(tenant) }
    }

    #[inline]
    pub(super) fn lookup_name<'a>(&self, name: &'a TenantName<'a>) -> Lookup<'a> {
        let text = name.as_bytes();
        Lookup { hash: self.hasher.hash_one(text), name: text, source: Source::Name(name) }
    }

    /// Decides on a request, and charges it if it is admitted. Sets `began` if it made the first bucket.
    ///
    /// # Errors
    ///
    /// Fails if the name of the tenant is not valid.
    #[inline]
    pub(super) fn spend(
        &self,
        key: Lookup<'_>,
        context: Context<'_>,
        request: Request,
        began: &Cell<bool>,
    ) -> Result<Decision, TenantError> {
        if self.quotas.has_function() {
            return self.spend_by_function(key, context, request, began);
        }
        let terms = board::Terms { units: request.units, epoch: self.quotas.epoch(), plan: None };
        if let Some(standing) = self.known_refusal(key, terms, context) {
            return Ok(Decision::refused_by(standing));
        }
        match self.on_row(key, context, |row| self.decide(key, row, context, request)) {
            Some(decision) => Ok(decision),
            None => self.spend_without_row(key, context, request, began),
        }
    }

    /// Decides on a request if a function chooses plans. The function runs before the board is read.
    fn spend_by_function(
        &self,
        key: Lookup<'_>,
        context: Context<'_>,
        request: Request,
        began: &Cell<bool>,
    ) -> Result<Decision, TenantError> {
        let tenant = key.tenant()?;
        let (found, named_since) = self.find_plan(&tenant);
        let terms = board::Terms { units: request.units, epoch: found.epoch, plan: Some(found.plan.id()) };
        if let Some(standing) = self.known_refusal(key, terms, context) {
            return Ok(Decision::refused_by(standing));
        }
        let decided =
            self.on_row_with_plan(key, (found, named_since), context, |row| self.decide(key, row, context, request));
        match decided {
            Some(decision) => Ok(decision),
            None => self.spend_without_row(key, context, request, began),
        }
    }

    /// Decides on a locked row, and updates the refusal board.
    #[inline]
    fn decide(&self, key: Lookup<'_>, row: &mut Row, context: Context<'_>, request: Request) -> Decision {
        let mut marks = NO_MARKS;
        let past = row.past();
        let mut decision = row.decide(context, request.units, &mut marks);
        if decision.is_admitted() {
            if row.is_on_board() && request.units > 0 {
                self.clear_board(key, row);
            }
            self.keep_spend(&mut decision, request, past, marks, || Payer::Tenant(Tenant::trusted(key.name)));
        } else {
            self.post(key, row, context, request.units, &decision);
        }
        decision
    }

    #[inline]
    fn keep_spend(
        &self,
        decision: &mut Decision,
        Request { units, refundable, limiter }: Request,
        past: Past,
        marks: Marks,
        payer: impl FnOnce() -> Payer,
    ) {
        // a tenant without limits has spent nothing
        if refundable && units > 0 && past.plan != Plan::NO_ID && decision.is_admitted() {
            decision.spend.0 = Some(Box::new(Charge { limiter, payer: payer(), past, units, marks }));
        }
    }

    #[cold]
    fn spend_without_row(
        &self,
        key: Lookup<'_>,
        context: Context<'_>,
        request: Request,
        began: &Cell<bool>,
    ) -> Result<Decision, TenantError> {
        let tenant = key.tenant()?;
        loop {
            let (found, named_since) = self.find_plan(&tenant);
            match found.plan.terms() {
                Terms::Limited { .. } => {}
                // needs no row
                Terms::Unlimited { .. } => return Ok(Decision::UNLIMITED),
                Terms::Denied { .. } => return Ok(Decision::DENIED),
            }
            let unnamed = named_since.map(|_| self.unnamed_plan(&tenant, found.epoch));
            let mut buckets = self.overflow.lock(key.hash);
            if self.has_row(key) {
                // another thread has created it
            } else if let (Some(since), Some(unnamed)) = (named_since, unnamed) {
                let row = self.new_row(&mut buckets, &found, (Place::Named, Some(since)), &unnamed, context);
                return Ok(self.insert(key, tenant, row, context, request));
            } else if self.take_room() {
                let row = self.new_row(&mut buckets, &found, (Place::Stranger, None), &found, context);
                return Ok(self.insert(key, tenant, row, context, request));
            } else if let Some(spent) = self.spend_from_bucket(&mut buckets, &found, context, request, began) {
                return Ok(spent);
            }
            drop(buckets);
            if let Some(decision) = self.on_row(key, context, |row| self.decide(key, row, context, request)) {
                return Ok(decision);
            }
        }
    }

    fn spend_from_bucket(
        &self,
        buckets: &mut Buckets<'_>,
        found: &PlanFound,
        context: Context<'_>,
        request: Request,
        began: &Cell<bool>,
    ) -> Option<Decision> {
        let mut marks = NO_MARKS;
        let shared = buckets.spend(found, self.next_generation(), context, request.units, &mut marks)?;
        let mut decision = shared.decision;
        self.keep_spend(&mut decision, request, shared.past, marks, || Payer::Bucket(shared.bucket));
        if shared.began {
            began.set(true);
        }
        Some(decision)
    }

    /// Creates the row that a tenant gets. It counts what the tenant may have spent from a bucket.
    fn new_row(
        &self,
        buckets: &mut Buckets<'_>,
        found: &PlanFound,
        (place, named_since): (Place, Option<u32>),
        shared_under: &PlanFound,
        context: Context<'_>,
    ) -> Row {
        let empty = Row::new(found.plan.clone(), place, found.epoch, self.next_generation());
        match (self.overflow.began(), named_since) {
            (Some(began), Some(since)) if is_before(began, since) => buckets.inherit(empty, shared_under, context),
            (Some(_), None) => buckets.inherit(empty, shared_under, context),
            _ => empty,
        }
    }

    /// Decides on a new row and adds it. Its room is taken.
    fn insert(
        &self,
        key: Lookup<'_>,
        tenant: Tenant,
        mut row: Row,
        context: Context<'_>,
        request: Request,
    ) -> Decision {
        let decision = self.decide(key, &mut row, context, request);
        self.bytes.force(row_bytes(&tenant, &row));
        let (map, shard) = place_of(key.hash);
        if let Some(rows) = self.maps.get(map).and_then(|map| map.shards().get(shard)) {
            let row = (tenant, SharedValue::new(row));
            rows.write().insert(key.hash, row, |(tenant, _)| self.hasher.hash_one(tenant.as_bytes()));
        }
        decision
    }

    /// Uses a bucket, if it exists.
    pub(super) fn on_payer<T>(
        &self,
        payer: &Payer,
        context: Context<'_>,
        use_row: impl FnOnce(&mut Row) -> T,
    ) -> Option<T> {
        match payer {
            Payer::Tenant(tenant) => {
                let key = self.lookup(tenant);
                self.on_row(key, context, |row| {
                    self.clear_board(key, row);
                    use_row(row)
                })
            }
            Payer::Bucket(bucket) => self.overflow.on_bucket(*bucket, use_row),
        }
    }

    /// Clears the spends in the tenant's own row.
    pub(super) fn reset(&self, key: Lookup<'_>, context: Context<'_>) {
        self.on_row(key, context, |row| {
            row.reset(context, self.next_generation());
            self.clear_board(key, row);
        });
    }

    /// Returns the standing of the tenant in the row that it would spend from next. Creates no row.
    pub(super) fn peek(&self, tenant: &Tenant, context: Context<'_>) -> Option<Standing> {
        let key = self.lookup(tenant);
        loop {
            if let Some(standing) = self.on_row(key, context, |row| row.peek(context)) {
                return standing;
            }
            let (found, named_since) = self.find_plan(tenant);
            if !matches!(found.plan.terms(), Terms::Limited { .. }) {
                return None;
            }
            let unnamed = named_since.map(|_| self.unnamed_plan(tenant, found.epoch));
            let mut buckets = self.overflow.lock(key.hash);
            if self.has_row(key) {
                continue;
            }
            let mut row = match &unnamed {
                Some(unnamed) => self.new_row(&mut buckets, &found, (Place::Named, named_since), unnamed, context),
                None if self.has_room() => self.new_row(&mut buckets, &found, (Place::Stranger, None), &found, context),
                None => match buckets.peek(&found, context, |row| row.peek(context)) {
                    Some(standing) => return standing,
                    None => Row::new(found.plan.clone(), Place::Bucket, found.epoch, 0),
                },
            };
            let standing = row.peek(context);
            row.release(context);
            return standing;
        }
    }

    /// Uses the row of a tenant, if there is one. The row has the current plan.
    #[inline]
    fn on_row<T>(&self, key: Lookup<'_>, context: Context<'_>, use_row: impl FnOnce(&mut Row) -> T) -> Option<T> {
        let epoch = self.quotas.epoch();
        let has_function = self.quotas.has_function();
        let used = self.with_row(key, |row| match row.epoch() == epoch && !has_function {
            true => Ok(use_row(row)),
            false => Err(use_row),
        });
        match used? {
            Ok(value) => Some(value),
            Err(use_row) => {
                let found = self.find_plan(&Tenant::trusted(key.name));
                self.on_row_with_plan(key, found, context, use_row)
            }
        }
    }

    /// Uses the row of a tenant, if there is one, after giving it this plan.
    #[cold]
    fn on_row_with_plan<T>(
        &self,
        key: Lookup<'_>,
        mut found: (PlanFound, Option<u32>),
        context: Context<'_>,
        mut use_row: impl FnOnce(&mut Row) -> T,
    ) -> Option<T> {
        loop {
            let (plan_found, named_since) = &found;
            let place = if named_since.is_some() { Place::Named } else { Place::Stranger };
            let used = self.with_row(key, |row| {
                // another thread may have read a newer plan
                if is_before(plan_found.epoch, row.epoch()) {
                    return Err(use_row);
                }
                let was = row.place();
                if row.adopt(&plan_found.plan, place, plan_found.epoch, context) {
                    self.clear_board(key, row);
                    match (was, place) {
                        (Place::Named, Place::Stranger) => _ = self.strangers.fetch_add(1, Relaxed),
                        (Place::Stranger, Place::Named) => self.one_stranger_less(),
                        _ => {}
                    }
                }
                Ok(use_row(row))
            });
            match used? {
                Ok(value) => return Some(value),
                Err(not_used) => use_row = not_used,
            }
            found = self.find_plan(&Tenant::trusted(key.name));
        }
    }

    fn has_row(&self, key: Lookup<'_>) -> bool {
        self.with_row(key, |_| ()).is_some()
    }

    /// Locks the row of a tenant and uses it, if there is one.
    #[inline]
    fn with_row<T>(&self, key: Lookup<'_>, use_row: impl FnOnce(&mut Row) -> T) -> Option<T> {
        let (map, shard) = place_of(key.hash);
        let mut rows = self.maps.get(map)?.shards().get(shard)?.write();
        let (_, row) = rows.get_mut(key.hash, |(tenant, _)| tenant.as_bytes() == key.name)?;
        Some(use_row(row.get_mut()))
    }

    /// Looks up the plan of a tenant. No lock may be held, because this can run user code.
    fn find_plan(&self, tenant: &Tenant) -> (PlanFound, Option<u32>) {
        // read before the plan: a change in between is seen at the next use
        let epoch = self.quotas.epoch();
        let (plan, named_since) = self.quotas.find(tenant);
        (self.found(plan, epoch), named_since)
    }

    /// Looks up the plan that a tenant would have without its own.
    fn unnamed_plan(&self, tenant: &Tenant, epoch: u32) -> PlanFound {
        self.found(self.quotas.unnamed(tenant), epoch)
    }

    fn found(&self, plan: Plan, epoch: u32) -> PlanFound {
        let is_default = plan == self.quotas.default();
        PlanFound { plan, is_default, epoch }
    }

    fn post(&self, key: Lookup<'_>, row: &mut Row, context: Context<'_>, units: u32, decision: &Decision) {
        let Some(standing) = decision.standing.filter(|standing| standing.reset() != Standing::NEVER) else { return };
        if !self.board.has_room(key.hash, row.epoch(), context.now) {
            return;
        }
        let Some((quota, holds_until)) = row.refusal_holds(context, &standing) else { return };
        if holds_until <= context.now {
            return;
        }
        let tenant = TenantHash { first: key.hash, second: self.second_hasher.hash_one(key.name) };
        let terms = board::Terms { units, epoch: row.epoch(), plan: Some(row.plan().id()) };
        if self.board.post(tenant, terms, &standing, &quota, (context.now, holds_until)) {
            row.set_on_board(true);
        }
    }

    /// Clears the refusal of a locked row.
    fn clear_board(&self, key: Lookup<'_>, row: &mut Row) {
        if row.is_on_board() {
            self.board.clear(key.hash);
            row.set_on_board(false);
        }
    }

    /// Returns the refusal of this request that the board shows.
    #[inline]
    fn known_refusal(&self, key: Lookup<'_>, terms: board::Terms, context: Context<'_>) -> Option<Standing> {
        let tenant = TenantHash { first: key.hash, second: || self.second_hasher.hash_one(key.name) };
        self.board.find(tenant, terms, (context.now, context.unix_now))
    }

    /// Takes the room for one more unnamed tenant, if there is any.
    fn take_room(&self) -> bool {
        let room = self.room();
        self.bytes.has_room()
            && self.strangers.fetch_update(Relaxed, Relaxed, |now| (now < room).then_some(now + 1)).is_ok()
    }

    fn has_room(&self) -> bool {
        self.bytes.has_room() && self.strangers.load(Relaxed) < self.room()
    }

    fn room(&self) -> usize {
        self.max_tenants.saturating_sub(self.quotas.named_count())
    }

    fn one_stranger_less(&self) {
        _ = self.strangers.fetch_update(Relaxed, Relaxed, |now| now.checked_sub(1));
    }

    fn next_generation(&self) -> u32 {
        self.generations.fetch_add(1, Relaxed)
    }
}

/// Returns the map of a row, and the shard in it. The tables themselves use the lowest and the highest bits.
#[inline]
fn place_of(hash: u64) -> (usize, usize) {
    ((hash >> 32) as usize % MAPS, (hash >> 42) as usize % SHARDS_OF_A_MAP)
}

/// Returns the bytes of a row: itself, the slack of the map and of the allocator, and a long name.
fn row_bytes(tenant: &Tenant, row: &Row) -> usize {
    const SLACK: usize = 32;
    size_of::<(Tenant, Row)>() + SLACK + tenant.heap_bytes() + row.boxed_bytes()
}
