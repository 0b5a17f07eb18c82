//! The maximum number of token families of a user at a client, and when families end.

use crate::{
    issued_tokens::{IssuedTokens, all_are},
    token_requests::Grant,
    world::{Browser, World},
};

async fn family(browser: &mut Browser, client: &str, scope: &str) -> (Grant, IssuedTokens) {
    let code = browser.sign_in_with(client, &[("scope", scope)]).await;
    let issued = IssuedTokens::of(&browser.redeem(client, &code).await);
    (code, issued)
}

#[tokio::test]
async fn after_a_hundred_families_a_new_one_revokes_the_oldest() {
    let world = World::new().await;
    let scope = "openid offline_access";
    let (mut browsers, mut all): (Vec<_>, Vec<_>) = ((0..5).map(|_| world.browser()).collect(), Vec::new());
    for number in 0..100 {
        all.push(family(&mut browsers[number / 20], "web", scope).await);
        world.advance(1);
    }
    // families of another client do not count
    let mut browser = world.browser();
    let elsewhere = family(&mut browser, "native", "openid").await.1;
    let mut fresh = Vec::new();
    for number in [0, 1, 50] {
        fresh.push(IssuedTokens::of(&browser.refresh("web", all[number].1.refresh()).await));
    }
    // a revoked family leaves room for another
    assert_eq!(browser.revoke("web", fresh[2].refresh()).await.status, 200);
    let more = family(&mut browser, "web", scope).await.1;
    for issued in [&fresh[0], &fresh[1], &more] {
        all_are(true, &world, "web", issued).await;
    }
    let yet_more = family(&mut browser, "web", scope).await.1;
    all_are(false, &world, "web", &fresh[0]).await;
    assert_eq!(browser.refresh("web", fresh[0].refresh()).await.error(), "invalid_grant");
    // replaying the code of an evicted family revokes nothing
    assert_eq!(browser.redeem("web", &all[0].0).await.error(), "invalid_grant");
    for issued in [&fresh[1], &more, &yet_more] {
        all_are(true, &world, "web", issued).await;
    }
    all_are(true, &world, "native", &elsewhere).await;
}

#[tokio::test]
async fn an_access_token_ends_with_its_family() {
    let world = World::new().await;
    let mut browser = world.browser();
    let (_, first) = family(&mut browser, "web", "openid").await;
    world.advance(86_400 - 5);
    let answer = browser.refresh("web", first.refresh()).await;
    assert_eq!(answer.json()["expires_in"], 5);
    let last = IssuedTokens::of(&answer);
    world.advance(4);
    assert_eq!(browser.refresh("web", first.refresh()).await.json()["expires_in"], 1, "the same tokens again");
    all_are(true, &world, "web", &last).await;
    // APIs allow for differences between clocks
    world.advance(1 + 60);
    all_are(false, &world, "web", &last).await;
}

#[tokio::test]
async fn tokens_with_different_content_have_different_ids() {
    let world = World::new().await;
    let mut browser = world.browser();
    let (_, first) = family(&mut browser, "web", "openid email").await;
    let form = |scope| [("grant_type", "refresh_token"), ("client_id", "web"), ("scope", scope)];
    let mut names = Vec::new();
    for scope in ["openid", "email", "openid email", "email openid", ""] {
        let fields = [&form(scope)[..], &[("refresh_token", first.refresh())]].concat();
        names.push(IssuedTokens::of(&browser.form("/token", &fields).await).jti());
    }
    assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2], "{names:?}");
    assert!(names[2] == names[3] && names[3] == names[4], "{names:?}");
}
