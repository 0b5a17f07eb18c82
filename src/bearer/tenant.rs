use super::token::{AccessToken, TokenSlot};
use crate::{
    http::head::Head,
    tenant::{TenantError, TenantName, TenantSource},
};

/// Uses the tenant of the access token, if an outer [`BearerLayer`](super::BearerLayer) has
/// verified one.
///
/// Callers can't forge it. There is no tenant if the request has no token or the token names no
/// tenant. Without an outer `BearerLayer`, the answer is a 500.
#[derive(Clone, Copy, Debug)]
pub struct AccessTokenTenant;

impl TenantSource for AccessTokenTenant {
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        Ok(AccessToken::from_extensions(head.extensions()).and_then(AccessToken::tenant).cloned().map(TenantName::from))
    }

    fn missing(&self, head: Head<'_>) -> TenantError {
        match head.extensions().get() {
            Some(TokenSlot::Taken { .. }) => TenantError::invalid("the access token names no tenant"),
            Some(TokenSlot::Empty(challenge)) => {
                TenantError::missing("the access token is missing").asking(challenge.clone())
            }
            None => TenantError::internal("no BearerLayer is outside of the rate limit"),
        }
    }
}
