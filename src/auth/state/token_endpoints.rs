//! The state of the token endpoints.

use std::sync::Arc;

use crate::{
    auth::http::problem::{Code, Problem},
    bearer::Audience,
    client::{Client, select_resources},
    dpop::{DpopVerifier, Nonces},
    jose::Algorithm,
    store::{AnyStore, table::Table},
    support::issuer::Issuer,
    tokens::{Grant, TokenService, Tokens},
    util::{clock::Clock, error::ConfigError, secret::SecretDigest},
};

/// The state of the token endpoints.
pub(crate) struct TokenEndpoints {
    pub(crate) service: TokenService,
    introspectors: Vec<SecretDigest>,
    /// The DPoP proofs that were seen.
    pub(crate) proofs: DpopVerifier,
    /// The assertions of clients that were used.
    pub(crate) used_assertions: Table<()>,
}

impl TokenEndpoints {
    /// Checks the settings, and creates what runs with them. The introspectors are digests of their secrets. Proofs must
    /// contain a nonce if there are any.
    pub(crate) fn new(
        tokens: Tokens,
        introspectors: Vec<SecretDigest>,
        nonces: Option<Nonces>,
        issuer: &Issuer,
        store: AnyStore,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ConfigError> {
        let proofs = DpopVerifier::in_store(store.clone(), Arc::clone(&clock));
        let proofs = match nonces {
            Some(nonces) => proofs.with_nonces(Arc::new(nonces)),
            None => proofs,
        };
        let used_assertions = Table::new(store.clone(), "client_assertions", Arc::clone(&clock));
        Ok(Self { service: tokens.build(issuer, store, clock)?, introspectors, proofs, used_assertions })
    }

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

    /// Returns the resources that a client may request.
    pub(crate) fn allowed_resources<'a>(&'a self, client: &'a Client) -> Vec<&'a str> {
        client.resources().chain([self.service.default_audience(client)]).collect()
    }

    /// Returns the audience of a token for a grant. A request can name some of the resources that were granted, and no
    /// others.
    pub(crate) fn narrowed_audience<'v>(
        &self,
        client: &Client,
        grant: &Grant,
        named: impl Iterator<Item = &'v str>,
    ) -> Result<Audience, Problem> {
        let granted: Vec<&str> = match grant.resources.as_slice() {
            [] => vec![self.service.default_audience(client)],
            granted => granted.iter().map(String::as_str).collect(),
        };
        // a resource may have been taken from the client since
        let allowed = self.allowed_resources(client);
        if !granted.iter().all(|own| allowed.contains(own)) {
            return Err(Problem::new(Code::InvalidGrant, "the client may no longer use a resource that was granted"));
        }
        Ok(match select_resources(named, &granted)? {
            none if none.is_empty() => Audience::of_names(granted),
            named => Audience::of_names(named),
        })
    }

    /// Returns the audience of a token that a client gets for itself.
    pub(crate) fn machine_audience<'v>(
        &self,
        client: &Client,
        named: impl Iterator<Item = &'v str>,
    ) -> Result<Audience, Problem> {
        Ok(match select_resources(named, &self.allowed_resources(client))? {
            none if none.is_empty() => Audience::of_names([self.service.default_audience(client)]),
            named => Audience::of_names(named),
        })
    }

    /// Returns whether this is the digest of an introspector's secret. Takes the same time for each.
    pub(crate) fn is_introspector(&self, digest: &SecretDigest) -> bool {
        self.introspectors.iter().fold(false, |found, own| found | own.matches(digest))
    }
}
