use super::token::AccessToken;
use crate::{
    http::head::Head,
    tenant::{Tenant, TenantError, TenantSource},
};

/// The tenant of the access token of a request, where a [`BearerLayer`](super::BearerLayer) stands outside; none without a
/// token, or with one that names no tenant.
///
/// It can't be forged, unlike one that the caller names.
#[derive(Clone, Copy, Debug)]
pub struct AccessTokenTenant;

impl TenantSource for AccessTokenTenant {
    fn find(&self, head: Head<'_>) -> Result<Option<Tenant>, TenantError> {
        Ok(AccessToken::from_extensions(head.extensions()).and_then(AccessToken::tenant).cloned())
    }
}
