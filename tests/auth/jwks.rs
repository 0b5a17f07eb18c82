//! `GET /jwks`: published keys and their rotation.

use std::{collections::BTreeSet, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use http::Request;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::Value;
use tollgate::{
    Tokens,
    auth::AuthServiceBuilder,
    clock::Clock,
    store::{AnyStore, Key, Memory},
    testing::ManualClock,
};

use crate::{
    access_token::verified,
    issued_tokens::{IssuedTokens, api, claims, header},
    world::{ADA, ADA_PASSWORD, Browser, ISSUER, World, clients, query},
};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

async fn keys(browser: &mut Browser) -> Vec<Value> {
    browser.get("/jwks").await.json()["keys"].as_array().unwrap().clone()
}

async fn kids(browser: &mut Browser) -> BTreeSet<String> {
    keys(browser).await.iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
}

/// Returns the id of the key that currently signs access tokens.
async fn signs(browser: &mut Browser) -> (String, String) {
    let issued = browser.tokens("web", "openid").await;
    (header(&issued.access)["kid"].as_str().unwrap().to_owned(), issued.access)
}

async fn on(store: &AnyStore, clock: &ManualClock) -> World {
    let tokens = Tokens::new();
    World::made(store.clone(), clock.clone(), clients(), tokens, |service| service).await
}

#[tokio::test]
async fn c102_published_keys_state_their_use_and_contain_nothing_private() {
    let world = World::new().await;
    let mut browser = world.browser();
    let answer = browser.get("/jwks").await;
    assert_eq!(
        (answer.header("content-type"), answer.header("cache-control")),
        ("application/json", "public, max-age=300")
    );
    let mut algorithms = Vec::new();
    for key in keys(&mut browser).await {
        let members: BTreeSet<_> = key.as_object().unwrap().keys().map(String::as_str).collect();
        let expected: &[&str] = match key["alg"].as_str().unwrap() {
            "ES256" => &["alg", "crv", "kid", "kty", "use", "x", "y"],
            _ => &["alg", "e", "kid", "kty", "n", "use"],
        };
        assert_eq!(members, expected.iter().copied().collect());
        assert_eq!((key["use"].as_str(), key["kid"].as_str().unwrap().len()), (Some("sig"), 43));
        algorithms.push(key["alg"].as_str().unwrap().to_owned());
    }
    algorithms.sort_unstable();
    assert_eq!(algorithms, ["ES256", "RS256"]);
    assert_eq!(browser.get("/jwks").await.text, answer.text);
}

#[tokio::test]
async fn c102_keys_are_published_before_they_sign_and_after_and_no_restart_is_needed() {
    let (store, clock) = (AnyStore::from(Memory::new()), ManualClock::new());
    let (one, two) = (on(&store, &clock).await, on(&store, &clock).await);
    let (mut first, mut second) = (one.browser(), two.browser());
    let (old, _) = signs(&mut first).await;
    assert_eq!(signs(&mut second).await.0, old, "both sign with one key");
    assert_eq!(kids(&mut first).await.len(), 2);

    // the next key is published an hour before the current one ends
    one.advance(90 * DAY - HOUR - 60);
    assert_eq!(kids(&mut first).await.len(), 2);
    one.advance(60);
    let published = kids(&mut first).await;
    assert_eq!(published.len(), 4, "one more key for each algorithm");
    one.advance(61);
    assert_eq!(kids(&mut second).await, published);
    // no node signs with it before all clients, which keep copies for five minutes, have it
    for _ in 0..11 {
        assert_eq!((signs(&mut first).await.0, signs(&mut second).await.0), (old.clone(), old.clone()));
        one.advance(300);
    }
    one.advance(300 - 62);
    let (last, token) = signs(&mut first).await;
    assert_eq!(last, old);
    one.advance(1);
    let (new, fresh) = signs(&mut second).await;
    assert_ne!(new, old);
    assert!(published.contains(&new));
    assert_eq!(signs(&mut first).await.0, new);

    // each node accepts the other's tokens before and after, and old tokens stay valid until they expire
    for (world, browser) in [(&one, &mut first), (&two, &mut second)] {
        for token in [&token, &fresh] {
            assert_eq!(api(world, token).await, 200);
            assert_eq!(browser.with_token("/userinfo", token).await.status, 200);
            verified(browser, token, ISSUER).await;
        }
    }
    one.advance(598);
    assert_eq!((api(&one, &token).await, api(&two, &token).await), (200, 200));
    one.advance(DAY - 600);
    assert!(kids(&mut first).await.contains(&old));
    one.advance(HOUR);
    for browser in [&mut first, &mut second] {
        let left = kids(browser).await;
        assert!(left.len() == 2 && left.contains(&new) && !left.contains(&old));
    }
}

#[tokio::test]
async fn c102_an_operator_can_rotate_keys_early() {
    let (store, clock) = (AnyStore::from(Memory::new()), ManualClock::new());
    let (one, two) = (on(&store, &clock).await, on(&store, &clock).await);
    let (mut first, mut second) = (one.browser(), two.browser());
    let (old, token) = signs(&mut first).await;
    assert_eq!(kids(&mut second).await.len(), 2);
    one.service.tokens().unwrap().rotate_keys().await.unwrap();
    assert_eq!(kids(&mut first).await.len(), 4, "the new keys are published at once");
    one.advance(61);
    assert_eq!(kids(&mut second).await.len(), 4, "other nodes follow within a minute");
    one.advance(HOUR - 62);
    assert_eq!(signs(&mut first).await.0, old);
    one.advance(1);
    let (new, fresh) = signs(&mut first).await;
    assert_ne!(new, old);
    assert_eq!((api(&two, &fresh).await, api(&two, &token).await), (200, 401), "the older token has expired");
}

#[tokio::test]
async fn c102_an_operator_can_withdraw_all_keys_at_once() {
    let (store, clock) = (AnyStore::from(Memory::new()), ManualClock::new());
    let (one, two) = (on(&store, &clock).await, on(&store, &clock).await);
    let (mut first, mut second) = (one.browser(), two.browser());
    let issued = first.tokens("web", "openid").await;
    assert_eq!((api(&one, &issued.access).await, api(&two, &issued.access).await), (200, 200));
    let old = kids(&mut first).await;
    one.service.tokens().unwrap().withdraw_keys().await.unwrap();
    let new = kids(&mut first).await;
    assert!(new.len() == 2 && new.is_disjoint(&old), "{new:?}");
    let (kid, fresh) = signs(&mut first).await;
    assert!(new.contains(&kid), "the new key signs at once");
    // other nodes follow within a minute
    clock.advance(Duration::from_secs(60));
    for (world, browser) in [(&one, &mut first), (&two, &mut second)] {
        assert_eq!(kids(browser).await, new);
        assert_eq!((api(world, &fresh).await, api(world, &issued.access).await), (200, 401));
        assert_eq!(browser.with_token("/userinfo", &issued.access).await.status, 401);
    }
    let next = IssuedTokens::of(&second.refresh("web", issued.refresh()).await);
    assert_eq!(second.opens(&two, "web", &next.access).await, [true; 3]);
}

/// Returns the error of a silent request with this hint: `login_required` if the hint is accepted.
async fn error_of_hint(world: &World, hint: &str) -> String {
    let target = format!("/authorize?{}&prompt=none&id_token_hint={hint}", query("web"));
    world.browser().get(&target).await.redirected("error").unwrap()
}

/// The first ES256 key of the store.
async fn private_key(store: &AnyStore) -> EncodingKey {
    let ring = store.get(&Key::new("signing_keys", None, b"ring").unwrap()).wait().await.unwrap().unwrap();
    let ring: Value = serde_json::from_slice(&ring.value).unwrap();
    let first = ring["keys"].as_array().unwrap().iter().find(|key| key["algorithm"] == "ES256").unwrap();
    EncodingKey::from_ec_der(&BASE64URL.decode(first["secret"]["key"].as_str().unwrap()).unwrap())
}

#[tokio::test]
async fn b21_c102_an_id_token_is_a_hint_after_a_rotation_as_long_as_sessions_live() {
    let (store, clock) = (AnyStore::from(Memory::new()), ManualClock::new());
    let node = async || {
        let more = |service: AuthServiceBuilder| service.remember_me(Duration::from_secs(30 * DAY));
        World::made(store.clone(), clock.clone(), clients(), Tokens::new(), more).await
    };
    let (one, two) = (node().await, node().await);
    let mut browser = one.browser();
    let login = browser.begin_remembered("web", Some(true)).await;
    assert_eq!(browser.prove_password(&login, ADA, ADA_PASSWORD).await.status, 200);
    let code = browser.finish(&login).await.unwrap();
    let issued = IssuedTokens::of(&browser.redeem("web", &code).await);
    let (old, key) = (header(issued.id())["kid"].as_str().unwrap().to_owned(), private_key(&store).await);
    let changed = format!("{}AAAA", &issued.id()[..issued.id().len() - 4]);
    one.service.tokens().unwrap().rotate_keys().await.unwrap();
    for day in [1, 2, 3, 15, 29] {
        one.advance(day * DAY - (clock.unix(clock.now()).as_secs() - 1_000_000_000));
        // the old key is published for a day after its last signature
        assert_eq!(kids(&mut browser).await.contains(&old), day == 1, "{day}");
        for world in [&one, &two] {
            assert_eq!(error_of_hint(world, issued.id()).await, "login_required", "{day}");
            assert_eq!(error_of_hint(world, &changed).await, "invalid_request", "{day}");
        }
        // it verifies nothing but hints
        let mut access = claims(&issued.access);
        let now = clock.unix(clock.now()).as_secs();
        (access["iat"], access["exp"]) = (now.into(), (now + 600).into());
        let forged = Header { typ: Some("at+jwt".to_owned()), kid: Some(old.clone()), ..Header::new(Algorithm::ES256) };
        let forged = jsonwebtoken::encode(&forged, &access, &key).unwrap();
        assert_eq!(api(&one, &forged).await, if day == 1 { 200 } else { 401 }, "{day}");
        // the family lives for a day
        assert_eq!(browser.with_token("/userinfo", &forged).await.status, 401);
        assert_eq!(browser.introspect("web", &forged).await["active"], false);
    }
    let done = browser.send(Request::get(format!("/logout?id_token_hint={}", issued.id())), "").await;
    assert!(done.text.contains("<h1>You are logged out</h1>"), "{done:?}");
    assert!(one.sessions.list(&"acme".parse().unwrap(), &"u-ada".parse().unwrap()).await.unwrap().is_empty());
    // no session is older than 30 days
    one.advance(4 * DAY);
    assert_eq!(error_of_hint(&one, issued.id()).await, "invalid_request");
}

#[tokio::test]
async fn b21_c102_an_id_token_of_a_withdrawn_key_is_no_hint() {
    let (store, clock) = (AnyStore::from(Memory::new()), ManualClock::new());
    let (one, two) = (on(&store, &clock).await, on(&store, &clock).await);
    let mut browser = one.browser();
    let first = browser.tokens("web", "openid").await;
    one.service.tokens().unwrap().rotate_keys().await.unwrap();
    one.advance(HOUR);
    let second = browser.tokens("web", "openid").await;
    assert_ne!(header(first.id())["kid"], header(second.id())["kid"]);
    one.advance(DAY);
    for hint in [first.id(), second.id()] {
        assert_eq!(error_of_hint(&one, hint).await, "login_required");
        assert_eq!(error_of_hint(&two, hint).await, "login_required");
    }
    two.service.tokens().unwrap().withdraw_keys().await.unwrap();
    for hint in [first.id(), second.id()] {
        assert_eq!(error_of_hint(&two, hint).await, "invalid_request");
    }
    // other nodes follow within a minute
    one.advance(60);
    for hint in [first.id(), second.id()] {
        assert_eq!(error_of_hint(&one, hint).await, "invalid_request");
    }
}
