use http::{HeaderMap, HeaderName, HeaderValue};

use super::{error::TenantError, source::TenantName, source::TenantSource};
use crate::{http::head::Head, util::error::ConfigError};

/// Reads the tenant from a request header.
///
/// # Security
///
/// Callers control this header, so they can spend any tenant's budget. Use it only behind a
/// trusted proxy that sets the header and strips the caller's own.
///
/// Requests with a repeated header, or with a comma in its value (two headers joined by a
/// proxy), are rejected as ambiguous.
///
/// ```
/// use tollgate::{Head, TenantSource, tenant::HeaderTenant};
///
/// let source = HeaderTenant::new("x-tenant")?;
/// let request = http::Request::get("/").header("x-tenant", "acme").body(()).unwrap();
/// assert_eq!(source.find(Head::of_request(&request)).unwrap().unwrap().as_bytes(), b"acme");
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct HeaderTenant {
    name: HeaderName,
}

impl HeaderTenant {
    /// Creates a source that reads the tenant from the header `name`.
    ///
    /// # Errors
    ///
    /// Returns an error if `name` is not a valid header name.
    pub fn new(name: impl AsRef<str>) -> Result<Self, ConfigError> {
        Ok(Self { name: header_name("tenant header", name.as_ref())? })
    }
}

impl TenantSource for HeaderTenant {
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        let Some(value) = only(head.headers(), &self.name)? else { return Ok(None) };
        TenantName::borrowed(value.as_bytes()).map(Some)
    }
}

/// Returns the value of a header that may appear only once.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, TenantError> {
    // one look is enough if no header at all is repeated
    if headers.len() == headers.keys_len() {
        return Ok(headers.get(name));
    }
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => Err(TenantError::invalid("the header {} appears more than once").in_header(name)),
    }
}

pub(super) fn header_name(setting: &'static str, name: &str) -> Result<HeaderName, ConfigError> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| ConfigError::new(setting, name, "is not a valid header name"))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::tenant::id::LimitKey;

    fn find(values: &[&str]) -> Result<Option<LimitKey>, TenantError> {
        let mut request = Request::new(());
        for value in values {
            request.headers_mut().append("x-tenant", HeaderValue::from_str(value).unwrap());
        }
        let found = HeaderTenant::new("X-Tenant").unwrap().find(Head::of_request(&request))?;
        found.map(|name| name.to_key()).transpose()
    }

    #[test]
    fn the_header_names_the_tenant() {
        assert_eq!(find(&["acme"]).unwrap().unwrap().as_str(), "acme");
        assert_eq!(find(&[]), Ok(None));
    }

    #[test]
    fn a_repeated_header_is_rejected() {
        for values in [&["acme", "globex"][..], &["acme", "acme"], &["acme,globex"], &["acme, globex"], &["", "acme"]] {
            assert!(!find(values).unwrap_err().is_unknown(), "{values:?}");
        }
    }

    #[test]
    fn a_malformed_name_is_refused_and_does_not_count_as_absent() {
        for value in ["", " ", "a b", "~anonymous", "ip:192.0.2.1"] {
            assert!(find(&[value]).is_err(), "{value:?}");
        }
    }

    #[test]
    fn a_bad_header_name_is_a_config_error_that_names_it() {
        for name in ["", "x tenant", "x-ténant", "x:y"] {
            assert_eq!(HeaderTenant::new(name).unwrap_err().value(), name);
        }
    }
}
