//! Parsing a proof and comparing it with its request.

use std::time::Duration;

use http::{HeaderMap, HeaderName, Method};
use serde::Deserialize;

use self::DpopError::Invalid;
use super::{nonce::Nonces, url};
use crate::{
    jose::{date, jwk::PublicKey, jws::Unverified},
    util::{clock::UnixTime, encoding::base64url_of_32, secret::SecretDigest},
};

const HEADER: HeaderName = HeaderName::from_static("dpop");

const TYPE: &str = "dpop+jwt";

/// The maximum length of a proof in bytes. A proof with the largest RSA key takes a quarter of it.
const MOST_BYTES: usize = 8 * 1024;

/// The maximum length of `jti`.
const MOST_OF_JTI: usize = 256;

/// The maximum age of a proof, including clock differences.
pub(super) const MOST_AGE: Duration = Duration::from_secs(60);

/// How far the clock of a caller may be ahead.
pub(super) const MOST_AHEAD: Duration = Duration::from_secs(10);

/// A proof that matches its request. Its signature has not been checked yet, because that takes most of the work.
pub(crate) struct UnverifiedProof<'h> {
    token: Unverified<'h>,
    key: PublicKey,
    proof: DpopProof,
}

/// A proof with a valid signature that matches its request. It may have been used before.
#[derive(Clone, Debug)]
pub(crate) struct DpopProof {
    thumbprint: String,
    jti: String,
    issued_at: UnixTime,
}

/// Why a proof is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DpopError {
    /// `invalid_dpop_proof`, with a description.
    Invalid(&'static str),
    /// `use_dpop_nonce`: the proof has no valid nonce. Contains the current nonce, which the
    /// response sends in `DPoP-Nonce`.
    UseNonce(String),
    /// It is currently impossible to tell whether the proof was used before.
    Unavailable,
}

/// The request that a proof must match.
pub(super) struct Expected<'r> {
    pub(super) method: &'r Method,
    pub(super) url: &'r str,
    pub(super) token: Option<&'r str>,
    pub(super) nonces: Option<&'r Nonces>,
    pub(super) now: UnixTime,
}

#[derive(Deserialize)]
struct ProofClaims {
    jti: String,
    htm: String,
    htu: String,
    /// A fraction is rounded down, so the proof counts as older.
    #[serde(deserialize_with = "date::floor")]
    iat: u64,
    ath: Option<String>,
    nonce: Option<String>,
}

/// Copies the headers of a request that matter here.
pub(crate) fn headers(all: &HeaderMap) -> HeaderMap {
    // a second header is already an error, so further ones can be dropped
    all.get_all(HEADER).iter().take(2).map(|value| (HEADER, value.clone())).collect()
}

impl<'h> UnverifiedProof<'h> {
    /// Parses the proof of a request, and compares it with the request. Returns `None` if the request has none.
    pub(super) fn parse_proof_header(
        headers: &'h HeaderMap,
        expected: &Expected<'_>,
    ) -> Result<Option<Self>, DpopError> {
        let mut all = headers.get_all(HEADER).iter();
        let text = match (all.next(), all.next()) {
            (None, _) => return Ok(None),
            (Some(only), None) => only,
            (Some(_), Some(_)) => return Err(Invalid("the DPoP header appears more than once")),
        };
        let text = text.to_str().map_err(|_| Invalid("the proof is malformed"))?;
        if text.len() > MOST_BYTES {
            return Err(Invalid("the proof is too long"));
        }
        let token = Unverified::parse(text, TYPE).ok_or(Invalid("the proof is malformed"))?;
        let key = token.own_key().ok_or(Invalid("the proof contains no key of a supported type and size"))?;
        let claims: ProofClaims =
            token.unverified_claims().ok_or(Invalid("jti, htm, htu or iat is missing, or a claim is malformed"))?;
        claims.fit(expected)?;
        let issued_at = UnixTime::from_secs(claims.iat);
        let proof = DpopProof { thumbprint: key.thumbprint(), jti: claims.jti, issued_at };
        Ok(Some(Self { token, key, proof }))
    }

    /// Returns the thumbprint of the key that the proof contains.
    pub(crate) fn thumbprint(&self) -> &str {
        &self.proof.thumbprint
    }

    /// Checks the signature.
    pub(crate) fn verify(self) -> Result<DpopProof, DpopError> {
        if !self.token.is_signed_by(&self.key) {
            return Err(Invalid("the proof is not signed by the key that it contains"));
        }
        Ok(self.proof)
    }
}

impl DpopProof {
    /// Returns the thumbprint of the proved key (RFC 7638), as in a token's `cnf.jkt`.
    pub(crate) fn thumbprint(&self) -> &str {
        &self.thumbprint
    }

    /// Returns a digest that identifies the proof. Thumbprints have a fixed length, so the
    /// concatenation is unambiguous.
    pub(super) fn digest(&self) -> SecretDigest {
        SecretDigest::of_secret([self.thumbprint.as_bytes(), self.jti.as_bytes()].concat())
    }

    pub(super) fn is_too_old(&self, now: UnixTime) -> bool {
        now > self.issued_at + MOST_AGE
    }

    /// Returns when the proof is too old for every node, including nodes with a slow clock.
    pub(super) fn forgotten_at(&self) -> UnixTime {
        self.issued_at + MOST_AGE + MOST_AHEAD
    }

    pub(super) fn into_thumbprint(self) -> String {
        self.thumbprint
    }
}

impl ProofClaims {
    fn fit(&self, expected: &Expected<'_>) -> Result<(), DpopError> {
        if !(1..=MOST_OF_JTI).contains(&self.jti.len()) {
            return Err(Invalid("the jti must be 1 to 256 bytes long"));
        }
        if self.htm != expected.method.as_str() {
            return Err(Invalid("the proof is for another method"));
        }
        if !url::is_same(&self.htu, expected.url) {
            return Err(Invalid("the proof is for another URL"));
        }
        let issued_at = UnixTime::from_secs(self.iat);
        if expected.now > issued_at + MOST_AGE {
            return Err(Invalid("the proof is too old"));
        }
        if issued_at > expected.now + MOST_AHEAD {
            return Err(Invalid("the proof was issued in the future"));
        }
        if let Some(token) = expected.token
            && self
                .ath
                .as_deref()
                .is_none_or(|ath| *ath.as_bytes() != base64url_of_32(SecretDigest::of_secret(token).as_bytes()))
        {
            return Err(Invalid("the proof is not for this access token"));
        }
        if let Some(nonces) = expected.nonces
            && !self.nonce.as_deref().is_some_and(|nonce| nonces.accepts(nonce, expected.now))
        {
            return Err(DpopError::UseNonce(nonces.current(expected.now)));
        }
        Ok(())
    }
}
