//! The setters of today's [`AuthService`] that are about tokens, until its builder replaces them.

use crate::{
    auth::{endpoints::settings::TokenSettings, service::AuthService},
    session::UserId,
    store::StoreError,
    tenant::Tenant,
    tokens::Tokens,
    util::{error::ConfigError, handle::Handle, secret::Secret},
};

impl AuthService {
    /// Issues tokens: serves `/token`, `/jwks`, `/userinfo`, `/revoke`, `/introspect`, `/logout` and both documents below
    /// `/.well-known/`.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting can't work.
    pub fn tokens(self, tokens: Tokens) -> Result<Self, ConfigError> {
        let settings = TokenSettings::new(tokens);
        let config = &self.0.config;
        settings.clone().build(&config.issuer, config.store.clone(), std::sync::Arc::clone(&config.clock))?;
        Ok(self.set(|config| match &mut config.tokens {
            Some(old) => old.tokens = settings.tokens,
            none => *none = Some(settings),
        }))
    }

    /// Lets callers that present this secret as a bearer token introspect any token. Clients may always introspect
    /// their own.
    ///
    /// # Errors
    ///
    /// Returns an error if [`tokens`](Self::tokens) was not called before.
    pub fn introspector(self, secret: &Secret) -> Result<Self, ConfigError> {
        self.set_tokens("introspector", |settings| settings.introspector(secret))
    }

    /// Requires a nonce in DPoP proofs, made with this secret, which all processes must share. No proof can then be made
    /// ahead of time. It costs clients a second request at first.
    ///
    /// # Errors
    ///
    /// Returns an error if [`tokens`](Self::tokens) was not called before.
    pub fn dpop_nonces(self, secret: &Secret) -> Result<Self, ConfigError> {
        self.set_tokens("DPoP nonces", |settings| settings.dpop_nonces(secret))
    }

    fn set_tokens(self, setting: &'static str, change: impl FnOnce(&mut TokenSettings)) -> Result<Self, ConfigError> {
        if self.0.config.tokens.is_none() {
            return Err(ConfigError::new(setting, "", "is about tokens: call tokens first"));
        }
        Ok(self.set(|config| {
            if let Some(tokens) = &mut config.tokens {
                change(tokens);
            }
        }))
    }

    /// Stands in for the ends that the builder's service has.
    #[doc(hidden)]
    pub async fn end_session_tokens(&self, sid: &Handle) -> Result<(), StoreError> {
        self.0.running().ended_sessions.mark(sid).await
    }

    /// Stands in for the ends that the builder's service has.
    #[doc(hidden)]
    pub async fn end_user(&self, tenant: &Tenant, user: &UserId) -> Result<(), StoreError> {
        self.0.running().generations.raise(tenant, user).await.map(|_| ())
    }
}
