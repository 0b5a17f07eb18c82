//! [`RedirectUri`]: where a client gets its answers.

use std::fmt;

use crate::{
    http::origin,
    util::{error::ConfigError, form, form::Form},
};

/// A registered redirect URI.
///
/// A requested one has to be the same text: no case, slash, escape or query may
/// differ. Where the registered one is `http` on `127.0.0.1` or `[::1]`, the
/// request may name any port, or none, for a native app learns it at run time
/// (RFC 8252 §7.3).
///
/// | registered | |
/// |---|---|
/// | `https://…` | yes |
/// | `http://127.0.0.1…`, `http://[::1]…` | yes, any port |
/// | `http://localhost…` | only as [`insecure_localhost`](Self::insecure_localhost) |
/// | `com.example.app:/…` | yes: a private scheme needs a dot |
/// | with user, fragment, `.` or `..` segments, or a parameter that an answer has | no |
///
/// ```
/// use tollgate::client::RedirectUri;
///
/// let native = RedirectUri::parse("http://127.0.0.1/callback")?;
/// assert!(native.matches("http://127.0.0.1:49152/callback"));
/// assert!(!native.matches("http://127.0.0.1:49152/callback/"));
/// assert!(RedirectUri::parse("http://app.example/callback").is_err());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RedirectUri {
    uri: String,
    loopback: Option<Loopback>,
}

/// A registered `http://127.0.0.1` or `http://[::1]`, whose port is the client's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Loopback {
    /// Where the host ends and where the path and query begin.
    host_end: usize,
    tail: usize,
}

const SETTING: &str = "redirect URI";

/// What an answer adds (RFC 6749 §4.1.2, RFC 9207 §2).
const ANSWERS: [&str; 6] = ["code", "state", "error", "error_description", "error_uri", "iss"];

impl RedirectUri {
    /// The most bytes that one may have.
    pub const MAX_LEN: usize = 2048;

    /// Checks a redirect URI that is to be registered.
    pub fn parse(uri: &str) -> Result<Self, ConfigError> {
        Self::checked(uri, false)
    }

    /// As [`parse`](Self::parse), and `http://localhost` too, with exactly the
    /// port that it has.
    ///
    /// Whoever is asked what `localhost` is can send the answers elsewhere
    /// (RFC 8252 §8.3), so it is for development.
    pub fn insecure_localhost(uri: &str) -> Result<Self, ConfigError> {
        Self::checked(uri, true)
    }

    /// Creates a redirect URI of our own, which a request must name exactly, port included.
    pub(super) fn exactly(uri: String) -> Self {
        Self { uri, loopback: None }
    }

    fn checked(uri: &str, localhost: bool) -> Result<Self, ConfigError> {
        let loopback = check(uri, localhost).map_err(|reason| ConfigError::new(SETTING, uri.escape_debug(), reason))?;
        Ok(Self { uri: uri.to_owned(), loopback })
    }

    /// Whether a request may name this URI.
    pub fn matches(&self, requested: &str) -> bool {
        requested == self.uri || self.loopback.is_some_and(|loopback| self.matches_at_a_port(loopback, requested))
    }

    fn matches_at_a_port(&self, loopback: Loopback, requested: &str) -> bool {
        let (Some(origin), Some(tail)) = (self.uri.get(..loopback.host_end), self.uri.get(loopback.tail..)) else {
            return false;
        };
        let Some(rest) = requested.strip_prefix(origin) else { return false };
        let Some(port) = rest.strip_suffix(tail) else { return false };
        port.is_empty() || port.strip_prefix(':').and_then(origin::port).is_some()
    }

    /// The URI, as it was registered.
    pub fn as_str(&self) -> &str {
        &self.uri
    }
}

/// Why it can't be registered, or that its port is free.
fn check(uri: &str, localhost: bool) -> Result<Option<Loopback>, &'static str> {
    if uri.is_empty() || uri.len() > RedirectUri::MAX_LEN {
        return Err("must have 1 to 2048 bytes");
    }
    if uri.contains('#') {
        return Err("must not have a fragment");
    }
    if !uri.bytes().all(is_uri_byte) {
        return Err("has a character that a URI can't have");
    }
    let (scheme, rest) = uri.split_once(':').ok_or("must be absolute: it has no scheme")?;
    let (hierarchy, query) = rest.split_once('?').map_or((rest, None), |(before, query)| (before, Some(query)));
    let (authority, path) = match hierarchy.strip_prefix("//") {
        Some(rest) => {
            let (authority, path) = rest.find('/').and_then(|at| rest.split_at_checked(at)).unwrap_or((rest, ""));
            (Some(authority), path)
        }
        None => (None, hierarchy),
    };
    if authority.is_some_and(|authority| authority.contains('@')) {
        return Err("must not name a user");
    }
    let found = authority.and_then(origin::host_and_port);
    let loopback = match (scheme, authority, found) {
        ("https", _, Some(_)) => None,
        ("http", Some(authority), Some((host @ ("127.0.0.1" | "[::1]"), _))) => {
            let start = "http://".len();
            Some(Loopback { host_end: start + host.len(), tail: start + authority.len() })
        }
        ("http", _, Some(("localhost", _))) if localhost => None,
        ("http", _, Some(("localhost", _))) => return Err("localhost must be named 127.0.0.1 or [::1]"),
        ("http", _, Some(_)) => return Err("must be https, except on 127.0.0.1 or [::1]"),
        ("https" | "http", ..) => return Err("must name a host in lower case, and a port from 1 to 65535 if any"),
        (scheme, ..) if !is_private_scheme(scheme) => return Err("a private scheme must be lower case with a dot"),
        (_, None, _) if path.starts_with('/') => None,
        (_, Some(_), Some((_, None))) => None,
        _ => return Err("after a private scheme there must be a path, or a plain host without a port"),
    };
    if path.contains(['[', ']']) || query.is_some_and(|query| query.contains(['[', ']'])) {
        return Err("has a character that a URI can't have");
    }
    check_path(path)?;
    check_query(query.unwrap_or_default())?;
    Ok(loopback)
}

fn check_path(path: &str) -> Result<(), &'static str> {
    let decoded = form::decode_path(path).map_err(form::FormError::detail)?;
    if decoded.split(['/', '\\']).any(|segment| matches!(segment, "." | "..")) {
        return Err("must not have the path segments . and ..");
    }
    if decoded.chars().any(char::is_control) {
        return Err("must not have control characters, not even as escapes");
    }
    Ok(())
}

fn check_query(query: &str) -> Result<(), &'static str> {
    // some readers separate at semicolons
    for text in [query, &query.replace(';', "&")] {
        let form = Form::parse(text.as_bytes()).map_err(form::FormError::detail)?;
        if ANSWERS.iter().any(|name| form.values(name).next().is_some()) {
            return Err("must not have a parameter that an answer has");
        }
    }
    Ok(())
}

/// RFC 3986 §2.
fn is_uri_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/?[]@!$&'()*+,;=%".contains(&byte)
}

/// RFC 8252 §7.1: the reverse of a domain name, so that it belongs to someone.
fn is_private_scheme(scheme: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'+' | b'-');
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(allowed);
    scheme.starts_with(|first: char| first.is_ascii_lowercase())
        && scheme.contains('.')
        && scheme.split('.').all(is_label)
}

impl fmt::Display for RedirectUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.uri)
    }
}

/// A redirect URI that a request named and its client has registered: the only
/// place to which an answer goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedRedirect(String);

impl RequestedRedirect {
    pub(super) fn new(registered: &RedirectUri, requested: &str) -> Option<Self> {
        registered.matches(requested).then(|| Self(requested.to_owned()))
    }

    /// The URI, as it was requested.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it belongs to a site, and not to whatever runs on the user's own machine.
    pub(crate) fn is_of_a_site(&self) -> bool {
        self.0.starts_with("https://")
    }

    /// The URI with these parameters behind its own query, which stays as it is.
    ///
    /// What comes out is visible ASCII, so it can be a header.
    pub fn answer(&self, params: &[(&str, &str)]) -> String {
        let mut uri = self.0.clone();
        for (name, value) in params {
            match uri.split_once('?') {
                None => uri.push('?'),
                // a later question mark belongs to a value
                Some((_, query)) if query.is_empty() || query.ends_with('&') => {}
                Some(_) => uri.push('&'),
            }
            uri.push_str(&form::encode(name));
            uri.push('=');
            uri.push_str(&form::encode(value));
        }
        uri
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn matches(registered: &str, requested: &str) -> bool {
        let registered = RedirectUri::parse(registered).unwrap();
        let matches = registered.matches(requested);
        let answer = RequestedRedirect::new(&registered, requested);
        assert_eq!(answer.as_ref().map(RequestedRedirect::as_str), matches.then_some(requested));
        matches
    }

    fn reason(uri: &str) -> String {
        RedirectUri::parse(uri).unwrap_err().reason().to_owned()
    }

    #[test]
    fn c003_a_redirect_uri_that_is_not_the_same_text_is_refused() {
        const REGISTERED: &str = "https://app.example/cb?a=1";
        assert!(matches(REGISTERED, REGISTERED));
        for other in [
            "",
            "/cb?a=1",
            "//app.example/cb?a=1",
            "https:app.example/cb?a=1",
            "HTTPS://app.example/cb?a=1",
            "https://App.example/cb?a=1",
            "https://app.example/CB?a=1",
            "https://app.example/cb/?a=1",
            "https://app.example//cb?a=1",
            "https://app.example/cb",
            "https://app.example/cb?",
            "https://app.example/cb?a=1&",
            "https://app.example/cb?a=1&b=2",
            "https://app.example/cb?b=2&a=1",
            "https://app.example/cb?a=2",
            "https://app.example/cb?a=1#",
            "https://app.example/cb?a=1#fragment",
            "https://app.example/%63b?a=1",
            "https://app.example%2Fcb?a=1",
            "https://app.example/cb%3Fa=1",
            "https://app.example/cb%2F?a=1",
            "https://app.example/x/../cb?a=1",
            "https://app.example/./cb?a=1",
            "https://app.example/cb/..?a=1",
            "https://app.example/%2e%2e/cb?a=1",
            "https://app.example:443/cb?a=1",
            "https://app.example:8443/cb?a=1",
            "https://app.example./cb?a=1",
            "https://user@app.example/cb?a=1",
            "https://user:password@app.example/cb?a=1",
            "https://app.example@evil.example/cb?a=1",
            "https://app.example.evil.example/cb?a=1",
            "https://evil.example/https://app.example/cb?a=1",
            "https://evil.example\\@app.example/cb?a=1",
            "https://app.example\\cb?a=1",
            "http://app.example/cb?a=1",
            " https://app.example/cb?a=1",
            "https://app.example/cb?a=1 ",
            "https://app.example/cb?a=1\n",
            "https://app.example/cb?a=1\r\nx: y",
            "https://app.example/cb?a=1\0",
            "\nhttps://app.example/cb?a=1",
            "x\nhttps://app.example/cb?a=1\ny",
            "javascript:alert(1)//\nhttps://app.example/cb?a=1",
            "https://аpp.example/cb?a=1",
            "https://app.example/cb?a=1,https://evil.example",
        ] {
            assert!(!matches(REGISTERED, other), "{other:?}");
        }
    }

    #[test]
    fn c003_one_client_s_uris_are_no_patterns() {
        for pattern in ["https://*.app.example/cb", "https://*/cb"] {
            assert!(RedirectUri::parse(pattern).is_err(), "{pattern}");
        }
        assert!(!matches("https://app.example/*", "https://app.example/cb"));
        assert!(!matches("https://app.example/.+", "https://app.example/cb"));
        assert!(!matches("com.example.app:/cb", "com.example.app:/cb2"));
        assert!(!matches("com.example.app:/cb", "com.example.app://cb"));
        assert!(!matches("com.example.app://host/cb", "com.example.app://host:80/cb"));
    }

    #[test]
    fn c004_the_port_of_a_loopback_address_is_free_and_nothing_else() {
        for (registered, host) in [
            ("http://127.0.0.1/cb", "127.0.0.1"),
            ("http://127.0.0.1:8080/cb", "127.0.0.1"),
            ("http://[::1]/cb", "[::1]"),
            ("http://[::1]:1/cb", "[::1]"),
        ] {
            for port in ["", ":1", ":80", ":8080", ":49152", ":65535"] {
                assert!(matches(registered, &format!("http://{host}{port}/cb")), "{registered} {port}");
            }
            for port in [
                ":",
                ":0",
                ":00",
                ":080",
                ":+1",
                ":-1",
                ":65536",
                ":99999",
                ":123456",
                ":8080:80",
                ":80a",
                ":a",
                ": 80",
                ":80 ",
                ":８０",
                ":80\n",
                ":80@evil.example",
                "@evil.example",
                ":80@evil.example:80",
                ".evil.example",
                ":80.evil.example",
                "%3a80",
                ":%38",
                ":0x50",
                ":8_0",
                "/",
                ":80/",
                ":80/..",
                ":80\\",
                ":80#",
                ":80?",
                "::80",
                ":18446744073709551617",
            ] {
                assert!(!matches(registered, &format!("http://{host}{port}/cb")), "{registered} {port:?}");
            }
            for other in [
                "http://attacker@HOST/cb",
                "http://attacker@HOST:80/cb",
                "http://attacker:80@HOST/cb",
                "http://@HOST/cb",
                "https://HOST/cb",
                "HTTP://HOST/cb",
                "//HOST/cb",
                "http:/HOST/cb",
                "http:///HOST/cb",
                "http:\\\\HOST/cb",
                "http://HOST:80/CB",
                "http://HOST:80/cb/",
                "http://HOST:80//cb",
                "http://HOST:80/cb?",
                "http://HOST:80/cb?a=1",
                "http://HOST:80/cb#",
                "http://HOST:80/cb#f",
                "http://HOST:80/%63b",
                "http://HOST:80%2Fcb",
                "http://HOST:80/a/../cb",
                "http://HOST:80/./cb",
                "http://HOST:80/cb\n",
                "http://HOST:80",
                "http://HOST:80/",
                "http://HOST:80@evil/cb",
                "http://HOST:80@evil",
                "http://HOSTcb",
                "http://HOST/cbhttp://HOST/cb",
                "http://evil.example/HOST/cb",
                "http://evil.example?http://HOST/cb",
                "http://evil.example#http://HOST:80/cb",
                " http://HOST:80/cb",
            ] {
                assert!(!matches(registered, &other.replace("HOST", host)), "{registered} {other:?}");
            }
        }
        for other in [
            "http://localhost/cb",
            "http://127.0.0.2/cb",
            "http://127.1/cb",
            "http://127.000.000.001/cb",
            "http://0177.0.0.1/cb",
            "http://2130706433/cb",
            "http://0x7f000001/cb",
            "http://0.0.0.0/cb",
            "http://127.0.0.1.evil.example/cb",
            "http://127.0.0.1./cb",
            "http://[::1]/cb",
            "http://[::ffff:127.0.0.1]/cb",
            "http://1127.0.0.1/cb",
        ] {
            assert!(!matches("http://127.0.0.1/cb", other), "{other}");
        }
        for other in [
            "http://127.0.0.1/cb",
            "http://::1/cb",
            "http://[::1/cb",
            "http://[0:0:0:0:0:0:0:1]/cb",
            "http://[::01]/cb",
            "http://[::1%25lo]/cb",
            "http://[::1].evil.example/cb",
            "http://[::ffff:127.0.0.1]/cb",
            "http://[::1]]/cb",
        ] {
            assert!(!matches("http://[::1]/cb", other), "{other}");
        }
    }

    #[test]
    fn c004_a_loopback_address_without_a_path_stays_without_one() {
        assert!(matches("http://127.0.0.1", "http://127.0.0.1:8080"));
        assert!(matches("http://127.0.0.1:80?a=1", "http://127.0.0.1?a=1"));
        for other in
            ["http://127.0.0.1:8080/", "http://127.0.0.1:8080?", "http://127.0.0.1.evil", "http://127.0.0.1:1:2"]
        {
            assert!(!matches("http://127.0.0.1", other), "{other}");
        }
    }

    #[test]
    fn c004_localhost_is_only_for_who_says_so_and_keeps_its_port() {
        assert_eq!(reason("http://localhost:3000/cb"), "localhost must be named 127.0.0.1 or [::1]");
        let registered = RedirectUri::insecure_localhost("http://localhost:3000/cb").unwrap();
        assert!(registered.matches("http://localhost:3000/cb"));
        for other in ["http://localhost/cb", "http://localhost:3001/cb", "http://127.0.0.1:3000/cb"] {
            assert!(!registered.matches(other), "{other}");
        }
        assert!(RedirectUri::insecure_localhost("http://localhost.evil.example/cb").is_err());
        assert!(RedirectUri::insecure_localhost("http://app.example/cb").is_err());
    }

    #[test]
    fn c004_the_port_of_https_is_not_free() {
        assert!(!matches("https://127.0.0.1/cb", "https://127.0.0.1:8080/cb"));
        assert!(!matches("https://[::1]:1/cb", "https://[::1]:2/cb"));
    }

    #[test]
    fn c005_only_what_is_safe_can_be_registered() {
        for good in [
            "https://app.example",
            "https://app.example/",
            "https://app.example:8443/a/b;c=1/@d?x=%20&y",
            "https://192.0.2.1/cb",
            "https://[2001:db8::1]:8443/cb",
            "https://localhost/cb",
            "http://127.0.0.1/cb",
            "http://[::1]:8080/cb",
            "com.example.app:/cb",
            "com.example.app://callback/cb",
            "com.example-2.app+x:/",
        ] {
            assert_eq!(RedirectUri::parse(good).unwrap().as_str(), good);
        }
        let https = "must be https, except on 127.0.0.1 or [::1]";
        let host = "must name a host in lower case, and a port from 1 to 65535 if any";
        let private = "a private scheme must be lower case with a dot";
        let after = "after a private scheme there must be a path, or a plain host without a port";
        let charset = "has a character that a URI can't have";
        for (bad, why) in [
            ("", "must have 1 to 2048 bytes"),
            ("/cb", "must be absolute: it has no scheme"),
            ("app.example/cb", "must be absolute: it has no scheme"),
            ("//app.example:1/cb", private),
            ("http://app.example/cb", https),
            ("http://127.0.0.2/cb", https),
            ("http://0.0.0.0/cb", https),
            ("http://127.0.0.1.evil.example/cb", https),
            ("http://localhost.evil.example/cb", https),
            ("http://[::2]/cb", https),
            ("http://127.1/cb", host),
            ("http://2130706433/cb", host),
            ("https://App.example/cb", host),
            ("https:///cb", host),
            ("https:/cb", host),
            ("https:app.example", host),
            ("https://app.example:/cb", host),
            ("https://app.example:0/cb", host),
            ("https://app.example:99999/cb", host),
            ("https://a..b/cb", host),
            ("https://a%2eb/cb", host),
            ("https://[::1/cb", host),
            ("https://a,b/cb", host),
            ("HTTPS://app.example/cb", private),
            ("app:/cb", private),
            ("myapp://cb", private),
            ("javascript:alert(1)", private),
            ("data:text/html,x", private),
            ("file:///etc/passwd", private),
            (".app:/cb", private),
            ("com..app:/cb", private),
            ("1com.app:/cb", private),
            ("com.example.app:", after),
            ("com.example.app:cb", after),
            ("com.example.app:///cb", after),
            ("com.example.app://host:80/cb", after),
            ("com.example.app:?a=1", after),
            ("com.example.app://user@host/cb", "must not name a user"),
            ("https://user@app.example/cb", "must not name a user"),
            ("https://@app.example/cb", "must not name a user"),
            ("http://user:password@127.0.0.1/cb", "must not name a user"),
            ("https://app.example/cb#", "must not have a fragment"),
            ("https://app.example/cb#f", "must not have a fragment"),
            ("https://app.example/../cb", "must not have the path segments . and .."),
            ("https://app.example/a/.", "must not have the path segments . and .."),
            ("https://app.example/a/%2E%2e/cb", "must not have the path segments . and .."),
            ("https://app.example/a%2f..%2fcb", "must not have the path segments . and .."),
            ("https://app.example/a%5c..%5ccb", "must not have the path segments . and .."),
            ("com.example.app:/../cb", "must not have the path segments . and .."),
            ("https://app.example/%0d%0a", "must not have control characters, not even as escapes"),
            ("https://app.example/%00", "must not have control characters, not even as escapes"),
            ("https://app.example/%", "a percent sequence is broken"),
            ("https://app.example/%zz", "a percent sequence is broken"),
            ("https://app.example/?%4", "a percent sequence is broken"),
            ("https://app.example/%ff", "a name or value is not UTF-8"),
            ("https://app.example/a b", charset),
            ("https://app.example/é", charset),
            ("https://app.example\\@evil.example", charset),
            ("https://app.example/\n", charset),
            ("https://app.example/\u{7f}", charset),
            ("https://app.example/<>", charset),
            ("https://app.example/[a]", charset),
            ("https://app.example/?a[]=1", charset),
        ] {
            assert_eq!(reason(bad), why, "{bad:?}");
        }
        let longest = format!("https://app.example/{}", "x".repeat(2048 - 20));
        assert!(RedirectUri::parse(&longest).is_ok());
        assert_eq!(reason(&format!("{longest}x")), "must have 1 to 2048 bytes");
    }

    fn answer(requested: &str, params: &[(&str, &str)]) -> String {
        let registered = RedirectUri::parse(requested).unwrap();
        RequestedRedirect::new(&registered, requested).unwrap().answer(params)
    }

    #[test]
    fn c006_an_answer_goes_to_the_port_that_was_requested() {
        let registered = RedirectUri::parse("http://127.0.0.1:8080/cb").unwrap();
        let redirect = RequestedRedirect::new(&registered, "http://127.0.0.1:49152/cb").unwrap();
        assert_eq!(redirect.as_str(), "http://127.0.0.1:49152/cb");
        assert_eq!(redirect.answer(&[("code", "x")]), "http://127.0.0.1:49152/cb?code=x");
        let redirect = RequestedRedirect::new(&registered, "http://127.0.0.1/cb").unwrap();
        assert_eq!(redirect.answer(&[("code", "x")]), "http://127.0.0.1/cb?code=x");
    }

    #[test]
    fn c007_the_query_stays_as_it_is_and_the_answer_comes_behind_it() {
        let params = [("code", "a+b/c"), ("state", "ü &=?#\r\n%20"), ("iss", "https://as.example")];
        let added = "code=a%2Bb%2Fc&state=%C3%BC%20%26%3D%3F%23%0D%0A%2520&iss=https%3A%2F%2Fas.example";
        for (requested, expected) in [
            ("https://app.example", "https://app.example?"),
            ("https://app.example/cb", "https://app.example/cb?"),
            ("https://app.example/cb?", "https://app.example/cb?"),
            ("https://app.example/cb?a=%7e+1&b", "https://app.example/cb?a=%7e+1&b&"),
            ("https://app.example/cb?a=1&", "https://app.example/cb?a=1&"),
            ("https://app.example/cb?a=1&a=2?c", "https://app.example/cb?a=1&a=2?c&"),
            ("https://app.example/cb?a=1?", "https://app.example/cb?a=1?&"),
            ("https://app.example/cb??", "https://app.example/cb??&"),
            ("com.example.app:/cb", "com.example.app:/cb?"),
        ] {
            assert_eq!(answer(requested, &params), format!("{expected}{added}"));
            assert_eq!(answer(requested, &[]), requested);
        }
    }

    #[test]
    fn c007_a_query_with_what_an_answer_has_cannot_be_registered() {
        for query in [
            "code=x",
            "code",
            "code=",
            "a=1&state=x",
            "state=&a",
            "error=x",
            "error_description=x",
            "error_uri=x",
            "iss=https://as.example",
            "%63ode=x",
            "c%6Fde",
            "%69%73%73=x",
            "a=1;code=x",
            "a;state",
            "&&code=x",
            "a=1&%65rror=1",
        ] {
            for uri in ["https://app.example/cb", "http://127.0.0.1:1/cb", "com.example.app:/cb"] {
                assert_eq!(
                    reason(&format!("{uri}?{query}")),
                    "must not have a parameter that an answer has",
                    "{query}"
                );
            }
        }
        for query in ["Code=x", "mycode=x", "code2=x", "a=code", "a=1?code=x", "state%00=x", "%2563ode=x"] {
            assert!(RedirectUri::parse(&format!("https://app.example/cb?{query}")).is_ok(), "{query}");
        }
    }

    fn any_uri() -> impl Strategy<Value = String> {
        prop_oneof![
            "(https|http|com\\.example)://?[a-z0-9.@:\\[\\]]{0,12}[/a-z%.?&=#;2e]{0,16}",
            "http://(127\\.0\\.0\\.1|\\[::1\\])(:[0-9]{1,5})?(/[a-c%2]{0,4}){0,3}(\\?[a-c=&]{0,6})?",
            "https://app\\.example(/[a-c]{0,4}){0,3}(\\?[a-c=&+?]{0,6})?",
            any::<String>(),
        ]
    }

    proptest! {
        #[test]
        fn c003_a_uri_matches_itself_and_no_other_but_for_the_port_of_a_loopback_address(
            uri in any_uri(),
            from: prop::sample::Index,
            to: prop::sample::Index,
            edit in prop_oneof![":[0-9+]{0,6}", "[a-c0-9:@./?#\\[\\]%&\n]{0,6}"],
        ) {
            let Ok(registered) = RedirectUri::parse(&uri) else { return Ok(()) };
            prop_assert!(registered.matches(&uri));
            prop_assert_eq!(registered.to_string(), uri.clone());
            // most ports stand behind one of these
            let from = if edit.starts_with(':') { uri.find("1/").map_or(0, |at| at + 1) } else { from.index(uri.len()) };
            let to = if edit.starts_with(':') { from } else { from + to.index(uri.len() - from) };
            let other = format!("{}{edit}{}", &uri[..from], &uri[to..]);
            if registered.matches(&other) && other != uri {
                // what another parser makes of the two differs in the port alone
                let (one, two): (http::Uri, http::Uri) = (uri.parse().unwrap(), other.parse().unwrap());
                prop_assert_eq!(one.scheme_str(), Some("http"));
                prop_assert!(matches!(one.host(), Some("127.0.0.1" | "[::1]")));
                prop_assert_eq!((one.scheme(), one.host()), (two.scheme(), two.host()));
                prop_assert_eq!(one.path_and_query(), two.path_and_query());
                prop_assert!(!two.authority().unwrap().as_str().contains('@') && !other.contains('#'));
                prop_assert!(two.port_u16().is_none_or(|port| port > 0));
            }
        }

        #[test]
        fn c003_one_byte_changed_is_another_uri(uri in "https://app\\.example(/[a-c]{0,4}){1,3}(\\?[a-c=&+]{0,6})?", at: prop::sample::Index, byte in 0x20..0x7f_u8) {
            let registered = RedirectUri::parse(&uri).unwrap();
            let mut other = uri.clone().into_bytes();
            let at = at.index(other.len());
            other[at] = byte;
            let other = String::from_utf8(other).unwrap();
            prop_assert_eq!(registered.matches(&other), other == uri);
            prop_assert!(!registered.matches(&uri[..at]));
        }

        #[test]
        fn c004_every_port_is_taken(port in 1..=u16::MAX) {
            prop_assert!(matches("http://127.0.0.1/cb", &format!("http://127.0.0.1:{port}/cb")), "{}", port);
        }

        #[test]
        fn c007_an_answer_is_a_header_and_reads_back_behind_the_query(
            uri in any_uri(),
            params in prop::collection::vec((any::<String>(), any::<String>()), 0..4),
        ) {
            let Ok(registered) = RedirectUri::parse(&uri) else { return Ok(()) };
            let redirect = RequestedRedirect::new(&registered, &uri).unwrap();
            let params: Vec<(&str, &str)> = params.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let answer = redirect.answer(&params);
            prop_assert!(HeaderValue::from_str(&answer).is_ok_and(|value| value.to_str().is_ok()));
            prop_assert!(answer.starts_with(&uri));
            let Some((_, query)) = answer.split_once('?') else { return Ok(()) };
            let own = uri.split_once('?').map_or("", |(_, own)| own);
            let own = Form::parse(own.as_bytes()).unwrap();
            let form = Form::parse(query.as_bytes()).unwrap();
            for (name, _) in &params {
                let added = params.iter().filter(|(other, _)| other == name).map(|(_, value)| *value);
                prop_assert!(form.values(name).eq(own.values(name).chain(added)));
            }
        }

        #[test]
        fn nothing_panics(text: String, near in "[a-z.]{0,8}:[/@\\[\\]:0-9a-f%?#&=]{0,20}") {
            let _ = (RedirectUri::parse(&text), RedirectUri::insecure_localhost(&near));
            let _ = RedirectUri::parse("http://127.0.0.1/cb").unwrap().matches(&near);
        }
    }
}
