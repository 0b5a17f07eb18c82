//! The credentials of a client.

use std::{fmt, str::FromStr};

use crate::{
    jose::{JwsAlgorithm, KeySet},
    util::{
        encoding::{base64url_of_32, base64url_to_32},
        error::ConfigError,
        secret::{Secret, SecretDigest},
    },
};

/// A secret of a confidential client, stored as its digest, for [`Client::secret`](crate::Client::secret).
///
/// [`generate`](Self::generate) makes a secret of 256 bits. Give it to the client once, and store the
/// `ClientSecretDigest` as text, from which it can be parsed again. Don't use secrets that people make up: they could
/// be guessed from the digest.
///
/// ```
/// use tollgate::{Client, Tenant, client::ClientSecretDigest};
///
/// let (secret, stored) = ClientSecretDigest::generate();
/// let kept = stored.to_string();
/// let shop = Client::new("shop", Tenant::parse("acme")?)?.secret(kept.parse()?)?;
/// assert_eq!(secret.expose().len(), 43);
/// assert!(shop.is_confidential() && kept.starts_with("sha256:"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct ClientSecretDigest(SecretDigest);

/// The beginning of the text of a digest.
const SHA_256: &str = "sha256:";

impl ClientSecretDigest {
    /// Creates a secret, and the digest to store in its place.
    pub fn generate() -> (Secret, Self) {
        let secret = Secret::generate();
        let stored = Self::from(&secret);
        (secret, stored)
    }

    /// Returns whether this text is the secret. Takes the same time for all texts of the same length.
    pub(crate) fn is_secret(&self, text: &str) -> bool {
        self.0.matches(&SecretDigest::of_secret(text))
    }
}

impl From<&Secret> for ClientSecretDigest {
    fn from(secret: &Secret) -> Self {
        Self(secret.digest())
    }
}

impl PartialEq for ClientSecretDigest {
    fn eq(&self, other: &Self) -> bool {
        self.0.matches(&other.0)
    }
}

impl Eq for ClientSecretDigest {}

/// Writes `sha256:` and the digest in base64url.
impl fmt::Display for ClientSecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // the default is never used: base64url is ASCII
        write!(f, "{SHA_256}{}", std::str::from_utf8(&base64url_of_32(self.0.as_bytes())).unwrap_or_default())
    }
}

impl FromStr for ClientSecretDigest {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let digest = text.strip_prefix(SHA_256).and_then(|digest| base64url_to_32(digest.as_bytes()));
        // a text that is not a digest could be the secret itself
        let wrong = || ConfigError::new("client secret", "(hidden)", "must be `sha256:` and a digest in base64url");
        digest.map(|digest| Self(SecretDigest::from_bytes(*digest))).ok_or_else(wrong)
    }
}

crate::util::fmt::opaque_debug!(ClientSecretDigest);

/// How a client authenticates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// A public client does not.
    #[default]
    None,
    /// It sends one of these secrets (`client_secret_basic`, `client_secret_post`).
    Secrets(Vec<ClientSecretDigest>),
    /// It signs assertions with one of these keys (`private_key_jwt`).
    Keys(KeySet),
}

impl Credentials {
    /// The maximum number of secrets: the old and the new one, during a rotation.
    const MOST_SECRETS: usize = 2;

    /// Reads the public keys of a client.
    pub(super) fn of_keys(client: &str, jwks_json: &str) -> Result<Self, ConfigError> {
        let is_usable = |keys: &KeySet| keys.iter().any(|(_, key)| key.algorithm() != JwsAlgorithm::Es384);
        let keys = KeySet::parse(jwks_json.as_bytes()).filter(is_usable);
        let wrong = || ConfigError::new("client keys", client, "must be a JSON Web Key Set with a usable public key");
        keys.map(Self::Keys).ok_or_else(wrong)
    }

    /// Adds a secret to those of a client.
    pub(super) fn with_secret(self, client: &str, secret: ClientSecretDigest) -> Result<Self, ConfigError> {
        let wrong = |reason| Err(ConfigError::new("secrets of the client", client, reason));
        match self {
            Self::None => Ok(Self::Secrets(vec![secret])),
            Self::Secrets(secrets) if secrets.contains(&secret) => wrong("must differ"),
            Self::Secrets(secrets) if secrets.len() == Self::MOST_SECRETS => wrong("must be at most two"),
            Self::Secrets(mut secrets) => {
                secrets.push(secret);
                Ok(Self::Secrets(secrets))
            }
            Self::Keys(_) => wrong("can't be combined with keys"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c136_a_secret_has_256_bits_and_is_stored_as_a_digest() {
        let (secret, stored) = ClientSecretDigest::generate();
        assert!(Secret::parse(secret.expose()).is_some() && stored.is_secret(secret.expose()));
        assert!(!stored.is_secret("") && !stored.is_secret(ClientSecretDigest::generate().0.expose()));
        let text = stored.to_string();
        assert!(!text.contains(secret.expose()) && text.parse::<ClientSecretDigest>().unwrap() == stored);
        assert_eq!(format!("{stored:?}"), "ClientSecretDigest(..)");
        // an error does not show what could be a secret
        for bad in [secret.expose(), "sha256:", &text[7..], &format!("{text}A"), &text.replace("sha256", "SHA256")] {
            let error = bad.parse::<ClientSecretDigest>().unwrap_err().to_string();
            assert!(!error.contains(secret.expose()), "{error}");
        }
    }
}
