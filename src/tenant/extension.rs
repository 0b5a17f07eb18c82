use std::{any::type_name, fmt};

use http::Extensions;

use super::{
    error::TenantError,
    id::Tenant,
    source::{TenantName, TenantSource},
    standing::RateLimit,
};
use crate::http::head::Head;

/// Uses the tenant that an outer layer has put into the extensions of the request, as a
/// [`Tenant`] or inside your own type.
///
/// The tenant is as trustworthy as that layer.
///
/// ```
/// use tollgate::{Head, Tenant, TenantSource, tenant::ExtensionTenant};
///
/// #[derive(Clone)]
/// struct User { company: Tenant }
///
/// let source = ExtensionTenant::new().or(ExtensionTenant::of(|user: &User| Some(user.company.clone())));
/// let company = Tenant::parse("acme")?;
/// let request = http::Request::get("/").extension(User { company }).body(()).unwrap();
/// assert_eq!(source.find(Head::of(&request))?.unwrap().as_str(), "acme");
/// # Ok::<(), tollgate::TenantError>(())
/// ```
pub struct ExtensionTenant<T = Tenant, F = fn(&T) -> Option<Tenant>> {
    tenant: F,
    extension: fn(&Extensions) -> Option<&T>,
    /// Whether the extension is only the claim of a caller.
    is_claimed: fn(&Extensions) -> bool,
}

impl ExtensionTenant {
    /// Uses the tenant of [`Tenant::from_extensions`].
    #[expect(clippy::new_without_default, reason = "a source is a choice, not a default")]
    pub fn new() -> Self {
        let is_claimed = |extensions: &Extensions| {
            extensions.get::<Tenant>().is_none() && extensions.get().is_some_and(RateLimit::is_claimed)
        };
        Self { tenant: |tenant| Some(tenant.clone()), extension: Tenant::from_extensions, is_claimed }
    }
}

impl<T, F> ExtensionTenant<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> Option<Tenant> + Send + Sync + 'static,
{
    /// Uses the tenant that a function returns for an extension of type `T`.
    pub fn of(tenant: F) -> Self {
        Self { tenant, extension: |extensions| extensions.get(), is_claimed: |_| false }
    }
}

impl<T, F> TenantSource for ExtensionTenant<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> Option<Tenant> + Send + Sync + 'static,
{
    fn find(&self, head: Head<'_>) -> Result<Option<Tenant>, TenantError> {
        Ok((self.extension)(head.extensions()).and_then(&self.tenant))
    }

    fn find_name<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        let is_claimed = (self.is_claimed)(head.extensions());
        let name = self.find(head)?.map(TenantName::from);
        Ok(if is_claimed { name.map(TenantName::claimed) } else { name })
    }
}

impl<T, F: Clone> Clone for ExtensionTenant<T, F> {
    fn clone(&self) -> Self {
        Self { tenant: self.tenant.clone(), extension: self.extension, is_claimed: self.is_claimed }
    }
}

impl<T, F> fmt::Debug for ExtensionTenant<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExtensionTenant").field(&format_args!("{}", type_name::<T>())).finish()
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::tenant::{LimiterCharge, Standing};

    #[derive(Clone)]
    struct User(Option<Tenant>);

    #[test]
    fn an_extension_identifies_the_tenant() {
        let mut request = Request::new(());
        assert_eq!(ExtensionTenant::new().find(Head::of(&request)), Ok(None));
        request.extensions_mut().insert(Tenant::anonymous());
        assert_eq!(ExtensionTenant::new().find(Head::of(&request)), Ok(Some(Tenant::anonymous())));
    }

    #[test]
    fn a_tenant_that_an_outer_limit_found_by_a_claim_stays_a_claim() {
        let claimed =
            |request: &Request<()>| ExtensionTenant::new().find_name(Head::of(request)).unwrap().unwrap().is_claimed();
        for is_claimed in [false, true] {
            let mut request = Request::new(());
            let charge = LimiterCharge { payer: 1, units: 1 };
            let outer = RateLimit::new(Tenant::anonymous(), is_claimed, Standing::UNLIMITED, charge, None);
            request.extensions_mut().insert(outer);
            assert_eq!(claimed(&request), is_claimed);
            request.extensions_mut().insert(Tenant::anonymous());
            assert!(!claimed(&request), "an outer layer has proved it");
        }
    }

    #[test]
    fn a_custom_extension_can_identify_the_tenant() {
        let source = ExtensionTenant::of(|user: &User| user.0.clone());
        let mut request = Request::new(());
        assert_eq!(source.find(Head::of(&request)), Ok(None));
        request.extensions_mut().insert(User(None));
        assert_eq!(source.find(Head::of(&request)), Ok(None));
        request.extensions_mut().insert(User(Tenant::parse("acme").ok()));
        assert_eq!(source.find(Head::of(&request)).unwrap().unwrap().as_str(), "acme");
        assert!(format!("{:?}", source.clone()).contains("User"));
    }
}
