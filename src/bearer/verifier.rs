//! Verification of access tokens.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{
    keys::{KeySource, StaticKeys},
    possession::Possession,
    profile::TokenProfile,
    rules::{Rules, check_name},
    token::AccessToken,
    verified_tokens::VerifiedTokens,
};
use crate::{
    dpop::Nonces,
    gate::MaybeReady,
    jose::{
        KeySet, Unavailable,
        jws::{ClaimsError, Unverified},
    },
    store::{AnyStore, BoxFuture},
    support::issuer::Issuer,
    util::{
        clock::{Clock, SystemClock, UnixTime},
        error::ConfigError,
        secret::{Secret, SecretDigest},
    },
};

/// Verifies access tokens of one issuer for one service.
///
/// A valid token is a JWT of type `at+jwt` (RFC 9068) that is signed by a key of the issuer, names
/// exactly this issuer and this service, and has not expired. ID tokens and tokens for other
/// services are rejected. A [`TokenProfile`] accepts the tokens of providers that deviate from this.
///
/// Clones share a cache of verified tokens.
#[derive(Clone)]
pub struct Verifier(Arc<Inner>);

struct Inner {
    /// Unique for each verifier. A token accepted by one is trusted by its clones only.
    number: u64,
    settings: VerifierBuilder,
    cache: VerifiedTokens,
}

const LONGEST_LEEWAY: Duration = Duration::from_secs(60);

/// The default capacity of the cache.
const REMEMBERED: usize = 4096;

/// Why a token is rejected.
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

/// The result of checking a signature.
enum SignatureCheck {
    Good(AccessToken),
    Bad,
    /// The token names an unknown key.
    UnknownKey,
}

impl Verifier {
    pub(crate) fn new(
        keys: impl KeySource,
        issuer: &str,
        audience: &str,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ConfigError> {
        let settings = VerifierBuilder {
            keys: Arc::new(keys),
            rules: Rules::new(issuer, audience)?,
            possession: Possession::new(Arc::clone(&clock)),
            clock,
            remembered: REMEMBERED,
        };
        Ok(settings.build())
    }

    /// Creates a verifier with the issuer's keys, given as JSON Web Key Set. `audience` is the name
    /// of this service in its tokens.
    ///
    /// The keys are fixed: create a new verifier after a rotation. Revocations are not known here.
    ///
    /// # Errors
    ///
    /// Returns an error if the key set is invalid or has no usable key, or if a name is invalid.
    pub fn with_keys(issuer: &str, audience: &str, jwks_json: &[u8]) -> Result<Self, ConfigError> {
        let keys = KeySet::parse(jwks_json).filter(|keys| keys.iter().next().is_some());
        let wrong = || ConfigError::new("keys", "the key set", "must be a JSON Web Key Set with a usable key");
        let keys = StaticKeys(Arc::new(keys.ok_or_else(wrong)?));
        Self::new(keys, issuer, audience, Arc::new(SystemClock::new()))
    }

    /// Returns a builder with the settings of this verifier.
    ///
    /// The new verifier has its own cache, because other settings accept other tokens.
    pub fn to_builder(&self) -> VerifierBuilder {
        self.0.settings.clone()
    }

    pub(super) fn number(&self) -> u64 {
        self.0.number
    }

    /// Returns the issuer whose tokens are accepted.
    pub(super) fn issuer(&self) -> &str {
        &self.0.settings.rules.issuer
    }

    /// Returns whether at most this time has passed since then.
    pub(super) fn is_recent(&self, then: UnixTime, age: Duration) -> bool {
        self.now() <= then + age + self.0.settings.rules.leeway
    }

    pub(super) fn possession(&self) -> &Possession {
        &self.0.settings.possession
    }

    /// Verifies a token, except for the proof of its key.
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
        let digest = SecretDigest::of_secret(token);
        if let Some(known) = self.0.cache.get(&digest, &keys) {
            return self.check_time_and_revocation(known);
        }
        match self.check_signature(token, &keys) {
            SignatureCheck::Good(good) => {
                self.0.cache.put(digest, good.clone(), keys);
                self.check_time_and_revocation(good)
            }
            SignatureCheck::Bad => MaybeReady::Ready(Err(TokenError::Invalid)),
            SignatureCheck::UnknownKey => {
                let newer = self.0.settings.keys.newer_keys(&keys);
                let (verifier, token) = (self.clone(), token.to_owned());
                MaybeReady::Pending(Box::pin(async move {
                    let keys = newer.wait().await?;
                    let SignatureCheck::Good(good) = verifier.check_signature(&token, &keys) else {
                        return Err(TokenError::Invalid);
                    };
                    verifier.0.cache.put(digest, good.clone(), keys);
                    verifier.check_time_and_revocation(good).wait().await
                }))
            }
        }
    }

    fn now(&self) -> UnixTime {
        let clock = &self.0.settings.clock;
        clock.unix(clock.now())
    }

    /// Checks everything that can't change for a token and a set of keys.
    fn check_signature(&self, token: &str, keys: &KeySet) -> SignatureCheck {
        let (rules, source) = (&self.0.settings.rules, &*self.0.settings.keys);
        let unverified = Unverified::parse_any(token).filter(|token| rules.profile.accepts_type(token));
        let Some(unverified) = unverified else { return SignatureCheck::Bad };
        match unverified.claims_with(keys, &rules.profile.algorithms) {
            Ok(claims) => {
                let good = rules
                    .profile
                    .map_profile_claims(token, claims)
                    .and_then(|claims| rules.token_from_claims(claims, source));
                good.map_or(SignatureCheck::Bad, SignatureCheck::Good)
            }
            Err(ClaimsError::Signature) if unverified.kid().is_some_and(|kid| !keys.names(kid)) => {
                SignatureCheck::UnknownKey
            }
            Err(_) => SignatureCheck::Bad,
        }
    }

    /// Checks what can change: the time and revocation.
    fn check_time_and_revocation(&self, token: AccessToken) -> Verified {
        if !self.0.settings.rules.is_timely(token.claims(), self.now()) {
            return MaybeReady::Ready(Err(TokenError::Invalid));
        }
        let Some(revocation) = token.revocation() else { return MaybeReady::Ready(Ok(token)) };
        revocation.is_revoked().map(|revoked| if revoked? { Err(TokenError::Invalid) } else { Ok(token) })
    }
}

#[cfg(test)]
impl Verifier {
    /// Returns the number of cached tokens.
    pub(super) fn remembered(&self) -> usize {
        self.0.cache.len()
    }

    /// Returns whether this token is cached.
    pub(super) fn remembers(&self, token: &str) -> bool {
        let MaybeReady::Ready(Ok(keys)) = self.0.settings.keys.keys() else { return false };
        self.0.cache.get(&SecretDigest::of_secret(token), &keys).is_some()
    }
}

/// Settings of a [`Verifier`]. Start with [`Verifier::to_builder`].
#[derive(Clone)]
#[must_use]
pub struct VerifierBuilder {
    keys: Arc<dyn KeySource>,
    rules: Rules,
    possession: Possession,
    clock: Arc<dyn Clock>,
    /// The capacity of the cache.
    remembered: usize,
}

impl VerifierBuilder {
    /// Adds a name of this service. Tokens for any of its names are accepted.
    ///
    /// # Errors
    ///
    /// Returns an error unless `name` is 1 to 255 visible characters.
    pub fn audience(mut self, name: &str) -> Result<Self, ConfigError> {
        check_name("audience", name)?;
        self.rules.audiences.push(name.into());
        Ok(self)
    }

    /// Accepts only tokens for this audience.
    pub(super) fn only_audience(mut self, name: &str) -> Result<Self, ConfigError> {
        self.rules.audiences.clear();
        self.audience(name)
    }

    /// Sets the form of the issuer's tokens. Defaults to [`TokenProfile::rfc9068`].
    pub fn profile(mut self, profile: TokenProfile) -> Self {
        self.rules.profile = profile;
        self
    }

    /// Sets the tolerance for clock differences with the issuer. Tokens stay valid for this much longer. Defaults to 5
    /// seconds.
    ///
    /// # Errors
    ///
    /// Returns an error if `leeway` is longer than 60 seconds.
    pub fn leeway(mut self, leeway: Duration) -> Result<Self, ConfigError> {
        ConfigError::check_range("leeway", leeway, ..=LONGEST_LEEWAY, "must be at most 60 seconds")?;
        self.rules.leeway = leeway;
        Ok(self)
    }

    /// Sets the capacity of the cache of verified tokens. Defaults to 4,096. Zero disables the
    /// cache; at most 1,048,576.
    ///
    /// Cached tokens skip the signature check until the keys change. Expiry and revocation are
    /// checked for every request.
    pub fn cache(mut self, tokens: usize) -> Self {
        self.remembered = tokens.min(VerifiedTokens::MOST);
        self
    }

    /// Accepts tokens that are bound to a key (DPoP, RFC 9449), sent with the scheme `DPoP` and a
    /// proof for each request. Without this setting they are rejected.
    ///
    /// A proof names the URL of its request, which the service does not know: a proxy may have
    /// terminated TLS, or a router may have stripped a prefix. `base_url` is the part in front of
    /// the path that the layer sees, such as `https://api.example` or `https://api.example/v1`.
    ///
    /// Each proof is accepted once. By default, used proofs are remembered in this process: about
    /// 800 per second for one key and 14,000 in total. Further requests get a 503. If callers send
    /// more in total, or if several processes serve one URL, use a [shared store](Self::dpop_store).
    ///
    /// # Errors
    ///
    /// Returns an error if `base_url` is invalid.
    pub fn dpop(mut self, base_url: &str) -> Result<Self, ConfigError> {
        let base = Issuer::parse(base_url);
        let base = base.map_err(|error| ConfigError::new("DPoP base URL", base_url, error.reason().to_owned()))?;
        self.possession.base = Some(base);
        Ok(self)
    }

    /// Remembers used proofs in a store that all processes share. Each process adds at most 800 per
    /// second for one key; further requests get a 503.
    pub fn dpop_store(mut self, store: impl Into<AnyStore>) -> Self {
        self.possession.proofs = self.possession.proofs.with_store(store.into());
        self
    }

    /// Requires a nonce of this service in proofs (RFC 9449 §9), so that they can't be made in
    /// advance.
    ///
    /// All processes need the same key. The nonce is sent in `DPoP-Nonce` with rejections of proofs
    /// without a valid nonce, and with responses to requests with a valid proof. A CORS layer must
    /// expose this header.
    pub fn dpop_nonces(mut self, key: &Secret) -> Self {
        self.possession.proofs = self.possession.proofs.with_nonces(Arc::new(Nonces::new(key)));
        self
    }

    /// Creates the verifier.
    pub fn build(self) -> Verifier {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Relaxed);
        Verifier(Arc::new(Inner { number, cache: VerifiedTokens::new(self.remembered), settings: self }))
    }
}

crate::util::fmt::debug_fields!(VerifierBuilder { rules });
crate::util::fmt::debug_fields!(Verifier, |own| rules: own.0.settings.rules, possession: own.possession());
