//! `grant_type=refresh_token`: the next tokens of a family.

use std::time::Duration;

use tollgate::UserId;

use crate::{
    issued_tokens::{IssuedTokens, claims},
    special_worlds::world_with,
    world::{Answer, Browser, World, parameters, query_of, with},
};

const DAY: u64 = 24 * 3600;

const REFUSED: &str = "400\ncontent-type: application/json\npragma: no-cache\n\n\
    {\"error\":\"invalid_grant\",\"error_description\":\"the refresh token is invalid, expired or was issued to another client\"}\n";

async fn refresh_for(browser: &mut Browser, client: &str, token: &str, scope: &str) -> Answer {
    let fields = [("grant_type", "refresh_token"), ("refresh_token", token), ("client_id", client), ("scope", scope)];
    browser.form("/token", &fields).await
}

#[tokio::test]
async fn c095_each_use_returns_the_next_refresh_token_and_new_tokens() {
    let world = World::new().await;
    let mut browser = world.browser();
    let mut issued = browser.tokens("web", "openid profile email").await;
    let mut seen = Vec::new();
    for _ in 0..5 {
        world.advance(300);
        let next = IssuedTokens::of(&browser.refresh("web", issued.refresh()).await);
        assert_eq!(next.scope, issued.scope);
        assert_eq!(browser.opens(&world, "web", &next.access).await, [true; 3]);
        seen.push(std::mem::replace(&mut issued, next));
    }
    let all = || seen.iter().chain([&issued]);
    let mut texts: Vec<_> = all().flat_map(|one| [&*one.access, one.refresh(), one.id()]).collect();
    let count = texts.len();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), count, "no token is issued twice");
    // earlier access tokens stay valid until they expire, because nothing revoked them
    assert_eq!(browser.opens(&world, "web", &seen[4].access).await, [true; 3]);
    world.advance(6);
    assert_eq!(browser.opens(&world, "web", &seen[3].access).await, [false; 3]);
}

#[tokio::test]
async fn c096_within_ten_seconds_the_same_successor_is_returned_again() {
    let world = World::new().await;
    let mut browser = world.browser();
    let first = browser.tokens("web", "openid").await;
    world.advance(60);
    let next = IssuedTokens::of(&browser.refresh("web", first.refresh()).await);
    world.clock.advance(Duration::from_nanos(9_999_999_999));
    let again = browser.refresh("web", first.refresh()).await;
    let json = again.json();
    let again = IssuedTokens::of(&again);
    assert_eq!(again.refresh(), next.refresh());
    // with the same id and the same expiry
    assert_eq!(claims(&again.access), claims(&next.access));
    assert_eq!(json["expires_in"], 591);
    // there is one chain: once the successor was used, using the first token again revokes the family
    let third = IssuedTokens::of(&browser.refresh("web", next.refresh()).await);
    assert_eq!(IssuedTokens::of(&browser.refresh("web", next.refresh()).await).refresh(), third.refresh());
    assert_eq!(browser.refresh("web", first.refresh()).await.own(), REFUSED);
    assert_eq!(browser.refresh("web", third.refresh()).await.own(), REFUSED);
}

#[tokio::test]
async fn c095_c096_using_a_used_token_later_revokes_the_family() {
    for (wait, uses) in [(10, 1), (0, 2), (3600, 3)] {
        let world = World::new().await;
        let mut browser = world.browser();
        let other = browser.tokens("web", "openid").await;
        let first = browser.tokens("web", "openid").await;
        let mut last = first.clone();
        for _ in 0..uses {
            last = IssuedTokens::of(&browser.refresh("web", last.refresh()).await);
        }
        world.advance(wait);
        let fresh = if wait > 600 { IssuedTokens::of(&browser.refresh("web", last.refresh()).await) } else { last };
        assert_eq!(browser.opens(&world, "web", &fresh.access).await, [true; 3]);
        assert_eq!(browser.refresh("web", first.refresh()).await.own(), REFUSED);
        // the newest token stops working too, because its holder may be the thief
        assert_eq!(browser.opens(&world, "web", &fresh.access).await, [false; 3], "{wait} {uses}");
        assert_eq!(browser.refresh("web", fresh.refresh()).await.own(), REFUSED);
        assert_eq!(browser.introspect("web", fresh.refresh()).await, serde_json::json!({ "active": false }));
        // another login is another family
        assert_eq!(browser.refresh("web", other.refresh()).await.status, 200);
    }
}

#[tokio::test]
async fn c095_the_scope_can_shrink_for_one_response_but_never_grow() {
    let world = World::new().await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid profile").await;
    let narrow = IssuedTokens::of(&refresh_for(&mut browser, "web", issued.refresh(), "profile").await);
    assert_eq!((&*narrow.scope, &narrow.id), ("profile", &None));
    assert_eq!(claims(&narrow.access)["scope"], "profile");
    let grown = "400\ncontent-type: application/json\npragma: no-cache\n\n\
        {\"error\":\"invalid_scope\",\"error_description\":\"scope contains a name that was not granted\"}\n";
    for more in ["openid profile email", "email", "openid offline_access"] {
        assert_eq!(refresh_for(&mut browser, "web", narrow.refresh(), more).await.own(), grown, "{more}");
    }
    let malformed = refresh_for(&mut browser, "web", narrow.refresh(), "a\"b").await;
    assert_eq!((malformed.status.as_u16(), &*malformed.error()), (400, "invalid_scope"));
    // the token was not used up, and the full scope is kept (RFC 6749 §6)
    let whole = IssuedTokens::of(&refresh_for(&mut browser, "web", narrow.refresh(), "profile openid").await);
    assert_eq!(whole.scope.split(' ').collect::<std::collections::BTreeSet<_>>().len(), 2);
    assert!(whole.id.is_some());
}

#[tokio::test]
async fn c095_another_client_cannot_use_a_refresh_token_and_does_no_harm() {
    let world = World::new().await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid").await;
    let next = IssuedTokens::of(&browser.refresh("web", issued.refresh()).await);
    for client in ["mfa", "native", "other"] {
        for token in [issued.refresh(), next.refresh()] {
            assert_eq!(browser.refresh(client, token).await.own(), REFUSED, "{client}");
        }
    }
    world.advance(60);
    // access tokens, codes, made-up tokens and tokens with a changed letter are not refresh tokens
    let code = browser.sign_in("web").await;
    let mut changed = next.refresh().to_owned().into_bytes();
    changed[40] = if changed[40] == b'A' { b'B' } else { b'A' };
    let changed = String::from_utf8(changed).unwrap();
    let long = "A".repeat(30_000);
    for token in [&*next.access, next.id(), &code.code, &changed, &"A".repeat(91), "x", "ä", &long] {
        assert_eq!(browser.refresh("web", token).await.own(), REFUSED, "{token}");
    }
    assert_eq!(browser.refresh("web", next.refresh()).await.status, 200);
}

#[tokio::test]
async fn c095_a_family_ends_a_day_after_the_login_regardless_of_use() {
    let world = World::new().await;
    let mut browser = world.browser();
    let mut issued = browser.tokens("web", "openid").await;
    for _ in 0..23 {
        world.advance(3600);
        issued = IssuedTokens::of(&browser.refresh("web", issued.refresh()).await);
    }
    world.clock.advance(Duration::from_secs(3600) - Duration::from_nanos(1));
    issued = IssuedTokens::of(&browser.refresh("web", issued.refresh()).await);
    world.clock.advance(Duration::from_nanos(1));
    assert_eq!(browser.refresh("web", issued.refresh()).await.own(), REFUSED);
}

#[tokio::test]
async fn c095_with_offline_access_it_ends_after_thirty_days() {
    let world = world_with(|client| client.scopes("openid offline_access").unwrap()).await;
    let mut browser = world.browser();
    let mut issued = browser.tokens("special", "openid offline_access").await;
    for _ in 0..29 {
        world.advance(DAY);
        issued = IssuedTokens::of(&browser.refresh("special", issued.refresh()).await);
    }
    world.clock.advance(Duration::from_secs(DAY) - Duration::from_nanos(1));
    issued = IssuedTokens::of(&browser.refresh("special", issued.refresh()).await);
    world.clock.advance(Duration::from_nanos(1));
    assert_eq!(browser.refresh("special", issued.refresh()).await.own(), REFUSED);
    // a client that may not ask for the scope does not get it
    let wanted = with(parameters("native"), &[("scope", "openid offline_access")]);
    let answer = browser.get(&format!("/authorize?{}", query_of(&wanted))).await;
    assert_eq!(answer.redirected("error").as_deref(), Some("invalid_scope"));
}

#[tokio::test]
async fn a_disabled_account_gets_no_more_tokens() {
    let world = World::new().await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid").await;
    let code = browser.sign_in("web").await;
    let (acme, ada) = ("acme".parse().unwrap(), UserId::parse("u-ada").unwrap());
    world.users.disable(&acme, &ada).await.unwrap();
    assert_eq!(browser.refresh("web", issued.refresh()).await.own(), REFUSED);
    assert_eq!(browser.redeem("web", &code).await.error(), "invalid_grant");
    assert_eq!(browser.with_token("/userinfo", &issued.access).await.error(), "invalid_token");
    // once it is enabled again, its tokens work: disabling an account revokes nothing
    world.users.enable(&acme, &ada).await.unwrap();
    assert_eq!(browser.refresh("web", issued.refresh()).await.status, 200);
}

#[tokio::test]
async fn c119_end_user_revokes_every_token_at_once_but_not_those_of_a_new_login_at_the_same_moment() {
    let world = World::new().await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid").await;
    let (acme, ada) = ("acme".parse().unwrap(), UserId::parse("u-ada").unwrap());
    world.service.end_user(&acme, &ada).await.unwrap();
    assert_eq!(browser.opens(&world, "web", &issued.access).await, [false; 3]);
    assert_eq!(browser.refresh("web", issued.refresh()).await.own(), REFUSED);
    assert_eq!(claims(&issued.access).get("gen"), None, "generation 0 is left out");
    let issued = browser.tokens("web", "openid").await;
    assert_eq!(browser.opens(&world, "web", &issued.access).await, [true; 3]);
    assert_eq!(claims(&issued.access)["gen"], 1);
    assert_eq!(browser.refresh("web", issued.refresh()).await.status, 200);
}
