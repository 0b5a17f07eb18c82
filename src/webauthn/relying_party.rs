//! The site that users register with.

use super::{
    error::WebauthnError,
    policy::{AttestationPolicy, BackupPolicy, CounterPolicy, UserVerification},
};
use crate::{
    util::builder::setters,
    {http::origin, util::error::ConfigError},
};

/// The fewest bytes of a challenge.
const SHORTEST_CHALLENGE: usize = 16;

/// The relying party: the site that credentials belong to, and what it requires of them.
///
/// Verification is pure. It neither reads the time nor stores anything, so the caller must use each challenge only
/// once, and must let it expire.
#[derive(Clone, Debug)]
pub struct RelyingParty {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) origins: Vec<String>,
    pub(super) top_origins: Vec<String>,
    pub(super) counter: CounterPolicy,
    pub(super) user_verification: UserVerification,
    pub(super) backup: BackupPolicy,
    pub(super) attestation: AttestationPolicy,
}

impl RelyingParty {
    /// Creates a relying party with this id: the domain of the site, such as `example.com`. Credentials work on the
    /// domain and on its subdomains, as far as [`origin`](Self::origin) allows them.
    ///
    /// Changing the id later makes all credentials unusable.
    ///
    /// # Errors
    ///
    /// Returns an error if `id` is not a lower-case domain name. Browsers accept no IP addresses.
    pub fn new(id: impl Into<String>) -> Result<Self, ConfigError> {
        let id = id.into();
        let is_domain = origin::host_and_port(&id).is_some_and(|(host, port)| host == id && port.is_none());
        let is_address = id.starts_with('[') || id.rsplit('.').next().is_some_and(|last| last.parse::<u32>().is_ok());
        ConfigError::refuse_if(!is_domain || is_address, "relying party id", &id, "must be a lower-case domain name")?;
        Ok(Self {
            name: id.clone(),
            id,
            origins: Vec::new(),
            top_origins: Vec::new(),
            counter: CounterPolicy::default(),
            user_verification: UserVerification::default(),
            backup: BackupPolicy::default(),
            attestation: AttestationPolicy::default(),
        })
    }

    /// Allows an origin, such as `https://login.example.com`. Without an allowed origin, no response is accepted.
    ///
    /// # Errors
    ///
    /// Returns an error if this is not an origin with `https` (or `http` on `localhost`), or if its host is neither the
    /// id of the relying party nor a subdomain of it.
    pub fn origin(mut self, origin: impl AsRef<str>) -> Result<Self, ConfigError> {
        let origin = origin::normal("passkey origin", origin.as_ref())?;
        let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
        let host = origin::host_and_port(authority).map_or("", |(host, _)| host);
        let is_own = host.strip_suffix(self.id.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        if !is_own {
            return Err(ConfigError::new(
                "passkey origin",
                origin,
                "must be the relying party id or a subdomain of it",
            ));
        }
        self.origins.push(origin);
        Ok(self)
    }

    /// Allows pages of this origin to embed the site's pages. By default, responses from embedded pages are refused.
    ///
    /// # Errors
    ///
    /// Returns an error if this is not an origin.
    pub fn top_origin(mut self, origin: impl AsRef<str>) -> Result<Self, ConfigError> {
        self.top_origins.push(origin::normal("passkey top origin", origin.as_ref())?);
        Ok(self)
    }

    setters! {
        /// Sets the name that some authenticators show. Defaults to the id.
        pub fn name(name: impl Into<String>) { name: name.into() }

        /// Sets what happens if a signature counter has not increased. Defaults to [`CounterPolicy::Refuse`].
        pub fn counter(counter: CounterPolicy) { counter: counter }

        /// Sets whether the user has to be verified. Defaults to [`UserVerification::Required`].
        pub fn user_verification(user_verification: UserVerification) { user_verification: user_verification }

        /// Sets whether synced credentials are accepted. Defaults to [`BackupPolicy::Allow`].
        pub fn backup(backup: BackupPolicy) { backup: backup }

        /// Sets which attestations are accepted. Defaults to [`AttestationPolicy::AcceptUnverified`].
        pub fn attestation(attestation: AttestationPolicy) { attestation: attestation }
    }

    /// Returns the id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Refuses challenges that could be guessed.
    pub(super) fn check_challenge(challenge: &[u8]) -> Result<(), WebauthnError> {
        if challenge.len() < SHORTEST_CHALLENGE { Err(WebauthnError::Challenge) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_domains() {
        for id in ["example.com", "localhost", "a.b.example", "xn--bcher-kva.example"] {
            assert_eq!(RelyingParty::new(id).unwrap().id(), id);
        }
        for id in
            ["", "Example.com", "example.com:443", "https://example.com", "127.0.0.1", "[::1]", "a..b", "a b", "é"]
        {
            assert!(RelyingParty::new(id).is_err(), "{id:?}");
        }
    }

    #[test]
    fn origins_belong_to_the_id() {
        let party = RelyingParty::new("example.com").unwrap();
        for origin in ["https://example.com", "https://login.example.com", "https://a.b.example.com:8443"] {
            assert!(party.clone().origin(origin).is_ok(), "{origin}");
        }
        for origin in [
            "https://badexample.com",
            "https://example.org",
            "https://com",
            "https://example.com.evil.example",
            "http://example.com",
            "http://localhost",
            "https://example.com/",
        ] {
            assert!(party.clone().origin(origin).is_err(), "{origin}");
        }
        assert!(RelyingParty::new("localhost").unwrap().origin("http://localhost:8080").is_ok());
    }
}
