use super::{
    error::TenantError,
    id::Tenant,
    source::{TenantName, TenantSource},
    standing::RateLimit,
};
use crate::http::head::Head;

/// Uses the [`Tenant`] that an outer layer has put into the extensions of the request, or else the key that an outer rate
/// limit has charged, which may be a claim.
///
/// The tenant is as trustworthy as that layer. For a tenant inside your own type, use a closure, in a
/// [`ProvedTenant`](super::ProvedTenant) if your layer has proved it.
///
/// ```
/// use tollgate::{Head, Tenant, TenantSource, tenant::{ExtensionTenant, ProvedTenant, TenantError}};
///
/// #[derive(Clone)]
/// struct User { company: Tenant }
///
/// let company = |head: Head<'_>| -> Result<Option<Tenant>, TenantError> {
///     Ok(head.extensions().get::<User>().map(|user| user.company.clone()))
/// };
/// let source = ExtensionTenant.or(ProvedTenant::new(company));
/// let company = Tenant::parse("acme")?;
/// let request = http::Request::get("/").extension(User { company }).body(()).unwrap();
/// assert_eq!(source.find(Head::of_request(&request))?.unwrap().as_bytes(), b"acme");
/// # Ok::<(), tollgate::tenant::TenantError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ExtensionTenant;

impl TenantSource for ExtensionTenant {
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        let extensions = head.extensions();
        if let Some(tenant) = extensions.get::<Tenant>() {
            return Ok(Some(tenant.clone().into()));
        }
        let charged = extensions.get::<RateLimit>();
        Ok(charged
            .map(|limit| limit.tenant().map_or_else(|| limit.key().clone().into(), |tenant| tenant.clone().into())))
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::tenant::{LimitKey, LimiterCharge, Standing};

    fn find(request: &Request<()>) -> Option<(String, bool)> {
        let name = ExtensionTenant.find(Head::of_request(request)).unwrap()?;
        Some((name.to_key().unwrap().to_string(), name.is_claimed()))
    }

    #[test]
    fn an_extension_identifies_the_tenant() {
        let mut request = Request::new(());
        assert_eq!(find(&request), None);
        request.extensions_mut().insert(Tenant::parse("acme").unwrap());
        assert_eq!(find(&request), Some(("acme".into(), false)));
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
            assert_eq!(find(&request), Some(("acme".into(), is_claimed)));
            request.extensions_mut().insert(Tenant::parse("globex").unwrap());
            let found = find(&request);
            assert_eq!(found, Some(("globex".into(), false)), "an outer layer has proved it");
        }
    }
}
