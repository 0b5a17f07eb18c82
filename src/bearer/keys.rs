//! [`KeySource`]: where the keys come from that tokens are checked with.

use std::sync::Arc;

use super::token_claims::AccessTokenClaims;
use crate::{gate::MaybeReady, jose::KeySet, store::BoxFuture};

/// The keys, or what is revoked, can't be had right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unavailable;

/// The keys of an issuer, and what it took back.
pub(crate) trait KeySource: Send + Sync + 'static {
    /// The keys as they are known; at once where they are there.
    fn keys(&self) -> MaybeReady<BoxFuture<'static, Result<Arc<KeySet>, Unavailable>>>;

    /// The keys again, because a token names one that is not among those that were `seen`. Whoever asks often gets the
    /// same ones: anybody can make up a name.
    fn newer(&self, seen: &Arc<KeySet>) -> BoxFuture<'static, Result<Arc<KeySet>, Unavailable>>;

    /// Who is asked at each request whether a token whose signature is good was taken back. An issuer elsewhere is not.
    fn revocation(&self, claims: &AccessTokenClaims) -> Option<Box<dyn Revocation>>;
}

/// What one token can have been taken back by, worked out once.
pub(crate) trait Revocation: Send + Sync + 'static {
    fn is_revoked(&self) -> MaybeReady<BoxFuture<'static, Result<bool, Unavailable>>>;
}

/// Keys that never change, of an issuer that takes nothing back.
pub(super) struct StaticKeys(pub(super) Arc<KeySet>);

impl KeySource for StaticKeys {
    fn keys(&self) -> MaybeReady<BoxFuture<'static, Result<Arc<KeySet>, Unavailable>>> {
        MaybeReady::Ready(Ok(Arc::clone(&self.0)))
    }

    fn newer(&self, seen: &Arc<KeySet>) -> BoxFuture<'static, Result<Arc<KeySet>, Unavailable>> {
        Box::pin(std::future::ready(Ok(Arc::clone(seen))))
    }

    fn revocation(&self, _: &AccessTokenClaims) -> Option<Box<dyn Revocation>> {
        None
    }
}
