//! What a request without a session is answered.

use http::{HeaderName, HeaderValue, Method, header};

use crate::{
    http::{accept, head::Head},
    reject::{Rejection, RejectionKind},
    util::{error::ConfigError, form},
};

const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Targets that are longer are not returned to.
const LONGEST_TARGET: usize = 2048;

/// The answer to a request without a session, where one is required.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    challenge: HeaderValue,
    login: Option<Login>,
    parameter: Option<String>,
}

#[derive(Clone, Debug)]
struct Login {
    url: String,
    location: HeaderValue,
}

impl Refusal {
    pub(super) fn new() -> Self {
        Self { challenge: HeaderValue::from_static(r#"Session realm="app""#), login: None, parameter: None }
    }

    pub(super) fn set_realm(&mut self, realm: &str) -> Result<(), ConfigError> {
        let allowed = |byte: u8| matches!(byte, 0x20..=0x7e) && !matches!(byte, b'"' | b'\\');
        let error = || ConfigError::new("session realm", realm, "must be printable ASCII without quotes");
        if !realm.bytes().all(allowed) {
            return Err(error());
        }
        self.challenge = HeaderValue::from_str(&format!("Session realm=\"{realm}\"")).map_err(|_| error())?;
        Ok(())
    }

    pub(super) fn set_login(&mut self, url: &str) -> Result<(), ConfigError> {
        let error = |reason| ConfigError::new("login url", url, reason);
        if !is_local(url) && !url.starts_with("https://") {
            return Err(error("must be a path of this site, or begin with https://"));
        }
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.contains(['#', '\\']) {
            return Err(error("must be visible ASCII without a fragment"));
        }
        let location = HeaderValue::from_str(url).map_err(|_| error("must be a header value"))?;
        self.login = Some(Login { url: url.to_owned(), location });
        Ok(())
    }

    pub(super) fn set_parameter(&mut self, name: &str) -> Result<(), ConfigError> {
        if name.is_empty() || !name.bytes().all(is_unreserved) {
            return Err(ConfigError::new("return parameter", name, "must be made of letters, digits, and -._~"));
        }
        self.parameter = Some(name.to_owned());
        Ok(())
    }

    pub(super) fn challenge(&self) -> &HeaderValue {
        &self.challenge
    }

    /// A redirect for a person who opens a page, a 401 for a program.
    pub(super) fn answer(&self, head: Head<'_>) -> Rejection {
        let rejection = match &self.login {
            Some(login) if !head.is_grpc() && is_navigation(head) && !login.is_at(head) => {
                Rejection::redirect(self.location(login, head))
            }
            _ => Rejection::new(RejectionKind::Unauthenticated, "sign in first")
                .header(header::WWW_AUTHENTICATE, self.challenge.clone()),
        };
        rejection.header(header::CACHE_CONTROL, NO_STORE)
    }

    fn location(&self, login: &Login, head: Head<'_>) -> HeaderValue {
        let (Some(parameter), Some(target)) = (&self.parameter, target_to_return_to(head)) else {
            return login.location.clone();
        };
        let separator = if login.url.contains('?') { '&' } else { '?' };
        let location = format!("{}{separator}{parameter}={}", login.url, form::encode(target));
        HeaderValue::from_str(&location).unwrap_or_else(|_| login.location.clone())
    }
}

impl Login {
    /// Whether the request is for the login page itself, which then stands
    /// behind the layer: sending it there again would never end.
    fn is_at(&self, head: Head<'_>) -> bool {
        self.url.split('?').next() == Some(head.uri().path())
    }
}

/// What the browser may come back to: a path of this site, got by reading.
fn target_to_return_to(head: Head<'_>) -> Option<&str> {
    let target = head.uri().path_and_query()?.as_str();
    let reads = matches!(*head.method(), Method::GET | Method::HEAD);
    (reads && is_local(target) && target.len() <= LONGEST_TARGET).then_some(target)
}

/// The unreserved characters of RFC 3986.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Whether this is a path, and no browser takes it for another host.
fn is_local(url: &str) -> bool {
    url.starts_with('/') && !matches!(url.as_bytes().get(1), Some(b'/' | b'\\'))
}

/// Whether a person opens a page. The browser says so; an old one prefers HTML.
fn is_navigation(head: Head<'_>) -> bool {
    match head.headers().get(SEC_FETCH_MODE) {
        Some(mode) => mode == "navigate",
        None => accept::prefers_html(head.headers()),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn answer(refusal: &Refusal, request: http::request::Builder) -> (u16, Option<String>) {
        let rejection = refusal.answer(Head::of(&request.body(()).unwrap()));
        let response: http::Response<String> = rejection.into_response(Head::of(&Request::new(())), &crate::StatusOnly);
        let location = response.headers().get("location").map(|value| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), location)
    }

    fn refusal() -> Refusal {
        let mut refusal = Refusal::new();
        refusal.set_login("/login?from=app").unwrap();
        refusal
    }

    #[test]
    fn a_navigation_is_told_by_sec_fetch_mode_and_else_by_accept() {
        let redirected = |headers: &[(&str, &str)]| {
            let request =
                headers.iter().fold(Request::get("/a"), |request, (name, value)| request.header(*name, *value));
            answer(&refusal(), request).0 == 303
        };
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";
        assert!(redirected(&[("accept", browser)]));
        assert!(redirected(&[("accept", "text/html")]));
        assert!(redirected(&[("accept", "application/json;q=0.9, TEXT/HTML;q=0.95")]));
        for program in [
            "*/*",
            "application/json",
            "application/json, text/html",
            "text/html;q=0",
            "text/html;q=0.5,*/*",
            "text/html;q=NaN",
            "text/html;q=x",
            "text/htmlx",
            "",
            ";;,,;q",
        ] {
            assert!(!redirected(&[("accept", program)]), "{program}");
        }
        assert!(!redirected(&[]));
        assert!(redirected(&[("sec-fetch-mode", "navigate"), ("accept", "application/json")]));
        for mode in ["cors", "no-cors", "same-origin", "websocket", ""] {
            assert!(!redirected(&[("sec-fetch-mode", mode), ("accept", browser)]), "{mode}");
        }
        assert!(!redirected(&[("sec-fetch-mode", "navigate"), ("content-type", "application/grpc")]));
    }

    #[test]
    fn the_way_back_is_a_path_of_this_site_and_only_when_asked_for() {
        let mut refusal = refusal();
        let open = |uri: &str| Request::get(uri).header("sec-fetch-mode", "navigate");
        let location = |refusal: &Refusal, request| answer(refusal, request).1.unwrap();
        assert_eq!(location(&refusal, open("/a?b=c")), "/login?from=app");
        refusal.set_parameter("return_to").unwrap();
        assert_eq!(location(&refusal, open("/a?b=c&d=%2F#e")), "/login?from=app&return_to=%2Fa%3Fb%3Dc%26d%3D%252F");
        assert_eq!(location(&refusal, open("https://other.example/a")), "/login?from=app&return_to=%2Fa");
        for bad in ["//evil.example/a", "/\\evil.example", &format!("/{}", "a".repeat(LONGEST_TARGET))] {
            let Ok(uri) = bad.parse::<http::Uri>() else { continue };
            let request = Request::get(uri).header("sec-fetch-mode", "navigate");
            assert_eq!(location(&refusal, request), "/login?from=app", "{bad}");
        }
        // a form that was sent can't be sent again
        assert_eq!(location(&refusal, Request::post("/a").header("sec-fetch-mode", "navigate")), "/login?from=app");
        // the login page is behind the layer, by mistake
        assert_eq!(answer(&refusal, open("/login")), (401, None));
    }

    #[test]
    fn bad_settings_are_said_at_the_setter() {
        let mut refusal = Refusal::new();
        for url in [
            "",
            "login",
            "//evil.example",
            "/\\evil",
            "http://a.example",
            "javascript:x",
            "/a b",
            "/a#b",
            "/é",
            "/\r\nx",
        ] {
            assert!(refusal.set_login(url).is_err(), "{url:?}");
        }
        assert!(refusal.set_login("https://login.example/start").is_ok());
        for name in ["", "a b", "a=b", "a&b", "é"] {
            assert!(refusal.set_parameter(name).is_err(), "{name:?}");
        }
        for realm in ["a\"b", "a\\b", "a\nb", "é"] {
            assert!(refusal.set_realm(realm).is_err(), "{realm:?}");
        }
        refusal.set_realm("my app").unwrap();
        assert_eq!(refusal.challenge(), r#"Session realm="my app""#);
    }
}
