//! Machine clients: services that get tokens for themselves (`client_credentials` with `private_key_jwt`).

use std::{convert::Infallible, sync::LazyLock};

use aws_lc_rs::{
    encoding::AsDer,
    rand::SystemRandom,
    rsa::KeySize,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use http::{Request, Response};
use jsonwebtoken::{Algorithm, EncodingKey, Header, jwk::Jwk};
use serde_json::{Value, json};
use tollgate::{
    AccessToken, BearerLayer, Client, ClientTable, Secret, Tenant, Tokens, UserId,
    body::Body,
    store::{AnyStore, Memory},
    testing::{DpopKey, ManualClock},
};
use tower::{Layer, ServiceExt, service_fn};

use crate::{
    issued_tokens::{IssuedTokens, claims, header},
    special_worlds::put_keys,
    token_requests::{Fields, set, without},
    world::{ADA_PASSWORD, Answer, Browser, ISSUER, World, clients, form_of, parameters, posted, query_of, with},
};

pub(crate) const KIND: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// A key of another implementation.
pub(crate) struct MachineKey(Algorithm, EncodingKey);

pub(crate) static ES256: LazyLock<MachineKey> = LazyLock::new(|| {
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
    MachineKey(Algorithm::ES256, EncodingKey::from_ec_der(pkcs8.as_ref()))
});

/// A private key, and its public half.
static ED25519: LazyLock<(Vec<u8>, Vec<u8>)> = LazyLock::new(|| {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
    (pkcs8.as_ref().to_vec(), pair.public_key().as_ref().to_vec())
});

static EDDSA: LazyLock<MachineKey> =
    LazyLock::new(|| MachineKey(Algorithm::EdDSA, EncodingKey::from_ed_der(&ED25519.0)));

static RSA: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let pkcs8 = RsaKeyPair::generate(KeySize::Rsa2048).unwrap().as_der().unwrap().as_ref().to_vec();
    // PKCS #8 wraps PKCS #1
    pkcs8[26..].to_vec()
});

fn rsa(algorithm: Algorithm) -> MachineKey {
    MachineKey(algorithm, EncodingKey::from_rsa_der(&RSA))
}

impl MachineKey {
    pub(crate) fn jwks(&self) -> String {
        let key = match self.0 {
            Algorithm::EdDSA => json!({ "kty": "OKP", "crv": "Ed25519", "x": BASE64URL.encode(&*ED25519.1) }),
            algorithm => serde_json::to_value(Jwk::from_encoding_key(&self.1, algorithm).unwrap()).unwrap(),
        };
        json!({ "keys": [key] }).to_string()
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        self.sign_as(&Header::new(self.0), claims)
    }

    fn sign_as(&self, header: &Header, claims: &Value) -> String {
        jsonwebtoken::encode(header, claims, &self.1).unwrap()
    }
}

fn acme() -> Tenant {
    "acme".parse().unwrap()
}

/// A world with the machine client `billing` of acme, which has this key, and more settings of it.
async fn world_of(key: &MachineKey, more: impl FnOnce(Client) -> Client) -> World {
    let store = AnyStore::from(Memory::new());
    put_keys(&store).await;
    world_on((store, ManualClock::new()), key, more).await
}

pub(crate) async fn world_on(
    place: (AnyStore, ManualClock),
    key: &MachineKey,
    more: impl FnOnce(Client) -> Client,
) -> World {
    let billing =
        Client::machine("billing", acme(), &key.jwks()).unwrap().scopes("invoices:read invoices:write").unwrap();
    let all = clients().iter().map(|client| Client::clone(client)).collect::<Vec<_>>();
    let clients = ClientTable::new(all.into_iter().chain([more(billing)])).unwrap();
    World::made(place.0, place.1, clients, Tokens::new(), |service| service).await
}

async fn world() -> World {
    world_of(&ES256, |client| client).await
}

/// The claims of a good assertion, each time with another `jti`.
fn good(world: &World) -> Value {
    json!({
        "iss": "billing", "sub": "billing", "aud": ISSUER, "exp": world.time().as_secs() + 300,
        "jti": Secret::generate().expose(),
    })
}

fn asking(assertion: &str) -> Fields<'_> {
    vec![
        ("grant_type", "client_credentials"),
        ("client_id", "billing"),
        ("client_assertion_type", KIND),
        ("client_assertion", assertion),
    ]
}

async fn ask(browser: &mut Browser, assertion: &str) -> Answer {
    browser.form("/token", &asking(assertion)).await
}

pub(crate) async fn token(world: &World) -> String {
    let answer = ask(&mut world.browser(), &ES256.sign(&good(world))).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["access_token"].as_str().unwrap().to_owned()
}

fn refusal(answer: &Answer) -> (u16, String, String) {
    let json = answer.json();
    (answer.status.as_u16(), answer.error(), json["error_description"].as_str().unwrap().to_owned())
}

fn is_unauthenticated(answer: &Answer) -> bool {
    answer.status == 401 && answer.error() == "invalid_client" && !answer.header("www-authenticate").is_empty()
}

/// Returns the response of an API in the process of the issuer, which describes the caller.
async fn api(world: &World, access: &str) -> (u16, String) {
    let inner = service_fn(async |request: Request<Body>| {
        let token = AccessToken::from_extensions(request.extensions()).unwrap();
        let tenant = token.tenant().unwrap();
        let caller = format!("{} {} {tenant} {}", token.subject(), token.client_id(), token.is_machine());
        Ok::<_, Infallible>(Response::new(caller))
    });
    let request = Request::get("/").header("authorization", format!("Bearer {access}")).body(Body::empty()).unwrap();
    let layer = BearerLayer::new(world.service.verifier()).require_scope("invoices:read").unwrap();
    let response = layer.layer(inner).oneshot(request).await.unwrap();
    (response.status().as_u16(), response.into_body())
}

#[tokio::test]
async fn a15_a_machine_client_gets_a_token_for_itself() {
    let world = world().await;
    let answer = ask(&mut world.browser(), &ES256.sign(&good(&world))).await;
    let json = answer.json();
    assert_eq!((answer.header("cache-control"), answer.header("pragma")), ("no-store", "no-cache"));
    assert_eq!((&json["token_type"], &json["expires_in"]), (&json!("Bearer"), &json!(600)));
    assert_eq!(json["scope"], "invoices:read invoices:write");
    assert!(json.get("refresh_token").is_none() && json.get("id_token").is_none());
    let access = json["access_token"].as_str().unwrap();
    assert_eq!(header(access)["typ"], "at+jwt");
    let (own, now) = (claims(access), world.time().as_secs());
    assert_eq!(
        own,
        json!({
            "iss": ISSUER, "sub": "billing", "aud": ISSUER, "client_id": "billing", "tenant": "acme",
            "scope": "invoices:read invoices:write", "iat": now, "exp": now + 600, "jti": own["jti"], "gty": "client-credentials",
        })
    );
    assert_eq!(api(&world, access).await, (200, "billing billing acme true".to_owned()));
    // a user's token says otherwise
    let of_user = world.browser().tokens("web", "openid").await.access;
    assert!(claims(&of_user)["gty"].is_null());
}

#[tokio::test]
async fn a15_keys_of_all_algorithms_are_accepted_and_each_only_for_its_own() {
    for key in [&*ES256, &*EDDSA, &rsa(Algorithm::RS256), &rsa(Algorithm::PS256)] {
        let world = world_of(key, |client| client).await;
        assert_eq!(ask(&mut world.browser(), &key.sign(&good(&world))).await.status, 200, "{:?}", key.0);
    }
    // the registered key names PS256
    let world = world_of(&rsa(Algorithm::PS256), |client| client).await;
    assert!(is_unauthenticated(&ask(&mut world.browser(), &rsa(Algorithm::RS256).sign(&good(&world))).await));
    for bad in ["", "{}", r#"{"keys":[]}"#, r#"{"keys":[{"kty":"oct","k":"AAAA"}]}"#] {
        assert!(Client::machine("billing", acme(), bad).is_err(), "{bad}");
    }
}

#[tokio::test]
async fn a15_forms_of_good_requests() {
    let world = world().await;
    let mut browser = world.browser();
    let endpoint = format!("{ISSUER}/token");
    let changed = |name: &str, value: Value| {
        let mut claims = good(&world);
        claims[name] = value;
        ES256.sign(&claims)
    };
    let now = world.time().as_secs();
    for assertion in [
        changed("aud", json!(endpoint)),
        changed("aud", json!([ISSUER, endpoint])),
        changed("aud", json!(format!("{ISSUER}/par"))),
        changed("exp", json!(now + 1)),
        changed("exp", json!(now + 310)),
        changed("iat", json!(now + 10)),
        changed("nbf", json!(now - 3600)),
        changed("jti", json!("x".repeat(256))),
        changed("more", json!("ignored")),
        ES256.sign_as(&Header { typ: None, ..Header::new(ES256.0) }, &good(&world)),
        ES256.sign_as(
            &Header { typ: Some("client-authentication+jwt".to_owned()), ..Header::new(ES256.0) },
            &good(&world),
        ),
        ES256.sign_as(&Header { kid: Some("any".to_owned()), ..Header::new(ES256.0) }, &good(&world)),
    ] {
        let answer = ask(&mut browser, &assertion).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let assertion = ES256.sign(&good(&world));
    assert_eq!(browser.form("/token", &without(&asking(&assertion), "client_id")).await.status, 200);
    let assertion = ES256.sign(&good(&world));
    let narrow = browser.form("/token", &set(&asking(&assertion), "scope", "invoices:read")).await.json();
    assert_eq!(narrow["scope"], "invoices:read");
    assert_eq!(claims(narrow["access_token"].as_str().unwrap())["scope"], "invoices:read");
}

#[tokio::test]
async fn a15_an_assertion_with_a_wrong_field_is_refused() {
    let world = world().await;
    let changed = |name: &str, value: Value| {
        let mut claims = good(&world);
        match value {
            Value::Null => _ = claims.as_object_mut().unwrap().remove(name),
            value => claims[name] = value,
        }
        ES256.sign(&claims)
    };
    let now = world.time().as_secs();
    let fine = ES256.sign(&good(&world));
    let (signed, signature) = fine.rsplit_once('.').unwrap();
    let other = ES256.sign(&good(&world));
    let typed = |typ: &str| ES256.sign_as(&Header { typ: Some(typ.to_owned()), ..Header::new(ES256.0) }, &good(&world));
    let secret = EncodingKey::from_secret(b"billing");
    let bad = [
        changed("iss", json!("web")),
        changed("iss", Value::Null),
        changed("sub", json!("web")),
        changed("sub", json!("u-ada")),
        changed("sub", Value::Null),
        changed("aud", json!("https://other.example")),
        changed("aud", json!(format!("{ISSUER}/"))),
        changed("aud", json!(format!("{ISSUER}/revoke"))),
        changed("aud", json!(format!("{ISSUER}/par/"))),
        changed("aud", json!([ISSUER, "https://other.example"])),
        changed("aud", json!([])),
        changed("aud", Value::Null),
        changed("exp", json!(now)),
        changed("exp", json!(now - 1)),
        changed("exp", json!(now + 311)),
        changed("exp", json!("soon")),
        changed("exp", Value::Null),
        changed("iat", json!(now + 11)),
        changed("nbf", json!(now + 11)),
        changed("jti", json!("")),
        changed("jti", json!("x".repeat(257))),
        changed("jti", json!(1)),
        changed("jti", Value::Null),
        typed("at+jwt"),
        typed("dpop+jwt"),
        format!("{}.{signature}", other.rsplit_once('.').unwrap().0),
        format!("{signed}."),
        signed.to_owned(),
        "x".to_owned(),
        "x".repeat(20_000),
        EDDSA.sign(&good(&world)),
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &good(&world), &secret).unwrap(),
    ];
    for (n, assertion) in bad.iter().enumerate() {
        // from another address each time, because failures are counted by address
        let mut browser = Browser { address: [198, 51, 100, n as u8].into(), ..world.browser() };
        let answer = ask(&mut browser, assertion).await;
        assert!(is_unauthenticated(&answer), "{n}: {answer:?}");
    }
    for fields in [
        set(&asking(&fine), "client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:saml2-bearer"),
        without(&asking(&fine), "client_assertion_type"),
        without(&asking(&fine), "client_assertion"),
        set(&asking(&fine), "client_secret", "x"),
        set(&asking(&fine), "client_id", "nobody"),
        set(&asking(&fine), "client_id", "web"),
    ] {
        let answer = world.browser().form("/token", &fields).await;
        assert!(is_unauthenticated(&answer), "{fields:?}: {answer:?}");
    }
    let request = posted("/token").header("authorization", "Basic YmlsbGluZzo=");
    assert!(is_unauthenticated(&world.browser().send(request, form_of(&asking(&fine))).await));
    // none of that has used it up
    assert_eq!(ask(&mut world.browser(), &fine).await.status, 200);
}

#[tokio::test]
async fn a15_an_assertion_works_once_for_as_long_as_it_is_valid() {
    let world = world().await;
    let mut browser = world.browser();
    let mut own = good(&world);
    own["exp"] = json!(world.time().as_secs() + 310);
    let assertion = ES256.sign(&own);
    assert_eq!(ask(&mut browser, &assertion).await.status, 200);
    for seconds in [0, 1, 299, 9, 1, 10, 1] {
        world.advance(seconds);
        assert!(is_unauthenticated(&ask(&mut browser, &assertion).await));
    }
    // another assertion with its jti is a replay, too
    let mut same = good(&world);
    same["jti"] = json!("same");
    assert_eq!(ask(&mut browser, &ES256.sign(&same)).await.status, 200);
    same["exp"] = json!(world.time().as_secs() + 60);
    assert_eq!(refusal(&ask(&mut browser, &ES256.sign(&same)).await).2, "client_assertion was used before");
}

#[tokio::test]
async fn a15_wrong_assertions_are_failures_of_their_address() {
    let world = world().await;
    let mut browser = world.browser();
    for _ in 0..3 {
        for _ in 0..40 {
            assert_eq!(ask(&mut browser, &ES256.sign(&good(&world))).await.status, 200, "good ones do not count");
        }
        world.advance(60);
    }
    for n in 0..62 {
        let answer = ask(&mut browser, &EDDSA.sign(&good(&world))).await;
        assert_eq!(answer.status.as_u16(), if n < 60 { 401 } else { 429 }, "{n}");
    }
    assert_eq!(ask(&mut browser, &ES256.sign(&good(&world))).await.status, 200, "good ones do not wait");
    let mut elsewhere = Browser { address: [192, 0, 2, 9].into(), ..browser.clone() };
    assert_eq!(ask(&mut elsewhere, &EDDSA.sign(&good(&world))).await.status, 401);
    world.advance(60);
    assert_eq!(ask(&mut browser, &EDDSA.sign(&good(&world))).await.status, 401);
}

#[tokio::test]
async fn a15_each_kind_of_client_keeps_to_its_grants_and_scopes() {
    let world = world().await;
    let mut browser = world.browser();
    // a public client, also with an assertion
    let fields = [("grant_type", "client_credentials"), ("client_id", "web")];
    let answer = browser.form("/token", &fields).await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (400, "unauthorized_client"));
    let mut of_web = good(&world);
    (of_web["iss"], of_web["sub"]) = (json!("web"), json!("web"));
    let assertion = ES256.sign(&of_web);
    assert!(is_unauthenticated(&browser.form("/token", &set(&asking(&assertion), "client_id", "web")).await));
    assert!(is_unauthenticated(&browser.form("/token", &without(&asking(&assertion), "client_id")).await));
    // a machine client
    let given = browser.tokens("web", "openid").await;
    for (name, value, error) in [
        ("grant_type", "authorization_code", "unauthorized_client"),
        ("grant_type", "refresh_token", "unauthorized_client"),
        ("grant_type", "password", "unsupported_grant_type"),
        ("scope", "invoices:delete", "invalid_scope"),
        ("scope", "openid", "invalid_scope"),
        ("scope", "a\"b", "invalid_scope"),
    ] {
        let assertion = ES256.sign(&good(&world));
        let mut fields = set(&asking(&assertion), name, value);
        fields.extend([("refresh_token", given.refresh()), ("code", "x"), ("code_verifier", "x")]);
        let answer = browser.form("/token", &fields).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (400, error), "{name} {value}");
    }
}

#[tokio::test]
async fn a15_a_machine_client_signs_nobody_in() {
    let world = world().await;
    let mut browser = world.browser();
    let own = with(parameters("web"), &[("client_id", "billing"), ("scope", "invoices:read")]);
    let answer = browser.get(&format!("/authorize?{}", query_of(&own))).await;
    assert_eq!((answer.status.as_u16(), answer.headers.get("location")), (400, None), "{answer:?}");
    let own = with(own, &[("identifier", "ada")]);
    assert_eq!(browser.post("/authentication/start", &own).await.error(), "invalid_request");
    let pushed: Vec<_> =
        own.as_object().unwrap().iter().map(|(name, value)| (&**name, value.as_str().unwrap())).collect();
    assert!(is_unauthenticated(&browser.form("/par", &pushed).await));
    let assertion = ES256.sign(&good(&world));
    let proved = [&pushed[..], &[("client_assertion_type", KIND), ("client_assertion", &assertion)]].concat();
    assert_eq!(browser.form("/par", &proved).await.error(), "invalid_request");
    let machine = || Client::machine("billing", acme(), &ES256.jwks()).unwrap();
    assert!(machine().redirect_uri("https://app.example/callback").is_err());
    assert!(machine().insecure_localhost("http://localhost/callback").is_err());
    assert!(ClientTable::new([machine()]).is_err(), "it needs scopes");
}

#[tokio::test]
async fn a15_tokens_of_machines_are_introspected_and_revoked_by_their_client_with_its_key() {
    let world = {
        let billing =
            |id| Client::machine(id, acme(), &ES256.jwks()).unwrap().scopes("invoices:read invoices:write").unwrap();
        let all = clients().iter().map(|client| Client::clone(client)).collect::<Vec<_>>();
        let clients = ClientTable::new(all.into_iter().chain([billing("billing"), billing("reports")])).unwrap();
        let store = AnyStore::from(Memory::new());
        put_keys(&store).await;
        World::made(store, ManualClock::new(), clients, Tokens::new(), |service| service).await
    };
    let mut browser = world.browser();
    let access = token(&world).await;
    let as_client = |client: &str, token: &str| {
        let mut claims = good(&world);
        (claims["iss"], claims["sub"]) = (json!(client), json!(client));
        form_of(&[("token", token), ("client_assertion_type", KIND), ("client_assertion", &ES256.sign(&claims))])
    };
    let own = claims(&access);
    let expected = json!({
        "active": true, "token_type": "Bearer", "iss": ISSUER, "sub": "billing", "client_id": "billing", "tenant": "acme",
        "scope": own["scope"], "exp": own["exp"], "iat": own["iat"], "aud": ISSUER, "jti": own["jti"], "gty": "client-credentials",
    });
    assert_eq!(browser.send(posted("/introspect"), as_client("billing", &access)).await.json(), expected);
    assert_eq!(browser.introspect("billing", &access).await, expected);
    // other clients of the tenant that authenticate may ask too, but the id of a client is not enough
    let inactive = json!({ "active": false });
    assert_eq!(browser.send(posted("/introspect"), as_client("reports", &access)).await.json(), expected);
    for path in ["/introspect", "/revoke"] {
        assert!(
            is_unauthenticated(&browser.form(path, &[("client_id", "billing"), ("token", &access)]).await),
            "{path}"
        );
    }
    // it is about no user
    assert_eq!(browser.with_token("/userinfo", &access).await.error(), "invalid_token");
    assert_eq!(browser.send(posted("/revoke"), as_client("reports", &access)).await.status, 200);
    assert_eq!(browser.revoke("web", &access).await.status, 200);
    assert_eq!(api(&world, &access).await.0, 200);

    let second = token(&world).await;
    assert_eq!(browser.send(posted("/revoke"), as_client("billing", &access)).await.status, 200);
    assert_eq!(api(&world, &access).await.0, 401);
    assert_eq!(browser.send(posted("/introspect"), as_client("billing", &access)).await.json(), inactive);
    assert_eq!(api(&world, &second).await.0, 200, "each token is revoked alone");
    world.advance(606);
    assert_eq!(api(&world, &second).await.0, 401);
    assert_eq!(browser.send(posted("/introspect"), as_client("billing", &second)).await.json(), inactive);
}

/// A world with machine clients that may introspect: `gateway` of acme, and `elsewhere` of globex.
/// Returns the tokens of a user of each tenant.
async fn introspecting() -> (World, IssuedTokens, IssuedTokens) {
    let machine =
        |id: &str, tenant: Tenant| Client::machine(id, tenant, &ES256.jwks()).unwrap().scopes("introspect").unwrap();
    let globex: Tenant = "globex".parse().unwrap();
    let all = clients().iter().map(|client| Client::clone(client)).collect::<Vec<_>>();
    let machines = [machine("gateway", acme()), machine("elsewhere", globex.clone())];
    let clients = ClientTable::new(all.into_iter().chain(machines)).unwrap();
    let store = AnyStore::from(Memory::new());
    put_keys(&store).await;
    let world = World::made(store, ManualClock::new(), clients, Tokens::new(), |service| service).await;
    world.create(&globex, "u-hedy", "hedy", "hedy@example.com", ADA_PASSWORD).await;
    let of_acme = world.browser().tokens("web", "openid").await;
    let code = world.browser().sign_in_as(&world, "other", ("hedy", ADA_PASSWORD), None, &[]).await;
    let of_globex = IssuedTokens::of(&world.browser().redeem("other", &code).await);
    (world, of_acme, of_globex)
}

/// Returns an access token of a machine client with this scope.
async fn granted(world: &World, id: &str, scope: &str) -> String {
    let mut claims = good(world);
    (claims["iss"], claims["sub"]) = (json!(id), json!(id));
    let assertion = ES256.sign(&claims);
    let fields = form_of(&[
        ("grant_type", "client_credentials"),
        ("scope", scope),
        ("client_assertion_type", KIND),
        ("client_assertion", &assertion),
    ]);
    let answer = world.browser().send(posted("/token"), fields).await;
    answer.json()["access_token"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

/// Callers learn about refresh tokens of others only if they ask for them.
const HINT: (&str, &str) = ("token_type_hint", "refresh_token");

#[tokio::test]
async fn b22_a_caller_learns_about_the_tokens_of_its_own_tenant() {
    let (world, of_acme, of_globex) = introspecting().await;
    let all = [&*of_acme.access, of_acme.refresh(), &of_globex.access, of_globex.refresh()];
    let active = |answer: Answer| {
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.text != r#"{"active":false}"#
    };
    for (id, expected) in [("gateway", [true, true, false, false]), ("elsewhere", [false, false, true, true])] {
        for (token, expected) in all.iter().zip(expected) {
            let mut claims = good(&world);
            (claims["iss"], claims["sub"]) = (json!(id), json!(id));
            let assertion = ES256.sign(&claims);
            let fields = [("token", *token), HINT, ("client_assertion_type", KIND), ("client_assertion", &assertion)];
            let answer = world.browser().send(posted("/introspect"), form_of(&fields)).await;
            assert_eq!(active(answer), expected, "{id}");
        }
    }
}

#[tokio::test]
async fn b22_an_access_token_authenticates_nobody() {
    let (world, of_acme, _) = introspecting().await;
    for scheme in ["Bearer", "DPoP"] {
        let shown = format!("{scheme} {}", granted(&world, "gateway", "introspect").await);
        let request = posted("/introspect").header("authorization", shown);
        let answer = world.browser().send(request, form_of(&[("token", &*of_acme.access)])).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "invalid_token"), "{scheme}");
    }
}

#[tokio::test]
async fn b23_a_machine_key_can_be_named_ed25519() {
    let named = |alg: &str| {
        json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "alg": alg, "x": BASE64URL.encode(&*ED25519.1) }] })
            .to_string()
    };
    let machine = |jwks: &str| Client::machine("billing", acme(), jwks);
    for (alg, is_good) in [("EdDSA", true), ("Ed25519", true), ("Ed448", false), ("ed25519", false)] {
        assert_eq!(machine(&named(alg)).is_ok(), is_good, "{alg}");
    }
    // a key of another type does not become one by its name
    let p256 = ES256.jwks().replace("\"ES256\"", "\"Ed25519\"");
    assert!(p256.contains("Ed25519") && machine(&p256).is_err());
    // the assertion and the key may use either name
    for key in ["EdDSA", "Ed25519"] {
        let billing = machine(&named(key)).unwrap().scopes("invoices:read invoices:write").unwrap();
        let store = AnyStore::from(Memory::new());
        put_keys(&store).await;
        let clients = ClientTable::new([billing]).unwrap();
        let world = World::made(store, ManualClock::new(), clients, Tokens::new(), |service| service).await;
        for alg in ["EdDSA", "Ed25519"] {
            let header = json!({ "typ": "JWT", "alg": alg });
            let signed = [&header, &good(&world)].map(|part| BASE64URL.encode(part.to_string())).join(".");
            let pair = Ed25519KeyPair::from_pkcs8(&ED25519.0).unwrap();
            let assertion = format!("{signed}.{}", BASE64URL.encode(pair.sign(signed.as_bytes())));
            let answer = ask(&mut world.browser(), &assertion).await;
            assert_eq!(answer.status, 200, "{key} {alg} {answer:?}");
        }
    }
}

#[tokio::test]
async fn a15_a_user_with_the_id_of_a_machine_client_ends_nothing_of_it() {
    let world = world().await;
    let access = token(&world).await;
    world.service.end_user(&acme(), &UserId::parse("billing").unwrap()).await.unwrap();
    assert_eq!(api(&world, &access).await, (200, "billing billing acme true".to_owned()));
}

#[tokio::test]
async fn a15_a_machine_client_can_bind_its_tokens_to_a_key() {
    let world = world_of(&ES256, Client::require_dpop).await;
    let (mut browser, key) = (world.browser(), DpopKey::generate());
    let assertion = ES256.sign(&good(&world));
    assert_eq!(ask(&mut browser, &assertion).await.error(), "invalid_dpop_proof");
    let assertion = ES256.sign(&good(&world));
    let proof = key.proof("POST", &format!("{ISSUER}/token")).issued_at(world.time()).sign();
    let answer = browser.send(posted("/token").header("dpop", proof), form_of(&asking(&assertion))).await.json();
    assert_eq!(answer["token_type"], "DPoP");
    let access = answer["access_token"].as_str().unwrap();
    assert_eq!(claims(access)["cnf"], json!({ "jkt": key.thumbprint() }));
    assert_eq!(api(&world, access).await.0, 401, "it is no bearer token");
}

#[tokio::test]
async fn c135_a_machine_client_gets_tokens_for_the_resources_that_it_names() {
    let world = world_of(&ES256, |client| {
        client.resource("https://a.example").unwrap().resource("https://b.example/x").unwrap()
    })
    .await;
    let mut browser = world.browser();
    let mut asked = async |resources: &str| {
        let assertion = ES256.sign(&good(&world));
        browser.send(posted("/token"), form_of(&asking(&assertion)) + resources).await
    };
    for (resources, audience) in [
        ("", json!(ISSUER)),
        ("&resource=", json!(ISSUER)),
        ("&resource=https://a.example/", json!("https://a.example")),
        (
            "&resource=https://b.example/x&resource=https://a.example",
            json!(["https://a.example", "https://b.example/x"]),
        ),
        ("&resource=https://a.example&resource=https://auth.example", json!(["https://a.example", ISSUER])),
    ] {
        let answer = asked(resources).await;
        assert_eq!(claims(answer.json()["access_token"].as_str().unwrap())["aud"], audience, "{resources}");
    }
    for bad in ["&resource=https://b.example", "&resource=https://a.example&resource=x", "&resource=urn:a%23b"] {
        assert_eq!(asked(bad).await.error(), "invalid_target", "{bad}");
    }
}
