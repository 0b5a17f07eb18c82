//! The settings and the state of the token endpoints.

use std::sync::Arc;

use crate::{
    auth::http::problem::Problem,
    client::Client,
    dpop::{DpopVerifier, Nonces},
    jose::Algorithm,
    store::{AnyStore, table::Table},
    support::issuer::Issuer,
    tokens::{TokenService, Tokens},
    util::{clock::Clock, error::ConfigError, secret::SecretDigest},
};

/// The settings of the token endpoints.
pub(crate) struct TokenSettings {
    pub(crate) tokens: Tokens,
    /// The digests of the secrets that may introspect any token.
    pub(crate) introspectors: Vec<SecretDigest>,
    /// The nonces of proofs, if they are required.
    pub(crate) nonces: Option<Nonces>,
}

impl TokenSettings {
    /// Checks the settings, and creates what runs with them.
    pub(crate) fn build(
        self,
        issuer: &Issuer,
        store: AnyStore,
        clock: Arc<dyn Clock>,
    ) -> Result<TokenEndpoints, ConfigError> {
        let proofs = DpopVerifier::in_store(store.clone(), Arc::clone(&clock));
        let proofs = match self.nonces {
            Some(nonces) => proofs.with_nonces(Arc::new(nonces)),
            None => proofs,
        };
        let used_assertions = Table::new(store.clone(), "client_assertions", Arc::clone(&clock));
        let service = self.tokens.build(issuer, store, clock)?;
        Ok(TokenEndpoints { service, introspectors: self.introspectors, proofs, used_assertions })
    }
}

/// The state of the token endpoints.
pub(crate) struct TokenEndpoints {
    pub(crate) service: TokenService,
    introspectors: Vec<SecretDigest>,
    /// The DPoP proofs that were seen.
    pub(crate) proofs: DpopVerifier,
    /// The assertions of machine clients that were used.
    pub(crate) used_assertions: Table<()>,
}

impl TokenEndpoints {
    /// Checks that there is a key for the id_tokens of this client.
    pub(crate) fn check(&self, client: &Client) -> Result<(), ConfigError> {
        match client.tokens.id_token_algorithm {
            Some(algorithm) if ![self.service.algorithm(), Algorithm::Rs256].contains(&algorithm) => {
                let reason = "has an id_token algorithm that is neither RS256 nor that of the tokens";
                Err(ConfigError::new("client", client.id(), reason))
            }
            _ => Ok(()),
        }
    }

    /// Checks that tokens of this client can be signed now.
    pub(crate) async fn ready(&self, client: &Client) -> Result<(), Problem> {
        if let Err(error) = self.check(client) {
            crate::util::trace::warning!("tokens cannot be signed: {error}");
            return Err(Problem::unavailable());
        }
        Ok(self.service.prepare().await?)
    }

    /// Returns whether this is the digest of an introspector's secret. Takes the same time for each.
    pub(crate) fn is_introspector(&self, digest: &SecretDigest) -> bool {
        self.introspectors.iter().fold(false, |found, own| found | own.matches(digest))
    }
}
