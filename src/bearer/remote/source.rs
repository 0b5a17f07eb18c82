//! Shares the keys of a remote issuer among all requests.

use std::{
    future::ready,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{runtime::Handle, sync::watch};

use super::{
    fetch::Fetch,
    key_cache::{KeyCache, NextStep},
    lifetime::Lifetime,
};
use crate::{
    bearer::{
        keys::{KeySource, Revocation, Unavailable},
        token_claims::AccessTokenClaims,
    },
    gate::MaybeReady,
    jose::KeySet,
    store::BoxFuture,
    util::{
        clock::{Clock, Moment},
        trace,
    },
};

type FetchedKeys = Result<Arc<KeySet>, Unavailable>;

#[derive(Clone)]
pub(super) struct RemoteKeySource(Arc<Shared>);

struct Shared {
    fetch: Fetch,
    clock: Arc<dyn Clock>,
    cache: Mutex<KeyCache>,
    /// Notifies waiting callers that a request has ended.
    ended: watch::Sender<()>,
}

/// A request in progress. Notifies waiting callers however it ends.
struct PendingFetch {
    source: RemoteKeySource,
    found: Option<(KeySet, Lifetime)>,
}

impl RemoteKeySource {
    pub(super) fn new(fetch: Fetch, cache: KeyCache, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Shared { fetch, clock, cache: Mutex::new(cache), ended: watch::Sender::new(()) }))
    }

    fn cache(&self) -> MutexGuard<'_, KeyCache> {
        self.0.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn act(&self, step: impl FnOnce(&mut KeyCache, Moment) -> NextStep) -> MaybeReady<BoxFuture<'static, FetchedKeys>> {
        let now = self.0.clock.now();
        let mut cache = self.cache();
        let fetches = match step(&mut cache, now) {
            NextStep::Take(keys) => return MaybeReady::Ready(Ok(keys)),
            NextStep::Fail => return MaybeReady::Ready(Err(Unavailable)),
            NextStep::Renew(keys) => {
                drop(cache);
                self.start();
                return MaybeReady::Ready(Ok(keys));
            }
            NextStep::Wait => false,
            NextStep::Fetch => true,
        };
        // subscribe before releasing the lock, so that no notification is missed
        let mut ended = self.0.ended.subscribe();
        drop(cache);
        if fetches {
            self.start();
        }
        let source = self.clone();
        MaybeReady::Pending(Box::pin(async move {
            // the sender lives as long as the source
            let _ = ended.changed().await;
            let now = source.0.clock.now();
            source.cache().good(now).cloned().ok_or(Unavailable)
        }))
    }

    /// Makes a request in a separate task, because its caller may disconnect while others need the
    /// result.
    fn start(&self) {
        let mut errand = PendingFetch { source: self.clone(), found: None };
        // without a runtime, there is no network
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move { errand.run().await });
    }

    fn end(&self, found: Option<(KeySet, Lifetime)>) {
        let now = self.0.clock.now();
        self.cache().end(found, now);
        self.0.ended.send_replace(());
    }
}

impl PendingFetch {
    async fn run(&mut self) {
        match self.source.0.fetch.keys().await {
            Ok(found) => {
                if found.0.iter().next().is_none() {
                    trace::warning!("the issuer of access tokens publishes no usable key");
                }
                self.found = Some(found);
            }
            Err(missing) => trace::warning!("failed to fetch the keys for access tokens: {missing}"),
        }
    }
}

impl Drop for PendingFetch {
    fn drop(&mut self) {
        self.source.end(self.found.take());
    }
}

impl KeySource for RemoteKeySource {
    fn keys(&self) -> MaybeReady<BoxFuture<'static, FetchedKeys>> {
        self.act(KeyCache::keys)
    }

    fn newer(&self, seen: &Arc<KeySet>) -> BoxFuture<'static, FetchedKeys> {
        match self.act(|cache, now| cache.newer(seen, now)) {
            MaybeReady::Ready(keys) => Box::pin(ready(keys)),
            MaybeReady::Pending(keys) => keys,
        }
    }

    fn revocation(&self, _: &AccessTokenClaims) -> Option<Box<dyn Revocation>> {
        None
    }
}
