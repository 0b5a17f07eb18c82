//! What a mounted limit leaves for handlers, for requests without a tenant, and for those who count.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::convert::Infallible;

use axum::{Router, body::Body, routing::get};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tollgate::{
    ClientIp, HeaderStyle, Limiter, PeerAddr, Plan, Quota, Quotas, RateLimit, RateLimitLayer, Tenant, limit::NoTenant,
    tenant::HeaderTenant,
};
use tower::{Layer, ServiceExt, service_fn};

fn limiter(plan: impl Into<Plan>) -> Limiter {
    Limiter::memory(Quotas::new(plan))
}

fn by_header(limiter: Limiter) -> RateLimitLayer {
    RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter)
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
async fn without_a_tenant_all_share_or_each_address_counts_or_none_comes_through() {
    let from = |address: &str, port: u16| {
        let mut request = request(None);
        request.extensions_mut().insert(PeerAddr((address.parse::<std::net::IpAddr>().unwrap(), port).into()));
        request
    };
    let one = || limiter(Quota::per_hour(1).unwrap());

    let reject = by_header(one());
    assert_eq!(call(&reject, request(None)).await.status(), StatusCode::BAD_REQUEST);

    let shared = by_header(one()).no_tenant(NoTenant::Shared);
    assert_eq!(call(&shared, from("192.0.2.1", 1)).await.status(), StatusCode::OK);
    assert_eq!(call(&shared, from("192.0.2.2", 1)).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(call(&shared, request(Some("acme"))).await.status(), StatusCode::OK, "acme is not anonymous");

    let by_ip = by_header(one()).no_tenant(NoTenant::ByIp(ClientIp::peer()));
    assert_eq!(call(&by_ip, from("192.0.2.1", 1)).await.status(), StatusCode::OK);
    assert_eq!(call(&by_ip, from("192.0.2.1", 2)).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(call(&by_ip, from("192.0.2.2", 1)).await.status(), StatusCode::OK);
    assert_eq!(call(&by_ip, request(None)).await.status(), StatusCode::BAD_REQUEST, "no address either");
}

#[tokio::test]
async fn a_refusal_says_when_to_come_back_in_every_style() {
    let quiet = by_header(limiter(Quota::per_minute(1).unwrap())).headers(HeaderStyle::none());
    let admitted = call(&quiet, request(Some("acme"))).await;
    assert!(admitted.headers().is_empty());
    let refused = call(&quiet, request(Some("acme"))).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let names: Vec<_> = refused.headers().keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["retry-after"]);
}

#[tokio::test]
async fn handlers_read_the_tenant_and_what_is_left_also_of_an_unlimited_one() {
    let limiter = limiter(Quota::per_minute(5).unwrap());
    limiter.quotas().set(Tenant::parse("vip").unwrap(), Plan::unlimited());
    let handler = async |tenant: Tenant, left: RateLimit, same: Option<RateLimit>| {
        assert_eq!(Some(left), same);
        format!("{tenant} {} {}", left.policy(), left.remaining())
    };
    let limited = Router::new().route("/", get(handler)).layer(by_header(limiter));
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

#[tokio::test]
async fn a_tenant_that_was_proved_outside_is_not_replaced() {
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
async fn of_two_limits_in_a_row_the_handler_sees_the_tighter() {
    let wide = by_header(limiter(Quota::per_hour(100).unwrap().named("wide").unwrap()));
    let tight = by_header(limiter(Quota::per_minute(3).unwrap().named("tight").unwrap()));
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
async fn of_two_limits_with_as_much_left_the_client_sees_the_longer_wait() {
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
fn what_is_decided_is_counted() {
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
    let shadow = Quota::per_day(1).unwrap().named("shadow").unwrap().shadow();
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
