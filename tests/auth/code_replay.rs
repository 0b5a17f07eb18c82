//! Codes that are redeemed a second time.

use serde_json::json;
use tollgate::pkce::{CodeChallenge, CodeVerifier};

use crate::{
    issued_tokens::IssuedTokens,
    special_worlds::world_with,
    token_requests::{Grant, redemption, set},
    world::{ADA, Browser, World, parameters, posted, query_of, redirect_uri, with},
};

async fn replay(browser: &mut Browser, code: &Grant, name: &'static str, value: &str) {
    let answer = browser.form("/token", &set(&redemption("web", code), name, value)).await;
    assert_eq!(answer.error(), "invalid_grant");
}

fn events(world: &World, kind: tollgate::event::EventKind) -> usize {
    world.log.flush();
    world.log.read_events(&tollgate::event::Query::new().kind(kind)).events.len()
}

#[tokio::test]
async fn c092_a_late_replay_revokes_all_tokens_of_the_code() {
    for rounds in [0, 2] {
        let world = World::new().await;
        let mut browser = world.browser();
        let other = browser.tokens("web", "openid").await;
        let code = browser.sign_in("web").await;
        let mut issued = vec![IssuedTokens::of(&browser.redeem("web", &code).await)];
        for _ in 0..rounds {
            world.advance(60);
            let next = browser.refresh("web", issued.last().unwrap().refresh()).await;
            issued.push(IssuedTokens::of(&next));
        }
        world.clock.advance(std::time::Duration::from_nanos(2_000_000_001));
        assert_eq!(events(&world, tollgate::event::EventKind::TokenReused), 0);
        assert_eq!(browser.redeem("web", &code).await.error(), "invalid_grant");
        assert_eq!(events(&world, tollgate::event::EventKind::TokenReused), 1);
        for one in &issued {
            assert_eq!(browser.opens(&world, "web", &one.access).await, [false; 3]);
            assert_eq!(browser.introspect("web", one.refresh()).await, json!({ "active": false }));
            assert_eq!(browser.refresh("web", one.refresh()).await.error(), "invalid_grant");
        }
        assert_eq!(
            browser.opens(&world, "web", &other.access).await,
            [true; 3],
            "tokens of other codes are not affected"
        );
    }
}

#[tokio::test]
async fn c092_a_replay_within_two_seconds_revokes_nothing() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = browser.sign_in("web").await;
    let issued = IssuedTokens::of(&browser.redeem("web", &code).await);
    for _ in 0..3 {
        assert_eq!(browser.redeem("web", &code).await.error(), "invalid_grant");
    }
    world.advance(2);
    assert_eq!(browser.redeem("web", &code).await.error(), "invalid_grant");
    assert_eq!(browser.opens(&world, "web", &issued.access).await, [true; 3]);
    assert_eq!(browser.refresh("web", issued.refresh()).await.status, 200);
}

#[tokio::test]
async fn c092_a_replay_without_the_verifier_revokes_nothing() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = browser.sign_in("web").await;
    let issued = IssuedTokens::of(&browser.redeem("web", &code).await);
    for seconds in [3, 57, 300] {
        world.advance(seconds);
        replay(&mut browser, &code, "code_verifier", &"A".repeat(43)).await;
        replay(&mut browser, &code, "client_id", "mfa").await;
        replay(&mut browser, &code, "redirect_uri", "https://evil.example/").await;
    }
    assert_eq!(browser.opens(&world, "web", &issued.access).await, [true; 3]);
    assert_eq!(browser.refresh("web", issued.refresh()).await.status, 200);
}

#[tokio::test]
async fn c092_a_replay_is_detected_as_long_as_any_token_of_the_code_lives() {
    let world = world_with(|client| client.scopes("openid offline_access").unwrap()).await;
    let mut browser = world.browser();
    let code = browser.sign_in_with("special", &[("scope", "openid offline_access")]).await;
    let mut issued = IssuedTokens::of(&browser.redeem("special", &code).await);
    for _ in 0..29 {
        world.advance(24 * 3600);
        issued = IssuedTokens::of(&browser.refresh("special", issued.refresh()).await);
    }
    assert_eq!(browser.opens(&world, "special", &issued.access).await, [true; 3]);
    assert_eq!(browser.redeem("special", &code).await.error(), "invalid_grant");
    assert_eq!(browser.opens(&world, "special", &issued.access).await, [false; 3]);
    assert_eq!(browser.refresh("special", issued.refresh()).await.error(), "invalid_grant");
    // the same holds for a client without refresh tokens
    let world = world_with(tollgate::Client::without_refresh_tokens).await;
    let mut browser = world.browser();
    let code = browser.sign_in("special").await;
    let issued = IssuedTokens::of(&browser.redeem("special", &code).await);
    world.advance(599);
    assert_eq!(browser.opens(&world, "special", &issued.access).await, [true; 3]);
    assert_eq!(browser.redeem("special", &code).await.error(), "invalid_grant");
    assert_eq!(browser.opens(&world, "special", &issued.access).await, [false; 3]);
}

#[tokio::test]
async fn c024_a_redeemed_challenge_begins_no_other_login_of_its_client_for_a_day() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = browser.sign_in("web").await;
    let challenge = CodeChallenge::from_verifier(&CodeVerifier::parse(&code.verifier).unwrap()).to_string();
    let refused = async |client: &str| {
        let mut browser = world.browser();
        let own = with(parameters(client), &[("code_challenge", &challenge), ("identifier", ADA)]);
        let query = query_of(&own);
        let answer = browser.get(&format!("/authorize?{query}")).await;
        let location = answer.header("location");
        let is_refused = location.starts_with(&format!("{}?error=invalid_request&", redirect_uri(client)));
        assert_eq!(is_refused, !location.starts_with("/authentication/start?"), "{location}");
        let started = browser.post("/authentication/start", &own).await.status == 200;
        let pushed = browser.send(posted("/par"), &query).await.status == 201;
        assert_eq!((started, pushed), (!is_refused, !is_refused));
        is_refused
    };
    assert!(!refused("web").await);
    assert_eq!(browser.redeem("web", &code).await.status, 200);
    assert!(refused("web").await && !refused("mfa").await);
    world.advance(24 * 3600 - 1);
    assert!(refused("web").await);
    world.advance(1);
    assert!(!refused("web").await);
}
