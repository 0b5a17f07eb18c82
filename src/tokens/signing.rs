//! Tokens of machine clients, which act for themselves (RFC 6749 §4.4).
//!
//! They have no family in the store, because they have neither a user nor a refresh token. The first part of their `jti` is
//! an id under which they can be revoked like a family.

use serde_json::Map;

use super::{
    issued_claims::{self, AccessTokenParts, Span},
    service::{Issued, TokenService},
};
use crate::{
    bearer::Audience,
    client::{Client, Scopes},
    jose::jws,
    store::{StoreError, StoreErrorKind},
    util::public_id::PublicId,
};

impl TokenService {
    /// Signs an access token of a machine client. `jkt` is the key that it is bound to.
    pub(crate) async fn machine_token(
        &self,
        client: &Client,
        scope: &Scopes,
        audience: Audience,
        jkt: Option<String>,
    ) -> Result<Issued, StoreError> {
        let (inner, now, scope) = (&*self.0, self.now(), scope.to_string());
        let keys = inner.keys.current().await?;
        let broken = || StoreError::new(StoreErrorKind::Corrupt, "there is no key that signs by this algorithm");
        let signer = keys.signer(inner.algorithm, now).ok_or_else(broken)?;
        let span = Span { from: inner.revocations.issue_time(now), until: (now + inner.lifetimes.access).as_secs() };
        let token = AccessTokenParts {
            issuer: &inner.issuer,
            audience,
            scope: &scope,
            jti: issued_claims::jti(&PublicId::random(), &PublicId::random()),
            span,
            more: Map::new(),
        };
        let claims = issued_claims::machine_token_claims(client, jkt, token);
        let access_token = jws::sign(&signer, crate::bearer::TYPE, &claims).ok_or_else(broken)?;
        let expires_in = span.until.saturating_sub(now.as_secs());
        Ok(Issued { access_token, expires_in, refresh_token: None, id_token: None, scope })
    }
}
