//! A browser in the same process, which calls the service without HTTP.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use http::{Method, Request, Response, header};
use http_body_util::BodyExt;
use tokio::runtime::{self, Runtime};
use tollgate::{AuthService, PeerAddr, body::Body};
use tower_service::Service;

use super::{Ask, Browser};

/// Creates a runtime with one thread.
pub fn runtime() -> Runtime {
    runtime::Builder::new_current_thread().enable_time().build().expect("the runtime starts")
}

/// Calls the service. This is a separate function so that a profiler can find it.
#[inline(never)]
pub fn served(runtime: &Runtime, service: &AuthService, request: Request<Body>) -> Response<Body> {
    let mut service = service.clone();
    let Ok(response) = runtime.block_on(service.call(request));
    response
}

pub struct Local {
    pub browser: Browser,
    address: IpAddr,
}

/// A response, and how long the service took.
pub struct Answer {
    pub status: u16,
    pub text: String,
    pub location: String,
    pub took: Duration,
}

impl Local {
    pub fn new(address: IpAddr) -> Self {
        Self { browser: Browser::default(), address }
    }

    pub fn request(&self, ask: Ask) -> Request<Body> {
        let (is_post, content_type) = (ask.body.is_some(), ask.content_type);
        let mut request = Request::new(ask.body.map_or_else(Body::empty, Body::from));
        if is_post {
            *request.method_mut() = Method::POST;
            request.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
        }
        *request.uri_mut() = ask.target.parse().expect("a valid target");
        let cookies = self.browser.cookies();
        if !cookies.is_empty() {
            request.headers_mut().insert(header::COOKIE, cookies.parse().expect("valid cookies"));
        }
        request.extensions_mut().insert(PeerAddr((self.address, 1234).into()));
        request
    }

    /// Sends a request and stores the cookies of the response.
    pub fn send(&mut self, runtime: &Runtime, service: &AuthService, ask: Ask) -> Answer {
        let (request, mut service) = (self.request(ask), service.clone());
        let (response, took) = runtime.block_on(async {
            let began = Instant::now();
            let Ok(response) = service.call(std::hint::black_box(request)).await;
            (response, began.elapsed())
        });
        self.keep(runtime, response, took)
    }

    pub fn keep(&mut self, runtime: &Runtime, response: Response<Body>, took: Duration) -> Answer {
        let (parts, body) = response.into_parts();
        for set in parts.headers.get_all(header::SET_COOKIE) {
            self.browser.keep(set.to_str().expect("it is text"));
        }
        let Ok(body) = runtime.block_on(body.collect());
        let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        let location = parts.headers.get(header::LOCATION).and_then(|it| it.to_str().ok()).unwrap_or_default();
        Answer { status: parts.status.as_u16(), text, location: location.to_owned(), took }
    }

    /// Begins a login.
    pub fn start(&mut self, runtime: &Runtime, service: &AuthService, identifier: &str) {
        let answer = self.send(runtime, service, self.browser.start(identifier));
        self.browser.began(&answer.text);
    }
}
