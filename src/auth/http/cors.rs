//! Decides which origins may call, and which may read the responses.

use http::{HeaderMap, HeaderValue, header};

use crate::{
    auth::http::route::Path,
    http::cross_site::{Malformed, SEC_FETCH_SITE, at_most_one},
};

/// Response headers that scripts of another origin may read.
const EXPOSED: &str = "retry-after, www-authenticate, dpop-nonce, x-ratelimit, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset";

/// The origin of a request, according to its headers.
pub(crate) struct Caller<'a> {
    origin: Result<Option<&'a str>, Malformed>,
    site: Result<Option<&'a str>, Malformed>,
}

impl<'a> Caller<'a> {
    /// Reads `Origin` and `Sec-Fetch-Site`.
    pub(crate) fn from_cors_headers(headers: &'a HeaderMap) -> Self {
        Self { origin: at_most_one(headers, &header::ORIGIN), site: at_most_one(headers, &SEC_FETCH_SITE) }
    }

    /// Returns the origin, if it is sent once.
    pub(crate) fn origin(&self) -> Option<&'a str> {
        self.origin.ok().flatten()
    }

    /// Checks whether this caller may call a script's endpoint: pages of our own origin, pages of an origin that
    /// `is_allowed`, and programs that are not browsers.
    pub(crate) fn may_call(&self, own: &str, is_allowed: bool) -> bool {
        match (self.origin, self.site) {
            (Err(Malformed), _) | (_, Err(Malformed)) => false,
            (_, Ok(Some("same-origin"))) => true,
            (Ok(Some(origin)), _) => origin == own || is_allowed,
            (Ok(None), Ok(site)) => site.is_none_or(|site| site == "none"),
        }
    }

    /// Returns whether one of our own pages sent this request, according to the browser.
    pub(crate) fn is_own_page(&self, own: &str) -> bool {
        match (self.site, self.origin) {
            (Ok(Some(site)), Ok(_)) => site == "same-origin",
            (Ok(None), Ok(Some(origin))) => origin == own,
            _ => false,
        }
    }
}

/// Adds the methods and headers that a path accepts to the response of a preflight.
pub(crate) fn write_preflight(path: &Path, headers: &mut HeaderMap) {
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_METHODS, path.allow()),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "content-type, accept, authorization, dpop"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Lets pages of this origin read the response.
pub(crate) fn write_cors_headers(reader: Option<HeaderValue>, has_origin: bool, headers: &mut HeaderMap) {
    if headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN) {
        // readable from any origin, without credentials
        return;
    }
    let varies = headers.get_all(header::VARY).iter().any(|value| value == "origin");
    if has_origin && !varies {
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
    if let Some(origin) = reader {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    }
}
