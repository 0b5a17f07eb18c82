//! Access tokens of remote issuers, well-behaved and not.

#![cfg(feature = "external-providers")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may panic")]

mod support;

use std::{
    convert::Infallible,
    future::poll_fn,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
};
use axum::{Router, body::Body, response::Response};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use bytes::Bytes;
use http::Request;
use serde_json::{Value, json};
use support::certificate::Certificate;
use support::python::PythonServer;
use tokio::{net::TcpListener, sync::watch, time::timeout};
use tollgate::{BearerLayer, Verifier, bearer::RemoteKeys, testing::ManualClock};
use tower::{ServiceBuilder, ServiceExt, service_fn};

const API: &str = "https://api.example";
const PATIENCE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

// ---- keys and tokens

struct Key {
    pair: EcdsaKeyPair,
    kid: &'static str,
}

impl Key {
    fn new(kid: &'static str) -> Self {
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap();
        Self { pair: EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref()).unwrap(), kid }
    }

    fn jwk(&self) -> Value {
        let (x, y) = self.pair.public_key().as_ref().strip_prefix(&[4]).unwrap().split_at(32);
        let (x, y) = (BASE64URL.encode(x), BASE64URL.encode(y));
        json!({ "kty": "EC", "crv": "P-256", "use": "sig", "kid": self.kid, "x": x, "y": y })
    }

    /// A token of this issuer for the API, valid for a month.
    fn token(&self, issuer: &str) -> String {
        self.token_of(self.kid, issuer)
    }

    fn token_of(&self, kid: &str, issuer: &str) -> String {
        let header = json!({ "typ": "at+jwt", "alg": "ES256", "kid": kid });
        let claims = json!({
            "iss": issuer, "aud": API, "sub": "ada", "client_id": "web", "jti": "1",
            "iat": 1_000_000_000_u64, "exp": 1_000_000_000 + 30 * DAY.as_secs(),
        });
        let signed = [header, claims].map(|part| BASE64URL.encode(part.to_string())).join(".");
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", BASE64URL.encode(signature))
    }
}

// ---- the issuer

#[derive(Clone, Debug)]
enum Health {
    Works,
    /// Returns the document with an error status.
    Fails,
    /// Hangs until its state changes.
    Hangs,
    Garbles,
    /// Sends an endless body.
    Floods,
    Redirects(SocketAddr),
    /// Claims to be another issuer.
    Lies,
    /// Has only the metadata of RFC 8414.
    HasOther,
}

#[derive(Clone)]
struct Issuer {
    address: SocketAddr,
    path: &'static str,
    state: Arc<State>,
}

struct State {
    health: watch::Sender<Health>,
    keys: Mutex<Vec<Value>>,
    asked: AtomicUsize,
    asked_for_keys: AtomicUsize,
    pieces: Arc<AtomicUsize>,
}

impl Issuer {
    async fn start(path: &'static str, key: &Key) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let state = State {
            health: watch::Sender::new(Health::Works),
            keys: Mutex::new(vec![key.jwk()]),
            asked: AtomicUsize::new(0),
            asked_for_keys: AtomicUsize::new(0),
            pieces: Arc::default(),
        };
        let issuer = Self { address: listener.local_addr().unwrap(), path, state: Arc::new(state) };
        let own = issuer.clone();
        let app = Router::new().fallback(async move |request: Request<Body>| own.answer(request.uri().path()).await);
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        issuer
    }

    fn name(&self) -> String {
        format!("http://{}{}", self.address, self.path)
    }

    fn becomes(&self, health: Health) {
        self.state.health.send_replace(health);
    }

    fn publishes(&self, keys: &[&Key]) {
        *self.state.keys.lock().unwrap() = keys.iter().map(|key| key.jwk()).collect();
    }

    /// Returns how often its keys were requested.
    fn asked(&self) -> usize {
        self.state.asked_for_keys.load(SeqCst)
    }

    async fn answer(&self, path: &str) -> Response {
        self.state.asked.fetch_add(1, SeqCst);
        if path == "/keys" {
            self.state.asked_for_keys.fetch_add(1, SeqCst);
        }
        let mut health = self.state.health.subscribe();
        let health = health.wait_for(|health| !matches!(health, Health::Hangs)).await.unwrap().clone();
        match health {
            Health::Works | Health::Lies | Health::HasOther | Health::Fails | Health::Hangs => {}
            Health::Garbles => return response(200, "<!doctype html>"),
            Health::Floods => return Response::new(Body::new(Endless(Arc::clone(&self.state.pieces)))),
            Health::Redirects(to) => {
                let to = format!("http://{to}{path}");
                return Response::builder().status(302).header("location", to).body(Body::empty()).unwrap();
            }
        }
        let name = if matches!(health, Health::Lies) { format!("{}/", self.name()) } else { self.name() };
        let metadata = json!({ "issuer": name, "jwks_uri": format!("http://{}/keys", self.address) }).to_string();
        let openid = format!("{}/.well-known/openid-configuration", self.path);
        let oauth = format!("/.well-known/oauth-authorization-server{}", self.path);
        let has_openid = !matches!(health, Health::HasOther);
        let found = if matches!(health, Health::Fails) { 500 } else { 200 };
        match path {
            "/keys" => response(found, &json!({ "keys": *self.state.keys.lock().unwrap() }).to_string()),
            path if path == openid && has_openid => response(found, &metadata),
            path if path == oauth => response(found, &metadata),
            _ => response(404, ""),
        }
    }
}

fn response(status: u16, text: &str) -> Response {
    let response = Response::builder().status(status).header("cache-control", "max-age=600");
    response.body(Body::from(text.to_owned())).unwrap()
}

/// An endless body that counts how many pieces were read.
struct Endless(Arc<AtomicUsize>);

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        self.0.fetch_add(1, SeqCst);
        Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from_static(&[b'x'; 65_536])))))
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.0.fetch_add(1 << 32, SeqCst);
    }
}

// ---- the service

/// Returns the status of an API's response to a token. Fails if it takes too long.
async fn ask(verifier: &Verifier, token: &str) -> u16 {
    let inner = service_fn(async |_: Request<String>| Ok::<_, Infallible>(http::Response::new(String::new())));
    let service = ServiceBuilder::new().layer(BearerLayer::new(verifier.clone())).service(inner);
    let request = Request::builder().header("authorization", format!("Bearer {token}")).body(String::new()).unwrap();
    timeout(PATIENCE, service.oneshot(request)).await.expect("the call hangs").unwrap().status().as_u16()
}

/// Waits until this is true.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

fn remote(issuer: &Issuer, clock: &ManualClock) -> RemoteKeys {
    RemoteKeys::new(&issuer.name()).unwrap().clock(clock.clone())
}

fn verifier(issuer: &Issuer, clock: &ManualClock) -> Verifier {
    remote(issuer, clock).verifier(API).unwrap()
}

// ---- tests

#[tokio::test]
async fn c101_a_token_is_verified_with_the_published_keys() {
    let (key, stranger, clock) = (Key::new("a"), Key::new("a"), ManualClock::new());
    for path in ["", "/realms/acme"] {
        for health in [Health::Works, Health::HasOther] {
            let issuer = Issuer::start(path, &key).await;
            issuer.becomes(health.clone());
            let api = verifier(&issuer, &clock);
            assert_eq!(ask(&api, &key.token(&issuer.name())).await, 200, "{path} {health:?}");
            assert_eq!(ask(&api, &stranger.token(&issuer.name())).await, 401);
            assert_eq!(ask(&api, &key.token("https://auth.example")).await, 401);
            assert_eq!(issuer.asked(), 1);
        }
    }
    // an issuer with a trailing slash, and one without metadata
    let issuer = Issuer::start("", &key).await;
    issuer.becomes(Health::Lies);
    let slash = format!("{}/", issuer.name());
    let api = RemoteKeys::new(&slash).unwrap().clock(clock.clone()).verifier(API).unwrap();
    assert_eq!(ask(&api, &key.token(&slash)).await, 200);
    let keys = format!("{}/keys", issuer.name());
    let named = RemoteKeys::new("https://auth.example").unwrap().jwks_uri(&keys).unwrap().clock(clock.clone());
    assert_eq!(ask(&named.verifier(API).unwrap(), &key.token("https://auth.example")).await, 200);
}

#[tokio::test]
async fn c102_new_keys_are_picked_up_and_withdrawn_ones_expire() {
    let (old, new, clock) = (Key::new("old"), Key::new("new"), ManualClock::new());
    let issuer = Issuer::start("", &old).await;
    let api = verifier(&issuer, &clock);
    let (by_old, by_new) = (old.token(&issuer.name()), new.token(&issuer.name()));
    assert_eq!(ask(&api, &by_old).await, 200);
    issuer.publishes(&[&old, &new]);
    clock.advance(Duration::from_secs(30));
    assert_eq!([ask(&api, &by_new).await, ask(&api, &by_old).await], [200, 200]);
    assert_eq!(issuer.asked(), 2);
    // in the background of the first request after the refresh time
    issuer.publishes(&[&new]);
    clock.advance(Duration::from_secs(480));
    assert_eq!(ask(&api, &by_old).await, 200);
    until("the old key ends", async || ask(&api, &by_old).await == 401).await;
    // once more, for the key that it does not know any more
    assert_eq!((ask(&api, &by_new).await, issuer.asked()), (200, 4));
    // an empty key set is accepted, too
    issuer.publishes(&[]);
    clock.advance(Duration::from_secs(480));
    until("the last key ends", async || ask(&api, &by_new).await == 401).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_unknown_key_ids_causes_few_requests() {
    let (key, clock) = (Key::new("a"), ManualClock::new());
    let issuer = Issuer::start("", &key).await;
    let api = verifier(&issuer, &clock);
    let good = key.token(&issuer.name());
    assert_eq!(ask(&api, &good).await, 200);
    for round in 1..4 {
        let flood: Vec<_> = (0..200)
            .map(|number| {
                let (api, token) = (api.clone(), key.token_of(&format!("made up {number}"), &issuer.name()));
                tokio::spawn(async move { ask(&api, &token).await })
            })
            .collect();
        assert_eq!(ask(&api, &good).await, 200);
        for call in flood {
            assert_eq!(call.await.unwrap(), 401);
        }
        // the first round came right after the keys: one request in five minutes needs no pause
        assert_eq!(issuer.asked(), round + 1);
        clock.advance(Duration::from_secs(30));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_keys_are_fetched_once_even_if_callers_disconnect() {
    let (key, clock) = (Key::new("a"), ManualClock::new());
    let issuer = Issuer::start("", &key).await;
    let api = remote(&issuer, &clock).timeout(Duration::from_secs(30)).unwrap().verifier(API).unwrap();
    let token = key.token(&issuer.name());
    issuer.becomes(Health::Hangs);
    let first = tokio::spawn({
        let (api, token) = (api.clone(), token.clone());
        async move { ask(&api, &token).await }
    });
    until("it is asked", async || issuer.state.asked.load(SeqCst) > 0).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let mut calls: Vec<_> = (0..100).map(|_| Box::pin(ask(&api, &token))).collect();
    for call in &mut calls {
        let early = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
        assert!(early.is_pending(), "one had an answer before the issuer");
    }
    issuer.becomes(Health::Works);
    for call in calls {
        assert_eq!(call.await, 200);
    }
    assert_eq!(issuer.asked(), 1);
}

/// All kinds of failures except slowness.
async fn failures() -> Vec<Health> {
    let elsewhere = Issuer::start("", &Key::new("a")).await;
    vec![Health::Fails, Health::Garbles, Health::Floods, Health::Redirects(elsewhere.address), Health::Lies]
}

#[tokio::test]
async fn keys_survive_an_outage_up_to_the_limit() {
    for health in failures().await {
        let (key, clock) = (Key::new("a"), ManualClock::new());
        let issuer = Issuer::start("", &key).await;
        let (api, token) = (verifier(&issuer, &clock), key.token(&issuer.name()));
        assert_eq!(ask(&api, &token).await, 200);
        issuer.becomes(health.clone());
        clock.advance(Duration::from_secs(599));
        assert_eq!(ask(&api, &token).await, 200, "{health:?}");
        clock.advance(DAY);
        assert_eq!(ask(&api, &token).await, 200, "{health:?}");
        clock.advance(Duration::from_secs(60));
        assert_eq!(ask(&api, &token).await, 503, "{health:?}");
        issuer.becomes(Health::Works);
        clock.advance(Duration::from_secs(60));
        until("it recovers", async || ask(&api, &token).await == 200).await;
    }
}

#[tokio::test]
async fn a_hanging_issuer_delays_nobody_while_there_are_keys() {
    let (key, clock) = (Key::new("a"), ManualClock::new());
    let issuer = Issuer::start("", &key).await;
    let api = remote(&issuer, &clock).timeout(Duration::from_secs(30)).unwrap().verifier(API).unwrap();
    let token = key.token(&issuer.name());
    assert_eq!(ask(&api, &token).await, 200);
    issuer.becomes(Health::Hangs);
    clock.advance(Duration::from_secs(600));
    let before = issuer.state.asked.load(SeqCst);
    for _ in 0..20 {
        let answer = timeout(Duration::from_secs(20), ask(&api, &token)).await;
        assert_eq!(answer.expect("the response waits for the issuer"), 200);
        clock.advance(Duration::from_secs(60));
    }
    until("it is asked", async || issuer.state.asked.load(SeqCst) > before).await;
    assert_eq!(issuer.state.asked.load(SeqCst), before + 1, "one request is in progress");
}

#[tokio::test]
async fn without_keys_requests_fail_and_the_issuer_is_not_flooded() {
    let mut all = failures().await;
    all.push(Health::Hangs);
    for health in all {
        let (key, clock) = (Key::new("a"), ManualClock::new());
        let issuer = Issuer::start("", &key).await;
        issuer.becomes(health.clone());
        let api = remote(&issuer, &clock).timeout(Duration::from_secs(2)).unwrap().verifier(API).unwrap();
        let token = key.token(&issuer.name());
        for rest in [1, 2, 4] {
            let before = issuer.state.asked.load(SeqCst);
            assert_eq!(ask(&api, &token).await, 503, "{health:?}");
            let after = issuer.state.asked.load(SeqCst);
            assert!(after > before && after <= before + 3, "{health:?}");
            for _ in 0..100 {
                assert_eq!(ask(&api, &token).await, 503);
            }
            assert_eq!(issuer.state.asked.load(SeqCst), after, "{health:?}");
            clock.advance(Duration::from_secs(rest));
        }
        issuer.becomes(Health::Works);
        assert_eq!(ask(&api, &token).await, 200, "{health:?}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (key, clock) = (Key::new("a"), ManualClock::new());
    let (issuer, elsewhere) = (Issuer::start("", &key).await, Issuer::start("", &key).await);
    issuer.becomes(Health::Redirects(elsewhere.address));
    let keys = remote(&issuer, &clock).jwks_uri(&format!("{}/keys", issuer.name())).unwrap();
    assert_eq!(ask(&keys.verifier(API).unwrap(), &key.token(&issuer.name())).await, 503);
    assert_eq!((issuer.asked(), elsewhere.asked()), (1, 0));
}

#[tokio::test]
async fn endless_responses_are_not_read() {
    let (key, clock) = (Key::new("a"), ManualClock::new());
    let issuer = Issuer::start("", &key).await;
    issuer.becomes(Health::Floods);
    // so that the size limit ends it, not the timeout
    let keys = remote(&issuer, &clock).timeout(Duration::from_secs(30)).unwrap();
    let api = keys.jwks_uri(&format!("{}/keys", issuer.name())).unwrap().verifier(API).unwrap();
    let answer = timeout(Duration::from_secs(20), ask(&api, &key.token(&issuer.name()))).await;
    assert_eq!(answer.expect("the body is read forever"), 503);
    until("the connection is closed", async || issuer.state.pieces.load(SeqCst) >= 1 << 32).await;
    let pieces = issuer.state.pieces.load(SeqCst) % (1 << 32);
    assert!(pieces < 1000, "{pieces} pieces of 64 KiB were sent for a document of at most 256 KiB");
}

#[test]
fn keys_are_fetched_on_the_current_runtime() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (issuers, key, clock) = (runtime(), Key::new("a"), ManualClock::new());
    let issuer = issuers.block_on(Issuer::start("", &key));
    let (api, token) = (verifier(&issuer, &clock), key.token(&issuer.name()));
    issuer.becomes(Health::Hangs);
    let gone = runtime();
    let call = gone.spawn({
        let (api, token) = (api.clone(), token.clone());
        async move { ask(&api, &token).await }
    });
    runtime().block_on(until("it is asked", async || issuer.state.asked.load(SeqCst) > 0));
    drop((call, gone));
    // the request died with its runtime and counts as a failure
    issuer.becomes(Health::Works);
    assert_eq!(runtime().block_on(ask(&api, &token)), 503);
    clock.advance(Duration::from_secs(1));
    for _ in 0..3 {
        assert_eq!(runtime().block_on(ask(&api, &token)), 200);
        clock.advance(Duration::from_secs(600));
    }
}

#[tokio::test]
async fn over_tls_an_issuer_is_verified_by_its_authority() {
    let (Some(certificate), Some(other)) = (Certificate::new("issuer"), Certificate::new("impostor")) else { return };
    let (key, clock) = (Key::new("a"), ManualClock::new());
    let keys = json!({ "keys": [key.jwk()] }).to_string();
    let (chain, own) = (certificate.chain.to_str().unwrap(), certificate.key.to_str().unwrap());
    let arguments = ["--chain", chain, "--key", own, "--keys", &keys];
    let Some(issuer) = PythonServer::start("issuer.py", "ssl", &arguments).await else { return };
    let name = format!("https://localhost:{}", issuer.port);
    let remote = || RemoteKeys::new(&name).unwrap().clock(clock.clone());
    let token = key.token(&name);
    for (keys, expected) in [
        (remote(), 503),
        (remote().root_pem(&other.authority).unwrap(), 503),
        (remote().root_pem(&certificate.authority).unwrap(), 200),
    ] {
        assert_eq!(ask(&keys.verifier(API).unwrap(), &token).await, expected);
    }
    assert!(rustls::crypto::CryptoProvider::get_default().is_none(), "a process-wide crypto provider was installed");
}

#[test]
fn invalid_settings_are_rejected() {
    for bad in ["", "auth.example", "http://auth.example", "https://auth.example/?a", "ftp://auth.example"] {
        assert!(Verifier::remote(bad, API).is_err(), "{bad}");
    }
    assert!(Verifier::remote("https://auth.example", "").is_err());
    let remote = || RemoteKeys::new("https://auth.example").unwrap();
    assert!(remote().jwks_uri("http://auth.example/keys").is_err());
    assert!(remote().jwks_uri("https://user:word@auth.example/keys").is_err());
    assert!(remote().root_pem("not PEM").is_err());
    assert!(remote().timeout(Duration::ZERO).is_err());
    assert!(remote().timeout(Duration::from_secs(31)).is_err());
    assert!(format!("{:?}", remote()).contains("https://auth.example"));
}
