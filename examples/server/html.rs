//! The layout of the demo's pages, and helpers for them.

use axum::{
    http::header,
    response::{Html, IntoResponse, Response},
};

const FRAME: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>tollgate demo</title>
<link rel="stylesheet" href="/demo/page.css">
</head>
<body>
<nav aria-label="Demo"><strong>tollgate</strong><a href="/demo/">Start</a><a href="/account">Account</a><a
 href="/demo/outbox">Messages</a><a href="/events/">Events</a></nav>
<main>
"#;

/// Creates a page that is kept out of caches and frames, and runs only scripts of this server.
pub(crate) fn page(body: &str) -> Response {
    let policy = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; \
                  base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
    let headers = [
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, Html(format!("{FRAME}{body}\n</main>\n</body>\n</html>\n"))).into_response()
}

pub(crate) async fn script() -> impl IntoResponse {
    asset("text/javascript; charset=utf-8", include_str!("page.js"))
}

pub(crate) async fn limit_script() -> impl IntoResponse {
    asset("text/javascript; charset=utf-8", include_str!("limit.js"))
}

pub(crate) async fn outbox_script() -> impl IntoResponse {
    asset("text/javascript; charset=utf-8", include_str!("outbox.js"))
}

pub(crate) async fn style() -> impl IntoResponse {
    asset("text/css; charset=utf-8", include_str!("page.css"))
}

fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let headers = [(header::CONTENT_TYPE, kind), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (headers, text)
}

/// Escapes text for a page.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
