//! [`Problem`]: the error response of a call.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::{
    auth::http::answer::{self, LoginProgress},
    client::ResourceError,
    http::{accept, body::Body, number::number},
    login::{LoginError, LoginView},
    policy::Method,
    reject::{Rejection, RejectionKind},
    store::StoreError,
    util::{builder::setters, clock::ceil_seconds},
};

/// Writes the enum of the errors, their texts and their statuses from one table.
macro_rules! error_codes {
    ($($(#[$doc:meta])* $code:ident: $text:literal, $status:ident;)*) => {
        /// The errors that a caller can get.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Code {
            $($(#[$doc])* $code,)*
        }

        impl Code {
            #[cfg(test)]
            pub(crate) const ALL: &'static [Self] = &[$(Self::$code,)*];

            pub(crate) const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => $text,)*
                }
            }

            pub(crate) const fn status(self) -> StatusCode {
                match self {
                    $(Self::$code => StatusCode::$status,)*
                }
            }
        }
    };
}

error_codes! {
    InvalidRequest: "invalid_request", BAD_REQUEST;
    UnsupportedResponseType: "unsupported_response_type", BAD_REQUEST;
    RequestNotSupported: "request_not_supported", BAD_REQUEST;
    RequestUriNotSupported: "request_uri_not_supported", BAD_REQUEST;
    InvalidRequestUri: "invalid_request_uri", BAD_REQUEST;
    InvalidScope: "invalid_scope", BAD_REQUEST;
    InvalidTarget: "invalid_target", BAD_REQUEST;
    InvalidClient: "invalid_client", BAD_REQUEST;
    UnsupportedMethod: "unsupported_method", BAD_REQUEST;
    PasswordTooShort: "password_too_short", BAD_REQUEST;
    PasswordTooLong: "password_too_long", BAD_REQUEST;
    PasswordCommon: "password_common", BAD_REQUEST;
    PasswordOwnName: "password_own_name", BAD_REQUEST;
    PasswordBreached: "password_breached", BAD_REQUEST;
    InvalidLink: "invalid_link", BAD_REQUEST;
    InvalidSession: "invalid_session", UNAUTHORIZED;
    SessionExpired: "session_expired", UNAUTHORIZED;
    InvalidCredentials: "invalid_credentials", UNAUTHORIZED;
    InvalidOtp: "invalid_otp", UNAUTHORIZED;
    InvalidAssertion: "invalid_assertion", UNAUTHORIZED;
    SsoFailed: "sso_failed", UNAUTHORIZED;
    LoginRequired: "login_required", UNAUTHORIZED;
    InteractionRequired: "interaction_required", UNAUTHORIZED;
    ConsentRequired: "consent_required", UNAUTHORIZED;
    UnmetAuthenticationRequirements: "unmet_authentication_requirements", FORBIDDEN;
    AccessDenied: "access_denied", FORBIDDEN;
    OriginNotAllowed: "origin_not_allowed", FORBIDDEN;
    FreshLoginRequired: "fresh_login_required", FORBIDDEN;
    SecondFactorRequired: "second_factor_required", FORBIDDEN;
    NotFound: "not_found", NOT_FOUND;
    MethodNotAllowedHere: "method_not_allowed", METHOD_NOT_ALLOWED;
    NoPendingChallenge: "no_pending_challenge", CONFLICT;
    MethodNotAllowed: "method_not_allowed", CONFLICT;
    NoStepRemaining: "no_step_remaining", CONFLICT;
    StepsRemaining: "steps_remaining", CONFLICT;
    StepRequired: "step_required", CONFLICT;
    SessionFailed: "session_failed", CONFLICT;
    LastSignInMethod: "last_sign_in_method", CONFLICT;
    ContactTaken: "contact_taken", CONFLICT;
    AccountOutdated: "account_outdated", CONFLICT;
    AccountExists: "account_exists", CONFLICT;
    TooLarge: "content_too_large", PAYLOAD_TOO_LARGE;
    UnsupportedMediaType: "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE;
    SlowDown: "slow_down", TOO_MANY_REQUESTS;
    TooManyAttempts: "too_many_attempts", TOO_MANY_REQUESTS;
    RateLimitExceeded: "rate_limit_exceeded", TOO_MANY_REQUESTS;
    ProviderUnavailable: "provider_unavailable", BAD_GATEWAY;
    TemporarilyUnavailable: "temporarily_unavailable", SERVICE_UNAVAILABLE;
    /// The credentials of a client are wrong, missing or not allowed here.
    ClientAuthentication: "invalid_client", UNAUTHORIZED;
    InvalidGrant: "invalid_grant", BAD_REQUEST;
    UnsupportedGrantType: "unsupported_grant_type", BAD_REQUEST;
    UnauthorizedClient: "unauthorized_client", BAD_REQUEST;
    InvalidToken: "invalid_token", UNAUTHORIZED;
    InsufficientScope: "insufficient_scope", FORBIDDEN;
    InvalidDpopProof: "invalid_dpop_proof", BAD_REQUEST;
    UseDpopNonce: "use_dpop_nonce", BAD_REQUEST;
}

/// The answer of an endpoint.
pub(crate) type EndpointResult = Result<Response<Body>, Problem>;

/// Why a call was refused or failed. Contains only fixed texts, and nothing from the request or the store.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    pub(crate) detail: &'static str,
    /// The state of the login, if the caller has proved that it is theirs.
    view: Option<LoginView>,
    retry_after: Option<Duration>,
    /// Where the user can sign in again.
    login_url: Option<String>,
    headers: HeaderMap,
    status: StatusCode,
    /// Whether a browser shows it to a person, because it is sent nowhere else.
    is_shown: bool,
    /// The failure of the store or of a hook that caused it. Only the log shows it.
    pub(crate) source: Option<StoreError>,
}

impl Problem {
    pub(crate) fn new(code: Code, detail: &'static str) -> Self {
        Self {
            code,
            detail,
            view: None,
            retry_after: None,
            login_url: None,
            headers: HeaderMap::new(),
            status: code.status(),
            is_shown: false,
            source: None,
        }
    }

    pub(crate) fn invalid(detail: &'static str) -> Self {
        Self::new(Code::InvalidRequest, detail)
    }

    /// Refuses a login that no enabled method could complete.
    pub(crate) fn unmet() -> Self {
        Self::new(Code::AccessDenied, "no enabled sign-in method meets the policy")
    }

    /// The answer to credentials of a client that are wrong or missing.
    pub(crate) fn unauthenticated_client(detail: &'static str) -> Self {
        const BASIC: HeaderValue = HeaderValue::from_static(r#"Basic realm="token""#);
        Self::new(Code::ClientAuthentication, detail).header(header::WWW_AUTHENTICATE, BASIC)
    }

    pub(crate) fn unavailable() -> Self {
        Self::new(Code::TemporarilyUnavailable, "temporarily unavailable, please try again")
            .retry_in(Duration::from_secs(1))
    }

    setters! {
        /// Adds the state of the login to the response.
        pub(crate) fn with_login_view(view: LoginView) { view: Some(view) }

        /// Adds the URL of a sign-in that helps.
        pub(crate) fn login_url(url: String) { login_url: Some(url) }

        /// Shows the problem as a page to a browser. Programs get JSON.
        pub(crate) fn into_error_page() { is_shown: true }

        pub(crate) fn retry_in(wait: Duration) { retry_after: Some(wait) }

        /// Overrides the status that belongs to the code.
        pub(crate) fn override_status(status: StatusCode) { status: status }
    }

    /// Returns the URL of a sign-in that helps.
    pub(crate) fn sign_in_url(&self) -> Option<&str> {
        self.login_url.as_deref()
    }

    /// Returns whether the response to a request with these headers is a page.
    pub(crate) fn is_for_people(&self, request: &HeaderMap) -> bool {
        self.is_shown && accept::prefers_html(request)
    }

    /// Returns the seconds of `Retry-After`.
    pub(crate) fn seconds_to_wait(&self) -> Option<u64> {
        self.retry_after.map(|wait| ceil_seconds(wait).max(1))
    }

    /// Creates the answer to a call that the login refused.
    pub(crate) fn denied(error: LoginError) -> Self {
        match error {
            LoginError::Expired => Self::new(Code::SessionExpired, "the login has ended; start again"),
            LoginError::TooManyFailures => Self::new(Code::SessionFailed, "too many failures; start again"),
            LoginError::NoStepRemaining => Self::new(Code::NoStepRemaining, "all steps are already completed"),
            LoginError::StepsRemaining | LoginError::NotCompleted => {
                Self::new(Code::StepsRemaining, "some steps are not completed yet")
            }
            LoginError::MethodNotAllowed => {
                Self::new(Code::MethodNotAllowed, "this method cannot be used for the next step")
            }
            LoginError::NoPendingChallenge => Self::new(Code::NoPendingChallenge, "there is no pending code"),
            LoginError::AttemptsUnderWay => {
                Self::new(Code::SlowDown, "another attempt is still in progress").retry_in(Duration::from_secs(1))
            }
            LoginError::NoSendsLeft(wait) => {
                Self::new(Code::TooManyAttempts, "this login cannot send more codes").retry_in(wait)
            }
            LoginError::WrongSecret(Method::Password) => {
                Self::new(Code::InvalidCredentials, "the credentials are wrong")
            }
            LoginError::WrongSecret(Method::Passkey) => Self::new(Code::InvalidAssertion, "the passkey was refused"),
            LoginError::WrongSecret(Method::Sso) => Self::new(Code::SsoFailed, "the login at the provider was refused"),
            LoginError::WrongSecret(_) => Self::new(Code::InvalidOtp, "the code is wrong or expired"),
        }
    }

    /// Logs the failure of the store or of a hook that caused the problem. Returns whether there is one.
    pub(crate) fn log(&self) -> bool {
        if let Some(error) = &self.source {
            crate::util::trace::failure!("a request failed", error);
        }
        self.source.is_some()
    }

    /// Returns the answer, in the format that the caller prefers.
    pub(crate) fn into_response(self, request: &HeaderMap, realm: &HeaderValue) -> Response<Body> {
        let status = self.status;
        let retry_after = self.seconds_to_wait();
        let as_problem = accept::favourite(request).is_some_and(|it| it.eq_ignore_ascii_case(PROBLEM_JSON));
        let mut login = self.view.map(LoginProgress::from);
        // in a problem document, `status` is the HTTP status
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
            login_url: self.login_url,
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

    /// Adds a header to the response.
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
    login: Option<LoginProgress>,
    #[serde(skip_serializing_if = "Option::is_none")]
    login_status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    login_url: Option<String>,
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self { source: Some(error), ..Self::unavailable() }
    }
}

impl From<ResourceError> for Problem {
    fn from(ResourceError(detail): ResourceError) -> Self {
        Self::new(Code::InvalidTarget, detail)
    }
}

/// Reports that the budget of the tenant or the quota of an address is used up.
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
