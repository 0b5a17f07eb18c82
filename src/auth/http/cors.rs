//! Decides which origins may call, and which may read the responses.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::auth::http::route::Path;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Response headers that scripts of another origin may read.
const EXPOSED: &str = "retry-after, www-authenticate, dpop-nonce, x-ratelimit, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset";

/// The origin of a request, according to its headers.
pub(crate) struct Caller<'a> {
    origin: Header<'a>,
    site: Header<'a>,
}

enum Header<'a> {
    Absent,
    Once(&'a HeaderValue),
    Repeated,
}

impl<'a> Header<'a> {
    fn read_single_header(headers: &'a HeaderMap, name: &HeaderName) -> Self {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Self::Absent,
            (Some(value), None) => Self::Once(value),
            (Some(_), Some(_)) => Self::Repeated,
        }
    }
}

impl<'a> Caller<'a> {
    /// Reads `Origin` and `Sec-Fetch-Site`.
    pub(crate) fn from_cors_headers(headers: &'a HeaderMap) -> Self {
        Self {
            origin: Header::read_single_header(headers, &header::ORIGIN),
            site: Header::read_single_header(headers, &SEC_FETCH_SITE),
        }
    }

    /// Returns the origin, if it is sent once.
    pub(crate) fn origin(&self) -> Option<&'a HeaderValue> {
        match self.origin {
            Header::Once(origin) => Some(origin),
            Header::Absent | Header::Repeated => None,
        }
    }

    /// Checks whether this caller may call a script's endpoint: pages of our own origin, pages of an origin that
    /// `is_allowed`, and programs that are not browsers.
    pub(crate) fn may_call(&self, own: &str, is_allowed: bool) -> bool {
        match (&self.origin, &self.site) {
            (Header::Repeated, _) | (_, Header::Repeated) => false,
            (_, Header::Once(site)) if *site == "same-origin" => true,
            (Header::Once(origin), _) => origin.as_bytes() == own.as_bytes() || is_allowed,
            (Header::Absent, Header::Once(site)) => *site == "none",
            (Header::Absent, Header::Absent) => true,
        }
    }

    /// Returns whether one of our own pages sent this request, according to the browser.
    pub(crate) fn is_own_page(&self, own: &str) -> bool {
        match (&self.site, &self.origin) {
            (Header::Once(site), Header::Once(_) | Header::Absent) => *site == "same-origin",
            (Header::Absent, Header::Once(origin)) => origin.as_bytes() == own.as_bytes(),
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
