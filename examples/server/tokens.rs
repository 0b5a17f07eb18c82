//! How tokens are signed, and what is asked of those who come with one.

use std::error::Error;

use serde::Deserialize;
use tollgate::{
    Algorithm, AuthService, ConfigError, Secret, Tokens, Verifier,
    bearer::VerifierBuilder,
    store::{AnyStore, StoreErrorKind},
};

/// As the file has it, below `[tokens]`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Written {
    algorithm: Option<String>,
    seal: Option<String>,
    dpop_nonces: Option<String>,
    introspectors: Vec<String>,
}

/// The demo has nothing of it.
#[derive(Default)]
pub(crate) struct TokenSettings {
    /// Signs them; otherwise ES256.
    algorithm: Option<Algorithm>,
    /// Seals the keys that sign.
    seal: Option<Secret>,
    /// Makes the nonces that proofs of keys (DPoP) have to hold.
    dpop_nonces: Option<Secret>,
    /// Whoever shows one of these may ask about any token.
    introspectors: Vec<Secret>,
}

impl Written {
    pub(crate) fn read(self) -> Result<TokenSettings, String> {
        let secret = |name: &str, text: String| {
            Secret::parse(text).ok_or_else(|| format!("tokens: {name}: must be 32 bytes in base64url: 43 characters"))
        };
        let algorithm = self.algorithm.map(|name| name.parse().map_err(|error| format!("tokens: algorithm: {error}")));
        Ok(TokenSettings {
            algorithm: algorithm.transpose()?,
            seal: self.seal.map(|text| secret("seal", text)).transpose()?,
            dpop_nonces: self.dpop_nonces.map(|text| secret("dpop_nonces", text)).transpose()?,
            introspectors: self
                .introspectors
                .into_iter()
                .map(|text| secret("introspectors", text))
                .collect::<Result<_, _>>()?,
        })
    }
}

impl TokenSettings {
    /// Those of this issuer. The keys that sign are read or made here, not at the first request.
    pub(crate) async fn tokens(&self, issuer: &str, store: &AnyStore) -> Result<Tokens, Box<dyn Error>> {
        let tokens = self.seal.iter().fold(Tokens::new(issuer, store.clone())?, Tokens::seal);
        let tokens = self.algorithm.into_iter().fold(tokens, Tokens::algorithm);
        tokens.prepare().await.map_err(|error| match error.kind() {
            StoreErrorKind::Corrupt => {
                let cause = error.source().map(ToString::to_string).unwrap_or_default();
                format!(
                    "{error}: {cause}. Look at `seal` below [tokens] in the file of --config: it must be the one that \
                     was there when the keys in --data were made."
                )
            }
            _ => format!("the keys that sign tokens can't be read or made: {error}"),
        })?;
        Ok(tokens)
    }

    /// The login service, with what it asks beyond its tokens.
    pub(crate) fn set_on(&self, auth: AuthService) -> Result<AuthService, ConfigError> {
        let auth = self.introspectors.iter().try_fold(auth, AuthService::introspector)?;
        self.dpop_nonces.iter().try_fold(auth, AuthService::dpop_nonces)
    }

    /// What checks them at an API that is reached under this URL: the proof of a key names the URL of its request.
    pub(crate) fn verifier(&self, tokens: &Tokens, url: &str, store: &AnyStore) -> Result<Verifier, ConfigError> {
        let verifier = tokens.verifier().to_builder().dpop(url)?.dpop_store(store.clone());
        Ok(self.dpop_nonces.iter().fold(verifier, VerifierBuilder::dpop_nonces).build())
    }
}
