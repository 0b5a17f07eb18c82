//! Optional parameters of OpenID Connect.

use serde_json::json;
use tollgate::{
    AuthService, ClientIp, Policies, StoredUsers,
    delivery::Outbox,
    policy::{Method, Policy},
    store::Memory,
};

use crate::{
    issued_tokens::{self, IssuedTokens},
    token_requests::Grant,
    world::{
        ADA, ADA_PASSWORD, Answer, Browser, GRACE, ISSUER, World, clients, encode, parameters, query, query_of, with,
    },
};

async fn authorize(browser: &mut Browser, more: &str) -> Answer {
    browser.get(&format!("/authorize?{}&state=xyz&{more}", query("web"))).await
}

#[tokio::test]
async fn prompt_none_without_a_login_returns_an_error_and_shows_no_page() {
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
async fn any_max_age_is_met_by_a_login_for_this_request_and_the_id_token_has_its_time() {
    let world = World::new().await;
    for (more, age) in [("max_age=1", 2), ("max_age=1", 290), ("max_age=0", 60)] {
        let issued = IssuedTokens::of(&tokens_after(&world, more, age).await);
        let id_token = issued_tokens::claims(issued.id());
        assert_eq!(id_token["auth_time"], world.time().as_secs() - age, "{more}");
    }
    let mut browser = world.browser();
    browser.log_in("web", ADA).await;
    let answer = authorize(&mut browser, "max_age=sixty").await;
    assert_eq!(answer.redirected("error").as_deref(), Some("invalid_request"));
}

/// Returns the error that is sent to the client.
async fn error_sent_to_client(browser: &mut Browser, more: &str) -> Option<String> {
    let answer = authorize(browser, more).await;
    assert_eq!((answer.redirected("code"), answer.status.as_u16()), (None, 302), "{more} {answer:?}");
    answer.redirected("error")
}

#[tokio::test]
async fn c025_malformed_or_unsupported_parameters_are_reported_at_the_redirect_uri() {
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
        assert_eq!(error_sent_to_client(&mut browser, more).await.as_deref(), Some(error), "{more}");
        let page = browser.get(&format!("/authentication/start?{}&{more}", query("web"))).await;
        assert_eq!(page.redirected("error").as_deref(), Some(error), "{more}");
    }
    let more = "response_mode=query&nonce=n-0S6&claims=%7B%22userinfo%22:%7B%22email%22:null%7D%7D&login_hint=ada";
    assert!(authorize(&mut browser, more).await.redirected("code").is_some());
}

fn essential_acr(levels: &str) -> String {
    let claims = format!(r#"{{"id_token":{{"acr":{{"essential":true,"values":[{levels}]}}}}}}"#);
    format!("claims={}", encode(&claims))
}

#[tokio::test]
async fn c025_no_code_is_issued_unless_an_essential_acr_is_met() {
    let policies = Policies::default().acr("two", Policy::any(2).unwrap()).unwrap();
    // a level that no enabled method can reach is refused when the service is built
    let keys = policies.clone().acr("key", Policy::slots([Method::Passkey]).unwrap()).unwrap();
    let service = AuthService::builder(ISSUER, Memory::new()).clients(clients()).client_ip(ClientIp::peer());
    let service = service.users(StoredUsers::new(Memory::new())).email(Outbox::new()).policies(keys);
    assert!(service.build().unwrap_err().to_string().contains("key"));
    let world = World::with(Memory::new(), |service| service.policies(policies)).await;
    let mut browser = world.browser();
    browser.log_in("web", ADA).await;
    // an unknown level
    let error = error_sent_to_client(&mut browser, &essential_acr(r#""gold""#)).await;
    assert_eq!(error.as_deref(), Some("unmet_authentication_requirements"));
    // one step was proved, but the level requires two
    assert_eq!(error_sent_to_client(&mut browser, &essential_acr(r#""gold","two""#)).await, None);
    let none = format!("prompt=none&{}", essential_acr(r#""two""#));
    assert_eq!(error_sent_to_client(&mut browser, &none).await.as_deref(), Some("login_required"));
    let claims = r#"{"id_token":{"acr":{"essential":true,"value":"two"}}}"#;
    let body = with(parameters("web"), &[("identifier", ADA), ("claims", claims)]);
    let started = browser.post("/authentication/start", &body).await.json();
    assert_eq!(started["required_steps"], 2);
    let body = with(body, &[("claims", r#"{"id_token":{"acr":{"essential":true,"value":"gold"}}}"#)]);
    let refused = browser.post("/authentication/start", &body).await;
    assert_eq!((refused.status.as_u16(), &*refused.error()), (403, "unmet_authentication_requirements"));
    // a voluntary request has no effect
    let wished = format!("claims={}", encode(r#"{"id_token":{"acr":{"values":["gold"]}}}"#));
    assert!(authorize(&mut browser, &wished).await.redirected("code").is_some());
}

#[tokio::test]
async fn c025_a_code_is_issued_only_for_the_requested_user() {
    let world = World::new().await;
    let mut browser = world.browser();
    browser.log_in("web", ADA).await;
    let meaning = |how: &str| format!("claims={}", encode(&format!(r#"{{"id_token":{{"sub":{{{how}}}}}}}"#)));
    for others in [r#""value":"u-grace""#, r#""values":["u-grace","u-x"]"#] {
        assert_eq!(
            error_sent_to_client(&mut browser, &meaning(others)).await.as_deref(),
            Some("login_required"),
            "{others}"
        );
    }
    for hers in [r#""value":"u-ada""#, r#""values":["u-ada","u-grace"]"#, r#""values":["u-grace","u-ada"]"#] {
        assert!(authorize(&mut browser, &meaning(hers)).await.redirected("code").is_some(), "{hers}");
        world.advance(1);
        browser.log_in("web", ADA).await;
    }
}

#[tokio::test]
async fn a_start_accepts_the_same_optional_parameters() {
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

/// Logs ada in with more parameters in the URL of `/authorize`. Returns the response of `/token`.
async fn tokens(world: &World, more: &str) -> Answer {
    tokens_after(world, more, 0).await
}

/// Logs ada in and waits before the browser returns. Returns the response of `/token`.
async fn tokens_after(world: &World, more: &str, seconds: u64) -> Answer {
    let mut browser = world.browser();
    let (own, verifier) = browser.log_in_with("web", &[]).await;
    world.advance(seconds);
    let answer = browser.get(&format!("/authorize?{}&{more}", query_of(&own))).await;
    let code = answer.redirected("code").unwrap_or_else(|| panic!("{answer:?}"));
    browser.redeem("web", &Grant { code, verifier }).await
}

#[tokio::test]
async fn c025_even_an_expired_id_token_identifies_the_expected_user() {
    let world = World::new().await;
    let mut browser = world.browser();
    let issued = IssuedTokens::of(&tokens(&world, "").await);
    let hint = issued.id();
    world.advance(3600);
    let hinted = format!("id_token_hint={hint}");
    let none = format!("prompt=none&{hinted}");
    assert_eq!(error_sent_to_client(&mut browser, &none).await.as_deref(), Some("login_required"));
    browser.log_in("web", GRACE).await;
    for more in [&hinted, &none] {
        assert_eq!(error_sent_to_client(&mut browser, more).await.as_deref(), Some("login_required"));
    }
    // anything but an id_token of this client is refused
    let (head, signature) = hint.rsplit_once('.').unwrap();
    let forged = format!("{head}.{}", signature.chars().rev().collect::<String>());
    for wrong in ["x", &forged, &format!("{hint}x")] {
        let error = error_sent_to_client(&mut browser, &format!("id_token_hint={wrong}")).await;
        assert_eq!(error.as_deref(), Some("invalid_request"), "{wrong}");
    }
    let mfa = browser.get(&format!("/authorize?{}&{hinted}", query("mfa"))).await;
    assert_eq!(mfa.redirected("error").as_deref(), Some("invalid_request"));
    world.advance(1);
    browser.log_in("web", ADA).await;
    assert!(authorize(&mut browser, &hinted).await.redirected("code").is_some());
}

#[tokio::test]
async fn requested_claims_nonce_and_sid_are_in_the_tokens() {
    let world = World::new().await;
    let claims = r#"{"id_token":{"email":null},"userinfo":{"phone_number":null}}"#;
    let answer = tokens(&world, &format!("nonce=n-0S6%20x&claims={}", encode(claims))).await;
    let id_token = issued_tokens::claims(IssuedTokens::of(&answer).id());
    assert_eq!((&id_token["nonce"], &id_token["email"]), (&json!("n-0S6 x"), &json!(ADA)), "{id_token}");
    let session = &world.sessions.list(&"acme".parse().unwrap(), &"u-ada".parse().unwrap()).await.unwrap()[0];
    assert_eq!(id_token["sid"], session.sid().to_string());
    // the code is bound to a key that the token request does not prove
    let bound = tokens(&world, "dpop_jkt=0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I").await;
    assert_eq!(bound.error(), "invalid_dpop_proof");
}

/// Returns the required steps of a login of `web` with this parameter, at the start and on the login page.
async fn required(browser: &mut Browser, name: &str, value: &str) -> Result<u64, String> {
    let body = with(parameters("web"), &[("identifier", ADA), (name, value)]);
    let started = browser.post("/authentication/start", &body).await;
    let target = format!("/authentication/start?{}&{name}={}", query("web"), encode(value));
    let shown = browser.send(http::Request::get(target).header("accept", "application/json"), "").await;
    match started.json()["required_steps"].as_u64() {
        Some(steps) => {
            assert_eq!(shown.json()["required_steps"], steps, "{value}");
            Ok(steps)
        }
        None => Err(started.error()),
    }
}

#[tokio::test]
async fn c025_the_first_requested_level_that_can_be_met_counts() {
    let policies = Policies::default().acr("one", Policy::any(1).unwrap()).unwrap();
    let policies = policies.acr("two", Policy::any(2).unwrap()).unwrap();
    let world = World::with(Memory::new(), |service| service.policies(policies)).await;
    let mut browser = world.browser();
    for (levels, steps) in
        [("two", 2), ("two one", 2), ("one two", 1), ("gold two", 2), ("gold silver one two", 1), ("two gold", 2)]
    {
        assert_eq!(required(&mut browser, "acr_values", levels).await, Ok(steps), "{levels}");
        let names = format!("\"{}\"", levels.replace(' ', "\",\""));
        for essential in [true, false] {
            let claims = format!(r#"{{"id_token":{{"acr":{{"essential":{essential},"values":[{names}]}}}}}}"#);
            assert_eq!(required(&mut browser, "claims", &claims).await, Ok(steps), "{claims}");
        }
    }
    // the token names the level
    let (own, verifier) = browser.log_in_with("web", &[("acr_values", "gold one two")]).await;
    let answer = browser.get(&format!("/authorize?{}", query_of(&own))).await;
    let code = answer.redirected("code").unwrap_or_else(|| panic!("{answer:?}"));
    let issued = IssuedTokens::of(&browser.redeem("web", &Grant { code, verifier }).await);
    assert_eq!(issued_tokens::claims(issued.id())["acr"], "one");
}

#[tokio::test]
async fn c025_a_voluntary_level_that_cannot_be_met_does_not_block_the_login() {
    let world = World::new().await;
    let mut browser = world.browser();
    assert_eq!(required(&mut browser, "acr_values", "gold silver").await, Ok(1));
    for claims in [
        r#"{"id_token":{"acr":{"values":["gold","silver"]}}}"#,
        r#"{"id_token":{"acr":{"value":"gold"}}}"#,
        r#"{"id_token":{"acr":{"essential":false,"value":"gold"}}}"#,
        r#"{"id_token":{"acr":null}}"#,
    ] {
        assert_eq!(required(&mut browser, "claims", claims).await, Ok(1), "{claims}");
        for name in ["claims", "acr_values"] {
            let value = if name == "claims" { claims } else { "gold silver" };
            let (own, verifier) = browser.log_in_with("web", &[(name, value)]).await;
            let answer = browser.get(&format!("/authorize?{}", query_of(&own))).await;
            let code = answer.redirected("code").unwrap_or_else(|| panic!("{claims} {answer:?}"));
            let issued = IssuedTokens::of(&browser.redeem("web", &Grant { code, verifier }).await);
            assert!(issued_tokens::claims(issued.id())["acr"].is_null(), "no level was reached");
        }
    }
    let essential = r#"{"id_token":{"acr":{"essential":true,"value":"gold"}}}"#;
    let refused = required(&mut browser, "claims", essential).await;
    assert_eq!(refused, Err("unmet_authentication_requirements".to_owned()));
}

#[tokio::test]
async fn c025_consent_is_requested_even_if_a_login_for_the_same_parameters_is_completed() {
    let world = World::new().await;
    for prompt in ["consent", "select_account", "consent login"] {
        let mut browser = world.browser();
        let more = format!("prompt={}", encode(prompt));
        browser.log_in("web", ADA).await;
        let answer = authorize(&mut browser, &more).await;
        assert!(answer.header("location").starts_with("/authentication/start?"), "{prompt} {answer:?}");
        // the page starts another login with the prompt, and the user authenticates there
        let body = with(parameters("web"), &[("identifier", ADA), ("prompt", prompt)]);
        let id = browser.post("/authentication/start", &body).await.json()["session_id"].as_str().unwrap().to_owned();
        assert!(authorize(&mut browser, &more).await.redirected("code").is_none(), "{prompt}");
        assert_eq!(browser.password("web", &id, ADA, ADA_PASSWORD).await.status, 200);
        assert_eq!(browser.complete("web", &id).await.status, 200);
        assert!(authorize(&mut browser, &more).await.redirected("code").is_some(), "{prompt}");
        assert!(authorize(&mut browser, &more).await.redirected("code").is_none(), "each confirmation yields one code");
    }
}
