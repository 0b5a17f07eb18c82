#![expect(clippy::expect_used, reason = "a test may fail")]

use std::{
    collections::HashSet,
    fmt,
    future::ready,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use serde::Serialize;

use crate::{
    bearer::{self, AccessTokenClaims, Audience, Confirmation, KeySource, Revocation, Unavailable, Verifier},
    gate::MaybeReady,
    jose::{Algorithm, KeySet, Signer, jws},
    store::BoxFuture,
    tenant::Tenant,
    util::clock::{Clock, SystemClock, UnixTime},
};

/// Issues access tokens for tests of services behind a [`BearerLayer`](crate::BearerLayer), without
/// a login.
///
/// Each issuer has new keys, which only its own [`verifier`](Self::verifier) knows. Clones share
/// the same issuer.
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
    /// The keys that verifiers get when they ask for newer ones.
    published: Arc<KeySet>,
    revoked: HashSet<String>,
    down: bool,
}

impl TestIssuer {
    /// Creates an issuer whose tokens are for the service `audience`.
    ///
    /// # Panics
    ///
    /// Panics if key generation fails.
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

    /// Sets the clock, also for its verifiers.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// Returns a verifier of its tokens.
    ///
    /// # Panics
    ///
    /// Panics if the issuer or the audience is not a valid name, for example because it is empty.
    pub fn verifier(&self) -> Verifier {
        Verifier::new(self.clone(), &self.name, &self.audience, Arc::clone(&self.clock))
            .expect("issuer and audience are valid names")
    }

    /// Issues a token with these claims. By default it is for the user `user` and the client
    /// `client`, valid for ten minutes, without tenant and scopes.
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
    /// Panics if it is not a token.
    pub fn revoke(&self, token: &str) {
        let claims = token.split('.').nth(1).expect("a token has three parts");
        let claims: AccessTokenClaims =
            serde_json::from_slice(&BASE64URL.decode(claims).expect("a token is base64url")).expect("claims");
        self.state().revoked.insert(claims.jti);
    }

    /// Replaces the signing key. Verifiers learn about the new key when a token names it.
    ///
    /// # Panics
    ///
    /// Panics if key generation fails.
    pub fn rotate(&self) {
        let (signer, published) = key();
        let mut state = self.state();
        state.signer = signer;
        state.published = published;
    }

    /// Makes the keys unavailable, so that verifiers can't decide.
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
        })
    }

    /// Signs arbitrary claims.
    pub(crate) fn sign(&self, typ: &str, claims: &impl Serialize) -> String {
        jws::sign(&self.state().signer, typ, claims).expect("signing succeeds")
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
    let pkcs8 = Signer::generate(Algorithm::Es256).expect("key generation succeeds");
    let signer = Signer::read(Algorithm::Es256, &pkcs8).expect("a generated key is valid");
    let keys = KeySet::new([(signer.kid().to_owned(), signer.public().clone())]);
    (Arc::new(signer), Arc::new(keys))
}

impl KeySource for TestIssuer {
    fn keys(&self) -> MaybeReady<BoxFuture<'static, Result<Arc<KeySet>, Unavailable>>> {
        let state = self.state();
        MaybeReady::Ready(if state.down { Err(Unavailable) } else { Ok(Arc::clone(&state.known)) })
    }

    fn newer(&self, _: &Arc<KeySet>) -> BoxFuture<'static, Result<Arc<KeySet>, Unavailable>> {
        let mut state = self.state();
        state.known = Arc::clone(&state.published);
        Box::pin(ready(if state.down { Err(Unavailable) } else { Ok(Arc::clone(&state.known)) }))
    }

    fn revocation(&self, claims: &AccessTokenClaims) -> Option<Box<dyn Revocation>> {
        Some(Box::new(TestRevocation { issuer: self.clone(), jti: claims.jti.clone() }))
    }
}

struct TestRevocation {
    issuer: TestIssuer,
    jti: String,
}

impl Revocation for TestRevocation {
    fn is_revoked(&self) -> MaybeReady<BoxFuture<'static, Result<bool, Unavailable>>> {
        MaybeReady::Ready(Ok(self.issuer.state().revoked.contains(&self.jti)))
    }
}

impl fmt::Debug for TestIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestIssuer").field("name", &self.name).field("audience", &self.audience).finish_non_exhaustive()
    }
}

/// The claims of a token of a [`TestIssuer`].
#[derive(Clone, Debug)]
#[must_use]
pub struct TestClaims(pub(crate) AccessTokenClaims);

impl TestClaims {
    /// Sets the subject.
    pub fn subject(mut self, name: &str) -> Self {
        self.0.sub = name.to_owned();
        self
    }

    /// Sets the client.
    pub fn client_id(mut self, name: &str) -> Self {
        self.0.client_id = name.to_owned();
        self
    }

    /// Sets the tenant.
    pub fn tenant(mut self, tenant: &Tenant) -> Self {
        self.0.tenant = Some(tenant.to_string());
        self
    }

    /// Sets the scopes, separated by spaces.
    pub fn scope(mut self, names: &str) -> Self {
        self.0.scope = Some(names.to_owned());
        self
    }

    /// Sets the audience. Defaults to that of the issuer.
    pub fn audience(mut self, name: &str) -> Self {
        self.0.aud = Audience::One(name.to_owned());
        self
    }

    /// Sets the issuer. The token is still signed with the keys of this one.
    pub fn issuer(mut self, name: &str) -> Self {
        self.0.iss = name.to_owned();
        self
    }

    /// Sets the lifetime.
    pub fn expires_in(mut self, time: Duration) -> Self {
        self.0.exp = self.0.iat.saturating_add(time.as_secs());
        self
    }

    /// Makes the token expire an hour ago.
    pub fn expired(mut self) -> Self {
        self.0.iat = self.0.iat.saturating_sub(4200);
        self.expires_in(Duration::from_secs(600))
    }

    /// Sets when the user authenticated.
    pub fn auth_time(mut self, time: UnixTime) -> Self {
        self.0.auth_time = Some(time.as_secs());
        self
    }

    /// Sets the authentication context (`acr`).
    pub fn acr(mut self, acr: &str) -> Self {
        self.0.acr = Some(acr.to_owned());
        self
    }

    /// Sets the authentication methods (`amr`).
    pub fn amr<'a>(mut self, amr: impl IntoIterator<Item = &'a str>) -> Self {
        self.0.amr = amr.into_iter().map(str::to_owned).collect();
        self
    }

    /// Sets the id (`jti`). Unique by default.
    pub fn id(mut self, name: &str) -> Self {
        self.0.jti = name.to_owned();
        self
    }

    /// Sets the session id (`sid`).
    pub fn session(mut self, name: &str) -> Self {
        self.0.sid = Some(name.to_owned());
        self
    }

    /// Binds the token to the key with this thumbprint (RFC 9449 §6).
    pub fn bound_to(mut self, thumbprint: &str) -> Self {
        self.0.cnf = Some(Confirmation { jkt: Some(thumbprint.to_owned()) });
        self
    }
}
