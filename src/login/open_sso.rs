//! A login that waits for its user to come back from another identity provider.

use std::time::Duration;

use crate::util::{
    clock::{UnixTime, saturating_nanos},
    secret::{Digest, Secret},
};

/// How long the user can take at the provider.
const LIFETIME: Duration = Duration::from_secs(600);

/// The challenge of a login whose user is at another identity provider. It can be redeemed once.
///
/// The `nonce` and the PKCE verifier are derived from `state`, so the row alone does not reveal them.
#[derive(Clone, Debug)]
pub(crate) struct OpenSso {
    pub(crate) provider: String,
    /// The digest of the secret in `state`.
    pub(super) state: Digest,
    pub(super) expires: u64,
    /// The query of the login page, to which the user returns.
    pub(crate) query: String,
}

impl OpenSso {
    #[cfg_attr(not(any(test, feature = "external-providers")), allow(dead_code, reason = "only providers open it"))]
    pub(crate) fn new(provider: &str, state: &Secret, query: String, now: UnixTime) -> Self {
        let expires = (now + LIFETIME).as_nanos();
        Self { provider: provider.to_owned(), state: state.digest(), expires, query }
    }

    /// Returns when the user left for the provider.
    #[cfg_attr(not(feature = "external-providers"), allow(dead_code, reason = "only providers answer"))]
    pub(crate) fn opened_at(&self) -> UnixTime {
        UnixTime::from_nanos(self.expires.saturating_sub(saturating_nanos(LIFETIME)))
    }

    /// Returns whether this provider may redeem the challenge with this secret.
    pub(crate) fn is_for(&self, provider: &str, state: &Digest, now: UnixTime) -> bool {
        self.was_for(provider, state) && now < UnixTime::from_nanos(self.expires)
    }

    /// Returns whether this provider could redeem the challenge with this secret, perhaps too late.
    pub(crate) fn was_for(&self, provider: &str, state: &Digest) -> bool {
        self.state.matches(state) && self.provider == provider
    }
}
