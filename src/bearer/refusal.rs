//! What a request is answered that does not come through (RFC 6750 §3).

use http::{HeaderValue, header};

use crate::{
    error::ConfigError,
    reject::{Kind, Rejection},
};

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The answers, written once.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    realm: String,
    /// In the order in which they were asked for.
    scopes: Vec<Box<str>>,
    challenges: Challenges,
}

#[derive(Clone, Debug)]
struct Challenges {
    nobody: HeaderValue,
    malformed: HeaderValue,
    invalid: HeaderValue,
    narrow: HeaderValue,
}

impl Refusal {
    pub(super) fn new() -> Self {
        let empty = HeaderValue::from_static("");
        let challenges =
            Challenges { nobody: empty.clone(), malformed: empty.clone(), invalid: empty.clone(), narrow: empty };
        let mut refusal = Self { realm: "api".to_owned(), scopes: Vec::new(), challenges };
        refusal.write();
        refusal
    }

    pub(super) fn set_realm(&mut self, realm: &str) -> Result<(), ConfigError> {
        let allowed = |byte: u8| matches!(byte, 0x20..=0x7e) && !matches!(byte, b'"' | b'\\');
        if !realm.bytes().all(allowed) {
            return Err(ConfigError::new("bearer realm", realm, "must be printable ASCII without quotes"));
        }
        realm.clone_into(&mut self.realm);
        self.write();
        Ok(())
    }

    pub(super) fn require(&mut self, scope: &str) -> Result<(), ConfigError> {
        let allowed = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
        if scope.is_empty() || !scope.bytes().all(allowed) {
            return Err(ConfigError::new("required scope", scope, "must be one name of visible ASCII without quotes"));
        }
        self.scopes.push(scope.into());
        self.write();
        Ok(())
    }

    pub(super) fn scopes(&self) -> &[Box<str>] {
        &self.scopes
    }

    fn write(&mut self) {
        let challenge = |rest: &str| {
            // never the default: all of it was looked at before
            HeaderValue::from_str(&format!(r#"Bearer realm="{}"{rest}"#, self.realm))
                .unwrap_or(HeaderValue::from_static("Bearer"))
        };
        self.challenges = Challenges {
            nobody: challenge(""),
            malformed: challenge(r#", error="invalid_request""#),
            invalid: challenge(r#", error="invalid_token""#),
            narrow: challenge(&format!(r#", error="insufficient_scope", scope="{}""#, self.scopes.join(" "))),
        };
    }

    /// What a request without a token is asked for.
    pub(super) fn challenge(&self) -> &HeaderValue {
        &self.challenges.nobody
    }

    pub(super) fn nobody(&self) -> Rejection {
        answer(Kind::Unauthenticated, "an access token is needed", &self.challenges.nobody)
    }

    pub(super) fn malformed(&self) -> Rejection {
        answer(Kind::InvalidRequest, "the authorization header is malformed", &self.challenges.malformed)
    }

    /// One answer for all that is wrong with a token.
    pub(super) fn invalid(&self) -> Rejection {
        answer(Kind::Unauthenticated, "the access token is not valid", &self.challenges.invalid)
    }

    pub(super) fn narrow(&self) -> Rejection {
        answer(Kind::Forbidden, "the access token does not allow this", &self.challenges.narrow)
    }

    pub(super) fn unavailable() -> Rejection {
        Rejection::new(Kind::Unavailable, "access tokens can't be checked right now")
            .header(header::CACHE_CONTROL, NO_STORE)
    }
}

fn answer(kind: Kind, detail: &'static str, challenge: &HeaderValue) -> Rejection {
    Rejection::new(kind, detail)
        .header(header::WWW_AUTHENTICATE, challenge.clone())
        .header(header::CACHE_CONTROL, NO_STORE)
}
