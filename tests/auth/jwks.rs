//! `GET /jwks`: published keys and their rotation.

use std::collections::BTreeSet;

use serde_json::Value;
use tollgate::{
    Tokens,
    store::{AnyStore, Memory},
    testing::ManualClock,
};

use crate::{
    access_token::verified,
    issued_tokens::{IssuedTokens, api, header},
    world::{Browser, ISSUER, World, clients},
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
    one.service.rotate_keys().await.unwrap();
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
    one.service.withdraw_keys().await.unwrap();
    let new = kids(&mut first).await;
    assert!(new.len() == 2 && new.is_disjoint(&old), "{new:?}");
    let (kid, fresh) = signs(&mut first).await;
    assert!(new.contains(&kid), "the new key signs at once");
    // other nodes follow within a minute
    clock.advance(std::time::Duration::from_secs(60));
    for (world, browser) in [(&one, &mut first), (&two, &mut second)] {
        assert_eq!(kids(browser).await, new);
        assert_eq!((api(world, &fresh).await, api(world, &issued.access).await), (200, 401));
        assert_eq!(browser.with_token("/userinfo", &issued.access).await.status, 401);
    }
    let next = IssuedTokens::of(&second.refresh("web", issued.refresh()).await);
    assert_eq!(second.opens(&two, "web", &next.access).await, [true; 3]);
}
