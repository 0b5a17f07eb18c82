//! The callback of another identity provider works in one browser, for one login, and once.

use http::{Method, Request};
use serde_json::json;

use crate::{
    sso_provider::{Accounts, SsoWorld, asked, begun, is_open, outcome, sent, with_parameter},
    world::{ADA, ADA_PASSWORD, Answer, Browser},
};

/// The one answer to a callback that no login of the browser waits for.
fn is_refused(answer: &Answer) -> bool {
    (answer.status.as_u16(), answer.error().as_str()) == (401, "sso_failed")
}

async fn refused(browser: &mut Browser, target: &str) {
    let answer = browser.get(target).await;
    assert!(is_refused(&answer), "{target}: {answer:?}");
}

#[tokio::test]
async fn c082_a_user_comes_back_and_gets_a_code() {
    let world = SsoWorld::new().await;
    let mut browser = world.world.browser();
    let id = begun(&mut browser, "web").await;
    let answer = world.dance(&mut browser, "web", &id).await;
    assert_eq!(outcome(&answer), "ok");
    assert!(answer.header("location").starts_with("/authentication/start?client_id=web&"));
    let status = browser.status(&id).await.json();
    assert_eq!((&status["status"], &status["completed_steps"]), (&json!("success"), &json!(1)));
    assert_eq!(browser.complete("web", &id).await.status, 200);
    let code = browser.authorize("web").await;
    assert!(code.redirected("code").is_some(), "{code:?}");
}

#[tokio::test]
async fn c082_the_state_belongs_to_one_login_in_one_browser_and_is_used_once() {
    let world = SsoWorld::new().await;
    let (mut browser, mut other) = (world.world.browser(), world.world.browser());
    let (id, others) = (begun(&mut browser, "web").await, begun(&mut other, "web").await);
    let url = sent(&mut browser, "web", &id).await;
    let target = world.provider.signs_in(&url);

    // another browser has its own login, or none
    refused(&mut other, &target).await;
    refused(&mut world.world.browser(), &target).await;
    // the cookie of another login does not help, nor does the state of one
    let second = begun(&mut browser, "web").await;
    let foreign = asked(&sent(&mut other, "web", &others).await)["state"].clone();
    refused(&mut browser, &with_parameter(&target, "state", &foreign)).await;
    let secret = asked(&url)["state"].split_once('.').unwrap().1.to_owned();
    refused(&mut browser, &with_parameter(&target, "state", &format!("{second}.{secret}"))).await;
    for wrong in ["", "x", "x.y", &id, &format!("{id}."), &format!("{id}.{}", "A".repeat(43))] {
        refused(&mut browser, &with_parameter(&target, "state", wrong)).await;
    }
    refused(&mut browser, "/authentication/sso/idp/callback").await;
    refused(&mut browser, &target.replace("/idp/", "/other/")).await;
    for (method, status) in [(Method::HEAD, 401), (Method::POST, 405)] {
        let answer = browser.send(Request::builder().method(method.clone()).uri(&target), "").await;
        assert_eq!(answer.status, status, "{method}");
    }
    let prefetch = Request::get(&target).header("sec-purpose", "prefetch");
    assert_eq!(browser.send(prefetch, "").await.status, 503);
    let twice = format!("{target}&code=x");
    assert_eq!(browser.get(&twice).await.error(), "invalid_request");
    assert_eq!(world.provider.calls("/token").len(), 0, "no code was redeemed");
    assert!(
        is_open(&mut browser, &id).await && is_open(&mut browser, &second).await && is_open(&mut other, &others).await
    );

    // none of it has used up the challenge
    assert_eq!(outcome(&browser.get(&target).await), "ok");
    refused(&mut browser, &target).await;
    assert_eq!(world.provider.calls("/token").len(), 1);
    assert_eq!(browser.status(&id).await.json()["completed_steps"], 1);
}

#[tokio::test]
async fn c082_the_state_ends_after_ten_minutes_and_with_a_newer_one() {
    let world = SsoWorld::new().await;
    let mut browser = world.world.browser();
    let id = begun(&mut browser, "web").await;
    let old = world.provider.signs_in(&sent(&mut browser, "web", &id).await);
    let target = world.provider.signs_in(&sent(&mut browser, "web", &id).await);
    refused(&mut browser, &old).await;
    // the login itself does not end yet, because something happens in it
    world.world.advance(300);
    assert_eq!(browser.password("web", &id, "nobody", "wrong").await.status, 401);
    world.world.advance(300);
    // it proves nothing, and leads to a new sign-in
    assert_eq!(outcome(&browser.get(&target).await), "expired");
    assert!(is_open(&mut browser, &id).await && world.provider.calls("/token").is_empty());
    let target = world.provider.signs_in(&sent(&mut browser, "web", &id).await);
    world.world.advance(599);
    // the ID token is issued now
    assert_eq!(outcome(&browser.get(&target).await), "ok");
}

#[tokio::test]
async fn c082_callbacks_at_the_same_time_redeem_the_code_once() {
    let world = SsoWorld::new().await;
    let mut browser = world.world.browser();
    let id = begun(&mut browser, "web").await;
    let target = world.provider.signs_in(&sent(&mut browser, "web", &id).await);
    let mut tabs: Vec<Browser> = (0..4).map(|_| browser.clone()).collect();
    let answers = crate::world::join(tabs.iter_mut().map(|tab| tab.get(&target))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 303).count(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| answer.status == 401).count(), 3);
    assert_eq!(world.provider.calls("/token").len(), 1);
}

#[tokio::test]
async fn c082_a_challenge_of_another_method_closes_the_one_of_the_provider() {
    let world = SsoWorld::new().await;
    let mut browser = world.world.browser();
    let id = begun(&mut browser, "web").await;
    let target = world.provider.signs_in(&sent(&mut browser, "web", &id).await);
    assert_eq!(browser.ask("web", &id, "email", ADA).await.status, 200);
    refused(&mut browser, &target).await;
    // and the other way around
    let code = world.world.code(ADA).await;
    sent(&mut browser, "web", &id).await;
    assert_eq!(browser.verify("web", &id, &code).await.error(), "no_pending_challenge");
}

#[tokio::test]
async fn c085_a_user_who_cancels_is_back_at_the_login() {
    let world = SsoWorld::new().await;
    let mut browser = world.world.browser();
    let id = begun(&mut browser, "web").await;
    for (error, expected) in [
        ("access_denied", "denied"),
        ("server_error", "unavailable"),
        ("temporarily_unavailable", "unavailable"),
        ("login_required", "failed"),
        ("invalid_request", "failed"),
    ] {
        world.provider.set(|provider| provider.callback = json!({ "code": null, "error": error }));
        assert_eq!(outcome(&world.dance(&mut browser, "web", &id).await), expected, "{error}");
        assert!(is_open(&mut browser, &id).await, "{error}");
    }
    assert_eq!(world.provider.calls("/token").len(), 0);
    // canceling is no failure, however often it happens
    world.provider.set(|provider| provider.callback = json!({ "code": null, "error": "access_denied" }));
    for _ in 0..20 {
        assert_eq!(outcome(&world.dance(&mut browser, "web", &id).await), "denied");
    }
    // the login goes on, also with another method
    assert_eq!(browser.password("web", &id, ADA, ADA_PASSWORD).await.status, 200);
}

#[tokio::test]
async fn c085_wrong_answers_end_a_login_after_as_many_as_wrong_passwords_do() {
    let world = SsoWorld::new().await;
    let mut browser = world.world.browser();
    let id = begun(&mut browser, "web").await;
    world.provider.set(|provider| provider.claims = json!({ "nonce": "another" }));
    for failure in 1..=15 {
        assert_eq!(outcome(&world.dance(&mut browser, "web", &id).await), "failed");
        let expected = if failure < 15 { "pending" } else { "failed" };
        assert_eq!(browser.status(&id).await.json()["status"], expected, "{failure}");
    }
    let answer = browser.call("authenticate", "web", &id, &[("method", "sso"), ("provider", "idp")]).await;
    assert_eq!(answer.error(), "session_failed");
}

#[tokio::test]
async fn a_person_sees_a_page_if_no_login_waits_for_an_answer() {
    let world = SsoWorld::new().await;
    let mut browser = world.world.browser();
    let request = Request::get("/authentication/sso/idp/callback?state=x&code=y").header("accept", "text/html");
    let answer = browser.send(request, "").await;
    assert_eq!((answer.status.as_u16(), answer.header("content-type")), (401, "text/html; charset=utf-8"));
    assert!(answer.text.contains("../../page.css") && answer.text.contains("sso_failed"), "{}", answer.text);
}

#[tokio::test]
async fn a_sign_in_to_the_site_itself_returns_to_its_login_page() {
    let clock = tollgate::testing::ManualClock::new();
    let provider = crate::sso_provider::Provider::start(&clock).await;
    let connection = tollgate::sso::SsoConnection::new(crate::sso_provider::oidc(&provider))
        .create_account(Accounts(&[("ada-there", "u-ada")]));
    let acme: tollgate::Tenant = "acme".parse().unwrap();
    let world = crate::world::World::on(tollgate::store::Memory::new().into(), clock, |service| {
        service.sso("idp", connection).first_party(acme)
    })
    .await;
    let mut browser = world.browser();
    let page = browser.get("/sign-in?return_to=%2Faccount%3Ftab%3D1").await.header("location").to_owned();
    let parameters = crate::sso_provider::pairs(page.split_once('?').unwrap().1);
    let body = serde_json::to_value(&parameters).unwrap();
    let id = browser.post("/authentication/start", &body).await.json()["session_id"].as_str().unwrap().to_owned();
    let more = [("session_id", id.as_str()), ("method", "sso"), ("provider", "idp")];
    let body = crate::world::with(body, &more);
    let answer = browser.post("/authentication/authenticate", &body).await;
    let url = answer.json()["redirect_url"].as_str().unwrap().to_owned();
    let answer = browser.get(&provider.signs_in(&url)).await;
    assert_eq!(answer.header("location"), format!("{page}#sso=ok"));
    assert_eq!(browser.post("/authentication/complete", &body).await.status, 200);
    assert_eq!(browser.get("/sign-in/finish").await.header("location"), "/account?tab=1");
}

#[tokio::test]
async fn c085_an_address_that_makes_up_answers_soon_causes_no_calls_to_the_provider() {
    let world = SsoWorld::new().await;
    let mut browser = world.world.browser();
    let made_up = async |browser: &mut Browser, id: &str| {
        let url = sent(browser, "web", id).await;
        let answer = browser.get(&with_parameter(&world.provider.signs_in(&url), "code", "made-up")).await;
        outcome(&answer).to_owned()
    };
    let waiting = begun(&mut browser, "web").await;
    for _ in 0..5 {
        let mut tab = world.world.browser();
        let id = begun(&mut tab, "web").await;
        for _ in 0..12 {
            assert_eq!(made_up(&mut tab, &id).await, "failed");
        }
    }
    let calls = || world.provider.calls("/token").len();
    assert_eq!(calls(), 60);
    // the failures of this address are used up, also for a good answer
    assert_eq!(outcome(&world.dance(&mut browser, "web", &waiting).await), "unavailable");
    assert_eq!(calls(), 60, "the provider was called");
    assert!(is_open(&mut browser, &waiting).await);
    let mut elsewhere = world.world.browser();
    elsewhere.address = [192, 0, 2, 9].into();
    let id = begun(&mut elsewhere, "web").await;
    assert_eq!(outcome(&world.dance(&mut elsewhere, "web", &id).await), "ok");
    // a minute later, the login goes on
    world.world.advance(60);
    assert_eq!(outcome(&world.dance(&mut browser, "web", &waiting).await), "ok");
}
