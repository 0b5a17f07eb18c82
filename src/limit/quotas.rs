//! [`Quotas`]: which plan each tenant has, changed while the service runs.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

use super::plan::Plan;
use crate::tenant::Tenant;

type PlanOf = dyn Fn(&Tenant) -> Option<Plan> + Send + Sync;

/// The plans of all tenants. A clone is the same table, so that an operator's
/// endpoint can change it; a change applies at the next request, and what a
/// tenant has spent stays spent.
///
/// A tenant that is named here keeps a place of its own when the limiter is full.
///
/// ```
/// use tollgate::{Plan, Quota, Quotas, Tenant};
///
/// let quotas = Quotas::new(Quota::per_minute(600)?);
/// quotas.set(Tenant::parse("acme")?, Quota::per_minute(1200)?);
/// quotas.set(Tenant::parse("monitoring")?, Plan::unlimited());
/// quotas.set(Tenant::parse("crawler")?, Plan::denied());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Quotas(Arc<Inner>);

struct Inner {
    default: RwLock<Plan>,
    named: papaya::HashMap<Tenant, Named, foldhash::fast::RandomState>,
    function: Option<Box<PlanOf>>,
    /// Held by a change, so that each has an epoch of its own.
    changes: Mutex<()>,
    /// Rises with each change, so that a row knows when to look again.
    epoch: AtomicU32,
}

struct Named {
    plan: Plan,
    /// The first epoch in which the tenant has a plan of its own.
    since: u32,
}

impl Quotas {
    /// One plan for all.
    pub fn new(default: impl Into<Plan>) -> Self {
        Self::with(default.into(), None)
    }

    /// A function decides: it is asked at each request, for tenants that are not
    /// [`set`](Self::set); where it gives `None` the default applies.
    ///
    /// Make each plan once and hand out clones: they are compared by identity
    /// first. Keep them few: when the limiter is full, each has buckets of its own.
    /// A tenant that shares a bucket then, and is given another plan, starts anew
    /// in the bucket of that plan.
    pub fn by(default: impl Into<Plan>, function: impl Fn(&Tenant) -> Option<Plan> + Send + Sync + 'static) -> Self {
        Self::with(default.into(), Some(Box::new(function)))
    }

    fn with(default: Plan, function: Option<Box<PlanOf>>) -> Self {
        Self(Arc::new(Inner {
            default: RwLock::new(default),
            named: papaya::HashMap::default(),
            function,
            changes: Mutex::new(()),
            epoch: AtomicU32::new(0),
        }))
    }

    /// Gives a tenant a plan of its own. If it shared a bucket until now, all that
    /// counts there counts for it, until its window has passed.
    pub fn set(&self, tenant: Tenant, plan: impl Into<Plan>) {
        let plan = plan.into();
        self.change(|next_epoch| {
            let named = self.0.named.pin();
            let since = named.get(&tenant).map_or(next_epoch, |named| named.since);
            named.insert(tenant, Named { plan, since });
        });
    }

    /// Takes a tenant's own plan away.
    pub fn remove(&self, tenant: &Tenant) {
        self.change(|_| {
            self.0.named.pin().remove(tenant);
        });
    }

    /// Changes the plan of all tenants that have none of their own.
    pub fn set_default(&self, plan: impl Into<Plan>) {
        let plan = plan.into();
        self.change(|_| *self.0.default.write().unwrap_or_else(PoisonError::into_inner) = plan);
    }

    /// The plan of this tenant.
    pub fn plan(&self, tenant: &Tenant) -> Plan {
        self.find(tenant).0
    }

    /// The plan of this tenant; and since which epoch it is named, if it is.
    pub(super) fn find(&self, tenant: &Tenant) -> (Plan, Option<u32>) {
        if let Some(named) = self.0.named.pin().get(tenant) {
            return (named.plan.clone(), Some(named.since));
        }
        (self.unnamed(tenant), None)
    }

    /// The plan that the tenant has where it is not named.
    pub(super) fn unnamed(&self, tenant: &Tenant) -> Plan {
        let chosen = self.0.function.as_ref().and_then(|function| function(tenant));
        chosen.unwrap_or_else(|| self.default())
    }

    pub(super) fn default(&self) -> Plan {
        self.0.default.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn is_named(&self, tenant: &Tenant) -> bool {
        self.0.named.pin().contains_key(tenant)
    }

    pub(super) fn named_since(&self, tenant: &Tenant) -> Option<u32> {
        self.0.named.pin().get(tenant).map(|named| named.since)
    }

    pub(super) fn named_count(&self) -> usize {
        self.0.named.len()
    }

    /// Whether a function must be asked at each request.
    pub(super) fn has_function(&self) -> bool {
        self.0.function.is_some()
    }

    pub(super) fn epoch(&self) -> u32 {
        self.0.epoch.load(SeqCst)
    }

    fn change(&self, apply: impl FnOnce(u32)) {
        let _one_at_a_time = self.0.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let next_epoch = self.epoch().wrapping_add(1);
        apply(next_epoch);
        self.0.epoch.store(next_epoch, SeqCst);
    }
}

impl fmt::Debug for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quotas")
            .field("default", &self.default())
            .field("named", &self.named_count())
            .finish_non_exhaustive()
    }
}
