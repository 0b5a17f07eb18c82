//! The answers of the event service, each with its headers.

use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};

use crate::http::body::Body;

const JSON: &str = "application/json";
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn json(body: impl Into<Body>) -> Response<Body> {
    answer(StatusCode::OK, JSON, body)
}

/// Says what is wrong by name; nothing of the request is in it.
pub(super) fn error(status: StatusCode, name: &str) -> Response<Body> {
    let mut response = answer(status, JSON, format!("{{\"error\":\"{name}\"}}"));
    if status == StatusCode::UNAUTHORIZED {
        // RFC 9110 wants a challenge on every 401; a key in a header has no registered name
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("ApiKey"));
    }
    response
}

pub(super) fn too_many() -> Response<Body> {
    let mut response = error(StatusCode::SERVICE_UNAVAILABLE, "unavailable");
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

/// The answer to a method: `None` for those that are served.
pub(super) fn to_method(method: &Method) -> Option<Response<Body>> {
    let mut response = match *method {
        Method::GET | Method::HEAD => return None,
        Method::OPTIONS => {
            let mut response = answer(StatusCode::NO_CONTENT, JSON, Body::empty());
            response.headers_mut().remove(header::CONTENT_TYPE);
            response
        }
        _ => error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
    };
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD, OPTIONS"));
    Some(response)
}

/// A part of the live page, which has nothing in it that is not public.
pub(super) fn asset(content_type: &'static str, text: &'static str) -> Response<Body> {
    let mut response = answer(StatusCode::OK, content_type, text);
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Sends a browser to the page under `base`, with the slash.
pub(super) fn moved(base: &str) -> Response<Body> {
    let mut response = error(StatusCode::PERMANENT_REDIRECT, "moved");
    if let Ok(location) = HeaderValue::try_from(format!("{base}/")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

pub(super) fn stream(body: Body) -> Response<Body> {
    let mut response = answer(StatusCode::OK, "text/event-stream", body);
    // nginx and others would hold events back
    response.headers_mut().insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
