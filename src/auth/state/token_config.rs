//! How tokens are issued here, and who may ask about them.

use crate::{
    auth::http::problem::Problem,
    client::Client,
    jose::Algorithm,
    tokens::Tokens,
    util::{error::ConfigError, secret::Digest},
};

#[derive(Clone)]
pub(crate) struct TokenConfig {
    pub(crate) tokens: Tokens,
    /// Digests of the secrets that may ask about any token.
    pub(crate) introspectors: Vec<Digest>,
}

impl TokenConfig {
    /// Checks that there is a key for this client's id_tokens.
    pub(crate) fn check(&self, client: &Client) -> Result<(), ConfigError> {
        match client.tokens.id_token_algorithm {
            Some(algorithm) if ![self.tokens.algorithm_in_use(), Algorithm::Rs256].contains(&algorithm) => {
                let reason = "has its id_tokens signed by an algorithm that is neither RS256 nor that of the tokens";
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
        Ok(self.tokens.prepare().await?)
    }
}
