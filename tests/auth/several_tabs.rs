//! Logins that finish in several tabs of one browser, and what a sign-out does to them.

use std::time::Duration;

use http::Request;
use serde_json::json;

use crate::{
    five_tenants::{Begun, tenant, world, world_with},
    issued_tokens::{IssuedTokens, all_are},
    world::{
        ADA, ADA_PASSWORD, Answer, Browser, GRACE, GRACE_PASSWORD, ISSUER, World, form_of, join, parameters, posted,
        query_of, with,
    },
};

/// A login that is completed and not spent yet.
async fn completed(browser: &mut Browser, client: &str, name: &str, password: &str, more: &[(&str, &str)]) -> Begun {
    let login = browser.begin(client, &[&[("identifier", name), ("prompt", "login")], more].concat()).await;
    assert_eq!(browser.prove_password(&login, name, password).await.status, 200);
    assert_eq!(browser.step(&login, "complete", &[]).await.status, 200);
    login
}

async fn live(world: &World, user: &str) -> usize {
    world.sessions_of(&tenant("acme"), user).await.len()
}

async fn log_out(browser: &mut Browser) -> Answer {
    let request = posted("/logout").header("sec-fetch-site", "same-origin").header("origin", ISSUER);
    browser.send(request.header("accept", "text/html"), form_of(&[("confirmed", "yes")])).await
}

#[tokio::test]
async fn two_tabs_that_finish_with_the_same_cookies_share_one_session() {
    for is_signed_in in [false, true] {
        let world = world().await;
        let mut browser = world.browser();
        if is_signed_in {
            browser.sign_in_as(&world, "acme-web", (ADA, ADA_PASSWORD), None, &[]).await;
        }
        let first = completed(&mut browser, "acme-web", ADA, ADA_PASSWORD, &[]).await;
        let second = completed(&mut browser, "acme-web", ADA, ADA_PASSWORD, &[]).await;
        let mut other_tab = browser.clone();
        let one = browser.return_of(&first).await.unwrap();
        let two = other_tab.return_of(&second).await.unwrap();
        assert_eq!(live(&world, "u-ada").await, 1, "{is_signed_in}");
        // the cookies of the second answer replace those of the first
        let one = IssuedTokens::of(&other_tab.redeem("acme-web", &one).await);
        let two = IssuedTokens::of(&other_tab.redeem("acme-web", &two).await);
        for given in [&one, &two] {
            all_are(true, &world, "acme-web", given).await;
        }
        assert_eq!(log_out(&mut other_tab).await.status, 200);
        assert_eq!(live(&world, "u-ada").await, 0);
        for given in [&one, &two] {
            all_are(false, &world, "acme-web", given).await;
        }
    }
}

#[tokio::test]
async fn tabs_that_finish_at_the_same_moment_share_one_session() {
    for _ in 0..16 {
        let world = world().await;
        let mut browser = world.browser();
        let mut tabs = Vec::new();
        for _ in 0..3 {
            tabs.push(completed(&mut browser, "acme-web", ADA, ADA_PASSWORD, &[]).await);
        }
        let answers = join(tabs.into_iter().map(|login| {
            let mut tab = browser.clone();
            async move { tab.return_of(&login).await }
        }))
        .await;
        assert!(answers.iter().any(Result::is_ok));
        assert_eq!(live(&world, "u-ada").await, 1);
    }
}

#[tokio::test]
async fn a_tab_that_signs_in_somebody_else_ends_the_session_of_the_other_tab() {
    let world = world().await;
    let mut browser = world.browser();
    let ada = completed(&mut browser, "acme-web", ADA, ADA_PASSWORD, &[]).await;
    let grace = completed(&mut browser, "acme-web", GRACE, GRACE_PASSWORD, &[]).await;
    let mut other_tab = browser.clone();
    let code = browser.return_of(&ada).await.unwrap();
    let of_ada = IssuedTokens::of(&browser.redeem("acme-web", &code).await);
    all_are(true, &world, "acme-web", &of_ada).await;
    other_tab.return_of(&grace).await.unwrap();
    assert_eq!((live(&world, "u-ada").await, live(&world, "u-grace").await), (0, 1));
    all_are(false, &world, "acme-web", &of_ada).await;
}

#[tokio::test]
async fn a_login_that_joined_the_session_of_another_tab_leads_to_that_session() {
    let world = world().await;
    let mut browser = world.browser();
    let first = completed(&mut browser, "acme-web", ADA, ADA_PASSWORD, &[]).await;
    let joining = completed(&mut browser, "acme-web", ADA, ADA_PASSWORD, &[]).await;
    let grace = completed(&mut browser, "acme-web", GRACE, GRACE_PASSWORD, &[]).await;
    let mut other_tab = browser.clone();
    let mut third_tab = browser.clone();
    browser.return_of(&first).await.unwrap();
    other_tab.return_of(&joining).await.unwrap();
    assert_eq!(live(&world, "u-ada").await, 1);
    // of both logins, the third tab carries only the one that joined
    third_tab.cookies.remove(&format!("__Host-auth_session_{}", &first.id[..8])).unwrap();
    third_tab.return_of(&grace).await.unwrap();
    assert_eq!((live(&world, "u-ada").await, live(&world, "u-grace").await), (0, 1));
}

#[tokio::test]
async fn after_a_logout_no_login_of_the_browser_gives_a_code() {
    let world = world().await;
    let mut browser = world.browser();
    browser.sign_in_as(&world, "acme-web", (ADA, ADA_PASSWORD), None, &[]).await;
    let unspent = completed(&mut browser, "acme-web", ADA, ADA_PASSWORD, &[]).await;
    let waiting = browser.begin("acme-web", &[("identifier", ADA), ("prompt", "login")]).await;
    assert_eq!(log_out(&mut browser).await.status, 200);
    assert!(browser.return_of(&unspent).await.is_err());
    // a login in which nothing was proved goes on
    assert_eq!(browser.prove_password(&waiting, ADA, ADA_PASSWORD).await.status, 200);

    // a link from another site ends no login, also with an ID token of another user: the user is asked first
    let mut stranger = world.browser();
    let code = stranger.sign_in_as(&world, "acme-web", (GRACE, GRACE_PASSWORD), None, &[("scope", "openid")]).await;
    let issued = IssuedTokens::of(&stranger.redeem("acme-web", &code).await);
    let mut victim = world.browser();
    let login = completed(&mut victim, "acme-web", ADA, ADA_PASSWORD, &[]).await;
    for link in ["/logout".to_owned(), format!("/logout?id_token_hint={}", issued.id())] {
        let asked = victim.send(Request::get(&link).header("accept", "text/html"), "").await;
        assert!(asked.text.contains("<h1>Log out?</h1>"), "{link} {asked:?}");
    }
    assert!(victim.return_of(&login).await.is_ok());
}

#[tokio::test]
async fn after_a_sign_out_of_the_site_no_login_of_the_browser_begins_a_session() {
    let world = world_with(|service| service.first_party(tenant("acme"))).await;
    let mut browser = world.browser();
    let begin = async |browser: &mut Browser| {
        let answer = browser.get("/sign-in").await;
        let (_, query) = answer.header("location").split_once('?').unwrap();
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap());
        let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
        let fields = json!(
            pairs.map(|(name, value)| (decoded(name), decoded(value))).collect::<std::collections::BTreeMap<_, _>>()
        );
        let started = browser.post("/authentication/start", &with(fields.clone(), &[("identifier", ADA)])).await;
        let id = started.json()["session_id"].as_str().unwrap().to_owned();
        let fields = with(fields, &[("session_id", &id)]);
        let proof = [("method", "password"), ("username", ADA), ("password", ADA_PASSWORD)];
        assert_eq!(browser.post("/authentication/authenticate", &with(fields.clone(), &proof)).await.status, 200);
        assert_eq!(browser.post("/authentication/complete", &fields).await.status, 200);
    };
    begin(&mut browser).await;
    begin(&mut browser).await;
    assert_eq!(browser.get("/sign-in/finish").await.header("location"), "/");
    assert_eq!(live(&world, "u-ada").await, 1);
    let request = posted("/sign-out").header("sec-fetch-site", "same-origin");
    assert_eq!(browser.send(request, "").await.status, 303);
    assert_eq!(browser.get("/sign-in/finish").await.header("location"), "/sign-in");
    assert_eq!(live(&world, "u-ada").await, 0);
    // the device cookie does not sign the user in
    assert!(browser.cookies.keys().all(|name| name.starts_with("__Host-auth_device")), "{:?}", browser.cookies);
}

#[tokio::test]
async fn a_confirmed_login_answers_no_request_for_other_claims() {
    let world = world().await;
    let mut browser = world.browser();
    let claims = r#"{"userinfo":{"email":null},"id_token":{"email":null}}"#;
    let login = completed(&mut browser, "acme-web", ADA, ADA_PASSWORD, &[("prompt", "consent")]).await;
    let own = with(login.own().clone(), &[("prompt", "consent")]);
    let more = with(own.clone(), &[("claims", claims)]);
    let answer = browser.get(&format!("/authorize?{}", query_of(&more))).await;
    assert!(answer.header("location").starts_with("/authentication/start?"), "{answer:?}");
    assert!(browser.get(&format!("/authorize?{}", query_of(&own))).await.redirected("code").is_some());

    // with the same claims it does
    let asked = [("prompt", "consent"), ("claims", claims)];
    let login = completed(&mut browser, "acme-web", ADA, ADA_PASSWORD, &asked).await;
    let same = with(login.own().clone(), &asked);
    assert!(browser.get(&format!("/authorize?{}", query_of(&same))).await.redirected("code").is_some());
}

#[tokio::test]
async fn at_most_16_levels_can_be_requested() {
    let world = world().await;
    let mut browser = world.browser();
    for (count, is_good) in [(16, true), (17, false), (1000, false)] {
        let own = |name, value: &str| with(parameters("acme-web"), &[(name, value)]);
        let claims = format!(r#"{{"id_token":{{"acr":{{"values":["{}"]}}}}}}"#, vec!["x"; count].join(r#"",""#));
        for own in [own("acr_values", &vec!["x"; count].join(" ")), own("claims", &claims)] {
            let answer = browser.get(&format!("/authorize?{}", query_of(&own))).await;
            assert_eq!(answer.redirected("error").as_deref(), (!is_good).then_some("invalid_request"), "{count}");
            let started = browser.post("/authentication/start", &with(own, &[("identifier", ADA)])).await;
            assert_eq!(started.status, if is_good { 200 } else { 400 }, "{count}");
        }
    }
}

#[tokio::test]
async fn c109_a_step_up_ends_a_remembered_session_within_24_hours() {
    const DAY: u64 = 24 * 3600;
    let month = Duration::from_secs(30 * DAY);
    let (world, acme) = (world_with(|service| service.remember_me(month)).await, tenant("acme"));
    let mut browser = world.browser();
    let login = browser.begin_remembered("acme-web", Some(true)).await;
    assert_eq!(browser.prove_password(&login, ADA, ADA_PASSWORD).await.status, 200);
    browser.finish(&login).await.unwrap();
    world.advance(2 * DAY);
    let login = browser.begin("acme-bank", &[]).await;
    assert_eq!(browser.prove_mailbox(&world, &login, ADA).await.status, 200);
    browser.finish(&login).await.unwrap();
    world.advance(DAY - 1);
    assert!(world.seen(Some(&acme), &browser).await.is_some());
    world.advance(1);
    assert_eq!(world.seen(Some(&acme), &browser).await, None);
}
