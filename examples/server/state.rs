//! The state of the server: its store, and the budgets of the tenants.

use std::{error::Error, fs, path::Path, sync::OnceLock};

use tollgate::{
    EventLog, Limiter, Quota, Quotas, RedisConfig, RedisPlans,
    limit::{AnyLimiter, Leases, SharedLimiter},
    store::{AnyStore, Disk, Memory, Redis, StoreError, StoreErrorKind},
};

use crate::{config::Storage, facts::Facts};

pub(crate) struct State {
    pub(crate) store: AnyStore,
    /// Ends all sessions, logins and tokens at the start.
    pub(crate) ends_sessions: bool,
    /// The server that the store is on, which several of these servers can share.
    redis: Option<RedisConfig>,
    limiter: OnceLock<SharedLimiter>,
}

impl State {
    pub(crate) async fn open(kept: &Storage, ends_sessions: bool) -> Result<Self, Box<dyn Error>> {
        let state = match kept {
            Storage::Memory => Self::local(Memory::new().into()),
            Storage::Directory(path) => {
                let store = open(path).map_err(|error| format!("--data {}: {}", path.display(), explained(&*error)))?;
                Self::local(store)
            }
            Storage::Redis(url) => {
                let config = RedisConfig::new(url).map_err(|error| format!("--redis: {error}"))?;
                let config = match std::env::var("REDIS_PASSWORD") {
                    Ok(password) => config.password(&password),
                    Err(_) => config,
                };
                let store = Redis::connect_with(config.clone())
                    .await
                    .map_err(|error| format!("--redis: {}", explained(&error)))?;
                Self { redis: Some(config), ..Self::local(store.into()) }
            }
        };
        Ok(Self { ends_sessions, ..state })
    }

    fn local(store: AnyStore) -> Self {
        Self { store, ends_sessions: false, redis: None, limiter: OnceLock::new() }
    }

    /// Creates the limiter of the tenants. Servers that share a store share the budgets, too.
    pub(crate) async fn limiter(&self, facts: &Facts, log: &EventLog) -> Result<AnyLimiter, Box<dyn Error>> {
        let quotas = facts.quotas.clone();
        let Some(config) = &self.redis else {
            return Ok(Limiter::builder(quotas).events(log.clone()).build()?.into());
        };
        let limiter = if facts.redis_plans {
            let plans = RedisPlans::connect(config.clone()).await?;
            // they come before those of the file
            let quotas = Quotas::by(Quota::each_minute::<600>(), move |tenant| Some(quotas.plan(tenant)));
            Limiter::builder(quotas).plans(plans.cached())
        } else {
            Limiter::builder(quotas)
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

/// Formats an error with its causes, and what helps if there is no room.
pub(crate) fn explained(error: &(dyn Error + 'static)) -> String {
    let (mut text, mut is_full, mut next) = (error.to_string(), false, Some(error));
    while let Some(error) = next {
        let kind = error.downcast_ref::<StoreError>().map(StoreError::kind);
        is_full |= kind == Some(StoreErrorKind::Full);
        next = error.source();
        text.extend(next.map(|cause| format!(": {cause}")));
    }
    if is_full {
        text.push_str(". Make room on the disk of --data, or in the memory of Redis, and start again.");
    }
    text
}

fn open(directory: &Path) -> Result<AnyStore, Box<dyn Error>> {
    fs::create_dir_all(directory)?;
    Ok(AnyStore::from(Disk::open(directory.join("state.redb"))?))
}
