//! What a client does with a code, and what becomes of its tokens.

use std::{collections::BTreeMap, convert::Infallible, sync::Mutex};

use http::{Request, Response};
use serde_json::Value;
use tollgate::{
    BearerLayer, Client, ClientTable, CodeChallenge, CodeVerifier, Secret,
    body::Body,
    store::{AnyStore, Memory},
    testing::ManualClock,
};
use tower::{Layer, ServiceExt, service_fn};

use crate::world::{
    ADA, ADA_PASSWORD, Answer, Browser, CALLBACK, ISSUER, VERIFIER, World, parameters, query_of, redirect_uri, with,
};

pub(crate) type Fields<'a> = Vec<(&'a str, &'a str)>;

/// The verifiers of codes that were got here, each with one of its own: a challenge that was redeemed begins nothing more.
static VERIFIERS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// The verifier of a code.
pub(crate) fn verifier(code: &str) -> String {
    VERIFIERS.lock().unwrap().get(code).map_or(VERIFIER.to_owned(), String::clone)
}

/// What redeems a code.
pub(crate) fn redemption<'a>(client: &'a str, code: &'a str) -> Fields<'a> {
    // as long as the tests run
    let verifier = String::leak(verifier(code));
    vec![
        ("grant_type", "authorization_code"),
        ("code", code),
        ("code_verifier", verifier),
        ("client_id", client),
        ("redirect_uri", redirect_uri(client)),
    ]
}

/// The fields with this one in the place of its own.
pub(crate) fn set<'a>(fields: &[(&'a str, &'a str)], name: &'a str, value: &'a str) -> Fields<'a> {
    let mut fields = without(fields, name);
    fields.push((name, value));
    fields
}

/// The fields but this one.
pub(crate) fn without<'a>(fields: &[(&'a str, &'a str)], name: &str) -> Fields<'a> {
    fields.iter().copied().filter(|(own, _)| *own != name).collect()
}

/// A client of acme, with a page at `https://app.example`.
pub(crate) fn client(id: &str) -> Client {
    let client = Client::new(id, "acme".parse().unwrap()).unwrap().scopes("openid profile email").unwrap();
    client.redirect_uri(CALLBACK).unwrap().origin("https://app.example").unwrap()
}

/// A world with one client more than the usual: `special`.
pub(crate) async fn world_with(special: impl FnOnce(Client) -> Client) -> World {
    let store = AnyStore::from(Memory::new());
    let tokens = tollgate::Tokens::new(ISSUER, store.clone()).unwrap();
    let all = crate::world::clients().iter().map(|client| Client::clone(client)).collect::<Vec<_>>();
    let clients = ClientTable::new(all.into_iter().chain([special(client("special"))])).unwrap();
    World::made(store, ManualClock::new(), clients, tokens, |service| service).await
}

/// The tokens of one answer.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) access: String,
    pub(crate) refresh: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) scope: String,
}

impl Given {
    pub(crate) fn of(answer: &Answer) -> Self {
        assert_eq!(answer.status, 200, "{answer:?}");
        let json = answer.json();
        let text = |name: &str| json[name].as_str().map(str::to_owned);
        Self {
            access: text("access_token").unwrap(),
            refresh: text("refresh_token"),
            id: text("id_token"),
            scope: text("scope").unwrap(),
        }
    }

    pub(crate) fn refresh(&self) -> &str {
        self.refresh.as_deref().unwrap()
    }

    pub(crate) fn id(&self) -> &str {
        self.id.as_deref().unwrap()
    }
}

/// What stands in a token, whoever signed it.
pub(crate) fn claims(token: &str) -> Value {
    part(token, 1)
}

pub(crate) fn header(token: &str) -> Value {
    part(token, 0)
}

fn part(token: &str, at: usize) -> Value {
    let text = token.split('.').nth(at).unwrap();
    serde_json::from_slice(&base64(text)).unwrap()
}

/// base64url without padding, read the slow way.
pub(crate) fn base64(text: &str) -> Vec<u8> {
    const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for letter in text.chars() {
        bits = bits << 6 | LETTERS.find(letter).unwrap() as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    bytes
}

impl Browser {
    /// A whole login of ada by password, to its code.
    pub(crate) async fn sign_in(&mut self, client: &str) -> String {
        self.sign_in_with(client, &[]).await
    }

    /// Exchanges a code.
    pub(crate) async fn redeem(&mut self, client: &str, code: &str) -> Answer {
        self.form("/token", &redemption(client, code)).await
    }

    /// A whole login of ada by password with these parameters, to its code.
    pub(crate) async fn sign_in_with(&mut self, client: &str, more: &[(&str, &str)]) -> String {
        let verifier = Secret::generate().expose().to_owned();
        let challenge = CodeChallenge::of(&CodeVerifier::parse(&verifier).unwrap()).to_string();
        let own = with(with(parameters(client), &[("code_challenge", &challenge)]), more);
        let id = self.post("/authentication/start", &with(own.clone(), &[("identifier", ADA)])).await;
        let id = id.json()["session_id"].as_str().unwrap().to_owned();
        let fields = [("session_id", &*id), ("method", "password"), ("username", ADA), ("password", ADA_PASSWORD)];
        assert_eq!(self.post("/authentication/authenticate", &with(own.clone(), &fields)).await.status, 200);
        assert_eq!(self.post("/authentication/complete", &with(own.clone(), &fields[..1])).await.status, 200);
        let code = self.get(&format!("/authorize?{}", query_of(&own))).await.redirected("code").unwrap();
        if own["code_challenge"] == challenge {
            VERIFIERS.lock().unwrap().insert(code.clone(), verifier);
        }
        code
    }

    /// The tokens of a whole login.
    pub(crate) async fn tokens(&mut self, client: &str, scope: &str) -> Given {
        let code = self.sign_in_with(client, &[("scope", scope)]).await;
        Given::of(&self.redeem(client, &code).await)
    }

    pub(crate) async fn introspect(&mut self, client: &str, token: &str) -> Value {
        let answer = self.form("/introspect", &[("client_id", client), ("token", token)]).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Whether an access token opens userinfo, is active at introspection and comes through a layer.
    pub(crate) async fn opens(&mut self, world: &World, client: &str, access: &str) -> [bool; 3] {
        let info = self.with_token("/userinfo", access).await;
        assert!([200, 401].contains(&info.status.as_u16()), "{info:?}");
        let known = self.introspect(client, access).await;
        assert!(known["active"] == true || known == serde_json::json!({ "active": false }), "{known}");
        [info.status == 200, known["active"] == true, api(world, access).await == 200]
    }
}

/// What an API behind a layer answers.
pub(crate) async fn api(world: &World, access: &str) -> u16 {
    let inner = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let service = BearerLayer::new(world.tokens.verifier()).layer(inner);
    let request = Request::get("/").header("authorization", format!("Bearer {access}"));
    service.oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status().as_u16()
}
