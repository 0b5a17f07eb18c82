//! What a client was given, and whether any of it is good.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    fmt,
    panic::Location,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use http::{Request, Response, StatusCode};
use serde_json::Value;
use tokio::sync::OnceCell;
use tollgate::{
    BearerLayer, CodeChallenge, CodeVerifier, Tokens, UnixTime, Verifier,
    body::Body,
    store::{AnyStore, Key, Memory, Outcome, Record},
    testing::ManualClock,
};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use crate::{
    steered::Steered,
    world::{ADA, ADA_PASSWORD, Answer, Browser, ISSUER, World, encode, parameters, query_of, with},
};

/// A code, and what its client alone knows.
#[derive(Clone)]
pub(crate) struct Grant {
    pub(crate) code: String,
    pub(crate) verifier: String,
}

/// The tokens of one answer.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) access: String,
    pub(crate) refresh: String,
    pub(crate) id_token: String,
}

impl Given {
    pub(crate) fn of(answer: &Answer) -> Self {
        assert_eq!(answer.status, 200, "{answer:?}");
        let json = answer.json();
        let own = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        Self { access: own("access_token"), refresh: own("refresh_token"), id_token: own("id_token") }
    }

    /// The name of the access token: answers of one use have the same.
    pub(crate) fn jti(&self) -> String {
        let claims = BASE64URL.decode(self.access.split('.').nth(1).unwrap()).unwrap();
        serde_json::from_slice::<Value>(&claims).unwrap()["jti"].as_str().unwrap().to_owned()
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Given({}, …{})", self.jti(), &self.refresh[self.refresh.len().saturating_sub(6)..])
    }
}

/// What says that it is good: an access token at each place that looks at it, a refresh token by what is told of it.
pub(crate) const EVERYWHERE: [&str; 4] = ["userinfo", "introspect access", "layer", "introspect refresh"];

/// Where these tokens are good.
pub(crate) async fn good_at(
    browser: &mut Browser,
    verifier: &Verifier,
    client: &str,
    given: &Given,
) -> BTreeSet<&'static str> {
    let mut good = BTreeSet::new();
    let info = browser.with_token("/userinfo", &given.access).await;
    match info.status.as_u16() {
        200 => assert!(good.insert("userinfo") && info.json()["sub"] == "u-ada", "{info:?}"),
        _ => assert_eq!((info.status.as_u16(), info.error().as_str()), (401, "invalid_token"), "{info:?}"),
    }
    for (name, token) in [("introspect access", &given.access), ("introspect refresh", &given.refresh)] {
        let told = browser.form("/introspect", &[("client_id", client), ("token", token)]).await;
        assert_eq!(told.status, 200, "{told:?}");
        if told.json()["active"] == true {
            good.insert(name);
        }
    }
    if at_layer(verifier, &given.access).await == 200 {
        good.insert("layer");
    }
    good
}

/// Asserts that all of these tokens are good, or none is.
#[track_caller]
pub(crate) fn all_are<'f>(
    alive: bool,
    world: &'f World,
    client: &'f str,
    given: &'f Given,
) -> impl Future<Output = ()> + 'f {
    let place = Location::caller();
    async move {
        let verifier = world.tokens.verifier();
        let good = good_at(&mut world.browser(), &verifier, client, given).await;
        let expected = if alive { BTreeSet::from(EVERYWHERE) } else { BTreeSet::new() };
        assert_eq!(good, expected, "at {place}: {given:?}");
    }
}

/// What an API answers that stands behind a layer.
pub(crate) async fn at_layer(verifier: &Verifier, access: &str) -> StatusCode {
    let inner = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let api = ServiceBuilder::new().layer(BearerLayer::new(verifier.clone())).service(inner);
    let request = Request::get("/orders").header("authorization", format!("Bearer {access}"));
    api.oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status()
}

impl Browser {
    /// A whole login of ada by password for these scopes, to its code.
    pub(crate) async fn sign_in_for(&mut self, client: &str, scope: &str) -> Grant {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let verifier = format!("{:x<43}", COUNT.fetch_add(1, SeqCst));
        let challenge = CodeChallenge::of(&CodeVerifier::parse(&verifier).unwrap()).to_string();
        let wanted = with(parameters(client), &[("scope", scope), ("code_challenge", &challenge)]);
        let begin = with(wanted.clone(), &[("identifier", ADA)]);
        let started = self.post("/authentication/start", &begin).await;
        let id = started.json()["session_id"].as_str().unwrap_or_else(|| panic!("{started:?}")).to_owned();
        let own = with(wanted.clone(), &[("session_id", &id)]);
        let step = with(own.clone(), &[("method", "password"), ("username", ADA), ("password", ADA_PASSWORD)]);
        assert_eq!(self.post("/authentication/authenticate", &step).await.status, 200);
        assert_eq!(self.post("/authentication/complete", &own).await.status, 200);
        let answer = self.get(&format!("/authorize?{}&state=xyz", query_of(&wanted))).await;
        let code = answer.redirected("code").unwrap_or_else(|| panic!("no code: {answer:?}"));
        Grant { code, verifier }
    }

    /// Exchanges such a code.
    pub(crate) async fn trade(&mut self, client: &str, Grant { code, verifier }: &Grant) -> Answer {
        let grant = [("grant_type", "authorization_code"), ("code", code), ("code_verifier", verifier)];
        self.form("/token", &[&grant[..], &[("client_id", client)]].concat()).await
    }

    pub(crate) async fn revoke(&mut self, client: &str, token: &str) -> Answer {
        self.form("/revoke", &[("client_id", client), ("token", token)]).await
    }

    pub(crate) async fn log_out(&mut self, client: &str, id_token: &str) -> Answer {
        self.get(&format!("/logout?client_id={client}&id_token_hint={}", encode(id_token))).await
    }
}

/// Puts signing keys into a new store: to make them takes long.
pub(crate) async fn put_keys(store: &AnyStore) {
    static RING: OnceCell<Record> = OnceCell::const_new();
    let key = Key::new("signing_keys", None, b"ring").unwrap();
    let ring = RING
        .get_or_init(|| async {
            let memory = AnyStore::from(Memory::new());
            Tokens::new(ISSUER, memory.clone()).unwrap().clock(ManualClock::new()).prepare().await.unwrap();
            let entry = memory.get(&key).wait().await.unwrap().unwrap();
            Record::new(entry.value, UnixTime::from_secs(0), entry.expires_at).unwrap()
        })
        .await;
    assert!(matches!(store.insert(&key, ring.clone()).await.unwrap(), Outcome::Done(_)));
}

/// A world on a store of its own that has keys.
pub(crate) async fn world_with_keys() -> World {
    let store = AnyStore::from(Memory::new());
    put_keys(&store).await;
    World::on(store, ManualClock::new(), |service| service).await
}

/// The same on one that is steered.
pub(crate) async fn steered_with_keys() -> (Steered, World) {
    let store = Steered::default();
    put_keys(&store.clone().into()).await;
    let world = World::with(store.clone(), |service| service).await;
    (store, world)
}

/// Two services on one store, by one clock.
pub(crate) async fn two_nodes(store: impl Into<AnyStore>) -> [World; 2] {
    let store = store.into();
    put_keys(&store).await;
    let one = World::with(store.clone(), |service| service).await;
    let other = World::on(store, one.clock.clone(), |service| service).await;
    [one, other]
}
