//! [`DpopProof`]: one proof, and what it says about the request.

use std::time::Duration;

use http::{HeaderMap, HeaderName, Method};
use serde::Deserialize;

use self::DpopError::Invalid;
use super::{nonce::Nonces, url};
use crate::{
    jose::{
        date,
        jws::{Fault, Unverified},
    },
    util::{clock::UnixTime, encoding::base64url_of_32, secret::Digest},
};

const HEADER: HeaderName = HeaderName::from_static("dpop");

const TYPE: &str = "dpop+jwt";

/// The longest proof that is read: one with the largest RSA key takes a quarter of it.
const MOST_BYTES: usize = 8 * 1024;

/// The longest name of a proof.
const MOST_OF_JTI: usize = 256;

/// How old a proof may be, with what clocks differ by.
pub(super) const MOST_AGE: Duration = Duration::from_secs(60);

/// How far ahead of ours the clock of a caller may be.
pub(super) const MOST_AHEAD: Duration = Duration::from_secs(10);

/// A proof whose signature is good and that fits its request. It may have been shown before.
#[derive(Clone, Debug)]
pub(crate) struct DpopProof {
    thumbprint: String,
    jti: String,
    issued_at: UnixTime,
}

/// Why a proof is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DpopError {
    /// `invalid_dpop_proof`, and what to say of it.
    Invalid(&'static str),
    /// `use_dpop_nonce`: it has no nonce that is good, and this is one, for `DPoP-Nonce`.
    UseNonce(String),
    /// Whether it was shown before can't be told right now.
    Unavailable,
}

/// What a proof has to fit.
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
    /// A fraction makes it older: it is forgotten no later.
    #[serde(deserialize_with = "date::floor")]
    iat: u64,
    #[serde(default)]
    ath: Option<String>,
    #[serde(default)]
    nonce: Option<String>,
}

/// The headers of a request that matter here.
pub(crate) fn headers(all: &HeaderMap) -> HeaderMap {
    // a second one is one too many, however many more there are
    all.get_all(HEADER).iter().take(2).map(|value| (HEADER, value.clone())).collect()
}

impl DpopProof {
    /// The proof of a request, if it has one.
    pub(super) fn read(headers: &HeaderMap, wanted: &Expected<'_>) -> Result<Option<Self>, DpopError> {
        let mut all = headers.get_all(HEADER).iter();
        let text = match (all.next(), all.next()) {
            (None, _) => return Ok(None),
            (Some(only), None) => only,
            (Some(_), Some(_)) => return Err(Invalid("there is more than one DPoP header")),
        };
        let text = text.to_str().map_err(|_| Invalid("the proof is malformed"))?;
        if text.len() > MOST_BYTES {
            return Err(Invalid("the proof is too long"));
        }
        let unverified = Unverified::parse(text, TYPE).ok_or(Invalid("the proof is malformed"))?;
        let (key, claims) = unverified.own_claims::<ProofClaims>().map_err(|fault| {
            Invalid(match fault {
                Fault::Key => "the proof brings no key of a kind and a size that are taken here",
                Fault::Signature => "the proof is not signed by the key that it brings",
                Fault::Claims => "jti, htm, htu or iat is missing, or a claim is malformed",
            })
        })?;
        claims.fit(wanted)?;
        Ok(Some(Self { thumbprint: key.thumbprint(), jti: claims.jti, issued_at: UnixTime::from_secs(claims.iat) }))
    }

    /// The key that was proved (RFC 7638), as it stands in `cnf.jkt` of a token.
    pub(crate) fn thumbprint(&self) -> &str {
        &self.thumbprint
    }

    /// What tells it from every other proof. A thumbprint always has the same length, so where it ends is no question.
    pub(super) fn digest(&self) -> Digest {
        Digest::of([self.thumbprint.as_bytes(), self.jti.as_bytes()].concat())
    }

    pub(super) fn is_too_old(&self, now: UnixTime) -> bool {
        now > self.issued_at + MOST_AGE
    }

    /// From when on it is too old for every node, also for one whose clock is behind.
    pub(super) fn forgotten_at(&self) -> UnixTime {
        self.issued_at + MOST_AGE + MOST_AHEAD
    }

    pub(super) fn into_thumbprint(self) -> String {
        self.thumbprint
    }
}

impl ProofClaims {
    fn fit(&self, wanted: &Expected<'_>) -> Result<(), DpopError> {
        if !(1..=MOST_OF_JTI).contains(&self.jti.len()) {
            return Err(Invalid("the jti must have 1 to 256 bytes"));
        }
        if self.htm != wanted.method.as_str() {
            return Err(Invalid("the proof is for another method"));
        }
        if !url::is_same(&self.htu, wanted.url) {
            return Err(Invalid("the proof is for another URL"));
        }
        let issued_at = UnixTime::from_secs(self.iat);
        if wanted.now > issued_at + MOST_AGE {
            return Err(Invalid("the proof is too old"));
        }
        if issued_at > wanted.now + MOST_AHEAD {
            return Err(Invalid("the proof is of a time to come"));
        }
        if let Some(token) = wanted.token
            && self.ath.as_deref().is_none_or(|ath| *ath.as_bytes() != base64url_of_32(Digest::of(token).as_bytes()))
        {
            return Err(Invalid("the proof is not for this access token"));
        }
        if let Some(nonces) = wanted.nonces
            && !self.nonce.as_deref().is_some_and(|nonce| nonces.accepts(nonce, wanted.now))
        {
            return Err(DpopError::UseNonce(nonces.current(wanted.now)));
        }
        Ok(())
    }
}
