//! OpenID Connect providers.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use serde::Deserialize;
use zeroize::Zeroizing;

use crate::{
    discovery::{DescribedIssuer, Endpoints, Fetch, KeysLocation, RemoteIssuer},
    jose::{KeySet, Unavailable},
    sso::{
        exchange::{ClientAuth, Exchange},
        id_token::{ExpectedIssuer, IdTokenCheck, IdTokenRules, ProfileClaims},
        provider::{SsoCallback, SsoError, SsoProvider, SsoRequest},
        secret::ClientSecret,
        user::ProviderUser,
    },
    support::outgoing::Outgoing,
    util::{
        builder::setters,
        clock::{Clock, SystemClock},
        error::ConfigError,
        form,
    },
};

/// How long known keys and endpoints are used while the provider's metadata can't be read.
const OUTAGE: Duration = Duration::from_secs(24 * 3600);
/// The parameters of a request that this service sets, and `request`, which could contradict them.
const OWN_PARAMETERS: [&str; 12] = [
    "response_type",
    "response_mode",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "nonce",
    "code_challenge",
    "code_challenge_method",
    "max_age",
    "acr_values",
    "request",
];

/// An OpenID Connect provider, such as Google, Okta, Keycloak, Entra ID or another tollgate.
///
/// Its endpoints and keys are read from `/.well-known/openid-configuration` when the first user comes, and again as they
/// expire or when a token names an unknown key. Uses the code flow with PKCE (S256), state and nonce, and checks the issuer
/// in the callback (RFC 9207) if the provider sends one. ID tokens may be signed with RS256, PS256, ES256, ES384 or EdDSA.
/// Redirects are not followed, and responses are limited to 256 KiB.
///
/// Without a secret or a key, this service is a public client of the provider.
#[must_use]
pub struct OidcProvider {
    issuer: String,
    described: DescribedIssuer,
    rules: IdTokenRules,
    auth: ClientAuth,
    /// Defaults to the issuer.
    assertion_audience: Option<String>,
    scope: String,
    parameters: Vec<(String, String)>,
    has_userinfo: bool,
    exchange: Exchange,
    clock: Arc<dyn Clock>,
    remote: OnceLock<RemoteIssuer>,
}

#[derive(Deserialize)]
struct TokenResponse {
    #[serde(default)]
    access_token: Option<Zeroizing<String>>,
    id_token: Zeroizing<String>,
}

#[derive(Deserialize)]
struct UserInfo {
    sub: String,
    #[serde(flatten)]
    profile: ProfileClaims,
}

impl OidcProvider {
    /// Creates a provider from its issuer URL, exactly as in its ID tokens, and the client id of this service there.
    ///
    /// # Errors
    ///
    /// Returns an error unless `issuer` is an `https` URL, or an `http` URL on a loopback address.
    pub fn new(issuer: &str, client_id: &str) -> Result<Self, ConfigError> {
        ConfigError::refuse_if(client_id.is_empty(), "client id", client_id, "must not be empty")?;
        Ok(Self {
            issuer: issuer.to_owned(),
            described: DescribedIssuer::new(issuer)?,
            rules: IdTokenRules {
                issuer: ExpectedIssuer::Exact(issuer.to_owned()),
                client_id: client_id.to_owned(),
                skew: Duration::from_secs(60),
                max_age: None,
                acr: Vec::new(),
                amr: Vec::new(),
                claims: Vec::new(),
            },
            auth: ClientAuth::None,
            assertion_audience: None,
            scope: "openid email profile".to_owned(),
            parameters: Vec::new(),
            has_userinfo: false,
            exchange: Exchange::new()?,
            clock: Arc::new(SystemClock::new()),
            remote: OnceLock::new(),
        })
    }

    setters! {
        /// Authenticates with this secret in a header (`client_secret_basic`), which OAuth 2 requires providers to
        /// support.
        pub fn secret(secret: ClientSecret) { auth: ClientAuth::Basic(secret) }

        /// Authenticates with this secret in the request body (`client_secret_post`).
        pub fn secret_in_body(secret: ClientSecret) { auth: ClientAuth::Post(secret) }
    }

    /// Authenticates by assertions that are signed with a private key (`private_key_jwt`), given as PEM in PKCS #8 form.
    /// The key id defaults to the key's thumbprint (RFC 7638). The audience of the assertions is the issuer.
    ///
    /// # Errors
    ///
    /// Returns an error unless the PEM contains a key for ES256, EdDSA or RS256.
    pub fn private_key(mut self, pem: impl AsRef<[u8]>, kid: Option<&str>) -> Result<Self, ConfigError> {
        self.auth = ClientAuth::private_key(pem.as_ref(), kid)?;
        Ok(self)
    }

    /// Sets the audience of the assertions, for providers that want the URL of their token endpoint there. Has no effect
    /// without a private key.
    pub fn assertion_audience(mut self, audience: &str) -> Self {
        self.assertion_audience = Some(audience.to_owned());
        self
    }

    /// Sets the requested scopes. Defaults to `openid email profile`; `openid` is always among them.
    pub fn scopes(mut self, scopes: &str) -> Self {
        let mut names = vec!["openid"];
        names.extend(scopes.split_ascii_whitespace().filter(|name| *name != "openid"));
        self.scope = names.join(" ");
        self
    }

    /// Adds a parameter to the requests, such as `hd` or `prompt`. If the user must sign in anew, `prompt` is `login`
    /// instead.
    ///
    /// A parameter does not restrict who can sign in, because users can edit the URL. Check the claim as well: see
    /// [`require_claim`](Self::require_claim).
    ///
    /// # Errors
    ///
    /// Returns an error if this service sets the parameter itself, and for `request`.
    pub fn parameter(mut self, name: &str, value: &str) -> Result<Self, ConfigError> {
        ConfigError::refuse_if(OWN_PARAMETERS.contains(&name), "parameter of a provider", name, "can't be set here")?;
        self.parameters.push((name.to_owned(), value.to_owned()));
        Ok(self)
    }

    /// Accepts the issuers of all directories of a multi-tenant provider, such as
    /// `https://login.microsoftonline.com/{tenantid}/v2.0`. The metadata must have this template as its issuer.
    ///
    /// Anyone can open a directory. Links of users belong to their directory, but no directory vouches for an e-mail address, so
    /// [`trust_email_domain`](super::SsoConnection::trust_email_domain) has no effect. Use the URL of your own directory as
    /// the issuer if only your own people sign in.
    ///
    /// # Errors
    ///
    /// Returns an error unless the template is an `https` URL that contains `{tenantid}`.
    pub fn issuer_template(mut self, template: &str) -> Result<Self, ConfigError> {
        self.rules.issuer = ExpectedIssuer::template(template)?;
        self.described = self.described.named(template);
        Ok(self)
    }

    setters! {
        /// Reads the e-mail address, the name and further claims from the userinfo endpoint, with one more request for each
        /// sign-in.
        ///
        /// Needed if the ID tokens of the provider have only `sub`, although the scopes `email` and `profile` were granted.
        /// OpenID Connect Core §5.4 allows that, and many providers do it. Google and Apple put the address into the ID token.
        /// Entra ID does so only with the optional claim `email`, and never sends `email_verified`. If you are not sure, sign in
        /// once: if an address is needed but missing, a warning is logged, and the login page says that the provider
        /// did not share the address.
        pub fn userinfo() { has_userinfo: true }

        /// Requires that the user entered their credentials at the provider at most this long ago. Defaults to any time, unless
        /// a login asks for less: see [`sso`](super#fresh-sign-ins).
        pub fn max_age(age: Duration) { rules.max_age: Some(age) }
    }

    /// Asks for these authentication levels, and refuses users whose ID token has none of them. Defaults to any.
    pub fn require_acr<'a>(mut self, levels: impl IntoIterator<Item = &'a str>) -> Self {
        self.rules.acr = levels.into_iter().map(str::to_owned).collect();
        self
    }

    /// Refuses users whose ID token lacks any of these methods, such as `mfa`. Defaults to none.
    pub fn require_amr<'a>(mut self, methods: impl IntoIterator<Item = &'a str>) -> Self {
        self.rules.amr = methods.into_iter().map(str::to_owned).collect();
        self
    }

    /// Refuses users whose ID token does not have this claim with this string value, such as `hd` for the organization
    /// of a Google account. Can be called several times. Claims that have a setting or a check of their own, such as
    /// `sub`, `acr` and `email`, never match.
    pub fn require_claim(mut self, name: &str, value: &str) -> Self {
        self.rules.claims.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the timeout of each request to the provider. Defaults to 5 seconds.
    ///
    /// # Errors
    ///
    /// Returns an error if `timeout` is zero or longer than 10 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, ConfigError> {
        self.exchange.set_deadline(timeout)?;
        Ok(self)
    }

    /// Trusts the certificate authorities in this PEM instead of the public ones.
    ///
    /// # Errors
    ///
    /// Returns an error if the PEM contains no certificate or an invalid one.
    pub fn root_pem(mut self, pem: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        self.exchange.client = Outgoing::trusting(pem.as_ref())?;
        Ok(self)
    }

    /// Sets the clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Returns the endpoints and the keys.
    async fn discovered(&self) -> Result<(Arc<Endpoints>, Arc<KeySet>), SsoError> {
        Ok(self.remote().endpoints().await?)
    }

    fn remote(&self) -> &RemoteIssuer {
        self.remote.get_or_init(|| {
            let place = KeysLocation::Described(self.described.clone());
            let Exchange { client, deadline } = self.exchange.clone();
            RemoteIssuer::new(Fetch { place, client, deadline }, OUTAGE, Arc::clone(&self.clock))
        })
    }

    /// Checks the ID token, with newer keys if it names an unknown key.
    async fn check(
        &self,
        token: &str,
        keys: Arc<KeySet>,
        callback: &SsoCallback<'_>,
    ) -> Result<ProviderUser, SsoError> {
        let expected = (callback.nonce(), callback.parameter("iss"));
        let now = || self.clock.unix(self.clock.now());
        let checked = match self.rules.check(token, &keys, expected, now()) {
            IdTokenCheck::UnknownKey => {
                let newer = self.remote().refetch_keys(&keys).wait().await?;
                self.rules.check(token, &newer, expected, now())
            }
            other => other,
        };
        match checked {
            IdTokenCheck::Good(user) => Ok(*user),
            IdTokenCheck::UnknownKey => Err(SsoError::Failed("the ID token is not signed by a key of the provider")),
            IdTokenCheck::Bad(error) => Err(error),
        }
    }

    /// Adds the claims of the userinfo endpoint about the user.
    async fn with_userinfo(
        &self,
        user: ProviderUser,
        endpoints: &Endpoints,
        access_token: Option<&str>,
    ) -> Result<ProviderUser, SsoError> {
        let missing = SsoError::Failed("the provider gives no access to its userinfo endpoint");
        let (url, token) = endpoints.userinfo.as_ref().zip(access_token).ok_or(missing)?;
        let UserInfo { sub, profile } = self.exchange.get(url, token).await?;
        // a response for another user could be put in place of this one
        if sub != user.subject() {
            return Err(SsoError::Failed("the userinfo endpoint describes another user"));
        }
        Ok(profile.add_to_user(user, self.rules.issuer.may_vouch()))
    }
}

impl SsoProvider for OidcProvider {
    async fn authorization_url(&self, request: &SsoRequest<'_>) -> Result<String, SsoError> {
        let (endpoints, _) = self.discovered().await?;
        let url = endpoints.authorization.as_deref().ok_or(UNUSABLE)?;
        let max_age = request.max_age().into_iter().chain(self.rules.max_age).min();
        let is_fresh = max_age.is_some_and(|age| age.is_zero());
        let max_age = max_age.map(|age| age.as_secs().to_string());
        let acr = Some(self.rules.acr.join(" ")).filter(|acr| !acr.is_empty());
        let own = [
            ("response_type", "code"),
            ("client_id", &self.rules.client_id),
            ("redirect_uri", request.redirect_uri()),
            ("scope", &self.scope),
            ("state", request.state()),
            ("nonce", request.nonce()),
            ("code_challenge", request.code_challenge().as_str()),
            ("code_challenge_method", "S256"),
        ];
        let more = [("max_age", max_age.as_deref()), ("acr_values", acr.as_deref())];
        // some providers support only one of the two
        let more = more.into_iter().chain([("prompt", is_fresh.then_some("login"))]);
        let more = more.filter_map(|(name, value)| Some((name, value?)));
        let extra = self.parameters.iter().filter(|(name, _)| !is_fresh || name != "prompt");
        let extra = extra.map(|(name, value)| (name.as_str(), value.as_str()));
        let separator = if url.contains('?') { '&' } else { '?' };
        Ok(format!("{url}{separator}{}", form::encode_pairs(own.into_iter().chain(more).chain(extra))))
    }

    async fn user(&self, callback: &SsoCallback<'_>) -> Result<ProviderUser, SsoError> {
        let (endpoints, keys) = self.discovered().await?;
        // an answer of another provider says nothing, not even about an error
        match callback.parameter("iss") {
            Some(issuer) if !self.rules.issuer.may_be(issuer) => {
                return Err(SsoError::Failed("another issuer has answered"));
            }
            None if endpoints.sends_issuer => return Err(SsoError::Failed("the answer names no issuer")),
            _ => {}
        }
        let code = callback.code()?;
        let url = endpoints.token.as_ref().ok_or(UNUSABLE)?;
        let now = self.clock.unix(self.clock.now());
        let audience = self.assertion_audience.as_ref().unwrap_or(&self.issuer);
        let credentials = self.auth.credentials(&self.rules.client_id, audience, now)?;
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", callback.redirect_uri()),
            ("code_verifier", callback.verifier().expose()),
        ];
        fields.extend(credentials.fields.iter().map(|(name, value)| (*name, value.as_str())));
        let tokens: TokenResponse = self.exchange.post(url, &fields, credentials.header).await?;
        let user = self.check(&tokens.id_token, keys, callback).await?;
        if self.has_userinfo {
            let access_token = tokens.access_token.as_ref().map(|token| token.as_str());
            return self.with_userinfo(user, &endpoints, access_token).await;
        }
        Ok(user)
    }
}

const UNUSABLE: SsoError = SsoError::Unavailable("the metadata of the provider lacks a usable endpoint");

impl From<Unavailable> for SsoError {
    fn from(_: Unavailable) -> Self {
        Self::Unavailable("the metadata or the keys of the provider can't be read")
    }
}

crate::util::fmt::debug_fields!(OidcProvider, |own|
    issuer: own.issuer,
    client_id: own.rules.client_id,
    authentication: own.auth
);
