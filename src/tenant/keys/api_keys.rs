use std::sync::Arc;

use dashmap::DashMap;
use foldhash::fast::RandomState;
use http::{HeaderName, HeaderValue};

use crate::{
    http::head::Head,
    tenant::{
        error::TenantError,
        header::{header_name, only},
        id::Tenant,
        source::{TenantName, TenantSource},
    },
    util::{error::ConfigError, secret::SecretDigest},
};

/// Finds the tenant by an API key in a header, in a live table.
///
/// A request without the header names no tenant, and gets a 401 if no other source in the chain finds one. A key that
/// is not in the table is rejected with a 401, so that a mistyped key is never served as anonymous.
///
/// The table stores a SHA-256 digest of each key, never the key, and looks tenants up by digest.
/// The duration of a lookup therefore reveals nothing about the keys. Clones share the table, and a
/// change applies from the next request on. Create keys at random, because a digest does not
/// protect a key that can be guessed.
///
/// ```
/// use tollgate::{ApiKeys, Head, TenantSource};
///
/// let keys = ApiKeys::new("x-api-key")?.key("demo-acme-key", "acme")?;
/// let request = http::Request::get("/").header("x-api-key", "demo-acme-key").body(()).unwrap();
/// assert_eq!(keys.find(Head::of_request(&request)).unwrap().unwrap().as_bytes(), b"acme");
///
/// keys.remove("demo-acme-key");
/// assert!(keys.find(Head::of_request(&request)).unwrap_err().is_unknown());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct ApiKeys {
    header: HeaderName,
    tenants: Arc<DashMap<[u8; 32], Tenant, RandomState>>,
}

impl ApiKeys {
    /// The maximum length of a key in bytes.
    pub const MAX_LEN: usize = 512;

    /// Creates an empty table for keys in the header `header`.
    ///
    /// # Errors
    ///
    /// Returns an error if `header` is not a valid header name.
    pub fn new(header: impl AsRef<str>) -> Result<Self, ConfigError> {
        Ok(Self { header: header_name("API key header", header.as_ref())?, tenants: Arc::default() })
    }

    /// Adds a key of the tenant with this name.
    ///
    /// # Errors
    ///
    /// Returns an error if the key or the name is not valid, or if the table has the key already.
    pub fn key(self, key: impl AsRef<[u8]>, tenant: impl AsRef<str>) -> Result<Self, ConfigError> {
        let name = tenant.as_ref();
        let tenant = Tenant::parse(name)
            .map_err(|error| ConfigError::new("tenant of an API key", name, error.owned_detail()))?;
        ConfigError::refuse_if(self.tenant_of(&key).is_some(), "tenant of an API key", name, "the key appears twice")?;
        self.insert(key, tenant)?;
        Ok(self)
    }

    /// Adds or moves a key, from the next request on, and returns the tenant that had it before. A key has 1 to 512
    /// visible ASCII characters.
    ///
    /// # Errors
    ///
    /// Returns an error if the key is not valid.
    pub fn insert(&self, key: impl AsRef<[u8]>, tenant: Tenant) -> Result<Option<Tenant>, ConfigError> {
        let key = key.as_ref();
        let is_refused = !is_sized(key) || !key.iter().all(u8::is_ascii_graphic);
        // the value is a secret
        ConfigError::refuse_if(is_refused, "API key", "(hidden)", "must be 1 to 512 visible ASCII characters")?;
        Ok(self.tenants.insert(digest(key), tenant))
    }

    /// Adds or moves a key like [`insert`](Self::insert), given its SHA-256 digest, so that an application can store
    /// digests and load them when it starts.
    ///
    /// ```
    /// use tollgate::{ApiKeys, SecretDigest, Tenant};
    ///
    /// let keys = ApiKeys::new("x-api-key")?;
    /// keys.insert_digest(SecretDigest::of_secret("demo-acme-key"), Tenant::parse("acme").unwrap());
    /// assert_eq!(keys.tenant_of("demo-acme-key").unwrap().as_str(), "acme");
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn insert_digest(&self, digest: SecretDigest, tenant: Tenant) -> Option<Tenant> {
        self.tenants.insert(*digest.as_bytes(), tenant)
    }

    /// Removes a key, from the next request on, and returns the tenant that had it.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Option<Tenant> {
        self.tenants.remove(&digest(key.as_ref())).map(|(_, tenant)| tenant)
    }

    /// Returns the tenant that has this key.
    pub fn tenant_of(&self, key: impl AsRef<[u8]>) -> Option<Tenant> {
        let key = key.as_ref();
        if !is_sized(key) {
            return None;
        }
        self.tenants.get(&digest(key)).map(|tenant| tenant.clone())
    }
}

fn is_sized(key: &[u8]) -> bool {
    (1..=ApiKeys::MAX_LEN).contains(&key.len())
}

/// Returns the key of a request.
pub(super) fn key_of_request<'a>(head: Head<'a>, header: &HeaderName) -> Result<Option<&'a [u8]>, TenantError> {
    match only(head.headers(), header)?.map(HeaderValue::as_bytes) {
        Some(key) if !is_sized(key) => {
            let error = TenantError::invalid("the API key in the header {} is empty or has more than 512 bytes");
            Err(error.in_header(header))
        }
        key => Ok(key),
    }
}

pub(super) fn unknown_key(header: &HeaderName) -> TenantError {
    TenantError::unknown("the API key in the header {} is unknown").in_header(header)
}

pub(super) fn missing_key(header: &HeaderName) -> TenantError {
    TenantError::missing("the API key is missing: send it in the header {}").in_header(header)
}

fn digest(key: &[u8]) -> [u8; 32] {
    *SecretDigest::of_secret(key).as_bytes()
}

impl TenantSource for ApiKeys {
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        let Some(key) = key_of_request(head, &self.header)? else { return Ok(None) };
        let tenant = self.tenant_of(key).ok_or_else(|| unknown_key(&self.header))?;
        Ok(Some(tenant.into()))
    }

    fn missing(&self, _: Head<'_>) -> TenantError {
        missing_key(&self.header)
    }
}

crate::util::fmt::debug_fields!(ApiKeys, |own| header: own.header, keys: own.tenants.len());

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn keys() -> ApiKeys {
        ApiKeys::new("x-api-key")
            .unwrap()
            .key("demo-acme-key", "acme")
            .unwrap()
            .key("demo-globex-key", "globex")
            .unwrap()
    }

    fn find(keys: &ApiKeys, values: &[&str]) -> Result<Option<Tenant>, TenantError> {
        let mut request = Request::new(());
        for value in values {
            request.headers_mut().append("x-api-key", HeaderValue::from_str(value).unwrap());
        }
        Ok(keys.find(Head::of_request(&request))?.map(|name| name.to_tenant().unwrap()))
    }

    #[test]
    fn a_key_identifies_its_tenant_and_a_missing_key_identifies_no_tenant() {
        assert_eq!(find(&keys(), &["demo-acme-key"]).unwrap().unwrap().as_str(), "acme");
        assert_eq!(find(&keys(), &["demo-globex-key"]).unwrap().unwrap().as_str(), "globex");
        assert_eq!(find(&keys(), &[]), Ok(None));
    }

    #[test]
    fn an_unknown_key_is_unknown_and_a_malformed_one_invalid() {
        let huge = "x".repeat(ApiKeys::MAX_LEN + 1);
        for value in ["demo-acme-ke", "demo-acme-key2", "DEMO-ACME-KEY", "demo-acme-key ", &huge[1..]] {
            assert!(find(&keys(), &[value]).unwrap_err().is_unknown(), "{value}");
        }
        for values in [&[""][..], &[&huge], &["demo-acme-key", "demo-acme-key"], &["demo-acme-key", "nobody"]] {
            assert!(!find(&keys(), values).unwrap_err().is_unknown(), "{values:?}");
        }
    }

    #[test]
    fn an_error_names_the_header_and_not_its_value() {
        let text = |values: &[&str]| find(&keys(), values).unwrap_err().to_string();
        let nothing = Request::new(());
        assert_eq!(
            keys().missing(Head::of_request(&nothing)).to_string(),
            "the API key is missing: send it in the header x-api-key"
        );
        assert_eq!(text(&["s3cret"]), "the API key in the header x-api-key is unknown");
        assert_eq!(text(&[""]), "the API key in the header x-api-key is empty or has more than 512 bytes");
        assert_eq!(text(&["s3cret", "s3cret"]), "the header x-api-key appears more than once");
    }

    #[test]
    fn a_change_reaches_every_clone_at_once() {
        let keys = keys();
        let clone = keys.clone();
        assert_eq!(keys.insert("new", Tenant::parse("acme").unwrap()), Ok(None));
        assert_eq!(clone.tenant_of("new").unwrap().as_str(), "acme");
        assert_eq!(keys.insert("new", Tenant::parse("globex").unwrap()).unwrap().unwrap().as_str(), "acme");
        assert_eq!(clone.remove("new").unwrap().as_str(), "globex");
        assert_eq!(keys.tenant_of("new"), None);
        assert_eq!(keys.remove("new"), None);
    }

    #[test]
    fn neither_debug_nor_an_error_shows_a_key() {
        let keys = keys();
        assert_eq!(format!("{keys:?}"), "ApiKeys { header: \"x-api-key\", keys: 2, .. }");
        for (key, tenant) in [("s3cret\n", "acme"), ("s3cret key", "acme"), ("s3cret", "no tenant")] {
            let error = keys.clone().key(key, tenant).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_repeated_key_is_a_config_error_and_the_first_one_stays() {
        let keys = keys();
        assert_eq!(keys.clone().key("demo-acme-key", "globex").unwrap_err().value(), "globex");
        assert_eq!(keys.tenant_of("demo-acme-key").unwrap().as_str(), "acme");
    }

    #[test]
    fn a_key_that_no_header_can_contain_is_a_config_error() {
        let huge = "x".repeat(ApiKeys::MAX_LEN + 1);
        for key in ["", " ", "a b", "é", "a\0", &huge] {
            assert_eq!(keys().key(key, "acme").unwrap_err().setting(), "API key");
        }
        assert!(keys().key(&huge[1..], "acme").is_ok());
        assert_eq!(keys().tenant_of(huge), None);
        assert_eq!(ApiKeys::new("x api key").unwrap_err().value(), "x api key");
    }
}
