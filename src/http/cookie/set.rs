use std::{fmt, time::Duration};

use http::{HeaderMap, HeaderValue, header};
use zeroize::Zeroizing;

use super::is_value;
use crate::util::{clock::ceil_seconds, error::ConfigError, scan::is_token};

/// The maximum length of name and value together in bytes. Browsers drop longer cookies.
pub const MAX_COOKIE_BYTES: usize = 4096;
/// The maximum length of an attribute in bytes. Browsers ignore longer ones.
const MAX_ATTRIBUTE_BYTES: usize = 1024;

/// Whether a browser sends a cookie with cross-site requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// Never sends the cookie with cross-site requests.
    Strict,
    /// Sends the cookie only if the user follows a link from another site.
    Lax,
    /// Always sends the cookie. Only your own check of `Origin` then prevents other sites from
    /// acting on behalf of the user.
    None,
}

/// A valid cookie for a `Set-Cookie` header.
///
/// By default it is `Secure`, `HttpOnly`, `SameSite=Lax` and `Path=/`, and lasts until the browser
/// is closed. Names with a prefix are held to the rules of browsers: `__Host-` requires `Secure`,
/// `Path=/` and no domain; `__Secure-` requires `Secure`.
///
/// `Debug` hides the value, and its memory is wiped on drop.
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
///
/// With the feature `axum`, handlers can return it in front of a response: `(cookie, Redirect::to("/"))`.
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
    /// Creates a cookie.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is not a token, if the value has characters that RFC 6265bis
    /// §4.1.1 does not allow, or if both together are longer than [`MAX_COOKIE_BYTES`]. The error
    /// does not contain the value.
    pub fn new(name: &str, value: &str) -> Result<Self, ConfigError> {
        if !is_token(name.as_bytes()) {
            return Err(ConfigError::new("cookie name", name, "must be a token of RFC 9110"));
        }
        if !is_value(value.as_bytes()) {
            return Err(ConfigError::new("cookie value", "it", "has a character that is not allowed in a cookie"));
        }
        if name.len() + value.len() > MAX_COOKIE_BYTES {
            return Err(ConfigError::new("cookie value", "it", "must be at most 4096 bytes together with the name"));
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

    /// Creates a cookie that deletes the cookie with this name. Set the path and domain that the
    /// original has.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is not a token.
    pub fn removal(name: &str) -> Result<Self, ConfigError> {
        Ok(Self::new(name, "")?.max_age(Duration::ZERO))
    }

    /// Sets the path below which the browser sends the cookie. It is not a security boundary:
    /// scripts on other paths of the host can still read the cookie.
    ///
    /// # Errors
    ///
    /// Returns an error if the path is invalid, or is not `/` for a `__Host-` name.
    pub fn path(mut self, path: &str) -> Result<Self, ConfigError> {
        if !path.starts_with('/') || !is_attribute(path) {
            return Err(ConfigError::new("cookie path", path, "must start with / and contain no semicolon"));
        }
        if self.is_host_bound() && path != "/" {
            return Err(ConfigError::new("cookie path", path, "must be / for a __Host- cookie"));
        }
        self.path = path.to_owned();
        Ok(self)
    }

    /// Sends the cookie to all hosts of this domain, which lets each of them read it.
    ///
    /// # Errors
    ///
    /// Returns an error if the domain is invalid, or if the name starts with `__Host-`.
    pub fn domain(mut self, domain: &str) -> Result<Self, ConfigError> {
        let is_name = domain.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
        if !is_name || !domain.starts_with(|first: char| first.is_ascii_alphanumeric()) || !is_attribute(domain) {
            return Err(ConfigError::new("cookie domain", domain, "must be a domain name"));
        }
        if self.is_host_bound() {
            return Err(ConfigError::new("cookie domain", domain, "is not allowed for a __Host- cookie"));
        }
        self.domain = Some(domain.to_owned());
        Ok(self)
    }

    /// Sets how long the browser keeps the cookie, rounded up to seconds. Zero deletes it.
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = Some(ceil_seconds(age));
        self
    }

    /// Sets whether the cookie is sent with cross-site requests.
    ///
    /// # Errors
    ///
    /// Returns an error for [`SameSite::None`] if the cookie is not `Secure`.
    pub fn same_site(mut self, same_site: SameSite) -> Result<Self, ConfigError> {
        if same_site == SameSite::None && !self.secure {
            return Err(ConfigError::new("cookie same-site", "None", "requires Secure"));
        }
        self.same_site = same_site;
        Ok(self)
    }

    /// Removes `Secure`, so that the cookie is also sent over plain HTTP, where anyone on the
    /// network can read it. Use it only for development on a loopback address.
    ///
    /// # Errors
    ///
    /// Returns an error if the name has a prefix or the `SameSite` setting requires `Secure`.
    pub fn insecure_plain_http(mut self) -> Result<Self, ConfigError> {
        if self.is_host_bound() || has_prefix(&self.name, "__Secure-") {
            return Err(ConfigError::new("cookie name", &self.name, "has a prefix that requires Secure"));
        }
        if self.same_site == SameSite::None {
            return Err(ConfigError::new("cookie same-site", "None", "requires Secure"));
        }
        self.secure = false;
        Ok(self)
    }

    /// Removes `HttpOnly`, so that scripts of the page can read the cookie. An injected script can
    /// then steal it.
    pub fn insecure_script_access(mut self) -> Self {
        self.http_only = false;
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the value of a `Set-Cookie` header, marked as sensitive.
    #[expect(clippy::expect_used, reason = "the constructor admits only visible ASCII and spaces")]
    pub fn header_value(&self) -> HeaderValue {
        let text = Zeroizing::new(self.text());
        let mut value = HeaderValue::from_str(&text).expect("a cookie is a valid header value");
        value.set_sensitive(true);
        value
    }

    /// Appends a `Set-Cookie` header and keeps existing ones.
    pub fn append_to(&self, headers: &mut HeaderMap) {
        headers.append(header::SET_COOKIE, self.header_value());
    }

    fn text(&self) -> String {
        let mut text = [&self.name, "=", self.value.as_str(), "; Path=", &self.path].concat();
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

/// Compares a prefix as browsers do, ignoring case.
fn has_prefix(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

fn is_attribute(value: &str) -> bool {
    value.len() <= MAX_ATTRIBUTE_BYTES && value.bytes().all(|byte| matches!(byte, 0x20..=0x7e) && byte != b';')
}

/// Adds the cookie to the response: `(cookie, Redirect::to("/"))`.
#[cfg(feature = "axum")]
impl axum_core::response::IntoResponseParts for SetCookie {
    type Error = std::convert::Infallible;

    fn into_response_parts(
        self,
        mut response: axum_core::response::ResponseParts,
    ) -> Result<axum_core::response::ResponseParts, Self::Error> {
        self.append_to(response.headers_mut());
        Ok(response)
    }
}
