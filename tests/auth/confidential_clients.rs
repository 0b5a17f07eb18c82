//! Confidential clients: apps with a server, which authenticate with a secret or a key.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::request::Builder;
use serde_json::json;
use tollgate::{
    Client, ClientTable, Secret, Tokens,
    client::ClientSecretDigest,
    store::{AnyStore, Key, Memory},
    testing::ManualClock,
};

use crate::{
    issued_tokens::IssuedTokens,
    machine_clients::{ES256, KIND},
    special_worlds::{client, put_keys},
    token_requests::{Fields, redemption, refused, set, without},
    world::{Answer, Browser, ISSUER, World, clients, encode, form_of, parameters, posted, query_of, with},
};

/// An id that has to be encoded in the header.
pub(crate) const SHOP: &str = "https://shop.example:8443";
/// The client with keys.
pub(crate) const KEYED: &str = "keyed";
/// The secrets of the shop.
const SECRETS: [&str; 2] =
    ["bmV3IHNlY3JldCBvZiB0aGUgc2hvcCwgMzIgYnl0ZXM", "b2xkIHNlY3JldCBvZiB0aGUgc2hvcCwgMzIgYnl0ZXM"];

/// The ways in which a request can authenticate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    Nothing,
    Basic,
    /// The secret that is being replaced.
    OldSecret,
    Post,
    Key,
    WrongBasic,
    WrongPost,
    /// In two ways at once.
    Twice,
}

impl Way {
    pub(crate) const RIGHT: [Self; 4] = [Self::Basic, Self::OldSecret, Self::Post, Self::Key];

    pub(crate) fn client(self) -> &'static str {
        if self == Self::Key { KEYED } else { SHOP }
    }

    fn basic(id: &str, secret: &str) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", encode(id), encode(secret))))
    }

    /// Returns a request with credentials for this client.
    pub(crate) fn request(self, world: &World, client: &str, path: &str, fields: &[(&str, &str)]) -> (Builder, String) {
        let wrong = "A".repeat(43);
        let header = match self {
            Self::Basic | Self::Twice => Some(Self::basic(client, SECRETS[0])),
            Self::OldSecret => Some(Self::basic(client, SECRETS[1])),
            Self::WrongBasic => Some(Self::basic(client, &wrong)),
            _ => None,
        };
        let mut more: Vec<(&str, String)> = Vec::new();
        match self {
            Self::Post | Self::Twice => more.push(("client_secret", SECRETS[0].to_owned())),
            Self::WrongPost => more.push(("client_secret", wrong)),
            Self::Key => {
                let claims = json!({
                    "iss": client, "sub": client, "aud": ISSUER, "exp": world.time().as_secs() + 300,
                    "jti": Secret::generate().expose(),
                });
                more.push(("client_assertion_type", KIND.to_owned()));
                more.push(("client_assertion", ES256.sign(&claims)));
            }
            _ => {}
        }
        let mut fields = fields.to_vec();
        fields.extend(more.iter().map(|(name, value)| (*name, value.as_str())));
        let request = header.into_iter().fold(posted(path), |request, value| request.header("authorization", value));
        (request, form_of(&fields))
    }
}

/// The clients of the world, a shop with two secrets, and a client with a key. `more` has further settings of both.
pub(crate) fn with_confidential(more: impl Fn(Client) -> Client) -> ClientTable {
    let secret = |text: &str| ClientSecretDigest::from(&Secret::parse(text).unwrap());
    let shop = client(SHOP).secret(secret(SECRETS[0])).unwrap().secret(secret(SECRETS[1])).unwrap();
    let keyed = client(KEYED).assertion_keys(&ES256.jwks()).unwrap();
    let all = clients().iter().map(|client| Client::clone(client)).collect::<Vec<_>>();
    ClientTable::new(all.into_iter().chain([more(shop), more(keyed)])).unwrap()
}

pub(crate) async fn confidential_world(more: impl Fn(Client) -> Client) -> World {
    let store = AnyStore::from(Memory::new());
    put_keys(&store).await;
    World::made(store, ManualClock::new(), with_confidential(more), Tokens::new(), |service| service).await
}

async fn world() -> World {
    confidential_world(|client| client).await
}

impl World {
    /// Posts a form as a confidential client, from the address of this browser.
    async fn call(&self, browser: &mut Browser, way: Way, path: &str, fields: &[(&str, &str)]) -> Answer {
        let (request, form) = way.request(self, way.client(), path, fields);
        browser.send(request, form).await
    }

    /// Signs ada in to the client of this way.
    pub(crate) async fn tokens_by(&self, way: Way) -> IssuedTokens {
        let mut browser = self.browser();
        let code = browser.sign_in(way.client()).await;
        IssuedTokens::of(&self.call(&mut browser, way, "/token", &redemption(way.client(), &code)).await)
    }
}

fn refresh(token: &str) -> Fields<'_> {
    vec![("grant_type", "refresh_token"), ("refresh_token", token)]
}

fn is_unauthenticated(answer: &Answer) -> bool {
    answer.status == 401
        && answer.error() == "invalid_client"
        && answer.header("www-authenticate") == r#"Basic realm="token""#
}

#[tokio::test]
async fn c136_a_client_authenticates_in_each_way_at_each_endpoint() {
    let world = world().await;
    for way in Way::RIGHT {
        let (mut browser, client) = (world.browser(), way.client());
        let issued = world.tokens_by(way).await;
        // the credentials name the client, so `client_id` may be missing
        let named = way != Way::Post;
        let fields = |fields: Fields<'static>| if named { fields } else { set(&fields, "client_id", SHOP) };
        let token = String::leak(issued.refresh().to_owned());
        let answer = world.call(&mut browser, way, "/token", &fields(refresh(token))).await;
        let newer = IssuedTokens::of(&answer);
        let access = String::leak(newer.access);
        let known = world.call(&mut browser, way, "/introspect", &fields(vec![("token", access)])).await.json();
        assert_eq!((&known["active"], &known["client_id"]), (&json!(true), &json!(client)), "{way:?}");
        let answer = world.call(&mut browser, way, "/revoke", &fields(vec![("token", access)])).await;
        assert_eq!((answer.status.as_u16(), &*answer.text), (200, "{}"), "{way:?}");
        assert_eq!(browser.introspect(client, access).await, json!({ "active": false }), "{way:?}");
    }
}

#[tokio::test]
async fn c136_without_right_credentials_nothing_happens() {
    let world = world().await;
    for (way, detail) in [
        (Way::Nothing, "this client must authenticate with its secret"),
        (Way::WrongBasic, "client_secret is wrong"),
        (Way::WrongPost, "client_secret is wrong"),
        (Way::Twice, "the client must authenticate in one way only"),
        (Way::Key, "this client authenticates with its secret"),
    ] {
        let mut browser = world.browser();
        let issued = world.tokens_by(Way::Basic).await;
        let code = browser.sign_in(SHOP).await;
        let mut call = async |path: &str, fields: &[(&str, &str)]| {
            let (request, form) = way.request(&world, SHOP, path, &set(fields, "client_id", SHOP));
            browser.send(request, form).await
        };
        let answer = call("/token", &redemption(SHOP, &code)).await;
        assert_eq!(
            answer.own(),
            refused(401, "invalid_client", detail)
                .replace("pragma: no-cache\n", "pragma: no-cache\nwww-authenticate: Basic realm=\"token\"\n"),
            "{way:?}"
        );
        assert!(is_unauthenticated(&call("/token", &refresh(issued.refresh())).await), "{way:?}");
        for (path, fields) in [("/revoke", [("token", &*issued.access)]), ("/introspect", [("token", &issued.access)])]
        {
            assert!(is_unauthenticated(&call(path, &fields).await), "{way:?} {path}");
        }
        let own = parameters(SHOP);
        let own: Fields<'_> =
            own.as_object().unwrap().iter().map(|(name, value)| (&**name, value.as_str().unwrap())).collect();
        assert!(is_unauthenticated(&call("/par", &own).await), "{way:?}");
        // the code, the refresh token and the access token still work
        let redeemed = world.call(&mut browser, Way::Basic, "/token", &redemption(SHOP, &code)).await;
        assert_eq!(redeemed.status, 200, "{way:?} {redeemed:?}");
        assert_eq!(browser.introspect(SHOP, &issued.access).await["active"], true, "{way:?}");
        let refreshed = world.call(&mut browser, Way::Basic, "/token", &refresh(issued.refresh())).await;
        assert_eq!(refreshed.status, 200, "{way:?}");
    }
}

#[tokio::test]
async fn c136_credentials_are_those_of_the_named_client() {
    let world = world().await;
    let mut browser = world.browser();
    let issued = world.tokens_by(Way::Basic).await;
    let fields = refresh(issued.refresh());
    // the header names the shop, the form another client
    for other in ["web", KEYED, "nobody"] {
        let answer = world.call(&mut browser, Way::Basic, "/token", &set(&fields, "client_id", other)).await;
        assert!(is_unauthenticated(&answer), "{other} {answer:?}");
    }
    for (scheme, value) in [
        ("Bearer", STANDARD.encode(format!("{}:{}", encode(SHOP), SECRETS[0]))),
        // not encoded as a form, so the id ends at its first colon
        ("Basic", STANDARD.encode(format!("{SHOP}:{}", SECRETS[0]))),
        ("Basic", "%%%".to_owned()),
        ("Basic", String::new()),
    ] {
        let request = posted("/token").header("authorization", format!("{scheme} {value}"));
        let answer = browser.send(request, form_of(&set(&fields, "client_id", SHOP))).await;
        assert!(is_unauthenticated(&answer), "{scheme} {value} {answer:?}");
    }
    let header = Way::basic(SHOP, SECRETS[0]);
    let twice = posted("/token").header("authorization", &header).header("authorization", &header);
    assert!(is_unauthenticated(&browser.send(twice, form_of(&fields)).await));
    // tokens and codes of other clients
    let of_web = browser.tokens("web", "openid").await;
    let answer = world.call(&mut browser, Way::Basic, "/token", &refresh(of_web.refresh())).await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (400, "invalid_grant"));
    let known = world.call(&mut browser, Way::Basic, "/introspect", &[("token", &of_web.access)]).await;
    assert_eq!(known.text, r#"{"active":false}"#, "an app learns nothing about the tokens of others");
    assert_eq!(world.call(&mut browser, Way::Basic, "/revoke", &[("token", &of_web.access)]).await.status, 200);
    assert_eq!(browser.introspect("web", &of_web.access).await["active"], true);
    // a client with users has no grant of its own
    let own = [("grant_type", "client_credentials"), ("scope", "openid")];
    let answer = world.call(&mut browser, Way::Basic, "/token", &own).await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (400, "unauthorized_client"));
    // nothing of that has used up the token
    assert_eq!(world.call(&mut browser, Way::Basic, "/token", &fields).await.status, 200);
}

#[tokio::test]
async fn c136_pkce_stays_required() {
    let world = world().await;
    for way in [Way::Basic, Way::Key] {
        let (mut browser, client) = (world.browser(), way.client());
        let mut bare = parameters(client);
        let code = browser.sign_in(client).await;
        bare.as_object_mut().unwrap().remove("code_challenge");
        let back = browser.get(&format!("/authorize?{}", query_of(&bare))).await;
        assert_eq!(back.redirected("error_description").as_deref(), Some("code challenge required"), "{way:?}");
        let bare: Fields<'_> =
            bare.as_object().unwrap().iter().map(|(name, value)| (&**name, value.as_str().unwrap())).collect();
        assert_eq!(world.call(&mut browser, way, "/par", &bare).await.error(), "invalid_request", "{way:?}");
        let fields = redemption(client, &code);
        let without = without(&fields, "code_verifier");
        assert_eq!(world.call(&mut browser, way, "/token", &without).await.error(), "invalid_request", "{way:?}");
        let wrong = "A".repeat(43);
        let wrong = set(&fields, "code_verifier", &wrong);
        assert_eq!(world.call(&mut browser, way, "/token", &wrong).await.error(), "invalid_grant", "{way:?}");
        assert_eq!(world.call(&mut browser, way, "/token", &fields).await.status, 200, "{way:?}");
    }
}

#[tokio::test]
async fn c136_failures_count_for_a_client_and_an_address_and_stop_nobody_else() {
    let world = world().await;
    let mut stranger = Browser { address: [198, 51, 100, 7].into(), ..world.browser() };
    let issued = world.tokens_by(Way::Basic).await;
    let fields = [("token", &*issued.access)];
    for n in 0..62 {
        let answer = world.call(&mut stranger, Way::WrongBasic, "/introspect", &fields).await;
        assert_eq!(answer.status.as_u16(), if n < 60 { 401 } else { 429 }, "{n}");
    }
    // from this address, right credentials of this client have to wait, too
    let answer = world.call(&mut stranger, Way::Basic, "/introspect", &fields).await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (429, "too_many_attempts"));
    assert!(!answer.header("retry-after").is_empty());
    // another client at this address, a user there, and the client at its own address do not
    assert_eq!(world.call(&mut stranger, Way::Key, "/introspect", &fields).await.status, 200);
    stranger.log_in("web", "ada@example.com").await;
    for _ in 0..100 {
        assert_eq!(world.call(&mut world.browser(), Way::Basic, "/introspect", &fields).await.status, 200);
    }
    world.advance(60);
    assert_eq!(world.call(&mut stranger, Way::Basic, "/introspect", &fields).await.status, 200);
}

/// Returns the row of a pushed request.
async fn stored_request(world: &World, uri: &str) -> String {
    let secret = Secret::parse(uri.rsplit_once(':').unwrap().1).unwrap();
    let key = Key::new("pushed_requests", None, secret.digest().as_bytes()).unwrap();
    let entry = world.store.get(&key).wait().await.unwrap().unwrap();
    String::from_utf8_lossy(&entry.value).into_owned()
}

#[tokio::test]
async fn c136_a_pushed_request_is_stored_without_credentials() {
    let world = world().await;
    for way in Way::RIGHT {
        let (mut browser, client) = (world.browser(), way.client());
        let (own, verifier) = browser.log_in_with(client, &[("state", "a b")]).await;
        let pairs: Fields<'_> =
            own.as_object().unwrap().iter().map(|(name, value)| (&**name, value.as_str().unwrap())).collect();
        let answer = world.call(&mut world.browser(), way, "/par", &pairs).await;
        assert_eq!(answer.status, 201, "{way:?} {answer:?}");
        let uri = answer.json()["request_uri"].as_str().unwrap().to_owned();
        let row = stored_request(&world, &uri).await;
        assert!(row.contains("code_challenge"), "{way:?} {row}");
        assert!(!row.contains("client_secret") && !row.contains("client_assertion"), "{way:?} {row}");
        let back = browser.get(&format!("/authorize?client_id={}&request_uri={}", encode(client), encode(&uri))).await;
        assert_eq!(back.redirected("state").as_deref(), Some("a b"), "{way:?} {back:?}");
        let code = back.redirected("code").unwrap();
        let code = crate::token_requests::Grant { code, verifier };
        let answer = world.call(&mut browser, way, "/token", &redemption(client, &code)).await;
        assert_eq!(answer.status, 200, "{way:?} {answer:?}");
    }
    // a request that cannot be stored after that is refused like others that are too long
    let long = with(parameters(SHOP), &[("state", &"é".repeat(1500))]);
    let fields: Fields<'_> =
        long.as_object().unwrap().iter().map(|(name, value)| (&**name, value.as_str().unwrap())).collect();
    let (request, _) = Way::Basic.request(&world, SHOP, "/par", &[]);
    let raw = fields.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&");
    let answer = world.browser().send(request, raw).await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (413, "content_too_large"));
}

#[tokio::test]
async fn c136_an_assertion_works_once_and_only_at_its_client() {
    let world = world().await;
    let mut browser = world.browser();
    let issued = world.tokens_by(Way::Key).await;
    let (_, form) = Way::Key.request(&world, KEYED, "/introspect", &[("token", &issued.access)]);
    assert_eq!(browser.send(posted("/introspect"), form.clone()).await.json()["active"], true);
    for path in ["/introspect", "/revoke", "/token", "/par"] {
        assert!(is_unauthenticated(&browser.send(posted(path), form.clone()).await), "{path}");
    }
    // its key signs for no other client
    let (_, form) = Way::Key.request(&world, SHOP, "/introspect", &[("token", &issued.access)]);
    assert!(is_unauthenticated(&browser.send(posted("/introspect"), form).await));
    // and a secret is no replacement
    for way in [Way::Basic, Way::Post] {
        let (request, form) =
            way.request(&world, KEYED, "/token", &set(&refresh(issued.refresh()), "client_id", KEYED));
        assert!(is_unauthenticated(&browser.send(request, form).await), "{way:?}");
    }
}
