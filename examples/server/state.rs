//! The state of the server: its store, its accounts, and the budgets of the tenants.

use std::{error::Error, sync::OnceLock};

use tollgate::{
    EventLog, Limiter, Plans, Quota,
    limit::{AnyLimiter, Leases, RedisPlans, SharedLimiter},
    store::{AnyStore, RedisConfig},
};

use crate::{facts::Facts, users::AccountTable};

pub(crate) struct State {
    pub(crate) store: AnyStore,
    pub(crate) users: AccountTable,
    /// The server that has the budgets, which several of these servers can share.
    redis: Option<RedisConfig>,
    limiter: OnceLock<SharedLimiter>,
}

impl State {
    pub(crate) fn new(store: AnyStore, users: AccountTable, redis: Option<RedisConfig>) -> Self {
        Self { store, users, redis, limiter: OnceLock::new() }
    }

    /// Creates the limiter of the tenants. Servers that share a Redis share the budgets, too.
    pub(crate) async fn limiter(&self, facts: &Facts, log: &EventLog) -> Result<AnyLimiter, Box<dyn Error>> {
        let plans = facts.plans.clone();
        let Some(config) = &self.redis else {
            return Ok(Limiter::builder(plans).events(log.clone()).build()?.into());
        };
        let limiter = if facts.redis_plans {
            let redis = RedisPlans::connect(config.clone()).await?;
            // they come before those of the file
            let plans = Plans::by(Quota::const_per_minute::<600>(), move |tenant| Some(plans.plan(tenant)));
            Limiter::builder(plans).plan_source(redis.cached())
        } else {
            Limiter::builder(plans)
        };
        let limiter = limiter.events(log.clone()).redis(config.clone());
        let limiter = if facts.leases { limiter.leases(Leases::new()) } else { limiter }.connect().await?;
        Ok(self.limiter.get_or_init(|| limiter).clone().into())
    }

    /// Returns the units that the limiter holds, so that other servers can use them.
    pub(crate) async fn close(&self) {
        if let Some(limiter) = self.limiter.get() {
            limiter.close().await;
        }
    }
}

/// Reads the URL of `--redis`.
pub(crate) fn redis(url: &str) -> Result<RedisConfig, Box<dyn Error>> {
    let config = RedisConfig::new(url).map_err(|error| format!("--redis: {error}"))?;
    Ok(match std::env::var("REDIS_PASSWORD") {
        Ok(password) => config.password(&password),
        Err(_) => config,
    })
}
