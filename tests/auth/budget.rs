//! Rate limits: each request is charged to the tenant of its client or login.

use std::{collections::BTreeMap, time::Duration};

use http::{Request, Response};
use http_body_util::BodyExt;
use tollgate::{
    Head, LimitKey, Limiter, PeerAddr, Plan, Plans, Quota, RateLimitLayer, Tenant, auth::AbuseLimits, body::Body,
    store::Memory, tenant::TenantError, testing::ManualClock,
};
use tower::{Layer, ServiceExt};

use crate::world::{ADA, ADA_PASSWORD, Answer, Browser, World, parameters, query, with};

fn acme() -> Tenant {
    "acme".parse().unwrap()
}

/// Creates a world in which each tenant may send this many requests a minute.
async fn world(limit: u32) -> (World, Limiter) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder(Plans::new(Quota::per_minute(limit).unwrap())).clock(clock.clone()).build().unwrap();
    let own = limiter.clone();
    (World::on(Memory::new().into(), clock, |service| service.limiter(own)).await, limiter)
}

#[tokio::test]
async fn a_quota_of_concurrent_calls_leaves_logins_to_the_rates_of_the_plan() {
    let clock = ManualClock::new();
    let plan = Plan::new([Quota::per_minute(20).unwrap(), Quota::concurrent(1).unwrap()]).unwrap();
    let limiter = Limiter::builder(Plans::new(plan)).clock(clock.clone()).build().unwrap();
    let own = limiter.clone();
    let world = World::on(Memory::new().into(), clock, |service| service.limiter(own)).await;
    // the only slot of the tenant is taken
    let open = limiter.hold(&acme(), 1, 1, Duration::from_secs(60)).unwrap();
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    assert_eq!(browser.password("web", &id, "ada", ADA_PASSWORD).await.status, 200);
    assert_eq!(left(&limiter, &acme()), Some(17));
    drop(open);
}

fn left(limiter: &Limiter, tenant: &LimitKey) -> Option<u32> {
    limiter.peek(tenant).map(|standing| standing.remaining())
}

const ENDPOINTS: &[&str] = &["authorize", "page", "start", "status", "authenticate", "verify-otp", "complete"];

/// Calls one endpoint that knows the tenant.
async fn call(browser: &mut Browser, endpoint: &str, client: &str, id: &str, header: (&str, &str)) -> Answer {
    let target = match endpoint {
        "authorize" => format!("/authorize?{}", query(client)),
        "page" => format!("/authentication/start?{}", query(client)),
        "status" => format!("/authentication/status?session_id={id}"),
        endpoint => format!("/authentication/{endpoint}"),
    };
    if matches!(endpoint, "authorize" | "page" | "status") {
        return browser.send(Request::get(target).header("accept", "*/*").header(header.0, header.1), "").await;
    }
    let request = Request::post(target).header("content-type", "application/json").header(header.0, header.1);
    let fields = [("identifier", ADA), ("session_id", id), ("method", "password"), ("username", "ada"), ("otp", "1")];
    let body = with(with(parameters(client), &fields), &[("password", ADA_PASSWORD)]);
    browser.send(request, body.to_string()).await
}

const REFUSED: &str = "429\ncache-control: no-store\ncontent-security-policy: default-src 'none'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'\ncontent-type: application/json\ncross-origin-opener-policy: same-origin\n\
    referrer-policy: no-referrer\nretry-after: 60\nx-content-type-options: nosniff\nx-frame-options: DENY\n\
    x-ratelimit: 20\nx-ratelimit-limit: 20\nx-ratelimit-remaining: <remaining>\nx-ratelimit-reset: <reset>\n\n\
    {\"error\":\"rate_limit_exceeded\",\"error_description\":\"rate limit exceeded\",\"retry_after\":60}";

#[tokio::test]
async fn c112_a_tenant_without_budget_is_refused_at_every_endpoint_with_any_headers() {
    let (world, limiter) = world(20).await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    while left(&limiter, &acme()) != Some(0) {
        browser.authorize("web").await;
    }
    let globex = "globex".parse().unwrap();
    let before = left(&limiter, &globex);
    for endpoint in ENDPOINTS {
        for header in [
            ("x-nothing", "x"),
            ("x-tenant", "globex"),
            ("x-tenant-id", "globex"),
            ("x-api-key", "demo-globex-key"),
            ("authorization", "Bearer globex"),
            ("host", "globex.example"),
            ("x-forwarded-host", "globex.example"),
            ("x-forwarded-for", "198.51.100.7"),
            ("forwarded", "for=198.51.100.7"),
        ] {
            let answer = call(&mut browser, endpoint, "web", &id, header).await;
            assert_eq!(answer.whole(), REFUSED, "{endpoint} {header:?}");
            assert_eq!(answer.header("x-ratelimit-remaining"), "0");
            assert_eq!(answer.header("x-ratelimit-reset"), "1000000060");
        }
    }
    assert_eq!(left(&limiter, &globex), before);
    // the other tenant has its own budget
    let mut other = world.browser();
    other.start("other", ADA).await;
    // and the budget of this one returns after a minute
    world.advance(60);
    assert_eq!(browser.status(&id).await.status, 200);
}

#[tokio::test]
async fn c112_each_call_costs_its_tenant_one_request() {
    let (world, limiter) = world(100).await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    let mut expected = 99;
    for endpoint in ENDPOINTS {
        let answer = call(&mut browser.clone(), endpoint, "web", &id, ("x-tenant", "globex")).await;
        expected -= 1;
        assert_eq!(left(&limiter, &acme()), Some(expected), "{endpoint}");
        assert_eq!(answer.header("x-ratelimit-remaining"), expected.to_string(), "{endpoint}");
        assert_eq!(answer.header("x-ratelimit-limit"), "100");
    }
    // a login belongs to its tenant even if the request names no client, or a client of another tenant
    for client in [None, Some("nobody"), Some("other")] {
        let mut body = with(serde_json::json!({}), &[("session_id", &id)]);
        body["client_id"] = serde_json::json!(client);
        browser.post("/authentication/complete", &body).await;
        expected -= 1;
        assert_eq!(left(&limiter, &acme()), Some(expected), "{client:?}");
    }
    assert_eq!(left(&limiter, &"globex".parse().unwrap()), Some(100));
}

#[tokio::test]
async fn every_response_shows_the_remaining_budget() {
    let (world, _) = world(100).await;
    let mut browser = world.browser();
    let json = |path: &str| Request::post(path).header("content-type", "application/json");
    let preflight = Request::options("/authentication/start").header("origin", "https://app.example");
    for answer in [
        browser.get("/nothing").await,
        browser.send(Request::put("/authorize"), "").await,
        browser.send(Request::options("/authorize"), "").await,
        browser.send(preflight.header("access-control-request-method", "POST"), "").await,
        browser.send(json("/authentication/start"), "{").await,
        browser.send(json("/authentication/start"), "{}").await,
        browser.send(json("/authentication/start"), " ".repeat(70_000)).await,
        browser.send(Request::post("/authentication/start"), "{}").await,
        browser.get("/authorize?%").await,
        browser.get("/authorize?client_id=web&client_id=web").await,
        browser.get("/authentication/start?%").await,
        browser.get("/authentication/status?%").await,
        browser.get("/authentication/status").await,
        browser.get("/openapi.json").await,
    ] {
        answer.own();
        assert_eq!(answer.header("x-ratelimit"), "100", "{answer:?}");
    }
    for part in ["page.js", "page.css"] {
        assert_eq!(browser.get(&format!("/authentication/{part}")).await.header("x-ratelimit"), "600", "{part}");
    }
}

#[tokio::test]
async fn requests_without_a_tenant_are_charged_to_the_address() {
    let (world, limiter) = world(3).await;
    let json = |path: &str| Request::post(path).header("content-type", "application/json");
    let calls: Vec<(http::request::Builder, &str)> = vec![
        (Request::get("/nothing"), ""),
        (Request::put("/authorize"), ""),
        (Request::options("/authorize"), ""),
        (json("/authentication/start"), "{"),
        (json("/authentication/start"), "{}"),
        (json("/authentication/complete"), r#"{"session_id":"x"}"#),
        (Request::post("/authentication/complete"), ""),
        (Request::get("/authorize?%"), ""),
        (Request::get("/authorize?client_id=nobody"), ""),
        (Request::get("/authentication/start?client_id=web&client_id=web"), ""),
        (Request::get("/authentication/status?%"), ""),
        (Request::get("/authentication/status?session_id=a&session_id=b"), ""),
        (Request::get("/authentication/status"), ""),
        (Request::get("/openapi.json"), ""),
    ];
    for (at, (request, body)) in calls.into_iter().enumerate() {
        let mut browser = world.browser();
        browser.address = [198, 51, 100, at as u8].into();
        for _ in 0..3 {
            assert_eq!(browser.get("/nothing").await.status, 404);
        }
        let shown = format!("{request:?}");
        let answer = browser.send(request, body).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (429, "rate_limit_exceeded"), "{shown} {answer:?}");
        assert_eq!(left(&limiter, &LimitKey::address(browser.address)), Some(0));
    }
    assert_eq!(left(&limiter, &acme()), Some(3));
}

#[tokio::test]
async fn a_page_that_asks_people_to_wait_has_its_style_and_pages_of_tenants_their_script() {
    let (world, _) = world(3).await;
    let mut browser = world.browser();
    let mut answers = async |paths: [&'static str; 4]| {
        let mut found = Vec::new();
        for path in paths {
            let request = Request::get(path).header("accept", "text/html");
            found.push(browser.send(request, "").await.status.as_u16());
        }
        found
    };
    assert_eq!(answers(["/nothing"; 4]).await, [404, 404, 404, 429]);
    let [style, script] = ["/authentication/page.css", "/authentication/page.js"];
    // they are limited, too
    for _ in 0..150 {
        assert_eq!(answers([style, script, style, script]).await, [200; 4]);
    }
    assert_eq!(answers([style, script, style, script]).await, [429; 4]);
    world.advance(60);
    assert_eq!(answers([style, "/nothing", script, "/nothing"]).await, [200, 404, 200, 404]);
}

#[tokio::test]
async fn one_address_can_spend_only_its_share_of_the_budget() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder(Plans::new(Quota::per_minute(100).unwrap())).clock(clock.clone()).build().unwrap();
    let own = limiter.clone();
    let world = World::on(Memory::new().into(), clock, |service| {
        service.limiter(own).abuse_limits(AbuseLimits::new().requests_per_address(Quota::per_minute(4).unwrap()))
    })
    .await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    for _ in 0..3 {
        assert_eq!(browser.status(&id).await.status, 200);
    }
    for endpoint in ENDPOINTS {
        let answer = call(&mut browser, endpoint, "web", &id, ("x-forwarded-for", "192.0.2.9")).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (429, "rate_limit_exceeded"), "{endpoint}");
        assert_eq!(answer.header("x-ratelimit-limit"), "4");
        assert_eq!(answer.header("retry-after"), "60");
    }
    assert_eq!(left(&limiter, &acme()), Some(96), "refused requests cost the tenant nothing");
    browser.address = [192, 0, 2, 9].into();
    let answer = browser.status(&id).await;
    assert_eq!((answer.status.as_u16(), answer.header("x-ratelimit-remaining")), (200, "95"));
}

#[tokio::test]
async fn a_limiter_shared_with_an_outer_layer_charges_once() {
    for (outer, expected) in [("acme", [Some(99), Some(100)]), ("globex", [Some(99), Some(99)])] {
        let (world, limiter) = world(100).await;
        let outer: Tenant = outer.parse().unwrap();
        let source = move |_: Head<'_>| -> Result<Option<Tenant>, TenantError> { Ok(Some(outer.clone())) };
        let service = RateLimitLayer::new(source, limiter.clone()).layer(world.service.clone());
        let mut request = Request::get(format!("/authorize?{}", query("web"))).body(Body::empty()).unwrap();
        request.extensions_mut().insert(PeerAddr(([192, 0, 2, 1], 1).into()));
        let response: Response<Body> = service.oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        body.collect().await.unwrap();
        assert_eq!(parts.status, 302);
        let seen: BTreeMap<_, _> = parts.headers.iter().map(|(name, value)| (name.as_str(), value)).collect();
        assert_eq!(parts.headers.len(), seen.len(), "no header appears twice");
        assert_eq!(parts.headers["x-ratelimit-remaining"], "99");
        assert_eq!([left(&limiter, &acme()), left(&limiter, &"globex".parse().unwrap())], expected);
    }
}
