//! GitHub, whose OAuth 2 has no ID tokens.

use std::time::Duration;

use http::Uri;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::{
    sso::{
        exchange::Exchange,
        provider::{SsoCallback, SsoError, SsoProvider, SsoRequest},
        secret::ClientSecret,
        user::ProviderUser,
    },
    support::{outgoing::Outgoing, url::parse_url},
    util::{error::ConfigError, form},
};

/// Sign-in with GitHub. Users are identified by their account number, because user names can be reassigned.
///
/// GitHub issues no ID token, so the user is read from its API with an access token that came straight from GitHub. That
/// token is dropped afterwards. GitHub does not report how long ago the user entered a password, so these sign-ins
/// don't count as [fresh](super#fresh-sign-ins).
#[must_use]
pub struct GitHub {
    issuer: String,
    authorize: String,
    token: Uri,
    api: String,
    client_id: String,
    secret: ClientSecret,
    exchange: Exchange,
}

/// GitHub reports errors with status 200.
#[derive(Deserialize)]
struct TokenResponse {
    access_token: Option<Zeroizing<String>>,
}

#[derive(Deserialize)]
struct GitHubUser {
    id: u64,
    login: String,
    #[serde(default)]
    name: Option<String>,
}

#[derive(Deserialize)]
struct GitHubEmail {
    email: String,
    primary: bool,
    verified: bool,
}

impl GitHub {
    /// Creates the provider from an OAuth app registered at `github.com`.
    ///
    /// # Errors
    ///
    /// Returns an error if TLS can't be initialized.
    pub fn new(client_id: &str, secret: ClientSecret) -> Result<Self, ConfigError> {
        Self::with_urls("https://github.com", "https://api.github.com", client_id, secret)
    }

    /// Creates the provider from an OAuth app registered at a GitHub Enterprise Server with this URL.
    ///
    /// # Errors
    ///
    /// Returns an error unless `url` is an `https` URL, or an `http` URL on a loopback address.
    pub fn enterprise(url: &str, client_id: &str, secret: ClientSecret) -> Result<Self, ConfigError> {
        let url = url.strip_suffix('/').unwrap_or(url);
        Self::with_urls(url, &format!("{url}/api/v3"), client_id, secret)
    }

    fn with_urls(url: &str, api: &str, client_id: &str, secret: ClientSecret) -> Result<Self, ConfigError> {
        Ok(Self {
            issuer: url.to_owned(),
            authorize: format!("{url}/login/oauth/authorize"),
            token: parse_url("GitHub", &format!("{url}/login/oauth/access_token"))?,
            api: api.to_owned(),
            client_id: client_id.to_owned(),
            secret,
            exchange: Exchange::new()?,
        })
    }

    /// Sets the timeout of each request to GitHub. Defaults to 5 seconds.
    ///
    /// # Errors
    ///
    /// Returns an error if `timeout` is zero or longer than 10 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, ConfigError> {
        self.exchange.set_deadline(timeout)?;
        Ok(self)
    }

    /// Trusts the certificate authorities in this PEM instead of the public ones. A server of your own may need this.
    ///
    /// # Errors
    ///
    /// Returns an error if the PEM contains no certificate or an invalid one.
    pub fn root_pem(mut self, pem: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        self.exchange.client = Outgoing::trusting(pem.as_ref())?;
        Ok(self)
    }

    fn api(&self, path: &str) -> Result<Uri, SsoError> {
        format!("{}{path}", self.api).parse().map_err(|_| SsoError::Failed("the URL of the API is unusable"))
    }
}

impl SsoProvider for GitHub {
    async fn authorization_url(&self, request: &SsoRequest<'_>) -> Result<String, SsoError> {
        let parameters = [
            ("client_id", self.client_id.as_str()),
            ("redirect_uri", request.redirect_uri()),
            ("scope", "read:user user:email"),
            ("state", request.state()),
            ("code_challenge", request.code_challenge().as_str()),
            ("code_challenge_method", "S256"),
        ];
        Ok(format!("{}?{}", self.authorize, form::encode_pairs(parameters.into_iter())))
    }

    async fn user(&self, callback: &SsoCallback<'_>) -> Result<ProviderUser, SsoError> {
        let fields = [
            ("client_id", self.client_id.as_str()),
            ("client_secret", self.secret.expose()),
            ("code", callback.code()?),
            ("redirect_uri", callback.redirect_uri()),
            ("code_verifier", callback.verifier().expose()),
        ];
        let answer: TokenResponse = self.exchange.post(&self.token, &fields, None).await?;
        let token = answer.access_token.ok_or(SsoError::Failed("the provider gave no access token for the code"))?;
        let user: GitHubUser = self.exchange.get(&self.api("/user")?, &token).await?;
        let emails: Vec<GitHubEmail> = self.exchange.get(&self.api("/user/emails")?, &token).await?;
        let known = ProviderUser::new(&self.issuer, user.id.to_string()).with_claim("login", &user.login);
        let known = match emails.into_iter().find(|email| email.primary) {
            Some(GitHubEmail { email, verified, .. }) => known.with_email(email, verified),
            None => known,
        };
        Ok(known.with_name(user.name.unwrap_or(user.login)))
    }
}

crate::util::fmt::debug_fields!(GitHub { issuer, client_id });
