//! The answer to a request without a session that is good enough, if one is required.

use http::{HeaderName, HeaderValue, Method, Uri, header};

use crate::{
    http::{accept, cross_site, head::Head, return_to},
    reject::{Rejection, RejectionKind},
    util::{error::ConfigError, form, scan::is_unreserved},
};

const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The answer to a request without a session that is good enough: a redirect to the login page for a person who
/// opens a page, and a refusal for a program.
#[derive(Clone)]
pub(super) struct SignInRequired {
    pub(super) challenge: HeaderValue,
    page: Option<SignInPage>,
    return_parameter: Option<String>,
    /// More parameters for the login page.
    pub(super) query: Vec<(&'static str, String)>,
}

#[derive(Clone, Debug)]
struct SignInPage {
    url: String,
    location: HeaderValue,
}

impl SignInRequired {
    pub(super) fn new() -> Self {
        let challenge = HeaderValue::from_static(r#"Session realm="app""#);
        Self { challenge, page: None, return_parameter: None, query: Vec::new() }
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

    pub(super) fn set_page(&mut self, url: &str) -> Result<(), ConfigError> {
        return_to::check_page_url("login url", url)?;
        let location = HeaderValue::from_str(url);
        let location = location.map_err(|_| ConfigError::new("login url", url, "must be a header value"))?;
        self.page = Some(SignInPage { url: url.to_owned(), location });
        Ok(())
    }

    pub(super) fn set_parameter(&mut self, name: &str) -> Result<(), ConfigError> {
        let is_refused = name.is_empty() || !name.bytes().all(is_unreserved);
        ConfigError::refuse_if(is_refused, "return parameter", name, "must be made of letters, digits, and -._~")?;
        self.return_parameter = Some(name.to_owned());
        Ok(())
    }

    /// Returns where a person who opens a page is sent to sign in. `None` for a program.
    pub(super) fn location(&self, head: Head<'_>) -> Option<HeaderValue> {
        let page = self.page.as_ref().filter(|_| !head.is_grpc() && is_navigation(head))?;
        let uri = requested_uri(head);
        // a redirect to itself would never end
        (!page.is_at(head, uri)).then(|| self.page_with_query(page, head.method(), uri))
    }

    /// Returns a redirect to this location, or the refusal without a location.
    pub(super) fn redirect_or(location: Option<HeaderValue>, refusal: impl FnOnce() -> Rejection) -> Rejection {
        location.map_or_else(refusal, Rejection::redirect).header(header::CACHE_CONTROL, NO_STORE)
    }

    /// Returns the refusal of a program without a session.
    pub(super) fn unauthenticated(&self) -> Rejection {
        Rejection::new(RejectionKind::Unauthenticated, "please sign in first")
            .header(header::WWW_AUTHENTICATE, self.challenge.clone())
    }

    fn page_with_query(&self, page: &SignInPage, method: &Method, uri: &Uri) -> HeaderValue {
        let target = self.return_parameter.as_deref().zip(page_to_return_to(method, uri));
        let query = target.into_iter().chain(self.query.iter().map(|(name, value)| (*name, &**value)));
        let query = form::encode_pairs(query);
        if query.is_empty() {
            return page.location.clone();
        }
        let separator = if page.url.contains('?') { '&' } else { '?' };
        HeaderValue::from_str(&format!("{}{separator}{query}", page.url)).unwrap_or_else(|_| page.location.clone())
    }
}

crate::util::fmt::debug_fields!(SignInRequired { page, return_parameter });

impl SignInPage {
    /// Returns whether the request is for the login page itself, which then is behind the
    /// layer by mistake.
    fn is_at(&self, head: Head<'_>, uri: &Uri) -> bool {
        let page = self.url.split('?').next().unwrap_or_default();
        let Some((_, page)) = page.split_once("://") else { return page == uri.path() };
        let (host, path) = page.split_at(page.find('/').unwrap_or(page.len()));
        let is_here = cross_site::host(head).is_some_and(|own| own.eq_ignore_ascii_case(host));
        is_here && uri.path() == if path.is_empty() { "/" } else { path }
    }
}

/// Returns the URI that the browser requested: the one before routers of axum have stripped a prefix from it.
fn requested_uri(head: Head<'_>) -> &Uri {
    #[cfg(feature = "axum")]
    if let Some(original) = head.extensions().get::<axum::extract::OriginalUri>() {
        return &original.0;
    }
    head.uri()
}

/// Returns the path that the browser can return to, if the request only reads.
fn page_to_return_to<'a>(method: &Method, uri: &'a Uri) -> Option<&'a str> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    return_to::local_path(uri.path_and_query()?.as_str()).filter(|_| reads)
}

/// Returns whether a person opens a page: by the header of current browsers, or by a
/// preference for HTML.
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

    fn status_and_location(sign_in: &SignInRequired, request: http::request::Builder) -> (u16, Option<String>) {
        let location = sign_in.location(Head::of_request(&request.body(()).unwrap()));
        let rejection = SignInRequired::redirect_or(location, || sign_in.unauthenticated());
        let response: http::Response<String> =
            rejection.into_response(Head::of_request(&Request::new(())), &crate::reject::StatusOnly);
        let location = response.headers().get("location").map(|value| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), location)
    }

    fn sign_in() -> SignInRequired {
        let mut sign_in = SignInRequired::new();
        sign_in.set_page("/login?from=app").unwrap();
        sign_in
    }

    #[test]
    fn a_navigation_is_recognized_by_sec_fetch_mode_or_else_by_accept() {
        let redirected = |headers: &[(&str, &str)]| {
            let request =
                headers.iter().fold(Request::get("/a"), |request, (name, value)| request.header(*name, *value));
            status_and_location(&sign_in(), request).0 == 303
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
    fn c122_the_page_to_return_to_is_a_path_of_this_site_and_only_sent_if_enabled() {
        let mut sign_in = sign_in();
        let open = |uri: &str| Request::get(uri).header("sec-fetch-mode", "navigate");
        let location = |sign_in: &SignInRequired, request| status_and_location(sign_in, request).1.unwrap();
        assert_eq!(location(&sign_in, open("/a?b=c")), "/login?from=app");
        sign_in.set_parameter("return_to").unwrap();
        assert_eq!(location(&sign_in, open("/a?b=c&d=%2F#e")), "/login?from=app&return_to=%2Fa%3Fb%3Dc%26d%3D%252F");
        assert_eq!(location(&sign_in, open("https://other.example/a")), "/login?from=app&return_to=%2Fa");
        for bad in
            ["//evil.example/a", "/\\evil.example", &format!("/{}", "a".repeat(2048)), "/%2F/evil.example", "/a%0d%0a"]
        {
            let Ok(uri) = bad.parse::<Uri>() else { continue };
            let request = Request::get(uri).header("sec-fetch-mode", "navigate");
            assert_eq!(location(&sign_in, request), "/login?from=app", "{bad}");
        }
        // a form cannot be sent again
        assert_eq!(location(&sign_in, Request::post("/a").header("sec-fetch-mode", "navigate")), "/login?from=app");
        // the login page is behind the layer by mistake
        assert_eq!(status_and_location(&sign_in, open("/login")), (401, None));
    }

    #[cfg(feature = "axum")]
    #[test]
    fn the_original_uri_is_returned_to_if_a_router_has_stripped_a_prefix() {
        let mut sign_in = sign_in();
        sign_in.set_parameter("return_to").unwrap();
        let open = |uri: &str| Request::get(uri).header("sec-fetch-mode", "navigate");
        let before = |uri| axum::extract::OriginalUri(Uri::from_static(uri));
        let original = |uri: &'static str| open("/stripped").extension(before(uri));
        let location = |request| status_and_location(&sign_in, request).1;
        assert_eq!(location(original("/app/stripped?a")).unwrap(), "/login?from=app&return_to=%2Fapp%2Fstripped%3Fa");
        assert_eq!(location(open("/stripped")).unwrap(), "/login?from=app&return_to=%2Fstripped");
        assert_eq!(location(original("/login")), None);
        assert!(location(open("/login").extension(before("/app/login"))).is_some());
    }

    #[test]
    fn a_sign_in_page_behind_its_own_layer_is_no_redirect_to_itself() {
        for (url, here, elsewhere) in
            [("https://app.example/login?a", "/login?b", "/other"), ("https://app.example", "/", "/login")]
        {
            let mut sign_in = SignInRequired::new();
            sign_in.set_page(url).unwrap();
            let location = |host: &str, path: &str| {
                status_and_location(
                    &sign_in,
                    Request::get(path).header("sec-fetch-mode", "navigate").header("host", host),
                )
                .1
            };
            assert_eq!(location("App.example", here), None, "{url}");
            assert!(location("app.example", elsewhere).is_some(), "{url}");
            assert!(location("other.example", here).is_some(), "{url}");
        }
    }

    #[test]
    fn bad_settings_are_refused_by_the_setter() {
        let mut sign_in = SignInRequired::new();
        for url in [
            "",
            "sign-in",
            "//evil.example",
            "/\\evil",
            "http://a.example",
            "javascript:x",
            "/a b",
            "/a#b",
            "/é",
            "/\r\nx",
        ] {
            assert!(sign_in.set_page(url).is_err(), "{url:?}");
        }
        assert!(sign_in.set_page("https://accounts.example/start").is_ok());
        for name in ["", "a b", "a=b", "a&b", "é"] {
            assert!(sign_in.set_parameter(name).is_err(), "{name:?}");
        }
        for realm in ["a\"b", "a\\b", "a\nb", "é"] {
            assert!(sign_in.set_realm(realm).is_err(), "{realm:?}");
        }
        sign_in.set_realm("my app").unwrap();
        assert_eq!(sign_in.challenge, r#"Session realm="my app""#);
    }
}
