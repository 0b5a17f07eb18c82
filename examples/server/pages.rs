//! An application that sends its users to the login, as your own client would. For each login it creates a verifier, a
//! `state` and a `nonce`, and keeps them in a cookie until `callback.rs` needs them.

use std::collections::BTreeMap;

use axum::{
    Router,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tollgate::{
    Secret,
    cookie::SetCookie,
    pkce::{CodeChallenge, CodeVerifier},
};

use crate::{
    callback::callback,
    demo::{CALLBACK, CLIENTS, NATIVE_CALLBACK, SCOPES},
    home::start_page,
    html::{self, page},
    outbox::Outbox,
};

/// A login in progress, as the application remembers it.
pub(crate) struct Kept<'c> {
    pub(crate) state: &'c str,
    pub(crate) verifier: &'c str,
    pub(crate) nonce: &'c str,
    pub(crate) client: &'c str,
}

impl<'c> Kept<'c> {
    fn write(&self) -> String {
        [self.state, self.verifier, self.nonce, self.client].join(".")
    }

    pub(crate) fn read(cookie: &'c str) -> Option<Self> {
        let mut parts = cookie.splitn(4, '.');
        let mut next = || parts.next();
        Some(Self { state: next()?, verifier: next()?, nonce: next()?, client: next()? })
    }
}

/// The name of the cookie of a login. Each login has its own, so that two tabs don't interfere.
pub(crate) fn cookie_name(state: &str) -> String {
    format!("demo_login_{}", state.get(..8).unwrap_or_default())
}

pub(crate) fn router(origin: &str, outbox: Outbox) -> Router {
    let home = start_page(origin);
    Router::new()
        .route("/demo/", get(async move || page(&home)))
        .route("/demo", get(async || Redirect::to("/demo/")))
        .route("/demo/page.js", get(html::script))
        .route("/demo/limit.js", get(html::limit_script))
        .route("/demo/outbox.js", get(html::outbox_script))
        .route("/demo/page.css", get(html::style))
        .route("/demo/login/{client}", get(login))
        .route(CALLBACK, get(callback))
        .route(NATIVE_CALLBACK, get(callback))
        .with_state(origin.to_owned())
        .route("/demo/outbox", get(async move |headers: HeaderMap| outbox.respond(&headers)))
}

/// Answers a request with a method that a page does not allow.
pub(crate) async fn method_not_allowed() -> Response {
    let body = "<h1>Page not found</h1>\n<p>You cannot open this address in this way. <a href=\"/demo/\">Back to the start</a>";
    (StatusCode::METHOD_NOT_ALLOWED, page(body)).into_response()
}

/// Optional parameters to try, such as `/demo/login/demo-web?prompt=login`.
const OPTIONAL_PARAMETERS: [&str; 4] = ["acr_values", "prompt", "max_age", "login_hint"];

/// Redirects the browser to the login.
async fn login(
    State(origin): State<String>,
    Path(client): Path<String>,
    Query(more): Query<BTreeMap<String, String>>,
) -> Response {
    if !CLIENTS.contains(&client.as_str()) {
        let body =
            "<h1>Unknown client</h1>\n<p>The demo has no client of this name. <a href=\"/demo/\">Back to the start</a>";
        return (StatusCode::NOT_FOUND, page(body)).into_response();
    }
    let (verifier, state, nonce) = (CodeVerifier::generate(), Secret::generate(), Secret::generate());
    let (state, nonce) = (state.expose(), nonce.expose());
    let kept = Kept { state, verifier: verifier.expose(), nonce, client: &client }.write();
    // no `Secure`: the demo has no TLS
    let Ok(cookie) = SetCookie::new(&cookie_name(state), &kept).and_then(SetCookie::insecure_plain_http) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let callback = if client == "demo-native" { NATIVE_CALLBACK } else { CALLBACK };
    let (challenge, callback) = (CodeChallenge::from_verifier(&verifier), format!("{origin}{callback}"));
    let own = [
        ("client_id", client.as_str()),
        ("redirect_uri", &callback),
        ("response_type", "code"),
        ("scope", SCOPES),
        ("state", state),
        ("nonce", nonce),
        ("code_challenge", challenge.as_str()),
        ("code_challenge_method", "S256"),
    ];
    let optional = OPTIONAL_PARAMETERS.iter().filter_map(|name| Some((*name, more.get(*name)?.as_str())));
    let pair = |(name, value): (&str, &str)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
    let query: Vec<_> = own.into_iter().chain(optional).map(pair).collect();
    let mut headers = HeaderMap::new();
    cookie.append_to(&mut headers);
    (headers, Redirect::to(&format!("{origin}/authorize?{}", query.join("&")))).into_response()
}
