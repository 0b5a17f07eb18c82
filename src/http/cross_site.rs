//! Protection from requests that other sites cause.

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use crate::{
    http::{head::Head, origin},
    util::error::ConfigError,
};

pub(crate) const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The origins, in addition to the site's own, whose pages may send unsafe requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrustedOrigins {
    /// As browsers write them: lower case, no default port.
    trusted: Vec<String>,
}

impl TrustedOrigins {
    pub(crate) fn trust(&mut self, origin: &str) -> Result<(), ConfigError> {
        self.trusted.push(origin::normal("trusted origin", origin)?);
        Ok(())
    }

    /// Returns whether the request may act in the session whose cookie it carries. On
    /// `loopback` the site's own pages may come by plain HTTP.
    pub(crate) fn allow(&self, head: Head<'_>, loopback: bool) -> bool {
        if is_safe(head) {
            return true;
        }
        let Ok(origin) = at_most_one(head.headers(), &header::ORIGIN) else { return false };
        if origin.is_some_and(|origin| self.trusted.iter().any(|trusted| trusted == origin)) {
            return true;
        }
        match (at_most_one(head.headers(), &SEC_FETCH_SITE), origin) {
            (Ok(Some(site)), _) => matches!(site, "same-origin" | "none"),
            (Ok(None), Some(origin)) => host(head).is_some_and(|host| is_of(origin, host, loopback)),
            // browsers cannot send this to another site without asking it first
            (Ok(None), None) => head.is_grpc(),
            (Err(Malformed), _) => false,
        }
    }
}

/// Returns whether the request tells which site it comes from.
pub(crate) fn names_its_site(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN) || headers.contains_key(SEC_FETCH_SITE)
}

/// Returns whether the request only reads. The handshake of a `WebSocket` does more, although
/// it is a GET: the connection acts in the session as long as it is open.
fn is_safe(head: Head<'_>) -> bool {
    let upgrades =
        |value: &HeaderValue| value.as_bytes().to_ascii_lowercase().windows(9).any(|part| part == b"websocket");
    matches!(*head.method(), Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
        && !head.headers().get_all(header::UPGRADE).iter().any(upgrades)
}

/// Returns whether pages of `origin` are on `host`. They come by https even if a proxy
/// forwards plain HTTP, because browsers send secure cookies only there.
fn is_of(origin: &str, host: &str, loopback: bool) -> bool {
    let is_host = |own: &str, port| without_port(own, port).eq_ignore_ascii_case(without_port(host, port));
    match origin.split_once("://") {
        Some(("https", own)) => is_host(own, "443"),
        Some(("http", own)) => loopback && is_host(own, "80"),
        _ => false,
    }
}

/// Returns the host of the request.
pub(crate) fn host(head: Head<'_>) -> Option<&str> {
    match head.uri().authority() {
        Some(authority) => Some(authority.as_str()),
        None => at_most_one(head.headers(), &header::HOST).ok()?,
    }
}

/// A header was sent more than once, or is not text.
#[derive(Clone, Copy)]
pub(crate) struct Malformed;

/// Returns the text of a header that may be sent once.
pub(crate) fn at_most_one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Malformed> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(|value| value.to_str().map_err(|_| Malformed)).transpose()?;
    if values.next().is_some() { Err(Malformed) } else { Ok(first) }
}

fn without_port<'a>(host: &'a str, port: &str) -> &'a str {
    host.strip_suffix(port).and_then(|rest| rest.strip_suffix(':')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const OWN: &str = "https://app.example";

    fn allows(origins: &TrustedOrigins, method: &str, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().method(method).uri("/").header("host", "App.example:443");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        origins.allow(Head::of_request(&request.body(()).unwrap()), false)
    }

    #[test]
    fn only_pages_of_the_site_may_send_unsafe_requests() {
        let none = TrustedOrigins::default();
        for (headers, allowed) in [
            (&[][..], false),
            (&[("sec-fetch-site", "same-origin")], true),
            (&[("sec-fetch-site", "none")], true),
            (&[("sec-fetch-site", "same-site")], false),
            (&[("sec-fetch-site", "cross-site")], false),
            (&[("sec-fetch-site", "SAME-ORIGIN")], false),
            (&[("sec-fetch-site", "")], false),
            (&[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")], false),
            // Sec-Fetch-Site is checked first
            (&[("sec-fetch-site", "cross-site"), ("origin", OWN)], false),
            (&[("sec-fetch-site", "same-origin"), ("origin", "https://evil.example")], true),
            (&[("origin", OWN)], true),
            (&[("origin", "https://app.example:443")], true),
            (&[("origin", "https://app.example:8443")], false),
            (&[("origin", "http://app.example")], false),
            (&[("origin", "https://evil.example")], false),
            (&[("origin", "https://app.example.evil.example")], false),
            (&[("origin", "https://evil-app.example")], false),
            (&[("origin", "null")], false),
            (&[("origin", "")], false),
            (&[("origin", "app.example")], false),
            (&[("origin", OWN), ("origin", OWN)], false),
            (&[("content-type", "application/grpc")], true),
            (&[("content-type", "application/grpc"), ("sec-fetch-site", "cross-site")], false),
            (&[("content-type", "application/grpc"), ("origin", "https://evil.example")], false),
            (&[("content-type", "application/grpc-web")], false),
        ] {
            for method in ["POST", "PUT", "PATCH", "DELETE", "CONNECT", "WHATEVER"] {
                assert_eq!(allows(&none, method, headers), allowed, "{method} {headers:?}");
            }
            for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
                assert!(allows(&none, method, headers), "{method} {headers:?}");
            }
            let handshake = [headers, &[("upgrade", "WebSocket")]].concat();
            assert_eq!(allows(&none, "GET", &handshake), allowed, "{handshake:?}");
        }
    }

    #[test]
    fn only_trusted_origins_may_write() {
        let mut origins = TrustedOrigins::default();
        origins.trust("https://Admin.example:443").unwrap();
        origins.trust("http://localhost:3000").unwrap();
        let post = |origin| allows(&origins, "POST", &[("sec-fetch-site", "cross-site"), ("origin", origin)]);
        assert!(post("https://admin.example"));
        assert!(post("http://localhost:3000"));
        for other in ["http://admin.example", "https://admin.example.evil", "http://localhost", "null"] {
            assert!(!post(other), "{other}");
        }
        for bad in [
            "",
            "admin.example",
            "*",
            "https://*.example",
            "https://",
            "https://a/",
            "https://a@b",
            "null",
            "http://admin.example",
            "http://localhost.evil.example",
        ] {
            assert!(TrustedOrigins::default().trust(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn plain_http_is_only_for_loopback() {
        let request = Request::post("/").header("host", "127.0.0.1:8080").header("origin", "http://127.0.0.1:8080");
        let request = request.body(()).unwrap();
        assert!(TrustedOrigins::default().allow(Head::of_request(&request), true));
        assert!(!TrustedOrigins::default().allow(Head::of_request(&request), false));
    }
}
