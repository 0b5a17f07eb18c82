//! The limiter: the budgets of all tenants, shared by any number of layers.

use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

#[cfg(feature = "redis")]
use super::plan::Plan;
use super::{
    decision::{Ask, CallEnd, CallInMemory, Decision, EndCall, OpenCall, Spend},
    engine::{Engine, TenantKey, Undecided, meter::Context, spend::SpendRequest},
    hold::Hold,
    line::Lines,
    plans::table::Plans,
    report::Report,
};
use super::{
    plans::cache::PlanCache,
    plans::source::{CachedPlans, PlanUnavailable},
};
#[cfg(feature = "redis")]
use crate::util::clock::UnixTime;
use crate::{
    event::{Budget, Budgets, EventKind, EventLog},
    tenant::{LimitKey, Standing, TenantName},
    util::{
        builder::setters,
        clock::{Clock, SystemClock},
        error::ConfigError,
    },
};

/// Decides which tenant may spend how much. Clones share one budget.
///
/// State lives in memory and is lost when the process ends.
///
/// ```
/// use tollgate::{Limiter, Quota, Plans, Tenant};
///
/// let limiter = Limiter::memory(Plans::new(Quota::per_minute(2)?));
/// let acme = Tenant::parse("acme")?;
/// assert!(limiter.check(&acme, 1).is_admitted());
/// assert!(limiter.check(&acme, 1).is_admitted());
/// assert!(!limiter.check(&acme, 1).is_admitted());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Limiter(Arc<Inner>);

struct Inner {
    engine: Engine,
    report: Report,
    lines: Lines,
}

/// Builds a [`Limiter`].
///
/// ```
/// use tollgate::{EventLog, Limiter, Quota, Plans};
///
/// let limiter = Limiter::builder(Plans::new(Quota::per_minute(600)?))
///     .events(EventLog::new())
///     .max_tenants(100_000)
///     .build()?;
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct LimiterBuilder {
    plans: Plans,
    clock: Option<Arc<dyn Clock>>,
    log: Option<EventLog>,
    max_tenants: usize,
    max_bytes: usize,
    plan_source: Option<CachedPlans>,
}

impl LimiterBuilder {
    setters! {
        /// Sets the clock. Defaults to a [`SystemClock`].
        pub fn clock(clock: impl Clock) { clock: Some(Arc::new(clock)) }

        /// Records refusals and changes of state in this log.
        pub fn events(log: EventLog) { log: Some(log) }

        /// Sets the maximum number of tenants with their own budget. Defaults to
        /// 1,000,000.
        ///
        /// Beyond it, tenants that [`Plans`] names still get their own, and others share 4096 buckets. When there is
        /// room again, a tenant leaves its bucket and is charged for what was spent there.
        pub fn max_tenants(most: usize) { max_tenants: most }

        /// Sets the maximum memory for all tenants together, in bytes. Defaults to 512 MiB.
        ///
        /// Beyond it, new tenants share buckets as described under
        /// [`max_tenants`](Self::max_tenants), and the logs of busy tenants get coarser: units
        /// may come back late, never early.
        pub fn max_bytes(most: usize) { max_bytes: most }

        /// Looks up the plans of tenants, for example in a database. [`Plans::set`] overrides
        /// what is found, and the default applies to tenants without a plan.
        ///
        /// [`RateLimitLayer`](super::RateLimitLayer) waits for the lookup of a new tenant.
        /// [`Limiter::check`] doesn't wait: call [`Limiter::load_plan`] before it. Addresses are not looked up.
        pub fn plan_source(plans: CachedPlans) { plan_source: Some(plans) }
    }

    /// Builds the limiter.
    ///
    /// # Errors
    ///
    /// Returns an error if a maximum or a time is zero.
    pub fn build(self) -> Result<Limiter, ConfigError> {
        for (setting, most) in [("limiter max_tenants", self.max_tenants), ("limiter max_bytes", self.max_bytes)] {
            ConfigError::refuse_if(most == 0, setting, most, "must be at least 1")?;
        }
        if let Some(plans) = &self.plan_source {
            plans.validate()?;
        }
        Ok(self.assemble())
    }

    fn assemble(self) -> Limiter {
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let mut engine = Engine::new(self.plans, self.max_tenants, self.max_bytes);
        engine.plan_cache = self.plan_source.map(PlanCache::new);
        Limiter(Arc::new(Inner { engine, report: Report::new(clock, self.log), lines: Lines::default() }))
    }
}

impl Limiter {
    /// Creates a limiter with default settings that keeps its state in memory.
    pub fn memory(plans: Plans) -> Self {
        Self::builder(plans).assemble()
    }

    /// Starts building a limiter that keeps its state in memory.
    pub fn builder(plans: Plans) -> LimiterBuilder {
        LimiterBuilder {
            plans,
            clock: None,
            log: None,
            max_tenants: 1_000_000,
            max_bytes: 512 << 20,
            plan_source: None,
        }
    }

    /// Decides whether this key, often a [`Tenant`](crate::Tenant), may spend these units now, and charges them if so.
    ///
    /// All units are charged or none. Zero units are admitted, unless the plan is [`Plan::denied`](super::Plan::denied).
    pub fn check(&self, key: &LimitKey, units: u32) -> Decision {
        self.check_as(key, units, false)
    }

    /// Decides like [`check`](Self::check) on a request that has proved no tenant. Such a request can't spend what a
    /// quota [reserves](crate::Quota::reserve).
    pub fn check_anonymous(&self, key: &LimitKey, units: u32) -> Decision {
        self.check_as(key, units, true)
    }

    /// Holds units of this key while a call is open. Use it for a call whose cost is known only at its end, such as the
    /// response of a language model.
    ///
    /// The estimate, at least one unit, is checked now, and counts while the hold is open. At the end, what was
    /// [used](Hold::commit) is charged, or else the estimate. So the units of a long call never slide out of a window
    /// while the call still spends. The hold also takes a slot of each quota of [concurrent](crate::Quota::concurrent)
    /// calls.
    ///
    /// A call that uses more than its estimate is charged up to `at_most`, as a debt: each quota counts at most twice
    /// its limit in all, and admits nothing until it counts less than its limit again. The debt counts for one window,
    /// or until the end of the calendar period. A smooth quota works off all of it. All calls together exceed a limit
    /// by at most what they use beyond their estimates, so choose `at_most` with care. A value below the estimate
    /// counts as the estimate.
    ///
    /// After `lifetime`, at least one millisecond and at most a day, the estimate is charged as if the call had ended.
    /// The slot stays taken until the hold is dropped.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, Plans, Quota, Tenant};
    ///
    /// let limiter = Limiter::memory(Plans::new(Quota::per_minute(1_000)?));
    /// let acme = Tenant::parse("acme")?;
    /// let hold = limiter.hold(&acme, 400, 800, Duration::from_secs(60)).unwrap();
    /// assert_eq!(limiter.peek(&acme).unwrap().remaining(), 600);
    /// hold.commit(250);
    /// assert_eq!(limiter.peek(&acme).unwrap().remaining(), 750);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the decision if the call is refused. While open calls block it, its reset is an estimate; see
    /// [`Standing::is_exact`].
    pub fn hold(&self, key: &LimitKey, estimate: u32, at_most: u32, lifetime: Duration) -> Result<Hold, Decision> {
        self.hold_as(key, Ask::hold(estimate, at_most, lifetime, false))
    }

    /// Holds units like [`hold`](Self::hold) for a caller who has proved no tenant. Such a hold can't take units or
    /// slots that a quota [reserves](crate::Quota::reserve).
    ///
    /// # Errors
    ///
    /// Returns the decision if the call is refused.
    pub fn hold_anonymous(
        &self,
        key: &LimitKey,
        estimate: u32,
        at_most: u32,
        lifetime: Duration,
    ) -> Result<Hold, Decision> {
        self.hold_as(key, Ask::hold(estimate, at_most, lifetime, true))
    }

    fn hold_as(&self, key: &LimitKey, ask: Ask) -> Result<Hold, Decision> {
        let mut decision = self.check_ask(key, ask);
        if !decision.is_admitted() {
            return Err(decision);
        }
        Ok(self.take_hold(ask, &mut decision))
    }

    pub(super) fn check_as(&self, key: &LimitKey, units: u32, is_anonymous: bool) -> Decision {
        self.check_ask(key, Ask { refundable: true, ..Ask::new(units, is_anonymous) })
    }

    fn check_ask(&self, key: &LimitKey, ask: Ask) -> Decision {
        // the key is valid, so this fails only if its plan can't be looked up
        let mut decision = Decision::UNLIMITED;
        match self.check_key(self.0.engine.key(key), ask, &mut decision) {
            Ok(()) => decision,
            Err(_) => Decision::UNAVAILABLE,
        }
    }

    #[inline]
    pub(super) fn key<'a>(&self, name: &'a TenantName<'a>) -> TenantKey<'a> {
        self.0.engine.key_of_name(name)
    }

    /// Looks up the plan of a key, unless a fresh one is cached.
    ///
    /// Layers do this themselves. Does nothing without [`LimiterBuilder::plan_source`].
    ///
    /// # Errors
    ///
    /// Returns an error if the lookup fails and [`PlanFailure::Refuse`](super::PlanFailure::Refuse) is set.
    pub async fn load_plan(&self, tenant: &LimitKey) -> Result<(), PlanUnavailable> {
        let Inner { engine, report, .. } = &*self.0;
        let Some(plans) = &engine.plan_cache else { return Ok(()) };
        let failed = |reason: &str| report.plan_lookup_failed(tenant, reason);
        plans.load(&engine.plans, tenant, &*report.clock, failed).await
    }

    /// Looks up the plan of a tenant in the background, unless it is fresh.
    pub(super) fn load_plan_later(&self, tenant: &LimitKey) {
        let Inner { engine, report, .. } = &*self.0;
        let Some(plans) = &engine.plan_cache else { return };
        if plans.is_due(&engine.plans, tenant, report.clock.now())
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (limiter, tenant) = (self.clone(), tenant.clone());
            runtime.spawn(async move { limiter.load_plan(&tenant).await });
        }
    }

    /// Like [`check`](Self::check), with the name that a source has found. A spend that is never refunded is not kept. The
    /// decision is written to its place, which is [`Decision::UNLIMITED`] before.
    #[inline]
    pub(super) fn check_key(&self, key: TenantKey<'_>, ask: Ask, decision: &mut Decision) -> Result<(), Undecided> {
        let context = self.context();
        self.decide(key, ask, context, decision)?;
        self.0.report.decision(decision, ask, || key.limit_key().ok(), context.now);
        Ok(())
    }

    #[inline]
    fn decide(
        &self,
        key: TenantKey<'_>,
        ask: Ask,
        context: Context<'_>,
        decision: &mut Decision,
    ) -> Result<(), Undecided> {
        let Inner { engine, report, .. } = &*self.0;
        if engine.sweep(context) {
            report.overflow_ended(context.now);
        }
        if let Some(plans) = &engine.plan_cache {
            plans.tick(&engine.plans, context.now);
        }
        let began = Cell::new(false);
        engine.spend(SpendRequest { key, context, ask, began: &began }, decision)?;
        if began.get() {
            report.overflow_began(context.now);
        }
        Ok(())
    }

    /// Removes idle rows of a few shards, if it is time. Each check does so.
    #[cfg(feature = "redis")]
    pub(super) fn sweep(&self) {
        let context = self.context();
        if self.0.engine.sweep(context) {
            self.0.report.overflow_ended(context.now);
        }
    }

    /// Decides like [`check`](Self::check), and reports nothing.
    pub(super) fn check_unreported(&self, tenant: &LimitKey, ask: Ask) -> Decision {
        let mut decision = Decision::UNLIMITED;
        match self.decide(self.0.engine.key(tenant), ask, self.context(), &mut decision) {
            Ok(()) => decision,
            Err(_) => Decision::UNAVAILABLE,
        }
    }

    /// Reports a decision that was made without a report.
    pub(super) fn report(&self, decision: &Decision, key: &LimitKey, ask: Ask) {
        let (report, ask) = (&self.0.report, Ask { can_wait: false, ..ask });
        let now = decision.standing().map_or_else(|| report.clock.now(), Standing::now);
        report.decision(decision, ask, || Some(key.clone()), now);
    }

    /// Returns the callers that wait until they are admitted.
    pub(super) fn lines(&self) -> &Lines {
        &self.0.lines
    }

    /// Makes the quotas of this plan count at least as many units of the tenant as a shared server counted at a time.
    #[cfg(feature = "redis")]
    pub(super) fn raise(&self, tenant: &LimitKey, plan: &Plan, used: &[u32], at: UnixTime) {
        let Inner { engine, .. } = &*self.0;
        if !engine.knows(tenant) {
            _ = self.check_unreported(tenant, Ask { is_admitted: true, ..Ask::new(0, false) });
        }
        engine.raise(tenant, self.context(), plan, used, at);
    }

    /// Returns the units that count of each quota of this plan, or `None` if they are not known.
    #[cfg(feature = "redis")]
    pub(super) fn counts(&self, tenant: &LimitKey, plan: &Plan) -> Option<Vec<u32>> {
        self.0.engine.counts(tenant, self.context(), plan)
    }

    /// Returns whether units of the tenant have counted a moment ago, or still do.
    #[cfg(feature = "redis")]
    pub(super) fn knows(&self, tenant: &LimitKey) -> bool {
        self.0.engine.knows(tenant)
    }

    /// Counts a request that was rejected before a budget was looked at.
    pub(super) fn count_rejection(&self, kind: EventKind, reason: Option<&'static str>) {
        self.0.report.report_rejection(kind, reason);
    }

    /// Returns the standing of the key without spending, or `None` if no enforced quota
    /// applies. Includes what is reserved for authenticated requests.
    pub fn peek(&self, key: &LimitKey) -> Option<Standing> {
        self.0.engine.peek(key, self.context())
    }

    /// Refunds the part of a charge that still counts. Returns the new standing of the tenant.
    ///
    /// Nothing is refunded if its window has passed, if another limiter charged it, or
    /// if the tenant was [`reset`](Self::reset) or got another plan since.
    pub fn refund(&self, spend: Spend) -> Option<Standing> {
        let charge = spend.0.filter(|charge| charge.limiter == self.0.engine.id)?;
        self.0.engine.refund(&charge, self.context())
    }

    /// Takes the call that an admission has opened.
    pub(super) fn take_hold(&self, ask: Ask, decision: &mut Decision) -> Hold {
        let open = decision.call.take().map(|call| match *call {
            OpenCall::Memory(call) => Box::new(OwnCall { limiter: self.clone(), call }) as Box<dyn EndCall>,
            #[cfg(feature = "redis")]
            OpenCall::Shared(call) => call,
        });
        Hold::new(open, ask.estimate(), decision.standing)
    }

    /// Refuses a call that nothing tracks if an enforced quota counts calls of this key. Returns whether one does.
    pub(super) fn refuse_untracked(&self, key: &LimitKey) -> bool {
        let Inner { engine, report, .. } = &*self.0;
        let is_refused = engine.plans.plan(key).counts_calls();
        if is_refused {
            report.decision(&Decision::UNTRACKED, Ask::new(0, false), || Some(key.clone()), report.clock.now());
        }
        is_refused
    }

    /// Ends a call, and charges what it has used.
    pub(super) fn end_call(&self, call: &CallInMemory, end: CallEnd) {
        self.0.engine.end_call(call, end, self.context());
    }

    /// Clears everything the key has spent, and logs the reset. Spending in a shared bucket stays.
    pub fn reset(&self, key: &LimitKey) {
        let context = self.context();
        self.0.engine.reset(self.0.engine.key(key), context);
        self.0.report.record_limit_event(EventKind::TenantReset, context.now, Some(key));
    }

    /// Returns the plans of the tenants, which can be changed live.
    pub fn plans(&self) -> &Plans {
        &self.0.engine.plans
    }

    /// Returns how many tenants the limiter remembers, shared buckets included.
    pub fn tenants(&self) -> usize {
        self.0.engine.tenants()
    }

    /// Returns how many bytes the remembered tenants use, by the limiter's own count.
    pub fn bytes(&self) -> usize {
        self.0.engine.bytes.used()
    }

    /// Returns a number that no other limiter of the process has.
    #[cfg(feature = "redis")]
    pub(super) fn id(&self) -> u64 {
        self.0.engine.id
    }

    /// Returns the clock and the reports of this limiter.
    #[cfg(feature = "redis")]
    pub(super) fn reports(&self) -> &Report {
        &self.0.report
    }

    /// Returns a number that identifies this tenant in this limiter.
    pub(super) fn payer_id(&self, key: TenantKey<'_>) -> u64 {
        key.hash ^ self.0.engine.id.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    #[inline]
    fn context(&self) -> Context<'_> {
        let Inner { engine, report, .. } = &*self.0;
        let (now, unix_now) = report.clock.read();
        Context { now, unix_now, swept_at: engine.swept_at.load(Relaxed), bytes: &engine.bytes }
    }
}

impl Budgets for Limiter {
    fn admitted(&self) -> u64 {
        self.0.engine.admitted()
    }

    fn named(&self, most: usize) -> Vec<LimitKey> {
        self.plans().named(most)
    }

    fn budget(&self, key: &LimitKey) -> Option<Budget> {
        let Inner { engine, .. } = &*self.0;
        if !engine.knows(key) && !engine.plans.is_named(key) {
            return None;
        }
        Some(Budget { standing: self.peek(key)?, admitted: engine.watch(key) })
    }
}

/// An open call of a limiter in memory.
#[derive(Debug)]
struct OwnCall {
    limiter: Limiter,
    call: CallInMemory,
}

impl EndCall for OwnCall {
    fn end(self: Box<Self>, end: CallEnd) {
        self.limiter.end_call(&self.call, end);
    }

    fn refuse_untracked(&self) -> bool {
        self.limiter.refuse_untracked(&self.call.key)
    }
}

// no number of tenants: counting them takes the lock of every shard
crate::util::fmt::debug_fields!(Limiter, |own| plans: own.plans());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{engine::lock_tests::while_all_is_locked, quota::Quota};

    #[test]
    fn b30_debug_of_a_limiter_takes_no_lock() {
        let limiter = Limiter::memory(Plans::new(Quota::per_hour(9).unwrap()));
        assert!(limiter.check(&LimitKey::parse("acme").unwrap(), 1).is_admitted());
        let shown = format!("{limiter:?}");
        assert!(shown.starts_with("Limiter { plans: Plans {"), "{shown}");
        let own = limiter.clone();
        let again = while_all_is_locked(&limiter.0.engine, Duration::from_secs(20), move || format!("{own:?}"));
        assert_eq!(again.as_ref(), Some(&shown));
    }
}
