//! Signing keys and verifiers, for applications and operators.

use std::sync::Arc;

use crate::{
    auth::service::AuthService,
    bearer::Verifier,
    store::StoreError,
    tokens::{TokenService, Tokens},
};

impl AuthService {
    /// Returns a verifier of this service's access tokens, to use in a [`BearerLayer`](crate::BearerLayer) of this
    /// process. Revoked tokens are refused at once.
    ///
    /// If this service issues no tokens, the verifier has the default settings. It accepts tokens of another service that
    /// has the same issuer and store.
    #[expect(clippy::expect_used, reason = "the builder has checked the issuer, and the settings are the defaults")]
    pub fn verifier(&self) -> Verifier {
        match self.token_service() {
            Some(service) => service.verifier(),
            None => {
                let (store, clock) = (self.0.store.clone(), Arc::clone(&self.0.clock));
                Tokens::new().build(&self.0.issuer, store, clock).expect("the defaults are valid").verifier()
            }
        }
    }

    /// Reads the signing keys, or creates them. Without this call, the first request does so. Call it at startup to notice
    /// a wrong seal or a failing store early.
    pub async fn prepare(&self) -> Result<(), StoreError> {
        match self.token_service() {
            Some(service) => service.prepare().await,
            None => Ok(()),
        }
    }

    /// Returns the keys that sign this service's tokens, or `None` if it issues no tokens.
    pub fn tokens(&self) -> Option<SigningKeys<'_>> {
        self.token_service().map(SigningKeys)
    }

    fn token_service(&self) -> Option<&TokenService> {
        Some(&self.0.tokens.as_ref()?.service)
    }
}

/// The keys that sign the tokens of a service, from [`AuthService::tokens`].
#[derive(Clone, Copy, Debug)]
pub struct SigningKeys<'a>(&'a TokenService);

impl SigningKeys<'_> {
    /// Creates a new signing key for each algorithm, in addition to the automatic rotation.
    ///
    /// The key is published at once on this node, and within a minute on others. It starts to sign an hour later, and
    /// the old key stays published for another day. Does nothing for an algorithm whose next key is already waiting, or
    /// that has eight published keys.
    pub async fn rotate_keys(self) -> Result<(), StoreError> {
        self.0.rotate_keys().await
    }

    /// Replaces all signing keys at once. Call this if a private key, or the secret of the seal, has leaked; set a new
    /// seal on all nodes first.
    ///
    /// Access tokens and id_tokens that the old keys signed are refused: here at once, on other nodes that share the store
    /// within a minute, elsewhere when cached copies of `/jwks` expire. Refresh tokens stay valid.
    pub async fn withdraw_keys(self) -> Result<(), StoreError> {
        self.0.withdraw_keys().await
    }
}
