//! [`Verifier`]: what is asked of a token.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{
    keys::{KeySource, StaticKeys, Unavailable},
    possession::Possession,
    rules::Rules,
    token::AccessToken,
    token_claims::{AccessTokenClaims, TYPE},
    verified_tokens::VerifiedTokens,
};
use crate::{
    gate::MaybeReady,
    jose::{KeySet, jws::Unverified},
    store::{AnyStore, BoxFuture},
    util::{
        clock::{Clock, SystemClock, UnixTime},
        error::ConfigError,
        secret::{Digest, Secret},
    },
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
    settings: Settings,
    cache: VerifiedTokens,
}

#[derive(Clone)]
struct Settings {
    keys: Arc<dyn KeySource>,
    rules: Rules,
    possession: Possession,
    clock: Arc<dyn Clock>,
    /// The most tokens that are remembered.
    remembered: usize,
}

/// Tokens that are remembered if nothing else is said.
const REMEMBERED: usize = 4096;

/// Why a token does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenError {
    Invalid,
    Unavailable,
}

impl From<Unavailable> for TokenError {
    fn from(_: Unavailable) -> Self {
        Self::Unavailable
    }
}

pub(super) type Verified = MaybeReady<BoxFuture<'static, Result<AccessToken, TokenError>>>;

/// What is known of a token after its signature was looked at.
enum SignatureCheck {
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
        let settings = Settings {
            keys: Arc::new(keys),
            rules: Rules::new(issuer, audience)?,
            possession: Possession::new(Arc::clone(&clock)),
            clock,
            remembered: REMEMBERED,
        };
        Ok(VerifierBuilder { settings }.build())
    }

    /// Checks access tokens of an issuer whose keys the app has: a JSON Web Key Set, as the issuer publishes it. `audience`
    /// is the name of this service in its tokens.
    ///
    /// The keys stay as they are: who rotates them makes a new verifier. What the issuer takes back is not heard of here.
    pub fn with_keys(issuer: &str, audience: &str, jwks_json: &[u8]) -> Result<Self, ConfigError> {
        let keys = KeySet::parse(jwks_json).filter(|keys| keys.iter().next().is_some());
        let wrong =
            || ConfigError::new("keys", "the key set", "must be a JSON Web Key Set with a key that is used here");
        let keys = StaticKeys(Arc::new(keys.ok_or_else(wrong)?));
        Self::new(keys, issuer, audience, Arc::new(SystemClock::new()))
    }

    /// Returns a builder with the settings of this verifier.
    ///
    /// The verifier that it builds has a cache of its own, because other settings accept other tokens.
    pub fn to_builder(&self) -> VerifierBuilder {
        VerifierBuilder { settings: self.0.settings.clone() }
    }

    pub(super) fn number(&self) -> u64 {
        self.0.number
    }

    pub(super) fn possession(&self) -> &Possession {
        &self.0.settings.possession
    }

    /// Checks a token, but not the proof of its key.
    pub(super) fn verify(&self, token: &str) -> Verified {
        match self.0.settings.keys.keys() {
            MaybeReady::Ready(Ok(keys)) => self.verify_with(token, keys),
            MaybeReady::Ready(Err(Unavailable)) => MaybeReady::Ready(Err(TokenError::Unavailable)),
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
            SignatureCheck::Good(good) => {
                self.0.cache.put(digest, good.clone(), keys);
                self.settle(good)
            }
            SignatureCheck::Bad => MaybeReady::Ready(Err(TokenError::Invalid)),
            SignatureCheck::UnknownKey => {
                let newer = self.0.settings.keys.newer(&keys);
                let (verifier, token) = (self.clone(), token.to_owned());
                MaybeReady::Pending(Box::pin(async move {
                    let keys = newer.await?;
                    let SignatureCheck::Good(good) = verifier.check(&token, &keys) else {
                        return Err(TokenError::Invalid);
                    };
                    verifier.0.cache.put(digest, good.clone(), keys);
                    verifier.settle(good).wait().await
                }))
            }
        }
    }

    fn now(&self) -> UnixTime {
        let clock = &self.0.settings.clock;
        clock.unix(clock.now())
    }

    /// What never changes for a token and a set of keys.
    fn check(&self, token: &str, keys: &KeySet) -> SignatureCheck {
        let Some(unverified) = Unverified::parse(token, TYPE) else { return SignatureCheck::Bad };
        match unverified.claims(keys) {
            Some(claims) => self.good(claims).map_or(SignatureCheck::Bad, SignatureCheck::Good),
            None if unverified.kid().is_some_and(|kid| !keys.names(kid)) => SignatureCheck::UnknownKey,
            None => SignatureCheck::Bad,
        }
    }

    fn good(&self, claims: AccessTokenClaims) -> Option<AccessToken> {
        self.0.settings.rules.read(claims, &*self.0.settings.keys)
    }

    /// What changes: the time, and whether it was taken back.
    fn settle(&self, token: AccessToken) -> Verified {
        if !self.0.settings.rules.is_timely(token.claims(), self.now()) {
            return MaybeReady::Ready(Err(TokenError::Invalid));
        }
        let settle = |revoked, token| if revoked { Err(TokenError::Invalid) } else { Ok(token) };
        let Some(revocation) = token.revocation() else { return MaybeReady::Ready(Ok(token)) };
        match revocation.is_revoked() {
            MaybeReady::Ready(revoked) => {
                MaybeReady::Ready(revoked.map_err(TokenError::from).and_then(|revoked| settle(revoked, token)))
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
        let MaybeReady::Ready(Ok(keys)) = self.0.settings.keys.keys() else { return false };
        self.0.cache.get(&Digest::of(token), &keys).is_some()
    }
}

/// Settings of a [`Verifier`]. Start with [`Verifier::to_builder`].
#[derive(Clone)]
#[must_use]
pub struct VerifierBuilder {
    settings: Settings,
}

impl VerifierBuilder {
    /// One more name of this service: tokens for any of them count.
    pub fn audience(mut self, name: &str) -> Result<Self, ConfigError> {
        self.settings.rules = self.settings.rules.audience(name)?;
        Ok(self)
    }

    /// How much the clocks of the issuer and of this machine may differ, otherwise 5 seconds and at most 60: a token counts
    /// for so much longer.
    pub fn leeway(mut self, leeway: Duration) -> Result<Self, ConfigError> {
        self.settings.rules = self.settings.rules.leeway(leeway)?;
        Ok(self)
    }

    /// How many tokens are remembered, so that their signatures are not checked again: about 4096 otherwise, none with 0,
    /// at most about a million.
    ///
    /// A token is remembered while the keys stay as they are. Its times are looked at, and whether it was revoked is asked,
    /// at each request.
    pub fn cache(mut self, tokens: usize) -> Self {
        self.settings.remembered = tokens.min(VerifiedTokens::MOST);
        self
    }

    /// Takes tokens that are bound to a key of the caller too (DPoP, RFC 9449): with the scheme `DPoP`, and a proof for
    /// each request. Without, they are refused.
    ///
    /// A proof names the URL of its request. A service does not see that: a proxy in front may have ended the encryption,
    /// a router stripped a prefix. So `base_url` is what stands in front of the path that the layer sees, such as
    /// `https://api.example` or `https://api.example/v1`.
    ///
    /// Each proof is taken once. This process remembers them, of one key some 800 a second and 13,000 of all: what comes
    /// beyond is answered 503. Where one caller sends more, or several processes serve one URL, give them
    /// [one store](Self::dpop_store).
    pub fn dpop(mut self, base_url: &str) -> Result<Self, ConfigError> {
        self.settings.possession = self.settings.possession.at(base_url)?;
        Ok(self)
    }

    /// Remembers proofs in a store that all processes share, as many as it holds.
    pub fn dpop_store(mut self, store: impl Into<AnyStore>) -> Self {
        self.settings.possession = self.settings.possession.store(store.into());
        self
    }

    /// Demands proofs that hold a value from this service (RFC 9449 §9), made with this key, so that none is made before
    /// its time. All processes need the same key. The value is in `DPoP-Nonce`, which a CORS layer must expose: of the
    /// refusal of a proof without it, and of each answer to a request that came through with a proof.
    pub fn dpop_nonces(mut self, key: &Secret) -> Self {
        self.settings.possession = self.settings.possession.nonces(key);
        self
    }

    /// Creates the verifier.
    pub fn build(self) -> Verifier {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Relaxed);
        let settings = self.settings;
        Verifier(Arc::new(Inner { number, cache: VerifiedTokens::new(settings.remembered), settings }))
    }
}

impl fmt::Debug for VerifierBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifierBuilder").field("rules", &self.settings.rules).finish_non_exhaustive()
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("rules", &self.0.settings.rules)
            .field("possession", self.possession())
            .finish_non_exhaustive()
    }
}
