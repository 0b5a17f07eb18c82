//! A client and its settings.

use std::fmt;

use super::{
    credentials::{ClientSecretDigest, Credentials},
    redirect::{RedirectUri, RequestedRedirect},
    resources::normal_resource,
    scopes::Scopes,
};
use crate::{
    bearer::check_name,
    http::origin,
    jose::Algorithm,
    policy::Policy,
    tenant::Tenant,
    util::{builder::setters, error::ConfigError, scan::is_unseen},
};

/// An application whose users sign in here. It belongs to one tenant.
///
/// A client needs a redirect URI and scopes before it can be added to a
/// [`ClientTable`](super::ClientTable). The [module documentation](crate::client) shows a complete
/// example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Client {
    id: String,
    tenant: Tenant,
    name: Option<String>,
    redirect_uris: Vec<RedirectUri>,
    scopes: Option<Scopes>,
    origins: Vec<String>,
    policy: Option<Policy>,
    single_sign_on: bool,
    pushed_requests: bool,
    pub(crate) tokens: TokenSettings,
}

/// The maximum number of redirect URIs and of origins.
const MOST: usize = 64;

impl Client {
    /// The maximum length of an id in bytes.
    pub const MAX_ID: usize = 128;

    /// Creates a client.
    ///
    /// # Errors
    ///
    /// Returns an error unless `id` consists of 1 to 128 visible ASCII characters without quotes
    /// and `\`.
    pub fn new(id: &str, tenant: Tenant) -> Result<Self, ConfigError> {
        let allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
        if id.is_empty() || id.len() > Self::MAX_ID || !id.bytes().all(allowed) {
            let reason = "must be 1 to 128 visible ASCII characters without quotes and '\\'";
            return Err(ConfigError::new("client id", id.escape_debug(), reason));
        }
        Ok(Self::with_id(id, tenant))
    }

    fn with_id(id: &str, tenant: Tenant) -> Self {
        Self {
            id: id.to_owned(),
            tenant,
            name: None,
            redirect_uris: Vec::new(),
            scopes: None,
            origins: Vec::new(),
            policy: None,
            single_sign_on: false,
            pushed_requests: false,
            tokens: TokenSettings::default(),
        }
    }

    /// The id of the built-in client. [`new`](Self::new) refuses it, so no registered client has it.
    pub(crate) const FIRST_PARTY: &'static str = "this site";

    /// Creates the built-in client of a tenant, for sign-ins to the site itself. Its users return to `redirect_uri`.
    pub(crate) fn first_party(tenant: Tenant, redirect_uri: String) -> Self {
        Self {
            redirect_uris: vec![RedirectUri::exactly(redirect_uri)],
            scopes: Scopes::parse("openid").ok(),
            single_sign_on: true,
            ..Self::with_id(Self::FIRST_PARTY, tenant)
        }
    }

    /// Returns whether this is the built-in client.
    pub(crate) fn is_first_party(&self) -> bool {
        self.id == Self::FIRST_PARTY
    }

    /// Registers a redirect URI. Can be called several times. See [`RedirectUri::parse`].
    pub fn redirect_uri(self, uri: &str) -> Result<Self, ConfigError> {
        self.with_redirect(RedirectUri::parse(uri)?)
    }

    /// Registers a redirect URI on `localhost`, for development only. See
    /// [`RedirectUri::insecure_localhost`].
    pub fn insecure_localhost(self, uri: &str) -> Result<Self, ConfigError> {
        self.with_redirect(RedirectUri::insecure_localhost(uri)?)
    }

    fn with_redirect(mut self, uri: RedirectUri) -> Result<Self, ConfigError> {
        if self.is_machine() {
            return Err(ConfigError::new("redirect URI", uri, "is not for a machine client, which has no users"));
        }
        add(&mut self.redirect_uris, uri, "redirect URI", "is registered twice")?;
        Ok(self)
    }

    /// Sets the scopes that the client may request, separated by spaces.
    pub fn scopes(self, scopes: &str) -> Result<Self, ConfigError> {
        let parsed = Scopes::parse(scopes);
        let scopes = parsed.map_err(|error| ConfigError::new("scopes", scopes.escape_debug(), error.detail()))?;
        Ok(Self { scopes: Some(scopes), ..self })
    }

    /// Allows pages of this origin to call the service from the browser (CORS). Can be called
    /// several times. The origin must use `https`, or `http` on a loopback address.
    pub fn origin(mut self, origin: &str) -> Result<Self, ConfigError> {
        let normal = origin::normal("client origin", origin)?;
        add(&mut self.origins, normal, "client origin", "is allowed twice")?;
        Ok(self)
    }

    setters! {
        /// Requires this policy for logins of this client, in addition to the policy of its tenant.
        pub fn policy(policy: Policy) { policy: Some(policy) }

        /// Enables single sign-on: a user with a session from another client of the tenant continues
        /// without a new login, if the methods that were used satisfy the policy of this client.
        ///
        /// Without it, each authorization request requires a new login. Users confirm the
        /// sign-in if the redirect URI is a loopback address or a private scheme, because any local app
        /// can receive those (RFC 8252 §8.6).
        pub fn single_sign_on() { single_sign_on: true }

        /// Declares that the client belongs to somebody else: it gets a code only for the access that its user has allowed.
        ///
        /// A page names the client and what it requests: scopes, individual claims, and resources. The decision is stored, and
        /// the page is shown again only if the client asks for more, or with `prompt=consent`. Users see their decisions on the
        /// account page and can revoke them there, which revokes the tokens of the client.
        pub fn third_party() { tokens.is_third_party: true }

        /// Rejects authorization requests of this client that were not pushed (RFC 9126), so that they
        /// can't be modified on the way.
        pub fn require_pushed_requests() { pushed_requests: true }
    }

    /// Sets the name that pages show for this client: 1 to 64 visible characters. Defaults to the
    /// id.
    pub fn name(self, name: &str) -> Result<Self, ConfigError> {
        let is_blank = name.trim().is_empty();
        if is_blank || name.chars().count() > 64 || name.chars().any(is_unseen) {
            let reason = "must be 1 to 64 visible characters";
            return Err(ConfigError::new("client name", name.escape_debug(), reason));
        }
        Ok(Self { name: Some(name.to_owned()), ..self })
    }

    /// Returns the id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the tenant whose users sign in.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Returns whether this is a machine client, which has no users.
    pub fn is_machine(&self) -> bool {
        self.tokens.is_machine
    }

    /// Returns whether the client belongs to somebody else.
    pub fn is_third_party(&self) -> bool {
        self.tokens.is_third_party
    }

    /// Returns whether the client authenticates, with a secret or with a key.
    pub fn is_confidential(&self) -> bool {
        self.tokens.credentials != Credentials::None
    }

    /// Returns the name that pages show.
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }

    /// Returns the registered redirect URIs.
    pub fn redirect_uris(&self) -> &[RedirectUri] {
        &self.redirect_uris
    }

    /// Returns the scopes that the client may request.
    pub fn allowed_scopes(&self) -> Option<&Scopes> {
        self.scopes.as_ref()
    }

    /// Returns the origins whose pages may call the service, in the form that browsers send.
    pub fn origins(&self) -> impl Iterator<Item = &str> {
        self.origins.iter().map(String::as_str)
    }

    /// Returns the policy of this client, for [`Policies::plan`](crate::Policies::plan).
    pub fn demands(&self) -> Option<&Policy> {
        self.policy.as_ref()
    }

    /// Returns whether single sign-on is enabled.
    pub fn has_single_sign_on(&self) -> bool {
        self.single_sign_on
    }

    /// Returns whether authorization requests must be pushed.
    pub fn needs_pushed_requests(&self) -> bool {
        self.pushed_requests
    }

    /// Returns the redirect URI of a request if it is registered.
    pub fn redirect(&self, requested: &str) -> Option<RequestedRedirect> {
        self.redirect_uris.iter().find_map(|registered| RequestedRedirect::new(registered, requested))
    }

    /// Returns whether the client may request all of these scopes.
    pub fn allows_scopes(&self, scopes: &Scopes) -> bool {
        self.scopes.as_ref().is_some_and(|allowed| scopes.is_subset(allowed))
    }

    /// Returns whether pages of this origin, in the form that browsers send, may call the service.
    pub fn allows_origin(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| allowed == origin)
    }
}

/// Settings for the tokens of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TokenSettings {
    pub(crate) audience: Option<String>,
    /// The resources that the client may request, besides its audience.
    pub(crate) resources: Vec<String>,
    pub(crate) id_token_algorithm: Option<Algorithm>,
    pub(crate) without_refresh: bool,
    pub(crate) without_id_token_on_refresh: bool,
    pub(crate) require_dpop: bool,
    pub(crate) recheck_policy: bool,
    pub(crate) after_logout: Vec<RedirectUri>,
    pub(crate) is_machine: bool,
    /// Belongs to somebody else, so users decide about it.
    pub(crate) is_third_party: bool,
    pub(crate) credentials: Credentials,
}

impl Client {
    /// Creates a machine client: a service that gets access tokens for itself (`client_credentials`) and has no users.
    ///
    /// It authenticates with assertions that it signs (`private_key_jwt`). `jwks_json` is the JSON Web Key Set with its
    /// public keys, for ES256, EdDSA, RS256 or PS256; a key that names its `alg` is used with that one only. It needs
    /// scopes and can't have redirect URIs. The docs of [`tokens`](crate::tokens#machine-clients) show an example.
    ///
    /// # Errors
    ///
    /// Returns an error unless `id` is valid as for [`new`](Self::new) and the key set has a usable public key.
    pub fn machine(id: &str, tenant: Tenant, jwks_json: &str) -> Result<Self, ConfigError> {
        let mut client = Self::new(id, tenant)?;
        (client.tokens.is_machine, client.tokens.credentials) = (true, Credentials::of_keys(id, jwks_json)?);
        Ok(client)
    }

    /// Makes this a confidential client, which authenticates with a secret at `/token`, `/par`, `/revoke` and `/introspect`
    /// (`client_secret_basic` or `client_secret_post`). It still needs PKCE.
    ///
    /// Can be called twice, so that a secret can be replaced: register the new one next to the old one, switch the client over,
    /// and remove the old one.
    ///
    /// Without any call, the client is public. If you call this in a loop over a stored list, refuse an empty list, or others
    /// could impersonate the client. [`is_confidential`](Self::is_confidential) shows the result.
    ///
    /// # Errors
    ///
    /// Returns an error for a third secret, or if the client has keys.
    pub fn secret(mut self, secret: ClientSecretDigest) -> Result<Self, ConfigError> {
        self.tokens.credentials = self.tokens.credentials.with_secret(&self.id, secret)?;
        Ok(self)
    }

    /// Makes this a confidential client, which signs an assertion for each call to `/token`, `/par`, `/revoke` and
    /// `/introspect` (`private_key_jwt`). It still needs PKCE. The key set is as for [`machine`](Self::machine).
    ///
    /// # Errors
    ///
    /// Returns an error if the key set has no usable public key, or if the client has secrets or other keys.
    pub fn assertion_keys(mut self, jwks_json: &str) -> Result<Self, ConfigError> {
        if self.is_confidential() {
            return Err(ConfigError::new("client keys", self.id, "can't be combined with secrets or other keys"));
        }
        self.tokens.credentials = Credentials::of_keys(&self.id, jwks_json)?;
        Ok(self)
    }

    /// Sets the audience of this client's access tokens. Defaults to the setting of
    /// [`Tokens`](crate::Tokens).
    pub fn audience(mut self, audience: &str) -> Result<Self, ConfigError> {
        check_name("audience", audience)?;
        self.tokens.audience = Some(audience.to_owned());
        Ok(self)
    }

    /// Allows this client to request tokens for an API by its URI (RFC 8707). Can be called several times.
    ///
    /// A client that names allowed resources in the parameter `resource` of its authorization request gets access tokens with
    /// these audiences, and no others. At `/token` it can name some of them for a token with fewer audiences. Requests without
    /// `resource` get the [`audience`](Self::audience), which can also be named if it is a URI.
    ///
    /// `/userinfo` accepts a token that was requested for resources only if the issuer is one of them. Allow the issuer's URL
    /// here if a client needs one token for both.
    ///
    /// # Errors
    ///
    /// Returns an error unless `uri` is an absolute URI of at most 255 visible ASCII characters without a fragment.
    pub fn resource(mut self, uri: &str) -> Result<Self, ConfigError> {
        let malformed =
            || ConfigError::new("resource", uri.escape_debug(), "must be an absolute URI without a fragment");
        let normal = normal_resource(uri).ok_or_else(malformed)?;
        add(&mut self.tokens.resources, normal.to_owned(), "resource", "is allowed twice")?;
        Ok(self)
    }

    /// Returns the resources that the client may request.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.tokens.resources.iter().map(String::as_str)
    }

    setters! {
        /// Sets the signature algorithm of this client's id_tokens: RS256 or that of [`Tokens`](crate::Tokens), which is the
        /// default.
        pub fn id_token_algorithm(algorithm: Algorithm) { tokens.id_token_algorithm: Some(algorithm) }

        /// Issues no refresh tokens to this client. When its access token expires, the user returns to
        /// `/authorize`.
        pub fn without_refresh_tokens() { tokens.without_refresh: true }

        /// Issues no new id_token when this client exchanges a refresh token. By default, it gets one each time.
        ///
        /// A refresh then signs one token instead of two. Use this for clients that read the id_token only at the
        /// login. OpenID Connect makes it optional here (Core §12.2).
        pub fn without_id_token_on_refresh() { tokens.without_id_token_on_refresh: true }

        /// Issues tokens to this client only with a DPoP proof, so that a stolen token is useless.
        pub fn require_dpop() { tokens.require_dpop: true }

        /// Checks the policies of this client and of its tenant again whenever a code or a refresh token is exchanged,
        /// against the proofs that still count. Those by a password that was changed since, or by a phone number that
        /// was removed, do not.
        ///
        /// If they are not met, the answer is `invalid_grant`, and the tokens of the family are revoked, so the user has to sign
        /// in again. By default, a family lives as long as any of its proofs counts. The `acr` of the login is not checked
        /// again; tokens lose it with the first proof that stops counting.
        pub fn recheck_policy() { tokens.recheck_policy: true }
    }

    /// Registers a URI that browsers may return to after a logout (`post_logout_redirect_uri`). Can
    /// be called several times. It is compared like a redirect URI.
    ///
    /// It should return a page, not a redirect to another origin: after a form was submitted, some browsers follow
    /// redirects only to origins in the `Content-Security-Policy` of the page with the form, which lists only this one.
    /// For `[::1]`, which no policy can list, users get a link instead of a redirect after they have confirmed the
    /// logout.
    pub fn after_logout(self, uri: &str) -> Result<Self, ConfigError> {
        self.with_after_logout(RedirectUri::parse(uri)?)
    }

    /// Registers a post-logout URI on `localhost`, for development only. See
    /// [`RedirectUri::insecure_localhost`].
    pub fn insecure_localhost_after_logout(self, uri: &str) -> Result<Self, ConfigError> {
        self.with_after_logout(RedirectUri::insecure_localhost(uri)?)
    }

    fn with_after_logout(mut self, uri: RedirectUri) -> Result<Self, ConfigError> {
        add(&mut self.tokens.after_logout, uri, "post-logout redirect URI", "is registered twice")?;
        Ok(self)
    }

    /// Returns the post-logout URI of a request if it is registered.
    pub(crate) fn after_logout_to(&self, requested: &str) -> Option<RequestedRedirect> {
        self.tokens.after_logout.iter().find_map(|registered| RequestedRedirect::new(registered, requested))
    }
}

/// Adds a value to a list of a client.
fn add<T: PartialEq + fmt::Display>(
    list: &mut Vec<T>,
    value: T,
    setting: &'static str,
    twice: &'static str,
) -> Result<(), ConfigError> {
    ConfigError::refuse_if(list.contains(&value), setting, &value, twice)?;
    ConfigError::refuse_if(list.len() == MOST, setting, &value, "exceeds the limit of 64 per client")?;
    list.push(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Client {
        Client::new("demo", Tenant::parse("acme").unwrap()).unwrap()
    }

    #[test]
    fn c123_an_id_is_visible_and_bounded_and_never_that_of_the_built_in_client() {
        let id = |id: &str| Client::new(id, Tenant::parse("acme").unwrap());
        let longest = "x".repeat(128);
        for good in ["a", "https://app.example/client", "a.b~c_d-e:f", &longest] {
            assert_eq!(id(good).unwrap().id(), good);
        }
        for bad in ["", " ", Client::FIRST_PARTY, "a b", "a\"", "a'", "a\\", "é", "a\n", "a\0", &format!("{longest}x")]
        {
            assert!(id(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn all_redirect_uris_are_compared() {
        let client = client().redirect_uri("https://a.example/1").unwrap().redirect_uri("http://[::1]/2").unwrap();
        assert!(client.redirect("https://a.example/1").is_some());
        assert_eq!(client.redirect("http://[::1]:9/2").unwrap().as_str(), "http://[::1]:9/2");
        assert!(client.redirect("https://a.example/2").is_none() && client.redirect("https://a.example:9/1").is_none());
        assert!(client.clone().redirect_uri("https://a.example/1").is_err());
        assert!(client.clone().redirect_uri("http://localhost/").is_err());
        assert!(client.insecure_localhost("http://localhost/").unwrap().redirect("http://localhost/").is_some());
    }

    #[test]
    fn a_client_may_ask_for_its_scopes_only() {
        let asks = |client: &Client, text| client.allows_scopes(&Scopes::parse(text).unwrap());
        let client = client().scopes("openid profile email").unwrap();
        assert!(asks(&client, "email openid") && asks(&client, "profile email openid"));
        assert!(!asks(&client, "openid admin") && !asks(&client, "OPENID"));
        assert!(!asks(&self::client(), "openid"));
        assert!(self::client().scopes("a  b").is_err());
    }

    #[test]
    fn origins_are_compared_in_the_form_of_browsers() {
        let client = client().origin("https://App.example:443").unwrap().origin("http://127.0.0.1:3000").unwrap();
        assert!(client.allows_origin("https://app.example") && client.allows_origin("http://127.0.0.1:3000"));
        for other in ["https://App.example", "https://app.example:443", "http://app.example", "null", "", "*"] {
            assert!(!client.allows_origin(other), "{other}");
        }
        assert!(client.clone().origin("https://app.example").is_err());
        assert!(client.origin("https://*.example").is_err());
    }

    #[test]
    fn names_are_visible() {
        assert_eq!(client().display_name(), "demo");
        assert_eq!(client().name("Żółw & Söhne").unwrap().display_name(), "Żółw & Söhne");
        for bad in ["", " ", "a\nb", "a\u{202e}b", "\u{200b}", &"x".repeat(65)] {
            assert!(client().name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn c136_a_client_has_at_most_two_secrets_or_keys() {
        let (keys, secret) =
            (r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#, || {
                ClientSecretDigest::generate().1
            });
        let (first, second) = (secret(), secret());
        assert!(!client().is_confidential());
        let one = client().secret(first).unwrap();
        assert!(one.is_confidential() && one.clone().secret(first).is_err());
        let both = one.secret(second).unwrap();
        assert!(both.clone().secret(secret()).is_err() && both.assertion_keys(keys).is_err());
        let with_keys = client().assertion_keys(keys).unwrap();
        assert!(with_keys.is_confidential() && !with_keys.is_machine());
        assert!(with_keys.clone().secret(first).is_err() && with_keys.assertion_keys(keys).is_err());
        assert!(client().assertion_keys("{}").is_err());
        let machine = Client::machine("m", Tenant::parse("acme").unwrap(), keys).unwrap();
        assert!(machine.is_confidential() && machine.secret(first).is_err());
    }

    #[test]
    fn lists_are_limited() {
        let full =
            (0..64).try_fold(client(), |client, n| client.redirect_uri(&format!("https://a.example/{n}"))).unwrap();
        assert!(full.redirect_uri("https://a.example/x").is_err());
        let full = (0..64).try_fold(client(), |client, n| client.origin(&format!("https://a{n}.example"))).unwrap();
        assert!(full.origin("https://x.example").is_err());
    }
}
