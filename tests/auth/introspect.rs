//! `POST /introspect` (RFC 7662): what is known of a token, and by whom.

use serde_json::{Value, json};
use tollgate::{Secret, UserId, store::Memory};

use crate::{
    cors::cors,
    given::claims,
    world::{Answer, Browser, ISSUER, World, posted},
    worlds::world_with,
};

const NOT: &str = "200\ncontent-type: application/json\n\n{\"active\":false}\n";

/// Asks as an API that shows this.
async fn ask_as(browser: &mut Browser, shown: &str, token: &str) -> Answer {
    let request = posted("/introspect").header("authorization", shown);
    browser.send(request, format!("token={token}")).await
}

#[tokio::test]
async fn c100_of_a_good_token_its_claims_are_told() {
    let world = World::new().await;
    let mut browser = world.browser();
    let given = browser.tokens("web", "openid email").await;
    let inside = claims(&given.access);
    let scope = given.scope.as_str();
    let mut known = browser.introspect("web", &given.access).await;
    assert_eq!(
        known,
        json!({
            "active": true, "token_type": "Bearer", "iss": ISSUER, "sub": "u-ada", "client_id": "web", "tenant": "acme",
            "scope": scope, "exp": inside["exp"], "iat": inside["iat"], "aud": inside["aud"], "jti": inside["jti"],
            "auth_time": inside["auth_time"],
        })
    );
    known = browser.introspect("web", given.refresh()).await;
    assert_eq!(
        known,
        json!({
            "active": true, "iss": ISSUER, "sub": "u-ada", "client_id": "web", "tenant": "acme", "scope": scope,
            "exp": 1_000_000_000 + 24 * 3600, "auth_time": inside["auth_time"],
        })
    );
    // and asking uses nothing up
    assert_eq!(browser.refresh("web", given.refresh()).await.status, 200);
}

#[tokio::test]
async fn c100_of_an_account_that_was_closed_nothing_is_told_and_no_page_reads_what_is() {
    let world = World::new().await;
    let mut browser = world.browser();
    let given = browser.tokens("web", "openid").await;
    for token in [&given.access, given.refresh()] {
        let request = posted("/introspect").header("origin", "https://app.example");
        let answer = browser.send(request, format!("client_id=web&token={token}")).await;
        assert_eq!((answer.json()["active"].clone(), cors(&answer)), (true.into(), vec!["vary: origin".to_owned()]));
    }
    world.users.disable(&"acme".parse().unwrap(), &UserId::parse("u-ada").unwrap()).await.unwrap();
    for token in [&given.access, given.refresh()] {
        assert_eq!(browser.ask_about("web", token).await.own(), NOT);
    }
}

#[tokio::test]
async fn c100_of_any_other_token_nothing_is_told() {
    let world = World::new().await;
    let mut browser = world.browser();
    let given = browser.tokens("web", "openid").await;
    let code = browser.sign_in("web").await;
    let changed = format!("{}A", &given.access[..given.access.len() - 1]);
    let unsigned = format!("{}.", given.access.rsplit_once('.').unwrap().0);
    for (client, token) in [
        ("mfa", &*given.access),
        ("mfa", given.refresh()),
        ("other", &given.access),
        ("web", given.id()),
        ("web", &code.code),
        ("web", &unsigned),
        ("web", &given.access[1..]),
        ("web", "x"),
        ("web", "a.b.c"),
        ("web", &"x".repeat(60_000)),
    ] {
        assert_eq!(browser.ask_about(client, token).await.own(), NOT, "{client} {token}");
    }
    if changed != given.access {
        assert_eq!(browser.ask_about("web", &changed).await.own(), NOT);
    }
    let next = crate::given::Given::of(&browser.refresh("web", given.refresh()).await);
    world.advance(599);
    assert_eq!(browser.introspect("web", &given.access).await["active"], true);
    world.advance(1);
    assert_eq!(browser.ask_about("web", &given.access).await.own(), NOT, "it is over");
    assert_eq!(browser.introspect("web", next.refresh()).await["active"], true);
    world.advance(24 * 3600 - 600);
    assert_eq!(browser.ask_about("web", next.refresh()).await.own(), NOT, "and so is the family");
}

#[tokio::test]
async fn c100_an_api_with_a_secret_may_ask_about_any() {
    let (secret, second) = (Secret::generate(), Secret::generate());
    let world = World::with(Memory::new(), |service| service.introspector(&secret).introspector(&second)).await;
    let mut browser = world.browser();
    let given = browser.tokens("web", "openid").await;
    for secret in [&secret, &second] {
        for scheme in ["Bearer", "bearer"] {
            let shown = format!("{scheme} {}", secret.expose());
            for token in [&*given.access, given.refresh()] {
                let answer = ask_as(&mut browser, &shown, token).await;
                assert_eq!((answer.status.as_u16(), &answer.json()["sub"]), (200, &Value::from("u-ada")), "{answer:?}");
            }
            // about nobody's it asks at nobody's cost
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
        &format!("Bearer {}", given.access),
    ] {
        assert_eq!(ask_as(&mut browser, shown, &given.access).await.own(), refused, "{shown}");
    }
    // nor does a secret help where none is known
    let world = World::new().await;
    let mut browser = world.browser();
    let given = browser.tokens("web", "openid").await;
    let shown = format!("Bearer {}", secret.expose());
    assert_eq!(ask_as(&mut browser, &shown, &given.access).await.own(), refused);
}

#[tokio::test]
async fn c100_a_client_may_ask_about_its_own_at_another_api() {
    let world = world_with(|client| client.audience("https://orders.example").unwrap()).await;
    let mut browser = world.browser();
    let given = browser.tokens("special", "openid").await;
    assert_eq!(browser.introspect("special", &given.access).await["aud"], "https://orders.example");
}
