use std::{fmt, sync::Arc};

use http::HeaderValue;

use super::{Or, Tenant};
use crate::{http::head::Head, util::form::FormError};

/// Finds the tenant of a request.
///
/// A source answers at once. Load data from a database into [`ApiKeys`](super::ApiKeys), or
/// put an asynchronous layer outside that stores the [`Tenant`] in the extensions for
/// [`ExtensionTenant`](super::ExtensionTenant).
///
/// Closures are sources too. Return `Ok(None)` if the request names no tenant, so that the
/// next source of a chain is asked. Use an `Arc` for a source that is chosen at run time (a
/// `Box` could be a closure, so it does not work):
///
/// ```
/// use std::sync::Arc;
/// use tollgate::{ApiKeys, ClientIp, Limiter, Quota, Quotas, RateLimitLayer, TenantSource};
///
/// # let by_address = true;
/// let chosen: Arc<dyn TenantSource> =
///     if by_address { Arc::new(ClientIp::peer()) } else { Arc::new(ApiKeys::new("x-api-key")?) };
/// let limiter = Limiter::memory(Quotas::new(Quota::per_minute(600)?));
/// let layer: RateLimitLayer = RateLimitLayer::new(chosen, limiter);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` finds no tenant in a request",
    note = "a closure needs its argument annotated: `|head: Head<'_>| -> Result<Option<Tenant>, TenantError>`"
)]
pub trait TenantSource: Send + Sync + 'static {
    /// The tenant of the request with this head; `None` where it names none.
    fn find(&self, head: Head<'_>) -> Result<Option<Tenant>, TenantError>;

    /// Asks the next source where this one finds no tenant; see [`Or`].
    fn or<S: TenantSource>(self, next: S) -> Or<Self, S>
    where
        Self: Sized,
    {
        Or::new(self, next)
    }
}

impl<F> TenantSource for F
where
    F: Fn(Head<'_>) -> Result<Option<Tenant>, TenantError> + Send + Sync + 'static,
{
    fn find(&self, head: Head<'_>) -> Result<Option<Tenant>, TenantError> {
        self(head)
    }
}

impl<S: TenantSource + ?Sized> TenantSource for Arc<S> {
    fn find(&self, head: Head<'_>) -> Result<Option<Tenant>, TenantError> {
        (**self).find(head)
    }
}

/// A fixed tenant, the same for every request.
impl TenantSource for Tenant {
    fn find(&self, _head: Head<'_>) -> Result<Option<Tenant>, TenantError> {
        Ok(Some(self.clone()))
    }
}

/// Why the tenant that a request names is not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantError {
    unknown: bool,
    detail: &'static str,
    challenge: &'static str,
}

impl TenantError {
    /// The name is malformed: the caller gets a 400 with this detail.
    pub const fn invalid(detail: &'static str) -> Self {
        Self { unknown: false, detail, challenge: "" }
    }

    /// The credential that should name the tenant is not known: the caller gets a 401 with this detail.
    pub const fn unknown(detail: &'static str) -> Self {
        Self { unknown: true, detail, challenge: "ApiKey" }
    }

    /// Sets the `WWW-Authenticate` header of the 401, such as
    /// `Bearer error="invalid_token"`. Defaults to `ApiKey`.
    pub const fn challenge(mut self, challenge: &'static str) -> Self {
        self.challenge = challenge;
        self
    }

    /// Returns whether the request had a credential that is not known.
    pub fn is_unknown(&self) -> bool {
        self.unknown
    }

    /// Returns the `WWW-Authenticate` header of a 401.
    pub(crate) fn asks_for(&self) -> Option<HeaderValue> {
        // every 401 needs a challenge, even if the given one is not usable
        let given = || match HeaderValue::from_str(self.challenge.trim_ascii()) {
            Ok(given) if !given.is_empty() => given,
            _ => HeaderValue::from_static("ApiKey"),
        };
        self.unknown.then(given)
    }

    /// Returns the reason in words. It repeats nothing of the request, so callers may see it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_401_has_a_challenge_whatever_was_given_and_a_400_has_none() {
        let asks_for = |challenge| TenantError::unknown("no").challenge(challenge).asks_for().unwrap();
        assert_eq!(asks_for("Bearer error=\"invalid_token\""), "Bearer error=\"invalid_token\"");
        for bad in ["", " ", "Bearer\nx: y", "Bearer\rx", "\0", "\t"] {
            assert_eq!(asks_for(bad), "ApiKey", "{bad:?}");
        }
        assert_eq!(TenantError::unknown("no").asks_for().unwrap(), "ApiKey");
        assert_eq!(TenantError::invalid("no").challenge("Bearer").asks_for(), None);
    }
}
