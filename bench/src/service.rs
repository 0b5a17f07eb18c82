//! The trivial service behind every limiter, and functions that call a service.

use std::{
    convert::Infallible,
    future::{Future, Ready, ready},
    pin::pin,
    task::{Context, Poll, Waker},
};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Empty;
use tower_service::Service;

pub type Req = Request<Empty<Bytes>>;
pub type Res = Response<Body>;

/// The header with the name of the tenant.
pub const TENANT: HeaderName = HeaderName::from_static("x-tenant");

/// A service that can be measured.
pub trait Limited: Service<Req, Response = Res, Error = Infallible, Future: Send> + Clone + Send + 'static {}

impl<S> Limited for S where S: Service<Req, Response = Res, Error = Infallible, Future: Send> + Clone + Send + 'static {}

/// The request and the response around a limiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The number of headers in the response of the inner service.
    pub headers: u8,
    /// Whether the request has a value in its extensions when the limiter sees it, as under axum.
    pub has_extension: bool,
}

pub const WORKLOADS: [Workload; 4] = [
    Workload { headers: 0, has_extension: false },
    Workload { headers: 0, has_extension: true },
    Workload { headers: 2, has_extension: false },
    Workload { headers: 2, has_extension: true },
];

impl Workload {
    pub fn name(self) -> &'static str {
        match (self.headers, self.has_extension) {
            (0, false) => "empty answer",
            (0, true) => "empty answer, an extension",
            (_, false) => "two headers",
            (_, true) => "two headers, an extension",
        }
    }

    /// The name in figures.
    pub fn tag(self) -> &'static str {
        match (self.headers, self.has_extension) {
            (0, false) => "empty",
            (0, true) => "empty-extension",
            (_, false) => "headers",
            (_, true) => "headers-extension",
        }
    }

    pub fn inner(self) -> Inner {
        Inner { headers: self.headers }
    }
}

/// The value in the extensions of a request.
#[derive(Clone, Copy, Debug)]
pub struct Extension(pub u64);

/// Responds with an empty 200.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inner {
    /// The number of headers in the response.
    pub headers: u8,
}

impl<B> Service<Request<B>> for Inner {
    type Response = Res;
    type Error = Infallible;
    type Future = Ready<Result<Res, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        let mut response = Response::new(Body::empty());
        let some = [
            (header::CONTENT_TYPE, HeaderValue::from_static("text/plain")),
            (header::CONTENT_LENGTH, HeaderValue::from_static("0")),
        ];
        for (name, value) in some.into_iter().take(usize::from(self.headers)) {
            response.headers_mut().insert(name, value);
        }
        ready(Ok(response))
    }
}

/// Sends one request of a tenant, from its creation to the end of its response. Returns the status.
#[inline]
pub fn call<S: Limited>(service: &mut S, tenant: &[u8; 16]) -> StatusCode {
    let response = respond(service, tenant);
    std::hint::black_box(&response).status()
}

#[inline]
fn request(tenant: &[u8; 16]) -> Req {
    let mut request = Request::new(Empty::new());
    let name = HeaderValue::from_bytes(tenant).unwrap_or(HeaderValue::from_static("-"));
    request.headers_mut().insert(TENANT, name);
    request
}

#[inline]
pub fn respond<S: Limited>(service: &mut S, tenant: &[u8; 16]) -> Res {
    answer(service, request(tenant))
}

/// Does the same as [`call`] with a request that has a value in its extensions.
#[inline]
pub fn call_with_extension<S: Limited>(service: &mut S, tenant: &[u8; 16]) -> StatusCode {
    let mut request = request(tenant);
    request.extensions_mut().insert(Extension(0));
    let response = answer(service, request);
    std::hint::black_box(&response).status()
}

/// Returns the complete response to a request.
#[inline]
pub fn answer<S: Limited>(service: &mut S, request: Req) -> Res {
    let mut context = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut context).is_ready(), "no service here ever waits");
    let Ok(response) = finish(service.call(std::hint::black_box(request)));
    response
}

/// Runs a future that waits only for this thread or for a lock.
#[inline]
pub fn finish<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            // a limiter waits asynchronously if its map is locked
            Poll::Pending => std::thread::yield_now(),
        }
    }
}
