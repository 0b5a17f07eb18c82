//! Pushed authorization requests, which the URL refers to.

use http::Request;
use serde_json::json;
use tollgate::{AuthService, Client, ClientIp, ClientTable};

use crate::world::{
    ADA, ADA_PASSWORD, Answer, Browser, CALLBACK, ISSUER, World, encode, parameters, posted, query, with,
};

async fn push(browser: &mut Browser, body: &str) -> Answer {
    let request = posted("/par");
    browser.send(request, body).await
}

/// Pushes the request of a client and returns the query that refers to it.
pub(crate) async fn pushed(browser: &mut Browser, client: &str, more: &str) -> String {
    let answer = push(browser, &format!("{}&state=xyz&{more}", query(client))).await;
    assert_eq!((answer.status.as_u16(), answer.json()["expires_in"].as_u64()), (201, Some(90)), "{answer:?}");
    let uri = answer.json()["request_uri"].as_str().unwrap().to_owned();
    assert!(uri.starts_with("urn:ietf:params:oauth:request_uri:") && uri.len() == 34 + 43, "{uri}");
    format!("client_id={client}&request_uri={}", uri.replace(':', "%3A"))
}

pub(crate) async fn authorize(browser: &mut Browser, named: &str) -> Answer {
    browser.get(&format!("/authorize?{named}")).await
}

fn is_gone(answer: &Answer) -> bool {
    answer.header("location").is_empty() && answer.status == 400 && answer.error() == "invalid_request_uri"
}

#[tokio::test]
async fn a_pushed_request_leads_through_a_login_to_one_code() {
    let world = World::new().await;
    let (mut program, mut browser) = (world.browser(), world.browser());
    let named = pushed(&mut program, "web", "nonce=n&prompt=login&login_hint=ada").await;
    world.advance(89);
    // other parameters of the URL are ignored and not forwarded
    let first =
        authorize(&mut browser, &format!("{named}&scope=email&state=evil&redirect_uri=https://evil.example/")).await;
    assert_eq!(first.header("location"), format!("/authentication/start?{named}"));
    let page = Request::get(first.header("location")).header("accept", "application/json");
    let told = browser.send(page, "").await.json();
    let mut meant = with(parameters("web"), &[("prompt", "login"), ("login_hint", "ada")]);
    assert_eq!(told["parameters"], meant);
    meant["identifier"] = json!(ADA);
    world.advance(9 * 60);
    let id = browser.post("/authentication/start", &meant).await.json()["session_id"].as_str().unwrap().to_owned();
    browser.password("web", &id, ADA, ADA_PASSWORD).await;
    assert_eq!(browser.complete("web", &id).await.status, 200);
    let back = authorize(&mut browser, &named).await;
    assert!(back.header("location").starts_with(&format!("{CALLBACK}?code=")), "{back:?}");
    assert_eq!(back.redirected("state").as_deref(), Some("xyz"));
    assert!(is_gone(&authorize(&mut browser, &named).await));
}

#[tokio::test]
async fn an_unknown_or_expired_request_or_one_of_another_client_shows_an_error_page() {
    let world = World::new().await;
    let mut browser = world.browser();
    browser.log_in("web", ADA).await;
    let named = pushed(&mut browser, "web", "").await;
    let foreign = named.replace("client_id=web", "client_id=mfa");
    let malformed = "client_id=web&request_uri=urn:ietf:params:oauth:request_uri:x".to_owned();
    let both = format!("{foreign}&redirect_uri={}", encode(CALLBACK));
    for wrong in [&foreign, &malformed, &both, &format!("{malformed}&{}", query("web").replace("client_id=web&", ""))] {
        assert!(is_gone(&authorize(&mut browser, wrong).await), "{wrong}");
        let page = browser.get(&format!("/authentication/start?{wrong}")).await;
        assert!(is_gone(&page), "{wrong}");
    }
    assert_eq!(authorize(&mut browser, &named.replace("client_id=web&", "")).await.error(), "invalid_request");
    assert_eq!(authorize(&mut browser, &format!("{named}&request_uri=x")).await.error(), "invalid_request");
    // requests expire
    world.advance(90);
    assert!(is_gone(&authorize(&mut browser, &named).await));
    let named = pushed(&mut browser, "web", "").await;
    let mut other = world.browser();
    assert_eq!(authorize(&mut other, &named).await.status, 302);
    world.advance(30 * 60 - 1);
    assert_eq!(authorize(&mut other, &named).await.status, 302);
    world.advance(1);
    assert!(is_gone(&authorize(&mut other, &named).await));
}

#[tokio::test]
async fn pushed_requests_are_checked_like_those_at_authorize() {
    let world = World::new().await;
    let mut browser = world.browser();
    let good = query("web");
    for (wrong, status, error) in [
        (good.replace("client_id=web", "client_id=nobody"), 400, "invalid_client"),
        (good.replace("client_id=web&", ""), 400, "invalid_request"),
        (good.replace("callback", "elsewhere"), 400, "invalid_request"),
        (good.replace("=code&", "=token&"), 400, "unsupported_response_type"),
        (good.replace("=openid", "=x"), 400, "invalid_scope"),
        (good.replace("=S256", "=plain"), 400, "invalid_request"),
        (format!("{good}&scope=openid"), 400, "invalid_request"),
        (format!("{good}&client_id=web"), 400, "invalid_request"),
        (format!("{good}&prompt=x"), 400, "invalid_request"),
        (format!("{good}&request=x"), 400, "request_not_supported"),
        (format!("{good}&request_uri=urn:ietf:params:oauth:request_uri:x"), 400, "invalid_request"),
        (format!("{good}&x=%FF"), 400, "invalid_request"),
        (format!("{good}&x={}", "x".repeat(8192)), 413, "content_too_large"),
        (String::new(), 400, "invalid_request"),
    ] {
        let answer = push(&mut browser, &wrong).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (status, error), "{wrong}");
    }
    let json = Request::post("/par").header("content-type", "application/json");
    assert_eq!(browser.send(json, parameters("web").to_string()).await.error(), "unsupported_media_type");
    let in_url = posted(&format!("/par?{good}"));
    assert_eq!(browser.send(in_url, "").await.error(), "invalid_request");
    let also = browser.send(posted(&format!("/par?{good}")), good.clone()).await;
    assert_eq!((also.status.as_u16(), &*also.error()), (400, "invalid_request"));
    assert_eq!(browser.get("/par").await.status, 405);
    for (origin, status) in [("https://app.example", 201), ("https://evil.example", 403)] {
        let request = posted("/par");
        assert_eq!(browser.send(request.header("origin", origin), good.clone()).await.status, status, "{origin}");
    }
}

#[tokio::test]
async fn a_client_can_be_required_to_push_its_requests() {
    let world = World::new().await;
    let client = Client::new("web", "acme".parse().unwrap()).unwrap().redirect_uri(CALLBACK).unwrap();
    let client = client.scopes("openid").unwrap().require_pushed_requests().single_sign_on();
    let service = AuthService::builder(ISSUER, world.store.clone())
        .clients(ClientTable::new([client]).unwrap())
        .users(world.users.clone())
        .client_ip(ClientIp::peer())
        .passwords(tollgate::Passwords::insecure_fast())
        .clock(world.clock.clone())
        .build()
        .unwrap();
    let mut browser = World { service, ..world }.browser();
    browser.log_in("web", ADA).await;
    let plain = browser.authorize("web").await;
    assert_eq!(plain.redirected("error").as_deref(), Some("invalid_request"), "{plain:?}");
    let named = pushed(&mut browser, "web", "").await;
    assert!(authorize(&mut browser, &named).await.redirected("code").is_some());
    // with single sign-on too, each request yields one code
    let named = pushed(&mut browser, "web", "").await;
    assert!(authorize(&mut browser, &named).await.redirected("code").is_some());
    assert!(is_gone(&authorize(&mut browser, &named).await));
    let named = pushed(&mut browser, "web", "").await;
    let mut copies: Vec<_> = (0..8).map(|_| browser.clone()).collect();
    let answers = crate::world::join(copies.iter_mut().map(|copy| authorize(copy, &named))).await;
    assert_eq!(answers.iter().filter(|answer| answer.redirected("code").is_some()).count(), 1);
}

#[tokio::test]
async fn c094_a_pushed_request_with_client_credentials_is_refused_and_not_stored() {
    let world = World::new().await;
    let mut browser = world.browser();
    for (scheme, more) in [
        (Some("Basic d2ViOnNlY3JldA=="), ""),
        (Some("Bearer x"), ""),
        (None, "&client_secret=secret"),
        (None, "&client_assertion=x"),
        (None, "&client_assertion_type=x"),
    ] {
        let request = Request::post("/par").header("content-type", "application/x-www-form-urlencoded");
        let request = scheme.into_iter().fold(request, |request, scheme| request.header("authorization", scheme));
        let answer = browser.send(request, format!("{}{more}", query("web"))).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "invalid_client"), "{scheme:?} {more}");
        assert_eq!(answer.header("www-authenticate"), r#"Basic realm="token""#, "{scheme:?} {more}");
    }
    // an empty value counts as absent
    assert_eq!(push(&mut browser, &format!("{}&client_secret=", query("web"))).await.status, 201);
}

#[tokio::test]
async fn the_url_of_a_pushed_request_reveals_only_what_the_login_page_needs() {
    let world = World::new().await;
    let mut browser = world.browser();
    let claims = encode(r#"{"id_token":{"email":null}}"#);
    let shown = format!("prompt=login&max_age=9&acr_values=x&login_hint=ada&claims={claims}");
    let more =
        format!("{shown}&nonce=n&id_token_hint=x&password=x&dpop_jkt=0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I");
    let named = pushed(&mut browser, "web", &more).await;
    let page = Request::get(format!("/authentication/start?{named}")).header("accept", "application/json");
    let told = browser.send(page, "").await.json();
    let mut meant = with(parameters("web"), &[("prompt", "login"), ("max_age", "9"), ("login_hint", "ada")]);
    (meant["acr_values"], meant["claims"]) = (json!("x"), json!(r#"{"id_token":{"email":null}}"#));
    assert_eq!(told["parameters"], meant);
}
