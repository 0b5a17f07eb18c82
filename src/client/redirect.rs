//! Redirect URIs of clients.

use crate::{
    http::origin,
    util::{error::ConfigError, form, form::Form},
};

/// A registered redirect URI.
///
/// A requested URI must be identical, including case, slashes, escapes and the query. One
/// exception: if the registered URI is `http` on `127.0.0.1` or `[::1]`, the request may use any
/// port, because native apps choose one at run time (RFC 8252 §7.3).
///
/// | registered | accepted |
/// |---|---|
/// | `https://…` | yes |
/// | `http://127.0.0.1…`, `http://[::1]…` | yes, with any port |
/// | `http://localhost…` | only with [`insecure_localhost`](Self::insecure_localhost) |
/// | `com.example.app:/…` | yes; a private scheme needs a dot |
/// | with a user, a fragment, `.` or `..` segments, or a response parameter | no |
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

/// A registered `http://127.0.0.1` or `http://[::1]`, on which the client chooses the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Loopback {
    /// The positions at which the host ends and the path or query starts.
    host_end: usize,
    tail: usize,
}

const SETTING: &str = "redirect URI";

/// Parameters of responses (RFC 6749 §4.1.2, RFC 9207 §2).
const ANSWERS: [&str; 6] = ["code", "state", "error", "error_description", "error_uri", "iss"];

impl RedirectUri {
    /// The maximum length in bytes.
    pub const MAX_LEN: usize = 2048;

    /// Parses a redirect URI for registration.
    ///
    /// # Errors
    ///
    /// Returns an error if the URI is not safe to register. The table above lists the rules.
    pub fn parse(uri: &str) -> Result<Self, ConfigError> {
        Self::checked(uri, false)
    }

    /// Like [`parse`](Self::parse), but also accepts `http://localhost` with a fixed port.
    ///
    /// Use it only for development: the resolver decides where `localhost` points (RFC 8252 §8.3).
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

    /// Returns whether a request with this redirect URI matches.
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

    /// Returns the URI as registered.
    pub fn as_str(&self) -> &str {
        &self.uri
    }
}

/// Returns where the port goes if it is free, or why the URI can't be registered.
fn check(uri: &str, localhost: bool) -> Result<Option<Loopback>, &'static str> {
    if uri.is_empty() || uri.len() > RedirectUri::MAX_LEN {
        return Err("must be 1 to 2048 bytes long");
    }
    if uri.contains('#') {
        return Err("must not contain a fragment");
    }
    if !uri.bytes().all(is_uri_byte) {
        return Err("contains a character that is not allowed in a URI");
    }
    let (scheme, rest) = uri.split_once(':').ok_or("must be an absolute URI with a scheme")?;
    let (hierarchy, query) = rest.split_once('?').map_or((rest, None), |(before, query)| (before, Some(query)));
    let (authority, path) = match hierarchy.strip_prefix("//") {
        Some(rest) => {
            let (authority, path) = rest.find('/').and_then(|at| rest.split_at_checked(at)).unwrap_or((rest, ""));
            (Some(authority), path)
        }
        None => (None, hierarchy),
    };
    if authority.is_some_and(|authority| authority.contains('@')) {
        return Err("must not contain a user name");
    }
    let found = authority.and_then(origin::host_and_port);
    let loopback = match (scheme, authority, found) {
        ("https", _, Some(_)) => None,
        ("http", Some(authority), Some((host @ ("127.0.0.1" | "[::1]"), _))) => {
            let start = "http://".len();
            Some(Loopback { host_end: start + host.len(), tail: start + authority.len() })
        }
        ("http", _, Some(("localhost", _))) if localhost => None,
        ("http", _, Some(("localhost", _))) => return Err("must use 127.0.0.1 or [::1] instead of localhost"),
        ("http", _, Some(_)) => return Err("must be https, except on 127.0.0.1 or [::1]"),
        ("https" | "http", ..) => return Err("must have a lower-case host, and a port from 1 to 65535 if any"),
        (scheme, ..) if !is_private_scheme(scheme) => return Err("must use a private scheme in lower case with a dot"),
        (_, None, _) if path.starts_with('/') => None,
        (_, Some(_), Some((_, None))) => None,
        _ => return Err("must have a path or a plain host without a port after the private scheme"),
    };
    if path.contains(['[', ']']) || query.is_some_and(|query| query.contains(['[', ']'])) {
        return Err("contains a character that is not allowed in a URI");
    }
    check_path(path)?;
    check_query(query.unwrap_or_default())?;
    Ok(loopback)
}

fn check_path(path: &str) -> Result<(), &'static str> {
    let decoded = form::decode_path(path).map_err(form::FormError::detail)?;
    if decoded.split(['/', '\\']).any(|segment| matches!(segment, "." | "..")) {
        return Err("must not contain the path segments . and ..");
    }
    if decoded.chars().any(char::is_control) {
        return Err("must not contain control characters, not even escaped");
    }
    Ok(())
}

fn check_query(query: &str) -> Result<(), &'static str> {
    // some parsers split at semicolons
    for text in [query, &query.replace(';', "&")] {
        let form = Form::parse(text.as_bytes()).map_err(form::FormError::detail)?;
        if ANSWERS.iter().any(|name| form.values(name).next().is_some()) {
            return Err("must not contain a parameter that responses use");
        }
    }
    Ok(())
}

/// RFC 3986 §2.
fn is_uri_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/?[]@!$&'()*+,;=%".contains(&byte)
}

/// RFC 8252 §7.1: private schemes are reversed domain names, so that each has an owner.
fn is_private_scheme(scheme: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'+' | b'-');
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(allowed);
    scheme.starts_with(|first: char| first.is_ascii_lowercase())
        && scheme.contains('.')
        && scheme.split('.').all(is_label)
}

crate::util::fmt::from_str!(RedirectUri, ConfigError);

crate::util::fmt::display!(RedirectUri, |own| &own.uri);

/// A redirect URI that a request contained and its client has registered. Responses are sent
/// nowhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedRedirect(String);

impl RequestedRedirect {
    pub(super) fn new(registered: &RedirectUri, requested: &str) -> Option<Self> {
        registered.matches(requested).then(|| Self(requested.to_owned()))
    }

    /// Returns the URI as requested.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether it belongs to a web site, as opposed to an app on the user's machine.
    pub(crate) fn is_of_a_site(&self) -> bool {
        self.0.starts_with("https://")
    }

    /// Returns the source by which a content security policy permits a form to lead here: the origin, or the private scheme.
    /// Returns `None` for an IPv6 address, which policies can't name.
    pub(crate) fn policy_source(&self) -> Option<&str> {
        let (scheme, rest) = self.0.split_once(':')?;
        let length = match (scheme, rest.strip_prefix("//")) {
            ("https" | "http", Some(rest)) => {
                let authority = rest.split(['/', '?']).next()?;
                if authority.starts_with('[') {
                    return None;
                }
                scheme.len() + "://".len() + authority.len()
            }
            _ => scheme.len() + ":".len(),
        };
        self.0.get(..length)
    }

    /// Returns the URI with these parameters appended to its own query, which is kept unchanged.
    ///
    /// The result is visible ASCII, so it can be used in a header.
    pub fn with_parameters(&self, params: &[(&str, &str)]) -> String {
        let mut uri = self.0.clone();
        for (name, value) in params {
            match uri.split_once('?') {
                None => uri.push('?'),
                // a second question mark is part of a value
                Some((_, query)) if query.is_empty() || query.ends_with('&') => {}
                Some(_) => uri.push('&'),
            }
            uri.push_str(&form::encode_form_value(name));
            uri.push('=');
            uri.push_str(&form::encode_form_value(value));
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
    fn c003_redirect_uris_must_be_identical() {
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
    fn b23_a_policy_permits_an_origin_or_a_private_scheme() {
        for (uri, source) in [
            ("https://app.example", Some("https://app.example")),
            ("https://app.example/out;a,b?c='d'", Some("https://app.example")),
            ("https://app.example:8443?c", Some("https://app.example:8443")),
            ("http://127.0.0.1:51004/out", Some("http://127.0.0.1:51004")),
            ("http://[::1]:51004/out", None),
            ("com.example.app:/out", Some("com.example.app:")),
            ("com.example.app://host/out", Some("com.example.app:")),
        ] {
            let redirect = RequestedRedirect::new(&RedirectUri::parse(uri).unwrap(), uri).unwrap();
            assert_eq!(redirect.policy_source(), source, "{uri}");
        }
    }

    #[test]
    fn c003_registered_uris_are_not_patterns() {
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
    fn c004_only_the_port_of_a_loopback_address_is_free() {
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
    fn c004_a_loopback_address_without_path_matches_only_without_path() {
        assert!(matches("http://127.0.0.1", "http://127.0.0.1:8080"));
        assert!(matches("http://127.0.0.1:80?a=1", "http://127.0.0.1?a=1"));
        for other in
            ["http://127.0.0.1:8080/", "http://127.0.0.1:8080?", "http://127.0.0.1.evil", "http://127.0.0.1:1:2"]
        {
            assert!(!matches("http://127.0.0.1", other), "{other}");
        }
    }

    #[test]
    fn c004_localhost_is_opt_in_and_keeps_its_port() {
        assert_eq!(reason("http://localhost:3000/cb"), "must use 127.0.0.1 or [::1] instead of localhost");
        let registered = RedirectUri::insecure_localhost("http://localhost:3000/cb").unwrap();
        assert!(registered.matches("http://localhost:3000/cb"));
        for other in ["http://localhost/cb", "http://localhost:3001/cb", "http://127.0.0.1:3000/cb"] {
            assert!(!registered.matches(other), "{other}");
        }
        assert!(RedirectUri::insecure_localhost("http://localhost.evil.example/cb").is_err());
        assert!(RedirectUri::insecure_localhost("http://app.example/cb").is_err());
    }

    #[test]
    fn c004_the_port_of_https_is_fixed() {
        assert!(!matches("https://127.0.0.1/cb", "https://127.0.0.1:8080/cb"));
        assert!(!matches("https://[::1]:1/cb", "https://[::1]:2/cb"));
    }

    #[test]
    fn c005_only_safe_uris_can_be_registered() {
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
        let host = "must have a lower-case host, and a port from 1 to 65535 if any";
        let private = "must use a private scheme in lower case with a dot";
        let after = "must have a path or a plain host without a port after the private scheme";
        let charset = "contains a character that is not allowed in a URI";
        for (bad, why) in [
            ("", "must be 1 to 2048 bytes long"),
            ("/cb", "must be an absolute URI with a scheme"),
            ("app.example/cb", "must be an absolute URI with a scheme"),
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
            ("com.example.app://user@host/cb", "must not contain a user name"),
            ("https://user@app.example/cb", "must not contain a user name"),
            ("https://@app.example/cb", "must not contain a user name"),
            ("http://user:password@127.0.0.1/cb", "must not contain a user name"),
            ("https://app.example/cb#", "must not contain a fragment"),
            ("https://app.example/cb#f", "must not contain a fragment"),
            ("https://app.example/../cb", "must not contain the path segments . and .."),
            ("https://app.example/a/.", "must not contain the path segments . and .."),
            ("https://app.example/a/%2E%2e/cb", "must not contain the path segments . and .."),
            ("https://app.example/a%2f..%2fcb", "must not contain the path segments . and .."),
            ("https://app.example/a%5c..%5ccb", "must not contain the path segments . and .."),
            ("com.example.app:/../cb", "must not contain the path segments . and .."),
            ("https://app.example/%0d%0a", "must not contain control characters, not even escaped"),
            ("https://app.example/%00", "must not contain control characters, not even escaped"),
            ("https://app.example/%", "invalid percent-encoding"),
            ("https://app.example/%zz", "invalid percent-encoding"),
            ("https://app.example/?%4", "invalid percent-encoding"),
            ("https://app.example/%ff", "a name or value is not valid UTF-8"),
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
        assert_eq!(reason(&format!("{longest}x")), "must be 1 to 2048 bytes long");
    }

    fn redirect_with(requested: &str, params: &[(&str, &str)]) -> String {
        let registered = RedirectUri::parse(requested).unwrap();
        RequestedRedirect::new(&registered, requested).unwrap().with_parameters(params)
    }

    #[test]
    fn c006_responses_go_to_the_requested_port() {
        let registered = RedirectUri::parse("http://127.0.0.1:8080/cb").unwrap();
        let redirect = RequestedRedirect::new(&registered, "http://127.0.0.1:49152/cb").unwrap();
        assert_eq!(redirect.as_str(), "http://127.0.0.1:49152/cb");
        assert_eq!(redirect.with_parameters(&[("code", "x")]), "http://127.0.0.1:49152/cb?code=x");
        let redirect = RequestedRedirect::new(&registered, "http://127.0.0.1/cb").unwrap();
        assert_eq!(redirect.with_parameters(&[("code", "x")]), "http://127.0.0.1/cb?code=x");
    }

    #[test]
    fn c007_the_query_is_kept_and_the_response_appended() {
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
            assert_eq!(redirect_with(requested, &params), format!("{expected}{added}"));
            assert_eq!(redirect_with(requested, &[]), requested);
        }
    }

    #[test]
    fn c007_response_parameters_cannot_be_registered() {
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
                    "must not contain a parameter that responses use",
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
        fn c003_a_uri_matches_only_itself_except_for_loopback_ports(
            uri in any_uri(),
            from: prop::sample::Index,
            to: prop::sample::Index,
            edit in prop_oneof![":[0-9+]{0,6}", "[a-c0-9:@./?#\\[\\]%&\n]{0,6}"],
        ) {
            let Ok(registered) = RedirectUri::parse(&uri) else { return Ok(()) };
            prop_assert!(registered.matches(&uri));
            prop_assert_eq!(registered.to_string(), uri.clone());
            // most ports follow one of these
            let from = if edit.starts_with(':') { uri.find("1/").map_or(0, |at| at + 1) } else { from.index(uri.len()) };
            let to = if edit.starts_with(':') { from } else { from + to.index(uri.len() - from) };
            let other = format!("{}{edit}{}", &uri[..from], &uri[to..]);
            if registered.matches(&other) && other != uri {
                // according to another parser, the two differ only in the port
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
        fn c003_one_changed_byte_does_not_match(uri in "https://app\\.example(/[a-c]{0,4}){1,3}(\\?[a-c=&+]{0,6})?", at: prop::sample::Index, byte in 0x20..0x7f_u8) {
            let registered = RedirectUri::parse(&uri).unwrap();
            let mut other = uri.clone().into_bytes();
            let at = at.index(other.len());
            other[at] = byte;
            let other = String::from_utf8(other).unwrap();
            prop_assert_eq!(registered.matches(&other), other == uri);
            prop_assert!(!registered.matches(&uri[..at]));
        }

        #[test]
        fn c004_every_port_is_accepted(port in 1..=u16::MAX) {
            prop_assert!(matches("http://127.0.0.1/cb", &format!("http://127.0.0.1:{port}/cb")), "{}", port);
        }

        #[test]
        fn c007_a_response_is_a_valid_header_and_can_be_parsed_again(
            uri in any_uri(),
            params in prop::collection::vec((any::<String>(), any::<String>()), 0..4),
        ) {
            let Ok(registered) = RedirectUri::parse(&uri) else { return Ok(()) };
            let redirect = RequestedRedirect::new(&registered, &uri).unwrap();
            let params: Vec<(&str, &str)> = params.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let answer = redirect.with_parameters(&params);
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
