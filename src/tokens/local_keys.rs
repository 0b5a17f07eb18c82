//! [`LocalKeys`]: the issuer's own keys and revocations, for verifiers in processes that share its store.

use std::sync::Arc;

use super::{
    keys::Keys,
    revocation::{RevocationCheck, Revocations},
    service::TokenService,
};
use crate::{
    bearer::{AccessTokenClaims, KeySource, Revocation, Verifier},
    gate::MaybeReady,
    jose::{KeySet, Unavailable},
    store::{BoxFuture, StoreError, StoreErrorKind},
};

pub(super) struct LocalKeys {
    pub(super) keys: Keys,
    pub(super) revocations: Revocations,
}

impl TokenService {
    #[expect(clippy::expect_used, reason = "both names were checked when the service was built")]
    pub(crate) fn verifier(&self) -> Verifier {
        let keys = LocalKeys { keys: self.0.keys.clone(), revocations: self.0.revocations.clone() };
        let clock = Arc::clone(&self.0.clock);
        Verifier::new(keys, &self.0.issuer, &self.0.audience, clock).expect("the names were checked")
    }
}

impl KeySource for LocalKeys {
    fn keys(&self) -> MaybeReady<BoxFuture<'static, Result<Arc<KeySet>, Unavailable>>> {
        if let Some(copy) = self.keys.fresh() {
            return MaybeReady::Ready(Ok(Arc::clone(&copy.set)));
        }
        let keys = self.keys.clone();
        MaybeReady::Pending(Box::pin(async move {
            Ok(Arc::clone(&keys.current().await.map_err(|error| unavailable(&error))?.set))
        }))
    }

    fn newer_keys(&self, seen: &Arc<KeySet>) -> MaybeReady<BoxFuture<'static, Result<Arc<KeySet>, Unavailable>>> {
        let (keys, seen) = (self.keys.clone(), Arc::clone(seen));
        MaybeReady::Pending(Box::pin(async move {
            Ok(Arc::clone(&keys.reread_keys(&seen).await.map_err(|error| unavailable(&error))?.set))
        }))
    }

    fn revocation(&self, claims: &AccessTokenClaims) -> Option<Box<dyn Revocation>> {
        Some(Box::new(OneToken(self.revocations.check(claims).map_err(|error| error.kind()))))
    }
}

/// The check of one token. If it could not be prepared, the token is never accepted.
struct OneToken(Result<RevocationCheck, StoreErrorKind>);

impl Revocation for OneToken {
    fn is_revoked(&self) -> MaybeReady<BoxFuture<'static, Result<bool, Unavailable>>> {
        match &self.0 {
            Ok(check) => check.is_revoked().map(|found| found.map_err(|error| unavailable(&error))),
            Err(kind) => MaybeReady::Ready(Err(unavailable(&StoreError::from(*kind)))),
        }
    }
}

fn unavailable(error: &StoreError) -> Unavailable {
    crate::util::trace::failure!("access tokens cannot be checked", error);
    Unavailable
}
