//! What a client says of its tokens.

use super::{Client, RedirectUri, RequestedRedirect};
use crate::{bearer::check_name, jose::Algorithm, util::error::ConfigError};

/// What stands where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TokenSettings {
    pub(crate) audience: Option<String>,
    pub(crate) id_token_algorithm: Option<Algorithm>,
    pub(crate) without_refresh: bool,
    pub(crate) require_dpop: bool,
    pub(crate) after_logout: Vec<RedirectUri>,
}

/// The most URIs that a browser may be sent to after a sign-out.
const MOST: usize = 64;

impl Client {
    /// Names the APIs that its access tokens are for, in place of what [`Tokens`](crate::Tokens) says.
    pub fn audience(mut self, audience: &str) -> Result<Self, ConfigError> {
        check_name("audience", audience)?;
        self.tokens.audience = Some(audience.to_owned());
        Ok(self)
    }

    /// Has its id_tokens signed by this algorithm, where it knows no other: RS256, or that of [`Tokens`](crate::Tokens).
    pub fn id_token_algorithm(mut self, algorithm: Algorithm) -> Self {
        self.tokens.id_token_algorithm = Some(algorithm);
        self
    }

    /// Gives it no refresh tokens: when the access token ends, its user comes back to `/authorize`.
    pub fn without_refresh_tokens(mut self) -> Self {
        self.tokens.without_refresh = true;
        self
    }

    /// Gives it tokens only with a proof of a key (DPoP), so that a stolen one is worth nothing.
    pub fn require_dpop(mut self) -> Self {
        self.tokens.require_dpop = true;
        self
    }

    /// Lets it send browsers here after a sign-out, and to others that are named so: `post_logout_redirect_uri`, compared
    /// as redirect URIs are.
    pub fn after_logout(self, uri: &str) -> Result<Self, ConfigError> {
        self.with_after_logout(RedirectUri::parse(uri)?)
    }

    /// Lets it send browsers to a URI on `localhost` too after a sign-out: see [`RedirectUri::insecure_localhost`]. For
    /// development only.
    pub fn insecure_localhost_after_logout(self, uri: &str) -> Result<Self, ConfigError> {
        self.with_after_logout(RedirectUri::insecure_localhost(uri)?)
    }

    fn with_after_logout(mut self, uri: RedirectUri) -> Result<Self, ConfigError> {
        if self.tokens.after_logout.contains(&uri) {
            return Err(ConfigError::new("post-logout redirect URI", uri, "is registered twice"));
        }
        if self.tokens.after_logout.len() == MOST {
            return Err(ConfigError::new("post-logout redirect URI", uri, "is one too many: a client has at most 64"));
        }
        self.tokens.after_logout.push(uri);
        Ok(self)
    }

    /// The URI that a request names to go to after a sign-out, where it is registered.
    pub(crate) fn after_logout_to(&self, requested: &str) -> Option<RequestedRedirect> {
        self.tokens.after_logout.iter().find_map(|registered| RequestedRedirect::new(registered, requested))
    }
}
