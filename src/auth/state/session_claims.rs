//! The claims that [`Session::claim`] reads.

use std::sync::Arc;

use crate::{
    client::Client,
    session::{ClaimsResult, ClaimsSource, Session},
    store::BoxFuture,
    user::{AnyUsers, ClaimsRequest},
};

/// Reads the claims of a session's user from the accounts.
pub(crate) struct SessionClaims(AnyUsers);

impl SessionClaims {
    pub(crate) fn new(users: AnyUsers) -> Self {
        Self(users)
    }
}

impl ClaimsSource for SessionClaims {
    fn claims(&self, session: &Session) -> BoxFuture<'static, ClaimsResult> {
        let (users, tenant, user) = (self.0.clone(), session.tenant().clone(), session.user().clone());
        Box::pin(async move {
            // an account that is gone or disabled has no rights
            let account = users.by_id(&tenant, &user).await?.filter(|account| !account.is_disabled());
            let Some(account) = account else { return Ok(Arc::default()) };
            let claims = users.claims(&tenant, &account, &ClaimsRequest::of_this_site(Client::FIRST_PARTY)).await?;
            Ok(Arc::new(claims.all().map(|(name, value)| (name.to_owned(), value.clone())).collect()))
        })
    }
}
