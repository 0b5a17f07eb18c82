//! How tokens are signed, and the requirements for callers that present one.

use std::{error::Error, path::Path};

use serde::Deserialize;
use tollgate::{
    AuthService, ConfigError, Secret, Tokens, Verifier,
    auth::AuthServiceBuilder,
    bearer::{Algorithm, VerifierBuilder},
    store::{AnyStore, StoreErrorKind},
};

use crate::{
    auth,
    explain::explained,
    secret_text::{SecretText, Span},
};

/// The section `[tokens]` of the file.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Written {
    algorithm: Option<String>,
    seal: Option<SecretText>,
    older_seals: Vec<SecretText>,
    dpop_nonces: Option<SecretText>,
    introspectors: Vec<SecretText>,
    access_lifetime: Option<Span>,
    refresh_lifetime: Option<Span>,
    session_refresh_lifetime: Option<Span>,
    rotate_every: Option<Span>,
}

/// The demo uses the defaults.
#[derive(Default)]
pub(crate) struct TokenSettings {
    /// Signs tokens. Defaults to ES256.
    algorithm: Option<Algorithm>,
    /// Encrypts the signing keys.
    seal: Option<Secret>,
    /// Earlier ones, which only decrypt.
    older_seals: Vec<Secret>,
    /// Derives the nonces that DPoP proofs must contain.
    dpop_nonces: Option<Secret>,
    /// The secrets that allow a caller to introspect any token.
    introspectors: Vec<Secret>,
    /// How long tokens are valid, and how long a key signs.
    lifetimes: [Option<Span>; 4],
}

impl Written {
    pub(crate) fn read(&self, directory: &Path) -> Result<TokenSettings, String> {
        let secret =
            |name: &str, text: &SecretText| text.random(directory).map_err(|error| format!("tokens: {name}: {error}"));
        let algorithm = self.algorithm.as_ref().map(|name| name.parse());
        let algorithm = algorithm.transpose().map_err(|error| format!("tokens: algorithm: {error}"))?;
        let secrets = |name: &str, texts: &[SecretText]| {
            texts.iter().map(|text| secret(name, text)).collect::<Result<Vec<_>, _>>()
        };
        let settings = TokenSettings {
            algorithm,
            seal: self.seal.as_ref().map(|text| secret("seal", text)).transpose()?,
            older_seals: secrets("older_seals", &self.older_seals)?,
            dpop_nonces: self.dpop_nonces.as_ref().map(|text| secret("dpop_nonces", text)).transpose()?,
            introspectors: secrets("introspectors", &self.introspectors)?,
            lifetimes: [self.access_lifetime, self.refresh_lifetime, self.session_refresh_lifetime, self.rotate_every],
        };
        let checked = auth::check(auth::LOCALHOST, |auth| Ok(settings.set_on(auth)));
        checked.map_err(|error| format!("tokens: {error}"))?;
        Ok(settings)
    }
}

impl TokenSettings {
    /// Adds tokens with these settings to the login service.
    pub(crate) fn set_on(&self, auth: AuthServiceBuilder) -> AuthServiceBuilder {
        let tokens = self.seal.iter().fold(Tokens::new(), Tokens::seal);
        let tokens = self.older_seals.iter().fold(tokens, Tokens::older_seal);
        let setters =
            [Tokens::access_lifetime, Tokens::refresh_lifetime, Tokens::session_refresh_lifetime, Tokens::rotate_every];
        let lifetimes = self.lifetimes.iter().zip(setters);
        let tokens = lifetimes.fold(tokens, |tokens, (span, set)| match span {
            Some(Span(span)) => set(tokens, *span),
            None => tokens,
        });
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
                 the stored keys were created, or that one must be among `older_seals`."
            )
            .into()
        }
        _ => format!("the signing keys cannot be read or created: {}", explained(&error)).into(),
    })
}
