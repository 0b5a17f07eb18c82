use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    body::Tracked,
    usage::{CallGuard, OpenedUsage},
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
        let call = OpenedUsage::take_from(request.extensions_mut());
        TrackedFuture { future: self.inner.call(request), call, is_connect }
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
        let mut response = match response {
            Ok(response) => response,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let status = response.status();
        let mut is_upgrade = status == StatusCode::SWITCHING_PROTOCOLS || *own.is_connect && status.is_success();
        if is_upgrade && call.as_ref().is_some_and(CallGuard::refuses_upgrade) {
            // a server then upgrades nothing, and the handler's wait for the connection fails
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response.headers_mut().clear();
            is_upgrade = false;
        }
        if let Some(call) = &call {
            call.apply_charge_rule(response.status(), response.headers());
        }
        if is_upgrade {
            call.take().into_iter().for_each(CallGuard::leave_to_handler);
        }
        Poll::Ready(Ok(response.map(|body| Tracked::new(body, call))))
    }
}

/// A responder for rejected requests, which have no call to track. It answers as the one that it wraps.
#[derive(Clone, Copy, Debug)]
pub struct WithoutCall<R>(pub(super) R);

impl<B, R: Respond<B>> Respond<Tracked<B>> for WithoutCall<R> {
    fn respond(&self, rejection: &Rejection, head: Head<'_>) -> Response<Tracked<B>> {
        self.0.respond(rejection, head).map(Tracked::without_call)
    }
}
