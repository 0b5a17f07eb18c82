use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    body::Tracked,
    usage::{OpenedUsage, Usage, UsageState},
};
use crate::{
    http::head::Head,
    reject::{Rejection, Respond},
};

/// The service between the gate of a [`TrackingLayer`](super::TrackingLayer) and the inner service. It ends the calls that
/// the gate has opened.
#[derive(Clone, Debug)]
pub struct TrackedCalls<S> {
    inner: S,
}

impl<S> TrackedCalls<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner }
    }

    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for TrackedCalls<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    ResBody: Body,
{
    type Response = Response<Tracked<ResBody>>;
    type Error = S::Error;
    type Future = TrackedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<ReqBody>) -> Self::Future {
        let is_connect = request.method() == Method::CONNECT;
        let extensions = request.extensions_mut();
        let call = extensions.remove::<OpenedUsage>().map(|OpenedUsage { usage, is_visible }| {
            let call = CallGuard::new(&usage);
            if is_visible {
                let outer = extensions.remove::<Usage>();
                extensions.insert(usage.inside(outer));
            }
            call
        });
        TrackedFuture { future: self.inner.call(request), call, is_connect }
    }
}

/// Ends a call when it is dropped.
#[derive(Debug)]
pub(super) struct CallGuard(Option<Arc<UsageState>>);

impl CallGuard {
    fn new(usage: &Usage) -> Self {
        Self(Some(Arc::clone(usage.own())))
    }

    /// Counts what a chunk of the body contains.
    pub(super) fn read_usage(&self, chunk: &[u8]) {
        if let Some(state) = &self.0
            && let Some(read) = state.settings.metering.as_ref().and_then(|metering| metering.read.as_ref())
        {
            read(chunk, &Usage::of_own(state));
        }
    }

    /// Leaves the end of the call to the handles that the handler has kept.
    fn leave_to_handler(mut self) {
        let Some(state) = self.0.take() else { return };
        if Arc::strong_count(&state) == 1 {
            state.settings.warned.call_once(|| {
                crate::util::trace::warning!(
                    "a connection was upgraded and its handler has kept no `Usage`: it no longer counts as open"
                );
            });
        }
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if let Some(state) = &self.0 {
            state.end();
        }
    }
}

pin_project! {
    /// The response of a [`TrackedCalls`]. Dropping it ends the call.
    #[derive(Debug)]
    pub struct TrackedFuture<F> {
        #[pin]
        future: F,
        call: Option<CallGuard>,
        is_connect: bool,
    }
}

impl<F, B, E> Future for TrackedFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<Tracked<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let own = self.project();
        let response = ready!(own.future.poll(cx));
        let mut call = own.call.take();
        let response = match response {
            Ok(response) => response,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let status = response.status();
        if let Some(CallGuard(Some(state))) = &call {
            state.apply_charge_rule(status, response.headers());
        }
        let is_upgrade = status == StatusCode::SWITCHING_PROTOCOLS || *own.is_connect && status.is_success();
        if is_upgrade {
            call.take().into_iter().for_each(CallGuard::leave_to_handler);
        }
        Poll::Ready(Ok(response.map(|body| Tracked::new(body, call))))
    }
}

/// Answers rejected requests, which have no call, as the responder in it does.
#[derive(Clone, Copy, Debug)]
pub struct WithoutCall<R>(pub(super) R);

impl<B, R: Respond<B>> Respond<Tracked<B>> for WithoutCall<R> {
    fn respond(&self, rejection: &Rejection, head: Head<'_>) -> Response<Tracked<B>> {
        self.0.respond(rejection, head).map(Tracked::without_call)
    }
}
