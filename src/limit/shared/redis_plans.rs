//! [`RedisPlans`]: the plans of tenants, where all nodes and redis-cli can change them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use super::breaker::Breaker;
use crate::{
    limit::{
        error::{LimiterError, LimiterErrorKind},
        plan::Plan,
        plans::source::{CachedPlans, PlanSource},
    },
    redis::{FailureKind, Link, RedisConfig},
    tenant::{LimitKey, Tenant},
    util::{
        clock::{Clock, SystemClock},
        lock::lock,
    },
};

/// The plans of tenants on Redis or Valkey (feature `redis`). Clones share a connection.
///
/// All nodes look plans up here, so a change made in one place reaches all of them within a second, without a restart.
/// Works with every limiter, in memory or on Redis:
///
/// ```no_run
/// use tollgate::{Limiter, Plan, Plans, Quota, Tenant, limit::RedisPlans, store::RedisConfig};
///
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// let config = RedisConfig::new("redis://localhost:6379")?;
/// let plans = RedisPlans::connect(config.clone()).await?;
/// // tenants without a plan on the server get the default
/// let default = Plans::new(Quota::per_minute(600)?);
/// let limiter = Limiter::builder(default).plan_source(plans.cached()).redis(config).connect().await?;
///
/// // from any node, for all nodes
/// let acme = Tenant::parse("acme")?;
/// plans.set(&acme, Quota::per_minute(1200)?).await?;
/// plans.set(&acme, "50/second name=burst; 1200/minute".parse::<Plan>()?).await?;
/// plans.remove(&acme).await?;
/// # drop(limiter);
/// # Ok(())
/// # }
/// ```
///
/// # By hand
///
/// The plan of `acme` is the text of a [`Plan`] under the key `tollgate:plan:{acme}`, where `tollgate` is the
/// [prefix](RedisConfig::key_prefix):
///
/// ```text
/// redis-cli SET 'tollgate:plan:{acme}' '1200/minute'
/// redis-cli SET 'tollgate:plan:{acme}' '50/second name=burst; 200000/day fixed name=daily'
/// redis-cli SET 'tollgate:plan:{acme}' denied
/// redis-cli DEL 'tollgate:plan:{acme}'
/// ```
///
/// Text that is not a valid plan counts as a failed lookup. By default, nodes keep the plan that they have, or else use
/// the default plan, and record the event [`PlanLookupFailed`](crate::event::EventKind::PlanLookupFailed). The reason
/// is in the log (feature `tracing`). [`CachedPlans::on_failure`] changes what they do. The same happens while the
/// server does not answer.
#[derive(Clone)]
pub struct RedisPlans(Arc<Inner>);

struct Inner {
    link: Link,
    prefix: String,
    deadline: Duration,
    breaker: Breaker,
    clock: SystemClock,
    /// Tenants with the same text have the same plan.
    parsed: Mutex<HashMap<Box<str>, Plan>>,
}

/// The longest text. Six quotas with all settings take less than half of it.
const MAX_TEXT: usize = 1024;
const MAX_PARSED: usize = 1024;
const DEADLINE: Duration = Duration::from_millis(100);
/// A change is seen after this time, and in a limiter in memory after twice this time at most.
const TIME_TO_LIVE: Duration = Duration::from_millis(400);
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Lookups are pipelined on one connection.
const MAX_LOOKUPS: usize = 1024;

impl RedisPlans {
    /// Connects to the server. Call it in a tokio runtime that outlives this source.
    ///
    /// A call waits at most 100 ms, unless [`RedisConfig::deadline`] is set. After three failures in a row, one call
    /// per second checks whether the server answers again, and the others fail immediately.
    ///
    /// # Errors
    ///
    /// Returns an error if the server can't be reached, or is configured to evict keys.
    pub async fn connect(config: RedisConfig) -> Result<Self, LimiterError> {
        let deadline = config.deadline_or(DEADLINE);
        Ok(Self(Arc::new(Inner {
            link: Link::connect(&config, deadline).await?,
            prefix: config.prefix,
            deadline,
            breaker: Breaker::default(),
            clock: SystemClock::new(),
            parsed: Mutex::default(),
        })))
    }

    /// Returns this source with a cache whose settings let a limiter see each change within a second.
    ///
    /// An answer is used for 400 ms, and a failed lookup is repeated after a second. So a node looks up each active tenant at most
    /// 2.5 times a second. With a longer [`time_to_live`](CachedPlans::time_to_live), it asks less often and sees changes later.
    pub fn cached(&self) -> CachedPlans {
        CachedPlans::new(self.clone())
            .time_to_live(TIME_TO_LIVE)
            .retry_after(RETRY_AFTER)
            .deadline(self.0.deadline)
            .max_lookups(MAX_LOOKUPS)
    }

    /// Sets the plan of a tenant for all nodes.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not answer. It may have set the plan.
    pub async fn set(&self, tenant: &Tenant, plan: impl Into<Plan>) -> Result<(), LimiterError> {
        Ok(self.0.link.set(&self.key(tenant), plan.into().to_string().as_bytes()).await?)
    }

    /// Removes the plan of a tenant, which then gets the default.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not answer. It may have removed the plan.
    pub async fn remove(&self, tenant: &Tenant) -> Result<(), LimiterError> {
        Ok(self.0.link.remove(&self.key(tenant)).await?)
    }

    fn parse(&self, text: &[u8]) -> Result<Plan, LimiterError> {
        // errors show parts of it in the log
        let is_printable = |text: &&str| text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\r' | b'\n'));
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= MAX_TEXT).filter(is_printable);
        let detail = || format!("the text of a plan has at most {MAX_TEXT} printable characters");
        let unreadable = || LimiterError::new(LimiterErrorKind::Invalid, detail());
        let text = text.ok_or_else(unreadable)?;
        if let Some(plan) = lock(&self.0.parsed).get(text) {
            return Ok(plan.clone());
        }
        let plan: Plan = text.parse()?;
        let mut parsed = lock(&self.0.parsed);
        if parsed.len() >= MAX_PARSED {
            parsed.clear();
        }
        parsed.insert(text.into(), plan.clone());
        Ok(plan)
    }

    /// Returns the key of a tenant. Prefixes have no braces, so no two applications share a key.
    fn key(&self, tenant: &LimitKey) -> Vec<u8> {
        [self.0.prefix.as_bytes(), b":plan:{", tenant.as_bytes(), b"}"].concat()
    }
}

impl PlanSource for RedisPlans {
    type Error = LimiterError;

    async fn plan(&self, tenant: &LimitKey) -> Result<Option<Plan>, LimiterError> {
        let Inner { link, breaker, clock, .. } = &*self.0;
        let began = clock.now();
        if !breaker.allows(began) {
            return Err(LimiterError::new(LimiterErrorKind::Unavailable, "the server has not answered lately"));
        }
        let text = link.get(&self.key(tenant)).await;
        match &text {
            Err(failure) if failure.kind == FailureKind::Unavailable => _ = breaker.failed(began, clock.now()),
            _ => _ = breaker.succeeded(),
        }
        match text? {
            Some(text) => self.parse(&text).map(Some),
            None => Ok(None),
        }
    }
}

crate::util::fmt::debug_fields!(RedisPlans, |own| prefix: own.0.prefix);
