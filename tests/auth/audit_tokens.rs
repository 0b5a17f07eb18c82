//! Audit: refresh tokens that a thief watches.

use serde_json::{Value, json};
use tollgate::{
    Secret,
    event::{EventKind, Query},
    store::Memory,
    testing::DpopKey,
};

use crate::{
    issued_tokens::{IssuedTokens, all_are},
    token_requests::{redemption, set, without},
    world::{Answer, Browser, ISSUER, World, form_of, posted},
};

const INACTIVE: &str = r#"{"active":false}"#;

fn reuses(world: &World) -> usize {
    world.log.flush();
    world.log.read(&Query::new().kind(EventKind::TokenReused)).events.len()
}

/// Posts a form with a DPoP proof for its path.
async fn prove(browser: &mut Browser, path: &str, proof: &str, fields: &[(&str, &str)]) -> Answer {
    browser.send(posted(path).header("dpop", proof), form_of(fields)).await
}

#[tokio::test]
async fn a01_a_thief_cannot_watch_at_introspection_when_a_refresh_token_is_used() {
    let secret = Secret::generate();
    let world = World::with(Memory::new(), |service| service.introspector(&secret)).await;
    let (mut browser, mut thief) = (world.browser(), world.browser());
    let first = browser.tokens("web", "openid").await;
    let current = thief.introspect("web", first.refresh()).await;
    assert_eq!(current["active"], true);

    let next = IssuedTokens::of(&browser.refresh("web", first.refresh()).await);
    let bearer = format!("Bearer {}", secret.expose());
    for _ in 0..10 {
        assert_eq!(thief.introspect("web", first.refresh()).await, current, "it looks unused during the grace");
        let request = posted("/introspect").header("authorization", &bearer);
        assert_eq!(thief.send(request, form_of(&[("token", first.refresh())])).await.json(), current);
        world.advance(1);
    }
    // an API that asks is no thief
    let request = posted("/introspect").header("authorization", &bearer);
    assert_eq!(thief.send(request, form_of(&[("token", first.refresh())])).await.text, INACTIVE);
    assert_eq!(reuses(&world), 0);
    all_are(true, &world, "web", &next).await;
    // the first answer that shows the use is the one that ends the family
    assert_eq!(thief.ask_about("web", first.refresh()).await.text, INACTIVE);
    assert_eq!(reuses(&world), 1);
    all_are(false, &world, "web", &next).await;
}

#[tokio::test]
async fn a01_a_used_token_revokes_its_family_whatever_else_is_wrong_with_an_introspection() {
    let form = [("client_id", "web")];
    let wrong: [(Vec<_>, &[(&str, &str)]); 10] = [
        (form.to_vec(), &[]),
        (set(&form, "client_id", "mfa"), &[]),
        (set(&form, "client_id", "other"), &[]),
        (set(&form, "client_id", "nobody"), &[]),
        (without(&form, "client_id"), &[]),
        (set(&form, "client_secret", "x"), &[]),
        (form.to_vec(), &[("dpop", "x")]),
        (form.to_vec(), &[("origin", "https://evil.example")]),
        (form.to_vec(), &[("authorization", "Bearer x")]),
        (form.to_vec(), &[("authorization", "Basic x")]),
    ];
    for (fields, headers) in wrong {
        let world = World::new().await;
        let mut browser = world.browser();
        let first = browser.tokens("web", "openid").await;
        let next = IssuedTokens::of(&browser.refresh("web", first.refresh()).await);
        let fields = [&fields[..], &[("token", first.refresh())]].concat();
        let ask = async |browser: &mut Browser| {
            let request =
                headers.iter().fold(posted("/introspect"), |request, (name, value)| request.header(*name, *value));
            browser.send(request, form_of(&fields)).await
        };
        world.advance(9);
        ask(&mut browser).await;
        all_are(true, &world, "web", &next).await;
        world.advance(1);
        let answer = ask(&mut browser).await;
        assert!(answer.status != 200 || answer.text == INACTIVE, "{answer:?}");
        all_are(false, &world, "web", &next).await;
        assert_eq!(reuses(&world), 1, "{fields:?} {headers:?}");
    }
}

#[tokio::test]
async fn a01_a_bound_token_is_shown_to_its_client_only_with_a_proof_of_its_key() {
    let secret = Secret::generate();
    let world = World::with(Memory::new(), |service| service.introspector(&secret)).await;
    let mut browser = world.browser();
    let (key, other) = (DpopKey::generate(), DpopKey::generate());
    let proof = |key: &DpopKey, path: &str| key.proof("POST", &format!("{ISSUER}{path}")).at(world.time()).sign();
    let code = browser.sign_in("web").await;
    let first = prove(&mut browser, "/token", &proof(&key, "/token"), &redemption("web", &code)).await;
    let first = IssuedTokens::of(&first);
    for token in [&*first.access, first.refresh()] {
        let fields = [("client_id", "web"), ("token", token)];
        assert_eq!(browser.form("/introspect", &fields).await.text, INACTIVE, "without a proof");
        let of_other = proof(&other, "/introspect");
        assert_eq!(prove(&mut browser, "/introspect", &of_other, &fields).await.text, INACTIVE, "of another key");
        let good = proof(&key, "/introspect");
        let unsigned = format!("{}.{}", good.rsplit_once('.').unwrap().0, of_other.rsplit_once('.').unwrap().1);
        assert_eq!(prove(&mut browser, "/introspect", &unsigned, &fields).await.text, INACTIVE, "unsigned");
        let elsewhere = set(&fields, "client_id", "mfa");
        assert_eq!(prove(&mut browser, "/introspect", &good, &elsewhere).await.text, INACTIVE, "another client");
        let known = prove(&mut browser, "/introspect", &good, &fields).await.json();
        assert_eq!((&known["active"], &known["cnf"]["jkt"]), (&Value::from(true), &key.thumbprint().into()));
        let again = prove(&mut browser, "/introspect", &good, &fields).await;
        assert_eq!((again.status.as_u16(), &*again.error()), (400, "invalid_dpop_proof"), "a proof counts once");
        // an API with a secret needs none
        let request = posted("/introspect").header("authorization", format!("Bearer {}", secret.expose()));
        assert_eq!(browser.send(request, form_of(&[("token", token)])).await.json()["active"], true);
    }
    // what is wrong with a proof does not depend on the token
    for token in [first.refresh(), "x"] {
        let fields = [("client_id", "web"), ("token", token)];
        let answer = prove(&mut browser, "/introspect", &proof(&key, "/token"), &fields).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (400, "invalid_dpop_proof"), "{token}");
    }
    // nor does a proof keep a used token from ending its family
    let fields = [("grant_type", "refresh_token"), ("client_id", "web"), ("refresh_token", first.refresh())];
    let next = IssuedTokens::of(&prove(&mut browser, "/token", &proof(&key, "/token"), &fields).await);
    world.advance(10);
    browser.ask_about("web", first.refresh()).await;
    assert_eq!(reuses(&world), 1);
    let fields = [("client_id", "web"), ("token", next.refresh())];
    assert_eq!(prove(&mut browser, "/introspect", &proof(&key, "/introspect"), &fields).await.text, INACTIVE);
}

#[tokio::test]
async fn a01_a_current_token_with_a_wrong_scope_or_client_is_refused_and_stays_current() {
    let world = World::new().await;
    let mut browser = world.browser();
    let given = browser.tokens("web", "openid").await;
    let form = [("grant_type", "refresh_token"), ("client_id", "web"), ("refresh_token", given.refresh())];
    for (fields, error) in [
        (set(&form, "scope", "openid profile"), "invalid_scope"),
        (set(&form, "scope", "a\"b"), "invalid_scope"),
        (set(&form, "client_id", "mfa"), "invalid_grant"),
        (set(&form, "client_id", "other"), "invalid_grant"),
        (set(&form, "client_id", "nobody"), "invalid_client"),
    ] {
        assert_eq!(browser.form("/token", &fields).await.error(), error, "{fields:?}");
        world.advance(60);
        all_are(true, &world, "web", &given).await;
    }
    for client in ["mfa", "other"] {
        assert_eq!(browser.introspect(client, given.refresh()).await, json!({ "active": false }));
    }
    all_are(true, &world, "web", &given).await;
    assert_eq!(browser.refresh("web", given.refresh()).await.status, 200);
    assert_eq!(reuses(&world), 0);
}
