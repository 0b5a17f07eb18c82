//! [`SharedLimiter`]: one budget for many processes.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use super::{
    breaker::Breaker,
    script::{self, Answer, SCRIPT},
};
use crate::{
    limit::{
        decision::{Charge, Decision, Past, Payer, RefusalReason, SharedPast, Spend, UNCHARGED},
        limiter::{Limiter, LimiterBuilder},
        plan::{Plan, Terms},
        quotas::Quotas,
    },
    redis::{Link, RedisConfig, RedisFailure, Reply, unexpected},
    tenant::{Standing, Tenant},
    util::clock::Moment,
};

/// A limiter whose budgets are shared by all processes that use the same Redis or Valkey (feature `redis`). Clones share
/// everything.
///
/// Each check is one script call, by the time of the server: all quotas of the plan are charged, or none. Never more than
/// the limit is admitted in any window, by all processes together, as long as the server is up and loses no acknowledged
/// write. Quotas, refunds, weights, shadow quotas and live changes work as with a [`Limiter`] in memory. Times have a
/// resolution of a microsecond.
///
/// A tenant takes about 200 bytes on the server while it has spent units, and at most 17 more for each
/// [slice](crate::Quota::slices) of a window in which it spends.
///
/// A layer with [`charge_if`](crate::RateLimitLayer::charge_if) gives units back in the background, so a request that
/// follows at once may not have them yet.
///
/// # When the server does not answer
///
/// No check waits longer than the [deadline](RedisConfig::deadline), 20 ms by default. Then the [`Fallback`] decides.
/// After three failures in a row it decides at once, and one check a second finds out whether the server answers again.
/// The changes are events ([`LimiterFallbackBegan`](crate::event::EventKind::LimiterFallbackBegan) and
/// [`LimiterFallbackEnded`](crate::event::EventKind::LimiterFallbackEnded)), and counted in
/// `tollgate_limiter_fallback_changes_total`.
///
/// ```no_run
/// use tollgate::{Limiter, Quota, Quotas, RateLimitLayer, RedisConfig, tenant::HeaderTenant};
///
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// let quotas = Quotas::new(Quota::per_minute(600)?);
/// let limiter = Limiter::redis(RedisConfig::new("redis://localhost:6379")?, quotas).connect().await?;
/// let layer = RateLimitLayer::new(HeaderTenant::new("x-tenant")?, limiter);
/// # drop(layer);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedLimiter(pub(super) Arc<Inner>);

pub(super) struct Inner {
    /// Has the plans, the clock and the reports, and decides for [`Fallback::Local`].
    local: Limiter,
    pub(super) link: Link,
    prefix: String,
    /// What is counted, as a part of the keys.
    space: &'static str,
    fallback: Fallback,
    breaker: Arc<Breaker>,
    /// Has the clock of the breaker, and reports its changes.
    watcher: Limiter,
}

/// The budgets of tenants.
const TENANTS: &str = "limit";

/// The rule for requests while the server does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fallback {
    /// Each process limits on its own, in memory, with the same quotas. All processes together may admit as many times the
    /// limit as there are processes.
    #[default]
    Local,
    /// Admits all requests, without headers.
    Open,
    /// Refuses all requests with a 503.
    Closed,
}

/// Builds a [`SharedLimiter`].
#[derive(Debug)]
#[must_use]
pub struct SharedLimiterBuilder {
    local: LimiterBuilder,
    config: RedisConfig,
    fallback: Fallback,
}

const DEADLINE: Duration = Duration::from_millis(20);

impl Limiter {
    /// Starts a limiter whose budgets are shared by all processes that use this server.
    pub fn redis(config: RedisConfig, quotas: Quotas) -> SharedLimiterBuilder {
        Self::builder(quotas).redis(config)
    }
}

impl LimiterBuilder {
    /// Shares the budgets with all processes that use this server. The other settings apply to
    /// [`Fallback::Local`].
    pub fn redis(self, config: RedisConfig) -> SharedLimiterBuilder {
        SharedLimiterBuilder { local: self, config, fallback: Fallback::default() }
    }
}

impl SharedLimiterBuilder {
    /// Sets what decides while the server does not answer. Defaults to [`Fallback::Local`].
    pub fn fallback(mut self, fallback: Fallback) -> Self {
        self.fallback = fallback;
        self
    }

    /// Connects to the server. Call it in a tokio runtime that lives as long as the limiter.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is invalid, the server can't be reached, or may evict keys.
    pub async fn connect(self) -> Result<SharedLimiter, SharedLimiterError> {
        let local = self.local.build().map_err(|error| SharedLimiterError(error.to_string()))?;
        let link = Link::connect(&self.config, self.config.deadline_or(DEADLINE)).await?;
        let (prefix, fallback, watcher) = (self.config.prefix().to_owned(), self.fallback, local.clone());
        let breaker = Arc::default();
        Ok(SharedLimiter(Arc::new(Inner { local, link, prefix, space: TENANTS, fallback, breaker, watcher })))
    }
}

/// A request to decide on.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) units: u32,
    pub(crate) is_anonymous: bool,
    pub(crate) refundable: bool,
}

impl SharedLimiter {
    /// Creates a limiter of something else, such as failures of addresses, with the connection of this one and keys of its own.
    /// `local` has the quotas, and decides while the server does not answer.
    #[cfg(feature = "login")]
    pub(crate) fn beside(&self, space: &'static str, local: Limiter) -> Self {
        let Inner { link, prefix, breaker, watcher, .. } = &*self.0;
        Self(Arc::new(Inner {
            local,
            link: link.clone(),
            prefix: prefix.clone(),
            space,
            fallback: Fallback::Local,
            breaker: Arc::clone(breaker),
            watcher: watcher.clone(),
        }))
    }

    /// Decides whether the tenant may spend these units now, and charges them if so.
    ///
    /// All units are charged or none. Zero units are admitted, unless the tenant is denied.
    pub async fn check(&self, tenant: &Tenant, units: u32) -> Decision {
        self.check_as(tenant, units, false).await
    }

    /// Decides like [`check`](Self::check) on a request that has proved nothing. It can't spend
    /// what a quota [reserves](crate::Quota::reserve).
    pub async fn check_anonymous(&self, tenant: &Tenant, units: u32) -> Decision {
        self.check_as(tenant, units, true).await
    }

    async fn check_as(&self, tenant: &Tenant, units: u32, is_anonymous: bool) -> Decision {
        #[cfg(feature = "plans")]
        if self.0.local.load_plan(tenant).await.is_err() {
            return Decision::DENIED;
        }
        self.decide(tenant, Ask { units, is_anonymous, refundable: true }).await
    }

    /// Decides on a request of a tenant whose plan is looked up.
    pub(crate) async fn decide(&self, tenant: &Tenant, ask: Ask) -> Decision {
        let plan = self.quotas().plan(tenant);
        let decision = match plan.terms() {
            Terms::Limited { .. } => match self.spend(tenant, &plan, ask).await {
                Some(answer) => self.with_spend(answer, tenant, &plan, ask),
                None => return self.fall_back(tenant, ask),
            },
            Terms::Unlimited { .. } => Decision::UNLIMITED,
            Terms::Denied { .. } => Decision::DENIED,
        };
        self.report(&decision, tenant, ask);
        decision
    }

    fn report(&self, decision: &Decision, tenant: &Tenant, ask: Ask) {
        let reports = self.0.local.reports();
        reports.decision(decision, ask.units, || Some(tenant.clone()), reports.clock.now());
    }

    fn fall_back(&self, tenant: &Tenant, ask: Ask) -> Decision {
        let decision = match self.0.fallback {
            Fallback::Local => return self.0.local.check_as(tenant, ask.units, ask.is_anonymous),
            Fallback::Open => Decision::UNLIMITED,
            Fallback::Closed => Decision { refused: Some(RefusalReason::Unavailable), ..Decision::UNLIMITED },
        };
        self.report(&decision, tenant, ask);
        decision
    }

    /// Returns the standing of the tenant without spending, or `None` if no enforced quota
    /// applies. Includes what is reserved for authenticated requests.
    pub async fn peek(&self, tenant: &Tenant) -> Option<Standing> {
        let plan = self.quotas().plan(tenant);
        if !matches!(plan.terms(), Terms::Limited { .. }) {
            return None;
        }
        let ask = Ask { units: 0, is_anonymous: false, refundable: false };
        match self.spend(tenant, &plan, ask).await {
            Some(answer) => answer.decision.standing.filter(|_| answer.decision.is_admitted()),
            None if self.0.fallback == Fallback::Local => self.0.local.peek(tenant),
            None => None,
        }
    }

    /// Refunds the part of a charge that still counts. Returns the new standing of the tenant.
    ///
    /// Nothing is refunded if its window has passed, if another limiter charged it, if the tenant was
    /// [`reset`](Self::reset) or got another plan since, or if the server does not answer.
    pub async fn refund(&self, spend: Spend) -> Option<Standing> {
        let charge = spend.0?;
        let Payer::Shared(past) = &charge.payer else {
            // the fallback has charged it
            return self.0.local.refund(Spend(Some(charge)));
        };
        if charge.limiter != self.0.local.id() {
            return None;
        }
        let plan = self.quotas().plan(&past.tenant);
        let (ask, more) = Self::refund_of(&charge).filter(|_| matches!(plan.terms(), Terms::Limited { .. }))?;
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let answer = self.call("refund", &past.tenant, &plan, ask, &more).await?;
        answer.decision.standing.filter(|_| answer.decision.is_admitted())
    }

    /// Returns the arguments of a refund.
    pub(super) fn refund_of(charge: &Charge) -> Option<(Ask, Vec<String>)> {
        let Payer::Shared(past) = &charge.payer else { return None };
        let mark = |mark: &Moment| if *mark == UNCHARGED { String::new() } else { mark.as_nanos().to_string() };
        let more = [past.generation.to_string(), past.quotas.clone()].into_iter();
        let ask = Ask { units: charge.units, is_anonymous: charge.is_anonymous, refundable: false };
        Some((ask, more.chain(charge.marks.iter().map(mark)).collect()))
    }

    /// Clears all spends of the tenant and logs it.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not answer. It may have cleared them.
    pub async fn reset(&self, tenant: &Tenant) -> Result<(), SharedLimiterError> {
        self.0.link.remove(&self.key(tenant)).await?;
        // logs it, too
        self.0.local.reset(tenant);
        Ok(())
    }

    /// Returns the plans of the tenants, which can be changed live. A change applies to this process: make it in all of
    /// them.
    pub fn quotas(&self) -> &Quotas {
        self.0.local.quotas()
    }

    /// Returns the limiter of the fallback, which has the same quotas.
    pub(crate) fn local(&self) -> &Limiter {
        &self.0.local
    }

    /// Refunds a charge in the background.
    pub(crate) fn refund_later(&self, spend: Spend) {
        let own = self.clone();
        self.0.link.spawn(async move { _ = own.refund(spend).await });
    }

    async fn spend(&self, tenant: &Tenant, plan: &Plan, ask: Ask) -> Option<Answer> {
        self.call("spend", tenant, plan, ask, &[]).await
    }

    /// Runs the script. Returns `None` if the fallback must decide.
    async fn call(&self, operation: &str, tenant: &Tenant, plan: &Plan, ask: Ask, more: &[&str]) -> Option<Answer> {
        let Inner { watcher, breaker, .. } = &*self.0;
        let reports = watcher.reports();
        if !breaker.allows(reports.clock.now()) {
            reports.fell_back();
            return None;
        }
        match self.call_at("", operation, tenant, plan, ask, more).await {
            Ok(answer) => {
                if breaker.succeeded() {
                    reports.fallback_ended(reports.clock.now());
                }
                answer
            }
            Err(failure) => {
                reports.fell_back();
                let now = reports.clock.now();
                if breaker.failed(now) {
                    reports.fallback_began(&failure.to_string(), now);
                }
                None
            }
        }
    }

    /// Runs the script at a time that is only given in tests. Returns `None` if there is nothing to refund.
    pub(super) async fn call_at(
        &self,
        time: &str,
        operation: &str,
        tenant: &Tenant,
        plan: &Plan,
        ask: Ask,
        more: &[&str],
    ) -> Result<Option<Answer>, RedisFailure> {
        let (quotas, units) = (script::quotas(plan), ask.units.to_string());
        let anonymous = if ask.is_anonymous { "1" } else { "0" };
        let arguments = [operation, time, &quotas, &units, anonymous];
        let arguments: Vec<&[u8]> = arguments.iter().chain(more).map(|text| text.as_bytes()).collect();
        match self.0.link.run(&SCRIPT, &[&self.key(tenant)], &arguments).await? {
            Reply::Nothing if operation == "refund" => Ok(None),
            Reply::Nothing => Err(unexpected()),
            reply => Answer::read(reply, plan, self.0.local.reports().clock.read()).map(Some),
        }
    }

    pub(super) fn with_spend(&self, answer: Answer, tenant: &Tenant, plan: &Plan, ask: Ask) -> Decision {
        let Answer { mut decision, generation, marks } = answer;
        if ask.refundable && ask.units > 0 && decision.is_admitted() {
            let past = SharedPast { tenant: tenant.clone(), quotas: script::quotas(plan), generation };
            decision.spend.0 = Some(Box::new(Charge {
                limiter: self.0.local.id(),
                payer: Payer::Shared(past),
                past: Past { plan: plan.id(), generation: 0 },
                units: ask.units,
                is_anonymous: ask.is_anonymous,
                marks,
            }));
        }
        decision
    }

    /// Returns the key of a tenant, which is its hash tag. Braces in a name would end the tag early, but the rest of the key
    /// follows: no two tenants share a key.
    pub(super) fn key(&self, tenant: &Tenant) -> Vec<u8> {
        [self.0.prefix.as_bytes(), b":", self.0.space.as_bytes(), b":{", tenant.as_bytes(), b"}"].concat()
    }
}

impl fmt::Debug for SharedLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLimiter")
            .field("quotas", self.quotas())
            .field("fallback", &self.0.fallback)
            .finish_non_exhaustive()
    }
}

/// Why a [`SharedLimiter`] can't reach its server.
#[derive(Clone, Debug)]
pub struct SharedLimiterError(String);

impl From<RedisFailure> for SharedLimiterError {
    fn from(failure: RedisFailure) -> Self {
        Self(failure.to_string())
    }
}

impl fmt::Display for SharedLimiterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the shared limiter is not available: {}", self.0)
    }
}

impl Error for SharedLimiterError {}
