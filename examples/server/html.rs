//! The frame of the demo's pages.

use axum::{
    http::header,
    response::{Html, IntoResponse, Response},
};

const FRAME: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>tollgate demo</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:42rem;margin:3rem auto;padding:0 1rem}code{overflow-wrap:anywhere}</style>
"#;

/// A page that is kept out of caches and frames and runs no scripts.
pub(crate) fn page(body: &str) -> Response {
    let headers = [
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    ];
    (headers, Html(format!("{FRAME}{body}\n"))).into_response()
}

/// Text as it can stand in a page, whoever wrote it.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
