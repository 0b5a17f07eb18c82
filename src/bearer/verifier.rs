//! [`Verifier`]: what is asked of a token.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{AccessToken, KeySource, Unavailable, cache::Cache, claims::TYPE, rules::Rules};
use crate::{
    clock::Clock,
    error::ConfigError,
    gate::MaybeReady,
    jose::{KeySet, jws::Unverified},
    secret::Digest,
    store::BoxFuture,
};

/// Checks access tokens: of one issuer, for one service.
///
/// A token is a signed document of the type `at+jwt` (RFC 9068). It counts if one of the issuer's keys has signed it, if
/// it names the issuer and this service exactly, and at this time. An id token, or one for another service, does not.
///
/// Clones share what they remember.
#[derive(Clone)]
pub struct Verifier(Arc<Inner>);

struct Inner {
    /// Unlike that of any other: tokens that one has let through count for its clones only.
    number: u64,
    keys: Arc<dyn KeySource>,
    rules: Rules,
    clock: Arc<dyn Clock>,
    remembered: usize,
    cache: Cache,
}

/// Tokens that are remembered if nothing else is said.
const REMEMBERED: usize = 4096;

/// Why a token does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Invalid,
    Unavailable,
}

impl From<Unavailable> for Refused {
    fn from(_: Unavailable) -> Self {
        Self::Unavailable
    }
}

pub(super) type Verified = MaybeReady<BoxFuture<'static, Result<AccessToken, Refused>>>;

/// What is known of a token after its signature was looked at.
enum Checked {
    Good(AccessToken),
    Bad,
    /// It names a key that is not there.
    UnknownKey,
}

impl Verifier {
    pub(crate) fn new(
        keys: impl KeySource,
        issuer: &str,
        audience: &str,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ConfigError> {
        Ok(Self::build(Arc::new(keys), Rules::new(issuer, audience)?, clock, REMEMBERED))
    }

    /// What was let through by other rules is not remembered: each has a cache of its own.
    fn build(keys: Arc<dyn KeySource>, rules: Rules, clock: Arc<dyn Clock>, remembered: usize) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Relaxed);
        Self(Arc::new(Inner { number, keys, rules, clock, remembered, cache: Cache::new(remembered) }))
    }

    fn with(&self, rules: Rules) -> Self {
        Self::build(Arc::clone(&self.0.keys), rules, Arc::clone(&self.0.clock), self.0.remembered)
    }

    /// One more name of this service: tokens for any of them count.
    pub fn audience(self, name: &str) -> Result<Self, ConfigError> {
        Ok(self.with(self.0.rules.clone().audience(name)?))
    }

    /// How much the clocks of the issuer and of this machine may differ, otherwise 5 seconds and at most 60: a token counts
    /// for so much longer.
    pub fn leeway(self, leeway: Duration) -> Result<Self, ConfigError> {
        Ok(self.with(self.0.rules.clone().leeway(leeway)?))
    }

    /// How many tokens are remembered, so that their signatures are not checked again: about 4096 otherwise, none with 0,
    /// at most about a million.
    ///
    /// A token is remembered while the keys stay as they are. Its times are looked at, and whether it was revoked is asked,
    /// at each request.
    pub fn cache(self, tokens: usize) -> Self {
        let Inner { keys, rules, clock, .. } = &*self.0;
        Self::build(Arc::clone(keys), rules.clone(), Arc::clone(clock), tokens.min(Cache::MOST))
    }

    pub(super) fn number(&self) -> u64 {
        self.0.number
    }

    /// Checks a token, but not the proof of its key.
    pub(super) fn verify(&self, token: &str) -> Verified {
        match self.0.keys.keys() {
            MaybeReady::Ready(Ok(keys)) => self.verify_with(token, keys),
            MaybeReady::Ready(Err(Unavailable)) => MaybeReady::Ready(Err(Refused::Unavailable)),
            MaybeReady::Pending(keys) => {
                let (verifier, token) = (self.clone(), token.to_owned());
                MaybeReady::Pending(Box::pin(async move { verifier.verify_with(&token, keys.await?).wait().await }))
            }
        }
    }

    fn verify_with(&self, token: &str, keys: Arc<KeySet>) -> Verified {
        let digest = Digest::of(token);
        if let Some(known) = self.0.cache.get(&digest, &keys) {
            return self.settle(known);
        }
        match self.check(token, &keys) {
            Checked::Good(good) => {
                self.0.cache.put(digest, good.clone(), keys);
                self.settle(good)
            }
            Checked::Bad => MaybeReady::Ready(Err(Refused::Invalid)),
            Checked::UnknownKey => {
                let newer = self.0.keys.newer(&keys);
                let (verifier, token) = (self.clone(), token.to_owned());
                MaybeReady::Pending(Box::pin(async move {
                    let keys = newer.await?;
                    let Checked::Good(good) = verifier.check(&token, &keys) else { return Err(Refused::Invalid) };
                    verifier.0.cache.put(digest, good.clone(), keys);
                    verifier.settle(good).wait().await
                }))
            }
        }
    }

    /// What never changes for a token and a set of keys.
    fn check(&self, token: &str, keys: &KeySet) -> Checked {
        let Some(unverified) = Unverified::parse(token, TYPE) else { return Checked::Bad };
        match unverified.claims(keys) {
            Some(claims) => self.0.rules.read(claims).map_or(Checked::Bad, Checked::Good),
            None if unverified.kid().is_some_and(|kid| !keys.names(kid)) => Checked::UnknownKey,
            None => Checked::Bad,
        }
    }

    /// What changes: the time, and whether it was taken back.
    fn settle(&self, token: AccessToken) -> Verified {
        if !self.0.rules.is_timely(token.claims(), self.0.clock.unix(self.0.clock.now())) {
            return MaybeReady::Ready(Err(Refused::Invalid));
        }
        let settle = |revoked, token| if revoked { Err(Refused::Invalid) } else { Ok(token) };
        match self.0.keys.is_revoked(token.claims()) {
            MaybeReady::Ready(revoked) => {
                MaybeReady::Ready(revoked.map_err(Refused::from).and_then(|revoked| settle(revoked, token)))
            }
            MaybeReady::Pending(revoked) => MaybeReady::Pending(Box::pin(async move { settle(revoked.await?, token) })),
        }
    }
}

#[cfg(test)]
impl Verifier {
    /// How many tokens are remembered.
    pub(super) fn remembered(&self) -> usize {
        self.0.cache.len()
    }

    /// Whether this token is.
    pub(super) fn remembers(&self, token: &str) -> bool {
        let MaybeReady::Ready(Ok(keys)) = self.0.keys.keys() else { return false };
        self.0.cache.get(&Digest::of(token), &keys).is_some()
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("rules", &self.0.rules).finish_non_exhaustive()
    }
}
