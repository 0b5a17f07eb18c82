//! Secrets that a provider has given to this service.

use std::env;

use zeroize::Zeroizing;

use crate::util::error::ConfigError;

/// The client secret of this service at a provider. Its `Debug` output shows nothing, and its memory is wiped when it
/// is dropped.
pub struct ClientSecret(Zeroizing<String>);

impl ClientSecret {
    /// Uses this text.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(Zeroizing::new(secret.into()))
    }

    /// Reads the secret from an environment variable.
    ///
    /// # Errors
    ///
    /// Returns an error if the variable is missing, empty or not UTF-8.
    pub fn from_env(name: &str) -> Result<Self, ConfigError> {
        let secret = env::var(name).ok().filter(|secret| !secret.is_empty());
        secret.map(Self::new).ok_or_else(|| ConfigError::new("client secret", name, "is not a variable with a value"))
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

crate::util::fmt::opaque_debug!(ClientSecret);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_never_shown() {
        let secret = ClientSecret::new("s3cret ");
        assert_eq!((secret.expose(), format!("{secret:?}").as_str()), ("s3cret ", "ClientSecret(..)"));
        assert!(ClientSecret::from_env("TOLLGATE_NO_SUCH_VARIABLE").is_err());
    }
}
