//! What a request wishes of OpenID Connect, as far as it is served.

use crate::world::{ADA, ADA_PASSWORD, Answer, Browser, World, query};

async fn authorize(browser: &mut Browser, more: &str) -> Answer {
    browser.get(&format!("/authorize?{}&state=xyz&{more}", query("web"))).await
}

async fn completed(browser: &mut Browser) {
    let id = browser.start("web", ADA).await;
    assert_eq!(browser.password("web", &id, ADA, ADA_PASSWORD).await.status, 200);
    assert_eq!(browser.complete("web", &id).await.status, 200);
}

#[tokio::test]
async fn without_a_login_prompt_none_asks_nobody_anything() {
    let world = World::new().await;
    let mut browser = world.browser();
    let answer = authorize(&mut browser, "prompt=none").await;
    assert_eq!(answer.status, 302);
    assert!(answer.header("location").starts_with("https://app.example/callback?"), "{answer:?}");
    assert_eq!(answer.redirected("error").as_deref(), Some("login_required"));
    assert_eq!(answer.redirected("state").as_deref(), Some("xyz"));
    let both = authorize(&mut browser, "prompt=none%20login").await;
    assert_eq!(both.redirected("error").as_deref(), Some("invalid_request"));
    completed(&mut browser).await;
    assert!(authorize(&mut browser, "prompt=none").await.redirected("code").is_some());
}

#[tokio::test]
async fn a_proof_that_is_older_than_max_age_gives_no_code() {
    let world = World::new().await;
    let mut browser = world.browser();
    completed(&mut browser).await;
    world.advance(61);
    let answer = authorize(&mut browser, "max_age=60").await;
    assert!(answer.header("location").starts_with("/authentication/start?"), "{answer:?}");
    let answer = authorize(&mut browser, "max_age=sixty").await;
    assert_eq!(answer.redirected("error").as_deref(), Some("invalid_request"));
    assert!(authorize(&mut browser, "max_age=61").await.redirected("code").is_some());
}

#[tokio::test]
async fn max_age_zero_wants_a_login_of_its_own_which_each_is() {
    let world = World::new().await;
    let mut browser = world.browser();
    completed(&mut browser).await;
    world.advance(10);
    assert!(authorize(&mut browser, "max_age=0").await.redirected("code").is_some());
}
