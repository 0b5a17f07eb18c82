//! Signs tokens: those of users, and those of machine clients, which act for themselves (RFC 6749 §4.4).
//!
//! Machine clients have no family in the store, because they have neither a user nor a refresh token. The first part of the
//! `jti` of their tokens is an id under which they can be revoked like a family.

use serde_json::Map;

use super::{
    family::Family,
    grant,
    issued_claims::{self, GENERATION, ID_TOKEN, IdClaims},
    keys::Copy,
    service::{Issued, TokenRequest, TokenService},
};
use crate::{
    bearer::{AccessTokenClaims, Audience, Confirmation, MACHINE, TYPE},
    client::{Client, Scopes},
    jose::jws,
    store::{StoreError, StoreErrorKind},
    user::ClaimTarget,
    util::{clock::UnixTime, public_id::PublicId},
};

impl TokenService {
    /// Signs tokens for a user as of `at`. No token outlives the family, because `/revoke` could not end it.
    pub(super) async fn sign_user_tokens(
        &self,
        family: &Family,
        request: &TokenRequest<'_>,
        jti: String,
        at: UnixTime,
    ) -> Result<Issued, StoreError> {
        let (inner, grant, who) = (&*self.0, &family.grant, request.who);
        let keys = inner.keys.current().await?;
        let granted = request.scope.unwrap_or(grant.scope());
        let exp = (at + inner.lifetimes.access).min(family.ends()).as_secs();
        // claims about the user can't replace other claims, because `user::Claims` refuses reserved names
        let mut more = issued_claims::of_target(&request.extra_claims, ClaimTarget::AccessToken);
        if who.generation > 0 {
            more.insert(GENERATION.to_owned(), who.generation.into());
        }
        let claims = AccessTokenClaims {
            iss: inner.issuer.clone(),
            sub: who.user.as_str().to_owned(),
            aud: request.audience.clone(),
            client_id: grant.client_id().to_owned(),
            tenant: Some(who.tenant.as_str().to_owned()),
            scope: Some(granted.to_string()),
            iat: inner.revocations.issue_time(at),
            nbf: None,
            exp,
            jti,
            auth_time: who.auth_time().map(UnixTime::as_secs),
            acr: who.acr.as_deref().map(str::to_owned),
            amr: grant::amr(who),
            // verifiers look up the session, so a token that outlives its session doesn't name it
            sid: (!grant.outlives_session()).then(|| grant.session.to_string()),
            cnf: grant.jkt.clone().map(|jkt| Confirmation { jkt: Some(jkt) }),
            more,
        };
        let issued = self.sign_access_token(&keys, claims, at)?;
        if !request.with_id_token || !granted.contains("openid") {
            return Ok(issued);
        }
        let algorithm = request.id_token_algorithm.unwrap_or(inner.algorithm);
        let signer = keys.signer(algorithm, self.now()).ok_or_else(no_signing_key)?;
        let mut more = issued_claims::of_target(&request.extra_claims, ClaimTarget::IdToken);
        more.extend(request.account_claims.clone());
        let claims = IdClaims {
            iss: inner.issuer.clone(),
            sub: who.user.as_str().to_owned(),
            aud: grant.client_id().to_owned(),
            iat: at.as_secs(),
            exp,
            auth_time: who.auth_time().map(UnixTime::as_secs),
            nonce: request.nonce.map(str::to_owned),
            acr: who.acr.as_deref().map(str::to_owned),
            amr: grant::amr(who),
            at_hash: Some(issued_claims::at_hash(&issued.access_token, algorithm)),
            sid: Some(grant.session.to_string()),
            tenant: Some(who.tenant.as_str().to_owned()),
            more,
        };
        let id_token = jws::sign(&signer, ID_TOKEN, &claims).ok_or_else(no_signing_key)?;
        Ok(Issued { id_token: Some(id_token), ..issued })
    }

    /// Signs an access token of a machine client. `jkt` is the key that it is bound to.
    pub(crate) async fn machine_token(
        &self,
        client: &Client,
        scope: &Scopes,
        audience: Audience,
        jkt: Option<String>,
    ) -> Result<Issued, StoreError> {
        let (inner, now) = (&*self.0, self.now());
        let keys = inner.keys.current().await?;
        let claims = AccessTokenClaims {
            iss: inner.issuer.clone(),
            sub: client.id().to_owned(),
            aud: audience,
            client_id: client.id().to_owned(),
            tenant: Some(client.tenant().as_str().to_owned()),
            scope: Some(scope.to_string()),
            iat: inner.revocations.issue_time(now),
            nbf: None,
            exp: (now + inner.lifetimes.access).as_secs(),
            jti: issued_claims::jti(&PublicId::random(), &PublicId::random()),
            auth_time: None,
            acr: None,
            amr: Vec::new(),
            sid: None,
            cnf: jkt.map(|jkt| Confirmation { jkt: Some(jkt) }),
            more: Map::from_iter([(MACHINE.0.to_owned(), MACHINE.1.into())]),
        };
        self.sign_access_token(&keys, claims, now)
    }

    /// Signs an access token that is issued at `at`.
    fn sign_access_token(&self, keys: &Copy, claims: AccessTokenClaims, at: UnixTime) -> Result<Issued, StoreError> {
        let signer = keys.signer(self.0.algorithm, self.now()).ok_or_else(no_signing_key)?;
        let access_token = jws::sign(&signer, TYPE, &claims).ok_or_else(no_signing_key)?;
        let (expires_in, scope) = (claims.exp.saturating_sub(at.as_secs()), claims.scope.unwrap_or_default());
        let token_type = if claims.cnf.is_some() { "DPoP" } else { "Bearer" };
        Ok(Issued { access_token, token_type, expires_in, refresh_token: None, id_token: None, scope })
    }
}

fn no_signing_key() -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, "there is no signing key for this algorithm")
}
