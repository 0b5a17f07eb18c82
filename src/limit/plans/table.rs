//! The plans of all tenants, changed while the service runs.

use std::sync::{
    Arc, Mutex, PoisonError, RwLock,
    atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst},
};

use dashmap::DashMap;

use crate::{limit::plan::Plan, tenant::LimitKey};

type PlanOf = dyn Fn(&LimitKey) -> Option<Plan> + Send + Sync;

/// The plans of all tenants.
///
/// Clones share one table, so an operator's endpoint can change it. A change applies from
/// the next request on, and what a tenant has spent stays spent.
///
/// Tenants and client addresses without a plan of their own have the default plan. If anonymous callers have access
/// too, make the default a plan for them, and set a plan for each customer.
///
/// Tenants with a plan in this table keep their own budget when the limiter is full.
///
/// ```
/// use tollgate::{Plan, Quota, Plans, Tenant};
///
/// let plans = Plans::new(Quota::per_minute(600)?);
/// plans.set(Tenant::parse("acme")?, Quota::per_minute(1200)?);
/// plans.set(Tenant::parse("monitoring")?, Plan::unlimited());
/// plans.set(Tenant::parse("crawler")?, Plan::denied());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Plans(Arc<Inner>);

struct Inner {
    default: RwLock<Plan>,
    named: DashMap<LimitKey, NamedPlan, foldhash::fast::RandomState>,
    named_count: AtomicUsize,
    function: Option<Box<PlanOf>>,
    /// Held during a change, so that each change gets its own epoch.
    changes: Mutex<()>,
    /// Rises with each change, so that a row knows when to look up its plan again.
    epoch: AtomicU32,
}

/// A plan as it was found for a tenant.
#[derive(Clone)]
pub(in crate::limit) struct PlanFound {
    pub(in crate::limit) plan: Plan,
    /// Whether the tenant has it because nothing else was chosen.
    pub(in crate::limit) is_default: bool,
    /// The epoch before it was looked up.
    pub(in crate::limit) epoch: u32,
}

#[derive(Clone)]
struct NamedPlan {
    plan: Plan,
    /// The first epoch in which the tenant has a plan of its own.
    since: u32,
    /// Whether a [`PlanSource`](super::source::PlanSource) has found the plan.
    is_found: bool,
}

impl NamedPlan {
    fn set(plan: Plan, since: u32) -> Self {
        Self { plan, since, is_found: false }
    }
}

impl Plans {
    /// Creates a table with the same plan for every tenant.
    pub fn new(default: impl Into<Plan>) -> Self {
        Self::with(default.into(), None)
    }

    /// Chooses plans with a function. It is called on each request of a tenant whose plan is not [`set`](Self::set). If
    /// it returns `None`, the default applies.
    ///
    /// Create each plan once and return clones, because plans are compared by identity
    /// first. Use only a few plans: when the limiter is full, each plan has its own buckets. A
    /// tenant that shares a bucket and gets another plan starts again in the bucket of that
    /// plan.
    pub fn by(default: impl Into<Plan>, function: impl Fn(&LimitKey) -> Option<Plan> + Send + Sync + 'static) -> Self {
        Self::with(default.into(), Some(Box::new(function)))
    }

    fn with(default: Plan, function: Option<Box<PlanOf>>) -> Self {
        Self(Arc::new(Inner {
            default: RwLock::new(default),
            named: DashMap::default(),
            named_count: AtomicUsize::new(0),
            function,
            changes: Mutex::new(()),
            epoch: AtomicU32::new(0),
        }))
    }

    /// Sets the plan of a tenant or another key. If the key has shared a bucket until now, everything that counts there
    /// counts against the key until its window has passed.
    pub fn set(&self, key: impl Into<LimitKey>, plan: impl Into<Plan>) {
        let (key, plan) = (key.into(), plan.into());
        self.change(|next_epoch| {
            let since = self.0.named.get(&key).map_or(next_epoch, |named| named.since);
            if self.0.named.insert(key, NamedPlan::set(plan, since)).is_none() {
                self.0.named_count.fetch_add(1, SeqCst);
            }
        });
    }

    /// Removes a tenant's own plan.
    pub fn remove(&self, tenant: &LimitKey) {
        self.change(|_| {
            if self.0.named.remove(tenant).is_some() {
                self.0.named_count.fetch_sub(1, SeqCst);
            }
        });
    }

    /// Changes the plan of all tenants without one of their own.
    pub fn set_default(&self, plan: impl Into<Plan>) {
        let plan = plan.into();
        self.change(|_| *self.0.default.write().unwrap_or_else(PoisonError::into_inner) = plan);
    }

    /// Returns the plan of a tenant.
    pub fn plan(&self, tenant: &LimitKey) -> Plan {
        self.find(tenant).0.plan
    }

    /// Returns the plan of a tenant and, if the tenant has its own, the epoch in which it was set. No lock may be held,
    /// because this can run a function of the application.
    pub(in crate::limit) fn find(&self, tenant: &LimitKey) -> (PlanFound, Option<u32>) {
        // read before the plan: a change in between is seen at the next use
        let epoch = self.epoch();
        // the lock of the table is released before the function runs
        let named = self.0.named.get(tenant).map(|named| NamedPlan::clone(&named));
        match named {
            Some(NamedPlan { plan, since, .. }) => (PlanFound { plan, is_default: false, epoch }, Some(since)),
            None => (self.unnamed(tenant, epoch), None),
        }
    }

    /// Returns the plan that a tenant has in this epoch without its own.
    pub(in crate::limit) fn unnamed(&self, tenant: &LimitKey, epoch: u32) -> PlanFound {
        match self.0.function.as_ref().and_then(|function| function(tenant)) {
            Some(plan) => PlanFound { plan, is_default: false, epoch },
            None => PlanFound { plan: self.default(), is_default: true, epoch },
        }
    }

    /// Returns whether the tenant has a plan of its own.
    pub(in crate::limit) fn is_named(&self, tenant: &LimitKey) -> bool {
        self.0.named.contains_key(tenant)
    }

    /// Returns some of the keys that have a plan of their own.
    pub(in crate::limit) fn named(&self, most: usize) -> Vec<LimitKey> {
        self.0.named.iter().take(most).map(|named| named.key().clone()).collect()
    }

    pub(in crate::limit) fn default(&self) -> Plan {
        self.0.default.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(in crate::limit) fn named_count(&self) -> usize {
        self.0.named_count.load(SeqCst)
    }

    /// Returns whether a function must be called at each request.
    #[inline]
    pub(in crate::limit) fn has_function(&self) -> bool {
        self.0.function.is_some()
    }

    #[inline]
    pub(in crate::limit) fn epoch(&self) -> u32 {
        self.0.epoch.load(SeqCst)
    }

    /// Lets each row look up its plan again.
    pub(super) fn begin_epoch(&self) {
        self.change(|_| ());
    }

    /// Returns whether an operator has set a plan for this tenant.
    pub(super) fn is_set(&self, tenant: &LimitKey) -> bool {
        self.0.named.get(tenant).is_some_and(|named| !named.is_found)
    }

    /// Returns whether the tenant has a plan that a source has found.
    pub(super) fn is_found(&self, tenant: &LimitKey) -> bool {
        self.0.named.get(tenant).is_some_and(|named| named.is_found)
    }

    /// Sets the plan that a source has found. One that an operator has set stays.
    pub(super) fn set_found(&self, tenant: &LimitKey, plan: Plan) {
        let stays = |named: &NamedPlan| !named.is_found || named.plan == plan;
        // the usual case, which changes nothing for any row
        if self.0.named.get(tenant).is_some_and(|named| stays(&named)) {
            return;
        }
        self.change(|next_epoch| {
            let (is_set, since) = match self.0.named.get(tenant) {
                Some(named) => (!named.is_found, named.since),
                None => (false, next_epoch),
            };
            let found = NamedPlan { plan, since, is_found: true };
            if !is_set && self.0.named.insert(tenant.clone(), found).is_none() {
                self.0.named_count.fetch_add(1, SeqCst);
            }
        });
    }

    /// Removes the plan of a tenant, if a source has found it.
    pub(super) fn remove_found(&self, tenant: &LimitKey) {
        // without a plan, nothing changes for any row
        if self.is_found(tenant) {
            self.remove_all_found(|remove| remove(tenant));
        }
    }

    /// Removes the plans that `choose` names and that a source has found.
    pub(super) fn remove_all_found(&self, choose: impl FnOnce(&dyn Fn(&LimitKey))) {
        self.change(|_| {
            choose(&|tenant| {
                if self.0.named.remove_if(tenant, |_, named| named.is_found).is_some() {
                    self.0.named_count.fetch_sub(1, SeqCst);
                }
            });
        });
    }

    fn change(&self, apply: impl FnOnce(u32)) {
        let _one_at_a_time = self.0.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let next_epoch = self.epoch().wrapping_add(1);
        apply(next_epoch);
        self.0.epoch.store(next_epoch, SeqCst);
    }
}

crate::util::fmt::debug_fields!(Plans, |own| default: own.default(), named: own.named_count());
