//! Audit: refresh tokens that a thief watches.

use serde_json::Value;
use tollgate::{
    event::{EventKind, Query},
    testing::DpopKey,
};

use crate::{
    issued_tokens::{IssuedTokens, all_are},
    token_requests::{redemption, set},
    world::{Answer, Browser, ISSUER, World, form_of, posted},
};

const INACTIVE: &str = r#"{"active":false}"#;

fn reuses(world: &World) -> usize {
    world.log.flush();
    world.log.read_events(&Query::new().kind(EventKind::TokenReused)).events.len()
}

/// Posts a form with a DPoP proof for its path.
async fn prove(browser: &mut Browser, path: &str, proof: &str, fields: &[(&str, &str)]) -> Answer {
    browser.send(posted(path).header("dpop", proof), form_of(fields)).await
}

#[tokio::test]
async fn a01_a_thief_cannot_watch_at_introspection_when_a_refresh_token_is_used() {
    let world = World::new().await;
    let (mut browser, mut thief) = (world.browser(), world.browser());
    let first = browser.tokens("web", "openid").await;
    let current = thief.introspect("web", first.refresh()).await;
    assert_eq!(current["active"], true);

    let next = IssuedTokens::of(&browser.refresh("web", first.refresh()).await);
    for _ in 0..10 {
        assert_eq!(thief.introspect("web", first.refresh()).await, current, "it looks unused during the grace");
        world.advance(1);
    }
    // an API that asks is no thief
    assert_eq!(thief.ask_about(first.refresh()).await.text, INACTIVE);
    assert_eq!(reuses(&world), 0);
    all_are(true, &world, "web", &next).await;
}

#[tokio::test]
async fn a01_a_bound_token_is_shown_without_a_proof_of_its_key_to_those_who_authenticate() {
    let world = World::new().await;
    let mut browser = world.browser();
    let key = DpopKey::generate();
    let proof = |path: &str| key.proof("POST", &format!("{ISSUER}{path}")).issued_at(world.time()).sign();
    let code = browser.sign_in("web").await;
    let first = IssuedTokens::of(&prove(&mut browser, "/token", &proof("/token"), &redemption("web", &code)).await);
    for token in [&*first.access, first.refresh()] {
        let known = browser.introspect("web", token).await;
        assert_eq!((&known["active"], &known["cnf"]["jkt"]), (&Value::from(true), &key.thumbprint().into()));
        // its own client proves the key, but does not authenticate
        let fields = [("client_id", "web"), ("token", token)];
        let answer = prove(&mut browser, "/introspect", &proof("/introspect"), &fields).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "invalid_client"));
    }
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
    assert_eq!(browser.refresh("web", given.refresh()).await.status, 200);
    assert_eq!(reuses(&world), 0);
}
