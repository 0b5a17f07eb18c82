//! `POST /introspect` (RFC 7662): what callers learn about a token, and which callers.

use serde_json::{Value, json};
use tollgate::{
    Secret, UserId,
    event::{EventKind, Query},
    store::Memory,
};

use crate::{
    cors::cors,
    five_tenants::{mailbox, tenant, user},
    issued_tokens::{IssuedTokens, all_are, claims},
    special_worlds::{controlled_store_with_keys, world_with},
    world::{ADA, Answer, Browser, INTROSPECTOR, ISSUER, World, posted},
};

const NOT: &str = r#"{"active":false}"#;

/// Introspects as an API that sends this secret.
async fn ask_as(browser: &mut Browser, shown: &str, token: &str) -> Answer {
    let request = posted("/introspect").header("authorization", shown);
    browser.send(request, format!("token={token}")).await
}

#[tokio::test]
async fn c100_introspection_returns_the_claims_of_a_valid_token() {
    let world = World::new().await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid email").await;
    let inside = claims(&issued.access);
    let scope = issued.scope.as_str();
    let mut known = browser.introspect("web", &issued.access).await;
    assert_eq!(
        known,
        json!({
            "active": true, "token_type": "Bearer", "iss": ISSUER, "sub": "u-ada", "client_id": "web", "tenant": "acme",
            "scope": scope, "exp": inside["exp"], "iat": inside["iat"], "aud": inside["aud"], "jti": inside["jti"],
            "auth_time": inside["auth_time"],
        })
    );
    known = browser.introspect("web", issued.refresh()).await;
    assert_eq!(
        known,
        json!({
            "active": true, "iss": ISSUER, "sub": "u-ada", "client_id": "web", "tenant": "acme", "scope": scope,
            "exp": 1_000_000_000 + 24 * 3600, "auth_time": inside["auth_time"],
        })
    );
    // introspection does not use up the token
    assert_eq!(browser.refresh("web", issued.refresh()).await.status, 200);
}

#[tokio::test]
async fn c100_tokens_of_disabled_accounts_are_inactive_and_no_page_can_introspect() {
    let world = World::new().await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid").await;
    for token in [&issued.access, issued.refresh()] {
        let request = posted("/introspect").header("origin", "https://app.example");
        let request = request.header("authorization", format!("Bearer {INTROSPECTOR}"));
        let answer = browser.send(request, format!("token={token}&token_type_hint=refresh_token")).await;
        assert_eq!((answer.json()["active"].clone(), cors(&answer)), (true.into(), vec!["vary: origin".to_owned()]));
    }
    world.users.disable(&"acme".parse().unwrap(), &UserId::parse("u-ada").unwrap()).await.unwrap();
    for token in [&issued.access, issued.refresh()] {
        assert_eq!(browser.ask_about(token).await.text, NOT);
    }
}

#[tokio::test]
async fn c100_any_other_token_is_reported_as_inactive() {
    let world = World::new().await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid").await;
    let code = browser.sign_in("web").await;
    let changed = format!("{}A", &issued.access[..issued.access.len() - 1]);
    let unsigned = format!("{}.", issued.access.rsplit_once('.').unwrap().0);
    for token in [issued.id(), &code.code, &unsigned, &issued.access[1..], "x", "a.b.c", &"x".repeat(60_000)] {
        assert_eq!(browser.ask_about(token).await.text, NOT, "{token}");
    }
    if changed != issued.access {
        assert_eq!(browser.ask_about(&changed).await.text, NOT);
    }
    let next = IssuedTokens::of(&browser.refresh("web", issued.refresh()).await);
    world.advance(599);
    assert_eq!(browser.introspect("web", &issued.access).await["active"], true);
    world.advance(1);
    assert_eq!(browser.ask_about(&issued.access).await.text, NOT, "the token has expired");
    assert_eq!(browser.introspect("web", next.refresh()).await["active"], true);
    world.advance(24 * 3600 - 600);
    assert_eq!(browser.ask_about(next.refresh()).await.text, NOT, "the family is revoked");
}

#[tokio::test]
async fn c100_an_api_with_a_secret_can_introspect_any_token() {
    let (secret, second) = (Secret::generate(), Secret::generate());
    let world = World::with(Memory::new(), |service| service.introspector(&secret).introspector(&second)).await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid").await;
    for secret in [&secret, &second] {
        for scheme in ["Bearer", "bearer"] {
            let shown = format!("{scheme} {}", secret.expose());
            // a stolen refresh token that an API gets must not look like an access token
            for (token, known) in [
                (issued.access.clone(), true),
                (format!("{}&token_type_hint=refresh_token", issued.access), true),
                (format!("{}&token_type_hint=refresh_token", issued.refresh()), true),
                (issued.refresh().to_owned(), false),
                (format!("{}&token_type_hint=access_token", issued.refresh()), false),
            ] {
                let answer = ask_as(&mut browser, &shown, &token).await;
                let sub = if known { Value::from("u-ada") } else { Value::Null };
                assert_eq!((answer.status.as_u16(), &answer.json()["sub"]), (200, &sub), "{token} {answer:?}");
            }
            // a token of no tenant is charged to no tenant
            let answer = ask_as(&mut browser, &shown, "x").await;
            assert_eq!((answer.status.as_u16(), &*answer.text), (200, r#"{"active":false}"#));
            assert!(!answer.headers.contains_key("x-ratelimit"));
        }
    }
    let refused = "401\ncontent-type: application/json\n\
        www-authenticate: Bearer realm=\"introspect\", error=\"invalid_token\"\n\n\
        {\"error\":\"invalid_token\",\"error_description\":\"the secret is not valid\"}\n";
    let other = Secret::generate();
    for shown in [
        &format!("Bearer {}", other.expose()),
        &format!("Bearer {}=", secret.expose()),
        "Bearer ",
        "Bearer",
        "",
        &format!("Bearer {}", issued.refresh()),
        &format!("Bearer {}", issued.id()),
    ] {
        assert_eq!(ask_as(&mut browser, shown, &issued.access).await.own(), refused, "{shown}");
    }
    // without the scheme, a secret is nothing
    for shown in [&format!("Basic {}", secret.expose()), secret.expose()] {
        let answer = ask_as(&mut browser, shown, &issued.access).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "invalid_client"));
    }
    // a secret is refused if the service has none
    let world = World::new().await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid").await;
    let shown = format!("Bearer {}", secret.expose());
    assert_eq!(ask_as(&mut browser, &shown, &issued.access).await.own(), refused);
}

#[tokio::test]
async fn c100_tokens_for_other_apis_can_be_introspected() {
    let world = world_with(|client| client.audience("https://orders.example").unwrap()).await;
    let mut browser = world.browser();
    let issued = browser.tokens("special", "openid").await;
    assert_eq!(browser.introspect("special", &issued.access).await["aud"], "https://orders.example");
}

#[tokio::test]
async fn b22_c126_callers_who_do_not_authenticate_learn_nothing_whatever_the_token_is() {
    let refused = "401\ncontent-type: application/json\nwww-authenticate: Basic realm=\"token\"\n\n\
        {\"error\":\"invalid_client\",\"error_description\":\"only clients that authenticate can call this\"}\n";
    let (store, world) = controlled_store_with_keys().await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid").await;
    for token in [&*issued.access, issued.refresh(), issued.id(), "x"] {
        for client in [&[("client_id", "web")][..], &[("client_id", "other")], &[("client_id", "nobody")], &[]] {
            for more in [&[][..], &[("client_secret", "x")], &[("refresh_token", issued.refresh())]] {
                let fields = [client, more, &[("token", token)]].concat();
                store.done();
                let answer = browser.form("/introspect", &fields).await;
                assert_eq!((answer.own().as_str(), store.done()), (refused, Vec::new()), "{fields:?}");
            }
        }
        let mut bare = posted("/introspect").header("authorization", "Basic d2ViOg==");
        bare = bare.header("dpop", "x");
        assert_eq!(browser.send(bare, format!("client_id=web&token={token}")).await.own(), refused);
    }
}

/// Presents a used refresh token in every way, while it would be noticed at `/token`.
#[tokio::test]
async fn b22_c126_introspection_changes_no_token_and_revokes_no_family() {
    let world = World::new().await;
    let mut browser = world.browser();
    let first = browser.tokens("web", "openid").await;
    let next = IssuedTokens::of(&browser.refresh("web", first.refresh()).await);
    world.advance(11);
    for client in ["web", "mfa", "other", "nobody", ""] {
        browser.form("/introspect", &[("client_id", client), ("token", first.refresh())]).await;
        browser.form("/introspect", &[("client_id", client), ("refresh_token", first.refresh()), ("token", "x")]).await;
    }
    for shown in ["Bearer x", "Basic x", &format!("Bearer {INTROSPECTOR}"), &format!("Bearer {}", next.access)] {
        ask_as(&mut browser, shown, first.refresh()).await;
    }
    assert_eq!(browser.ask_about(first.refresh()).await.text, NOT);
    all_are(true, &world, "web", &next).await;
    world.log.flush();
    assert!(world.log.read_events(&Query::new().kind(EventKind::TokenReused)).events.is_empty());
    // at `/token`, the same request is noticed
    assert_eq!(browser.refresh("web", first.refresh()).await.error(), "invalid_grant");
    assert_eq!(browser.ask_about(next.refresh()).await.text, NOT);
}

#[tokio::test]
async fn b22_c126_introspection_ends_no_family_whose_proofs_have_stopped_counting() {
    let (world, acme, ada) = (World::new().await, tenant("acme"), user("u-ada"));
    let mut browser = world.browser();
    let login = browser.begin("web", &[("identifier", ADA)]).await;
    assert_eq!(browser.prove_mailbox(&world, &login, ADA).await.status, 200);
    let code = browser.finish(&login).await.unwrap();
    let issued = IssuedTokens::of(&browser.redeem("web", &code).await);
    world.users.remove_contact(&acme, &ada, &mailbox(ADA)).await.unwrap();
    for token in [&*issued.access, issued.refresh()] {
        assert_eq!(browser.ask_about(token).await.text, NOT);
    }
    // the operator removed the wrong address, and sets it right
    world.users.verify_contact(&acme, &ada, mailbox(ADA)).await.unwrap();
    all_are(true, &world, "web", &issued).await;
}
