//! Plans that are looked up elsewhere, for example in a database.

use std::{fmt, future::Future, pin::Pin, time::Duration};

use crate::{
    limit::plan::Plan,
    tenant::LimitKey,
    util::{builder::setters, error::ConfigError, lookup::LookupSettings},
};

/// Looks up the plans of tenants, for example in a database.
///
/// Wrap it in [`CachedPlans`] and pass it to
/// [`LimiterBuilder::plan_source`](crate::limit::LimiterBuilder::plan_source).
/// `examples/plans_from_database.rs` is a whole service.
///
/// ```
/// use std::convert::Infallible;
/// use tollgate::{LimitKey, Limiter, Plan, Plans, Quota, limit::{CachedPlans, PlanSource}};
///
/// struct Customers;
///
/// impl PlanSource for Customers {
///     type Error = Infallible;
///
///     async fn plan(&self, tenant: &LimitKey) -> Result<Option<Plan>, Infallible> {
///         // SELECT per_minute FROM customers WHERE name = $1
///         Ok((tenant.as_str() == "acme").then(Plan::unlimited))
///     }
/// }
///
/// let limiter = Limiter::builder(Plans::new(Quota::per_minute(600)?)).plan_source(CachedPlans::new(Customers)).build()?;
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
pub trait PlanSource: Send + Sync + 'static {
    /// Why a lookup failed. It is logged and never sent to callers.
    type Error: fmt::Display;

    /// Returns the plan of a tenant, or `None` if it has none of its own and gets the default.
    ///
    /// A caller may have made up the name. A lookup is dropped at the [deadline](CachedPlans::deadline), or together
    /// with the request that waits for it.
    fn plan(&self, tenant: &LimitKey) -> impl Future<Output = Result<Option<Plan>, Self::Error>> + Send;
}

/// The treatment of a tenant whose plan can't be looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanFailure {
    /// Keeps the plan that was found last, or the default if none was.
    #[default]
    Keep,
    /// Uses the default plan.
    Default,
    /// Refuses the tenant's requests with a 503.
    Refuse,
}

/// A [`PlanSource`] with a cache of its answers.
///
/// The first request of a tenant waits for the lookup. Its plan is then used until it is older than the [time to
/// live](Self::time_to_live). After that, one request looks it up again, and the others keep using the previous plan.
/// So there is at most one lookup at a time for each tenant.
///
/// Answers that a tenant has no plan are kept just as long, so unknown tenants are not looked up on every request. A
/// new plan applies from the next request on, and what the tenant has spent stays spent.
#[must_use]
pub struct CachedPlans {
    pub(super) source: Box<dyn AnyPlanSource>,
    pub(super) lookup: LookupSettings,
    pub(super) on_failure: PlanFailure,
}

impl CachedPlans {
    /// Caches the answers of this source.
    pub fn new(source: impl PlanSource) -> Self {
        let lookup = LookupSettings::new(Duration::from_secs(5));
        Self { source: Box::new(source), lookup, on_failure: PlanFailure::Keep }
    }

    setters! {
        /// Sets how long an answer is used. Defaults to one minute. An answer can be used for up to
        /// a second longer.
        pub fn time_to_live(time: Duration) { lookup.time_to_live: time }

        /// Sets how long a request waits for its turn, and then for the lookup, before the lookup counts as failed. Defaults to one
        /// second.
        ///
        /// The deadline works in every runtime, with or without timers, because a separate thread watches the lookups
        /// of the process. If the system refuses to start that thread, lookups have no deadline.
        pub fn deadline(time: Duration) { lookup.deadline: time }

        /// Sets what happens if a lookup fails. Defaults to [`PlanFailure::Keep`].
        pub fn on_failure(answer: PlanFailure) { on_failure: answer }

        /// Sets how long to wait before retrying a failed lookup of a tenant. Defaults to five seconds.
        pub fn retry_after(time: Duration) { lookup.retry_after: time }

        /// Sets how many answers are kept. Defaults to 100,000.
        ///
        /// At most half of them are answers that a tenant has no plan, and they make room for plans, so that a flood of
        /// made-up names can't displace customers or keep new ones out. Beyond the maximum, names without a plan are
        /// looked up on every request, and a plan that can't be kept counts as a failed lookup.
        pub fn max_tenants(most: usize) { lookup.max_answers: most }

        /// Sets how many lookups run at once, over all tenants. Defaults to 64.
        ///
        /// At most half of them are for tenants whose plan was not found recently, so made-up names can't take all.
        /// Others wait their turn, for at most a [deadline](Self::deadline), in the order in which they arrived. After
        /// that, the lookup counts as failed.
        pub fn max_lookups(most: usize) { lookup.max_lookups: most }
    }

    pub(in crate::limit) fn validate(&self) -> Result<(), ConfigError> {
        self.lookup.validate([
            "plans time_to_live",
            "plans deadline",
            "plans retry_after",
            "plans max_tenants",
            "plans max_lookups",
        ])
    }
}

crate::util::fmt::debug_fields!(CachedPlans { lookup, on_failure });

/// The error of a lookup that failed while [`PlanFailure::Refuse`] is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanUnavailable;

crate::util::fmt::text_error!(PlanUnavailable, "the plan of the tenant could not be looked up");

pub(super) type LookedUp = Result<Option<Plan>, String>;

/// A [`PlanSource`] of any type.
pub(super) trait AnyPlanSource: Send + Sync + 'static {
    fn look_up<'a>(&'a self, tenant: &'a LimitKey) -> Pin<Box<dyn Future<Output = LookedUp> + Send + 'a>>;
}

impl<S: PlanSource> AnyPlanSource for S {
    fn look_up<'a>(&'a self, tenant: &'a LimitKey) -> Pin<Box<dyn Future<Output = LookedUp> + Send + 'a>> {
        let found = self.plan(tenant);
        Box::pin(async move { found.await.map_err(|error| error.to_string()) })
    }
}
