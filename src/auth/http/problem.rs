//! [`Problem`]: why a call was not done, and how that is told.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::{
    auth::http::answer::{self, Counters},
    http::{accept, body::Body},
    login::{LoginError, LoginView},
    policy::Method,
    reject::{Rejection, RejectionKind},
    store::StoreError,
    util::{clock::ceil_seconds, number::number},
};

/// The errors that a caller can meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Code {
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
    pub(crate) const ALL: &'static [Self] = &[
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

    pub(crate) const fn as_str(self) -> &'static str {
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

    pub(crate) const fn status(self) -> StatusCode {
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
pub(crate) struct Problem {
    pub(crate) code: Code,
    pub(crate) detail: &'static str,
    /// The login, where the caller has proved that it is theirs.
    view: Option<LoginView>,
    retry_after: Option<Duration>,
    headers: HeaderMap,
    status: StatusCode,
    /// The failure of the store behind it, for the log.
    pub(crate) source: Option<StoreError>,
}

impl Problem {
    pub(crate) fn new(code: Code, detail: &'static str) -> Self {
        Self {
            code,
            detail,
            view: None,
            retry_after: None,
            headers: HeaderMap::new(),
            status: code.status(),
            source: None,
        }
    }

    pub(crate) fn invalid(detail: &'static str) -> Self {
        Self::new(Code::InvalidRequest, detail)
    }

    /// A login that no method could finish does not begin.
    pub(crate) fn unmet() -> Self {
        Self::new(Code::AccessDenied, "no method that is enabled here meets the policy")
    }

    pub(crate) fn unavailable() -> Self {
        Self::new(Code::TemporarilyUnavailable, "this can't be done right now").retry_in(Duration::from_secs(1))
    }

    /// Shows how the login stands.
    pub(crate) fn of(mut self, view: LoginView) -> Self {
        self.view = Some(view);
        self
    }

    pub(crate) fn retry_in(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Creates the answer to a call that the login refused.
    pub(crate) fn denied(error: LoginError) -> Self {
        match error {
            LoginError::Expired => Self::new(Code::SessionExpired, "the login has ended; start again"),
            LoginError::TooManyFailures => Self::new(Code::SessionFailed, "too many failures; start again"),
            LoginError::NoStepRemaining => Self::new(Code::NoStepRemaining, "all steps are done"),
            LoginError::StepsRemaining | LoginError::NotCompleted => Self::new(Code::StepsRemaining, "steps remain"),
            LoginError::MethodNotAllowed => {
                Self::new(Code::MethodNotAllowed, "this method cannot be used for the next step")
            }
            LoginError::NoPendingChallenge => Self::new(Code::NoPendingChallenge, "no code is pending"),
            LoginError::AttemptsUnderWay => {
                Self::new(Code::SlowDown, "other attempts are under way").retry_in(Duration::from_secs(1))
            }
            LoginError::NoSendsLeft(wait) => {
                Self::new(Code::TooManyAttempts, "this login cannot send more codes").retry_in(wait)
            }
            LoginError::WrongSecret(Method::Password) => {
                Self::new(Code::InvalidCredentials, "the credentials are wrong")
            }
            LoginError::WrongSecret(_) => Self::new(Code::InvalidOtp, "the code is wrong or expired"),
        }
    }

    /// Writes what is behind the problem to the log. Returns whether a store has failed.
    pub(crate) fn log(&self) -> bool {
        if let Some(error) = &self.source {
            crate::util::trace::warning!("a request failed: {error}");
        }
        self.source.is_some()
    }

    /// Returns the answer, in the format that the caller prefers.
    pub(crate) fn into_response(self, request: &HeaderMap, realm: &HeaderValue) -> Response<Body> {
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

    pub(crate) fn is_method_not_allowed(&self) -> bool {
        self.code == Code::MethodNotAllowed
    }

    /// With another status than that of its code.
    #[cfg(feature = "tokens")]
    pub(crate) fn at(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// With a header of its own.
    pub(crate) fn header(mut self, name: http::HeaderName, value: HeaderValue) -> Self {
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

/// What is wrong with an authorization request. It is shown, or sent to the redirect URI once that is known to be good.
#[derive(Clone, Debug)]
pub(crate) struct RequestError {
    pub(crate) code: Code,
    pub(crate) detail: &'static str,
    /// The failure of the store behind it, for the log.
    pub(crate) source: Option<StoreError>,
}

impl RequestError {
    pub(crate) const fn new(code: Code, detail: &'static str) -> Self {
        Self { code, detail, source: None }
    }

    pub(crate) const fn invalid(detail: &'static str) -> Self {
        Self::new(Code::InvalidRequest, detail)
    }
}

impl From<StoreError> for RequestError {
    fn from(error: StoreError) -> Self {
        Self { source: Some(error), ..Self::from(Problem::unavailable()) }
    }
}

impl From<Problem> for RequestError {
    fn from(problem: Problem) -> Self {
        Self { code: problem.code, detail: problem.detail, source: problem.source }
    }
}

impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Self {
        Self { source: error.source, ..Self::new(error.code, error.detail) }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self { source: Some(error), ..Self::unavailable() }
    }
}

/// The budget of the tenant, or the share of an address, is spent.
impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        let code = match rejection.kind() {
            RejectionKind::Unavailable => return Self::unavailable(),
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
