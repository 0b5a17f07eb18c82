//! [`OwnKeys`]: our own keys, and what we took back, for whoever checks tokens in this process.

use std::sync::Arc;

use super::{Tokens, revoked::Names};
use crate::{
    bearer::{AccessTokenClaims, KeySource, Revocation, Unavailable},
    gate::MaybeReady,
    jose::KeySet,
    store::{BoxFuture, StoreError, StoreErrorKind},
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

    fn revocation(&self, claims: &AccessTokenClaims) -> Option<Box<dyn Revocation>> {
        Some(Box::new(OneToken(self.0.names(claims).map_err(|error| error.kind()))))
    }
}

/// By what one token can have been taken back. Without it, nobody can say.
struct OneToken(Result<Names, StoreErrorKind>);

impl Revocation for OneToken {
    fn is_revoked(&self) -> MaybeReady<BoxFuture<'static, Result<bool, Unavailable>>> {
        let names = match &self.0 {
            Ok(names) => names,
            Err(kind) => return MaybeReady::Ready(Err(unavailable(&StoreError::from(*kind)))),
        };
        match names.are_revoked() {
            MaybeReady::Ready(found) => MaybeReady::Ready(found.map_err(|error| unavailable(&error))),
            MaybeReady::Pending(future) => {
                MaybeReady::Pending(Box::pin(async move { future.await.map_err(|error| unavailable(&error)) }))
            }
        }
    }
}

fn unavailable(error: &StoreError) -> Unavailable {
    crate::util::trace::warning!("tokens can't be checked: {error}");
    Unavailable
}
