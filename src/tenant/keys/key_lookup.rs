//! [`KeyLookup`]: API keys that are looked up elsewhere, for example in a database.

use std::{fmt, future::Future, pin::Pin};

use zeroize::Zeroizing;

use crate::{tenant::id::Tenant, util::secret::SecretDigest};

/// Looks up the tenants of API keys, for example in a database. [`CachedKeys`](super::CachedKeys) caches the answers.
///
/// Functions and closures implement it:
///
/// ```
/// use tollgate::{Tenant, tenant::{CachedKeys, PresentedKey, TenantError}};
///
/// async fn tenant_of(key: PresentedKey) -> Result<Option<Tenant>, TenantError> {
///     // SELECT tenant FROM api_keys WHERE sha256 = $1
///     let _ = key.digest().as_bytes();
///     Tenant::parse("acme").map(Some)
/// }
///
/// let keys = CachedKeys::new("x-api-key", tenant_of)?;
/// # let _ = keys;
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
pub trait KeyLookup: Send + Sync + 'static {
    /// Why a lookup failed. It is logged and never sent to callers, so it must not contain the key.
    type Error: fmt::Display;

    /// Returns the tenant of a key, or `None` if the key is unknown.
    ///
    /// A caller may have made up the key. A lookup is dropped at the [deadline](super::CachedKeysBuilder::deadline). In
    /// a tokio runtime, it has a task of its own, and goes on even if its caller disconnects.
    fn tenant(&self, key: PresentedKey) -> impl Future<Output = Result<Option<Tenant>, Self::Error>> + Send;
}

impl<L, F, E> KeyLookup for L
where
    L: Fn(PresentedKey) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Option<Tenant>, E>> + Send,
    E: fmt::Display,
{
    type Error = E;

    fn tenant(&self, key: PresentedKey) -> impl Future<Output = Result<Option<Tenant>, E>> + Send {
        self(key)
    }
}

/// An API key that a caller presents. It has 1 to 512 bytes, and is wiped from memory when it is dropped.
pub struct PresentedKey {
    key: Zeroizing<Box<[u8]>>,
    digest: SecretDigest,
}

impl PresentedKey {
    pub(super) fn new(key: &[u8], digest: SecretDigest) -> Self {
        Self { key: Zeroizing::new(key.into()), digest }
    }

    /// Returns the SHA-256 digest of the key. Store digests instead of keys, and look tenants up by them.
    pub fn digest(&self) -> &SecretDigest {
        &self.digest
    }

    /// Returns the key, for example to look up a keyed hash of it.
    pub fn expose(&self) -> &[u8] {
        &self.key
    }
}

crate::util::fmt::opaque_debug!(PresentedKey);

pub(super) type LookedUp = Result<Option<Tenant>, String>;

/// A [`KeyLookup`] of any type.
pub(super) trait AnyKeyLookup: Send + Sync + 'static {
    fn look_up(&self, key: PresentedKey) -> Pin<Box<dyn Future<Output = LookedUp> + Send + '_>>;
}

impl<L: KeyLookup> AnyKeyLookup for L {
    fn look_up(&self, key: PresentedKey) -> Pin<Box<dyn Future<Output = LookedUp> + Send + '_>> {
        let found = self.tenant(key);
        Box::pin(async move { found.await.map_err(|error| error.to_string()) })
    }
}
