use std::fmt;

use http::HeaderValue;

use crate::util::form::FormError;

/// The error of a request that names a tenant that can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantError {
    unknown: bool,
    detail: &'static str,
    challenge: &'static str,
}

impl TenantError {
    pub(super) const RESERVED: Self = Self::invalid("the tenant name is reserved");

    /// Creates the error of a malformed name: the caller gets a 400 with this detail.
    pub const fn invalid(detail: &'static str) -> Self {
        Self { unknown: false, detail, challenge: "" }
    }

    /// Creates the error of an unknown credential: the caller gets a 401 with this detail.
    pub const fn unknown(detail: &'static str) -> Self {
        Self { unknown: true, detail, challenge: "ApiKey" }
    }

    /// Sets the `WWW-Authenticate` header of the 401, such as
    /// `Bearer error="invalid_token"`. Defaults to `ApiKey`.
    pub const fn challenge(mut self, challenge: &'static str) -> Self {
        self.challenge = challenge;
        self
    }

    /// Returns whether the request has an unknown credential.
    pub fn is_unknown(&self) -> bool {
        self.unknown
    }

    /// Returns the challenge of a 401.
    pub(crate) fn asks_for(&self) -> Option<HeaderValue> {
        // every 401 has a challenge, even if the given one is not a valid header
        let given = || match HeaderValue::from_str(self.challenge.trim_ascii()) {
            Ok(given) if !given.is_empty() => given,
            _ => HeaderValue::from_static("ApiKey"),
        };
        self.unknown.then(given)
    }

    /// Returns the reason. It is safe to send, because it contains no part of the request.
    pub fn detail(&self) -> &'static str {
        self.detail
    }
}

impl From<FormError> for TenantError {
    fn from(error: FormError) -> Self {
        Self::invalid(error.detail())
    }
}

impl fmt::Display for TenantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.detail)
    }
}

impl std::error::Error for TenantError {}
