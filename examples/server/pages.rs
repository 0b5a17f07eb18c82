//! An application that sends people to log in, as a client of yours would: it makes a verifier and a `state` for each
//! login, keeps both in a cookie, and checks what comes back.

use std::collections::BTreeMap;

use axum::{
    Json, Router,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tollgate::{
    CodeChallenge, CodeVerifier, Secret,
    cookie::{self, SetCookie},
};

use crate::{
    demo::{CALLBACK, NATIVE_CALLBACK, SCOPES},
    html::{escape, page},
    outbox::Outbox,
};

/// The cookie of a login: one for each, so that two tabs don't collide.
fn cookie_name(state: &str) -> String {
    format!("demo_login_{}", state.get(..8).unwrap_or_default())
}

pub(crate) fn router(origin: &str, outbox: Outbox) -> Router {
    let home = page_of_logins(origin);
    Router::new()
        .route("/demo/", get(async move || page(&home)))
        .route("/demo", get(async || Redirect::to("/demo/")))
        .route("/demo/login/{client}", get(login))
        .route(CALLBACK, get(callback))
        .route(NATIVE_CALLBACK, get(callback))
        .with_state(origin.to_owned())
        .route("/demo/outbox", get(async move || Json::<Value>(outbox.list())))
}

/// Its links name the host, so that the cookies of all steps are of one host.
fn page_of_logins(origin: &str) -> String {
    format!(
        r#"<h1>tollgate demo</h1>
<p>Log in as <strong>ada</strong> (password <code>correct horse battery staple</code>, ada@example.com, +15555550100)
or <strong>grace</strong> (<code>compilers are polite</code>, grace@example.com, +15555550101).
<ul>
<li><a href="{origin}/demo/login/demo-web">Log in</a>: one step, by password or a one-time code
<li><a href="{origin}/demo/login/demo-mfa">Log in with two steps</a>
<li><a href="{origin}/demo/login/demo-native">Log in as a native app does</a>, at a redirect URI without a port
</ul>
<p><a href="{origin}/demo/outbox">One-time codes</a> · <a href="{origin}/account">Account</a> ·
<a href="{origin}/events/">Event log</a>"#
    )
}

/// Sends the browser to log in.
async fn login(State(origin): State<String>, Path(client): Path<String>) -> Response {
    let (verifier, state) = (CodeVerifier::generate(), Secret::generate());
    let (name, kept) = (cookie_name(state.expose()), format!("{}.{}", state.expose(), verifier.expose()));
    // no `Secure`: the demo has no TLS
    let Ok(cookie) = SetCookie::new(&name, &kept).and_then(SetCookie::insecure_plain_http) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let callback = if client == "demo-native" { NATIVE_CALLBACK } else { CALLBACK };
    let query = [
        ("client_id", client.as_str()),
        ("redirect_uri", &format!("{origin}{callback}")),
        ("response_type", "code"),
        ("scope", SCOPES),
        ("state", state.expose()),
        ("code_challenge", CodeChallenge::of(&verifier).as_str()),
        ("code_challenge_method", "S256"),
    ]
    .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
    let mut headers = HeaderMap::new();
    cookie.append_to(&mut headers);
    (headers, Redirect::to(&format!("{origin}/authorize?{}", query.join("&")))).into_response()
}

/// What a login ends with.
async fn callback(headers: HeaderMap, Query(answer): Query<BTreeMap<String, String>>) -> Response {
    let of = |name: &str| answer.get(name).map_or("", String::as_str);
    let name = cookie_name(of("state"));
    let mut kept = cookie::read(&headers, &name).filter_map(|kept| kept.split_once('.'));
    let Some((_, verifier)) = kept.find(|(state, _)| *state == of("state")) else {
        let body = "<h1>Not from here</h1>\n<p>This login was not begun in this browser: its state is another.";
        return (StatusCode::BAD_REQUEST, page(body)).into_response();
    };
    let body = match answer.get("code") {
        Some(code) => format!(
            "<h1>Logged in</h1>\n<p>Authorization code: <code id=\"code\">{}</code>\n<p>Verifier: <code>{}</code>\n\
             <p>Issuer: <code>{}</code>\n<p>There is no token endpoint yet that exchanges the code. The login has also \
             begun a session here: see your <a href=\"/account\">account</a>.",
            escape(code),
            escape(verifier),
            escape(of("iss")),
        ),
        None => format!("<h1>Not logged in</h1>\n<p>{}: {}", escape(of("error")), escape(of("error_description"))),
    };
    let mut response = page(&format!("{body}\n<p><a href=\"/demo/\">Back to the demo</a>"));
    // a state is good for one answer
    if let Ok(removal) = SetCookie::removal(&name).and_then(SetCookie::insecure_plain_http) {
        removal.append_to(response.headers_mut());
    }
    response
}
