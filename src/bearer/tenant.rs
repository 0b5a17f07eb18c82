use super::token::AccessToken;
use crate::{
    http::head::Head,
    tenant::{Tenant, TenantError, TenantSource},
};

/// Uses the tenant of the access token, if an outer [`BearerLayer`](super::BearerLayer) has
/// verified one.
///
/// Callers can't forge it. There is no tenant if the request has no token or the token names no
/// tenant.
#[derive(Clone, Copy, Debug)]
pub struct AccessTokenTenant;

impl TenantSource for AccessTokenTenant {
    fn find(&self, head: Head<'_>) -> Result<Option<Tenant>, TenantError> {
        Ok(AccessToken::from_extensions(head.extensions()).and_then(AccessToken::tenant).cloned())
    }

    fn missing(&self, head: Head<'_>) -> TenantError {
        match AccessToken::from_extensions(head.extensions()) {
            Some(_) => TenantError::invalid("the access token names no tenant"),
            None => TenantError::missing("the access token is missing").challenge("Bearer"),
        }
    }
}
