//! The trait of identity providers.

use std::{fmt, time::Duration};

use crate::{
    pkce::{CodeChallenge, CodeVerifier},
    sso::user::ProviderUser,
    store::BoxFuture,
};

/// The longest authorization code.
const LONGEST_CODE: usize = 4096;

/// An identity provider that signs users in by the authorization code flow of OAuth 2.
///
/// The login service creates and checks `state`, remembers which login sent a user to the provider, and passes on the
/// parameters with which the user comes back. Each call of these methods may take 15 seconds, including everything that
/// it fetches.
///
/// [`GitHub`](super::GitHub) is an example without ID tokens.
pub trait SsoProvider: Send + Sync + 'static {
    /// Returns the URL that the user's browser opens. It must contain the redirect URI, the state and the code challenge,
    /// and the nonce if the provider issues ID tokens.
    fn authorization_url(&self, request: &SsoRequest<'_>) -> impl Future<Output = Result<String, SsoError>> + Send;

    /// Redeems the authorization code, and returns the user.
    ///
    /// # Errors
    ///
    /// Returns an error unless the provider has signed in a user for this very request.
    fn user(&self, callback: &SsoCallback<'_>) -> impl Future<Output = Result<ProviderUser, SsoError>> + Send;
}

/// The request that a user takes to a provider.
#[derive(Clone, Copy, Debug)]
pub struct SsoRequest<'a> {
    redirect_uri: &'a str,
    state: &'a str,
    nonce: &'a str,
    code_challenge: &'a CodeChallenge,
    max_age: Option<Duration>,
}

impl<'a> SsoRequest<'a> {
    /// Creates a request. The login service does this itself; use it to test your own provider.
    pub fn new(redirect_uri: &'a str, state: &'a str, nonce: &'a str, code_challenge: &'a CodeChallenge) -> Self {
        Self { redirect_uri, state, nonce, code_challenge, max_age: None }
    }

    /// Sets the maximum age of the user's authentication at the provider.
    #[must_use]
    pub fn with_max_age(self, max_age: Duration) -> Self {
        Self { max_age: Some(max_age), ..self }
    }

    /// Returns the URL that the provider sends the user back to.
    pub fn redirect_uri(&self) -> &'a str {
        self.redirect_uri
    }

    /// Returns the `state` that the provider must send back.
    pub fn state(&self) -> &'a str {
        self.state
    }

    /// Returns the `nonce` that the ID token must contain.
    pub fn nonce(&self) -> &'a str {
        self.nonce
    }

    /// Returns the PKCE challenge, whose method is S256.
    pub fn code_challenge(&self) -> &'a CodeChallenge {
        self.code_challenge
    }

    /// Returns how long ago the user may have authenticated at the provider, at most. Zero means that the provider must
    /// ask the user again. Providers that can't be asked for this ignore it. The login service always checks
    /// [`ProviderUser::auth_time`].
    pub fn max_age(&self) -> Option<Duration> {
        self.max_age
    }
}

/// The response of a provider, which the user's browser has delivered. Its `state` is already checked.
#[derive(Clone, Copy)]
pub struct SsoCallback<'a> {
    redirect_uri: &'a str,
    parameters: &'a [(&'a str, &'a str)],
    verifier: &'a CodeVerifier,
    nonce: &'a str,
}

impl<'a> SsoCallback<'a> {
    /// Creates a callback. The login service does this itself; use it to test your own provider.
    pub fn new(
        redirect_uri: &'a str,
        parameters: &'a [(&'a str, &'a str)],
        verifier: &'a CodeVerifier,
        nonce: &'a str,
    ) -> Self {
        Self { redirect_uri, parameters, verifier, nonce }
    }

    /// Returns a parameter of the query. No parameter appears twice, and an empty one counts as missing.
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        let found = self.parameters.iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
        found.filter(|value| !value.is_empty())
    }

    /// Returns the authorization code.
    ///
    /// # Errors
    ///
    /// Returns an error if the provider sent an error instead: [`SsoError::Denied`] for `access_denied`, and
    /// [`SsoError::Unavailable`] if the provider could not answer.
    pub fn code(&self) -> Result<&'a str, SsoError> {
        match self.parameter("error") {
            Some("access_denied") => Err(SsoError::Denied),
            Some("server_error" | "temporarily_unavailable") => {
                Err(SsoError::Unavailable("the provider reported an error of its own"))
            }
            Some(_) => Err(SsoError::Failed("the provider refused the request")),
            None => self
                .parameter("code")
                .filter(|code| code.len() <= LONGEST_CODE)
                .ok_or(SsoError::Failed("the provider sent no usable code")),
        }
    }

    /// Returns the redirect URI of the request.
    pub fn redirect_uri(&self) -> &'a str {
        self.redirect_uri
    }

    /// Returns the PKCE verifier, to be sent with the code.
    pub fn verifier(&self) -> &'a CodeVerifier {
        self.verifier
    }

    /// Returns the `nonce` of the request.
    pub fn nonce(&self) -> &'a str {
        self.nonce
    }
}

impl fmt::Debug for SsoCallback<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SsoCallback").field("redirect_uri", &self.redirect_uri).finish_non_exhaustive()
    }
}

/// The reason why no user is signed in. It is logged and never shown to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SsoError {
    /// The user canceled, or the provider does not let the user in.
    Denied,
    /// The response is invalid, so nothing in it counts.
    Failed(&'static str),
    /// The provider can't be reached, or did not answer in time.
    Unavailable(&'static str),
}

crate::util::fmt::text_error!(SsoError, |own| match own {
    Self::Denied => "the user was denied at the provider",
    Self::Failed(reason) | Self::Unavailable(reason) => reason,
});

/// [`SsoProvider`] as an object.
pub(super) trait DynSsoProvider: Send + Sync {
    fn authorization_url<'a>(&'a self, request: &'a SsoRequest<'a>) -> BoxFuture<'a, Result<String, SsoError>>;
    fn user<'a>(&'a self, callback: &'a SsoCallback<'a>) -> BoxFuture<'a, Result<ProviderUser, SsoError>>;
}

impl<P: SsoProvider> DynSsoProvider for P {
    fn authorization_url<'a>(&'a self, request: &'a SsoRequest<'a>) -> BoxFuture<'a, Result<String, SsoError>> {
        Box::pin(SsoProvider::authorization_url(self, request))
    }

    fn user<'a>(&'a self, callback: &'a SsoCallback<'a>) -> BoxFuture<'a, Result<ProviderUser, SsoError>> {
        Box::pin(SsoProvider::user(self, callback))
    }
}
