//! Sources of the keys that verify tokens.

use std::sync::Arc;

use super::token::claims::AccessTokenClaims;
use crate::{
    gate::MaybeReady,
    jose::{KeySet, Unavailable},
    store::BoxFuture,
};

/// The keys and the revocations of an issuer.
pub(crate) trait KeySource: Send + Sync + 'static {
    /// Returns the known keys, immediately if possible.
    fn keys(&self) -> MaybeReady<BoxFuture<'static, Result<Arc<KeySet>, Unavailable>>>;

    /// Returns newer keys, because a token names a key that is not among `seen`. Frequent callers
    /// get the same keys again, because anyone can make up a key id.
    fn newer_keys(&self, seen: &Arc<KeySet>) -> MaybeReady<BoxFuture<'static, Result<Arc<KeySet>, Unavailable>>>;

    /// Returns the revocation check for a token with a valid signature. `None` if the issuer is
    /// remote.
    fn revocation(&self, _claims: &AccessTokenClaims) -> Option<Box<dyn Revocation>> {
        None
    }
}

/// The revocation check for one token, prepared once.
pub(crate) trait Revocation: Send + Sync + 'static {
    fn is_revoked(&self) -> MaybeReady<BoxFuture<'static, Result<bool, Unavailable>>>;
}

/// Fixed keys of an issuer without revocations.
pub(super) struct StaticKeys(pub(super) Arc<KeySet>);

impl KeySource for StaticKeys {
    fn keys(&self) -> MaybeReady<BoxFuture<'static, Result<Arc<KeySet>, Unavailable>>> {
        MaybeReady::Ready(Ok(Arc::clone(&self.0)))
    }

    fn newer_keys(&self, seen: &Arc<KeySet>) -> MaybeReady<BoxFuture<'static, Result<Arc<KeySet>, Unavailable>>> {
        MaybeReady::Ready(Ok(Arc::clone(seen)))
    }
}
