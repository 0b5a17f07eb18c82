//! Responses to rejected requests (RFC 6750 §3, RFC 9449 §7.1, RFC 9470 §3, RFC 9728 §5.1).

use std::{fmt::Write, time::Duration};

use http::{HeaderValue, header};

use super::{authorization::Scheme, resource::ProtectedResource};
use crate::{
    dpop::{self, DpopError},
    http::head::Head,
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
    pub(super) scopes: Vec<Box<str>>,
    /// The accepted levels of authentication, best first. If empty, every level is accepted.
    levels: Vec<Box<str>>,
    /// The longest time since the user authenticated.
    pub(super) max_age: Option<Duration>,
    /// The API that the layer protects, if clients can find out about it.
    pub(super) resource: Option<ProtectedResource>,
    /// Whether DPoP is enabled.
    proofs: bool,
    /// The challenge for requests without a token.
    pub(super) challenge: HeaderValue,
}

impl BearerRejections {
    pub(super) fn new(proofs: bool) -> Self {
        let challenge = HeaderValue::from_static("Bearer");
        let mut rejections = Self {
            realm: "api".to_owned(),
            scopes: Vec::new(),
            levels: Vec::new(),
            max_age: None,
            resource: None,
            proofs,
            challenge,
        };
        rejections.write_challenge();
        rejections
    }

    /// Rewrites the challenge for requests without a token after a change.
    fn write_challenge(&mut self) {
        self.challenge = self.asks(Scheme::Bearer, "");
    }

    pub(super) fn set_realm(&mut self, realm: &str) -> Result<(), ConfigError> {
        let allowed = |byte: u8| matches!(byte, 0x20..=0x7e) && !matches!(byte, b'"' | b'\\');
        if !realm.bytes().all(allowed) {
            return Err(ConfigError::new("bearer realm", realm, "must be printable ASCII without quotes"));
        }
        realm.clone_into(&mut self.realm);
        self.write_challenge();
        Ok(())
    }

    pub(super) fn require(&mut self, scope: &str) -> Result<(), ConfigError> {
        check_single_name("required scope", scope)?;
        self.scopes.push(scope.into());
        self.write_challenge();
        Ok(())
    }

    /// Accepts a level of authentication.
    pub(super) fn accept_level(&mut self, acr: &str) -> Result<(), ConfigError> {
        check_single_name("required acr", acr)?;
        self.levels.push(acr.into());
        Ok(())
    }

    pub(super) fn set_resource(&mut self, resource: ProtectedResource) {
        self.resource = Some(resource);
        self.write_challenge();
    }

    /// Returns the answer with the document of the resource, if a request asks for it.
    pub(super) fn document(&self, head: Head<'_>, issuer: &str) -> Option<Rejection> {
        let resource = self.resource.as_ref().filter(|resource| resource.is_asked_for(head))?;
        Some(resource.document(issuer, &self.scopes, self.proofs))
    }

    /// Returns whether a level of authentication is accepted.
    pub(super) fn accepts_level(&self, acr: Option<&str>) -> bool {
        self.levels.is_empty() || acr.is_some_and(|acr| self.levels.iter().any(|level| **level == *acr))
    }

    fn asks(&self, tried: Scheme, error: &str) -> HeaderValue {
        let Some(resource) = &self.resource else {
            return challenge_header(&self.realm, self.proofs, tried, error, "");
        };
        let more = format!(r#"{}, resource_metadata="{}""#, self.scope_parameter(), resource.document_url());
        challenge_header(&self.realm, self.proofs, tried, error, &more)
    }

    /// Returns the required scopes as a parameter of a challenge.
    fn scope_parameter(&self) -> String {
        if self.scopes.is_empty() { String::new() } else { format!(r#", scope="{}""#, self.scopes.join(" ")) }
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
        let mut error = String::from(r#", error="insufficient_scope""#);
        // challenges of a resource always have the scopes
        if self.resource.is_none() {
            error += &self.scope_parameter();
        }
        let challenge = self.asks(scheme, &error);
        challenge_rejection(RejectionKind::Forbidden, "the access token lacks a required scope", challenge)
    }

    /// Asks for a stronger or a newer authentication of the user.
    pub(super) fn step_up(&self, scheme: Scheme) -> Rejection {
        const ERROR: &str = "insufficient_user_authentication";
        let mut parameters = format!(r#", error="{ERROR}""#);
        if !self.levels.is_empty() {
            _ = write!(parameters, r#", acr_values="{}""#, self.levels.join(" "));
        }
        if let Some(age) = self.max_age {
            _ = write!(parameters, r#", max_age="{}""#, age.as_secs());
        }
        let detail = "the user must authenticate again, or in a stronger way";
        challenge_rejection(RejectionKind::Unauthenticated, detail, self.asks(scheme, &parameters))
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
        challenge_rejection(kind, why, self.asks(tried, &format!(r#", error="{error}""#)))
    }
}

/// Checks a single name, as scopes and levels of authentication have it.
pub(super) fn check_single_name(setting: &'static str, name: &str) -> Result<(), ConfigError> {
    let allowed = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    if name.is_empty() || !name.bytes().all(allowed) {
        return Err(ConfigError::new(setting, name, "must be a single name of visible ASCII without quotes"));
    }
    Ok(())
}

/// Returns the challenges of all schemes. The error is added to the scheme that was tried, and `more` to each.
pub(crate) fn challenge_header(realm: &str, takes_proofs: bool, tried: Scheme, error: &str, more: &str) -> HeaderValue {
    let at = |scheme| if scheme == tried || !takes_proofs { error } else { "" };
    let mut text = format!(r#"Bearer realm="{realm}"{}{more}"#, at(Scheme::Bearer));
    if takes_proofs {
        let error = at(Scheme::DPoP);
        text += &format!(r#", DPoP realm="{realm}"{error}, algs="{}"{more}"#, Algorithm::ACCEPTED_NAMES.join(" "));
    }
    // the default is never used: the realm was validated, and the rest is constant
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("Bearer"))
}

fn challenge_rejection(kind: RejectionKind, detail: &'static str, challenge: HeaderValue) -> Rejection {
    Rejection::new(kind, detail).header(header::WWW_AUTHENTICATE, challenge).header(header::CACHE_CONTROL, NO_STORE)
}
