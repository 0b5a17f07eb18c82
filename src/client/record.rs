//! [`Client`]: one application.

use super::{RedirectUri, RequestedRedirect, Scopes};
use crate::{
    http::origin,
    policy::Policy,
    tenant::Tenant,
    util::{error::ConfigError, scan::is_unseen},
};

/// An application whose users sign in here. It belongs to one tenant.
///
/// It needs a redirect URI and scopes before it can stand in a
/// [`ClientTable`](super::ClientTable); the module docs of
/// [`client`](crate::client) show one in full.
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
    #[cfg(feature = "tokens")]
    pub(crate) tokens: super::tokens::TokenSettings,
}

/// The most redirect URIs and the most origins that a client may have.
const MOST: usize = 64;

impl Client {
    /// The most bytes that an id may have.
    pub const MAX_ID: usize = 128;

    /// A client with this id: 1 to 128 visible ASCII characters, none of them a
    /// quote or `\`.
    pub fn new(id: &str, tenant: Tenant) -> Result<Self, ConfigError> {
        let allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
        if id.is_empty() || id.len() > Self::MAX_ID || !id.bytes().all(allowed) {
            let reason = "must be 1 to 128 visible ASCII characters, no quotes and no '\\'";
            return Err(ConfigError::new("client id", id.escape_debug(), reason));
        }
        Ok(Self {
            id: id.to_owned(),
            tenant,
            name: None,
            redirect_uris: Vec::new(),
            scopes: None,
            origins: Vec::new(),
            policy: None,
            single_sign_on: false,
            pushed_requests: false,
            #[cfg(feature = "tokens")]
            tokens: super::tokens::TokenSettings::default(),
        })
    }

    /// The id of the built-in client. [`new`](Self::new) refuses it, so no registered client has it.
    pub(crate) const FIRST_PARTY: &'static str = "this site";

    /// Creates the built-in client of a tenant, for sign-ins to the site itself. Its users return to `redirect_uri`.
    pub(crate) fn first_party(tenant: Tenant, redirect_uri: String) -> Self {
        Self {
            id: String::from(Self::FIRST_PARTY),
            tenant,
            name: None,
            redirect_uris: vec![RedirectUri::exactly(redirect_uri)],
            scopes: Scopes::parse("openid").ok(),
            origins: Vec::new(),
            policy: None,
            single_sign_on: true,
            pushed_requests: false,
            #[cfg(feature = "tokens")]
            tokens: super::tokens::TokenSettings::default(),
        }
    }

    /// Returns whether this is the built-in client.
    pub(crate) fn is_first_party(&self) -> bool {
        self.id == Self::FIRST_PARTY
    }

    /// Sends answers to this URI, and to others that are named so: see
    /// [`RedirectUri::parse`].
    pub fn redirect_uri(self, uri: &str) -> Result<Self, ConfigError> {
        self.with_redirect(RedirectUri::parse(uri)?)
    }

    /// Sends answers to a URI on `localhost` too: see
    /// [`RedirectUri::insecure_localhost`]. For development only.
    pub fn insecure_localhost(self, uri: &str) -> Result<Self, ConfigError> {
        self.with_redirect(RedirectUri::insecure_localhost(uri)?)
    }

    fn with_redirect(mut self, uri: RedirectUri) -> Result<Self, ConfigError> {
        if self.redirect_uris.contains(&uri) {
            return Err(ConfigError::new("redirect URI", uri, "is registered twice"));
        }
        if self.redirect_uris.len() == MOST {
            return Err(ConfigError::new("redirect URI", uri, "is one too many: a client has at most 64"));
        }
        self.redirect_uris.push(uri);
        Ok(self)
    }

    /// The scopes that it may ask for, with spaces between them, in place of
    /// those before.
    pub fn scopes(self, scopes: &str) -> Result<Self, ConfigError> {
        let parsed = Scopes::parse(scopes);
        let scopes = parsed.map_err(|error| ConfigError::new("scopes", scopes.escape_debug(), error.detail()))?;
        Ok(Self { scopes: Some(scopes), ..self })
    }

    /// Lets pages of this origin call the service from the user's browser
    /// (CORS), and of others that are named so. It is `https`, or `http` on
    /// a loopback address.
    pub fn origin(mut self, origin: &str) -> Result<Self, ConfigError> {
        let normal = origin::normal("client origin", origin)?;
        if self.origins.contains(&normal) {
            return Err(ConfigError::new("client origin", origin, "is allowed twice"));
        }
        if self.origins.len() == MOST {
            return Err(ConfigError::new("client origin", origin, "is one too many: a client has at most 64"));
        }
        self.origins.push(normal);
        Ok(self)
    }

    /// Demands this of its logins, beyond what its tenant does.
    pub fn policy(self, policy: Policy) -> Self {
        Self { policy: Some(policy), ..self }
    }

    /// Lets who is signed in to another client of its tenant go on without a login, where what they proved there meets
    /// what is demanded here. On a loopback address and in an app of the user's own they confirm it first, for others can
    /// stand there (RFC 8252 §8.6). Otherwise each request of it has a login of its own.
    pub fn single_sign_on(self) -> Self {
        Self { single_sign_on: true, ..self }
    }

    /// Refuses requests of it that were not pushed (RFC 9126), so that nobody on the way can have changed them.
    pub fn require_pushed_requests(self) -> Self {
        Self { pushed_requests: true, ..self }
    }

    /// How pages call it: 1 to 64 characters, none of them for control. It is
    /// the id otherwise.
    pub fn name(self, name: &str) -> Result<Self, ConfigError> {
        let is_blank = name.trim().is_empty();
        if is_blank || name.chars().count() > 64 || name.chars().any(is_unseen) {
            let reason = "must be 1 to 64 characters that can be seen";
            return Err(ConfigError::new("client name", name.escape_debug(), reason));
        }
        Ok(Self { name: Some(name.to_owned()), ..self })
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The tenant whose users sign in.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// How pages call it.
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }

    /// Where its answers may go.
    pub fn redirect_uris(&self) -> &[RedirectUri] {
        &self.redirect_uris
    }

    /// The scopes that it may ask for.
    pub fn allowed_scopes(&self) -> Option<&Scopes> {
        self.scopes.as_ref()
    }

    /// The origins whose pages may call the service, as browsers write them.
    pub fn origins(&self) -> impl Iterator<Item = &str> {
        self.origins.iter().map(String::as_str)
    }

    /// What it demands of its logins, for [`Policies::plan`](crate::Policies::plan).
    pub fn demands(&self) -> Option<&Policy> {
        self.policy.as_ref()
    }

    /// Whether sessions that began at other clients count here.
    pub fn has_single_sign_on(&self) -> bool {
        self.single_sign_on
    }

    /// Whether its requests must be pushed.
    pub fn needs_pushed_requests(&self) -> bool {
        self.pushed_requests
    }

    /// The URI that a request names, where it is registered.
    pub fn redirect(&self, requested: &str) -> Option<RequestedRedirect> {
        self.redirect_uris.iter().find_map(|registered| RequestedRedirect::new(registered, requested))
    }

    /// Whether a request may name this redirect URI.
    pub fn accepts_redirect(&self, requested: &str) -> bool {
        self.redirect_uris.iter().any(|registered| registered.matches(requested))
    }

    /// Whether it may ask for all of these.
    pub fn allows_scopes(&self, scopes: &Scopes) -> bool {
        self.scopes.as_ref().is_some_and(|allowed| scopes.is_subset(allowed))
    }

    /// Whether pages of this origin, as the browser writes it, may call the service.
    pub fn allows_origin(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| allowed == origin)
    }
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
    fn each_redirect_uri_is_looked_at() {
        let client = client().redirect_uri("https://a.example/1").unwrap().redirect_uri("http://[::1]/2").unwrap();
        assert!(client.accepts_redirect("https://a.example/1") && client.accepts_redirect("http://[::1]:9/2"));
        assert_eq!(client.redirect("http://[::1]:9/2").unwrap().as_str(), "http://[::1]:9/2");
        assert!(!client.accepts_redirect("https://a.example/2") && client.redirect("https://a.example:9/1").is_none());
        assert!(client.clone().redirect_uri("https://a.example/1").is_err());
        assert!(client.clone().redirect_uri("http://localhost/").is_err());
        assert!(client.insecure_localhost("http://localhost/").unwrap().accepts_redirect("http://localhost/"));
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
    fn an_origin_is_compared_as_browsers_write_it() {
        let client = client().origin("https://App.example:443").unwrap().origin("http://127.0.0.1:3000").unwrap();
        assert!(client.allows_origin("https://app.example") && client.allows_origin("http://127.0.0.1:3000"));
        for other in ["https://App.example", "https://app.example:443", "http://app.example", "null", "", "*"] {
            assert!(!client.allows_origin(other), "{other}");
        }
        assert!(client.clone().origin("https://app.example").is_err());
        assert!(client.origin("https://*.example").is_err());
    }

    #[test]
    fn a_name_can_be_seen() {
        assert_eq!(client().display_name(), "demo");
        assert_eq!(client().name("Żółw & Söhne").unwrap().display_name(), "Żółw & Söhne");
        for bad in ["", " ", "a\nb", "a\u{202e}b", "\u{200b}", &"x".repeat(65)] {
            assert!(client().name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn lists_are_bounded() {
        let full =
            (0..64).try_fold(client(), |client, n| client.redirect_uri(&format!("https://a.example/{n}"))).unwrap();
        assert!(full.redirect_uri("https://a.example/x").is_err());
        let full = (0..64).try_fold(client(), |client, n| client.origin(&format!("https://a{n}.example"))).unwrap();
        assert!(full.origin("https://x.example").is_err());
    }
}
