//! How the access tokens of an issuer differ from RFC 9068.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use serde_json::{Map, Value};

use super::token::claims::{AccessTokenClaims, TYPE};
use crate::{
    jose::{JwsAlgorithm, jws::Unverified},
    util::{builder::setters, secret::SecretDigest},
};

/// The form of an issuer's access tokens. Pass it to
/// [`VerifierBuilder::profile`](super::VerifierBuilder::profile).
///
/// The default is [`rfc9068`](Self::rfc9068). The tokens of many providers deviate from it, and each method here
/// accepts one deviation. The other checks stay: the issuer's name, its signature, the audience, the times, and that
/// the token is not an ID token.
///
/// | provider | issuer | audience |
/// |---|---|---|
/// | [`auth0`](Self::auth0) | `https://acme.eu.auth0.com/`, with the slash | the identifier of the API |
/// | [`cognito`](Self::cognito) | `https://cognito-idp.eu-central-1.amazonaws.com/eu-central-1_Ab12Cd34E` | the id of an app client |
/// | [`entra_id`](Self::entra_id) | `https://login.microsoftonline.com/<directory id>/v2.0` | the client id of the API |
/// | [`keycloak`](Self::keycloak) | `https://id.acme.example/realms/acme` | the name that an audience mapper adds |
///
/// ```
/// use tollgate::{BearerLayer, Verifier, bearer::TokenProfile};
///
/// # let keys = br#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
/// # let remote = |issuer: &str, audience: &str| Verifier::with_keys(issuer, audience, keys);
/// # /*
/// let verifier = Verifier::remote("https://acme.eu.auth0.com/", "https://api.acme.example")?
/// # */
/// # let verifier = remote("https://acme.eu.auth0.com/", "https://api.acme.example")?
///     .to_builder()
///     .profile(TokenProfile::auth0().tenant_claim("org_id"))
///     .build();
/// let layer = BearerLayer::new(verifier).require_scope("orders:read")?;
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
///
/// Claims that have no method in [`AccessToken`](super::AccessToken), such as Auth0's `permissions` or
/// Keycloak's `realm_access`, are available with [`AccessToken::claim`](super::AccessToken::claim).
#[derive(Clone, Debug)]
#[must_use]
pub struct TokenProfile {
    /// The accepted algorithms, besides those that are always accepted.
    pub(super) algorithms: Vec<JwsAlgorithm>,
    /// `None` if only the type `at+jwt` is accepted.
    mark: Option<AccessTokenMark>,
    client: Option<Box<str>>,
    scope: Option<Box<str>>,
    tenant: TenantClaim,
    client_is_audience: bool,
    id_is_optional: bool,
}

/// Distinguishes access tokens from ID tokens if the type does not.
#[derive(Clone, Debug)]
enum AccessTokenMark {
    Value { claim: Box<str>, values: Vec<Box<str>> },
    AnyOf(Vec<Box<str>>),
    NotForClient,
}

#[derive(Clone, Debug)]
enum TenantClaim {
    /// The claim `tenant`, if there is one.
    Own,
    Ignored,
    Required(Box<str>),
}

impl TokenProfile {
    /// Tokens of the type `at+jwt` with all claims that RFC 9068 requires, signed with ES256, EdDSA (also named Ed25519) or RS256.
    /// The tenant is the claim `tenant`, if there is one.
    pub fn rfc9068() -> Self {
        Self {
            algorithms: Vec::new(),
            mark: None,
            client: None,
            scope: None,
            tenant: TenantClaim::Own,
            client_is_audience: false,
            id_is_optional: false,
        }
    }

    /// Tokens of a provider that this crate does not know further.
    fn foreign() -> Self {
        Self { tenant: TenantClaim::Ignored, ..Self::rfc9068() }
    }

    /// Tokens of Auth0, with either of its token profiles.
    ///
    /// Combines [`jwt_unless_for_client`](Self::jwt_unless_for_client), `azp` as [`client_claim`](Self::client_claim),
    /// and [`optional_id`](Self::optional_id). There is no tenant unless you set a
    /// [`tenant_claim`](Self::tenant_claim), such as `org_id`.
    pub fn auth0() -> Self {
        Self::foreign().jwt_unless_for_client().client_claim("azp").optional_id()
    }

    /// Tokens of Amazon Cognito.
    ///
    /// Combines [`jwt_where`](Self::jwt_where) with `token_use` = `access`, and
    /// [`client_as_audience`](Self::client_as_audience). There is no tenant unless you set a
    /// [`tenant_claim`](Self::tenant_claim).
    pub fn cognito() -> Self {
        Self::foreign().jwt_where("token_use", &["access"]).client_as_audience()
    }

    /// Tokens of Microsoft Entra ID in version 2. The API needs `requestedAccessTokenVersion` 2 in its
    /// manifest.
    ///
    /// Combines [`jwt_with`](Self::jwt_with) for `scp` (of users) or `roles` (of applications), `azp` as
    /// [`client_claim`](Self::client_claim), `scp` as [`scope_claim`](Self::scope_claim), and
    /// [`optional_id`](Self::optional_id). ID tokens can have `roles`, too, but never `azp`. There is no tenant unless
    /// you set a [`tenant_claim`](Self::tenant_claim), such as `tid`.
    pub fn entra_id() -> Self {
        Self::foreign().jwt_with(&["scp", "roles"]).client_claim("azp").scope_claim("scp").optional_id()
    }

    /// Tokens of Keycloak.
    ///
    /// Combines [`jwt_where`](Self::jwt_where) with `typ` = `Bearer` or `DPoP`, and `azp` as
    /// [`client_claim`](Self::client_claim). There is no tenant unless you set a [`tenant_claim`](Self::tenant_claim).
    pub fn keycloak() -> Self {
        Self::foreign().jwt_where("typ", &["Bearer", "DPoP"]).client_claim("azp")
    }

    /// Accepts the type `JWT`, or none, if a claim has one of these values.
    ///
    /// Weaker than the type `at+jwt`, which only access tokens have: the claim must have a different value in the
    /// issuer's ID tokens.
    pub fn jwt_where(self, claim: &str, values: &[&str]) -> Self {
        let values = values.iter().copied().map(Box::from).collect();
        Self { mark: Some(AccessTokenMark::Value { claim: claim.into(), values }), ..self }
    }

    setters! {
        /// Accepts the type `JWT`, or none, if the token has at least one of these claims.
        ///
        /// Weaker than the type `at+jwt`, which only access tokens have: the issuer's ID tokens must never have these
        /// claims.
        pub fn jwt_with(claims: &[&str]) { mark: Some(AccessTokenMark::AnyOf(claims.iter().copied().map(Box::from).collect())) }

        /// Accepts the type `JWT`, or none, unless the client is an audience of the token. ID tokens
        /// always name their client as audience.
        ///
        /// Weaker than the type `at+jwt`, which only access tokens have. An API that is registered as the client of its
        /// own tokens can't use this.
        pub fn jwt_unless_for_client() { mark: Some(AccessTokenMark::NotForClient) }

        /// Reads the client from this claim if there is no `client_id`. As strong as `client_id` if only the
        /// issuer can set the claim, as with `azp`.
        pub fn client_claim(name: &str) { client: Some(name.into()) }

        /// Reads the scopes from this claim if there is no `scope`. The claim may be a string or an array of strings.
        /// As strong as `scope` if only the issuer can set the claim, as with `scp`.
        pub fn scope_claim(name: &str) { scope: Some(name.into()) }

        /// Reads the tenant from this claim, and rejects tokens without it or with a value that is not a
        /// valid tenant name. The claim `tenant` is ignored.
        ///
        /// Use a claim that only the issuer can set, such as `tid` or `org_id`. A claim that users can edit at
        /// the provider lets them choose their tenant.
        pub fn tenant_claim(name: &str) { tenant: TenantClaim::Required(name.into()) }

        /// Uses the client as the audience of tokens without `aud`. The audience of the verifier is then the
        /// id of a client; add further clients with [`VerifierBuilder::audience`](super::VerifierBuilder::audience).
        ///
        /// Weaker than an audience: a token that the client got for another API is accepted here, too. Require a scope
        /// of this API.
        pub fn client_as_audience() { client_is_audience: true }

        /// Accepts tokens without an id (`jti`). Their [`id`](super::AccessToken::id) is then the SHA-256 of the token,
        /// which you won't find in the issuer's logs.
        pub fn optional_id() { id_is_optional: true }
    }

    /// Accepts ES384 (P-384 keys).
    pub fn es384(self) -> Self {
        self.algorithm(JwsAlgorithm::Es384)
    }

    /// Accepts PS256 (RSA keys). A published key that names RS256 as its algorithm stays valid for RS256
    /// only.
    pub fn ps256(self) -> Self {
        self.algorithm(JwsAlgorithm::Ps256)
    }

    fn algorithm(mut self, algorithm: JwsAlgorithm) -> Self {
        self.algorithms.push(algorithm);
        self
    }

    /// Returns whether tokens of this type are accepted.
    pub(super) fn accepts_type(&self, token: &Unverified<'_>) -> bool {
        token.is_type(TYPE) || (self.mark.is_some() && (!token.has_type() || token.is_type("JWT")))
    }

    /// Converts the claims of a token to those of RFC 9068. Returns `None` if the token is not acceptable.
    pub(super) fn map_profile_claims(&self, token: &str, mut given: Map<String, Value>) -> Option<AccessTokenClaims> {
        if !self.mark.as_ref().is_none_or(|mark| mark.is_on(&given)) {
            return None;
        }
        match &self.tenant {
            TenantClaim::Own => {}
            TenantClaim::Ignored => drop(given.remove("tenant")),
            TenantClaim::Required(name) => {
                let tenant = Value::String(given.get(&**name)?.as_str()?.to_owned());
                given.insert("tenant".to_owned(), tenant);
            }
        }
        fill(&mut given, "client_id", self.client.as_deref(), Value::clone);
        fill(&mut given, "scope", self.scope.as_deref(), in_one_text);
        fill(&mut given, "aud", self.client_is_audience.then_some("client_id"), Value::clone);
        if self.id_is_optional && !given.contains_key("jti") {
            given.insert("jti".to_owned(), BASE64URL.encode(SecretDigest::of_secret(token).as_bytes()).into());
        }
        let claims: AccessTokenClaims = serde_json::from_value(Value::Object(given)).ok()?;
        let is_for_client = claims.aud.has(&claims.client_id);
        (!is_for_client || !matches!(self.mark, Some(AccessTokenMark::NotForClient))).then_some(claims)
    }
}

impl AccessTokenMark {
    fn is_on(&self, claims: &Map<String, Value>) -> bool {
        match self {
            Self::Value { claim, values } => {
                let own = claims.get(&**claim).and_then(Value::as_str);
                own.is_some_and(|own| values.iter().any(|value| **value == *own))
            }
            Self::AnyOf(names) => names.iter().any(|name| claims.get(&**name).is_some_and(|claim| !claim.is_null())),
            // checked when the client and the audience are known
            Self::NotForClient => true,
        }
    }
}

/// Copies a missing claim from another one.
fn fill(claims: &mut Map<String, Value>, name: &str, from: Option<&str>, convert: fn(&Value) -> Value) {
    if !claims.contains_key(name)
        && let Some(value) = from.and_then(|from| claims.get(from)).map(convert)
    {
        claims.insert(name.to_owned(), value);
    }
}

/// Joins an array of scopes. Leaves anything else for the parser of the claim.
fn in_one_text(scopes: &Value) -> Value {
    let names = scopes.as_array().and_then(|scopes| scopes.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    names.map_or_else(|| scopes.clone(), |names| names.join(" ").into())
}
