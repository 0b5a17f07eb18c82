use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use serde_json::{Value, json};

use crate::{
    jose::{Algorithm, Signer},
    util::{
        clock::{Clock, SystemClock, UnixTime},
        secret::{Digest, Secret},
    },
};

/// The key of a client that proves it with each request (DPoP, RFC 9449).
///
/// ```
/// use tollgate::{UnixTime, testing::DpopKey};
///
/// let key = DpopKey::generate();
/// let for_a_token = key.proof("POST", "https://auth.example/token").sign();
/// let for_an_api = key.proof("GET", "https://api.example/me").token("eyJ0…").sign();
/// assert_ne!(for_a_token, for_an_api); // each goes into a header `DPoP` once
/// ```
pub struct DpopKey(Signer);

/// A proof to be signed.
#[derive(Clone)]
#[must_use]
pub struct DpopProof<'k> {
    key: &'k DpopKey,
    claims: Value,
}

impl DpopKey {
    /// A new key, for ES256.
    ///
    /// # Panics
    ///
    /// If no key can be made.
    pub fn generate() -> Self {
        Self::of(Algorithm::Es256)
    }

    #[expect(clippy::expect_used, reason = "tests may panic")]
    pub(crate) fn of(algorithm: Algorithm) -> Self {
        let pkcs8 = Signer::generate(algorithm).expect("a key can be made");
        Self(Signer::read(algorithm, &pkcs8).expect("what was made is a key"))
    }

    /// Its thumbprint (RFC 7638): `dpop_jkt` of a request, `cnf.jkt` of a token.
    pub fn thumbprint(&self) -> &str {
        self.0.kid()
    }

    /// A proof for a request of this method to this URL, made now.
    pub fn proof(&self, method: &str, url: &str) -> DpopProof<'_> {
        let url = url.split(['?', '#']).next().unwrap_or_default();
        let claims = json!({ "jti": Secret::generate().expose(), "htm": method, "htu": url });
        let clock = SystemClock::new();
        DpopProof { key: self, claims }.at(clock.unix(clock.now()))
    }

    /// The header of its proofs.
    #[expect(clippy::expect_used, reason = "tests may panic")]
    pub(crate) fn header(&self) -> Value {
        let key = self.0.public();
        let jwk = serde_json::to_value(key.jwk()).expect("a key is JSON");
        json!({ "typ": "dpop+jwt", "alg": key.algorithm().as_str(), "jwk": jwk })
    }

    /// Signs any texts as header and claims.
    #[expect(clippy::expect_used, reason = "tests may panic")]
    pub(crate) fn sign(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", BASE64URL.encode(header), BASE64URL.encode(claims));
        let signature = self.0.sign(signed.as_bytes()).expect("a key signs");
        format!("{signed}.{}", BASE64URL.encode(signature))
    }
}

impl DpopProof<'_> {
    /// Made at this time instead.
    pub fn at(self, time: UnixTime) -> Self {
        self.claim("iat", time.as_secs())
    }

    /// For a request that brings this access token.
    pub fn token(self, token: &str) -> Self {
        let digest = BASE64URL.encode(Digest::of(token).as_bytes());
        self.claim("ath", digest)
    }

    /// With the nonce that `DPoP-Nonce` gave.
    pub fn nonce(self, nonce: &str) -> Self {
        self.claim("nonce", nonce)
    }

    /// Under this name (`jti`) and no random one.
    pub fn id(self, id: &str) -> Self {
        self.claim("jti", id)
    }

    /// With any claim: what a broken client sends.
    pub(crate) fn claim(mut self, name: &str, value: impl Into<Value>) -> Self {
        if let Some(claims) = self.claims.as_object_mut() {
            claims.insert(name.to_owned(), value.into());
        }
        self
    }

    /// The value of the header `DPoP`.
    ///
    /// # Panics
    ///
    /// If the key does not sign.
    pub fn sign(&self) -> String {
        self.key.sign(&self.key.header().to_string(), &self.claims.to_string())
    }

    #[cfg(test)]
    pub(crate) fn claims(&self) -> &Value {
        &self.claims
    }
}

impl fmt::Debug for DpopKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DpopKey").field("thumbprint", &self.thumbprint()).finish_non_exhaustive()
    }
}

impl fmt::Debug for DpopProof<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DpopProof").field("key", self.key).field("claims", &self.claims).finish()
    }
}
