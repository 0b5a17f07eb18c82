//! `POST /introspect` (RFC 7662): what callers learn about a token, and which callers.

use serde_json::{Value, json};
use tollgate::{Secret, UserId, store::Memory};

use crate::{
    cors::cors,
    issued_tokens::claims,
    special_worlds::world_with,
    world::{Answer, Browser, ISSUER, World, posted},
};

const NOT: &str = "200\ncontent-type: application/json\n\n{\"active\":false}\n";

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
        let answer = browser.send(request, format!("client_id=web&token={token}")).await;
        assert_eq!((answer.json()["active"].clone(), cors(&answer)), (true.into(), vec!["vary: origin".to_owned()]));
    }
    world.users.disable(&"acme".parse().unwrap(), &UserId::parse("u-ada").unwrap()).await.unwrap();
    for token in [&issued.access, issued.refresh()] {
        assert_eq!(browser.ask_about("web", token).await.own(), NOT);
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
    for (client, token) in [
        ("mfa", &*issued.access),
        ("mfa", issued.refresh()),
        ("other", &issued.access),
        ("web", issued.id()),
        ("web", &code.code),
        ("web", &unsigned),
        ("web", &issued.access[1..]),
        ("web", "x"),
        ("web", "a.b.c"),
        ("web", &"x".repeat(60_000)),
    ] {
        assert_eq!(browser.ask_about(client, token).await.own(), NOT, "{client} {token}");
    }
    if changed != issued.access {
        assert_eq!(browser.ask_about("web", &changed).await.own(), NOT);
    }
    let next = crate::issued_tokens::IssuedTokens::of(&browser.refresh("web", issued.refresh()).await);
    world.advance(599);
    assert_eq!(browser.introspect("web", &issued.access).await["active"], true);
    world.advance(1);
    assert_eq!(browser.ask_about("web", &issued.access).await.own(), NOT, "the token has expired");
    assert_eq!(browser.introspect("web", next.refresh()).await["active"], true);
    world.advance(24 * 3600 - 600);
    assert_eq!(browser.ask_about("web", next.refresh()).await.own(), NOT, "the family is revoked");
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
            for token in [&*issued.access, issued.refresh()] {
                let answer = ask_as(&mut browser, &shown, token).await;
                assert_eq!((answer.status.as_u16(), &answer.json()["sub"]), (200, &Value::from("u-ada")), "{answer:?}");
            }
            // a token of no tenant is charged to no tenant
            let answer = ask_as(&mut browser, &shown, "x").await;
            assert_eq!((answer.status.as_u16(), &*answer.text), (200, r#"{"active":false}"#));
            assert!(!answer.headers.contains_key("x-ratelimit"));
        }
    }
    let refused = "401\ncontent-type: application/json\n\
        www-authenticate: Bearer realm=\"introspect\", error=\"invalid_token\"\n\n\
        {\"error\":\"invalid_token\",\"error_description\":\"introspection needs a client_id or a valid secret\"}\n";
    let (other, basic) = (Secret::generate(), format!("Basic {}", secret.expose()));
    for shown in [
        &format!("Bearer {}", other.expose()),
        &basic,
        &format!("Bearer  {}", secret.expose()),
        &format!("Bearer {}=", secret.expose()),
        secret.expose(),
        "Bearer ",
        "Bearer",
        "",
        &format!("Bearer {}", issued.access),
    ] {
        assert_eq!(ask_as(&mut browser, shown, &issued.access).await.own(), refused, "{shown}");
    }
    // a secret is refused if the service has none
    let world = World::new().await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid").await;
    let shown = format!("Bearer {}", secret.expose());
    assert_eq!(ask_as(&mut browser, &shown, &issued.access).await.own(), refused);
}

#[tokio::test]
async fn c100_a_client_can_introspect_its_own_tokens_for_other_apis() {
    let world = world_with(|client| client.audience("https://orders.example").unwrap()).await;
    let mut browser = world.browser();
    let issued = browser.tokens("special", "openid").await;
    assert_eq!(browser.introspect("special", &issued.access).await["aud"], "https://orders.example");
}
