use std::{any::type_name, fmt};

use http::Extensions;

use super::{error::TenantError, id::Tenant, source::TenantSource};
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
}

impl ExtensionTenant {
    /// Uses the tenant of [`Tenant::from_extensions`].
    #[expect(clippy::new_without_default, reason = "a source is a choice, not a default")]
    pub fn new() -> Self {
        Self { tenant: |tenant| Some(tenant.clone()), extension: Tenant::from_extensions }
    }
}

impl<T, F> ExtensionTenant<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> Option<Tenant> + Send + Sync + 'static,
{
    /// Uses the tenant that a function returns for an extension of type `T`.
    pub fn of(tenant: F) -> Self {
        Self { tenant, extension: |extensions| extensions.get() }
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
}

impl<T, F: Clone> Clone for ExtensionTenant<T, F> {
    fn clone(&self) -> Self {
        Self { tenant: self.tenant.clone(), extension: self.extension }
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
