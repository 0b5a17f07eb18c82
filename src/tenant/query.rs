use super::{error::TenantError, id::LimitKey, source::TenantName, source::TenantSource};
use crate::{
    http::head::Head,
    util::{error::ConfigError, form::Form},
};

/// Reads the tenant from a query parameter, decoded as in forms.
///
/// # Security
///
/// Callers control the query, so they can spend any tenant's budget.
///
/// Requests with a repeated parameter are rejected, however it is spelled, because
/// frameworks disagree about which one counts. So are queries with an invalid percent escape
/// or with bytes that are not UTF-8 in any parameter, because readers disagree about them,
/// too.
///
/// ```
/// use tollgate::{Head, TenantSource, tenant::QueryTenant};
///
/// let source = QueryTenant::new("tenant")?;
/// let request = http::Request::get("/orders?page=2&tenant=acme").body(()).unwrap();
/// assert_eq!(source.find(Head::of_request(&request)).unwrap().unwrap().as_bytes(), b"acme");
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct QueryTenant {
    name: Box<str>,
}

impl QueryTenant {
    /// Creates a source that reads the parameter `name`, given decoded.
    ///
    /// # Errors
    ///
    /// Returns an error if `name` is empty.
    pub fn new(name: impl Into<Box<str>>) -> Result<Self, ConfigError> {
        let name = name.into();
        ConfigError::refuse_if(name.is_empty(), "tenant parameter", "\"\"", "must have a name")?;
        Ok(Self { name })
    }
}

impl TenantSource for QueryTenant {
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        let form = Form::parse(head.uri().query().unwrap_or_default().as_bytes())?;
        Ok(form.only(&self.name)?.map(LimitKey::parse).transpose()?.map(TenantName::from))
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn find(uri: &str) -> Result<Option<LimitKey>, TenantError> {
        let request = Request::get(uri).body(()).unwrap();
        let found = QueryTenant::new("tenant").unwrap().find(Head::of_request(&request))?;
        found.map(|name| name.to_key()).transpose()
    }

    #[test]
    fn the_parameter_identifies_the_tenant_in_any_encoding() {
        for uri in
            ["/?tenant=acme", "/?a=1&tenant=acme&b=2", "/?&&tenant=%61cm%65", "/?%74enant=acme", "/?a+b=+&tenant=acme"]
        {
            assert_eq!(find(uri).unwrap().unwrap().as_str(), "acme", "{uri}");
        }
        assert_eq!(find("/?tenant=a=b").unwrap().unwrap().as_str(), "a=b");
    }

    #[test]
    fn a_query_without_the_parameter_has_no_tenant() {
        for uri in ["/", "/?", "/?page=2", "/?Tenant=acme", "/?tenants=acme", "/?x=tenant=acme", "/tenant=acme"] {
            assert_eq!(find(uri), Ok(None), "{uri}");
        }
    }

    #[test]
    fn a_repeated_parameter_is_refused_in_any_spelling() {
        for uri in ["/?tenant=acme&tenant=globex", "/?tenant=acme&%74enant=globex", "/?tenant&tenant=acme"] {
            assert!(find(uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn a_malformed_value_is_refused_and_does_not_count_as_absent() {
        for uri in ["/?tenant", "/?tenant=", "/?tenant=a+b", "/?tenant=a%20b", "/?tenant=%zz", "/?tenant=~anonymous"] {
            assert!(find(uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn a_query_with_any_malformed_parameter_is_refused() {
        for uri in ["/?tenant=acme&page=%zz", "/?page=%2&tenant=acme", "/?%=1&tenant=acme", "/?q=100%"] {
            assert!(find(uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn a_parameter_needs_a_name() {
        assert_eq!(QueryTenant::new("").unwrap_err().setting(), "tenant parameter");
    }
}
