//! What a request wishes of OpenID Connect, as far as it is served.

use serde_json::json;
use tollgate::{Method, Policies, Policy, store::Memory};

use crate::{
    given::{self, Given},
    grants::Grant,
    world::{ADA, Answer, Browser, GRACE, World, encode, parameters, query, query_of, with},
};

async fn authorize(browser: &mut Browser, more: &str) -> Answer {
    browser.get(&format!("/authorize?{}&state=xyz&{more}", query("web"))).await
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
    browser.log_in("web", ADA).await;
    assert!(authorize(&mut browser, "prompt=none").await.redirected("code").is_some());
}

#[tokio::test]
async fn whatever_max_age_is_a_login_for_this_request_meets_it_and_says_when_it_was() {
    let world = World::new().await;
    for (more, age) in [("max_age=1", 2), ("max_age=1", 290), ("max_age=0", 60)] {
        let given = Given::of(&tokens_after(&world, more, age).await);
        let id_token = given::claims(given.id());
        assert_eq!(id_token["auth_time"], world.time().as_secs() - age, "{more}");
    }
    let mut browser = world.browser();
    browser.log_in("web", ADA).await;
    let answer = authorize(&mut browser, "max_age=sixty").await;
    assert_eq!(answer.redirected("error").as_deref(), Some("invalid_request"));
}

/// The error that the client is told.
async fn told(browser: &mut Browser, more: &str) -> Option<String> {
    let answer = authorize(browser, more).await;
    assert_eq!((answer.redirected("code"), answer.status.as_u16()), (None, 302), "{more} {answer:?}");
    answer.redirected("error")
}

#[tokio::test]
async fn c025_wishes_that_can_not_be_read_or_served_are_told_at_the_redirect_uri() {
    let world = World::new().await;
    let mut browser = world.browser();
    browser.log_in("web", ADA).await;
    for (more, error) in [
        ("prompt=none%20login", "invalid_request"),
        ("prompt=create", "invalid_request"),
        ("max_age=-1", "invalid_request"),
        ("response_mode=fragment", "invalid_request"),
        ("response_mode=form_post", "invalid_request"),
        ("nonce=%C3%A9", "invalid_request"),
        ("dpop_jkt=short", "invalid_request"),
        ("claims=x", "invalid_request"),
        ("claims=%7B%22id_token%22:%7B%22acr%22:1%7D%7D", "invalid_request"),
        ("request=eyJhbGciOiJub25lIn0.e30.", "request_not_supported"),
        ("request_uri=https://app.example/request.jwt", "request_uri_not_supported"),
    ] {
        assert_eq!(told(&mut browser, more).await.as_deref(), Some(error), "{more}");
        let page = browser.get(&format!("/authentication/start?{}&{more}", query("web"))).await;
        assert_eq!(page.redirected("error").as_deref(), Some(error), "{more}");
    }
    let more = "response_mode=query&nonce=n-0S6&claims=%7B%22userinfo%22:%7B%22email%22:null%7D%7D&login_hint=ada";
    assert!(authorize(&mut browser, more).await.redirected("code").is_some());
}

fn demanding(levels: &str) -> String {
    let claims = format!(r#"{{"id_token":{{"acr":{{"essential":true,"values":[{levels}]}}}}}}"#);
    format!("claims={}", encode(&claims))
}

#[tokio::test]
async fn c025_an_essential_acr_is_met_or_no_code_is_given() {
    let policies = Policies::default().acr("two", Policy::any(2).unwrap()).unwrap();
    let keys = policies.acr("key", Policy::slots([Method::Passkey]).unwrap()).unwrap();
    let world = World::with(Memory::new(), |service| service.policies(keys)).await;
    let mut browser = world.browser();
    browser.log_in("web", ADA).await;
    // nobody knows the level, or no method that is enabled reaches it
    for unmet in [demanding(r#""gold""#), demanding(r#""key""#)] {
        let error = told(&mut browser, &unmet).await;
        assert_eq!(error.as_deref(), Some("unmet_authentication_requirements"), "{unmet}");
    }
    // one step was proved, and it takes two
    assert_eq!(told(&mut browser, &demanding(r#""gold","two""#)).await, None);
    let none = format!("prompt=none&{}", demanding(r#""two""#));
    assert_eq!(told(&mut browser, &none).await.as_deref(), Some("login_required"));
    let claims = r#"{"id_token":{"acr":{"essential":true,"value":"two"}}}"#;
    let body = with(parameters("web"), &[("identifier", ADA), ("claims", claims)]);
    let started = browser.post("/authentication/start", &body).await.json();
    assert_eq!(started["required_steps"], 2);
    let body = with(body, &[("claims", r#"{"id_token":{"acr":{"essential":true,"value":"gold"}}}"#)]);
    let refused = browser.post("/authentication/start", &body).await;
    assert_eq!((refused.status.as_u16(), &*refused.error()), (403, "unmet_authentication_requirements"));
    // what is only wished for hinders nobody
    let wished = format!("claims={}", encode(r#"{"id_token":{"acr":{"values":["gold"]}}}"#));
    assert!(authorize(&mut browser, &wished).await.redirected("code").is_some());
}

#[tokio::test]
async fn c025_a_code_is_for_the_user_whom_the_request_means() {
    let world = World::new().await;
    let mut browser = world.browser();
    browser.log_in("web", ADA).await;
    let meaning = |how: &str| format!("claims={}", encode(&format!(r#"{{"id_token":{{"sub":{{{how}}}}}}}"#)));
    for others in [r#""value":"u-grace""#, r#""values":["u-grace","u-x"]"#] {
        assert_eq!(told(&mut browser, &meaning(others)).await.as_deref(), Some("login_required"), "{others}");
    }
    for hers in [r#""value":"u-ada""#, r#""values":["u-ada","u-grace"]"#, r#""values":["u-grace","u-ada"]"#] {
        assert!(authorize(&mut browser, &meaning(hers)).await.redirected("code").is_some(), "{hers}");
        world.advance(1);
        browser.log_in("web", ADA).await;
    }
}

#[tokio::test]
async fn a_start_takes_the_same_wishes() {
    let world = World::new().await;
    let mut browser = world.browser();
    for (name, value, status) in [
        ("max_age", json!(60), 200),
        ("max_age", json!("60"), 200),
        ("max_age", json!("x"), 400),
        ("max_age", json!(-1), 400),
        ("prompt", json!("login consent"), 200),
        ("prompt", json!("none login"), 400),
        ("nonce", json!("n"), 200),
        ("nonce", json!("\n"), 400),
        ("dpop_jkt", json!("x"), 400),
        ("claims", json!("{}"), 200),
        ("claims", json!("[]"), 400),
        ("claims", json!({ "id_token": { "email": null } }), 200),
        ("claims", json!({ "id_token": [] }), 400),
        ("claims", json!({ "userinfo": { "x": "x".repeat(4096) } }), 400),
        ("claims", json!({}), 200),
        ("claims", json!(null), 200),
        ("claims", json!([]), 400),
        ("claims", json!(1), 400),
    ] {
        let mut body = with(parameters("web"), &[("identifier", ADA)]);
        body[name] = value;
        let answer = browser.post("/authentication/start", &body).await;
        assert_eq!(answer.status, status, "{body} {answer:?}");
    }
}

/// A whole login of ada with more in the URL of its end, to what its code gives.
async fn tokens(world: &World, more: &str) -> Answer {
    tokens_after(world, more, 0).await
}

/// The same, where so much time goes by before the browser comes back.
async fn tokens_after(world: &World, more: &str, seconds: u64) -> Answer {
    let mut browser = world.browser();
    let (own, verifier) = browser.log_in_with("web", &[]).await;
    world.advance(seconds);
    let answer = browser.get(&format!("/authorize?{}&{more}", query_of(&own))).await;
    let code = answer.redirected("code").unwrap_or_else(|| panic!("{answer:?}"));
    browser.redeem("web", &Grant { code, verifier }).await
}

#[tokio::test]
async fn c025_an_id_token_hints_at_its_user_be_it_that_it_has_expired() {
    let world = World::new().await;
    let mut browser = world.browser();
    let given = Given::of(&tokens(&world, "").await);
    let hint = given.id();
    world.advance(3600);
    let hinted = format!("id_token_hint={hint}");
    let none = format!("prompt=none&{hinted}");
    assert_eq!(told(&mut browser, &none).await.as_deref(), Some("login_required"));
    browser.log_in("web", GRACE).await;
    for more in [&hinted, &none] {
        assert_eq!(told(&mut browser, more).await.as_deref(), Some("login_required"));
    }
    // what is no id_token of this client is none
    let (head, signature) = hint.rsplit_once('.').unwrap();
    let forged = format!("{head}.{}", signature.chars().rev().collect::<String>());
    for wrong in ["x", &forged, &format!("{hint}x")] {
        let error = told(&mut browser, &format!("id_token_hint={wrong}")).await;
        assert_eq!(error.as_deref(), Some("invalid_request"), "{wrong}");
    }
    let mfa = browser.get(&format!("/authorize?{}&{hinted}", query("mfa"))).await;
    assert_eq!(mfa.redirected("error").as_deref(), Some("invalid_request"));
    world.advance(1);
    browser.log_in("web", ADA).await;
    assert!(authorize(&mut browser, &hinted).await.redirected("code").is_some());
}

#[tokio::test]
async fn what_a_request_wishes_of_the_tokens_is_in_them() {
    let world = World::new().await;
    let claims = r#"{"id_token":{"email":null},"userinfo":{"phone_number":null}}"#;
    let answer = tokens(&world, &format!("nonce=n-0S6%20x&claims={}", encode(claims))).await;
    let id_token = given::claims(Given::of(&answer).id());
    assert_eq!((&id_token["nonce"], &id_token["email"]), (&json!("n-0S6 x"), &json!(ADA)), "{id_token}");
    let session = &world.sessions.list(&"acme".parse().unwrap(), &"u-ada".parse().unwrap()).await.unwrap()[0];
    assert_eq!(id_token["sid"], session.sid().to_string());
    // bound to a key that the request for tokens does not prove
    let bound = tokens(&world, "dpop_jkt=0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I").await;
    assert_eq!(bound.error(), "invalid_dpop_proof");
}
