//! `grant_type=refresh_token`: the next tokens of a family.

use std::time::Duration;

use tollgate::UserId;

use crate::{
    given::{Given, claims},
    world::{Answer, Browser, World, parameters, query_of, with},
    worlds::world_with,
};

const DAY: u64 = 24 * 3600;

const REFUSED: &str = "400\ncontent-type: application/json\npragma: no-cache\n\n\
    {\"error\":\"invalid_grant\",\"error_description\":\"the refresh token is invalid, expired or was issued to another client\"}\n";

async fn refresh_for(browser: &mut Browser, client: &str, token: &str, scope: &str) -> Answer {
    let fields = [("grant_type", "refresh_token"), ("refresh_token", token), ("client_id", client), ("scope", scope)];
    browser.form("/token", &fields).await
}

#[tokio::test]
async fn c095_each_use_gives_the_next_one_and_new_tokens() {
    let world = World::new().await;
    let mut browser = world.browser();
    let mut given = browser.tokens("web", "openid profile email").await;
    let mut seen = Vec::new();
    for _ in 0..5 {
        world.advance(300);
        let next = Given::of(&browser.refresh("web", given.refresh()).await);
        assert_eq!(next.scope, given.scope);
        assert_eq!(browser.opens(&world, "web", &next.access).await, [true; 3]);
        seen.push(std::mem::replace(&mut given, next));
    }
    let all = || seen.iter().chain([&given]);
    let mut texts: Vec<_> = all().flat_map(|one| [&*one.access, one.refresh(), one.id()]).collect();
    let count = texts.len();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), count, "no token is issued twice");
    // those of before live to their end, as nobody took them back
    assert_eq!(browser.opens(&world, "web", &seen[4].access).await, [true; 3]);
    world.advance(6);
    assert_eq!(browser.opens(&world, "web", &seen[3].access).await, [false; 3]);
}

#[tokio::test]
async fn c096_within_ten_seconds_the_same_successor_comes_again() {
    let world = World::new().await;
    let mut browser = world.browser();
    let first = browser.tokens("web", "openid").await;
    world.advance(60);
    let next = Given::of(&browser.refresh("web", first.refresh()).await);
    world.clock.advance(Duration::from_nanos(9_999_999_999));
    let again = browser.refresh("web", first.refresh()).await;
    let json = again.json();
    let again = Given::of(&again);
    assert_eq!(again.refresh(), next.refresh());
    // under its name, and not for longer
    assert_eq!(claims(&again.access), claims(&next.access));
    assert_eq!(json["expires_in"], 591);
    // one branch: the successor goes on, and once it did, what it came of ends all
    let third = Given::of(&browser.refresh("web", next.refresh()).await);
    assert_eq!(Given::of(&browser.refresh("web", next.refresh()).await).refresh(), third.refresh());
    assert_eq!(browser.refresh("web", first.refresh()).await.own(), REFUSED);
    assert_eq!(browser.refresh("web", third.refresh()).await.own(), REFUSED);
}

#[tokio::test]
async fn c095_c096_whoever_comes_later_with_a_used_one_ends_the_family() {
    for (wait, uses) in [(10, 1), (0, 2), (3600, 3)] {
        let world = World::new().await;
        let mut browser = world.browser();
        let other = browser.tokens("web", "openid").await;
        let first = browser.tokens("web", "openid").await;
        let mut last = first.clone();
        for _ in 0..uses {
            last = Given::of(&browser.refresh("web", last.refresh()).await);
        }
        world.advance(wait);
        let fresh = if wait > 600 { Given::of(&browser.refresh("web", last.refresh()).await) } else { last };
        assert_eq!(browser.opens(&world, "web", &fresh.access).await, [true; 3]);
        assert_eq!(browser.refresh("web", first.refresh()).await.own(), REFUSED);
        // who has the newest one has nothing either, for nobody knows who that is
        assert_eq!(browser.opens(&world, "web", &fresh.access).await, [false; 3], "{wait} {uses}");
        assert_eq!(browser.refresh("web", fresh.refresh()).await.own(), REFUSED);
        assert_eq!(browser.introspect("web", fresh.refresh()).await, serde_json::json!({ "active": false }));
        // another login is another family
        assert_eq!(browser.refresh("web", other.refresh()).await.status, 200);
    }
}

#[tokio::test]
async fn c095_the_scope_shrinks_for_one_answer_and_never_grows() {
    let world = World::new().await;
    let mut browser = world.browser();
    let given = browser.tokens("web", "openid profile").await;
    let narrow = Given::of(&refresh_for(&mut browser, "web", given.refresh(), "profile").await);
    assert_eq!((&*narrow.scope, &narrow.id), ("profile", &None));
    assert_eq!(claims(&narrow.access)["scope"], "profile");
    let grown = "400\ncontent-type: application/json\npragma: no-cache\n\n\
        {\"error\":\"invalid_scope\",\"error_description\":\"scope contains a name that was not granted\"}\n";
    for more in ["openid profile email", "email", "openid offline_access"] {
        assert_eq!(refresh_for(&mut browser, "web", narrow.refresh(), more).await.own(), grown, "{more}");
    }
    let malformed = refresh_for(&mut browser, "web", narrow.refresh(), "a\"b").await;
    assert_eq!((malformed.status.as_u16(), &*malformed.error()), (400, "invalid_scope"));
    // it was not used by that; and what was granted is not lost (RFC 6749 §6)
    let whole = Given::of(&refresh_for(&mut browser, "web", narrow.refresh(), "profile openid").await);
    assert_eq!(whole.scope.split(' ').collect::<std::collections::BTreeSet<_>>().len(), 2);
    assert!(whole.id.is_some());
}

#[tokio::test]
async fn c095_another_client_cannot_use_a_refresh_token_and_does_no_harm() {
    let world = World::new().await;
    let mut browser = world.browser();
    let given = browser.tokens("web", "openid").await;
    let next = Given::of(&browser.refresh("web", given.refresh()).await);
    for client in ["mfa", "native", "other"] {
        for token in [given.refresh(), next.refresh()] {
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
async fn c095_a_family_ends_a_day_after_the_login_however_it_is_used() {
    let world = World::new().await;
    let mut browser = world.browser();
    let mut given = browser.tokens("web", "openid").await;
    for _ in 0..23 {
        world.advance(3600);
        given = Given::of(&browser.refresh("web", given.refresh()).await);
    }
    world.clock.advance(Duration::from_secs(3600) - Duration::from_nanos(1));
    given = Given::of(&browser.refresh("web", given.refresh()).await);
    world.clock.advance(Duration::from_nanos(1));
    assert_eq!(browser.refresh("web", given.refresh()).await.own(), REFUSED);
}

#[tokio::test]
async fn c095_with_offline_access_it_ends_after_thirty_days() {
    let world = world_with(|client| client.scopes("openid offline_access").unwrap()).await;
    let mut browser = world.browser();
    let mut given = browser.tokens("special", "openid offline_access").await;
    for _ in 0..29 {
        world.advance(DAY);
        given = Given::of(&browser.refresh("special", given.refresh()).await);
    }
    world.clock.advance(Duration::from_secs(DAY) - Duration::from_nanos(1));
    given = Given::of(&browser.refresh("special", given.refresh()).await);
    world.clock.advance(Duration::from_nanos(1));
    assert_eq!(browser.refresh("special", given.refresh()).await.own(), REFUSED);
    // who may not ask for it does not get it
    let wanted = with(parameters("native"), &[("scope", "openid offline_access")]);
    let answer = browser.get(&format!("/authorize?{}", query_of(&wanted))).await;
    assert_eq!(answer.redirected("error").as_deref(), Some("invalid_scope"));
}

#[tokio::test]
async fn a_closed_account_gets_nothing_more() {
    let world = World::new().await;
    let mut browser = world.browser();
    let given = browser.tokens("web", "openid").await;
    let code = browser.sign_in("web").await;
    let (acme, ada) = ("acme".parse().unwrap(), UserId::parse("u-ada").unwrap());
    world.users.disable(&acme, &ada).await.unwrap();
    assert_eq!(browser.refresh("web", given.refresh()).await.own(), REFUSED);
    assert_eq!(browser.redeem("web", &code).await.error(), "invalid_grant");
    assert_eq!(browser.with_token("/userinfo", &given.access).await.error(), "invalid_token");
    // opened again, all is as it was: closing it takes nothing back for good
    world.users.enable(&acme, &ada).await.unwrap();
    assert_eq!(browser.refresh("web", given.refresh()).await.status, 200);
}

#[tokio::test]
async fn c119_end_user_ends_every_token_at_once_and_a_new_login_in_the_same_moment_counts() {
    let world = World::new().await;
    let mut browser = world.browser();
    let given = browser.tokens("web", "openid").await;
    let (acme, ada) = ("acme".parse().unwrap(), UserId::parse("u-ada").unwrap());
    world.service.end_user(&acme, &ada).await.unwrap();
    assert_eq!(browser.opens(&world, "web", &given.access).await, [false; 3]);
    assert_eq!(browser.refresh("web", given.refresh()).await.own(), REFUSED);
    assert_eq!(claims(&given.access).get("gen"), None, "generation 0 is left out");
    let given = browser.tokens("web", "openid").await;
    assert_eq!(browser.opens(&world, "web", &given.access).await, [true; 3]);
    assert_eq!(claims(&given.access)["gen"], 1);
    assert_eq!(browser.refresh("web", given.refresh()).await.status, 200);
}
