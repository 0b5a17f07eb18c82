use std::{any::type_name, marker::PhantomData};

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
/// let source = ExtensionTenant::new().or(ExtensionTenant::from_fn(|user: &User| Some(user.company.clone())));
/// let company = Tenant::parse("acme")?;
/// let request = http::Request::get("/").extension(User { company }).body(()).unwrap();
/// assert_eq!(source.find(Head::of_request(&request))?.unwrap().as_bytes(), b"acme");
/// # Ok::<(), tollgate::tenant::TenantError>(())
/// ```
pub struct ExtensionTenant<T = Tenant, F = fn(&T) -> Option<Tenant>> {
    tenant: F,
    extension: PhantomData<fn(&T)>,
    /// Finds a name in a request without the extension.
    otherwise: fn(&Extensions) -> Option<TenantName<'static>>,
}

impl ExtensionTenant {
    /// Uses the [`Tenant`] in the extensions, or else the key that an outer rate limit has charged, which may be a claim.
    #[expect(clippy::new_without_default, reason = "a source is a choice, not a default")]
    pub fn new() -> Self {
        let charged = |extensions: &Extensions| {
            let limit = extensions.get::<RateLimit>()?;
            Some(limit.tenant().map_or_else(|| limit.key().clone().into(), |tenant| tenant.clone().into()))
        };
        Self { tenant: |tenant| Some(tenant.clone()), extension: PhantomData, otherwise: charged }
    }
}

impl<T, F> ExtensionTenant<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> Option<Tenant> + Send + Sync + 'static,
{
    /// Uses the tenant that a function returns for an extension of type `T`.
    pub fn from_fn(tenant: F) -> Self {
        Self { tenant, extension: PhantomData, otherwise: |_| None }
    }
}

impl<T, F> TenantSource for ExtensionTenant<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> Option<Tenant> + Send + Sync + 'static,
{
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        Ok(match head.extensions().get() {
            Some(extension) => (self.tenant)(extension).map(TenantName::from),
            None => (self.otherwise)(head.extensions()),
        })
    }
}

impl<T, F: Clone> Clone for ExtensionTenant<T, F> {
    fn clone(&self) -> Self {
        Self { tenant: self.tenant.clone(), extension: PhantomData, otherwise: self.otherwise }
    }
}

crate::util::fmt::debug_text!(ExtensionTenant<T, F>, |_own| format_args!("{}", type_name::<T>()));

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::tenant::{LimitKey, LimiterCharge, Standing};

    #[derive(Clone)]
    struct User(Option<Tenant>);

    fn find<T, F>(source: &ExtensionTenant<T, F>, request: &Request<()>) -> Option<(String, bool)>
    where
        ExtensionTenant<T, F>: TenantSource,
    {
        let name = source.find(Head::of_request(request)).unwrap()?;
        Some((name.to_key().unwrap().to_string(), name.is_claimed()))
    }

    #[test]
    fn an_extension_identifies_the_tenant() {
        let mut request = Request::new(());
        assert_eq!(find(&ExtensionTenant::new(), &request), None);
        request.extensions_mut().insert(Tenant::parse("acme").unwrap());
        assert_eq!(find(&ExtensionTenant::new(), &request), Some(("acme".into(), false)));
    }

    #[test]
    fn a_tenant_that_an_outer_limit_found_by_a_claim_stays_a_claim() {
        for is_claimed in [false, true] {
            let mut request = Request::new(());
            let (acme, charge) = (
                LimitKey::parse("acme").unwrap(),
                LimiterCharge { payer: 1, units: 1, is_open: false, is_metered: false },
            );
            request.extensions_mut().insert(RateLimit::new(acme, is_claimed, Standing::UNLIMITED, charge, None));
            assert_eq!(find(&ExtensionTenant::new(), &request), Some(("acme".into(), is_claimed)));
            request.extensions_mut().insert(Tenant::parse("globex").unwrap());
            let found = find(&ExtensionTenant::new(), &request);
            assert_eq!(found, Some(("globex".into(), false)), "an outer layer has proved it");
        }
    }

    #[test]
    fn a_custom_extension_can_identify_the_tenant() {
        let source = ExtensionTenant::from_fn(|user: &User| user.0.clone());
        let mut request = Request::new(());
        assert_eq!(find(&source, &request), None);
        request.extensions_mut().insert(User(None));
        assert_eq!(find(&source, &request), None);
        request.extensions_mut().insert(User(Tenant::parse("acme").ok()));
        assert_eq!(find(&source, &request), Some(("acme".into(), false)));
        assert!(format!("{:?}", source.clone()).contains("User"));
    }
}
