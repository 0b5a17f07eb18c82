//! Request bodies that nobody has read, and HTTP/1 connections that stay open behind them.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, Version, header};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::{runtime::Handle, time::timeout};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    connection::announce_close,
    head::Head,
    reader::{ReadError, read_body, read_frames},
};
use crate::util::lock::lock;

/// The maximum length of a body that is read.
const MOST_BYTES: usize = 64 * 1024;
/// The time within which a body must arrive.
const BODY_TIME: Duration = Duration::from_secs(30);

/// Reads a whole body within the limits of size and time.
#[allow(dead_code, reason = "only some features read whole bodies")]
pub(crate) async fn read_whole<B: Body<Data = Bytes>>(body: B) -> Result<Bytes, ReadError> {
    in_time(read_body(body, MOST_BYTES)).await.unwrap_or(Err(ReadError::Broken))
}

/// Reads a body to its end within the limits of size and time, and keeps nothing of it. Returns whether it has ended.
pub(crate) async fn discard<B: Body<Data = Bytes>>(body: B) -> bool {
    in_time(read_frames(body, MOST_BYTES, drop)).await.is_some_and(|read| read.is_ok())
}

/// Waits for a body. A slow one would otherwise hold its connection forever.
async fn in_time<T>(body: impl Future<Output = T>) -> Option<T> {
    match Handle::try_current() {
        Ok(_) => timeout(BODY_TIME, body).await.ok(),
        // without a runtime there is no timer, and no socket that could be slow
        Err(_) => Some(body.await),
    }
}

/// Returns whether an unread body is worth reading, so that its connection can carry another request. In HTTP/2 requests
/// do not wait for each other. A client that expects `100 Continue` sends its body only if it is asked to.
pub(crate) fn is_worth_reading(head: Head<'_>) -> bool {
    head.version() < Version::HTTP_2 && !head.headers().contains_key(header::EXPECT)
}

/// Keeps an HTTP/1 connection open if a request body on it was not read.
///
/// A service that answers a request without reading its body leaves that body on the connection: a rate limit that
/// refuses a `POST`, a route that does not exist, a handler that takes no body. If the body has not arrived completely
/// by then, hyper closes the connection without announcing it, and the client's next request on it is lost.
///
/// This layer reads what is left of such a body before it passes the response on: at most 64 KiB, within 30 seconds.
/// Meanwhile, the response waits, and its call counts as open if a quota of concurrent calls limits it.
/// If the body is longer or slower, or the client waits for `100 Continue`, the response announces the end of the connection
/// with `Connection: close`. HTTP/2 does not need any of this, so its requests and responses pass unchanged.
///
/// Put it around everything else.
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use axum::{Router, routing::get};
/// use tollgate::DrainLayer;
///
/// let app: Router = Router::new().route("/", get(async || "hello")).layer(DrainLayer::new());
/// # }
/// ```
///
/// The inner service receives requests with the body type [`Drained`].
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct DrainLayer;

impl DrainLayer {
    /// Creates the layer.
    pub fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for DrainLayer {
    type Service = Drain<S>;

    fn layer(&self, inner: S) -> Drain<S> {
        Drain { inner }
    }
}

/// A service behind a [`DrainLayer`].
#[derive(Clone, Debug)]
pub struct Drain<S> {
    inner: S,
}

impl<S, B, ResBody> Service<Request<B>> for Drain<S>
where
    S: Service<Request<Drained<B>>, Response = Response<ResBody>>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    ResBody: Send + 'static,
{
    type Response = Response<ResBody>;
    type Error = S::Error;
    type Future = DrainFuture<S::Future, B, ResBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (version, worth_reading) = (request.version(), is_worth_reading(Head::of_request(&request)));
        let (parts, body) = request.into_parts();
        // empty from the start, or not on a connection of its own
        let unread = (version < Version::HTTP_2 && !body.is_end_stream()).then(Arc::default);
        let left = unread.clone().map(|unread| LeftBehind { unread, version, worth_reading });
        let body = Drained { body: Some(body), unread };
        DrainFuture { calling: Some(self.inner.call(Request::from_parts(parts, body))), left, draining: None }
    }
}

/// Where a body that was dropped before its end is kept.
type Unread<B> = Arc<Mutex<Option<B>>>;

/// The request body behind a [`DrainLayer`]. It yields what the original body yields.
pub struct Drained<B: Body> {
    /// `None` once it has ended.
    body: Option<B>,
    unread: Option<Unread<B>>,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Drained<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        // trailers end a body
        if !matches!(&frame, Some(Ok(frame)) if frame.is_data()) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B: Body> Drop for Drained<B> {
    fn drop(&mut self) {
        if let (Some(body), Some(unread)) = (self.body.take(), &self.unread) {
            *lock(unread) = Some(body).filter(|body| !body.is_end_stream());
        }
    }
}

crate::util::fmt::debug_fields!(Drained<B: Body>, |own| has_ended: own.body.is_none());

/// What is known of a request whose body may be left unread.
struct LeftBehind<B> {
    unread: Unread<B>,
    version: Version,
    worth_reading: bool,
}

pin_project! {
    /// The response of a [`Drain`](super::Drain) service.
    pub struct DrainFuture<F, B, ResBody> {
        // `None` once it has its response: what it holds, such as a permit, must not wait for the body
        #[pin]
        calling: Option<F>,
        left: Option<LeftBehind<B>>,
        draining: Option<Pin<Box<dyn Future<Output = Response<ResBody>> + Send>>>,
    }
}

impl<F, B, ResBody, E> Future for DrainFuture<F, B, ResBody>
where
    F: Future<Output = Result<Response<ResBody>, E>>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    ResBody: Send + 'static,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let draining = match this.draining {
            Some(draining) => draining,
            None => {
                let Some(calling) = this.calling.as_mut().as_pin_mut() else { return Poll::Pending };
                let response = ready!(calling.poll(cx));
                this.calling.set(None);
                let mut response = response?;
                // a handler that still has the body reads it while it responds
                let Some(LeftBehind { unread, version, worth_reading }) = this.left.take() else {
                    return Poll::Ready(Ok(response));
                };
                let Some(body) = lock(&unread).take() else { return Poll::Ready(Ok(response)) };
                this.draining.insert(Box::pin(async move {
                    if !worth_reading || !discard(body).await {
                        announce_close(version, response.headers_mut());
                    }
                    response
                }))
            }
        };
        draining.as_mut().poll(cx).map(Ok)
    }
}

crate::util::fmt::debug_fields!(DrainFuture<F, B, ResBody>, |own| is_draining: own.draining.is_some());
