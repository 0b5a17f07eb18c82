//! Responses to rejected requests (RFC 6750 §3, RFC 9449 §7.1).

use http::{HeaderValue, header};

use super::authorization::Scheme;
use crate::{
    dpop::{self, DpopError},
    jose::Algorithm,
    reject::{Rejection, RejectionKind},
    util::error::ConfigError,
};

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Builds rejections with the challenges of a layer.
#[derive(Clone, Debug)]
pub(super) struct BearerRejections {
    realm: String,
    /// In the order in which they were required.
    scopes: Vec<Box<str>>,
    /// Whether DPoP is enabled.
    proofs: bool,
    /// The challenge for requests without a token.
    challenge: HeaderValue,
}

impl BearerRejections {
    pub(super) fn new(proofs: bool) -> Self {
        let challenge = HeaderValue::from_static("Bearer");
        let mut rejections = Self { realm: "api".to_owned(), scopes: Vec::new(), proofs, challenge };
        rejections.challenge = rejections.asks(Scheme::Bearer, "");
        rejections
    }

    pub(super) fn set_realm(&mut self, realm: &str) -> Result<(), ConfigError> {
        let allowed = |byte: u8| matches!(byte, 0x20..=0x7e) && !matches!(byte, b'"' | b'\\');
        if !realm.bytes().all(allowed) {
            return Err(ConfigError::new("bearer realm", realm, "must be printable ASCII without quotes"));
        }
        realm.clone_into(&mut self.realm);
        self.challenge = self.asks(Scheme::Bearer, "");
        Ok(())
    }

    pub(super) fn require(&mut self, scope: &str) -> Result<(), ConfigError> {
        let allowed = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
        if scope.is_empty() || !scope.bytes().all(allowed) {
            return Err(ConfigError::new(
                "required scope",
                scope,
                "must be a single name of visible ASCII without quotes",
            ));
        }
        self.scopes.push(scope.into());
        Ok(())
    }

    pub(super) fn scopes(&self) -> &[Box<str>] {
        &self.scopes
    }

    pub(super) fn challenge(&self) -> &HeaderValue {
        &self.challenge
    }

    fn asks(&self, tried: Scheme, error: &str) -> HeaderValue {
        challenge_header(&self.realm, self.proofs, tried, error)
    }

    pub(super) fn no_token(&self) -> Rejection {
        challenge_rejection(RejectionKind::Unauthenticated, "an access token is required", self.challenge.clone())
    }

    pub(super) fn malformed(&self) -> Rejection {
        self.error(
            RejectionKind::InvalidRequest,
            "the authorization header is malformed",
            Scheme::Bearer,
            "invalid_request",
        )
    }

    /// Rejects every kind of invalid token in the same way.
    pub(super) fn invalid(&self, scheme: Scheme) -> Rejection {
        self.error(RejectionKind::Unauthenticated, "the access token is invalid", scheme, "invalid_token")
    }

    pub(super) fn narrow(&self, scheme: Scheme) -> Rejection {
        let challenge =
            self.asks(scheme, &format!(r#", error="insufficient_scope", scope="{}""#, self.scopes.join(" ")));
        challenge_rejection(RejectionKind::Forbidden, "the access token lacks a required scope", challenge)
            .error("insufficient_scope")
    }

    pub(super) fn unproved(&self, error: DpopError) -> Rejection {
        let unproved = |why, error| self.error(RejectionKind::Unauthenticated, why, Scheme::DPoP, error);
        match error {
            DpopError::Invalid(why) => unproved(why, "invalid_dpop_proof"),
            DpopError::UseNonce(nonce) => {
                let rejection = unproved("the proof must contain the nonce of this response", "use_dpop_nonce");
                // never fails: the nonce is base64url
                match HeaderValue::try_from(nonce) {
                    Ok(nonce) => rejection.header(dpop::NONCE, nonce),
                    Err(_) => rejection,
                }
            }
            DpopError::Unavailable => Self::unavailable(),
        }
    }

    pub(super) fn unavailable() -> Rejection {
        Rejection::new(RejectionKind::Unavailable, "access tokens cannot be verified right now")
            .header(header::CACHE_CONTROL, NO_STORE)
    }

    fn error(&self, kind: RejectionKind, why: &'static str, tried: Scheme, error: &'static str) -> Rejection {
        challenge_rejection(kind, why, self.asks(tried, &format!(r#", error="{error}""#))).error(error)
    }
}

/// Returns the challenges of all schemes. The error is added to the scheme that was tried.
pub(crate) fn challenge_header(realm: &str, takes_proofs: bool, tried: Scheme, error: &str) -> HeaderValue {
    let at = |scheme| if scheme == tried || !takes_proofs { error } else { "" };
    let mut text = format!(r#"Bearer realm="{realm}"{}"#, at(Scheme::Bearer));
    if takes_proofs {
        let error = at(Scheme::DPoP);
        text += &format!(r#", DPoP realm="{realm}"{error}, algs="{}""#, Algorithm::ACCEPTED_NAMES.join(" "));
    }
    // the default is never used: the realm was validated, and the rest is constant
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("Bearer"))
}

fn challenge_rejection(kind: RejectionKind, detail: &'static str, challenge: HeaderValue) -> Rejection {
    Rejection::new(kind, detail).header(header::WWW_AUTHENTICATE, challenge).header(header::CACHE_CONTROL, NO_STORE)
}
