pub(super) mod claims;

use std::sync::Arc;

use http::{Extensions, HeaderValue};
use serde::de::DeserializeOwned;

use self::claims::AccessTokenClaims;
use super::{authorization::Scheme, keys::Revocation};
use crate::{
    http::head::Head,
    tenant::{Tenant, TenantError, TenantName, TenantSource},
    util::clock::UnixTime,
};

/// A verified access token: who the caller is, on whose behalf it acts, and what it may do.
///
/// With the feature `axum` it is an extractor. `AccessToken` responds with a 401 if there is no
/// token, and `Option<AccessToken>` does not. Both respond with a 500 if no
/// [`BearerLayer`](super::BearerLayer) covers the route.
#[derive(Clone)]
pub struct AccessToken(Arc<Inner>);

struct Inner {
    claims: AccessTokenClaims,
    tenant: Option<Tenant>,
    revocation: Option<Box<dyn Revocation>>,
}

impl AccessToken {
    pub(super) fn new(
        claims: AccessTokenClaims,
        tenant: Option<Tenant>,
        revocation: Option<Box<dyn Revocation>>,
    ) -> Self {
        Self(Arc::new(Inner { claims, tenant, revocation }))
    }

    /// Returns the token of a request that passed a [`BearerLayer`](super::BearerLayer), if it has
    /// one. In hyper, pass `request.extensions()`; in tonic, the extensions of the request.
    pub fn from_extensions(extensions: &Extensions) -> Option<&Self> {
        match extensions.get()? {
            TokenSlot::Taken { token, .. } => Some(token),
            TokenSlot::Empty(_) => None,
        }
    }

    /// Returns the tenant, if the issuer has tenants.
    pub fn tenant(&self) -> Option<&Tenant> {
        self.0.tenant.as_ref()
    }

    /// Returns the subject: the id of the user at the [`issuer`](Self::issuer), or of the client if
    /// no user is involved.
    ///
    /// It is as unique as the issuer makes it. This crate issues the [`UserId`](crate::UserId),
    /// which must be unique across all tenants of an issuer. If it may not be, identify callers by
    /// [`tenant`](Self::tenant) and subject.
    pub fn subject(&self) -> &str {
        &self.0.claims.sub
    }

    /// Returns the client that the token was issued to.
    pub fn client_id(&self) -> &str {
        &self.0.claims.client_id
    }

    /// Returns whether the token was issued to the client for itself (`client_credentials`), so that no user is
    /// involved. The [`subject`](Self::subject) is then the client.
    ///
    /// This crate, Auth0 and Entra ID mark such tokens with a claim. Other issuers may not; this method
    /// returns `false` for theirs.
    pub fn is_machine(&self) -> bool {
        self.0.claims.is_machine()
    }

    /// Returns the granted scopes.
    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        self.0.claims.scope.as_deref().unwrap_or_default().split(' ').filter(|name| !name.is_empty())
    }

    /// Returns whether the token has this scope. Scopes are compared as a whole.
    pub fn has_scope(&self, name: &str) -> bool {
        self.scopes().any(|own| own == name)
    }

    /// Returns the issuer.
    pub fn issuer(&self) -> &str {
        &self.0.claims.iss
    }

    /// Returns the services that the token is meant for, including this one.
    pub fn audience(&self) -> impl Iterator<Item = &str> {
        self.0.claims.aud.iter()
    }

    /// Returns when the token was issued.
    pub fn issued_at(&self) -> UnixTime {
        UnixTime::from_secs(self.0.claims.iat)
    }

    /// Returns when the token expires.
    pub fn expires_at(&self) -> UnixTime {
        UnixTime::from_secs(self.0.claims.exp)
    }

    /// Returns when the user authenticated, if the issuer states it.
    pub fn auth_time(&self) -> Option<UnixTime> {
        self.0.claims.auth_time.map(UnixTime::from_secs)
    }

    /// Returns the authentication context (`acr`), if the issuer states it.
    pub fn acr(&self) -> Option<&str> {
        self.0.claims.acr.as_deref()
    }

    /// Returns the authentication methods (`amr`).
    pub fn amr(&self) -> impl Iterator<Item = &str> {
        self.0.claims.amr.iter().map(AsRef::as_ref)
    }

    /// Returns the id of the token (`jti`). It is not a secret and can be logged. If the issuer sets none and the
    /// [profile](super::TokenProfile::optional_id) allows it, it is the SHA-256 of the token.
    pub fn id(&self) -> &str {
        &self.0.claims.jti
    }

    /// Returns the id of the session that the token belongs to (`sid`), if there is one. Tokens
    /// that outlive their session (`offline_access`) have none.
    pub fn session(&self) -> Option<&str> {
        self.0.claims.sid.as_deref()
    }

    /// Returns another claim, such as `roles`. Returns `None` if the token does not have it, if it is of another type,
    /// or if this type has another method for it.
    ///
    /// The value is as old as the token: at most ten minutes for tokens of `AuthService`, which takes it from
    /// `Users::claims`.
    ///
    /// ```
    /// # use tollgate::AccessToken;
    /// fn is_editor(token: &AccessToken) -> bool {
    ///     let roles: Vec<String> = token.claim("roles").unwrap_or_default();
    ///     roles.iter().any(|role| role == "editor")
    /// }
    /// ```
    pub fn claim<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        T::deserialize(self.0.claims.more.get(name)?).ok()
    }

    pub(super) fn claims(&self) -> &AccessTokenClaims {
        &self.0.claims
    }

    /// Returns the revocation check.
    pub(super) fn revocation(&self) -> Option<&dyn Revocation> {
        self.0.revocation.as_deref()
    }

    /// Returns the thumbprint of the key that the caller must prove.
    pub(super) fn bound_to(&self) -> Option<&str> {
        self.0.claims.cnf.as_ref()?.jkt.as_deref()
    }
}

crate::util::fmt::debug_fields!(AccessToken, |own| id: own.id(), tenant: own.tenant(), subject: own.subject(), client_id: own.client_id());

/// Left by the layer in every admitted request, so that a missing token can be distinguished from a
/// missing layer.
#[derive(Clone, Debug)]
pub(crate) enum TokenSlot {
    Taken {
        token: AccessToken,
        /// The scheme that was used.
        scheme: Scheme,
        /// The number of the verifier that accepted the token.
        verifier: u64,
    },
    /// No token, and the challenge for a 401.
    Empty(HeaderValue),
}

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

#[cfg(feature = "axum")]
crate::http::missing_layer::extract_credential!(
    AccessToken,
    "no BearerLayer covers this route",
    TokenSlot::Taken { token, .. } => token,
    TokenSlot::Empty(challenge) => challenge
);
