use std::{fmt, time::Duration};

use http::{HeaderMap, HeaderValue, header};
use zeroize::Zeroizing;

use super::is_value;
use crate::util::{clock::ceil_seconds, error::ConfigError, scan::is_token};

/// The most bytes that the name and the value of a cookie may have together:
/// browsers drop what is longer.
pub const MAX_COOKIE_BYTES: usize = 4096;
/// Browsers ignore an attribute that is longer.
const MAX_ATTRIBUTE_BYTES: usize = 1024;

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
        self.max_age = Some(ceil_seconds(age));
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

fn is_attribute(value: &str) -> bool {
    value.len() <= MAX_ATTRIBUTE_BYTES && value.bytes().all(|byte| matches!(byte, 0x20..=0x7e) && byte != b';')
}
