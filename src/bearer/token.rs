use std::{fmt, sync::Arc};

use http::{Extensions, HeaderValue};

use super::{authorization::Scheme, keys::Revocation, token_claims::AccessTokenClaims};
use crate::{tenant::Tenant, util::clock::UnixTime};

/// What a valid access token says: who calls, for whom, and what the caller may do.
///
/// With the feature `axum` it is an extractor: `AccessToken` answers 401 where there is none, `Option<AccessToken>` does
/// not, and both answer 500 where no [`BearerLayer`](super::BearerLayer) is before the route.
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

    /// The token of a request that came through a [`BearerLayer`](super::BearerLayer), if it has one: in plain hyper from
    /// `request.extensions()`, in tonic too.
    pub fn from_extensions(extensions: &Extensions) -> Option<&Self> {
        match extensions.get()? {
            TokenSlot::Taken { token, .. } => Some(token),
            TokenSlot::Empty(_) => None,
        }
    }

    /// Of which tenant, where the issuer knows tenants.
    pub fn tenant(&self) -> Option<&Tenant> {
        self.0.tenant.as_ref()
    }

    /// On whose behalf: the name of the user at the [`issuer`](Self::issuer), or of the client itself where no user is
    /// involved.
    ///
    /// It is as unique as the issuer makes it. Ours gives the [`UserId`](crate::UserId), which an app has to keep unique
    /// over all tenants of the issuer; where it may not be, know a caller by [`tenant`](Self::tenant) and this.
    pub fn subject(&self) -> &str {
        &self.0.claims.sub
    }

    /// The application that got the token.
    pub fn client_id(&self) -> &str {
        &self.0.claims.client_id
    }

    /// What the caller may do.
    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        self.0.claims.scope.as_deref().unwrap_or_default().split(' ').filter(|name| !name.is_empty())
    }

    /// Whether the caller may do this. Scopes have no order: no name is part of another.
    pub fn has_scope(&self, name: &str) -> bool {
        self.scopes().any(|own| own == name)
    }

    /// Who issued it.
    pub fn issuer(&self) -> &str {
        &self.0.claims.iss
    }

    /// For which services it was issued; this one is among them.
    pub fn audience(&self) -> impl Iterator<Item = &str> {
        self.0.claims.aud.iter()
    }

    /// When it was issued.
    pub fn issued_at(&self) -> UnixTime {
        UnixTime::from_secs(self.0.claims.iat)
    }

    /// When it ends.
    pub fn expires_at(&self) -> UnixTime {
        UnixTime::from_secs(self.0.claims.exp)
    }

    /// When the user proved who they are, where the issuer says so.
    pub fn auth_time(&self) -> Option<UnixTime> {
        self.0.claims.auth_time.map(UnixTime::from_secs)
    }

    /// How strong the proof was, if that was said.
    pub fn acr(&self) -> Option<&str> {
        self.0.claims.acr.as_deref()
    }

    /// What was proved.
    pub fn amr(&self) -> impl Iterator<Item = &str> {
        self.0.claims.amr.iter().map(AsRef::as_ref)
    }

    /// Its name (`jti`), for logs. Nobody can call with it.
    pub fn id(&self) -> &str {
        &self.0.claims.jti
    }

    /// The name of the signed-in session that it comes from (`sid`), where there is one. Ours have
    /// none where they live on after it (`offline_access`).
    pub fn session(&self) -> Option<&str> {
        self.0.claims.sid.as_deref()
    }

    pub(super) fn claims(&self) -> &AccessTokenClaims {
        &self.0.claims
    }

    /// Who knows whether it was taken back.
    pub(super) fn revocation(&self) -> Option<&dyn Revocation> {
        self.0.revocation.as_deref()
    }

    /// The thumbprint of the key that the caller has to prove.
    pub(super) fn bound_to(&self) -> Option<&str> {
        self.0.claims.cnf.as_ref()?.jkt.as_deref()
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessToken")
            .field("id", &self.id())
            .field("tenant", &self.tenant())
            .field("subject", &self.subject())
            .field("client_id", &self.client_id())
            .finish_non_exhaustive()
    }
}

/// What a layer leaves in every request, so that one without a token is told from one without a layer.
#[derive(Clone, Debug)]
pub(crate) enum TokenSlot {
    Taken {
        token: AccessToken,
        /// How it came.
        scheme: Scheme,
        /// The number of the verifier that let it through.
        verifier: u64,
    },
    /// Nobody, and what a 401 has to ask for.
    #[cfg_attr(not(feature = "axum"), expect(dead_code, reason = "only the extractor answers by itself"))]
    Empty(HeaderValue),
}
