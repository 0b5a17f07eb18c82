use std::fmt;

use http::HeaderValue;

use crate::util::form::FormError;

/// The error of a request that names no tenant, or one that can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantError {
    kind: TenantErrorKind,
    detail: &'static str,
    challenge: &'static str,
}

/// The causes of a [`TenantError`]. If two sources of a chain find no tenant, the cause further down this list is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TenantErrorKind {
    /// The name is malformed, or missing.
    Invalid,
    /// The credential is not known.
    Unknown,
    /// The credential is missing.
    Missing,
    /// The server does not have what it needs.
    Internal,
}

impl TenantError {
    pub(super) const NO_TENANT: Self = Self::invalid("no tenant could be determined for this request");
    pub(super) const RESERVED: Self = Self::invalid("the tenant name is reserved");

    /// Creates the error of a malformed name: the caller gets a 400 with this detail.
    pub const fn invalid(detail: &'static str) -> Self {
        Self { kind: TenantErrorKind::Invalid, detail, challenge: "" }
    }

    /// Creates the error of an unknown credential: the caller gets a 401 with this detail.
    pub const fn unknown(detail: &'static str) -> Self {
        Self { kind: TenantErrorKind::Unknown, detail, challenge: "ApiKey" }
    }

    /// Creates the error of a missing credential: the caller gets a 401 with this detail.
    pub const fn missing(detail: &'static str) -> Self {
        Self { kind: TenantErrorKind::Missing, detail, challenge: "ApiKey" }
    }

    /// Creates the error of a server that can't determine tenants: the caller gets a 500 with this detail, and a warning is
    /// logged.
    pub const fn internal(detail: &'static str) -> Self {
        Self { kind: TenantErrorKind::Internal, detail, challenge: "" }
    }

    /// Sets the `WWW-Authenticate` header of the 401, such as
    /// `Bearer error="invalid_token"`. Defaults to `ApiKey`.
    pub const fn challenge(mut self, challenge: &'static str) -> Self {
        self.challenge = challenge;
        self
    }

    /// Returns whether the request has an unknown credential.
    pub fn is_unknown(&self) -> bool {
        self.kind == TenantErrorKind::Unknown
    }

    pub(crate) fn kind(&self) -> TenantErrorKind {
        self.kind
    }

    /// Returns the challenge of a 401.
    pub(crate) fn asks_for(&self) -> Option<HeaderValue> {
        // every 401 has a challenge, even if the given one is not a valid header
        let given = || match HeaderValue::from_str(self.challenge.trim_ascii()) {
            Ok(given) if !given.is_empty() => given,
            _ => HeaderValue::from_static("ApiKey"),
        };
        matches!(self.kind, TenantErrorKind::Unknown | TenantErrorKind::Missing).then(given)
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
