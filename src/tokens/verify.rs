//! [`OwnKeys`]: our own keys, and what we took back, for whoever checks tokens in this process.

use std::sync::Arc;

use super::Tokens;
use crate::{
    bearer::{Claims, KeySource, Unavailable},
    gate::MaybeReady,
    jose::KeySet,
    store::{BoxFuture, StoreError},
};

pub(super) struct OwnKeys(pub(super) Tokens);

impl KeySource for OwnKeys {
    fn keys(&self) -> MaybeReady<BoxFuture<'static, Result<Arc<KeySet>, Unavailable>>> {
        if let Some(copy) = self.0.keys().fresh() {
            return MaybeReady::Ready(Ok(Arc::clone(&copy.set)));
        }
        let tokens = self.0.clone();
        MaybeReady::Pending(Box::pin(async move {
            Ok(Arc::clone(&tokens.keys().current().await.map_err(|error| unavailable(&error))?.set))
        }))
    }

    fn newer(&self, seen: &Arc<KeySet>) -> BoxFuture<'static, Result<Arc<KeySet>, Unavailable>> {
        let (tokens, seen) = (self.0.clone(), Arc::clone(seen));
        Box::pin(
            async move { Ok(Arc::clone(&tokens.keys().newer(&seen).await.map_err(|error| unavailable(&error))?.set)) },
        )
    }

    fn is_revoked(&self, claims: &Claims) -> MaybeReady<BoxFuture<'static, Result<bool, Unavailable>>> {
        match self.0.is_revoked(claims) {
            MaybeReady::Ready(found) => MaybeReady::Ready(found.map_err(|error| unavailable(&error))),
            MaybeReady::Pending(future) => {
                MaybeReady::Pending(Box::pin(async move { future.await.map_err(|error| unavailable(&error)) }))
            }
        }
    }
}

fn unavailable(error: &StoreError) -> Unavailable {
    crate::trace::warning!("tokens can't be checked: {error}");
    Unavailable
}
