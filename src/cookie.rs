//! Cookies (RFC 6265bis): [`read`] finds those of a name in a request,
//! [`SetCookie`] writes one.

use std::{fmt, time::Duration};

use http::{HeaderMap, HeaderValue, header};
use zeroize::Zeroizing;

use crate::error::ConfigError;

/// The most bytes of the `Cookie` headers of one request that are looked at.
pub const MAX_HEADER_BYTES: usize = 16 * 1024;
/// The most cookies of one request that are looked at.
pub const MAX_COOKIES: usize = 200;
/// The most bytes that the name and the value of a cookie may have together:
/// browsers drop what is longer.
pub const MAX_COOKIE_BYTES: usize = 4096;
/// Browsers ignore an attribute that is longer.
const MAX_ATTRIBUTE_BYTES: usize = 1024;

/// The values of all cookies of this name, in the order in which they were
/// sent, over all `Cookie` headers.
///
/// There can be several: another host of the same domain may set one of the same
/// name, and the header does not tell them apart. So try each, and trust the
/// name only if it begins with `__Host-`, which no other host can set.
///
/// The name is compared byte by byte: neither `session` nor `__host-session` is
/// read for `__Host-session`. Quotes around a value are part of it. A cookie
/// without a name, or with bytes that no server may set, is passed over and its
/// neighbours are read. What lies beyond [`MAX_HEADER_BYTES`] or
/// [`MAX_COOKIES`] is not looked at.
///
/// ```
/// use http::{HeaderMap, HeaderValue, header::COOKIE};
/// use tollgate::cookie;
///
/// let mut headers = HeaderMap::new();
/// headers.insert(COOKIE, HeaderValue::from_static("theme=dark; __Host-session=abc; session=evil"));
/// assert!(cookie::read(&headers, "__Host-session").eq(["abc"]));
/// ```
pub fn read<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    let mut budget = MAX_HEADER_BYTES;
    headers
        .get_all(header::COOKIE)
        .into_iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
        .take(MAX_COOKIES)
        // one more for the semicolon
        .map_while(move |pair| {
            budget = budget.checked_sub(pair.len() + 1)?;
            Some(pair)
        })
        .filter_map(move |pair| value_of(pair, name))
}

/// The value of a `name=value` pair, if that is its name and the value is well formed.
fn value_of<'a>(pair: &'a [u8], name: &str) -> Option<&'a str> {
    let mut halves = pair.splitn(2, |byte| *byte == b'=');
    let found = trim(halves.next()?);
    let value = trim(halves.next()?);
    if found.is_empty() || found != name.as_bytes() || !is_value(value) {
        return None;
    }
    std::str::from_utf8(value).ok()
}

/// Without the blanks at both ends.
fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// `cookie-value` of RFC 6265bis §4.1.1.
fn is_value(value: &[u8]) -> bool {
    let inner = match value {
        [b'"', inner @ .., b'"'] => inner,
        _ => value,
    };
    inner.iter().all(|byte| matches!(byte, 0x21 | 0x23..=0x2b | 0x2d..=0x3a | 0x3c..=0x5b | 0x5d..=0x7e))
}

/// When a browser sends a cookie with a request that another site caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// Never.
    Strict,
    /// Only when the user follows a link to us.
    Lax,
    /// Always. Then nothing but your own check of `Origin` stops other sites
    /// from acting in the user's name.
    None,
}

/// A cookie to be set, which exists only when valid.
///
/// It is `Secure`, `HttpOnly`, `SameSite=Lax`, `Path=/` and lasts as long as the
/// browser runs; each setter changes one of these. A name with a prefix holds
/// the cookie to what browsers demand of it: `__Host-` to `Secure`, `Path=/` and
/// no domain, `__Secure-` to `Secure`.
///
/// Its `Debug` does not show the value, and its memory is wiped when it is
/// dropped.
///
/// ```
/// use http::HeaderMap;
/// use tollgate::cookie::SetCookie;
///
/// let mut headers = HeaderMap::new();
/// SetCookie::new("__Host-session", "abc")?.append_to(&mut headers);
/// assert_eq!(headers["set-cookie"], "__Host-session=abc; Path=/; Secure; HttpOnly; SameSite=Lax");
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[must_use]
pub struct SetCookie {
    name: String,
    value: Zeroizing<String>,
    path: String,
    domain: Option<String>,
    max_age: Option<u64>,
    same_site: SameSite,
    secure: bool,
    http_only: bool,
}

impl SetCookie {
    /// A cookie of this name and value.
    ///
    /// The name must be a token, the value made of the characters that RFC
    /// 6265bis §4.1.1 allows, both together no longer than [`MAX_COOKIE_BYTES`].
    /// The value is not repeated in the error.
    pub fn new(name: &str, value: &str) -> Result<Self, ConfigError> {
        if !is_token(name.as_bytes()) {
            return Err(ConfigError::new("cookie name", name, "must be a token of RFC 9110"));
        }
        if !is_value(value.as_bytes()) {
            return Err(ConfigError::new("cookie value", "it", "must have only characters that a cookie may have"));
        }
        if name.len() + value.len() > MAX_COOKIE_BYTES {
            return Err(ConfigError::new("cookie value", "it", "must fit into 4096 bytes with its name"));
        }
        Ok(Self {
            name: name.to_owned(),
            value: Zeroizing::new(value.to_owned()),
            path: String::from("/"),
            domain: None,
            max_age: None,
            same_site: SameSite::Lax,
            secure: true,
            http_only: true,
        })
    }

    /// Takes the cookie of this name away. Its path and domain must be those with
    /// which it was set.
    pub fn removal(name: &str) -> Result<Self, ConfigError> {
        Ok(Self::new(name, "")?.max_age(Duration::ZERO))
    }

    /// Sends the cookie only for this path and what lies below. It is no
    /// boundary: scripts of other paths can read the cookie.
    pub fn path(mut self, path: &str) -> Result<Self, ConfigError> {
        if !path.starts_with('/') || !is_attribute(path) {
            return Err(ConfigError::new("cookie path", path, "must begin with / and have no semicolon"));
        }
        if self.is_host_bound() && path != "/" {
            return Err(ConfigError::new("cookie path", path, "must be / for a name with __Host-"));
        }
        self.path = path.to_owned();
        Ok(self)
    }

    /// Sends the cookie to all hosts of this domain too, and so lets each of them
    /// read it.
    pub fn domain(mut self, domain: &str) -> Result<Self, ConfigError> {
        let is_name = domain.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
        if !is_name || !domain.starts_with(|first: char| first.is_ascii_alphanumeric()) || !is_attribute(domain) {
            return Err(ConfigError::new("cookie domain", domain, "must be the name of a domain"));
        }
        if self.is_host_bound() {
            return Err(ConfigError::new("cookie domain", domain, "must not be there for a name with __Host-"));
        }
        self.domain = Some(domain.to_owned());
        Ok(self)
    }

    /// How long the browser keeps the cookie, rounded up to seconds; zero takes
    /// it away.
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = Some(age.as_secs().saturating_add(u64::from(age.subsec_nanos() > 0)));
        self
    }

    /// When the cookie is sent with a request that another site caused.
    pub fn same_site(mut self, same_site: SameSite) -> Result<Self, ConfigError> {
        if same_site == SameSite::None && !self.secure {
            return Err(ConfigError::new("cookie same-site", "None", "needs Secure"));
        }
        self.same_site = same_site;
        Ok(self)
    }

    /// Sends the cookie over plain HTTP too, where whoever is on the way reads
    /// it. For development on loopback alone.
    pub fn insecure_plain_http(mut self) -> Result<Self, ConfigError> {
        if self.is_host_bound() || has_prefix(&self.name, "__Secure-") {
            return Err(ConfigError::new("cookie name", &self.name, "has a prefix that needs Secure"));
        }
        if self.same_site == SameSite::None {
            return Err(ConfigError::new("cookie same-site", "None", "needs Secure"));
        }
        self.secure = false;
        Ok(self)
    }

    /// Lets scripts of the page read the cookie; an injected one then steals it.
    pub fn insecure_script_access(mut self) -> Self {
        self.http_only = false;
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of a `Set-Cookie` header. It is marked as sensitive.
    #[expect(clippy::expect_used, reason = "only visible ASCII and spaces get into a cookie")]
    pub fn header_value(&self) -> HeaderValue {
        let text = Zeroizing::new(self.text());
        let mut value = HeaderValue::from_str(&text).expect("a cookie is a valid header value");
        value.set_sensitive(true);
        value
    }

    /// Adds a `Set-Cookie` header beside those that are there.
    pub fn append_to(&self, headers: &mut HeaderMap) {
        headers.append(header::SET_COOKIE, self.header_value());
    }

    fn text(&self) -> String {
        let mut text = format!("{}={}; Path={}", self.name, self.value.as_str(), self.path);
        if let Some(domain) = &self.domain {
            text.push_str("; Domain=");
            text.push_str(domain);
        }
        if let Some(seconds) = self.max_age {
            text.push_str("; Max-Age=");
            text.push_str(&seconds.to_string());
        }
        if self.secure {
            text.push_str("; Secure");
        }
        if self.http_only {
            text.push_str("; HttpOnly");
        }
        text.push_str(match self.same_site {
            SameSite::Strict => "; SameSite=Strict",
            SameSite::Lax => "; SameSite=Lax",
            SameSite::None => "; SameSite=None",
        });
        text
    }

    fn is_host_bound(&self) -> bool {
        has_prefix(&self.name, "__Host-")
    }
}

impl fmt::Debug for SetCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetCookie").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Browsers look at prefixes without regard to case.
fn has_prefix(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

fn is_token(name: &[u8]) -> bool {
    let is_tchar = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !name.is_empty() && name.iter().all(is_tchar)
}

fn is_attribute(value: &str) -> bool {
    value.len() <= MAX_ATTRIBUTE_BYTES && value.bytes().all(|byte| matches!(byte, 0x20..=0x7e) && byte != b';')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines<L: AsRef<[u8]>>(lines: &[L]) -> HeaderMap {
        let values = lines.iter().map(|line| HeaderValue::from_bytes(line.as_ref()).unwrap());
        values.map(|value| (header::COOKIE, value)).collect()
    }

    fn found(line: &str, name: &str) -> Vec<String> {
        read(&lines(&[line]), name).map(str::to_owned).collect()
    }

    #[test]
    fn cookies_are_read_as_rfc_6265bis_writes_them() {
        let cases: &[(&str, &[&str])] = &[
            ("a=1", &["1"]),
            ("b=0; a=1; c=2", &["1"]),
            ("b=0;a=1;c=2", &["1"]),
            ("  a \t=\t 1  ;b=2", &["1"]),
            // an equals sign belongs to the value
            ("a=1=2==", &["1=2=="]),
            ("a=", &[""]),
            // quotes belong to the value and hide no semicolon
            ("a=\"1\"", &["\"1\""]),
            ("a=\"\"", &["\"\""]),
            ("a=\"1;2\"", &[]),
            ("a=\"", &[]),
            ("a=1\"2", &[]),
            // a cookie without a name is nobody's
            ("=a=1", &[]),
            ("a", &[]),
            ("=", &[]),
            (";;; ;a=1;;", &["1"]),
            // names have cases and no wild cards
            ("A=1; aa=2; a.=3; xa=4", &[]),
            // bytes that no server may set
            ("a=x y; a=x,y; a=x\\y; a=\té; a=ok", &["ok"]),
            ("a=\u{fc}", &[]),
            ("$Version=1; a=1; $Path=/", &["1"]),
        ];
        for (line, expected) in cases {
            assert_eq!(found(line, "a"), *expected, "{line}");
        }
        assert_eq!(read(&HeaderMap::new(), "a").count(), 0);
    }

    #[test]
    fn c107_a_cookie_with_the_wrong_prefix_is_ignored() {
        let line = "session=1; __Secure-session=2; __host-session=3; =__Host-session=4; __Host-=5; __Host-session =6";
        assert_eq!(found(line, "__Host-session"), ["6"]);
        assert_eq!(found("__Host-session=1; __Secure-session=2", "session"), [""; 0]);
    }

    #[test]
    fn c107_cookies_of_one_name_all_come_out_in_order_over_all_lines() {
        let headers = lines(&["a=1; b=0; a=2", "b=1", "a=3"]);
        assert!(read(&headers, "a").eq(["1", "2", "3"]));
    }

    #[test]
    fn c107_a_line_that_is_not_ascii_does_not_hide_its_neighbours() {
        let headers = lines(&[&b"x=\xff\xfe; a=1"[..], b"a=\xff; a=2"]);
        assert!(read(&headers, "a").eq(["1", "2"]));
    }

    #[test]
    fn c107_huge_headers_are_read_up_to_the_bounds() {
        // 200 cookies are looked at
        let mut many = "b=0;".repeat(MAX_COOKIES - 1);
        many.push_str("a=1;a=2");
        assert_eq!(found(&many, "a"), ["1"]);
        let headers = lines(&["b=0"; MAX_COOKIES + 1]);
        assert_eq!(read(&headers, "b").count(), MAX_COOKIES);
        // 16 KiB are looked at, and what the bound cuts is not half read
        let padding = "x".repeat(MAX_HEADER_BYTES - "a=1;b=;a=23;".len());
        assert_eq!(found(&format!("a=1;b={padding};a=23;a=4"), "a"), ["1", "23"]);
        assert_eq!(found(&format!("a=1;b={padding}x;a=23;a=4"), "a"), ["1"]);
        assert_eq!(found(&format!("a=1;a={};a=2", "x".repeat(1 << 20)), "a"), ["1"]);
    }

    #[test]
    fn c103_a_session_cookie_has_every_attribute() {
        let cookie = SetCookie::new("__Host-session", "abc").unwrap();
        assert_eq!(cookie.header_value(), "__Host-session=abc; Path=/; Secure; HttpOnly; SameSite=Lax");
        assert!(cookie.header_value().is_sensitive());
        assert_eq!(format!("{cookie:?}"), "SetCookie { name: \"__Host-session\", .. }");
    }

    #[test]
    fn each_setter_writes_its_attribute() {
        let cookie = SetCookie::new("a", "\"1\"").unwrap().path("/app").unwrap().domain("example.com").unwrap();
        let cookie = cookie.max_age(Duration::from_millis(1500)).same_site(SameSite::Strict).unwrap();
        assert_eq!(
            cookie.insecure_script_access().header_value(),
            "a=\"1\"; Path=/app; Domain=example.com; Max-Age=2; Secure; SameSite=Strict"
        );
        let cookie = SetCookie::new("a", "1").unwrap().insecure_plain_http().unwrap();
        assert_eq!(cookie.header_value(), "a=1; Path=/; HttpOnly; SameSite=Lax");
        let cookie = SetCookie::new("a", "1").unwrap().same_site(SameSite::None).unwrap();
        assert_eq!(cookie.header_value(), "a=1; Path=/; Secure; HttpOnly; SameSite=None");
        let cookie = SetCookie::removal("__Host-session").unwrap();
        assert_eq!(cookie.header_value(), "__Host-session=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Lax");
    }

    #[test]
    fn c103_a_prefix_holds_the_cookie_to_its_rules() {
        // browsers look at prefixes without regard to case
        for name in ["__Host-a", "__host-a", "__HOST-a"] {
            let cookie = || SetCookie::new(name, "1").unwrap();
            assert!(cookie().domain("example.com").is_err());
            assert!(cookie().path("/app").is_err());
            assert!(cookie().path("/").is_ok());
            assert!(cookie().insecure_plain_http().is_err());
        }
        for name in ["__Secure-a", "__secure-a"] {
            let cookie = || SetCookie::new(name, "1").unwrap();
            assert!(cookie().insecure_plain_http().is_err());
            assert!(cookie().domain("example.com").unwrap().path("/app").is_ok());
        }
        let cookie = || SetCookie::new("a", "1").unwrap();
        assert!(cookie().insecure_plain_http().unwrap().same_site(SameSite::None).is_err());
        assert!(cookie().same_site(SameSite::None).unwrap().insecure_plain_http().is_err());
    }

    #[test]
    fn c103_a_cookie_that_browsers_would_drop_does_not_exist() {
        assert!(SetCookie::new("abc", &"x".repeat(4093)).is_ok());
        assert!(SetCookie::new("abc", &"x".repeat(4094)).is_err());
        let cookie = || SetCookie::new("a", "1").unwrap();
        assert!(cookie().path(&format!("/{}", "x".repeat(1023))).is_ok());
        assert!(cookie().path(&format!("/{}", "x".repeat(1024))).is_err());
    }

    #[test]
    fn nothing_can_be_smuggled_into_the_header() {
        for name in ["", "a b", "a=b", "a;b", "a\r\nb", "a\"", "é", "a,b", "a\0"] {
            assert!(SetCookie::new(name, "1").is_err(), "{name:?}");
        }
        for value in ["a b", "a;b", "a,b", "a\\b", "a\r\nb", "a\"b", "\"", "é", "a\0", "\x7f", "\ta"] {
            let error = SetCookie::new("a", value).unwrap_err();
            assert!(!error.to_string().contains(value), "{value:?}");
        }
        let cookie = || SetCookie::new("a", "1").unwrap();
        for path in ["", "a", "/;Domain=x", "/\r\n", "/é", "/\t"] {
            assert!(cookie().path(path).is_err(), "{path:?}");
        }
        for domain in ["", ".a", "-", "a;b", "a b", "a\r\n", "é.com", "a/b"] {
            assert!(cookie().domain(domain).is_err(), "{domain:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            name in "[A-Za-z0-9!#$%&'*+.^_`|~-]{1,40}",
            value in "[!#-+\\--:<-\\[\\]-~]{0,100}",
            quoted: bool,
            others in prop::collection::vec("[a-z= \"\u{e9}]{0,10}", 0..10),
            at: prop::sample::Index,
        ) {
            let value = if quoted { format!("\"{value}\"") } else { value };
            let cookie = SetCookie::new(&name, &value).unwrap().header_value();
            let pair = cookie.to_str().unwrap().split("; ").next().unwrap().to_owned();
            // names in this header begin with a blank or a small letter; ours with a dot
            let (name, pair) = (format!(".{name}"), format!(".{pair}"));
            let mut pairs = others;
            pairs.insert(at.index(pairs.len() + 1), pair);
            prop_assert_eq!(found(&pairs.join("; "), &name), [value]);
        }

        #[test]
        fn c107_nothing_panics_on_arbitrary_bytes(
            headers in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..4),
            near in "[a=; \t\"\\\\,\u{e9}]{0,60}",
        ) {
            let values = headers.iter().filter_map(|line| HeaderValue::from_bytes(line).ok());
            let map: HeaderMap = values.map(|value| (header::COOKIE, value)).collect();
            prop_assert!(read(&map, "a").all(|value| is_value(value.as_bytes())));
            prop_assert!(found(&near, "a").iter().all(|value| is_value(value.as_bytes())));
        }

        #[test]
        fn whatever_cookie_exists_can_be_written(name: String, value: String, path: String, domain: String, seconds: u64) {
            if let Ok(cookie) = SetCookie::new(&name, &value) {
                let cookie = cookie.max_age(Duration::from_secs(seconds));
                let written = cookie.header_value();
                let start = format!("{name}={value}; Path=/; Max-Age={seconds}; ");
                prop_assert!(written.to_str().unwrap().starts_with(&start));
            }
            let cookie = || SetCookie::new("a", "1").unwrap();
            let parts = |cookie: SetCookie| cookie.header_value().to_str().unwrap().matches(';').count();
            if let Ok(cookie) = cookie().path(&format!("/{path}")) {
                prop_assert_eq!(parts(cookie), 4);
            }
            if let Ok(cookie) = cookie().domain(&domain) {
                prop_assert_eq!(parts(cookie), 5);
            }
        }
    }
}
