//! How tokens are signed, and the requirements for callers that present one.

use std::error::Error;

use serde::Deserialize;
use tollgate::{
    AuthService, ConfigError, Secret, Tokens, Verifier,
    auth::AuthServiceBuilder,
    bearer::{Algorithm, VerifierBuilder},
    store::{AnyStore, StoreErrorKind},
};

use crate::explain::explained;

/// The section `[tokens]` of the file.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Written {
    algorithm: Option<String>,
    seal: Option<String>,
    dpop_nonces: Option<String>,
    introspectors: Vec<String>,
}

/// The demo uses the defaults.
#[derive(Default)]
pub(crate) struct TokenSettings {
    /// Signs tokens. Defaults to ES256.
    algorithm: Option<Algorithm>,
    /// Encrypts the signing keys.
    seal: Option<Secret>,
    /// Derives the nonces that DPoP proofs must contain.
    dpop_nonces: Option<Secret>,
    /// The secrets that allow a caller to introspect any token.
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
    /// Adds tokens with these settings to the login service.
    pub(crate) fn set_on(&self, auth: AuthServiceBuilder) -> AuthServiceBuilder {
        let tokens = self.seal.iter().fold(Tokens::new(), Tokens::seal);
        let auth = auth.tokens(self.algorithm.into_iter().fold(tokens, Tokens::algorithm));
        let auth = self.introspectors.iter().fold(auth, AuthServiceBuilder::introspector);
        self.dpop_nonces.iter().fold(auth, AuthServiceBuilder::dpop_nonces)
    }

    /// Creates the verifier of the API at this URL. DPoP proofs contain the URL.
    pub(crate) fn verifier(&self, auth: &AuthService, url: &str, store: &AnyStore) -> Result<Verifier, ConfigError> {
        let verifier = auth.verifier().to_builder().dpop(url)?.dpop_store(store.clone());
        Ok(self.dpop_nonces.iter().fold(verifier, VerifierBuilder::dpop_nonces).build())
    }
}

/// Reads or creates the signing keys at the start instead of at the first request.
pub(crate) async fn prepare(auth: &AuthService) -> Result<(), Box<dyn Error>> {
    auth.prepare().await.map_err(|error| match error.kind() {
        StoreErrorKind::Corrupt => {
            let cause = error.source().map(ToString::to_string).unwrap_or_default();
            format!(
                "{error}: {cause}. Check `seal` below [tokens] in the file of --config: it must be the one with which \
                 the stored keys were created."
            )
            .into()
        }
        _ => format!("the signing keys cannot be read or created: {}", explained(&error)).into(),
    })
}
