//! PKCE for requests that carry the challenge in their body.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header, request::Parts};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::{challenge::CodeChallenge, error::PkceError, scope::Scope};
use crate::{
    event::{EventKind, EventLog},
    http::{
        connection::announce_close,
        head::Head,
        replay::{ReadError, Reader, ReplayedBody},
    },
    reject::{Rejection, RejectionKind, Respond, StatusOnly},
    util::error::ConfigError,
};

const DEFAULT_LIMIT: usize = 64 * 1024;

/// Requires an S256 code challenge in a form or JSON body.
///
/// The parameters are `code_challenge` and `code_challenge_method`, as in the query. The response
/// is
///
/// - 400 (`invalid_request`) if they are missing, use another method or are repeated, or if the
///   body is malformed;
/// - 413 if the body is too long;
/// - 415 for other content types, and for encoded content.
///
/// CORS preflights pass. Rejected requests never reach the service. Admitted requests have a
/// [`CodeChallenge`] in their extensions, and their body and trailers are
/// passed on byte for byte.
///
/// The inner service receives requests with the body type [`ReplayedBody`]. The layer waits for slow
/// bodies indefinitely, so put a timeout outside.
#[derive(Clone)]
#[must_use]
pub struct PkceBodyLayer<R = StatusOnly> {
    scope: Scope,
    limit: usize,
    log: Option<EventLog>,
    respond: R,
}

impl PkceBodyLayer {
    /// Creates a layer that protects one path with all methods. See
    /// [`PkceLayer::new`](super::PkceLayer::new).
    ///
    /// # Errors
    ///
    /// Returns an error unless `path` is a plain path.
    pub fn new(path: &str) -> Result<Self, ConfigError> {
        Ok(Self { scope: Scope::path(path)?, ..Self::everywhere() })
    }

    /// Creates a layer that protects all paths, for services that are mounted on a route of their
    /// own.
    pub fn everywhere() -> Self {
        Self { scope: Scope::EVERYWHERE, limit: DEFAULT_LIMIT, log: None, respond: StatusOnly }
    }
}

impl<R> PkceBodyLayer<R> {
    /// Protects only requests for which `condition` returns `true`, for example those with a
    /// certain method. A second call replaces the first condition.
    pub fn protect_if(self, condition: impl Fn(Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self { scope: self.scope.narrowed(condition), ..self }
    }

    /// Sets the maximum length of a body in bytes. Each request may use that much memory. Defaults
    /// to 64 KiB.
    ///
    /// # Errors
    ///
    /// Returns an error if `bytes` is zero.
    pub fn body_limit(self, bytes: usize) -> Result<Self, ConfigError> {
        ConfigError::refuse_if(bytes == 0, "pkce body limit", bytes, "must be at least 1")?;
        Ok(Self { limit: bytes, ..self })
    }

    /// Counts rejections in this log, as events of the kind
    /// [`PkceRefused`](crate::event::EventKind::PkceRefused).
    pub fn events(self, log: EventLog) -> Self {
        Self { log: Some(log), ..self }
    }

    /// Sets how rejections are answered; see [`OAuthJson`](crate::reject::OAuthJson).
    pub fn respond_with<R2>(self, respond: R2) -> PkceBodyLayer<R2> {
        PkceBodyLayer { scope: self.scope, limit: self.limit, log: self.log, respond }
    }
}

impl<S, R: Clone> Layer<S> for PkceBodyLayer<R> {
    type Service = PkceBody<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        PkceBody {
            inner,
            scope: Arc::new(self.scope.clone()),
            limit: self.limit,
            log: self.log.clone(),
            respond: self.respond.clone(),
        }
    }
}

crate::util::fmt::debug_fields!(PkceBodyLayer<R> { scope, limit });

/// A service behind a [`PkceBodyLayer`].
#[derive(Clone)]
pub struct PkceBody<S, R> {
    inner: S,
    scope: Arc<Scope>,
    limit: usize,
    log: Option<EventLog>,
    respond: R,
}

impl<S, R, B, ResBody> Service<Request<B>> for PkceBody<S, R>
where
    S: Service<Request<ReplayedBody<B>>, Response = Response<ResBody>> + Clone,
    B: Body<Data = Bytes>,
    R: Respond<ResBody>,
{
    type Response = Response<ResBody>;
    type Error = S::Error;
    type Future = PkceBodyFuture<S, R, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let head = Head::of_request(&request);
        if !self.scope.covers(head) {
            return PkceBodyFuture::calling(self.inner.call(request.map(ReplayedBody::untouched)));
        }
        let Some(format) = Format::from_content_type(head.headers()) else {
            let rejection =
                Rejection::new(RejectionKind::UnsupportedMediaType, "the body must be form-encoded or JSON");
            // release what the ready service has reserved, such as a permit
            self.inner = self.inner.clone();
            tally(self.log.as_ref());
            return PkceBodyFuture::rejected(rejection.into_response(head, &self.respond));
        };
        // Call the service that was polled ready. Its clone may not be ready.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        PkceBodyFuture::reading(request, (format, self.limit), self.log.clone(), ready, self.respond.clone())
    }
}

crate::util::fmt::debug_fields!(PkceBody<S: fmt::Debug, R> { inner, scope });

pin_project! {
    /// The response of a [`PkceBody`](super::PkceBody) service.
    pub struct PkceBodyFuture<S, R, B>
    where
        S: Service<Request<ReplayedBody<B>>>,
    {
        #[pin]
        state: State<S, S::Future, S::Response, R, B>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, F, T, R, B> {
        /// Reads the body, and keeps the ready service and the request head.
        Reading { #[pin] body: B, reader: Reader, parked: Option<Parked<S, R>> },
        /// Waits for the inner service.
        Calling { #[pin] future: F },
        /// The body was rejected.
        Rejected { response: Option<T> },
    }
}

struct Parked<S, R> {
    service: S,
    head: Parts,
    format: Format,
    limit: usize,
    log: Option<EventLog>,
    respond: R,
}

impl<S, R, B> PkceBodyFuture<S, R, B>
where
    S: Service<Request<ReplayedBody<B>>>,
{
    fn calling(future: S::Future) -> Self {
        Self { state: State::Calling { future } }
    }

    fn rejected(response: S::Response) -> Self {
        Self { state: State::Rejected { response: Some(response) } }
    }

    fn reading(
        request: Request<B>,
        (format, limit): (Format, usize),
        log: Option<EventLog>,
        service: S,
        respond: R,
    ) -> Self {
        let (head, body) = request.into_parts();
        let parked = Some(Parked { service, head, format, limit, log, respond });
        Self { state: State::Reading { body, reader: Reader::default(), parked } }
    }
}

impl<S, R, B, ResBody> Future for PkceBodyFuture<S, R, B>
where
    S: Service<Request<ReplayedBody<B>>, Response = Response<ResBody>>,
    B: Body<Data = Bytes>,
    R: Respond<ResBody>,
{
    type Output = Result<Response<ResBody>, S::Error>;

    #[expect(clippy::expect_used, reason = "polling a completed future is a bug of the caller")]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const POLLED_AGAIN: &str = "polled after completion";
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Reading { body, reader, parked } => {
                    let limit = parked.as_ref().expect(POLLED_AGAIN).limit;
                    let whole = ready!(reader.poll(body, limit, cx));
                    let Parked { mut service, mut head, format, log, respond, .. } = parked.take().expect(POLLED_AGAIN);
                    let checked = match whole {
                        Ok(whole) => format.challenge(&whole.data).map(|it| (it, whole)).map_err(Rejection::from),
                        Err(error) => Err(read_error_rejection(&error)),
                    };
                    match checked {
                        Ok((challenge, whole)) => {
                            head.extensions.insert(challenge);
                            State::Calling {
                                future: service.call(Request::from_parts(head, ReplayedBody::from_whole_body(whole))),
                            }
                        }
                        Err(rejection) => {
                            tally(log.as_ref());
                            let is_too_large = rejection.kind() == RejectionKind::TooLarge;
                            let mut response = rejection.into_response(Head::from(&head), &respond);
                            if is_too_large {
                                announce_close(head.version, response.headers_mut());
                            }
                            State::Rejected { response: Some(response) }
                        }
                    }
                }
                StateProjection::Calling { future } => return future.poll(cx),
                StateProjection::Rejected { response } => {
                    return Poll::Ready(Ok(response.take().expect(POLLED_AGAIN)));
                }
            };
            state.set(next);
        }
    }
}

fn tally(log: Option<&EventLog>) {
    if let Some(log) = log {
        log.tally_now(EventKind::PkceRefused);
    }
}

fn read_error_rejection(error: &ReadError) -> Rejection {
    match error {
        ReadError::TooLarge => Rejection::new(RejectionKind::TooLarge, "the body is too long"),
        ReadError::Broken => Rejection::new(RejectionKind::InvalidRequest, "the body is incomplete"),
    }
}

impl<S, R, B> fmt::Debug for PkceBodyFuture<S, R, B>
where
    S: Service<Request<ReplayedBody<B>>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Reading { .. } => "reading",
            State::Calling { .. } => "calling",
            State::Rejected { .. } => "rejected",
        };
        f.debug_tuple("PkceBodyFuture").field(&state).finish()
    }
}

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Form,
    Json,
}

impl Format {
    /// Reads the format from the headers. Returns `None` if another reader could interpret the body
    /// differently, because of a content encoding, another charset or a second content type.
    fn from_content_type(headers: &HeaderMap) -> Option<Self> {
        let mut types = headers.get_all(header::CONTENT_TYPE).into_iter();
        let (Some(media_type), None) = (types.next(), types.next()) else {
            return None;
        };
        let is_coded = |coding: &http::HeaderValue| !coding.as_bytes().eq_ignore_ascii_case(b"identity");
        if headers.get_all(header::CONTENT_ENCODING).into_iter().any(is_coded) {
            return None;
        }
        let mut pieces = media_type.to_str().ok()?.split(';').map(str::trim);
        let essence = pieces.next()?;
        let is_charset = |name: &str| name.trim().eq_ignore_ascii_case("charset");
        let is_utf8 = |parameter: &str| match parameter.split_once('=') {
            Some((name, charset)) if is_charset(name) => charset.trim().trim_matches('"').eq_ignore_ascii_case("utf-8"),
            // `charset*` and `charset*0` are other spellings (RFC 2231), which few readers support
            Some((name, _)) => !name.split_once('*').is_some_and(|(name, _)| is_charset(name)),
            None => true,
        };
        if !pieces.all(is_utf8) {
            return None;
        }
        if essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            Some(Self::Form)
        } else if essence.eq_ignore_ascii_case("application/json") {
            Some(Self::Json)
        } else {
            None
        }
    }

    /// Parses the challenge in a body of this format.
    fn challenge(self, body: &Bytes) -> Result<CodeChallenge, PkceError> {
        match self {
            Self::Form => CodeChallenge::from_form(body),
            Self::Json => CodeChallenge::from_json(body),
        }
    }
}
