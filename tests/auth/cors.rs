//! Pages of other origins: which of them may call, and which responses they may read.

use http::Request;
use serde_json::json;
use tollgate::{Client, ClientTable, store::Memory};

use crate::world::{ADA, ADA_PASSWORD, Answer, Browser, CALLBACK, ISSUER, World, clients, parameters, with};

const APP: &str = "https://app.example";
const EVIL: &str = "https://evil.example";

/// Returns the CORS headers of a response.
pub(crate) fn cors(answer: &Answer) -> Vec<String> {
    let pairs =
        answer.headers.iter().filter(|(name, _)| name.as_str().starts_with("access-control") || *name == "vary");
    let mut lines: Vec<_> = pairs.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    lines
}

const READABLE: &[&str] = &[
    "access-control-allow-credentials: true",
    "access-control-allow-origin: https://app.example",
    "access-control-expose-headers: retry-after, www-authenticate, dpop-nonce, x-ratelimit, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset",
    "vary: origin",
];

/// Calls an endpoint from a page of this origin.
async fn from(browser: &mut Browser, origin: &str, endpoint: &str, id: &str, client: &str) -> Answer {
    let fields = [("identifier", ADA), ("session_id", id), ("method", "password"), ("username", "ada"), ("otp", "1")];
    let body = with(with(parameters(client), &fields), &[("password", ADA_PASSWORD)]).to_string();
    let request = match endpoint {
        "status" => Request::get(format!("/authentication/status?session_id={id}")),
        _ => Request::post(format!("/authentication/{endpoint}")).header("content-type", "application/json"),
    };
    let body = if endpoint == "status" { String::new() } else { body };
    browser.send(request.header("origin", origin).header("sec-fetch-site", "cross-site"), body).await
}

const CALLS: &[&str] = &["start", "status", "authenticate", "verify-otp", "complete"];

#[tokio::test]
async fn pages_of_the_client_can_read_responses_and_errors() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    for (round, _) in [(); 2].iter().enumerate() {
        for endpoint in CALLS {
            // in the second round, all calls except start and status fail
            let answer = from(&mut browser.clone(), APP, endpoint, &id, "web").await;
            assert_eq!(cors(&answer), READABLE, "{round} {endpoint} {answer:?}");
        }
    }
}

#[tokio::test]
async fn pages_of_unknown_origins_cannot_call_or_read_anything() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    let refused = "403\ncontent-type: application/json\nvary: origin\n\n\
        {\"error\":\"origin_not_allowed\",\"error_description\":\"only programs and pages of allowed origins may call\"}\n";
    for origin in
        [EVIL, "null", "https://APP.example", "https://app.example:443", "https://app.example/", "*", "file://"]
    {
        for endpoint in CALLS {
            let answer = from(&mut browser, origin, endpoint, &id, "web").await;
            assert_eq!(answer.own(), refused, "{origin} {endpoint}");
        }
    }
    assert_eq!(browser.status(&id).await.json()["status"], "pending");
    world.log.flush();
    let seen = tollgate::event::Query::new().kind(tollgate::event::EventKind::ForeignOrigin);
    assert!(!world.log.read_events(&seen).events.is_empty());
}

#[tokio::test]
async fn pages_of_one_client_cannot_call_for_another_client() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("native", ADA).await;
    // `native` has no pages, and using a login of `web` makes no difference
    for client in ["native", "web", "nobody"] {
        let answer = from(&mut browser, APP, "authenticate", &id, client).await;
        assert_eq!((&*answer.error(), cors(&answer)), ("origin_not_allowed", vec!["vary: origin".to_owned()]));
    }
    assert_eq!(from(&mut browser, APP, "status", &id, "").await.error(), "origin_not_allowed");
    assert_eq!(browser.status(&id).await.json()["status"], "pending");
}

#[tokio::test]
async fn pages_of_our_own_origin_need_no_registration() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("native", ADA).await;
    for endpoint in CALLS {
        let own = from(&mut browser.clone(), ISSUER, endpoint, &id, "native").await;
        assert_ne!(own.status, 403, "{endpoint} {own:?}");
        assert_eq!(cors(&own), ["vary: origin"], "{endpoint}");
    }
    let get = Request::get(format!("/authentication/status?session_id={id}")).header("sec-fetch-site", "same-origin");
    let answer = browser.send(get, "").await;
    assert_eq!((answer.status.as_u16(), cors(&answer)), (200, vec![]));
}

#[tokio::test]
async fn pages_of_our_own_origin_stay_ours_if_a_client_lists_it() {
    let listing = Client::new("listing", "acme".parse().unwrap()).unwrap().scopes("openid").unwrap().single_sign_on();
    let listing = listing.redirect_uri(CALLBACK).unwrap().origin(ISSUER).unwrap();
    let all = clients().iter().map(|client| Client::clone(client)).chain([listing]).collect::<Vec<_>>();
    let world = World::with(Memory::new(), |service| service.clients(ClientTable::new(all).unwrap())).await;
    let mut browser = world.browser();
    browser.log_in("web", ADA).await;
    browser.authorize("web").await;
    // "Continue as ada" on the login page, which only our own page may confirm
    let begin = async |browser: &mut Browser, site: &str| {
        let request = Request::post("/authentication/start").header("content-type", "application/json");
        let request = request.header("origin", ISSUER).header("sec-fetch-site", site);
        let body = with(parameters("listing"), &[("prompt", "consent")]);
        browser.send(request, body.to_string()).await
    };
    let begun = begin(&mut browser, "same-origin").await;
    assert_eq!((begun.status.as_u16(), cors(&begun)), (200, vec!["vary: origin".to_owned()]), "{begun:?}");
    assert_eq!(begun.json()["next_step"], json!(null), "the session has proved all steps");
    let id = begun.json()["session_id"].as_str().unwrap().to_owned();
    assert_eq!(browser.complete("listing", &id).await.status, 200);
}

#[tokio::test]
async fn a_preflight_lists_the_allowed_methods_and_headers() {
    let world = World::new().await;
    let ask = |path: &'static str, origin: &'static str, method: &'static str| {
        let request = Request::options(path).header("access-control-request-method", method);
        let mut browser = world.browser();
        async move {
            let request = if origin.is_empty() { request } else { request.header("origin", origin) };
            browser.send(request.header("access-control-request-headers", "content-type"), "").await
        }
    };
    for (path, methods) in [
        ("/authentication/start", "GET, HEAD, POST, OPTIONS"),
        ("/authentication/status", "GET, HEAD, OPTIONS"),
        ("/authentication/authenticate", "POST, OPTIONS"),
        ("/authentication/verify-otp", "POST, OPTIONS"),
        ("/authentication/complete", "POST, OPTIONS"),
        ("/openapi.json", "GET, HEAD, OPTIONS"),
        ("/token", "POST, OPTIONS"),
        ("/revoke", "POST, OPTIONS"),
        ("/userinfo", "GET, HEAD, POST, OPTIONS"),
        ("/jwks", "GET, HEAD, OPTIONS"),
        ("/.well-known/openid-configuration", "GET, HEAD, OPTIONS"),
        ("/.well-known/oauth-authorization-server", "GET, HEAD, OPTIONS"),
    ] {
        let mut expected: Vec<String> = READABLE.iter().map(|line| (*line).to_owned()).collect();
        expected.push("access-control-allow-headers: content-type, accept, authorization, dpop".into());
        expected.push(format!("access-control-allow-methods: {methods}"));
        expected.push("access-control-max-age: 600".into());
        expected.sort();
        let answer = ask(path, APP, "POST").await;
        assert_eq!((answer.status.as_u16(), &*answer.text), (204, ""), "{path}");
        assert_eq!(cors(&answer), expected, "{path}");
        for origin in [EVIL, "null", "", ISSUER] {
            let answer = ask(path, origin, "POST").await;
            // without an origin it is a plain OPTIONS request
            assert_eq!(answer.status, if origin.is_empty() { 204 } else { 403 }, "{path} {origin}");
            assert!(!cors(&answer).iter().any(|line| line.starts_with("access-control")), "{path} {origin}");
        }
    }
    for path in ["/authorize", "/authentication/page.js", "/authentication/page.css", "/introspect", "/logout"] {
        let answer = ask(path, APP, "GET").await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (403, "origin_not_allowed"), "{path}");
    }
    assert_eq!(ask("/nothing", APP, "GET").await.status, 404);
}

#[tokio::test]
async fn pages_of_the_client_can_read_rate_limits_and_malformed_request_errors() {
    let clock = tollgate::testing::ManualClock::new();
    let quota = tollgate::Quota::per_minute(1).unwrap();
    let limiter = tollgate::Limiter::builder(tollgate::Plans::new(quota)).clock(clock.clone()).build().unwrap();
    let world = World::on(Memory::new().into(), clock, |service| service.limiter(limiter)).await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    for endpoint in CALLS {
        let answer = from(&mut browser, APP, endpoint, &id, "web").await;
        assert_eq!((answer.status.as_u16(), cors(&answer)), (429, READABLE.iter().map(|it| (*it).into()).collect()));
        // an origin that may not call can't even read that
        let other = from(&mut browser, EVIL, endpoint, &id, "web").await;
        assert!(!cors(&other).iter().any(|line| line.starts_with("access-control")), "{other:?}");
    }
}
