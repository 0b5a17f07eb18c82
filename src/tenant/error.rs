use std::borrow::Cow;

use http::{HeaderName, HeaderValue};

use crate::util::{error::ConfigError, form::FormError};

/// The error of a request that names no tenant, or one that can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantError {
    kind: TenantErrorKind,
    detail: Cow<'static, str>,
    /// Boxed, because few errors have their own, and results with an error are moved often.
    challenge: Option<Box<HeaderValue>>,
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
    /// The credential can't be checked for now.
    Unavailable,
    /// The tenant must be looked up first.
    Pending,
    /// The server does not have what it needs.
    Internal,
}

impl TenantError {
    pub(super) const NO_TENANT: Self = Self::invalid("no tenant could be determined for this request");
    pub(super) const RESERVED: Self = Self::invalid("the tenant name is reserved");

    /// Creates the error of a malformed name: the caller gets a 400 with this detail.
    pub const fn invalid(detail: &'static str) -> Self {
        Self::with_kind(TenantErrorKind::Invalid, detail)
    }

    /// Creates the error of an unknown credential: the caller gets a 401 with this detail.
    pub const fn unknown(detail: &'static str) -> Self {
        Self::with_kind(TenantErrorKind::Unknown, detail)
    }

    /// Creates the error of a missing credential: the caller gets a 401 with this detail.
    pub const fn missing(detail: &'static str) -> Self {
        Self::with_kind(TenantErrorKind::Missing, detail)
    }

    /// Creates the error of a server that can't determine tenants: the caller gets a 500 with this detail, and a warning is
    /// logged.
    pub const fn internal(detail: &'static str) -> Self {
        Self::with_kind(TenantErrorKind::Internal, detail)
    }

    /// Creates the error of a credential that can't be checked at the moment: the caller gets a 503 with this detail.
    pub const fn unavailable(detail: &'static str) -> Self {
        Self::with_kind(TenantErrorKind::Unavailable, detail)
    }

    /// Creates the error of a tenant that must be [looked up](super::TenantSource::look_up). If the layer can't wait
    /// for that, the request gets a 500.
    pub const fn pending() -> Self {
        let detail = "the tenant must be looked up, and only a rate limit can wait for it";
        Self::with_kind(TenantErrorKind::Pending, detail)
    }

    const fn with_kind(kind: TenantErrorKind, detail: &'static str) -> Self {
        Self { kind, detail: Cow::Borrowed(detail), challenge: None }
    }

    /// Fills in the name of the header that was expected, for `{}` in the detail.
    pub(super) fn in_header(self, name: &HeaderName) -> Self {
        Self { detail: Cow::Owned(self.detail.replacen("{}", name.as_str(), 1)), ..self }
    }

    /// Sets the `WWW-Authenticate` header of the 401, such as
    /// `Basic realm="api"`. Defaults to `ApiKey`.
    ///
    /// # Errors
    ///
    /// Returns an error unless `challenge` is visible ASCII that begins with the name of a scheme. Set it once and
    /// clone the error, rather than setting it for each request.
    pub fn challenge(self, challenge: &str) -> Result<Self, ConfigError> {
        let begins_with_scheme = challenge.starts_with(|first: char| first.is_ascii_alphanumeric());
        match HeaderValue::from_str(challenge) {
            Ok(value) if challenge.is_ascii() && begins_with_scheme => Ok(self.asking(value)),
            _ => Err(ConfigError::new("challenge", challenge, "must be visible ASCII that begins with a scheme")),
        }
    }

    /// Sets the challenge of the 401 to one that is known to be valid.
    pub(crate) fn asking(self, challenge: HeaderValue) -> Self {
        Self { challenge: Some(Box::new(challenge)), ..self }
    }

    /// Returns whether the request has an unknown credential.
    pub fn is_unknown(&self) -> bool {
        self.kind == TenantErrorKind::Unknown
    }

    /// Returns whether the server can't determine the tenant of any request now.
    #[cfg(feature = "session")]
    pub(crate) fn is_of_server(&self) -> bool {
        self.kind >= TenantErrorKind::Unavailable
    }

    pub(crate) fn kind(&self) -> TenantErrorKind {
        self.kind
    }

    /// Returns the challenge of a 401.
    pub(crate) fn asks_for(&self) -> Option<HeaderValue> {
        // every 401 has a challenge
        let own = || self.challenge.as_deref().cloned().unwrap_or(HeaderValue::from_static("ApiKey"));
        matches!(self.kind, TenantErrorKind::Unknown | TenantErrorKind::Missing).then(own)
    }

    /// Returns the reason. It is safe to send, because it contains no part of the request.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns the detail for a response.
    pub(crate) fn owned_detail(&self) -> Cow<'static, str> {
        self.detail.clone()
    }
}

impl From<FormError> for TenantError {
    fn from(error: FormError) -> Self {
        Self::invalid(error.detail())
    }
}

crate::util::fmt::text_error!(TenantError, |own| own.detail());
