//! The state of the server: its store, its accounts, and the budgets of the tenants.

use std::{error::Error, path::Path, path::PathBuf, sync::OnceLock};

use serde::Deserialize;
use tollgate::{
    EventLog, Limiter, Plans, Quota,
    limit::{AnyLimiter, RedisPlans, SharedLimiter},
    store::{AnyStore, RedisConfig},
};

use crate::{
    facts::Facts,
    secret_text::{SecretText, read_pem},
    users::AccountTable,
};

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
        let limiter = if facts.leases { limiter.leased() } else { limiter }.connect().await?;
        Ok(self.limiter.get_or_init(|| limiter).clone().into())
    }

    /// Returns the units that the limiter holds, so that other servers can use them.
    pub(crate) async fn close(&self) {
        if let Some(limiter) = self.limiter.get() {
            limiter.close().await;
        }
    }
}

/// The section `[redis]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenRedis {
    url: String,
    password: Option<SecretText>,
    certificate_authority: Option<PathBuf>,
}

impl WrittenRedis {
    pub(crate) fn read(&self, directory: &Path) -> Result<RedisServer, Box<dyn Error>> {
        let password = self.password.as_ref().map(|password| password.read(directory)).transpose();
        let authority = self.certificate_authority.as_ref().map(|path| read_pem(directory, path)).transpose()?;
        let password = password.map_err(|error| format!("password: {error}"))?;
        let server = RedisServer { url: self.url.clone(), password, authority };
        server.config().map(|_| server)
    }
}

/// A Redis of `--redis` or of the file.
pub(crate) struct RedisServer {
    pub(crate) url: String,
    /// Defaults to the environment variable `REDIS_PASSWORD`.
    pub(crate) password: Option<String>,
    /// The certificates of a private authority.
    pub(crate) authority: Option<Vec<u8>>,
}

impl RedisServer {
    pub(crate) fn at(url: String) -> Self {
        Self { url, password: None, authority: None }
    }

    pub(crate) fn config(&self) -> Result<RedisConfig, Box<dyn Error>> {
        let config = RedisConfig::new(&self.url).map_err(|error| format!("--redis: {error}"))?;
        let password = self.password.clone().or_else(|| std::env::var("REDIS_PASSWORD").ok());
        let config = password.iter().fold(config, |config, password| config.password(password));
        Ok(match &self.authority {
            Some(pem) => config.certificate_authorities(pem.clone()),
            None => config,
        })
    }
}
