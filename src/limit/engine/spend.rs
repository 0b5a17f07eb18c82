//! From a request to a decision: the row of the tenant, or a bucket that tenants share.

use std::{cell::Cell, hash::BuildHasher};

use super::{
    Engine, TenantKey, Undecided,
    admitted::Admitted,
    meter::Context,
    overflow::{Buckets, NewRow, is_before},
    row::{Place, Row},
    row_bytes,
};
use crate::limit::plans::cache::PlanCache;
use crate::{
    limit::{
        decision::{Ask, BucketId, CallInMemory, Charge, Decision, Marks, NO_MARKS, OpenCall, Past, Payer},
        plan::{Plan, PlanKind},
        plans::table::PlanFound,
    },
    tenant::{LimitKey, TenantError},
    util::lock::lock,
};

/// A request that wants to spend.
#[derive(Clone, Copy)]
pub(in crate::limit) struct SpendRequest<'a> {
    pub(in crate::limit) key: TenantKey<'a>,
    pub(in crate::limit) context: Context<'a>,
    pub(in crate::limit) ask: Ask,
    /// Is set if the request made the first bucket.
    pub(in crate::limit) began: &'a Cell<bool>,
}

impl Engine {
    /// Decides on a request, and charges it if it is admitted.
    ///
    /// The decision is written to its place, which is [`Decision::UNLIMITED`] before: to return it through each of these
    /// functions costs more than to decide.
    ///
    /// # Errors
    ///
    /// Returns an error if the name of the tenant is not valid, or if its plan must be looked up first.
    #[inline]
    pub(in crate::limit) fn spend(&self, request: SpendRequest<'_>, decision: &mut Decision) -> Result<(), Undecided> {
        if self.plans.has_function() {
            return self.spend_by_function(request, decision);
        }
        let epoch = self.plans.epoch();
        let decided = self.with_row(request.key, |row, admitted| {
            let is_current = row.epoch() == epoch;
            if is_current {
                self.decide_and_count(request, row, admitted, decision);
            }
            is_current
        });
        match decided {
            Some(true) => Ok(()),
            _ => self.spend_anew(request, decision),
        }
    }

    /// Decides on a request of a tenant that has no row, or whose row has an outdated plan.
    #[cold]
    fn spend_anew(&self, request: SpendRequest<'_>, decision: &mut Decision) -> Result<(), Undecided> {
        if let Some(plans) = &self.plan_cache {
            self.require_plan(plans, request)?;
        }
        let decide = |row: &mut Row, admitted: &mut Admitted| self.decide_and_count(request, row, admitted, decision);
        match self.on_row(request.key, request.context, decide) {
            Some(()) => Ok(()),
            None => Ok(self.spend_without_row(request, decision)?),
        }
    }

    /// Returns an error if the plan of the tenant must be looked up first, unless the request can't wait for it.
    #[cold]
    fn require_plan(&self, plans: &PlanCache, request: SpendRequest<'_>) -> Result<(), Undecided> {
        let SpendRequest { key, context, ask, .. } = request;
        let tenant = key.limit_key()?;
        let needs_plan = plans.must_wait(&self.plans, &tenant, context.now, ask.can_wait);
        if needs_plan { Err(Undecided::NeedsPlan) } else { Ok(()) }
    }

    /// Decides on a request if a function chooses plans. The function runs before the row is locked.
    fn spend_by_function(&self, request: SpendRequest<'_>, decision: &mut Decision) -> Result<(), Undecided> {
        let SpendRequest { key, context, .. } = request;
        if let Some(plans) = &self.plan_cache {
            self.require_plan(plans, request)?;
        }
        let tenant = key.limit_key()?;
        let decided = self.on_row_with_plan(key, self.plans.find(&tenant), context, |row, admitted| {
            self.decide_and_count(request, row, admitted, decision);
        });
        match decided {
            Some(()) => Ok(()),
            None => Ok(self.spend_without_row(request, decision)?),
        }
    }

    /// Decides on a locked row, and counts the request if it is admitted.
    #[inline]
    fn decide_and_count(
        &self,
        request: SpendRequest<'_>,
        row: &mut Row,
        admitted: &mut Admitted,
        decision: &mut Decision,
    ) {
        self.decide_in_row(request, row, decision);
        admitted.count(request.key.name, request.ask, decision);
    }

    /// Decides on a row.
    #[inline]
    fn decide_in_row(&self, request: SpendRequest<'_>, row: &mut Row, decision: &mut Decision) {
        let SpendRequest { key, context, ask, .. } = request;
        let mut marks = NO_MARKS;
        let call = row.decide(context, ask, &mut marks, decision);
        self.keep_spend(decision, ask, row.past(), marks, || Payer::Tenant(LimitKey::trusted(key.name)));
        if let Some(id) = call {
            decision.call = Some(opened_call(id, key, None));
        }
    }

    #[inline]
    fn keep_spend(
        &self,
        decision: &mut Decision,
        Ask { units, is_anonymous, refundable, .. }: Ask,
        past: Past,
        marks: Marks,
        payer: impl FnOnce() -> Payer,
    ) {
        // a tenant without limits has spent nothing
        if refundable && units > 0 && past.plan != Plan::NO_ID && decision.is_admitted() {
            decision.spend.0 =
                Some(Box::new(Charge { limiter: self.id, payer: payer(), past, units, is_anonymous, marks }));
        }
    }

    #[cold]
    fn spend_without_row(&self, request: SpendRequest<'_>, decision: &mut Decision) -> Result<(), TenantError> {
        let SpendRequest { key, context, ask, .. } = request;
        let tenant = key.limit_key()?;
        loop {
            let (found, named_since) = self.plans.find(&tenant);
            match found.plan.kind() {
                PlanKind::Limited { .. } => {}
                // needs no row
                PlanKind::Unlimited { .. } => return Ok(()),
                PlanKind::Denied { .. } => {
                    *decision = Decision::DENIED;
                    return Ok(());
                }
            }
            let unnamed = named_since.map(|_| self.plans.unnamed(&tenant, found.epoch));
            let mut buckets = self.overflow.lock(key.hash);
            let moving = NewRow { context, tenant: key.hash, moves_calls: true };
            if self.has_row(key) {
                // another thread has created it
            } else if let (Some(since), Some(unnamed)) = (named_since, unnamed) {
                let row = self.new_row(&mut buckets, &found, (Place::Named, Some(since)), &unnamed, moving);
                self.insert(request, tenant, row, decision);
                return Ok(());
            } else if self.take_room() {
                let row = self.new_row(&mut buckets, &found, (Place::Unnamed, None), &found, moving);
                self.insert(request, tenant, row, decision);
                return Ok(());
            } else if self.spend_from_bucket(&mut buckets, &found, request, decision).is_some() {
                if let Some(shard) = self.shard(key.hash) {
                    lock(&shard.0).admitted.count(key.name, ask, decision);
                }
                return Ok(());
            }
            drop(buckets);
            let decide =
                |row: &mut Row, admitted: &mut Admitted| self.decide_and_count(request, row, admitted, decision);
            if let Some(()) = self.on_row(key, context, decide) {
                return Ok(());
            }
        }
    }

    fn spend_from_bucket(
        &self,
        buckets: &mut Buckets<'_>,
        found: &PlanFound,
        request: SpendRequest<'_>,
        decision: &mut Decision,
    ) -> Option<()> {
        let SpendRequest { key, context, ask, began } = request;
        let mut marks = NO_MARKS;
        let terms = (context, ask, key.hash);
        let shared = buckets.spend(found, || self.next_generation(), terms, &mut marks, decision)?;
        self.keep_spend(decision, ask, shared.past, marks, || Payer::Bucket(shared.bucket));
        if let Some(id) = shared.call {
            decision.call = Some(opened_call(id, request.key, Some(shared.bucket)));
        }
        if shared.began {
            began.set(true);
        }
        Some(())
    }

    /// Creates the row that a tenant gets. It counts what the tenant may have spent from a bucket.
    pub(super) fn new_row(
        &self,
        buckets: &mut Buckets<'_>,
        found: &PlanFound,
        (place, named_since): (Place, Option<u32>),
        shared_under: &PlanFound,
        terms: NewRow<'_>,
    ) -> Row {
        let empty = Row::new(found.plan.clone(), place, found.epoch, self.next_generation());
        match (self.overflow.began(), named_since) {
            (Some(began), Some(since)) if is_before(began, since) => buckets.inherit(empty, shared_under, terms),
            (Some(_), None) => buckets.inherit(empty, shared_under, terms),
            _ => empty,
        }
    }

    /// Decides on a new row and adds it. Its room is taken.
    fn insert(&self, request: SpendRequest<'_>, tenant: LimitKey, mut row: Row, decision: &mut Decision) {
        let SpendRequest { key, context, ask, .. } = request;
        if self.has_stale_plan(&tenant, context) {
            row.outdate();
        }
        self.bytes.force(row_bytes(&tenant, &row));
        self.decide_in_row(request, &mut row, decision);
        if let Some(shard) = self.shard(key.hash) {
            let hash = |(tenant, _): &(LimitKey, Row)| self.hasher.hash_one(tenant.as_bytes());
            let mut rows = lock(&shard.0);
            rows.table.insert_unique(key.hash, (tenant, row), hash);
            rows.admitted.count(key.name, ask, decision);
        }
    }
}

#[cold]
fn opened_call(id: u64, key: TenantKey<'_>, bucket: Option<BucketId>) -> Box<OpenCall> {
    Box::new(OpenCall::Memory(CallInMemory { key: LimitKey::trusted(key.name), bucket, id }))
}
