//! Rules that all token endpoints share: origins, budgets, and events.

use http::Request;
use tollgate::{
    LimitKey, Limiter, Plans, Quota, Tenant,
    event::{EventKind, Query},
    store::Memory,
    testing::ManualClock,
};

use crate::{
    issued_tokens::IssuedTokens,
    special_worlds::world_with,
    token_requests::redemption,
    world::{Answer, Browser, ISSUER, World, form_of, posted},
};

const APP: &str = "https://app.example";
const EVIL: &str = "https://evil.example";

const EXPOSED: &str = "retry-after, www-authenticate, dpop-nonce, x-ratelimit, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset";

/// Returns whether a page of this origin can read the response.
fn is_readable(answer: &Answer, origin: &str) -> bool {
    let readable = answer.header("access-control-allow-origin") == origin;
    if readable {
        assert_eq!(answer.header("access-control-expose-headers"), EXPOSED);
    } else {
        assert!(!answer.headers.keys().any(|name| name.as_str().starts_with("access-control")), "{answer:?}");
    }
    assert!(answer.headers.get_all("vary").iter().any(|value| value == "origin"), "{answer:?}");
    readable
}

/// Posts a form from a page of this origin.
async fn form(browser: &mut Browser, origin: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
    let request = posted(path);
    let request = request.header("origin", origin).header("sec-fetch-site", "cross-site");
    browser.send(request, form_of(fields)).await
}

async fn get(browser: &mut Browser, origin: &str, path: &str, shown: &str) -> Answer {
    let request = Request::get(path).header("origin", origin).header("sec-fetch-site", "cross-site");
    let request = if shown.is_empty() { request } else { request.header("authorization", shown) };
    browser.send(request, "").await
}

#[tokio::test]
async fn only_pages_of_the_client_can_exchange_its_codes() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = browser.sign_in("web").await;
    let fields = redemption("web", &code);
    for origin in [EVIL, "null", "https://app.example.evil.example", "https://app.example:8443"] {
        let answer = form(&mut browser, origin, "/token", &fields).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (403, "origin_not_allowed"), "{origin}");
        assert!(!is_readable(&answer, origin));
    }
    // repeated or contradictory origin headers are refused
    let twice = posted("/token").header("sec-fetch-site", "same-origin").header("sec-fetch-site", "cross-site");
    let answer = browser.send(twice.header("origin", APP), form_of(&fields)).await;
    assert_eq!((answer.status.as_u16(), is_readable(&answer, APP)), (403, false));
    // `native` has no pages, regardless of the origins of `web`
    let native = browser.clone().sign_in("native").await;
    let answer = form(&mut browser, APP, "/token", &redemption("native", &native)).await;
    assert_eq!((answer.status.as_u16(), is_readable(&answer, APP)), (403, false));
    let answer = form(&mut browser, APP, "/token", &fields).await;
    assert!(is_readable(&answer, APP));
    let issued = IssuedTokens::of(&answer);
    assert_eq!(browser.redeem("native", &native).await.status, 200);
    // errors can be read too
    let answer = form(&mut browser, APP, "/token", &fields).await;
    assert_eq!((answer.status.as_u16(), is_readable(&answer, APP)), (400, true));

    let bearer = format!("Bearer {}", issued.access);
    for (origin, expected) in [(APP, true), (EVIL, false), ("null", false)] {
        for shown in [&*bearer, "Bearer x", ""] {
            let answer = get(&mut browser, origin, "/userinfo", shown).await;
            assert_eq!(is_readable(&answer, origin), expected, "{origin} {shown}");
        }
        // public documents can be read by every origin
        for path in
            ["/jwks", "/.well-known/openid-configuration", "/.well-known/oauth-authorization-server", "/openapi.json"]
        {
            let answer = get(&mut browser, origin, path, "").await;
            assert_eq!((answer.status.as_u16(), answer.header("access-control-allow-origin")), (200, "*"), "{path}");
            assert!(!answer.headers.contains_key("access-control-allow-credentials"), "{path}");
        }
    }
    let revoking = [("client_id", "web"), ("token", issued.refresh())];
    let answer = form(&mut browser, EVIL, "/revoke", &revoking).await;
    assert_eq!((answer.status.as_u16(), is_readable(&answer, EVIL)), (403, false));
    assert_eq!(browser.opens(&world, "web", &issued.access).await, [true; 3]);
    let answer = form(&mut browser, APP, "/revoke", &revoking).await;
    assert_eq!((answer.status.as_u16(), is_readable(&answer, APP)), (200, true));
    assert_eq!(browser.opens(&world, "web", &issued.access).await, [false; 3]);
    world.log.flush();
    assert!(!world.log.read_events(&Query::new().kind(EventKind::ForeignOrigin)).events.is_empty());
}

#[tokio::test]
async fn c100_revocation_and_introspection_need_a_client_and_a_form() {
    let mut browser = World::new().await.browser();
    // a public client does not authenticate, which is enough to revoke its tokens
    for (path, incomplete, unknown) in
        [("/revoke", (400, "invalid_request"), 400), ("/introspect", (401, "invalid_client"), 401)]
    {
        let json = Request::post(path).header("content-type", "application/json");
        for (request, body, expected) in [
            (Request::get(format!("{path}?client_id=web&token=x")), "", (405, "method_not_allowed")),
            (json, "{}", (415, "unsupported_media_type")),
            (posted(path), "client_id=web", incomplete),
            (posted(path), "client_id=web&token=", incomplete),
            (posted(path), "token=x", incomplete),
            (posted(path), "client_id=web&token=x&token=x", (400, "invalid_request")),
            (posted(&format!("{path}?token=x")), "client_id=web&token=x", (400, "invalid_request")),
            (posted(path), "client_id=nobody&token=x", (unknown, "invalid_client")),
            (posted(path).header("authorization", "Basic d2ViOg=="), "token=x", (401, "invalid_client")),
            (posted(path).header("origin", EVIL), "client_id=web&token=x", (403, "origin_not_allowed")),
        ] {
            let answer = browser.send(request, body).await;
            assert_eq!((answer.status.as_u16(), &*answer.error()), expected, "{path} {answer:?}");
        }
    }
}

#[tokio::test]
async fn pages_of_other_sites_cannot_call_logout_and_read_the_response() {
    let world = World::new().await;
    let mut browser = world.browser();
    browser.sign_in("web").await;
    for origin in [APP, EVIL, "null"] {
        let answer = get(&mut browser, origin, "/logout", "").await;
        assert!(!is_readable(&answer, origin), "{answer:?}");
        let answer = form(&mut browser, origin, "/logout", &[("confirmed", "yes")]).await;
        assert!(!is_readable(&answer, origin), "{answer:?}");
        assert!(browser.cookies.contains_key("__Host-session_giszrYfB"));
    }
}

#[tokio::test]
async fn c112_token_calls_are_charged_to_the_tenant_of_the_token() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder(Plans::new(Quota::per_minute(20).unwrap())).clock(clock.clone()).build().unwrap();
    let own = limiter.clone();
    let world = World::on(Memory::new().into(), clock, |service| service.limiter(own)).await;
    let acme: Tenant = "acme".parse().unwrap();
    let left = |tenant: &LimitKey| limiter.peek(tenant).map_or(20, |standing| standing.remaining());
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid").await;
    let code = browser.sign_in("web").await;
    let mut expected = left(&acme);
    let bearer = format!("Bearer {}", issued.access);
    let refreshing = [("grant_type", "refresh_token"), ("refresh_token", issued.refresh()), ("client_id", "web")];
    let about = [("client_id", "web"), ("token", "x")];
    // spend the budget one request at a time, until nothing is left
    for round in 0..2 {
        let calls = [
            ("/introspect", &about[..]),
            ("/userinfo", &[]),
            ("/token", &refreshing),
            ("/revoke", &about),
            ("/token", &[("client_id", "web")]),
        ];
        for (path, fields) in calls {
            let answer = match fields {
                [] => get(&mut browser, APP, path, &bearer).await,
                fields => form(&mut browser, APP, path, fields).await,
            };
            assert_eq!(is_readable(&answer, APP), path != "/introspect", "{path}");
            if round == 0 {
                expected -= 1;
                assert!(answer.status != 429 && left(&acme) == expected, "{path} {answer:?}");
                assert_eq!(answer.header("x-ratelimit-remaining"), expected.to_string());
            } else {
                assert_eq!((answer.status.as_u16(), &*answer.error()), (429, "rate_limit_exceeded"), "{path}");
                assert_eq!((answer.header("retry-after"), answer.header("cache-control")), ("60", "no-store"));
            }
        }
        while left(&acme) > 0 {
            browser.authorize("web").await;
        }
        expected = 0;
    }
    assert_eq!(expected, left(&acme));
    // documents that are the same for everyone are charged to no tenant
    let address = LimitKey::address(browser.address);
    let mut of_address = left(&address);
    for path in ["/jwks", "/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"] {
        assert_eq!(browser.get(path).await.status, 200);
        of_address -= 1;
        assert_eq!(left(&address), of_address, "{path}");
    }
    // calls that name no client or token are charged to the address
    for (path, fields) in
        [("/token", &[][..]), ("/revoke", &[]), ("/introspect", &[]), ("/token", &[("client_id", "x")])]
    {
        assert_eq!(browser.form(path, fields).await.status, if path == "/introspect" { 401 } else { 400 });
        of_address -= 1;
        assert_eq!(left(&address), of_address, "{path}");
    }
    for shown in ["Bearer x", "Bearer"] {
        let answer = browser.send(Request::get("/userinfo").header("authorization", shown), "").await;
        assert!([400, 401].contains(&answer.status.as_u16()));
        of_address -= 1;
        assert_eq!(left(&address), of_address);
    }
    assert_eq!(browser.redeem("web", &code).await.status, 429);
}

#[tokio::test]
async fn token_events_are_logged_without_secrets() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = browser.sign_in("web").await;
    let first = IssuedTokens::of(&browser.redeem("web", &code).await);
    let next = IssuedTokens::of(&browser.refresh("web", first.refresh()).await);
    world.advance(60);
    assert_eq!(browser.refresh("web", first.refresh()).await.status, 400);
    let other = browser.tokens("web", "openid").await;
    browser.form("/revoke", &[("client_id", "web"), ("token", other.refresh())]).await;
    world.log.flush();
    let count = |kind| {
        let of_kind = world.log.read_events(&Query::new().kind(kind)).events;
        assert!(of_kind.iter().all(|event| event.tenant.as_ref().is_some_and(|tenant| tenant.as_str() == "acme")));
        of_kind.iter().map(|event| event.count).sum::<u64>()
    };
    assert_eq!(EventKind::TokenIssued.as_str(), "authn_token_created");
    assert_eq!([EventKind::TokenIssued, EventKind::TokenReused, EventKind::TokenRevoked].map(count), [3, 1, 1]);
    let log = format!("{:?}", world.log.read_events(&Query::new()).events);
    for secret in [&code.code, &code.verifier] {
        assert!(!log.contains(secret));
    }
    for issued in [&first, &next, &other] {
        for secret in [&*issued.access, issued.refresh(), issued.id()] {
            let signature = secret.rsplit('.').next().unwrap();
            assert!(!log.contains(&signature[..16]), "{log}");
        }
        assert!(!log.contains(crate::issued_tokens::claims(&issued.access)["jti"].as_str().unwrap()));
    }
    assert!(!log.contains(ISSUER));
}

#[tokio::test]
async fn the_contents_of_a_token_can_be_read_only_by_pages_of_its_client() {
    let world = world_with(|special| special.origin("https://own.example").unwrap()).await;
    let mut browser = world.browser();
    let issued = browser.tokens("web", "openid").await;
    let bearer = format!("Bearer {}", issued.access);
    assert!(is_readable(&get(&mut browser, APP, "/userinfo", &bearer).await, APP));
    let foreign = get(&mut browser, "https://own.example", "/userinfo", &bearer).await;
    assert!(!foreign.headers.contains_key("access-control-allow-origin"));
}
