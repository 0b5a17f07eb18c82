//! How many families a user can have at a client, and that nothing of one lives on after it.

use crate::{
    given::{Given, all_are},
    grants::Grant,
    world::{Browser, World},
};

async fn family(browser: &mut Browser, client: &str, scope: &str) -> (Grant, Given) {
    let code = browser.sign_in_with(client, &[("scope", scope)]).await;
    let given = Given::of(&browser.redeem(client, &code).await);
    (code, given)
}

#[tokio::test]
async fn with_one_more_than_a_hundred_the_oldest_ends_after_what_was_given_back() {
    let world = World::new().await;
    let (mut browser, scope) = (world.browser(), "openid offline_access");
    let mut all = Vec::new();
    for _ in 0..100 {
        all.push(family(&mut browser, "web", scope).await);
        world.advance(1);
    }
    // by those of another client nobody loses any
    let elsewhere = family(&mut browser, "native", "openid").await.1;
    let fresh = async |n: usize, browser: &mut Browser| Given::of(&browser.refresh("web", all[n].1.refresh()).await);
    let [first, second] = [fresh(0, &mut browser).await, fresh(1, &mut browser).await];
    let back = fresh(50, &mut browser).await;
    assert_eq!(browser.revoke("web", back.refresh()).await.status, 200);

    let more = family(&mut browser, "web", scope).await.1;
    for given in [&first, &second, &more] {
        all_are(true, &world, "web", given).await;
    }
    let yet_more = family(&mut browser, "web", scope).await.1;
    all_are(false, &world, "web", &first).await;
    assert_eq!(browser.refresh("web", first.refresh()).await.error(), "invalid_grant");
    // the code that it came of is forgotten, and ends nothing
    assert_eq!(browser.redeem("web", &all[0].0).await.error(), "invalid_grant");
    for given in [&second, &more, &yet_more] {
        all_are(true, &world, "web", given).await;
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
    let last = Given::of(&answer);
    world.advance(4);
    assert_eq!(browser.refresh("web", first.refresh()).await.json()["expires_in"], 1, "the same once more");
    all_are(true, &world, "web", &last).await;
    // an API allows for clocks that differ
    world.advance(1 + 60);
    all_are(false, &world, "web", &last).await;
}

#[tokio::test]
async fn one_name_is_one_token() {
    let world = World::new().await;
    let mut browser = world.browser();
    let (_, first) = family(&mut browser, "web", "openid email").await;
    let form = |scope| [("grant_type", "refresh_token"), ("client_id", "web"), ("scope", scope)];
    let mut names = Vec::new();
    for scope in ["openid", "email", "openid email", "email openid", ""] {
        let fields = [&form(scope)[..], &[("refresh_token", first.refresh())]].concat();
        names.push(Given::of(&browser.form("/token", &fields).await).jti());
    }
    assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2], "{names:?}");
    assert!(names[2] == names[3] && names[3] == names[4], "{names:?}");
}
