use std::{borrow::Cow, fmt::Write, mem, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use super::grpc::GRPC_STATUS;
use crate::{
    http::{head::Head, number::number},
    tenant::{LimitKey, Standing},
    util::{builder::setters, clock::ceil_seconds, fmt::named_enum},
};

const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_RETRY_PUSHBACK_MS: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

named_enum! {
    /// Why a request was rejected.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum RejectionKind {
        /// The caller is sent elsewhere, such as to a sign-in page: 303.
        Redirect = "redirect",
        /// The request is malformed, or names no usable tenant: 400.
        InvalidRequest = "invalid_request",
        /// The caller has not authenticated: 401. HTTP requires a `WWW-Authenticate` header
        /// on every 401; set it with [`header`](Rejection::header).
        Unauthenticated = "unauthenticated",
        /// The caller is known and has no access: 403.
        Forbidden = "forbidden",
        /// The tenant has too little of its budget left at the moment: 429.
        RateLimited = "rate_limited",
        /// The request costs more than the quota allows, so no retry helps: 429.
        QuotaImpossible = "quota_impossible",
        /// The decision could not be made: 503.
        Unavailable = "unavailable",
        /// The server is not set up correctly: 500.
        Internal = "internal",
        /// The layer answers the request itself, with a document: 200. Your own [`Respond`](super::Respond) never sees it.
        Answered = "answered",
    }

    /// Returns a stable name, as logs and problem documents show it.
    pub fn as_str;
}

impl RejectionKind {
    /// Returns the HTTP status.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Redirect => StatusCode::SEE_OTHER,
            Self::InvalidRequest => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::RateLimited | Self::QuotaImpossible => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Answered => StatusCode::OK,
        }
    }

    /// Returns the gRPC status code.
    const fn grpc_code(self) -> &'static str {
        match self {
            Self::Answered => "0",
            Self::InvalidRequest => "3",
            Self::Forbidden => "7",
            Self::RateLimited | Self::QuotaImpossible => "8",
            Self::Internal => "13",
            Self::Unavailable => "14",
            // gRPC clients follow no redirects
            Self::Unauthenticated | Self::Redirect => "16",
        }
    }
}

/// A rejected request on its way to becoming a response.
///
/// The engine sets its headers, and the gRPC status for gRPC clients, after a [`Respond`](super::Respond)
/// has made the response. A custom responder can't forget them.
#[derive(Clone)]
pub struct Rejection(Box<Reason>);

/// Boxed, because a result that holds either a pass or a rejection is as large as the larger one.
#[derive(Clone)]
struct Reason {
    kind: RejectionKind,
    detail: Cow<'static, str>,
    violated: Option<&'static str>,
    retry_after: Option<Duration>,
    has_pushback: bool,
    grpc: bool,
    limit_key: Option<LimitKey>,
    standing: Option<Standing>,
    headers: HeaderMap,
}

impl Rejection {
    /// Creates a rejection. The detail is shown to the caller.
    pub fn new(kind: RejectionKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Reason {
            kind,
            detail: detail.into(),
            violated: None,
            retry_after: None,
            has_pushback: true,
            grpc: false,
            limit_key: None,
            standing: None,
            headers: HeaderMap::new(),
        }))
    }

    /// Creates a rejection that sends the caller to `location`.
    pub fn redirect(location: HeaderValue) -> Self {
        Self::new(RejectionKind::Redirect, "continue at another address").header(header::LOCATION, location)
    }

    setters! {
        /// Names the policy that was violated.
        pub fn violated(policy: &'static str) { 0.violated: Some(policy) }

        /// Sets the key of the limit that rejected the request.
        pub fn with_limit_key(key: impl Into<LimitKey>) { 0.limit_key: Some(key.into()) }
    }

    /// Sets when a retry may succeed. The header has whole seconds, rounded up and never 0,
    /// so that a retry after it does not come early.
    pub fn retry_in(mut self, wait: Duration) -> Self {
        self.0.headers.insert(header::RETRY_AFTER, number(ceil_seconds(wait).max(1)));
        self.0.retry_after = Some(wait);
        self
    }

    /// Sets the standing of the tenant, and the headers that show it. If `is_silent`, gRPC clients get no header either.
    pub(crate) fn with_standing(mut self, standing: Standing, headers: HeaderMap, is_silent: bool) -> Self {
        self.0.retry_after = (standing.reset() != Standing::NEVER).then(|| standing.time_until_reset());
        self.0.has_pushback = !is_silent;
        self.0.violated = Some(standing.policy());
        self.0.standing = Some(standing);
        self.0.headers = headers;
        self
    }

    /// Adds a header to the response. Earlier ones of the same name stay, so a rejection can set several cookies.
    ///
    /// The headers of a rejection replace those that a [`Respond`](super::Respond) has set, except cookies, which are added.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.append(name, value);
        self
    }

    /// Returns why the request was rejected.
    pub fn kind(&self) -> RejectionKind {
        self.0.kind
    }

    /// Returns the HTTP status. gRPC clients get a 200 with a gRPC status instead.
    pub fn status(&self) -> StatusCode {
        self.0.kind.status()
    }

    /// Returns the reason as a text for the caller.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Returns the detail if it is a fixed text.
    pub(crate) fn fixed_detail(&self) -> Option<&'static str> {
        match self.0.detail {
            Cow::Borrowed(detail) => Some(detail),
            Cow::Owned(_) => None,
        }
    }

    /// Returns the key of the limit that rejected the request, such as a tenant or an address, if a limit did.
    pub fn limit_key(&self) -> Option<&LimitKey> {
        self.0.limit_key.as_ref()
    }

    /// Returns the standing of the tenant, if a quota refused the request.
    pub fn standing(&self) -> Option<&Standing> {
        self.0.standing.as_ref()
    }

    /// Returns the policy that was violated, if there is one.
    pub fn violated_policy(&self) -> Option<&'static str> {
        self.0.violated
    }

    /// Returns when a retry may succeed, if a retry helps.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Returns the headers that the response will have.
    pub fn headers(&self) -> &HeaderMap {
        &self.0.headers
    }

    /// Returns whether the caller speaks gRPC. Respond with an empty body then; the engine
    /// turns the response into a gRPC status.
    pub fn is_grpc(&self) -> bool {
        self.0.grpc
    }

    /// Makes a response, and adds the headers and the gRPC status.
    pub(super) fn finish<B>(mut self, head: Head<'_>, respond: impl FnOnce(&Self) -> Response<B>) -> Response<B> {
        self.0.grpc = head.is_grpc();
        let mut response = respond(&self);
        let headers = mem::take(&mut self.0.headers);
        if response.headers().is_empty() {
            *response.headers_mut() = headers;
        } else {
            for name in headers.keys().filter(|name| **name != header::SET_COOKIE) {
                response.headers_mut().remove(name);
            }
            for (name, value) in &headers {
                response.headers_mut().append(name, value.clone());
            }
        }
        if self.0.grpc {
            self.write_grpc(&mut response);
        }
        response
    }

    /// Turns a response into a trailers-only gRPC response: the status is among its headers.
    fn write_grpc<B>(&self, response: &mut Response<B>) {
        *response.status_mut() = StatusCode::OK;
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_STATUS, HeaderValue::from_static(self.kind().grpc_code()));
        if let Ok(message) = HeaderValue::try_from(percent_encoded(self.detail())) {
            headers.insert(GRPC_MESSAGE, message);
        }
        // a negative number tells the client not to retry
        let pushback = match self.retry_after() {
            _ if !self.0.has_pushback => None,
            Some(wait) => Some(number(u64::try_from(wait.as_nanos().div_ceil(1_000_000).max(1)).unwrap_or(u64::MAX))),
            None if self.kind() == RejectionKind::QuotaImpossible => Some(HeaderValue::from_static("-1")),
            None => None,
        };
        if let Some(pushback) = pushback {
            headers.insert(GRPC_RETRY_PUSHBACK_MS, pushback);
        }
    }
}

/// Encodes a text for `grpc-message`: all but visible ASCII and spaces is escaped, and so is the percent sign.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | ..b' ' | 0x7f.. => _ = write!(encoded, "%{byte:02X}"),
            visible => encoded.push(char::from(visible)),
        }
    }
    encoded
}

crate::util::fmt::debug_fields!(Rejection, |own| kind: own.0.kind, detail: own.0.detail);
