//! The server's own name is `localhost`: its cookies, redirect URIs and passkeys belong to a host name.

use axum::{
    http::{HeaderMap, Method, Request, Uri, header::HOST, uri::Authority},
    response::{IntoResponse, Redirect, Response},
};

use crate::demo::{CALLBACK, NATIVE_CALLBACK};

/// Returns a redirect to the server's own origin for a page that was opened at an address, such as `127.0.0.1`. Calls of
/// programs are answered at both.
pub(crate) fn redirect<B>(origin: &str, request: &Request<B>) -> Option<Response> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_read || !is_page(request) || !is_address(request.uri(), request.headers()) {
        return None;
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    Some(Redirect::temporary(&format!("{origin}{path}")).into_response())
}

/// Browsers mark navigations. A demo page is one for programs too.
fn is_page<B>(request: &Request<B>) -> bool {
    let path = request.uri().path();
    let is_of_demo =
        matches!(path, "/" | "/demo" | "/demo/" | CALLBACK | NATIVE_CALLBACK | "/account" | "/events" | "/events/");
    let is_navigation = request.headers().get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
    is_of_demo || path.starts_with("/demo/login/") || is_navigation
}

fn is_address(uri: &Uri, headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).or(uri.authority().map(Authority::as_str));
    let host = host.and_then(|host| host.parse::<Authority>().ok());
    host.is_some_and(|host| matches!(host.host(), "127.0.0.1" | "[::1]"))
}
