//! The state of the server: its store, and the budgets of the tenants.

use std::{error::Error, fs, path::Path};

use tollgate::{
    EventLog, Limiter, Quotas, RedisConfig,
    limit::AnyLimiter,
    store::{AnyStore, Disk, Memory, Redis},
};

use crate::config::Kept;

pub(crate) struct State {
    pub(crate) store: AnyStore,
    /// The server that the store is on, which several of these servers can share.
    redis: Option<RedisConfig>,
}

impl State {
    pub(crate) async fn open(kept: &Kept) -> Result<Self, Box<dyn Error>> {
        Ok(match kept {
            Kept::InMemory => Self { store: Memory::new().into(), redis: None },
            Kept::InDirectory(path) => {
                let store = open(path).map_err(|error| format!("--data {}: {error}", path.display()))?;
                Self { store, redis: None }
            }
            Kept::InRedis(url) => {
                let config = RedisConfig::new(url).map_err(|error| format!("--redis: {error}"))?;
                let config = match std::env::var("REDIS_PASSWORD") {
                    Ok(password) => config.password(&password),
                    Err(_) => config,
                };
                let store = Redis::connect_with(config.clone()).await.map_err(|error| {
                    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
                    format!("--redis: {error}{cause}")
                })?;
                Self { store: store.into(), redis: Some(config) }
            }
        })
    }

    /// Creates the limiter of the tenants. Servers that share a store share the budgets, too.
    pub(crate) async fn limiter(&self, quotas: Quotas, log: &EventLog) -> Result<AnyLimiter, Box<dyn Error>> {
        let limiter = Limiter::builder(quotas).events(log.clone());
        Ok(match &self.redis {
            Some(config) => limiter.redis(config.clone()).connect().await?.into(),
            None => limiter.build()?.into(),
        })
    }
}

fn open(directory: &Path) -> Result<AnyStore, Box<dyn Error>> {
    fs::create_dir_all(directory)?;
    Ok(AnyStore::from(Disk::open(directory.join("state.redb"))?))
}
