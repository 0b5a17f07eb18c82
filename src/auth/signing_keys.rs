//! What applications do with the keys of an [`AuthService`].

use crate::{
    auth::service::AuthService,
    bearer::Verifier,
    store::{StoreError, StoreErrorKind},
    tokens::TokenService,
};

impl AuthService {
    /// Returns the verifier of the access tokens that this service issues. It refuses revoked tokens at once.
    ///
    /// Another process that shares the store uses [`Tokens::verifier_in`](crate::Tokens::verifier_in). A service without
    /// access to the store uses `Verifier::remote` (feature `jwks`).
    ///
    /// # Panics
    ///
    /// Panics if the service issues no tokens, because [`tokens`](Self::tokens) was not set.
    #[expect(clippy::expect_used, reason = "a mistake in the set-up of the application, which no request can cause")]
    pub fn verifier(&self) -> Verifier {
        self.token_service().expect("AuthService::tokens must be set before a verifier is created").verifier()
    }

    /// Reads the signing keys from the store, or creates them. Otherwise the first request does.
    ///
    /// Call this at start-up, so that a wrong [seal](crate::Tokens::seal) or a store that fails is noticed at once.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails, or if the keys can't be read with this seal.
    pub async fn prepare(&self) -> Result<(), StoreError> {
        match self.token_service() {
            Some(tokens) => tokens.prepare().await,
            None => Ok(()),
        }
    }

    /// Creates a new key for each algorithm, in addition to the rotation that happens by itself.
    ///
    /// The new key is published at once, and by other processes within a minute. It signs an hour later, and the old key
    /// stays published for another day, so no restart is needed anywhere. Does nothing for an algorithm whose next key
    /// waits to sign already, or that has eight keys published.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails, or if the service issues no tokens.
    pub async fn rotate_keys(&self) -> Result<(), StoreError> {
        self.token_service().ok_or_else(no_tokens)?.rotate_keys().await
    }

    /// Withdraws all signing keys and signs with new ones at once. Use it if somebody got hold of a private key or of the
    /// secret of the [seal](crate::Tokens::seal). In the latter case, set another secret first, in all processes.
    ///
    /// Access tokens and id_tokens that the old keys signed are refused from now on: here at once, by other processes
    /// that share the store within a minute, and elsewhere when the copy of `/jwks` is renewed. Refresh tokens keep
    /// working, so clients get new tokens with them.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails, or if the service issues no tokens.
    pub async fn withdraw_keys(&self) -> Result<(), StoreError> {
        self.token_service().ok_or_else(no_tokens)?.withdraw_keys().await
    }

    fn token_service(&self) -> Option<&TokenService> {
        self.0.core().tokens.as_ref().map(|endpoints| &endpoints.service)
    }
}

fn no_tokens() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "this service issues no tokens")
}
