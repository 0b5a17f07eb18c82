//! The settings of authenticator apps.

use crate::{
    support::seal::Seal,
    util::{builder::setters, error::ConfigError, secret::Secret},
};

/// The settings of authenticator apps (TOTP, RFC 6238).
///
/// Codes of apps are second steps. Enrolling an app takes a fresh proof of another factor, such as a password, or of
/// two if the user has two. The same holds for passkeys. Recovery codes always take two.
///
/// Defaults to codes of six digits, which every app supports. Existing keys keep the settings that they were made with.
///
/// ```no_run
/// use tollgate::{Secret, auth::Totp};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // keep it: without it, all enrolled apps are unusable
/// let secret = Secret::parse(std::env::var("TOTP_SECRET")?).ok_or("TOTP_SECRET is not 32 bytes of base64url")?;
/// let totp = Totp::new().name("Example").seal(&secret);
/// # let _ = totp;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Totp {
    /// Set once the settings are complete.
    pub(super) name: Option<String>,
    pub(super) digits: u8,
    pub(super) seal: Seal,
}

impl Totp {
    /// The maximum length of the name, in bytes.
    const MAX_NAME: usize = 64;

    /// Creates the default settings.
    pub fn new() -> Self {
        Self { name: None, digits: 6, seal: Seal::default() }
    }

    setters! {
        /// Sets the name of this service that apps show. Defaults to the host of the issuer. At most 64 bytes.
        pub fn name(name: &str) { name: Some(name.to_owned()) }

        /// Sets the number of digits of codes, for new keys: 6 or 8. Some apps show six anyway.
        pub fn digits(digits: u8) { digits: digits }
    }

    /// Encrypts the keys of apps in the store with this secret, which all nodes must share. Without a seal, anyone with
    /// a copy of the store can generate codes. Keep the secret: losing it makes all enrolled apps unusable. Defaults to
    /// the seal of the signing keys (`Tokens::seal`). One of the two is required if the store is persistent.
    pub fn seal(self, secret: &Secret) -> Self {
        Self { seal: self.seal.with_secret(secret), ..self }
    }

    /// Also reads keys that were encrypted with this earlier secret of [`seal`](Self::seal), so that the secret can be
    /// changed. A key is encrypted with the new secret when its user next signs in with the app. The older seals of the
    /// signing keys (`Tokens::older_seal`) are used as well. Can be called several times.
    pub fn older_seal(self, secret: &Secret) -> Self {
        Self { seal: self.seal.with_older(secret), ..self }
    }

    /// Returns the settings, with these defaults.
    pub(crate) fn complete(self, host: &str, seal: &Seal, is_persistent: bool) -> Result<Self, ConfigError> {
        let name = self.name.unwrap_or_else(|| host.to_owned());
        if name.is_empty() || name.len() > Self::MAX_NAME || name.chars().any(char::is_control) {
            return Err(ConfigError::new("totp name", name, "must have 1 to 64 bytes without control characters"));
        }
        ConfigError::refuse_if(!matches!(self.digits, 6 | 8), "totp digits", self.digits, "must be 6 or 8")?;
        let seal = self.seal.or(seal);
        let reason = "must be set for a persistent store, because a copy of the store could make codes otherwise";
        ConfigError::refuse_if(is_persistent && seal.is_open(), "totp seal", "", reason)?;
        Ok(Self { name: Some(name), digits: self.digits, seal })
    }
}

crate::util::builder::default_by_new!(Totp);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c124_settings_are_checked_and_a_persistent_store_needs_a_seal() {
        let complete = |totp: Totp, is_persistent| {
            totp.complete("example.com", &Seal::default(), is_persistent).map_err(|error| error.to_string())
        };
        assert!(complete(Totp::new(), false).is_ok());
        assert!(complete(Totp::new().digits(8).seal(&Secret::generate()), true).is_ok());
        assert!(Totp::new().complete("example.com", &Seal::new(&Secret::generate()), true).is_ok());
        let error = complete(Totp::new(), true).unwrap_err();
        assert!(error.starts_with("totp seal") && error.contains("must be set for a persistent store"), "{error}");
        for (wrong, setting) in [
            (Totp::new().digits(7), "totp digits"),
            (Totp::new().name(""), "totp name"),
            (Totp::new().name("a\nb"), "totp name"),
            (Totp::new().name(&"x".repeat(65)), "totp name"),
        ] {
            assert!(complete(wrong, false).unwrap_err().starts_with(setting));
        }
        assert!(!format!("{:?}", Totp::new().seal(&Secret::generate())).contains("nonce"));
    }
}
