//! Shares the keys and the endpoints of a remote issuer among all requests.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{runtime::Handle, sync::watch};

use super::{
    fetch::Fetch,
    key_cache::{KeyCache, NextStep},
    lifetime::Lifetime,
    metadata::Endpoints,
};
use crate::{
    gate::MaybeReady,
    jose::{KeySet, Unavailable},
    store::BoxFuture,
    util::{
        clock::{Clock, Moment},
        lock::lock,
        trace,
    },
};

type FetchedKeys = Result<Arc<KeySet>, Unavailable>;

/// A remote issuer. Clones share its cache.
#[derive(Clone)]
pub(crate) struct RemoteIssuer(Arc<Shared>);

struct Shared {
    fetch: Fetch,
    clock: Arc<dyn Clock>,
    cache: Mutex<KeyCache>,
    /// Of the last successful request.
    endpoints: Mutex<Option<Arc<Endpoints>>>,
    /// Notifies waiting callers that a request has ended.
    ended: watch::Sender<()>,
}

/// A request in progress. Notifies waiting callers however it ends.
struct PendingFetch {
    source: RemoteIssuer,
    found: Option<(KeySet, Lifetime)>,
}

impl RemoteIssuer {
    /// Creates the issuer. Its keys stay valid for `outage` beyond their lifetime.
    pub(crate) fn new(fetch: Fetch, outage: Duration, clock: Arc<dyn Clock>) -> Self {
        let (cache, endpoints) = (Mutex::new(KeyCache::new(outage)), Mutex::default());
        Self(Arc::new(Shared { fetch, clock, cache, endpoints, ended: watch::Sender::new(()) }))
    }

    /// Returns the current keys, immediately if possible.
    pub(crate) fn keys(&self) -> MaybeReady<BoxFuture<'static, FetchedKeys>> {
        self.act(KeyCache::keys)
    }

    /// Returns newer keys, because a token names a key that is not among `seen`.
    pub(crate) fn refetch_keys(&self, seen: &Arc<KeySet>) -> MaybeReady<BoxFuture<'static, FetchedKeys>> {
        self.act(|cache, now| cache.decide_for_unknown_key(seen, now))
    }

    /// Returns the endpoints, together with the keys.
    #[cfg(feature = "login")]
    pub(crate) async fn endpoints(&self) -> Result<(Arc<Endpoints>, Arc<KeySet>), Unavailable> {
        let keys = self.keys().wait().await?;
        let endpoints = lock(&self.0.endpoints).clone();
        Ok((endpoints.ok_or(Unavailable)?, keys))
    }

    fn act(&self, step: impl FnOnce(&mut KeyCache, Moment) -> NextStep) -> MaybeReady<BoxFuture<'static, FetchedKeys>> {
        let now = self.0.clock.now();
        let mut cache = lock(&self.0.cache);
        let fetches = match step(&mut cache, now) {
            NextStep::Take(keys) => return MaybeReady::Ready(Ok(keys)),
            NextStep::Fail => return MaybeReady::Ready(Err(Unavailable)),
            NextStep::Renew(keys) => {
                drop(cache);
                self.spawn_fetch();
                return MaybeReady::Ready(Ok(keys));
            }
            NextStep::Wait => false,
            NextStep::Fetch => true,
        };
        // subscribe before releasing the lock, so that no notification is missed
        let mut ended = self.0.ended.subscribe();
        drop(cache);
        if fetches {
            self.spawn_fetch();
        }
        let source = self.clone();
        MaybeReady::Pending(Box::pin(async move {
            // the sender lives as long as the source
            let _ = ended.changed().await;
            let now = source.0.clock.now();
            lock(&source.0.cache).valid_keys(now).cloned().ok_or(Unavailable)
        }))
    }

    /// Makes a request in a separate task, because its caller may disconnect while others need the
    /// result.
    fn spawn_fetch(&self) {
        let mut fetch = PendingFetch { source: self.clone(), found: None };
        // without a runtime, there is no network
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move { fetch.run_fetch().await });
    }

    fn store_fetched(&self, found: Option<(KeySet, Lifetime)>) {
        let now = self.0.clock.now();
        lock(&self.0.cache).finish_fetch(found, now);
        self.0.ended.send_replace(());
    }
}

impl PendingFetch {
    async fn run_fetch(&mut self) {
        match self.source.0.fetch.keys().await {
            Ok((keys, lifetime, endpoints)) => {
                if keys.iter().next().is_none() {
                    trace::warning!("a remote issuer publishes no usable key");
                }
                *lock(&self.source.0.endpoints) = endpoints.map(Arc::new);
                self.found = Some((keys, lifetime));
            }
            Err(missing) => trace::warning!("failed to fetch the keys of a remote issuer: {missing}"),
        }
    }
}

impl Drop for PendingFetch {
    fn drop(&mut self) {
        self.source.store_fetched(self.found.take());
    }
}
