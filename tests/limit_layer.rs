//! Rate limits in front of handlers: extensions, headers, requests without a tenant, and metrics.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{Router, body::Body, routing::get};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tollgate::{
    ApiKeys, ClientIp, EventLog, Head, LimitKey, Limiter, PeerAddr, Plan, Plans, ProblemJson, Quota, RateLimit,
    RateLimitLayer, Tenant, TenantSource,
    event::{EventKind, Query},
    limit::HeaderStyle,
    reject::Rejection,
    tenant::{ExtensionTenant, HeaderTenant, HostTenant, PathTenant, ProvedTenant, TenantError, TenantName},
    testing::ManualClock,
};
use tower::{Layer, ServiceExt, service_fn};

fn limiter(plan: impl Into<Plan>) -> Limiter {
    Limiter::memory(Plans::new(plan))
}

fn by_header(limiter: Limiter) -> RateLimitLayer {
    RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter)
}

fn by_header_or(next: impl TenantSource, limiter: Limiter) -> RateLimitLayer {
    RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap().or(next), limiter)
}

fn anonymous(_: Head<'_>) -> Result<Option<LimitKey>, TenantError> {
    Ok(Some(LimitKey::anonymous()))
}

fn request(tenant: Option<&str>) -> Request<Body> {
    let mut request = Request::get("/").body(Body::empty()).unwrap();
    if let Some(tenant) = tenant {
        request.headers_mut().insert("x-tenant", tenant.parse().unwrap());
    }
    request
}

async fn call(layer: &RateLimitLayer, request: Request<Body>) -> Response<String> {
    let served = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(String::from("served"))));
    layer.layer(served).oneshot(request).await.unwrap()
}

#[tokio::test]
async fn requests_without_a_tenant_share_a_budget_or_count_by_address_or_are_refused() {
    let from = |address: &str, port: u16| {
        let mut request = request(None);
        request.extensions_mut().insert(PeerAddr((address.parse::<std::net::IpAddr>().unwrap(), port).into()));
        request
    };
    let one = || limiter(Quota::per_hour(1).unwrap());

    let reject = by_header(one());
    assert_eq!(call(&reject, request(None)).await.status(), StatusCode::BAD_REQUEST);

    let shared = by_header_or(anonymous, one());
    assert_eq!(call(&shared, from("192.0.2.1", 1)).await.status(), StatusCode::OK);
    assert_eq!(call(&shared, from("192.0.2.2", 1)).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(call(&shared, request(Some("acme"))).await.status(), StatusCode::OK, "acme is not anonymous");

    let by_ip = by_header_or(ClientIp::peer(), one());
    assert_eq!(call(&by_ip, from("192.0.2.1", 1)).await.status(), StatusCode::OK);
    assert_eq!(call(&by_ip, from("192.0.2.1", 2)).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(call(&by_ip, from("192.0.2.2", 1)).await.status(), StatusCode::OK);
    assert_eq!(call(&by_ip, request(None)).await.status(), StatusCode::INTERNAL_SERVER_ERROR, "no address either");
}

/// Also if the request that frees the last bucket names no valid tenant.
#[tokio::test]
async fn the_end_of_an_overflow_is_an_event() {
    let (log, clock) = (EventLog::new(), ManualClock::new());
    let limiter = Limiter::builder(Plans::new(Quota::per_minute(1).unwrap())).max_tenants(1);
    let layer = by_header(limiter.events(log.clone()).clock(clock.clone()).build().unwrap());
    for name in ["first", "second"] {
        assert_eq!(call(&layer, request(Some(name))).await.status(), StatusCode::OK);
    }
    let count = |kind| log.read_events(&Query::new()).events.iter().filter(|event| event.kind == kind).count();
    assert_eq!((count(EventKind::OverflowBegan), count(EventKind::OverflowEnded)), (1, 0));
    // each shard is swept once in 30 seconds
    for _ in 0..100 {
        clock.advance(Duration::from_secs(1));
        assert_eq!(call(&layer, request(Some("not valid"))).await.status(), StatusCode::BAD_REQUEST);
    }
    assert_eq!((count(EventKind::OverflowBegan), count(EventKind::OverflowEnded)), (1, 1));
}

#[tokio::test]
async fn the_style_without_headers_sends_no_headers() {
    let shadow = Quota::per_day(1).unwrap().with_name("shadow").unwrap().shadow();
    let plan = || Plan::new([Quota::per_minute(2).unwrap(), shadow]).unwrap();
    let quiet = by_header(limiter(plan())).headers(HeaderStyle::none());
    for status in [StatusCode::OK, StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        let response = call(&quiet, request(Some("acme"))).await;
        assert_eq!((response.status(), response.headers().len()), (status, 0), "{:?}", response.headers());
    }
    let mut grpc = request(Some("acme"));
    grpc.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    let response = call(&quiet, grpc).await;
    let names: Vec<_> = response.headers().keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["content-type", "grpc-status", "grpc-message"], "the protocol needs these");
    let only_ietf = by_header(limiter(plan())).headers(HeaderStyle::none().ietf_draft_10()).cost(|_| 2);
    call(&only_ietf, request(Some("acme"))).await;
    assert!(call(&only_ietf, request(Some("acme"))).await.headers().contains_key("retry-after"));
}

/// Sends a request of each kind of refusal, and returns the status and the names of the headers.
async fn refusals(style: HeaderStyle) -> Vec<(u16, Vec<String>)> {
    let limiter = limiter(Quota::per_hour(2).unwrap());
    limiter.plans().set(Tenant::parse("denied").unwrap(), Plan::denied());
    assert!(limiter.check(&Tenant::parse("spent").unwrap(), 2).is_admitted());
    let cost = |head: Head<'_>| if head.headers()["x-tenant"] == "greedy" { 3 } else { 1 };
    let mut answers = Vec::new();
    for name in ["spent", "greedy", "denied", "~anonymous"] {
        let layer = by_header(limiter.clone()).headers(style).cost(cost).respond_with(ProblemJson);
        let served = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
        let response = layer.layer(served).oneshot(request(Some(name))).await.unwrap();
        let mut names: Vec<_> = response.headers().keys().map(ToString::to_string).collect();
        names.sort();
        answers.push((response.status().as_u16(), names));
    }
    answers
}

#[tokio::test]
async fn without_headers_a_problem_document_has_only_its_content_type() {
    let content_type = || vec![String::from("content-type")];
    let statuses = [429, 429, 403, 400];
    let expected: Vec<_> = statuses.map(|status| (status, content_type())).into();
    assert_eq!(refusals(HeaderStyle::none()).await, expected);
    assert_eq!(refusals(HeaderStyle::none().delta_seconds()).await, expected);
    let shown = refusals(HeaderStyle::new().ietf_draft_10()).await;
    assert_eq!(shown.iter().map(|(status, _)| *status).collect::<Vec<_>>(), statuses);
    let count = shown.iter().map(|(_, names)| names.len()).collect::<Vec<_>>();
    assert_eq!(count, [8, 6, 1, 1], "{shown:?}");
}

#[tokio::test]
async fn a_responder_sees_the_request_the_tenant_and_its_standing() {
    let in_words = |rejection: &Rejection, head: Head<'_>| {
        let (tenant, standing) = (rejection.limit_key().unwrap(), rejection.standing().unwrap());
        Response::new(format!("{} {tenant} {} of {}", head.uri().path(), standing.remaining(), standing.limit()))
    };
    let layer = by_header(limiter(Quota::per_hour(3).unwrap())).cost(|_| 2).respond_with(in_words);
    let served = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(String::new())));
    layer.layer(served).oneshot(request(Some("acme"))).await.unwrap();
    let refused = layer.layer(served).oneshot(request(Some("acme"))).await.unwrap();
    assert_eq!(refused.body(), "/ acme 1 of 3");
}

#[tokio::test]
async fn rules_on_the_response_combine() {
    let send = |layer: &RateLimitLayer, answer: u16| {
        let served = service_fn(move |_: Request<Body>| {
            let response = Response::builder().status(answer).body(String::new()).unwrap();
            std::future::ready(Ok::<_, Infallible>(response))
        });
        layer.layer(served).oneshot(request(Some("acme")))
    };
    let failures = |status: StatusCode| !status.is_success();
    let charged_first = by_header(limiter(Quota::per_hour(9).unwrap()))
        .charge_if(move |status, _| failures(status))
        .charge_if(|status, _| status != StatusCode::NOT_FOUND);
    let refunded_first = by_header(limiter(Quota::per_hour(9).unwrap()))
        .charge_if(|status, _| status != StatusCode::NOT_FOUND)
        .charge_if(move |status, _| failures(status));
    for layer in [charged_first, refunded_first] {
        for (answer, left) in [(200, "9"), (404, "9"), (400, "8")] {
            let response = send(&layer, answer).await.unwrap();
            assert_eq!(response.headers()["x-ratelimit-remaining"], left, "after a {answer}");
        }
    }
}

#[tokio::test]
async fn a_caller_cannot_hide_failures_behind_the_content_type_of_grpc() {
    let failures = by_header(limiter(Quota::per_hour(9).unwrap())).charge_if(|status, _| status.is_client_error());
    let keys = ApiKeys::new("x-api-key").unwrap().key("secret", "acme").unwrap();
    let by_key = RateLimitLayer::new(keys, limiter(Quota::per_hour(9).unwrap()));
    let served = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(String::new())));
    let stack = failures.layer(by_key.layer(served));
    for (left, (content_type, key, status)) in ["8", "7", "7"].into_iter().zip([
        ("application/json", "guess", 401),
        ("application/grpc", "guess", 200),
        ("application/grpc", "secret", 200),
    ]) {
        let mut request = request(Some("acme"));
        for (name, value) in [("content-type", content_type), ("x-api-key", key)] {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let response = stack.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), status);
        let remaining = response.headers().get_all("x-ratelimit-remaining").iter().next_back().unwrap();
        assert_eq!(remaining, left, "{content_type} {key}");
    }
}

#[tokio::test]
async fn two_layers_of_one_limiter_charge_the_larger_cost() {
    for (outer, inner, spent) in [(1, 4, 4), (4, 1, 4), (2, 2, 2), (0, 3, 3), (3, 0, 3)] {
        for (extensions, spent) in [(true, spent), (false, outer + inner)] {
            let limiter = limiter(Quota::per_hour(9).unwrap());
            let layer = |cost| {
                let layer = by_header(limiter.clone()).cost(move |_| cost);
                if extensions { layer } else { layer.without_extensions() }
            };
            let served = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(String::new())));
            let stack = layer(outer).layer(layer(inner).layer(served));
            let response = stack.oneshot(request(Some("acme"))).await.unwrap();
            let left = limiter.peek(&Tenant::parse("acme").unwrap()).unwrap().remaining();
            assert_eq!(left, 9 - spent, "{outer} and {inner}");
            assert_eq!(response.headers()["x-ratelimit-remaining"], left.to_string().as_str());
        }
    }
}

#[tokio::test]
async fn a_claimed_tenant_never_replaces_a_proved_one() {
    let five = || limiter(Quota::per_minute(5).unwrap());
    let keys = || ApiKeys::new("x-api-key").unwrap().key("secret", "acme").unwrap();
    let by_key = || RateLimitLayer::new(keys(), five());
    let by_address = || RateLimitLayer::new(ClientIp::peer(), five());
    let closure = |_: Head<'_>| Ok(Tenant::parse("own").ok());
    let own = || RateLimitLayer::new(ProvedTenant::new(closure), five());
    let claim = || RateLimitLayer::new(closure, five());
    let path = || RateLimitLayer::new(PathTenant::segment(0), five());
    let nameless = || RateLimitLayer::new(anonymous, five());
    for (outer, inner, proved) in [
        (by_key(), by_header(five()), "acme"),
        (by_key(), by_address(), "acme"),
        (by_key(), path(), "acme"),
        (by_key(), nameless(), "acme"),
        (own(), by_header(five()), "own"),
        (by_header(five()), by_key(), "acme"),
        (by_address(), by_key(), "acme"),
        (by_address(), own(), "own"),
        // b04: a closure claims
        (by_key(), claim(), "acme"),
        (claim(), by_header(five()), ""),
        (by_address(), claim(), ""),
        (by_address(), by_header(five()), ""),
    ] {
        let handler = service_fn(async |request: Request<Body>| {
            let tenant = Tenant::from_extensions(request.extensions()).map(Tenant::to_string);
            Ok::<_, Infallible>(Response::new(tenant.unwrap_or_default()))
        });
        let mut request = request(Some("globex"));
        *request.uri_mut() = "/some-path".parse().unwrap();
        request.headers_mut().insert("x-api-key", "secret".parse().unwrap());
        request.extensions_mut().insert(PeerAddr(([192, 0, 2, 1], 1).into()));
        assert_eq!(outer.layer(inner.layer(handler)).oneshot(request).await.unwrap().body(), proved);
    }
}

#[tokio::test]
async fn an_inner_layer_proves_the_tenant_that_an_outer_layer_of_the_same_limiter_has_charged() {
    for (outer_cost, left) in [(1, 4), (3, 2)] {
        let limiter = limiter(Quota::per_minute(5).unwrap());
        let keys = ApiKeys::new("x-api-key").unwrap().key("secret", "acme").unwrap();
        let handler = service_fn(async |request: Request<Body>| {
            let limit = RateLimit::from_extensions(request.extensions()).unwrap().remaining();
            let tenant = Tenant::from_extensions(request.extensions()).map(Tenant::to_string);
            Ok::<_, Infallible>(Response::new(format!("{tenant:?} {limit}")))
        });
        let stack = by_header(limiter.clone())
            .cost(move |_| outer_cost)
            .layer(RateLimitLayer::new(keys, limiter.clone()).layer(handler));
        let mut request = request(Some("acme"));
        request.headers_mut().insert("x-api-key", "secret".parse().unwrap());
        assert_eq!(*stack.oneshot(request).await.unwrap().body(), format!("Some(\"acme\") {left}"));
        assert_eq!(limiter.peek(&Tenant::parse("acme").unwrap()).unwrap().remaining(), left);
    }
}

#[tokio::test]
async fn a_claim_is_never_the_tenant_of_a_handler() {
    let limited = |source: Arc<dyn TenantSource>| {
        let handler = async |tenant: Option<Tenant>, limit: RateLimit| {
            assert_eq!((tenant.as_ref(), limit.tenant()), (limit.tenant(), tenant.as_ref()));
            format!("{:?} {}", tenant.map(|tenant| tenant.to_string()), limit.key())
        };
        let layer = RateLimitLayer::new(source.or(anonymous), limiter(Quota::per_minute(5).unwrap()));
        let strict = get(async |_: Tenant| "served").layer(layer.clone());
        let optional = get(handler).layer(layer);
        Router::new().route("/", optional).route("/strict", strict)
    };
    let keys = ApiKeys::new("x-api-key").unwrap().key("secret", "acme").unwrap();
    let header = || HeaderTenant::new("x-tenant").unwrap();
    let closure = |head: Head<'_>| head.headers().get("x-tenant").map(Tenant::parse).transpose();
    let sources: [(Arc<dyn TenantSource>, &str, StatusCode); 8] = [
        (Arc::new(keys.clone()), "Some(\"acme\") acme", StatusCode::OK),
        (Arc::new(ProvedTenant::new(closure)), "Some(\"globex\") globex", StatusCode::OK),
        (Arc::new(closure), "None globex", StatusCode::INTERNAL_SERVER_ERROR),
        (Arc::new(header()), "None globex", StatusCode::INTERNAL_SERVER_ERROR),
        (Arc::new(Tenant::parse("own").unwrap()), "None own", StatusCode::INTERNAL_SERVER_ERROR),
        (Arc::new(ClientIp::peer()), "None ip:192.0.2.1", StatusCode::INTERNAL_SERVER_ERROR),
        // an address is no customer, whatever the application declares
        (Arc::new(ProvedTenant::new(ClientIp::peer())), "None ip:192.0.2.1", StatusCode::INTERNAL_SERVER_ERROR),
        (Arc::new(ExtensionTenant), "None ~anonymous", StatusCode::INTERNAL_SERVER_ERROR),
    ];
    for (source, seen, status) in sources {
        for path in ["/", "/strict"] {
            let mut request = request(Some("globex"));
            *request.uri_mut() = path.parse().unwrap();
            request.headers_mut().insert("x-api-key", "secret".parse().unwrap());
            request.extensions_mut().insert(PeerAddr(([192, 0, 2, 1], 1).into()));
            let response = limited(Arc::clone(&source)).oneshot(request).await.unwrap();
            if path == "/strict" {
                assert_eq!(response.status(), status, "{seen}");
            } else {
                assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), seen);
            }
        }
    }
}

#[tokio::test]
async fn handlers_read_the_tenant_and_the_remaining_budget_even_if_it_is_unlimited() {
    let limiter = limiter(Quota::per_minute(5).unwrap());
    limiter.plans().set(Tenant::parse("vip").unwrap(), Plan::unlimited());
    let handler = async |tenant: Tenant, left: RateLimit, same: Option<RateLimit>| {
        assert_eq!((Some(&left), Some(&tenant)), (same.as_ref(), left.tenant()));
        format!("{tenant} {} {}", left.policy(), left.remaining())
    };
    let proved = ProvedTenant::new(HeaderTenant::new("x-tenant").unwrap());
    let limited = Router::new().route("/", get(handler)).layer(RateLimitLayer::new(proved, limiter));
    for (tenant, expected) in [("acme", "acme default 4"), ("vip", "vip unlimited 4294967295")] {
        let response = limited.clone().oneshot(request(Some(tenant))).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), expected);
    }
    let bare = Router::new().route("/", get(async |left: RateLimit| left.policy()));
    let response = bare.oneshot(request(None)).await.unwrap();
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let text = response.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&text).contains("RateLimitLayer"), "{text:?}");
}

/// Rows of addresses and of anonymous requests are in the same table as those of names.
#[tokio::test]
async fn no_name_can_spend_the_budget_of_an_address_or_of_anonymous_requests() {
    let limiter = limiter(Quota::per_hour(9).unwrap());
    let reserved = [LimitKey::address([192, 0, 2, 1].into()), LimitKey::anonymous()];
    assert!(reserved.iter().all(|tenant| limiter.check(tenant, 1).is_admitted()));
    let layers = [
        by_header(limiter.clone()),
        RateLimitLayer::new(PathTenant::segment(0), limiter.clone()),
        RateLimitLayer::new(HostTenant::whole_host(), limiter.clone()),
        RateLimitLayer::new(
            ApiKeys::new("x-api-key").unwrap().or(HeaderTenant::new("x-tenant").unwrap()),
            limiter.clone(),
        ),
        RateLimitLayer::new(Arc::new(HeaderTenant::new("x-tenant").unwrap()), limiter.clone()),
        RateLimitLayer::new(
            |head: Head<'_>| head.headers().get("x-tenant").map(Tenant::parse).transpose(),
            limiter.clone(),
        ),
    ];
    for tenant in &reserved {
        for layer in &layers {
            let mut request = request(Some(tenant.as_str()));
            *request.uri_mut() = format!("/{tenant}").parse().unwrap();
            request.headers_mut().insert("host", tenant.as_str().parse().unwrap());
            assert_eq!(call(layer, request).await.status(), StatusCode::BAD_REQUEST, "{tenant}");
        }
        assert_eq!(limiter.peek(tenant).unwrap().remaining(), 8);
    }
}

#[tokio::test]
async fn a_tenant_proved_by_an_outer_layer_is_not_replaced() {
    let by_address = RateLimitLayer::new(ClientIp::peer(), limiter(Quota::per_minute(5).unwrap()));
    let handler = service_fn(async |request: Request<Body>| {
        let tenant = Tenant::from_extensions(request.extensions()).map(Tenant::to_string);
        Ok::<_, Infallible>(Response::new(tenant.unwrap_or_default()))
    });
    let mut proved = request(None);
    proved.extensions_mut().insert(PeerAddr(([192, 0, 2, 1], 1).into()));
    proved.extensions_mut().insert(Tenant::parse("acme").unwrap());
    assert_eq!(by_address.layer(handler).oneshot(proved).await.unwrap().body(), "acme");
}

#[tokio::test]
async fn with_two_limits_the_handler_sees_the_tighter_one() {
    let wide = by_header(limiter(Quota::per_hour(100).unwrap().with_name("wide").unwrap()));
    let tight = by_header(limiter(Quota::per_minute(3).unwrap().with_name("tight").unwrap()));
    for (outer, inner) in [(&wide, &tight), (&tight, &wide)] {
        let handler = service_fn(async |request: Request<Body>| {
            let left = RateLimit::from_extensions(request.extensions()).map(RateLimit::policy);
            Ok::<_, Infallible>(Response::new(left.unwrap_or_default().to_owned()))
        });
        let response = outer.layer(inner.layer(handler)).oneshot(request(Some("acme"))).await.unwrap();
        assert_eq!(response.headers()["x-ratelimit-limit"], "3");
        assert_eq!(response.body(), "tight");
    }
}

#[tokio::test]
async fn if_two_limits_have_as_much_left_the_client_sees_the_longer_wait() {
    let daily = by_header(limiter(Quota::per_day(1).unwrap()));
    let brief = by_header(limiter(Quota::per_second(1).unwrap()));
    for (outer, inner) in [(&daily, &brief), (&brief, &daily)] {
        let served = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(String::new())));
        let stack = outer.layer(inner.layer(served));
        let other = format!("tenant-{}", std::ptr::eq(outer, &daily));
        let response = stack.oneshot(request(Some(&other))).await.unwrap();
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let reset: u64 = response.headers()["x-ratelimit-reset"].to_str().unwrap().parse().unwrap();
        assert!(reset > now + 80_000, "{reset} at {now}");
    }
}

#[cfg(feature = "metrics")]
#[test]
fn decisions_are_counted_in_metrics() {
    use std::{
        collections::BTreeMap,
        sync::{Arc, Mutex, atomic::AtomicU64, atomic::Ordering::SeqCst},
    };

    #[derive(Default)]
    struct Counts(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

    impl metrics::Recorder for Counts {
        fn describe_counter(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}
        fn describe_gauge(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}
        fn describe_histogram(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}

        fn register_counter(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
            let mut counts = self.0.lock().unwrap();
            metrics::Counter::from_arc(Arc::clone(counts.entry(key.name().to_owned()).or_default()))
        }

        fn register_gauge(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
            metrics::Gauge::noop()
        }

        fn register_histogram(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Histogram {
            metrics::Histogram::noop()
        }
    }

    let counts = Counts::default();
    let acme = Tenant::parse("acme").unwrap();
    let shadow = Quota::per_day(1).unwrap().with_name("shadow").unwrap().shadow();
    let limiter = limiter(Plan::new([Quota::per_hour(5).unwrap(), shadow]).unwrap());
    metrics::with_local_recorder(&counts, || {
        for units in [2, 2, 2, 1] {
            let _decision = limiter.check(&acme, units);
        }
    });
    let counts = counts.0.into_inner().unwrap();
    let counts: Vec<_> = counts.iter().map(|(name, count)| (name.as_str(), count.load(SeqCst))).collect();
    assert_eq!(
        counts,
        [
            ("tollgate_requests_refused_total", 1),
            ("tollgate_requests_shadow_refused_total", 2),
            ("tollgate_units_admitted_total", 5),
        ]
    );
}

/// Sends five requests of a tenant with a limit of four an hour, two of which are reserved, and counts those that are admitted.
async fn admitted_with_a_reserve(source: impl TenantSource) -> usize {
    let layer = RateLimitLayer::new(source, limiter(Quota::per_hour(4).unwrap().reserve(0.5).unwrap()));
    let mut admitted = 0;
    for _ in 0..5 {
        let mut request = request(Some("acme"));
        request.headers_mut().insert("x-api-key", "secret".parse().unwrap());
        admitted += usize::from(call(&layer, request).await.status() == StatusCode::OK);
    }
    admitted
}

#[tokio::test]
async fn b04_a_closure_claims_its_tenant_and_cannot_spend_the_reserve() {
    struct OwnSource;
    impl TenantSource for OwnSource {
        fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
            // callers may choose it
            Ok(head.headers().get("x-tenant").map(LimitKey::parse).transpose()?.map(TenantName::from))
        }
    }
    let closure = |head: Head<'_>| head.headers().get("x-tenant").map(Tenant::parse).transpose();
    let keys = ApiKeys::new("x-api-key").unwrap().key("secret", "acme").unwrap();
    let header = || HeaderTenant::new("x-tenant").unwrap();
    assert_eq!(admitted_with_a_reserve(closure).await, 2);
    assert_eq!(admitted_with_a_reserve(OwnSource).await, 2);
    assert_eq!(admitted_with_a_reserve(Arc::new(closure)).await, 2);
    assert_eq!(admitted_with_a_reserve(ExtensionTenant.or(closure)).await, 2);
    assert_eq!(admitted_with_a_reserve(header()).await, 2);
    assert_eq!(admitted_with_a_reserve(ProvedTenant::new(closure)).await, 4);
    assert_eq!(admitted_with_a_reserve(ProvedTenant::new(header())).await, 4);
    assert_eq!(admitted_with_a_reserve(ProvedTenant::new(closure).or(closure)).await, 4);
    assert_eq!(admitted_with_a_reserve(keys).await, 4);
}

/// Sends a request through a limit of a hundred an hour to an upstream that answers with these headers.
async fn behind(style: HeaderStyle, status: u16, upstream: &[(&'static str, &'static str)]) -> Vec<String> {
    let clock = ManualClock::new();
    let limiter = Limiter::builder(Plans::new(Quota::per_hour(100).unwrap())).clock(clock).build().unwrap();
    let answer = || {
        let mut response = Response::builder().status(status);
        for (name, value) in upstream {
            response = response.header(*name, *value);
        }
        response.body(String::new()).unwrap()
    };
    let served = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(answer()));
    let response = by_header(limiter).headers(style).layer(served).oneshot(request(Some("acme"))).await.unwrap();
    let text = |(name, value): (&http::HeaderName, &http::HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
    let mut shown: Vec<_> = response.headers().iter().map(text).collect();
    shown.sort();
    shown
}

#[tokio::test]
async fn b30_headers_of_an_upstream_in_another_style_are_replaced() {
    let ours =
        ["x-ratelimit-limit: 100", "x-ratelimit-remaining: 99", "x-ratelimit-reset: 1000003600", "x-ratelimit: 100"];
    let theirs = |reset| {
        [("x-ratelimit", "9"), ("x-ratelimit-limit", "9"), ("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", reset)]
    };
    let time = HeaderStyle::new();
    for status in [200, 429] {
        assert_eq!(behind(time, status, &theirs("30")).await, ours, "seconds from now");
        assert_eq!(behind(time, status, &theirs("soon")).await, ours);
        assert_eq!(behind(time, status, &theirs("1000000030")[1..]).await, ours, "without our short name");
        let kept = behind(time, status, &theirs("1000000030")).await;
        assert_eq!(kept[1..3], ["x-ratelimit-remaining: 1", "x-ratelimit-reset: 1000000030"]);
        let kept = behind(time.delta_seconds(), status, &theirs("30")).await;
        assert_eq!(kept[1..3], ["x-ratelimit-remaining: 1", "x-ratelimit-reset: 30"]);
        let replaced = behind(time.delta_seconds(), status, &theirs("1000000030")).await;
        assert_eq!(replaced[1..3], ["x-ratelimit-remaining: 99", "x-ratelimit-reset: 3600"]);
    }
    // no retry helps there
    let refused = behind(time, 429, &theirs("")[..3]).await;
    assert_eq!(refused, ["x-ratelimit-limit: 9", "x-ratelimit-remaining: 1", "x-ratelimit: 9"]);

    let ietf = HeaderStyle::none().ietf_draft_10();
    let own = "ratelimit: \"default\";r=99;t=3600;pk=:giszrYfBSKCi:";
    let policy = "ratelimit-policy: \"default\";q=100;qu=\"requests\";w=3600;pk=:giszrYfBSKCi:";
    let older = [("ratelimit", "limit=9, remaining=1, reset=30"), ("ratelimit-policy", "9;w=60")];
    assert_eq!(behind(ietf, 200, &older).await, [policy, own]);
    let same = [("ratelimit", "\"inner\";r=1;t=30"), ("ratelimit-policy", "\"inner\";q=9;w=60")];
    let both = behind(ietf, 200, &same).await;
    assert_eq!(both.len(), 4, "{both:?}");
}
