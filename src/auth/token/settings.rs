//! What of an [`AuthService`] is about tokens.

use std::sync::Arc;

use crate::{
    auth::{AuthService, inner::Config, problem::Problem},
    client::Client,
    dpop::{DpopVerifier, Nonces},
    jose::Algorithm,
    tokens::Tokens,
    util::{
        error::ConfigError,
        secret::{Digest, Secret},
    },
};

#[derive(Clone)]
pub(in crate::auth) struct TokenConfig {
    pub(in crate::auth) tokens: Tokens,
    /// Who may ask about any token.
    pub(super) introspectors: Vec<Digest>,
    /// The nonces of proofs, where they are demanded.
    nonces: Option<Arc<Nonces>>,
}

impl TokenConfig {
    /// Whether there is a key for the id_tokens of this client.
    pub(in crate::auth) fn check(&self, client: &Client) -> Result<(), ConfigError> {
        match client.tokens.id_token_algorithm {
            Some(algorithm) if ![self.tokens.algorithm_in_use(), Algorithm::Rs256].contains(&algorithm) => {
                let reason = "has its id_tokens signed by an algorithm that is neither RS256 nor that of the tokens";
                Err(ConfigError::new("client", client.id(), reason))
            }
            _ => Ok(()),
        }
    }

    /// Whether tokens of this client can be signed right now.
    pub(super) async fn ready(&self, client: &Client) -> Result<(), Problem> {
        if let Err(error) = self.check(client) {
            crate::util::trace::warning!("tokens can't be signed: {error}");
            return Err(Problem::unavailable());
        }
        Ok(self.tokens.prepare().await?)
    }
}

pub(in crate::auth) fn proofs(config: &Config) -> DpopVerifier {
    let proofs = DpopVerifier::in_store(config.store.clone(), Arc::clone(&config.clock));
    match config.tokens.as_ref().and_then(|tokens| tokens.nonces.as_ref()) {
        Some(nonces) => proofs.with_nonces(Arc::clone(nonces)),
        None => proofs,
    }
}

impl AuthService {
    /// Exchanges codes for these tokens: serves `/token`, `/jwks`, `/userinfo`, `/revoke`, `/introspect`, `/logout` and both
    /// documents below `/.well-known/`. Their issuer is this service's.
    pub fn tokens(self, tokens: Tokens) -> Result<Self, ConfigError> {
        if tokens.issuer() != self.0.config.issuer.as_str() {
            let reason = "must be the issuer of the login service";
            return Err(ConfigError::new("issuer of tokens", tokens.issuer(), reason));
        }
        Ok(self.set(|config| match &mut config.tokens {
            Some(config) => config.tokens = tokens,
            none => *none = Some(TokenConfig { tokens, introspectors: Vec::new(), nonces: None }),
        }))
    }

    /// Lets whoever shows this secret, as a bearer token, ask at `/introspect` about any token: an API that can't check them
    /// itself. To be called after [`tokens`](Self::tokens). Clients may always ask about their own.
    pub fn introspector(self, secret: &Secret) -> Result<Self, ConfigError> {
        let digest = secret.digest();
        self.set_tokens("introspector", |config| config.introspectors.push(digest))
    }

    /// Demands in proofs of keys (DPoP) a nonce made under this secret, which all nodes must share: so no proof can be made
    /// ahead. It costs clients a second request at first. To be called after [`tokens`](Self::tokens).
    pub fn dpop_nonces(self, secret: &Secret) -> Result<Self, ConfigError> {
        let nonces = Arc::new(Nonces::new(secret));
        self.set_tokens("DPoP nonces", |config| config.nonces = Some(nonces))
    }

    fn set_tokens(self, setting: &'static str, change: impl FnOnce(&mut TokenConfig)) -> Result<Self, ConfigError> {
        if self.0.config.tokens.is_none() {
            return Err(ConfigError::new(setting, "", "is about tokens: call tokens first"));
        }
        Ok(self.set(|config| {
            if let Some(tokens) = &mut config.tokens {
                change(tokens);
            }
        }))
    }
}
