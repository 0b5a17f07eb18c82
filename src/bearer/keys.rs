//! [`KeySource`]: where the keys come from that tokens are checked with.

use std::sync::Arc;

use super::Claims;
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

    /// Whether a token whose signature is good was taken back before its time. An issuer elsewhere is not asked.
    fn is_revoked(&self, claims: &Claims) -> MaybeReady<BoxFuture<'static, Result<bool, Unavailable>>>;
}

/// Keys that never change, of an issuer that takes nothing back.
#[cfg(test)]
pub(super) struct Fixed(pub(super) Arc<KeySet>);

#[cfg(test)]
impl KeySource for Fixed {
    fn keys(&self) -> MaybeReady<BoxFuture<'static, Result<Arc<KeySet>, Unavailable>>> {
        MaybeReady::Ready(Ok(Arc::clone(&self.0)))
    }

    fn newer(&self, seen: &Arc<KeySet>) -> BoxFuture<'static, Result<Arc<KeySet>, Unavailable>> {
        Box::pin(std::future::ready(Ok(Arc::clone(seen))))
    }

    fn is_revoked(&self, _: &Claims) -> MaybeReady<BoxFuture<'static, Result<bool, Unavailable>>> {
        MaybeReady::Ready(Ok(false))
    }
}
