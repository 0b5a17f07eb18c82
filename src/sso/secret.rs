//! Secrets that a provider has given to this service.

use std::{env, fs, path::Path};

use zeroize::Zeroizing;

use crate::util::error::ConfigError;

/// The secret of this service at a provider. Its `Debug` output shows nothing, and its memory is wiped when it is dropped.
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

    /// Reads the secret from a file, without the line break at its end.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be read, is empty or not UTF-8.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let text = fs::read_to_string(path).map(Zeroizing::new).ok();
        let secret = text.as_deref().map(|text| text.trim_end_matches(['\r', '\n'])).filter(|text| !text.is_empty());
        let wrong = || ConfigError::new("client secret", path.display(), "is not a readable file with a secret");
        secret.map(Self::new).ok_or_else(wrong)
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
    fn secrets_are_read_from_files_and_never_shown() {
        let path = env::temp_dir().join(format!("tollgate-client-secret-{}", std::process::id()));
        fs::write(&path, "s3cret \r\n").unwrap();
        let secret = ClientSecret::from_file(&path).unwrap();
        assert_eq!((secret.expose(), format!("{secret:?}").as_str()), ("s3cret ", "ClientSecret(..)"));
        fs::write(&path, "\n").unwrap();
        assert!(ClientSecret::from_file(&path).is_err());
        fs::remove_file(&path).unwrap();
        assert!(ClientSecret::from_file(&path).is_err());
        assert!(ClientSecret::from_env("TOLLGATE_NO_SUCH_VARIABLE").is_err());
    }
}
