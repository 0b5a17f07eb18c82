//! [`SharedLimiter`]: one budget for many processes.

use std::{mem, sync::Arc, time::Duration};

use bytes::Bytes;

use super::{
    breaker::Fallback,
    lease::{Admission, LeaseStep},
    leasing::{Holder, Leasing, identity},
    mirror::Mirrored,
    script::{self, Answer},
    server::Server,
};
use crate::{
    limit::{
        decision::{Ask, CallAsk, Charge, Decision, Marks, Past, Payer, RefusalReason, SharedPast, Spend},
        error::LimiterError,
        hold::Hold,
        limiter::{Limiter, LimiterBuilder},
        plan::{Plan, PlanKind},
        plans::table::Plans,
    },
    redis::{Link, RedisConfig},
    tenant::{LimitKey, Standing},
    util::{builder::setters, error::ConfigError},
};

/// A limiter whose budgets are shared by all processes that use the same Redis or Valkey (feature `redis`). Clones
/// share everything.
///
/// Each check is one script call, timed by the server's clock, unless it has a [lease](#leases). It charges all quotas
/// of the plan, or none. All processes together never admit more than the limit in any window, as long as the server
/// answers within the deadline and loses no acknowledged write. Quotas, refunds, weights, shadow quotas and live
/// changes work as with a [`Limiter`] in memory, but layers with [`charge_if`](crate::RateLimitLayer::charge_if) refund
/// in the background, so the next request may not get the units yet. Times have a resolution of a microsecond.
///
/// A tenant uses about 200 bytes on the server while it has spent units, and at most 17 more for each
/// [slice](crate::Quota::slices) of a window in which it spends. A node uses as much memory for a tenant as a
/// [`Limiter`] in memory does, with the same bounds.
///
/// # Leases
///
/// A limiter from [`Limiter::leased`] takes several units of a busy tenant with one call, a *lease*, and admits the
/// next requests without a call. The size of a lease adapts: it doubles if the units are used up early, and falls to
/// what was used if they are not. A tenant with few requests costs one call per request, and nothing is held back. Once
/// refused, a tenant is refused without further calls until units come back, for at most the
/// lifetime of a lease, if its requests cost the same. Requests that arrive while a call is under way
/// wait for it. If the small leases near the limit take longer than the deadline, they make a call of their own.
///
/// Leases are strict: no more than the limit is admitted in any window, even if nodes crash or are paused, or replies
/// are lost. The server counts leased units from the end of the lease, and a node stops using them before that, by both
/// its monotonic clock and its wall clock. This holds as long as a node's clock runs at most 1% slower than the
/// server's.
///
/// The trade-offs:
/// - A tenant may be refused while nodes hold units. Each lease takes at most a quarter of what is left. Unused units
///   come back when the lease ends, or with the window if the node crashes.
/// - Leased units come back up to a lifetime late. For a short window, a lease lasts at most an eighth of the window,
///   so a busy tenant gets at least 8/9 of its limit.
/// - A [`reset`](Self::reset), a change of a plan and units that come back reach every node within a lifetime. After a
///   reset, other nodes may still admit what they hold.
/// - The [standing](Decision::standing) shows what this node knows: others may have spent more since the last call.
///
/// Plans with a [shadow](crate::Quota::shadow) quota or a window below 8 ms are checked with one call for each request. So are
/// tenants beyond the first 65,536 that a node serves at the same time. Call [`close`](Self::close) before a node stops.
///
/// # Open calls
///
/// A [`hold`](Self::hold) is one script call, and so is its end, in the background. It never uses a lease. If the
/// server never learns about the end, the estimate is charged when the hold expires. The node resends the end until
/// then, and for at least ten seconds. Usage beyond the estimate is lost if the server does not answer in that time, or
/// if the node stops without [`close`](Self::close).
///
/// A node renews the slots of its open calls every three seconds. Slots that are not renewed expire after ten. A node
/// that could not renew its slots opens no call under the same key until the server counts them again, so the open
/// calls of all nodes that could renew are never more than a quota of [concurrent](crate::Quota::concurrent) calls
/// allows. The fallback does not apply to open calls: they are refused while the server does not answer. A key has at
/// most 1,024 open calls: further ones are refused as if a quota named `open-calls` were full.
///
/// # When the server does not answer
///
/// No check waits longer than the [deadline](RedisConfig::deadline), 100 ms by default, or twice as long if it waits
/// for the calls of [other requests](#leases) first. After that, the [`Fallback`] decides. The remaining units of a
/// lease are used first.
///
/// With [`Fallback::Local`], one process never admits more than the limit in any window, as long as the server keeps
/// what it has acknowledged. The fallback starts from what this process has admitted and what the server has reported,
/// and the server is charged for its units when it answers again. If *r* units were left when the processes last heard
/// from the server about the tenant, all *n* processes together admit at most the limit plus (*n* − 1) × *r* in the
/// first window, not counting calls in flight, and at most *n* times the limit in later ones. *r* is the limit for a
/// process that has not heard about the tenant. The estimates of [open calls](#open-calls) are charged later, so what
/// other processes hold is among the *r* units.
///
/// After three failures in a row, the fallback decides immediately, and one check per second finds out whether the
/// server answers again. The events `limiter_fallback_began` and `limiter_fallback_ended` and the metric
/// `tollgate_limiter_fallback_changes_total` show both changes.
///
/// ```no_run
/// use tollgate::{Limiter, Plans, Quota, RateLimitLayer, store::RedisConfig, tenant::HeaderTenant};
///
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// let plans = Plans::new(Quota::per_minute(600)?);
/// let limiter = Limiter::redis(RedisConfig::new("redis://localhost:6379")?, plans).connect().await?;
/// let layer = RateLimitLayer::new(HeaderTenant::new("x-tenant")?, limiter);
/// # drop(layer);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedLimiter(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) server: Arc<Server>,
    leasing: Option<Arc<Leasing>>,
    fallback: Fallback,
}

/// Builds a [`SharedLimiter`].
#[derive(Debug)]
#[must_use]
pub struct SharedLimiterBuilder {
    local: LimiterBuilder,
    config: RedisConfig,
    name: String,
    fallback: Fallback,
    leased: bool,
    new_names: u32,
}

/// Fits a round trip of 25 ms, and a pause of the server for as long.
const DEADLINE: Duration = Duration::from_millis(100);
const NEW_NAMES: u32 = 10_000;

impl Limiter {
    /// Starts building a limiter whose budgets are shared by all processes that use this server. Limiters with different plans on one
    /// server need different [names](SharedLimiterBuilder::name) or [prefixes](RedisConfig::key_prefix).
    pub fn redis(config: RedisConfig, plans: Plans) -> SharedLimiterBuilder {
        Self::builder(plans).redis(config)
    }

    /// Starts building a limiter like that of [`redis`](Self::redis), but one that takes several units with one call
    /// and admits the next requests without one. See [Leases](SharedLimiter#leases).
    pub fn leased(config: RedisConfig, plans: Plans) -> SharedLimiterBuilder {
        Self::redis(config, plans).leased()
    }
}

impl LimiterBuilder {
    /// Shares the budgets with all processes that use this server. The other settings apply to
    /// [`Fallback::Local`].
    pub fn redis(self, config: RedisConfig) -> SharedLimiterBuilder {
        let (fallback, new_names) = (Fallback::default(), NEW_NAMES);
        SharedLimiterBuilder { local: self, config, name: String::new(), fallback, leased: false, new_names }
    }
}

impl SharedLimiterBuilder {
    setters! {
        /// Sets what decides while the server does not answer. Defaults to [`Fallback::Local`].
        pub fn fallback(fallback: Fallback) { fallback: fallback }

        /// Takes several units with one call. By default, each check is a call. See [Leases](SharedLimiter#leases).
        pub fn leased() { leased: true }

        /// Sets how many new names may get a key of their own on the server in a minute. Defaults to 10,000.
        ///
        /// A name is new if this node counts no units of it, and counts if its request is admitted. Beyond that number, new
        /// names share 1,024 keys until there is room again, so callers who make up names can't fill the server. Each node
        /// counts on its own, and so does each limit of addresses. Tenants that a request has proved, that [`Plans`] names,
        /// or whose plan is not the default, for example by [`Plans::by`], always have their own key. A name that spends
        /// with its own key and a shared one can get its limit twice in a window.
        pub fn max_new_names_per_minute(most: u32) { new_names: most }
    }

    /// Sets the name of the limiter, which becomes a part of its keys. By default, a limiter has none.
    ///
    /// Limiters with the same name and [prefix](RedisConfig::key_prefix) share their budgets, so all nodes need the same one. Two
    /// limiters with different plans need different names or prefixes: otherwise each forgets what its own plan does not
    /// count, and neither limit holds.
    ///
    /// # Errors
    ///
    /// Returns an error unless the name has 1 to 32 letters, digits, `.`, `_` or `-`.
    pub fn name(self, name: &str) -> Result<Self, ConfigError> {
        ConfigError::check_word("limiter name", name, 32)?;
        Ok(Self { name: name.to_owned(), ..self })
    }

    /// Connects to the server. Call it in a tokio runtime that outlives the limiter.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is invalid, or if the server can't be reached or is configured to evict keys.
    pub async fn connect(self) -> Result<SharedLimiter, LimiterError> {
        let local = self.local.build()?;
        let link = Link::connect(&self.config, self.config.deadline_or(DEADLINE)).await?;
        let server = Arc::new(Server::new(local, link, self.config.prefix, self.name, self.new_names));
        let leasing = self.leased.then(|| Leasing::start(Arc::clone(&server)));
        Ok(SharedLimiter(Arc::new(Inner { server, leasing, fallback: self.fallback })))
    }
}

pub(super) fn is_untracked(plan: &Plan, ask: Ask) -> bool {
    ask.call == CallAsk::Untracked && plan.counts_calls()
}

impl SharedLimiter {
    /// Creates a limiter of something else, such as failures of addresses, with the connection of this one and keys of its own.
    /// Each check is a call. `local` has the quotas, and decides while the server does not answer.
    pub(crate) fn beside(&self, space: &'static str, local: Limiter) -> Self {
        let server = Arc::new(self.0.server.beside(space, local));
        Self(Arc::new(Inner { server, leasing: None, fallback: Fallback::Local }))
    }

    /// Decides whether this key, often a [`Tenant`](crate::Tenant), may spend these units now, and charges them if so.
    ///
    /// All units are charged or none. Zero units are admitted, unless the plan is [`Plan::denied`].
    pub async fn check(&self, key: &LimitKey, units: u32) -> Decision {
        self.load_and_check(key, Ask { refundable: true, ..Ask::new(units, false) }).await
    }

    /// Decides like [`check`](Self::check) on a request that has proved no tenant. Such a request can't spend what a
    /// quota [reserves](crate::Quota::reserve).
    pub async fn check_anonymous(&self, key: &LimitKey, units: u32) -> Decision {
        self.load_and_check(key, Ask { refundable: true, ..Ask::new(units, true) }).await
    }

    async fn load_and_check(&self, tenant: &LimitKey, ask: Ask) -> Decision {
        if self.local().load_plan(tenant).await.is_err() {
            return Decision::UNAVAILABLE;
        }
        let decision = self.check_in_plan(tenant, ask).await;
        self.local().report(&decision, tenant, ask);
        decision
    }

    /// Holds units of this key while a call is open; see [`Limiter::hold`].
    ///
    /// # Errors
    ///
    /// Returns the decision if the call is refused.
    pub async fn hold(
        &self,
        key: &LimitKey,
        estimate: u32,
        at_most: u32,
        lifetime: Duration,
    ) -> Result<Hold, Decision> {
        self.hold_as(key, Ask::hold(estimate, at_most, lifetime, false)).await
    }

    /// Holds units for a caller who has proved nothing; see [`Limiter::hold_anonymous`].
    ///
    /// # Errors
    ///
    /// Returns the decision if the call is refused.
    pub async fn hold_anonymous(
        &self,
        key: &LimitKey,
        estimate: u32,
        at_most: u32,
        lifetime: Duration,
    ) -> Result<Hold, Decision> {
        self.hold_as(key, Ask::hold(estimate, at_most, lifetime, true)).await
    }

    async fn hold_as(&self, key: &LimitKey, ask: Ask) -> Result<Hold, Decision> {
        let mut decision = self.load_and_check(key, ask).await;
        if !decision.is_admitted() {
            return Err(decision);
        }
        Ok(self.local().take_hold(ask, &mut decision))
    }

    /// Decides on a request of a tenant whose plan is looked up, and reports nothing.
    pub(in crate::limit) async fn check_in_plan(&self, tenant: &LimitKey, ask: Ask) -> Decision {
        // rows of an earlier fallback
        self.local().sweep();
        let plan = self.plans().plan(tenant);
        match plan.kind() {
            PlanKind::Limited { .. } if is_untracked(&plan, ask) => Decision::UNTRACKED,
            PlanKind::Limited { .. } => {
                let server = &self.0.server;
                let (payer, newcomer) = server.payer(tenant, &plan, ask);
                let may_ask = || server.breaker.may_allow(server.watcher.reports().clock.now());
                let is_asked = newcomer.is_none() || may_ask();
                let decided = match ask.call.opens_under(plan.limits()) {
                    true => Some(self.open_call(&payer, &plan, ask).await),
                    false => self.charge(&payer, &plan, ask).await,
                };
                let refused = decided.as_ref().and_then(|decision| decision.refused);
                let decision = decided.unwrap_or_else(|| self.fall_back(&payer, ask));
                // a server that answers late may have made a key, and settling makes one for what the fallback admits
                let has_no_key = refused.is_some_and(|reason| reason != RefusalReason::Unavailable)
                    || !(is_asked || decision.is_admitted() && self.0.fallback == Fallback::Local);
                newcomer.filter(|_| has_no_key).into_iter().for_each(|counted| server.newcomers.give_back(counted));
                decision
            }
            PlanKind::Unlimited { .. } => Decision::UNLIMITED,
            PlanKind::Denied { .. } => Decision::DENIED,
        }
    }

    /// Returns `None` if the fallback must decide.
    async fn charge(&self, tenant: &LimitKey, plan: &Plan, ask: Ask) -> Option<Decision> {
        // the plan counts no calls. If it changes meanwhile, the mirror must not open one that never ends
        let ask = Ask { call: CallAsk::AlreadyOpen, ..ask };
        let step = match &self.0.leasing {
            Some(leasing) => leasing.spend(tenant, plan, ask).await?,
            None => LeaseStep::Plain,
        };
        let now = || self.local().reports().clock.now();
        match step {
            LeaseStep::Admitted(Admission { lease, left, terms }) => {
                let mirrored = self.0.server.mirror.admit(tenant, ask, terms.knowledge);
                let decision = Decision::admitted(terms.standing(left, now()), None);
                let (quotas, generation) = (terms.quotas.clone(), terms.generation);
                let past = |mirrored| SharedPast { tenant: tenant.clone(), quotas, generation, lease, mirrored };
                Some(self.refundable(decision, plan, ask, past, mirrored, terms.marks))
            }
            LeaseStep::Refused(terms) => terms.standing(0, now()).map(Decision::refused_by),
            LeaseStep::Plain | LeaseStep::Call(_) | LeaseStep::Wait(_) => {
                self.spend(tenant, plan, ask).await.map(|answer| self.with_spend(answer, tenant, plan, ask))
            }
        }
    }

    pub(super) fn fall_back(&self, payer: &LimitKey, ask: Ask) -> Decision {
        let Server { local, mirror, .. } = &*self.0.server;
        local.reports().fell_back();
        match self.0.fallback {
            Fallback::Local => {
                let decision = mirror.decide(payer, ask);
                if mirror.has_debts() {
                    self.0.server.settle_later();
                }
                decision
            }
            Fallback::Open => Decision::UNLIMITED,
            Fallback::Closed => Decision { refused: Some(RefusalReason::Unavailable), ..Decision::UNLIMITED },
        }
    }

    /// Returns the standing of the key without spending, or `None` if no enforced quota
    /// applies. Includes what is reserved for authenticated requests.
    pub async fn peek(&self, key: &LimitKey) -> Option<Standing> {
        let plan = self.plans().plan(key);
        if !matches!(plan.kind(), PlanKind::Limited { .. }) {
            return None;
        }
        let ask = Ask::new(0, false);
        let (payer, _) = self.0.server.payer(key, &plan, ask);
        match self.spend(&payer, &plan, ask).await {
            Some(answer) => {
                let standing = answer.decision.standing.filter(|_| answer.decision.is_admitted())?;
                let holder = Holder { tenant: payer.into_owned(), is_anonymous: false };
                Some(standing.with_more(self.0.leasing.as_ref().map_or(0, |leasing| leasing.left(&holder))))
            }
            None if self.0.fallback == Fallback::Local => self.local().peek(&payer),
            None => None,
        }
    }

    /// Refunds the part of a charge that still counts. Returns the new standing of the tenant.
    ///
    /// Nothing is refunded if its window has passed, if another limiter charged it, if the tenant was
    /// [`reset`](Self::reset) or got another plan since, or if the server does not answer.
    pub async fn refund(&self, spend: Spend) -> Option<Standing> {
        let mut charge = spend.0.filter(|charge| charge.limiter == self.local().id())?;
        let Payer::Shared(past) = &mut charge.payer else { return None };
        let standing = self.local().refund(mem::take(&mut past.mirrored));
        let Payer::Shared(past) = &charge.payer else { return None };
        if past.quotas.is_empty() {
            self.0.server.mirror.forgive(&past.tenant, charge.is_anonymous, charge.units, past.generation);
            return standing;
        }
        let holder = Holder { tenant: past.tenant.clone(), is_anonymous: charge.is_anonymous };
        if let Some(leasing) = &self.0.leasing
            && let Some(standing) = leasing.refund(&holder, past.lease, charge.units)
        {
            return standing;
        }
        let plan = self.plans().plan(&past.tenant);
        if !matches!(plan.kind(), PlanKind::Limited { .. }) {
            return None;
        }
        let (operation, ask, more) = Self::refund_of(&charge, past);
        let more: Vec<&[u8]> = more.iter().map(AsRef::as_ref).collect();
        let answer = self.0.server.call(operation, &past.tenant, &plan, ask, &more).await?;
        if let Some(leasing) = &self.0.leasing {
            leasing.ask_again(&holder);
        }
        answer.decision.standing.filter(|_| answer.decision.is_admitted())
    }

    /// Returns the operation and the arguments of a refund.
    pub(super) fn refund_of(charge: &Charge, past: &SharedPast) -> (&'static str, Ask, Vec<Bytes>) {
        let operation = if past.lease == 0 { "refund" } else { "return" };
        let ask = Ask::new(charge.units, charge.is_anonymous);
        (operation, ask, identity(past.generation, &past.quotas, &charge.marks))
    }

    /// Clears everything the key has spent, and logs the reset. With leases, other nodes can still use the units that
    /// they hold, for at most a lifetime.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not answer. The reset may have taken effect.
    pub async fn reset(&self, key: &LimitKey) -> Result<(), LimiterError> {
        let Inner { server, leasing, .. } = &*self.0;
        server.change_calls("", "reset", key, &[]).await?;
        if let Some(leasing) = leasing {
            leasing.forget(key);
        }
        // logs it, too
        server.mirror.reset(key);
        Ok(())
    }

    /// Returns the unused units of this node's leases. Call it on shutdown, after the last request. Later checks are one call
    /// each. Also waits up to five seconds for refunds and ends of [calls](#open-calls) that are being sent, sends ends without a reply
    /// once more, and charges what the fallback has admitted, if the server answers again.
    ///
    /// Without it, the units that this node holds come back one window later, and calls that have just ended may count until
    /// their hold expires.
    pub async fn close(&self) {
        let Inner { server, leasing, .. } = &*self.0;
        if let Some(leasing) = leasing {
            leasing.close().await;
        }
        server.finish().await;
        server.settle_now().await;
    }

    /// Returns the plans of the tenants, which can be changed live. A change applies to this process only: make it in
    /// all of them.
    pub fn plans(&self) -> &Plans {
        self.local().plans()
    }

    /// Returns the limiter of the fallback, which has the same quotas.
    pub(crate) fn local(&self) -> &Limiter {
        &self.0.server.local
    }

    /// Refunds a charge in the background.
    pub(crate) fn refund_later(&self, spend: Spend) {
        let own = self.clone();
        self.0.server.spawn(async move { _ = own.refund(spend).await });
    }

    async fn spend(&self, tenant: &LimitKey, plan: &Plan, ask: Ask) -> Option<Answer> {
        self.0.server.call("spend", tenant, plan, ask, &[]).await
    }

    pub(super) fn with_spend(&self, answer: Answer, tenant: &LimitKey, plan: &Plan, ask: Ask) -> Decision {
        let Answer { decision, generation, marks, mirrored, .. } = answer;
        let past = |mirrored| {
            let (tenant, quotas) = (tenant.clone(), script::packed(plan));
            SharedPast { tenant, quotas, generation, lease: 0, mirrored }
        };
        self.refundable(decision, plan, ask, past, mirrored, marks)
    }

    /// Adds what a refund needs, or refunds the charge and returns the refusal if this node refuses what the server has admitted.
    fn refundable(
        &self,
        mut decision: Decision,
        plan: &Plan,
        ask: Ask,
        past: impl FnOnce(Spend) -> SharedPast,
        mirrored: Result<Mirrored, Decision>,
        marks: Marks,
    ) -> Decision {
        let (mirrored, refusal) = match mirrored {
            Ok((_, mirrored)) => (mirrored, None),
            Err(refusal) => (Spend::default(), Some(refusal)),
        };
        let is_refundable = ask.refundable || refusal.is_some();
        if is_refundable && ask.units > ask.estimate() && decision.is_admitted() {
            decision.spend.0 = Some(Box::new(Charge {
                limiter: self.local().id(),
                payer: Payer::Shared(past(mirrored)),
                past: Past { plan: plan.id(), generation: 0 },
                units: ask.units - ask.estimate(),
                is_anonymous: ask.is_anonymous,
                marks,
            }));
        }
        let Some(refusal) = refusal else { return decision };
        self.refund_later(decision.into_spend());
        refusal
    }
}

crate::util::fmt::debug_fields!(SharedLimiter, |own| plans: own.plans(), fallback: own.0.fallback);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limit::{quota::Quota, shared::model::redis_server::RedisServer},
        testing::ManualClock,
        util::clock::{Clock, Moment, UnixTime},
    };

    fn config(server: &RedisServer) -> RedisConfig {
        RedisConfig::new(&server.url()).unwrap().deadline(Duration::from_secs(5)).unwrap()
    }

    /// Seconds pass between any two reads of the clock.
    #[derive(Debug)]
    struct SlowNode(ManualClock);

    impl Clock for SlowNode {
        fn now(&self) -> Moment {
            self.0.now()
        }

        fn unix(&self, moment: Moment) -> UnixTime {
            self.0.unix(moment)
        }

        fn read_fresh(&self) -> (Moment, UnixTime) {
            self.0.advance(Duration::from_secs(2));
            self.0.read()
        }
    }

    #[tokio::test]
    async fn a_call_whose_answer_is_late_is_refused_and_costs_nothing() {
        let Some(server) = RedisServer::start(&[]) else { return };
        let plan = Plan::new([Quota::per_day(5).unwrap(), Quota::concurrent(2).unwrap()]).unwrap();
        let builder = Limiter::builder(Plans::new(plan)).clock(SlowNode(ManualClock::new()));
        let shared = builder.redis(config(&server)).connect().await.unwrap();
        let acme = LimitKey::parse("acme").unwrap();
        let slot = Ask { call: CallAsk::Slot, ..Ask::new(3, false) };
        let late = shared.check_in_plan(&acme, slot).await;
        assert_eq!(late.refusal_reason(), Some(RefusalReason::Unavailable));
        let is_free = async {
            while shared
                .check_in_plan(&acme, Ask { call: CallAsk::AlreadyOpen, ..Ask::new(5, false) })
                .await
                .refusal_reason()
                .is_some()
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), is_free).await.expect("all units come back");
    }

    #[tokio::test]
    async fn a_plan_that_counts_calls_from_now_on_has_no_call_of_before() {
        let Some(server) = RedisServer::start(&[]) else { return };
        let shared = Limiter::redis(config(&server), Plans::new(Quota::per_day(5).unwrap())).connect().await.unwrap();
        let (acme, slot) = (LimitKey::parse("acme").unwrap(), Ask { call: CallAsk::Slot, ..Ask::new(1, false) });
        let before = shared.plans().plan(&acme);
        shared.plans().set(acme.clone(), Quota::concurrent(1).unwrap());
        // the plan changes while the server is asked
        assert!(shared.charge(&acme, &before, slot).await.unwrap().is_admitted());
        assert!(shared.local().check_unreported(&acme, slot).is_admitted(), "nothing is open");
    }

    #[tokio::test]
    async fn leases_ignore_quotas_of_calls_and_are_not_taken_in_windows_of_a_few_milliseconds() {
        let Some(server) = RedisServer::start(&[]) else { return };
        let quotas = |rate| Plan::new([Quota::concurrent(5).unwrap(), rate]).unwrap();
        let (hourly, short) = (quotas(Quota::per_hour(10_000).unwrap()), Quota::new(1_000, Duration::from_millis(7)));
        let builder = Limiter::leased(config(&server), Plans::new(hourly.clone()));
        let shared = builder.connect().await.unwrap();
        let (acme, globex) = (LimitKey::parse("acme").unwrap(), LimitKey::parse("globex").unwrap());
        let ask = Ask { call: CallAsk::RatesOnly, ..Ask::new(1, false) };
        for _ in 0..100 {
            assert!(shared.check_in_plan(&acme, ask).await.is_admitted());
        }
        let calls = server.cli(&["info", "commandstats"]);
        let calls = calls.lines().filter(|line| line.starts_with("cmdstat_eval"));
        let calls = calls.filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<u32>().ok());
        assert!(calls.sum::<u32>() < 50);
        let short = quotas(short.unwrap());
        let leasing = shared.0.leasing.as_ref().unwrap();
        for _ in 0..2 {
            assert!(matches!(leasing.spend(&globex, &short, ask).await, Some(LeaseStep::Plain)));
        }
    }

    #[tokio::test]
    async fn b25_rows_of_the_fallback_are_removed_while_the_server_answers() {
        let Some(server) = RedisServer::start(&[]) else { return };
        let config = RedisConfig::new(&server.url()).unwrap().deadline(Duration::from_secs(5)).unwrap();
        let (clock, quotas) = (ManualClock::new(), Plans::new(Quota::per_minute(5).unwrap()));
        let shared = Limiter::builder(quotas).clock(clock.clone()).redis(config).connect().await.unwrap();
        for number in 0..100 {
            let tenant = LimitKey::parse(format!("t{number}")).unwrap();
            assert!(shared.fall_back(&tenant, Ask::new(1, false)).is_admitted());
        }
        assert_eq!(shared.local().tenants(), 100);
        // each shard is swept once in 30 seconds
        let acme = LimitKey::parse("acme").unwrap();
        for _ in 0..100 {
            clock.advance(Duration::from_secs(1));
            _ = shared.check(&acme, 0).await;
        }
        assert!(shared.local().tenants() <= 1, "{} rows", shared.local().tenants());
    }

    #[tokio::test]
    async fn b06_each_space_has_a_breaker_of_its_own() {
        let Some(server) = RedisServer::start(&[]) else { return };
        server.cli(&["acl", "setuser", "app", "on", "nopass", "~tollgate:limit:*", "+@all"]);
        let config = RedisConfig::new(&server.url()).unwrap().deadline(Duration::from_secs(5)).unwrap();
        let (quotas, log) = (|| Plans::new(Quota::per_minute(5).unwrap()), crate::event::EventLog::new());
        let builder = Limiter::builder(quotas()).events(log.clone()).redis(config.user("app").password("any"));
        let shared = builder.fallback(Fallback::Closed).connect().await.unwrap();
        let addresses = shared.beside("address-failures", Limiter::memory(quotas()));
        let acme = LimitKey::parse("acme").unwrap();
        for _ in 0..5 {
            // its own fallback decides
            assert!(addresses.check(&acme, 1).await.is_admitted());
            assert!(shared.check(&acme, 1).await.is_admitted());
        }
        server.cli(&["acl", "setuser", "app", "~*", "-@all"]);
        for _ in 0..5 {
            assert_eq!(shared.check(&acme, 1).await.refusal_reason(), Some(RefusalReason::Unavailable));
        }
        // both are reported as one
        assert_eq!(log.read_events(&crate::event::Query::new()).events.len(), 1);
    }

    /// The figures in `docs/scale.md`.
    #[tokio::test]
    async fn b38_a_step_of_the_clock_of_the_server_has_the_effect_that_is_documented() {
        const BEGAN: u64 = 1_800_000_000_000_000;
        const STEP: u64 = 300_000;
        const WINDOW: u64 = 200_000;
        for server in RedisServer::each(&[]) {
            let config = RedisConfig::new(&server.url()).unwrap().deadline(Duration::from_secs(5)).unwrap();
            let plan = Plan::from(Quota::new(50, Duration::from_micros(WINDOW)).unwrap());
            let shared = Limiter::redis(config, Plans::new(plan.clone())).connect().await.unwrap();
            let (ask, acme) = (Ask::new(1, false), LimitKey::parse("acme").unwrap());
            let admitted = async |micros: u64| {
                let (time, mut admitted) = (micros.to_string(), 0);
                for _ in 0..60 {
                    let answer = shared.0.server.call_at(&time, "spend", &acme, &plan, ask, &[]).await.unwrap();
                    admitted += u32::from(answer.unwrap().decision.is_admitted());
                }
                admitted
            };
            // forward: twice the limit
            assert_eq!((admitted(BEGAN).await, admitted(BEGAN + STEP).await), (50, 50));
            server.cli(&["flushall"]);
            // backward: nothing for a window, and for the step
            assert_eq!((admitted(BEGAN).await, admitted(BEGAN - STEP + WINDOW).await), (50, 0));
            assert_eq!((admitted(BEGAN + WINDOW - 1).await, admitted(BEGAN + WINDOW).await), (0, 50));
        }
    }

    #[tokio::test]
    async fn b26_a_period_begins_only_once_when_the_clock_of_the_server_steps_back() {
        const DAY: u64 = 86_400_000_000;
        const MIDNIGHT: u64 = 20_000 * DAY;
        for server in RedisServer::each(&[]) {
            let config = RedisConfig::new(&server.url()).unwrap().deadline(Duration::from_secs(5)).unwrap();
            let plan = Plan::from(Quota::fixed(50, Duration::from_micros(DAY)).unwrap());
            let shared = Limiter::redis(config, Plans::new(plan.clone())).connect().await.unwrap();
            let (ask, acme) = (Ask::new(1, false), LimitKey::parse("acme").unwrap());
            let admitted = async |micros: u64| {
                let (time, mut admitted) = (micros.to_string(), 0);
                for _ in 0..60 {
                    let answer = shared.0.server.call_at(&time, "spend", &acme, &plan, ask, &[]).await.unwrap();
                    admitted += u32::from(answer.unwrap().decision.is_admitted());
                }
                admitted
            };
            assert_eq!((admitted(MIDNIGHT - 1).await, admitted(MIDNIGHT).await), (50, 50));
            // back before midnight, and over it once more
            assert_eq!((admitted(MIDNIGHT - 1).await, admitted(MIDNIGHT).await), (0, 0));
            assert_eq!(admitted(MIDNIGHT + DAY).await, 50);
        }
    }
}
