//! [`RedirectUri`]: where a client gets its answers.

use std::fmt;

use crate::{error::ConfigError, form, form::Form, origin};

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

    /// The URI with these parameters behind its own query, which stays as it is.
    ///
    /// What comes out is visible ASCII, so it can be a header.
    pub fn answer(&self, params: &[(&str, &str)]) -> String {
        let mut uri = self.0.clone();
        for (name, value) in params {
            match uri.find('?') {
                None => uri.push('?'),
                Some(_) if uri.ends_with(['?', '&']) => {}
                Some(_) => uri.push('&'),
            }
            uri.push_str(&form::encode(name));
            uri.push('=');
            uri.push_str(&form::encode(value));
        }
        uri
    }
}
