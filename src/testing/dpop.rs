use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use serde_json::{Value, json};

use crate::{
    jose::{Algorithm, Signer},
    util::{
        clock::{Clock, SystemClock, UnixTime},
        secret::{Secret, SecretDigest},
    },
};

/// A DPoP key of a client (RFC 9449).
///
/// ```
/// use tollgate::{clock::UnixTime, testing::DpopKey};
///
/// let key = DpopKey::generate();
/// let for_a_token = key.proof("POST", "https://auth.example/token").sign();
/// let for_an_api = key.proof("GET", "https://api.example/me").token("eyJ0…").sign();
/// assert_ne!(for_a_token, for_an_api); // each goes into a header `DPoP` once
/// ```
pub struct DpopKey(Signer);

/// A DPoP proof under construction.
#[derive(Clone)]
#[must_use]
pub struct DpopProof<'k> {
    key: &'k DpopKey,
    claims: Value,
}

impl DpopKey {
    /// Generates an ES256 key.
    ///
    /// # Panics
    ///
    /// Panics if key generation fails.
    pub fn generate() -> Self {
        Self::of_algorithm(Algorithm::Es256)
    }

    #[expect(clippy::expect_used, reason = "tests may panic")]
    pub(crate) fn of_algorithm(algorithm: Algorithm) -> Self {
        let pkcs8 = Signer::generate_signing_key(algorithm).expect("key generation succeeds");
        Self(Signer::parse_pkcs8(algorithm, &pkcs8).expect("a generated key is valid"))
    }

    /// Returns the thumbprint (RFC 7638), for `dpop_jkt` in requests and `cnf.jkt` in tokens.
    pub fn thumbprint(&self) -> &str {
        &self.0.kid
    }

    /// Creates a proof for a request with this method and URL, issued now.
    pub fn proof(&self, method: &str, url: &str) -> DpopProof<'_> {
        let url = url.split(['?', '#']).next().unwrap_or_default();
        let claims = json!({ "jti": Secret::generate().expose(), "htm": method, "htu": url });
        let clock = SystemClock::new();
        DpopProof { key: self, claims }.issued_at(clock.unix(clock.now()))
    }

    /// Returns the header of its proofs.
    #[expect(clippy::expect_used, reason = "tests may panic")]
    pub(crate) fn header(&self) -> Value {
        let key = &self.0.public;
        let jwk = serde_json::to_value(key.jwk()).expect("a key serializes");
        json!({ "typ": "dpop+jwt", "alg": key.algorithm().as_str(), "jwk": jwk })
    }

    /// Signs arbitrary header and claims.
    #[expect(clippy::expect_used, reason = "tests may panic")]
    pub(crate) fn sign(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", BASE64URL.encode(header), BASE64URL.encode(claims));
        let signature = self.0.sign(signed.as_bytes()).expect("signing succeeds");
        format!("{signed}.{}", BASE64URL.encode(signature))
    }
}

impl DpopProof<'_> {
    /// Sets the issue time.
    pub fn issued_at(self, time: UnixTime) -> Self {
        self.claim("iat", time.as_secs())
    }

    /// Binds the proof to the access token of the request.
    pub fn token(self, token: &str) -> Self {
        let digest = BASE64URL.encode(SecretDigest::of_secret(token).as_bytes());
        self.claim("ath", digest)
    }

    /// Sets the nonce received in `DPoP-Nonce`.
    pub fn nonce(self, nonce: &str) -> Self {
        self.claim("nonce", nonce)
    }

    /// Sets the id (`jti`). Random by default.
    pub fn id(self, id: &str) -> Self {
        self.claim("jti", id)
    }

    /// Sets any claim, to simulate a broken client.
    pub(crate) fn claim(mut self, name: &str, value: impl Into<Value>) -> Self {
        if let Some(claims) = self.claims.as_object_mut() {
            claims.insert(name.to_owned(), value.into());
        }
        self
    }

    /// Returns the value of the `DPoP` header.
    ///
    /// # Panics
    ///
    /// Panics if signing fails.
    pub fn sign(&self) -> String {
        self.key.sign(&self.key.header().to_string(), &self.claims.to_string())
    }

    #[cfg(test)]
    pub(crate) fn claims(&self) -> &Value {
        &self.claims
    }
}

crate::util::fmt::debug_fields!(DpopKey, |own| thumbprint: own.thumbprint());

impl fmt::Debug for DpopProof<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DpopProof").field("key", self.key).field("claims", &self.claims).finish()
    }
}
