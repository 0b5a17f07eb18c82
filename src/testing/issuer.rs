#![expect(clippy::expect_used, reason = "a test may fail")]

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    bearer::{self, AccessTokenClaims, Audience, Confirmation, KeySource, Revocation, Verifier},
    gate::MaybeReady,
    jose::{Algorithm, KeySet, Signer, Unavailable, jws},
    store::BoxFuture,
    tenant::Tenant,
    util::{
        builder::setters,
        clock::{Clock, SystemClock, UnixTime},
    },
};

/// An issuer of access tokens, to test a service behind a [`BearerLayer`](crate::BearerLayer) without a login.
///
/// Each issuer creates its own keys, and only its own [`verifier`](Self::verifier) knows them. Clones share the keys.
///
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use tollgate::{AccessToken, BearerLayer, testing::TestIssuer};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let issuer = TestIssuer::new("https://auth.example", "https://api.example");
/// let service = BearerLayer::new(issuer.verifier()).require_scope("orders:read")?.layer(service_fn(
///     async |request: Request<String>| {
///         let token = AccessToken::from_extensions(request.extensions());
///         Ok::<_, Infallible>(Response::new(token.map(|token| token.subject().to_owned()).unwrap_or_default()))
///     },
/// ));
///
/// let token = issuer.token(|claims| claims.subject("ada").scope("orders:read orders:write"));
/// let request = Request::get("/").header("authorization", format!("Bearer {token}")).body(String::new())?;
/// assert_eq!(service.clone().oneshot(request).await?.body(), "ada");
///
/// let token = issuer.token(|claims| claims.subject("ada").expired());
/// let request = Request::get("/").header("authorization", format!("Bearer {token}")).body(String::new())?;
/// assert_eq!(service.oneshot(request).await?.status(), 401);
/// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct TestIssuer {
    name: Arc<str>,
    audience: Arc<str>,
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
    issued: Arc<AtomicU64>,
}

struct State {
    signer: Arc<Signer>,
    /// The keys that verifiers know.
    known: Arc<KeySet>,
    /// The keys that verifiers get when they ask again.
    published: Arc<KeySet>,
    revoked: HashSet<String>,
    down: bool,
}

impl TestIssuer {
    /// Creates an issuer whose tokens are for the service `audience`.
    ///
    /// # Panics
    ///
    /// Panics if no key can be created.
    pub fn new(issuer: &str, audience: &str) -> Self {
        let (signer, keys) = key();
        let state = State { signer, known: Arc::clone(&keys), published: keys, revoked: HashSet::new(), down: false };
        Self {
            name: issuer.into(),
            audience: audience.into(),
            clock: Arc::new(SystemClock::new()),
            state: Arc::new(Mutex::new(state)),
            issued: Arc::default(),
        }
    }

    /// Sets the clock that tokens are issued and verified by.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// Returns a verifier of its tokens.
    ///
    /// # Panics
    ///
    /// Panics if the name of the issuer or of the service is invalid, for example empty.
    pub fn verifier(&self) -> Verifier {
        Verifier::new(self.clone(), &self.name, &self.audience, Arc::clone(&self.clock))
            .expect("an issuer and an audience have names")
    }

    /// Returns a token with these claims. Defaults to the user `user` and the client `client`, without a tenant or a scope,
    /// for ten minutes.
    ///
    /// # Panics
    ///
    /// Panics if signing fails.
    pub fn token(&self, claims: impl FnOnce(TestClaims) -> TestClaims) -> String {
        self.sign(bearer::TYPE, &claims(self.claims()).0)
    }

    /// Revokes a token.
    ///
    /// # Panics
    ///
    /// Panics if it is not an access token.
    pub fn revoke(&self, token: &str) {
        let claims = token.split('.').nth(1).expect("a token has three parts");
        let claims: AccessTokenClaims =
            serde_json::from_slice(&BASE64URL.decode(claims).expect("a token is base64url")).expect("claims");
        self.state().revoked.insert(claims.jti);
    }

    /// Replaces the key with a new one. Verifiers fetch it when they see a token that names it.
    ///
    /// # Panics
    ///
    /// Panics if no key can be created.
    pub fn rotate(&self) {
        let (signer, published) = key();
        let mut state = self.state();
        state.signer = signer;
        state.published = published;
    }

    /// Sets whether the keys are unavailable, so that verifiers can't answer.
    pub fn down(&self, down: bool) {
        self.state().down = down;
    }

    pub(crate) fn claims(&self) -> TestClaims {
        let now = self.clock.unix(self.clock.now()).as_secs();
        TestClaims(AccessTokenClaims {
            iss: (*self.name).to_owned(),
            sub: "user".to_owned(),
            aud: Audience::One((*self.audience).to_owned()),
            client_id: "client".to_owned(),
            tenant: None,
            scope: None,
            iat: now,
            nbf: None,
            exp: now + 600,
            jti: format!("token-{}", self.issued.fetch_add(1, Relaxed)),
            auth_time: None,
            acr: None,
            amr: Vec::new(),
            sid: None,
            cnf: None,
            more: Map::new(),
        })
    }

    /// Signs any claims.
    pub(crate) fn sign(&self, typ: &str, claims: &impl Serialize) -> String {
        jws::sign(&self.state().signer, typ, claims).expect("a key signs")
    }

    #[cfg(test)]
    pub(crate) fn signer(&self) -> Arc<Signer> {
        Arc::clone(&self.state().signer)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key() -> (Arc<Signer>, Arc<KeySet>) {
    let pkcs8 = Signer::generate_signing_key(Algorithm::Es256).expect("keys can be made");
    let signer = Signer::parse_pkcs8(Algorithm::Es256, &pkcs8).expect("they can be read");
    let keys = KeySet::new([(signer.kid.clone(), signer.public.clone())]);
    (Arc::new(signer), Arc::new(keys))
}

impl KeySource for TestIssuer {
    fn keys(&self) -> MaybeReady<BoxFuture<'static, Result<Arc<KeySet>, Unavailable>>> {
        let state = self.state();
        MaybeReady::Ready(if state.down { Err(Unavailable) } else { Ok(Arc::clone(&state.known)) })
    }

    fn newer_keys(&self, _: &Arc<KeySet>) -> MaybeReady<BoxFuture<'static, Result<Arc<KeySet>, Unavailable>>> {
        let mut state = self.state();
        state.known = Arc::clone(&state.published);
        MaybeReady::Ready(if state.down { Err(Unavailable) } else { Ok(Arc::clone(&state.known)) })
    }

    fn revocation(&self, claims: &AccessTokenClaims) -> Option<Box<dyn Revocation>> {
        Some(Box::new(OneToken { issuer: self.clone(), jti: claims.jti.clone() }))
    }
}

struct OneToken {
    issuer: TestIssuer,
    jti: String,
}

impl Revocation for OneToken {
    fn is_revoked(&self) -> MaybeReady<BoxFuture<'static, Result<bool, Unavailable>>> {
        MaybeReady::Ready(Ok(self.issuer.state().revoked.contains(&self.jti)))
    }
}

crate::util::fmt::debug_fields!(TestIssuer { name, audience });

/// The claims of a token of a [`TestIssuer`].
#[derive(Clone, Debug)]
#[must_use]
pub struct TestClaims(pub(crate) AccessTokenClaims);

impl TestClaims {
    setters! {
        /// Sets the user.
        pub fn subject(name: &str) { 0.sub: name.to_owned() }

        /// Sets the client that the token was issued to.
        pub fn client_id(name: &str) { 0.client_id: name.to_owned() }

        /// Sets the tenant.
        pub fn tenant(tenant: &Tenant) { 0.tenant: Some(tenant.to_string()) }

        /// Sets the scope, as names that are separated by spaces.
        pub fn scope(names: &str) { 0.scope: Some(names.to_owned()) }

        /// Sets an audience other than that of the issuer's verifier.
        pub fn audience(name: &str) { 0.aud: Audience::One(name.to_owned()) }

        /// Sets the name of another issuer. This one still signs.
        pub fn issuer(name: &str) { 0.iss: name.to_owned() }
    }

    /// Sets how long the token is valid.
    pub fn expires_in(mut self, time: Duration) -> Self {
        self.0.exp = self.0.iat.saturating_add(time.as_secs());
        self
    }

    /// Sets the expiry to an hour ago.
    pub fn expired(mut self) -> Self {
        self.0.iat = self.0.iat.saturating_sub(4200);
        self.expires_in(Duration::from_secs(600))
    }

    setters! {
        /// Sets when the user authenticated.
        pub fn auth_time(time: UnixTime) { 0.auth_time: Some(time.as_secs()) }

        /// Sets the level of the authentication.
        pub fn acr(acr: &str) { 0.acr: Some(acr.to_owned()) }
    }

    /// Sets the methods of the authentication.
    pub fn amr<'a>(mut self, amr: impl IntoIterator<Item = &'a str>) -> Self {
        self.0.amr = amr.into_iter().map(str::to_owned).collect();
        self
    }

    setters! {
        /// Sets the id of the token. By default, each token has its own.
        pub fn id(name: &str) { 0.jti: name.to_owned() }

        /// Sets the id of the session.
        pub fn session(name: &str) { 0.sid: Some(name.to_owned()) }
    }

    /// Sets any other claim, such as `roles`. Read it with [`AccessToken::claim`](crate::AccessToken::claim).
    ///
    /// # Panics
    ///
    /// Panics if the value can't be written as JSON, or if this type has another method for the claim.
    pub fn claim(mut self, name: &str, value: impl Serialize) -> Self {
        let own = serde_json::to_value(&self.0).expect("claims are JSON");
        assert!(own.get(name).is_none_or(|_| self.0.more.contains_key(name)), "{name} has a method of its own");
        let value: Value = serde_json::to_value(value).expect("the value of a claim is JSON");
        self.0.more.insert(name.to_owned(), value);
        self
    }

    /// Binds the token to the key with this thumbprint (RFC 9449 §6).
    pub fn bound_to(mut self, thumbprint: &str) -> Self {
        self.0.cnf = Some(Confirmation { jkt: Some(thumbprint.to_owned()) });
        self
    }
}
