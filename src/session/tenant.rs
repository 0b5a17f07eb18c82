use super::Session;
use crate::{
    http::head::Head,
    tenant::{Tenant, TenantError, TenantSource},
};

/// The tenant of the session of a request, where a
/// [`SessionLayer`](super::SessionLayer) stands outside; none without a session.
///
/// It can't be forged, unlike one that the caller names.
#[derive(Clone, Copy, Debug)]
pub struct SessionTenant;

impl TenantSource for SessionTenant {
    fn find(&self, head: Head<'_>) -> Result<Option<Tenant>, TenantError> {
        Ok(Session::from_extensions(head.extensions()).map(|session| session.tenant().clone()))
    }
}
