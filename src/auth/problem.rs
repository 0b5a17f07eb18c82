//! [`Problem`]: why a call was not done, and how that is told.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use super::{
    answer::{self, Counters},
    request::Wrong,
};
use crate::{
    http::{accept, body::Body},
    login::{Denied, View},
    policy::Method,
    reject::{Rejection, RejectionKind},
    store::StoreError,
    util::{clock::ceil_seconds, number::number},
};

/// The errors that a caller can meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Code {
    InvalidRequest,
    UnsupportedResponseType,
    RequestNotSupported,
    RequestUriNotSupported,
    InvalidRequestUri,
    InvalidScope,
    InvalidClient,
    UnsupportedMethod,
    InvalidSession,
    SessionExpired,
    InvalidCredentials,
    InvalidOtp,
    LoginRequired,
    InteractionRequired,
    UnmetAuthenticationRequirements,
    AccessDenied,
    OriginNotAllowed,
    NotFound,
    MethodNotAllowedHere,
    NoPendingChallenge,
    MethodNotAllowed,
    NoStepRemaining,
    StepsRemaining,
    SessionFailed,
    TooLarge,
    UnsupportedMediaType,
    SlowDown,
    TooManyAttempts,
    RateLimitExceeded,
    TemporarilyUnavailable,
    /// A client that proves who it is, where none can.
    ClientAuthentication,
    #[cfg(feature = "tokens")]
    InvalidGrant,
    #[cfg(feature = "tokens")]
    UnsupportedGrantType,
    #[cfg(feature = "tokens")]
    UnauthorizedClient,
    #[cfg(feature = "tokens")]
    InvalidToken,
    #[cfg(feature = "tokens")]
    InsufficientScope,
    #[cfg(feature = "tokens")]
    InvalidDpopProof,
    #[cfg(feature = "tokens")]
    UseDpopNonce,
}

impl Code {
    #[cfg(test)]
    pub(super) const ALL: &'static [Self] = &[
        Self::InvalidRequest,
        Self::UnsupportedResponseType,
        Self::RequestNotSupported,
        Self::RequestUriNotSupported,
        Self::InvalidRequestUri,
        Self::InvalidScope,
        Self::InvalidClient,
        Self::UnsupportedMethod,
        Self::InvalidSession,
        Self::SessionExpired,
        Self::InvalidCredentials,
        Self::InvalidOtp,
        Self::LoginRequired,
        Self::InteractionRequired,
        Self::UnmetAuthenticationRequirements,
        Self::AccessDenied,
        Self::OriginNotAllowed,
        Self::NotFound,
        Self::MethodNotAllowedHere,
        Self::NoPendingChallenge,
        Self::MethodNotAllowed,
        Self::NoStepRemaining,
        Self::StepsRemaining,
        Self::SessionFailed,
        Self::TooLarge,
        Self::UnsupportedMediaType,
        Self::SlowDown,
        Self::TooManyAttempts,
        Self::RateLimitExceeded,
        Self::TemporarilyUnavailable,
        Self::ClientAuthentication,
        #[cfg(feature = "tokens")]
        Self::InvalidGrant,
        #[cfg(feature = "tokens")]
        Self::UnsupportedGrantType,
        #[cfg(feature = "tokens")]
        Self::UnauthorizedClient,
        #[cfg(feature = "tokens")]
        Self::InvalidToken,
        #[cfg(feature = "tokens")]
        Self::InsufficientScope,
        #[cfg(feature = "tokens")]
        Self::InvalidDpopProof,
        #[cfg(feature = "tokens")]
        Self::UseDpopNonce,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::UnsupportedResponseType => "unsupported_response_type",
            Self::RequestNotSupported => "request_not_supported",
            Self::RequestUriNotSupported => "request_uri_not_supported",
            Self::InvalidRequestUri => "invalid_request_uri",
            Self::InvalidScope => "invalid_scope",
            Self::InvalidClient | Self::ClientAuthentication => "invalid_client",
            Self::UnsupportedMethod => "unsupported_method",
            Self::InvalidSession => "invalid_session",
            Self::SessionExpired => "session_expired",
            Self::InvalidCredentials => "invalid_credentials",
            Self::InvalidOtp => "invalid_otp",
            Self::LoginRequired => "login_required",
            Self::InteractionRequired => "interaction_required",
            Self::UnmetAuthenticationRequirements => "unmet_authentication_requirements",
            Self::AccessDenied => "access_denied",
            Self::OriginNotAllowed => "origin_not_allowed",
            Self::NotFound => "not_found",
            Self::MethodNotAllowedHere | Self::MethodNotAllowed => "method_not_allowed",
            Self::NoPendingChallenge => "no_pending_challenge",
            Self::NoStepRemaining => "no_step_remaining",
            Self::StepsRemaining => "steps_remaining",
            Self::SessionFailed => "session_failed",
            Self::TooLarge => "content_too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::SlowDown => "slow_down",
            Self::TooManyAttempts => "too_many_attempts",
            Self::RateLimitExceeded => "rate_limit_exceeded",
            Self::TemporarilyUnavailable => "temporarily_unavailable",
            #[cfg(feature = "tokens")]
            Self::InvalidGrant => "invalid_grant",
            #[cfg(feature = "tokens")]
            Self::UnsupportedGrantType => "unsupported_grant_type",
            #[cfg(feature = "tokens")]
            Self::UnauthorizedClient => "unauthorized_client",
            #[cfg(feature = "tokens")]
            Self::InvalidToken => "invalid_token",
            #[cfg(feature = "tokens")]
            Self::InsufficientScope => "insufficient_scope",
            #[cfg(feature = "tokens")]
            Self::InvalidDpopProof => "invalid_dpop_proof",
            #[cfg(feature = "tokens")]
            Self::UseDpopNonce => "use_dpop_nonce",
        }
    }

    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::InvalidRequest
            | Self::UnsupportedResponseType
            | Self::RequestNotSupported
            | Self::RequestUriNotSupported
            | Self::InvalidRequestUri
            | Self::InvalidScope
            | Self::InvalidClient
            | Self::UnsupportedMethod => StatusCode::BAD_REQUEST,
            Self::InvalidSession
            | Self::SessionExpired
            | Self::InvalidCredentials
            | Self::InvalidOtp
            | Self::LoginRequired
            | Self::InteractionRequired
            | Self::ClientAuthentication => StatusCode::UNAUTHORIZED,
            Self::UnmetAuthenticationRequirements | Self::AccessDenied | Self::OriginNotAllowed => {
                StatusCode::FORBIDDEN
            }
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowedHere => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoPendingChallenge
            | Self::MethodNotAllowed
            | Self::NoStepRemaining
            | Self::StepsRemaining
            | Self::SessionFailed => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::SlowDown | Self::TooManyAttempts | Self::RateLimitExceeded => StatusCode::TOO_MANY_REQUESTS,
            Self::TemporarilyUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            #[cfg(feature = "tokens")]
            Self::InvalidGrant
            | Self::UnsupportedGrantType
            | Self::UnauthorizedClient
            | Self::InvalidDpopProof
            | Self::UseDpopNonce => StatusCode::BAD_REQUEST,
            #[cfg(feature = "tokens")]
            Self::InvalidToken => StatusCode::UNAUTHORIZED,
            #[cfg(feature = "tokens")]
            Self::InsufficientScope => StatusCode::FORBIDDEN,
        }
    }
}

/// Why a call was not done. Its text is ours: nothing of the request and nothing of a store is in it.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) code: Code,
    pub(super) detail: &'static str,
    /// The login, where the caller has proved that it is theirs.
    view: Option<View>,
    retry_after: Option<Duration>,
    headers: HeaderMap,
    status: StatusCode,
}

impl Problem {
    pub(super) fn new(code: Code, detail: &'static str) -> Self {
        Self { code, detail, view: None, retry_after: None, headers: HeaderMap::new(), status: code.status() }
    }

    pub(super) fn invalid(detail: &'static str) -> Self {
        Self::new(Code::InvalidRequest, detail)
    }

    /// A login that no method could finish does not begin.
    pub(super) fn unmet() -> Self {
        Self::new(Code::AccessDenied, "no method that is enabled here meets the policy")
    }

    pub(super) fn unavailable() -> Self {
        Self::new(Code::TemporarilyUnavailable, "this can't be done right now").retry_in(Duration::from_secs(1))
    }

    /// Shows how the login stands.
    pub(super) fn of(mut self, view: View) -> Self {
        self.view = Some(view);
        self
    }

    pub(super) fn retry_in(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// What the table of the login refused.
    pub(super) fn denied(denied: Denied) -> Self {
        match denied {
            Denied::Expired => Self::new(Code::SessionExpired, "the login has ended; start again"),
            Denied::SessionFailed => Self::new(Code::SessionFailed, "too many failures; start again"),
            Denied::NoStepRemaining => Self::new(Code::NoStepRemaining, "all steps are done"),
            Denied::StepsRemaining | Denied::NotCompleted => Self::new(Code::StepsRemaining, "there are steps to do"),
            Denied::MethodNotAllowed => Self::new(Code::MethodNotAllowed, "this method is not asked for now"),
            Denied::NoPendingChallenge => Self::new(Code::NoPendingChallenge, "no code is waited for"),
            Denied::LastTries => {
                Self::new(Code::SlowDown, "other tries are under way").retry_in(Duration::from_secs(1))
            }
            Denied::SendsSpent(wait) => {
                Self::new(Code::TooManyAttempts, "no more codes are sent in this login").retry_in(wait)
            }
            Denied::Wrong(Method::Password) => Self::new(Code::InvalidCredentials, "the credentials are wrong"),
            Denied::Wrong(_) => Self::new(Code::InvalidOtp, "the code is wrong or too old"),
        }
    }

    /// The answer, in the shape that the caller prefers.
    pub(super) fn into_response(self, request: &HeaderMap, realm: &HeaderValue) -> Response<Body> {
        let status = self.status;
        let retry_after = self.retry_after.map(|wait| ceil_seconds(wait).max(1));
        let as_problem = accept::favourite(request).is_some_and(|it| it.eq_ignore_ascii_case(PROBLEM_JSON));
        let mut login = self.view.map(Counters::from);
        // in a problem document `status` is that of HTTP
        let login_status = login.as_mut().filter(|_| as_problem).and_then(|login| login.status.take());
        let document = Document {
            r#type: as_problem.then_some("about:blank"),
            title: status.canonical_reason().filter(|_| as_problem),
            status_code: as_problem.then(|| status.as_u16()),
            detail: as_problem.then_some(self.detail),
            error: self.code.as_str(),
            error_description: self.detail,
            login,
            login_status,
            retry_after,
        };
        let content_type = if as_problem { PROBLEM_JSON } else { answer::JSON };
        let mut response = answer::json(status, &document);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.extend(self.headers);
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, number(seconds));
        }
        if status == StatusCode::UNAUTHORIZED && !headers.contains_key(header::WWW_AUTHENTICATE) {
            headers.insert(header::WWW_AUTHENTICATE, realm.clone());
        }
        response
    }

    /// With another status than that of its code.
    #[cfg(feature = "tokens")]
    pub(super) fn at(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// With a header of its own.
    pub(super) fn header(mut self, name: http::HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }
}

const PROBLEM_JSON: &str = "application/problem+json";

#[derive(Serialize)]
struct Document {
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'static str>,
    #[serde(rename = "status", skip_serializing_if = "Option::is_none")]
    status_code: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
    error: &'static str,
    error_description: &'static str,
    #[serde(flatten)]
    login: Option<Counters>,
    #[serde(skip_serializing_if = "Option::is_none")]
    login_status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

impl From<Wrong> for Problem {
    fn from(wrong: Wrong) -> Self {
        Self::new(wrong.code, wrong.detail)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        crate::util::trace::warning!("a login can't go on: {error}");
        Self::unavailable()
    }
}

/// The budget of the tenant, or the share of an address, is spent.
impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        let code = match rejection.kind() {
            RejectionKind::RateLimited | RejectionKind::QuotaImpossible => Code::RateLimitExceeded,
            _ => Code::AccessDenied,
        };
        let problem = Self {
            headers: rejection.headers().clone(),
            ..Self::new(code, rejection.fixed_detail().unwrap_or("access denied"))
        };
        match rejection.retry_after() {
            Some(wait) => problem.retry_in(wait),
            None => problem,
        }
    }
}
