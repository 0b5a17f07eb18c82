use std::{fmt, mem, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use super::Respond;
use crate::{
    http::head::Head,
    util::{clock::ceil_seconds, number::number},
};

const GRPC_RETRY_PUSHBACK_MS: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The caller is sent elsewhere, such as to a login page: 303.
    Redirect,
    /// The request is malformed, or can't be told to belong to a tenant: 400.
    InvalidRequest,
    /// The caller did not prove who it is: 401. Say with
    /// [`header`](Rejection::header) what it has to show, in `WWW-Authenticate`:
    /// HTTP wants that on every 401.
    Unauthenticated,
    /// The caller is known and may not: 403.
    Forbidden,
    /// The body is longer than allowed: 413.
    TooLarge,
    /// The body has a content type or coding that is not read here: 415.
    UnsupportedMediaType,
    /// The budget of the tenant is spent for now: 429.
    RateLimited,
    /// The request costs more than the whole quota, so no retry helps: 429.
    QuotaImpossible,
    /// The decision could not be made: 503.
    Unavailable,
}

impl Kind {
    /// A stable name, as it stands in logs and problem documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Redirect => "redirect",
            Self::InvalidRequest => "invalid_request",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::TooLarge => "too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::RateLimited => "rate_limited",
            Self::QuotaImpossible => "quota_impossible",
            Self::Unavailable => "unavailable",
        }
    }

    /// The HTTP status.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Redirect => StatusCode::SEE_OTHER,
            Self::InvalidRequest => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::RateLimited | Self::QuotaImpossible => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The gRPC status code, as it stands in the `grpc-status` trailer.
    pub(super) const fn grpc_code(self) -> &'static str {
        match self {
            Self::InvalidRequest | Self::UnsupportedMediaType => "3",
            Self::Forbidden => "7",
            Self::TooLarge | Self::RateLimited | Self::QuotaImpossible => "8",
            Self::Unavailable => "14",
            // a gRPC client follows no redirect
            Self::Unauthenticated | Self::Redirect => "16",
        }
    }
}

/// A refusal on its way to becoming a response.
///
/// Its headers are set by the engine after a [`Respond`] has made the response,
/// so that a custom one can't forget them.
#[derive(Clone)]
pub struct Rejection {
    kind: Kind,
    detail: &'static str,
    violated: Option<&'static str>,
    error: Option<&'static str>,
    retry_after: Option<Duration>,
    grpc: bool,
    headers: HeaderMap,
}

impl Rejection {
    /// A refusal of this kind; `detail` is shown to the caller.
    pub fn new(kind: Kind, detail: &'static str) -> Self {
        Self { kind, detail, violated: None, error: None, retry_after: None, grpc: false, headers: HeaderMap::new() }
    }

    /// A refusal that sends the caller to `location`.
    pub fn redirect(location: HeaderValue) -> Self {
        Self::new(Kind::Redirect, "go on elsewhere").header(header::LOCATION, location)
    }

    /// Names the policy that refused.
    pub fn violated(mut self, policy: &'static str) -> Self {
        self.violated = Some(policy);
        self
    }

    /// Names the error as OAuth does, where its kind alone would name another.
    #[cfg(feature = "bearer")]
    pub(crate) fn error(mut self, error: &'static str) -> Self {
        self.error = Some(error);
        self
    }

    /// Says when a retry may succeed, in seconds rounded up and never 0: a retry at the header's value must not come
    /// early.
    pub fn retry_in(mut self, wait: Duration) -> Self {
        self.headers.insert(header::RETRY_AFTER, number(ceil_seconds(wait).max(1)));
        self.retry_after = Some(wait);
        self
    }

    /// As [`retry_in`](Self::retry_in), with headers in which the seconds stand already.
    pub(crate) fn with_headers(mut self, headers: HeaderMap, retry_after: Option<Duration>) -> Self {
        self.headers = headers;
        self.retry_after = retry_after;
        self
    }

    /// Sets a header of the response, in place of one of the same name.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Why.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The HTTP status, were the caller no gRPC client.
    pub fn status(&self) -> StatusCode {
        self.kind.status()
    }

    /// The reason in words, fit for the caller.
    pub fn detail(&self) -> &'static str {
        self.detail
    }

    /// The policy that refused, where one did.
    pub fn violated_policy(&self) -> Option<&'static str> {
        self.violated
    }

    pub(super) fn error_code(&self) -> Option<&'static str> {
        self.error
    }

    /// When a retry may succeed, where one helps.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The headers that the response will have.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Whether the caller speaks gRPC and so wants trailers, not a body.
    pub fn is_grpc(&self) -> bool {
        self.grpc
    }

    /// The finished response to the request with this head.
    pub(crate) fn into_response<B>(mut self, head: Head<'_>, respond: &impl Respond<B>) -> Response<B> {
        self.grpc = head.is_grpc();
        if self.grpc {
            self.write_grpc_pushback();
        }
        let mut response = respond.respond(&self);
        let headers = mem::take(&mut self.headers);
        if response.headers().is_empty() {
            *response.headers_mut() = headers;
        } else {
            // `extend` would append; a rejection's header stands alone
            for (name, value) in &headers {
                response.headers_mut().insert(name, value.clone());
            }
        }
        response
    }

    /// How a gRPC client is told when to retry; a negative number tells it not to.
    fn write_grpc_pushback(&mut self) {
        let pushback = match self.retry_after {
            Some(wait) => number(u64::try_from(wait.as_nanos().div_ceil(1_000_000).max(1)).unwrap_or(u64::MAX)),
            None if self.kind == Kind::QuotaImpossible => HeaderValue::from_static("-1"),
            None => return,
        };
        self.headers.insert(GRPC_RETRY_PUSHBACK_MS, pushback);
    }
}

impl fmt::Debug for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejection").field("kind", &self.kind).field("detail", &self.detail).finish_non_exhaustive()
    }
}
