use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::{CodeChallenge, PkceBodyFuture, PkceError, scope::Scope};
use crate::{
    http::{head::Head, replay::Replay},
    reject::{Rejection, RejectionKind, Respond, StatusOnly},
    util::error::ConfigError,
};

const DEFAULT_LIMIT: usize = 64 * 1024;

/// Demands a code challenge by `S256` in a form or JSON body.
///
/// The members are those of the query: `code_challenge` and
/// `code_challenge_method`. A body without them, with another method, with any
/// name twice or that breaks off is answered 400 (`invalid_request`), one that
/// is too long 413, one of another content type or with a content coding 415;
/// none of them reaches the service. What comes through has a
/// [`CodeChallenge`](super::CodeChallenge) in its extensions and its body as it
/// was sent, byte for byte, with its trailers.
///
/// The service behind sees requests with the body [`Replay`]. This layer waits
/// for the body as long as the caller takes: put a timeout outside.
#[must_use]
pub struct PkceBodyLayer<R = StatusOnly> {
    scope: Scope,
    limit: usize,
    respond: R,
}

impl PkceBodyLayer {
    /// A layer that guards one path, whatever the method; as in
    /// [`PkceLayer::new`](super::PkceLayer::new).
    pub fn new(path: &str) -> Result<Self, ConfigError> {
        Ok(Self { scope: Scope::path(path)?, limit: DEFAULT_LIMIT, respond: StatusOnly })
    }

    /// A layer that guards every path, for a service that stands on its own route.
    pub fn everywhere() -> Self {
        Self { scope: Scope::EVERYWHERE, limit: DEFAULT_LIMIT, respond: StatusOnly }
    }
}

impl<R> PkceBodyLayer<R> {
    /// Guards only those requests of the path for which this is true, such as
    /// those of one method. A second call takes the place of the first.
    pub fn protect_if(self, condition: impl Fn(Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self { scope: self.scope.narrowed(condition), ..self }
    }

    /// The most bytes that a body may have, 64 KiB unless set. So much memory
    /// may each request hold.
    pub fn body_limit(self, bytes: usize) -> Result<Self, ConfigError> {
        if bytes == 0 {
            return Err(ConfigError::new("pkce body limit", bytes, "must be at least 1"));
        }
        Ok(Self { limit: bytes, ..self })
    }

    /// Chooses how rejections are answered; see [`OAuthJson`](crate::OAuthJson).
    pub fn respond_with<R2>(self, respond: R2) -> PkceBodyLayer<R2> {
        PkceBodyLayer { scope: self.scope, limit: self.limit, respond }
    }
}

impl<S, R: Clone> Layer<S> for PkceBodyLayer<R> {
    type Service = PkceBody<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        PkceBody { inner, scope: Arc::new(self.scope.clone()), limit: self.limit, respond: self.respond.clone() }
    }
}

impl<R: Clone> Clone for PkceBodyLayer<R> {
    fn clone(&self) -> Self {
        Self { scope: self.scope.clone(), limit: self.limit, respond: self.respond.clone() }
    }
}

impl<R> fmt::Debug for PkceBodyLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PkceBodyLayer").field("scope", &self.scope).field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// A service behind a [`PkceBodyLayer`].
pub struct PkceBody<S, R> {
    inner: S,
    scope: Arc<Scope>,
    limit: usize,
    respond: R,
}

impl<S, R, B, ResBody> Service<Request<B>> for PkceBody<S, R>
where
    S: Service<Request<Replay<B>>, Response = Response<ResBody>> + Clone,
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
        let head = Head::of(&request);
        if !self.scope.covers(head) {
            return PkceBodyFuture::calling(self.inner.call(request.map(Replay::untouched)));
        }
        let Some(format) = Format::of(head.headers()) else {
            let rejection = Rejection::new(RejectionKind::UnsupportedMediaType, "the body must be a form or JSON");
            // what the ready service has reserved, such as a permit, is another's now
            self.inner = self.inner.clone();
            return PkceBodyFuture::rejected(rejection.into_response(head, &self.respond));
        };
        // The service that was polled ready is the one to call; its clone may not be ready.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        PkceBodyFuture::reading(request, format, self.limit, ready, self.respond.clone())
    }
}

impl<S: Clone, R: Clone> Clone for PkceBody<S, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            scope: Arc::clone(&self.scope),
            limit: self.limit,
            respond: self.respond.clone(),
        }
    }
}

impl<S: fmt::Debug, R> fmt::Debug for PkceBody<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PkceBody").field("inner", &self.inner).field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Form,
    Json,
}

impl Format {
    /// What the headers say. `None` where a reader could see another body than
    /// this layer: by a content coding, another charset, or two content types.
    fn of(headers: &HeaderMap) -> Option<Self> {
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
            // `charset*` and `charset*0` say it in other ways (RFC 2231), which few read
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

    /// The challenge in a body that is written so.
    pub(super) fn challenge(self, body: &Bytes) -> Result<CodeChallenge, PkceError> {
        match self {
            Self::Form => CodeChallenge::from_form(body),
            Self::Json => CodeChallenge::from_json(body),
        }
    }
}
