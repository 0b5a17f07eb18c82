use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};
use zeroize::Zeroizing;

use super::is_value;
use crate::util::{clock::ceil_seconds, error::ConfigError, scan::is_token};

/// The maximum length of name and value together in bytes. Browsers drop longer cookies.
pub const MAX_COOKIE_BYTES: usize = 4096;

/// A valid cookie for a `Set-Cookie` header.
///
/// It is `Secure`, `HttpOnly`, `SameSite=Lax` and `Path=/`, and lasts until the browser is closed by default. Names with the
/// prefix `__Host-` or `__Secure-` require `Secure`.
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
    max_age: Option<u64>,
    secure: bool,
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
        ConfigError::refuse_if(!is_token(name.as_bytes()), "cookie name", name, "must be a token of RFC 9110")?;
        let refuse_value = |is_refused, reason| ConfigError::refuse_if(is_refused, "cookie value", "it", reason);
        refuse_value(!is_value(value.as_bytes()), "has a character that is not allowed in a cookie")?;
        let is_long = name.len() + value.len() > MAX_COOKIE_BYTES;
        refuse_value(is_long, "must be at most 4096 bytes together with the name")?;
        Ok(Self { name: name.to_owned(), value: Zeroizing::new(value.to_owned()), max_age: None, secure: true })
    }

    /// Creates a cookie that deletes the cookie with this name.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is not a token.
    pub fn removal(name: &str) -> Result<Self, ConfigError> {
        Ok(Self::new(name, "")?.max_age(Duration::ZERO))
    }

    /// Sets how long the browser keeps the cookie, rounded up to seconds. Zero deletes it.
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = Some(ceil_seconds(age));
        self
    }

    /// Removes `Secure`, so that the cookie is also sent over plain HTTP, where anyone on the
    /// network can read it. Use it only for development on a loopback address.
    ///
    /// # Errors
    ///
    /// Returns an error if the name has a prefix that requires `Secure`.
    pub fn insecure_plain_http(mut self) -> Result<Self, ConfigError> {
        let needs_secure = ["__Host-", "__Secure-"].iter().any(|prefix| has_prefix(&self.name, prefix));
        ConfigError::refuse_if(needs_secure, "cookie name", &self.name, "has a prefix that requires Secure")?;
        self.secure = false;
        Ok(self)
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
        let max_age = self.max_age.map(|seconds| format!("; Max-Age={seconds}")).unwrap_or_default();
        let secure = if self.secure { "; Secure" } else { "" };
        let (name, value) = (self.name.as_str(), self.value.as_str());
        [name, "=", value, "; Path=/", max_age.as_str(), secure, "; HttpOnly; SameSite=Lax"].concat()
    }
}

crate::util::fmt::debug_fields!(SetCookie { name });

/// Compares a prefix as browsers do, ignoring case.
fn has_prefix(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
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
