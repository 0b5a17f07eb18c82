//! An identity provider of our own that can misbehave, and a login service whose users sign in with it.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, LazyLock, Mutex},
};

use aws_lc_rs::{
    encoding::AsDer,
    rand::SystemRandom,
    rsa::KeySize,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair,
        RsaKeyPair,
    },
};
use axum::{Router, body::Bytes};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use http::{HeaderMap, Request, Response, Uri, request::Parts};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tollgate::{
    Tenant, UserId,
    pkce::{CodeChallenge, CodeVerifier},
    sso::{ClientSecret, CreateAccount, OidcProvider, ProviderUser, SsoConnection},
    store::{AnyStore, Memory},
    testing::ManualClock,
};

use crate::world::{Answer, Browser, ISSUER, World, encode, form_of};

pub(crate) const CLIENT: &str = "our-client";
pub(crate) const SECRET: &str = "a secret/with: signs";

// ---- keys

/// A signing key of the provider.
#[derive(Clone)]
pub(crate) struct Key {
    private: EncodingKey,
    algorithm: Algorithm,
    kid: String,
    public: Value,
}

/// Generating a key takes a while.
static RSA: LazyLock<[Key; 2]> = LazyLock::new(|| ["rsa-1", "rsa-2"].map(Key::new_rsa));

impl Key {
    fn new_rsa(kid: &str) -> Self {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let pkcs8 = pair.as_der().unwrap();
        let key = pair.public_key();
        let n = BASE64URL.encode(key.modulus().big_endian_without_leading_zero());
        let e = BASE64URL.encode(key.exponent().big_endian_without_leading_zero());
        // PKCS #8 wraps PKCS #1
        let private = EncodingKey::from_rsa_der(&pkcs8.as_ref()[26..]);
        let public = json!({ "kty": "RSA", "n": n, "e": e });
        Self { private, algorithm: Algorithm::RS256, kid: kid.to_owned(), public }
    }

    pub(crate) fn rsa(number: usize, algorithm: Algorithm) -> Self {
        Self { algorithm, ..RSA[number].clone() }
    }

    fn ec(kid: &str, (algorithm, curve): (Algorithm, &str), signing: &'static EcdsaSigningAlgorithm) -> Self {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(signing, &SystemRandom::new()).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(signing, pkcs8.as_ref()).unwrap();
        let (x, y) = pair.public_key().as_ref()[1..].split_at(pair.public_key().as_ref().len() / 2);
        let public = json!({ "kty": "EC", "crv": curve, "x": BASE64URL.encode(x), "y": BASE64URL.encode(y) });
        Self { private: EncodingKey::from_ec_der(pkcs8.as_ref()), algorithm, kid: kid.to_owned(), public }
    }

    pub(crate) fn p256(kid: &str) -> Self {
        Self::ec(kid, (Algorithm::ES256, "P-256"), &ECDSA_P256_SHA256_FIXED_SIGNING)
    }

    pub(crate) fn p384(kid: &str) -> Self {
        Self::ec(kid, (Algorithm::ES384, "P-384"), &ECDSA_P384_SHA384_FIXED_SIGNING)
    }

    /// Returns this key under another id.
    pub(crate) fn named(&self, kid: &str) -> Self {
        Self { kid: kid.to_owned(), ..self.clone() }
    }

    fn jwk(&self) -> Value {
        let mut jwk = self.public.clone();
        (jwk["kid"], jwk["use"]) = (json!(self.kid), json!("sig"));
        jwk
    }

    fn sign(&self, typ: Option<&str>, claims: &Value) -> String {
        let header = Header { typ: typ.map(str::to_owned), kid: Some(self.kid.clone()), ..Header::new(self.algorithm) };
        jsonwebtoken::encode(&header, claims, &self.private).unwrap()
    }
}

// ---- the provider

/// The trouble that an endpoint makes.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    Status(u16),
    /// Never answers.
    Hangs,
    /// Sends a body without end.
    Floods,
    Redirects(String),
    Says(String),
    /// Answers with this status and this text.
    Answers(u16, String),
}

/// How the provider behaves.
#[derive(Clone)]
pub(crate) struct Behavior {
    pub(crate) published: Vec<Key>,
    pub(crate) signing: Key,
    pub(crate) typ: Option<&'static str>,
    /// Claims of the ID token to replace. `null` removes a claim.
    pub(crate) claims: Value,
    /// Times of the ID token to replace, relative to now.
    pub(crate) times: Vec<(&'static str, f64)>,
    /// Members of the metadata to replace.
    pub(crate) metadata: Value,
    /// Parameters of the callback to replace.
    pub(crate) callback: Value,
    pub(crate) userinfo: Value,
    /// Changes the finished ID token.
    pub(crate) forge: fn(String) -> String,
    pub(crate) trouble: BTreeMap<&'static str, Trouble>,
}

#[derive(Clone)]
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    clock: ManualClock,
}

/// The path, headers and fields of a request.
type Call = (String, HeaderMap, BTreeMap<String, String>);

struct State {
    behavior: Mutex<Behavior>,
    /// The request behind each code.
    codes: Mutex<BTreeMap<String, BTreeMap<String, String>>>,
    calls: Mutex<Vec<Call>>,
}

impl Provider {
    pub(crate) async fn start(clock: &ManualClock) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let key = Key::rsa(0, Algorithm::RS256);
        let behavior = Behavior {
            published: vec![key.clone()],
            signing: key,
            typ: Some("JWT"),
            claims: json!({}),
            times: Vec::new(),
            metadata: json!({}),
            callback: json!({}),
            userinfo: json!({}),
            forge: |token| token,
            trouble: BTreeMap::new(),
        };
        let state = State { behavior: Mutex::new(behavior), codes: Mutex::default(), calls: Mutex::default() };
        let provider = Self { address: listener.local_addr().unwrap(), state: Arc::new(state), clock: clock.clone() };
        let own = provider.clone();
        let app = Router::new().fallback(async move |request: Request<axum::body::Body>| {
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            own.answer(&parts, &body).await
        });
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        provider
    }

    pub(crate) fn issuer(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Behavior)) {
        change(&mut self.state.behavior.lock().unwrap());
    }

    fn behavior(&self) -> Behavior {
        self.state.behavior.lock().unwrap().clone()
    }

    /// Returns the calls of an endpoint: their headers and their forms.
    pub(crate) fn calls(&self, path: &str) -> Vec<(HeaderMap, BTreeMap<String, String>)> {
        let calls = self.state.calls.lock().unwrap();
        calls.iter().filter(|(own, ..)| own == path).map(|(_, headers, form)| (headers.clone(), form.clone())).collect()
    }

    /// The user signs in: returns the path and query of the callback.
    pub(crate) fn signs_in(&self, url: &str) -> String {
        let asked = pairs(url.split_once('?').unwrap().1);
        let code = format!("code-{}", self.state.codes.lock().unwrap().len());
        let mut answer = json!({ "code": code, "state": asked["state"], "iss": self.issuer() });
        merge(&mut answer, &self.behavior().callback);
        let target = asked["redirect_uri"].strip_prefix(ISSUER).unwrap().to_owned();
        self.state.codes.lock().unwrap().insert(code, asked);
        let fields: Vec<_> =
            answer.as_object().unwrap().iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect();
        format!("{target}?{}", form_of(&fields))
    }

    async fn answer(&self, parts: &Parts, body: &Bytes) -> Response<axum::body::Body> {
        let path = parts.uri.path().to_owned();
        let form = pairs(std::str::from_utf8(body).unwrap());
        self.state.calls.lock().unwrap().push((path.clone(), parts.headers.clone(), form.clone()));
        let behavior = self.behavior();
        match behavior.trouble.get(path.as_str()) {
            None => {}
            Some(Trouble::Status(status)) => {
                return Response::builder()
                    .status(*status)
                    .body(json!({ "error": "oops" }).to_string().into())
                    .unwrap();
            }
            Some(Trouble::Hangs) => std::future::pending().await,
            Some(Trouble::Floods) => return json_of(&"x".repeat(1 << 20)),
            Some(Trouble::Redirects(to)) => {
                return Response::builder().status(307).header("location", to).body("".into()).unwrap();
            }
            Some(Trouble::Says(text)) => return json_of(text),
            Some(Trouble::Answers(status, text)) => {
                let mut answer = json_of(text);
                *answer.status_mut() = (*status).try_into().unwrap();
                return answer;
            }
        }
        match path.as_str() {
            "/.well-known/openid-configuration" => {
                let own = |path: &str| format!("{}{path}", self.issuer());
                let mut metadata = json!({
                    "issuer": self.issuer(),
                    "authorization_endpoint": own("/authorize?audience=x"),
                    "token_endpoint": own("/token"),
                    "userinfo_endpoint": own("/userinfo"),
                    "jwks_uri": own("/keys"),
                    "authorization_response_iss_parameter_supported": true,
                });
                merge(&mut metadata, &behavior.metadata);
                json_of(&metadata.to_string())
            }
            "/keys" => {
                let keys: Vec<Value> = behavior.published.iter().map(Key::jwk).collect();
                json_of(&json!({ "keys": keys }).to_string())
            }
            "/token" => match self.redeemed(&form) {
                Some(asked) => self.tokens(&behavior, &asked),
                None => {
                    let text = json!({ "error": "invalid_grant" }).to_string();
                    Response::builder().status(400).body(text.into()).unwrap()
                }
            },
            "/userinfo" => json_of(&behavior.userinfo.to_string()),
            _ => Response::builder().status(404).body("".into()).unwrap(),
        }
    }

    /// Redeems a code once, with the right verifier and redirect URI.
    fn redeemed(&self, form: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
        let asked = self.state.codes.lock().unwrap().remove(form.get("code")?)?;
        let verifier = CodeVerifier::parse(form.get("code_verifier")?).ok()?;
        let is_right = CodeChallenge::parse(&asked["code_challenge"]).ok()?.verify(&verifier)
            && form.get("redirect_uri") == asked.get("redirect_uri")
            && form.get("grant_type").is_some_and(|kind| kind == "authorization_code");
        is_right.then_some(asked)
    }

    fn tokens(&self, behavior: &Behavior, asked: &BTreeMap<String, String>) -> Response<axum::body::Body> {
        let mut claims = json!({
            "iss": self.issuer(),
            "sub": "ada-there",
            "aud": CLIENT,
            "iat": self.now(),
            "exp": self.now() + 300,
            "nonce": asked["nonce"],
            "email": "ada@example.com",
            "email_verified": true,
            "name": "Ada there",
        });
        merge(&mut claims, &behavior.claims);
        for (name, seconds) in &behavior.times {
            claims[*name] = json!(self.now() as f64 + seconds);
        }
        let token = (behavior.forge)(behavior.signing.sign(behavior.typ, &claims));
        json_of(&json!({ "access_token": "their-access-token", "token_type": "Bearer", "id_token": token }).to_string())
    }

    pub(crate) fn now(&self) -> u64 {
        use tollgate::clock::Clock;
        self.clock.unix(self.clock.now()).as_secs()
    }
}

/// Replaces members. `null` removes one.
fn merge(object: &mut Value, more: &Value) {
    for (name, value) in more.as_object().unwrap() {
        object[name] = value.clone();
    }
    object.as_object_mut().unwrap().retain(|_, value| !value.is_null());
}

fn json_of(text: &str) -> Response<axum::body::Body> {
    Response::builder().header("content-type", "application/json").body(text.to_owned().into()).unwrap()
}

/// Decodes a form or a query.
pub(crate) fn pairs(text: &str) -> BTreeMap<String, String> {
    let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decode(name), decode(value))).collect()
}

// ---- the login service

/// A hook that knows the accounts of these users of the provider.
pub(crate) struct Accounts(pub(crate) &'static [(&'static str, &'static str)]);

impl CreateAccount for Accounts {
    type Error = std::io::Error;

    async fn account(&self, _: &Tenant, user: &ProviderUser) -> Result<Option<UserId>, std::io::Error> {
        let found = self.0.iter().find(|(subject, _)| *subject == user.subject());
        Ok(found.map(|(_, id)| UserId::parse(id).unwrap()))
    }
}

pub(crate) struct SsoWorld {
    pub(crate) world: World,
    pub(crate) provider: Provider,
}

impl SsoWorld {
    /// A service at which `ada-there` gets the account of ada, whether linked before or not.
    pub(crate) async fn new() -> Self {
        Self::with(|provider| provider, |connection| connection.create_account(Accounts(&[("ada-there", "u-ada")])))
            .await
    }

    pub(crate) async fn with(
        provider: impl FnOnce(OidcProvider) -> OidcProvider,
        connection: impl FnOnce(SsoConnection) -> SsoConnection,
    ) -> Self {
        Self::on(Memory::new().into(), provider, connection).await
    }

    pub(crate) async fn on(
        store: AnyStore,
        own: impl FnOnce(OidcProvider) -> OidcProvider,
        connection: impl FnOnce(SsoConnection) -> SsoConnection,
    ) -> Self {
        let clock = ManualClock::new();
        let provider = Provider::start(&clock).await;
        let oidc = own(oidc(&provider));
        let connection = connection(SsoConnection::new(oidc).label("Example ID"));
        let world = World::on(store, clock, |service| service.sso("idp", connection)).await;
        Self { world, provider }
    }

    /// Sends a browser to the provider and back.
    pub(crate) async fn dance(&self, browser: &mut Browser, client: &str, id: &str) -> Answer {
        let url = sent(browser, client, id).await;
        browser.get(&self.provider.signs_in(&url)).await
    }
}

pub(crate) fn oidc(provider: &Provider) -> OidcProvider {
    let oidc = OidcProvider::new(&provider.issuer(), CLIENT).unwrap().secret(ClientSecret::new(SECRET));
    oidc.clock(provider.clock.clone())
}

/// Asks to be sent to the provider, and returns its URL.
pub(crate) async fn sent(browser: &mut Browser, client: &str, id: &str) -> String {
    let answer = browser.call("authenticate", client, id, &[("method", "sso"), ("provider", "idp")]).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["status"], "pending");
    answer.json()["redirect_url"].as_str().unwrap().to_owned()
}

/// Begins a login without an identifier.
pub(crate) async fn begun(browser: &mut Browser, client: &str) -> String {
    let answer = browser.post("/authentication/start", &crate::world::parameters(client)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["session_id"].as_str().unwrap().to_owned()
}

/// Returns the fragment of the login page that an answer redirects to.
pub(crate) fn outcome(answer: &Answer) -> &str {
    assert_eq!(answer.status, 303, "{answer:?}");
    let (page, fragment) = answer.header("location").split_once('#').unwrap();
    assert!(page.starts_with("/authentication/start?client_id="), "{page}");
    let outcome = fragment.strip_prefix("sso=").unwrap();
    outcome.split_once('&').map_or(outcome, |(outcome, _)| outcome)
}

/// Returns why a sign-in failed, as the fragment of the login page tells.
pub(crate) fn reason(answer: &Answer) -> &str {
    assert_eq!(outcome(answer), "failed");
    answer.header("location").split_once("&reason=").map_or("", |(_, reason)| reason)
}

/// Checks that a login is alive and that nothing is proved.
pub(crate) async fn is_open(browser: &mut Browser, id: &str) -> bool {
    let status = browser.status(id).await.json();
    status["status"] == "pending" && status["completed_steps"] == 0
}

/// Returns the parameters of a URL.
pub(crate) fn asked(url: &str) -> BTreeMap<String, String> {
    let uri: Uri = url.parse().unwrap();
    pairs(uri.query().unwrap())
}

/// Returns a URL with one parameter replaced.
pub(crate) fn with_parameter(target: &str, name: &str, value: &str) -> String {
    let (path, query) = target.split_once('?').unwrap();
    let mut all = pairs(query);
    all.insert(name.to_owned(), value.to_owned());
    let query: Vec<String> = all.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    format!("{path}?{}", query.join("&"))
}
