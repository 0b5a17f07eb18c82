//! The state of the server: its store, and the budgets of the tenants.

use std::{error::Error, fs, path::Path, sync::OnceLock};

use tollgate::{
    EventLog, Limiter, Quotas, RedisConfig,
    limit::{AnyLimiter, Leases, SharedLimiter},
    store::{AnyStore, Disk, Memory, Redis},
};

use crate::config::Storage;

pub(crate) struct State {
    pub(crate) store: AnyStore,
    /// The server that the store is on, which several of these servers can share.
    redis: Option<RedisConfig>,
    limiter: OnceLock<SharedLimiter>,
}

impl State {
    pub(crate) async fn open(kept: &Storage) -> Result<Self, Box<dyn Error>> {
        Ok(match kept {
            Storage::Memory => Self::local(Memory::new().into()),
            Storage::Directory(path) => {
                let store = open(path).map_err(|error| format!("--data {}: {error}", path.display()))?;
                Self::local(store)
            }
            Storage::Redis(url) => {
                let config = RedisConfig::new(url).map_err(|error| format!("--redis: {error}"))?;
                let config = match std::env::var("REDIS_PASSWORD") {
                    Ok(password) => config.password(&password),
                    Err(_) => config,
                };
                let store = Redis::connect_with(config.clone()).await.map_err(|error| {
                    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
                    format!("--redis: {error}{cause}")
                })?;
                Self { redis: Some(config), ..Self::local(store.into()) }
            }
        })
    }

    fn local(store: AnyStore) -> Self {
        Self { store, redis: None, limiter: OnceLock::new() }
    }

    /// Creates the limiter of the tenants. Servers that share a store share the budgets, too.
    pub(crate) async fn limiter(
        &self,
        quotas: Quotas,
        leases: bool,
        log: &EventLog,
    ) -> Result<AnyLimiter, Box<dyn Error>> {
        let limiter = Limiter::builder(quotas).events(log.clone());
        let Some(config) = &self.redis else { return Ok(limiter.build()?.into()) };
        let limiter = limiter.redis(config.clone());
        let limiter = if leases { limiter.leases(Leases::new()) } else { limiter }.connect().await?;
        Ok(self.limiter.get_or_init(|| limiter).clone().into())
    }

    /// Returns the units that the limiter holds, so that other servers can use them.
    pub(crate) async fn close(&self) {
        if let Some(limiter) = self.limiter.get() {
            limiter.close().await;
        }
    }
}

fn open(directory: &Path) -> Result<AnyStore, Box<dyn Error>> {
    fs::create_dir_all(directory)?;
    Ok(AnyStore::from(Disk::open(directory.join("state.redb"))?))
}
