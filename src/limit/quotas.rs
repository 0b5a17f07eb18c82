//! [`Quotas`]: which plan each tenant has, changed while the service runs.

use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
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
    named: papaya::HashMap<Tenant, Plan, foldhash::fast::RandomState>,
    function: Option<Box<PlanOf>>,
    /// Rises with each change, so that a row knows when to look again.
    epoch: AtomicU32,
}

impl Quotas {
    /// One plan for all.
    pub fn new(default: impl Into<Plan>) -> Self {
        Self::with(default.into(), None)
    }

    /// A function decides: it is asked at each request, for tenants that are not
    /// [`set`](Self::set); where it gives `None` the default applies.
    ///
    /// Make each plan once and hand out clones: they are compared by identity first.
    pub fn by(default: impl Into<Plan>, function: impl Fn(&Tenant) -> Option<Plan> + Send + Sync + 'static) -> Self {
        Self::with(default.into(), Some(Box::new(function)))
    }

    fn with(default: Plan, function: Option<Box<PlanOf>>) -> Self {
        Self(Arc::new(Inner {
            default: RwLock::new(default),
            named: papaya::HashMap::default(),
            function,
            epoch: AtomicU32::new(0),
        }))
    }

    /// Gives a tenant a plan of its own.
    pub fn set(&self, tenant: Tenant, plan: impl Into<Plan>) {
        self.0.named.pin().insert(tenant, plan.into());
        self.changed();
    }

    /// Takes a tenant's own plan away.
    pub fn remove(&self, tenant: &Tenant) {
        self.0.named.pin().remove(tenant);
        self.changed();
    }

    /// Changes the plan of all tenants that have none of their own.
    pub fn set_default(&self, plan: impl Into<Plan>) {
        *self.0.default.write().unwrap_or_else(PoisonError::into_inner) = plan.into();
        self.changed();
    }

    /// The plan of this tenant.
    pub fn plan(&self, tenant: &Tenant) -> Plan {
        if let Some(plan) = self.0.named.pin().get(tenant) {
            return plan.clone();
        }
        if let Some(plan) = self.0.function.as_ref().and_then(|function| function(tenant)) {
            return plan;
        }
        self.default()
    }

    pub(super) fn default(&self) -> Plan {
        self.0.default.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn is_named(&self, tenant: &Tenant) -> bool {
        self.0.named.pin().contains_key(tenant)
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

    fn changed(&self) {
        self.0.epoch.fetch_add(1, SeqCst);
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
