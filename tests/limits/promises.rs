//! Tests each row of the table of rules in the documentation of `limit`.

use std::{convert::Infallible, time::Duration};

use http::{HeaderMap, Request, Response, StatusCode};
use tollgate::{
    EventLog, Limiter, Plan, Plans, Quota, RateLimitLayer,
    clock::Clock,
    event::{Event, EventKind, Mode, Query},
    limit::{Decision, HeaderStyle, RefusalReason, Spend},
    tenant::HeaderTenant,
    testing::ManualClock,
};
use tower::{Layer, Service, ServiceExt};

use crate::engine::{Engine, InMemory, nanos, tenant};

const SECOND: Duration = Duration::from_secs(1);

fn per_minute(limit: u32) -> Quota {
    Quota::per_minute(limit).unwrap()
}

fn spend(engine: &impl Engine, name: &str, units: u32) -> Option<Spend> {
    let decision = engine.check(&tenant(name), units);
    decision.is_admitted().then(|| decision.into_spend())
}

fn remaining(engine: &impl Engine, name: &str) -> u32 {
    engine.peek(&tenant(name)).unwrap().remaining()
}

/// Creates a limiter with its own clock, and its event log.
fn logged(quotas: impl Into<Plan>) -> (InMemory, EventLog) {
    let log = EventLog::new();
    (InMemory::of(Limiter::builder(Plans::new(quotas)).events(log.clone()), ManualClock::new()), log)
}

/// Sends a request of acme that must be refused.
fn refused(engine: &impl Engine, units: u32) -> Decision {
    let decision = engine.check(&tenant("acme"), units);
    assert!(!decision.is_admitted());
    decision
}

fn events(log: &EventLog, kind: EventKind) -> Vec<Event> {
    log.read_events(&Query::new().kind(kind)).events
}

fn layer(limiter: &Limiter) -> RateLimitLayer {
    RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter.clone())
}

/// Sends one request of acme through `layers` to a service that responds with `status`.
async fn send<L>(layer: &L, status: u16) -> (StatusCode, HeaderMap)
where
    L: Layer<Answering>,
    L::Service: Service<Request<()>, Response = Response<String>, Error = Infallible>,
{
    let request = Request::get("/").header("x-tenant", "acme").body(()).unwrap();
    let answer = layer.layer(Answering(status)).oneshot(request).await.unwrap();
    (answer.status(), answer.headers().clone())
}

#[derive(Clone)]
struct Answering(u16);

impl Service<Request<()>> for Answering {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let mut response = Response::new(String::new());
        *response.status_mut() = StatusCode::from_u16(self.0).unwrap();
        std::future::ready(Ok(response))
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap())
}

#[test]
fn a_quota_lowered_live_admits_nothing_until_there_is_room() {
    let (engine, _) = logged(per_minute(10));
    for _ in 0..8 {
        assert!(spend(&engine, "acme", 1).is_some());
        engine.clock().advance(SECOND);
    }
    engine.set_default_plan(per_minute(5).into());
    let refusal = refused(&engine, 1);
    // 8 are spent; four of them must come back, and the last of those was spent in the third second
    let reset = refusal.standing().unwrap().reset();
    assert_eq!(reset.as_nanos(), 63_000_000_000);
    engine.clock().set(reset - nanos(1));
    assert!(spend(&engine, "acme", 1).is_none());
    engine.clock().set(reset);
    assert!(spend(&engine, "acme", 1).is_some());
    assert!(spend(&engine, "acme", 1).is_none());
    engine.set_default_plan(per_minute(20).into());
    assert_eq!(remaining(&engine, "acme"), 15, "a raised quota applies at once");
}

#[test]
fn a_tenant_denied_or_unlimited_for_a_while_keeps_what_it_spent() {
    for meanwhile in [Plan::denied(), Plan::unlimited()] {
        let (engine, _) = logged(per_minute(3));
        let acme = tenant("acme");
        spend(&engine, "acme", 3).unwrap();
        engine.set_plan(&acme, meanwhile.clone());
        _ = engine.check(&acme, 1);
        engine.set_plan(&acme, Plan::denied());
        _ = engine.check(&acme, 1);
        engine.remove_plan(&acme);
        assert!(spend(&engine, "acme", 1).is_none(), "after {meanwhile:?}");
        engine.clock().advance(60 * SECOND);
        assert!(spend(&engine, "acme", 3).is_some());
    }
}

#[test]
fn an_expired_refusal_does_not_return_when_the_clock_steps_back() {
    let (engine, _) = logged(per_minute(3));
    spend(&engine, "acme", 3).unwrap();
    assert!(spend(&engine, "acme", 1).is_none());
    engine.clock().advance(60 * SECOND);
    spend(&engine, "acme", 3).unwrap();
    engine.clock().set(engine.clock().now() - nanos(1));
    let refusal = refused(&engine, 1);
    assert_eq!(refusal.standing().unwrap().reset().as_nanos(), 120_000_000_000);
}

#[test]
fn another_rule_starts_from_the_units_that_count() {
    let plans: [Plan; 3] = [
        per_minute(10).into(),
        Quota::fixed(10, 60 * SECOND).unwrap().into(),
        Quota::smooth(10, 60 * SECOND, 10).unwrap().into(),
    ];
    for (from, to) in plans.iter().flat_map(|from| plans.iter().map(move |to| (from, to))) {
        let (engine, _) = logged(from.clone());
        spend(&engine, "acme", 7).unwrap();
        engine.set_default_plan(to.clone());
        assert_eq!(remaining(&engine, "acme"), 3, "from {from:?} to {to:?}");
    }
}

#[test]
fn a_smooth_quota_lowered_below_what_is_spent_recovers_when_a_unit_fits() {
    let (engine, _) = logged(Quota::smooth(1, SECOND, 20).unwrap());
    spend(&engine, "acme", 20).unwrap();
    engine.set_default_plan(Quota::smooth(1, SECOND, 5).unwrap().into());
    let told = engine.peek(&tenant("acme")).unwrap();
    assert_eq!((told.remaining(), told.time_until_reset()), (0, 16 * SECOND));
    engine.clock().set(told.reset());
    assert_eq!(remaining(&engine, "acme"), 1);
}

#[test]
fn a_refund_is_taken_from_the_entry_of_its_spend_or_an_older_one() {
    let (engine, _) = logged(per_minute(3));
    let at = |seconds: u32| engine.clock().set(tollgate::clock::Moment::default() + seconds * SECOND);
    let first = spend(&engine, "acme", 1).unwrap();
    at(10);
    let second = spend(&engine, "acme", 1).unwrap();
    at(20);
    spend(&engine, "acme", 1).unwrap();
    at(30);
    engine.refund(first);
    assert!(spend(&engine, "acme", 1).is_some(), "a refund makes room at once");
    let refusal = refused(&engine, 1);
    assert_eq!(refusal.standing().unwrap().time_until_reset(), 40 * SECOND, "newer entries are unchanged");
    at(75);
    assert_eq!(remaining(&engine, "acme"), 1);
    engine.refund(second);
    assert_eq!(remaining(&engine, "acme"), 1, "units that came back are not refunded again");
}

#[test]
fn a_refund_of_a_voided_spend_has_no_effect() {
    let plans: [Plan; 3] = [
        per_minute(10).into(),
        Quota::fixed(10, 60 * SECOND).unwrap().into(),
        Quota::smooth(10, 60 * SECOND, 10).unwrap().into(),
    ];
    for plan in plans {
        let (engine, _) = logged(plan.clone());
        let voided = spend(&engine, "acme", 10).unwrap();
        engine.reset(&tenant("acme"));
        let newer = spend(&engine, "acme", 10).unwrap();
        engine.refund(voided);
        assert!(spend(&engine, "acme", 1).is_none(), "{plan:?}");
        engine.refund(newer);
        assert_eq!(remaining(&engine, "acme"), 10);
    }
}

/// After refunds out of order, a smooth quota knows that the marks of later spends are too late. A new row no longer
/// knows this.
#[cfg(feature = "smooth")]
#[test]
fn a_refund_never_affects_units_spent_after_the_row_was_recreated() {
    let (engine, _) = logged(Quota::smooth(10, 3_600 * SECOND, 10).unwrap());
    let first = spend(&engine, "acme", 5).unwrap();
    let second = spend(&engine, "acme", 5).unwrap();
    engine.refund(first);
    // by now the second spend has come back
    engine.clock().advance(1_800 * SECOND);
    assert_eq!(engine.limiter.tenants(), 1);
    engine.set_plan(&tenant("monitor"), Plan::unlimited());
    for _ in 0..512 {
        engine.clock().advance(Duration::from_millis(200));
        assert!(spend(&engine, "monitor", 1).is_some());
    }
    assert_eq!(engine.limiter.tenants(), 0, "the row was swept");
    spend(&engine, "acme", 10).unwrap();
    engine.refund(second);
    assert_eq!(remaining(&engine, "acme"), 0);
}

#[tokio::test]
async fn a_rule_on_the_response_reserves_units_first_and_settles_afterwards() {
    let (InMemory { limiter, .. }, _) = logged(per_minute(2));
    let failures = layer(&limiter).charge_if(|status, _| status.is_client_error());
    let left = |headers: &HeaderMap| header(headers, "x-ratelimit-remaining").unwrap().to_owned();
    let (_, headers) = send(&failures, 200).await;
    assert_eq!(left(&headers), "2", "the headers include refunded units");
    let (_, headers) = send(&failures, 404).await;
    assert_eq!(left(&headers), "1");
    let but_server_errors = layer(&limiter).charge_if(|status, _| !status.is_server_error());
    assert_eq!(left(&send(&but_server_errors, 500).await.1), "1");

    // a request in flight holds its unit, so no other request can use it
    let request = || Request::get("/").header("x-tenant", "acme").body(()).unwrap();
    let in_flight = failures.layer(Answering(200)).call(request());
    assert_eq!(send(&failures, 200).await.0, StatusCode::TOO_MANY_REQUESTS);
    drop(in_flight);
    assert_eq!(send(&failures, 200).await.0, StatusCode::TOO_MANY_REQUESTS, "the unit stays spent");
}

#[test]
fn a_reset_by_an_operator_clears_the_past_and_is_logged() {
    let (engine, log) = logged(per_minute(2));
    spend(&engine, "acme", 2).unwrap();
    assert!(spend(&engine, "acme", 1).is_none());
    engine.reset(&tenant("acme"));
    assert!(spend(&engine, "acme", 2).is_some());
    let logged = events(&log, EventKind::TenantReset);
    assert_eq!(logged.iter().map(|event| event.tenant.clone()).collect::<Vec<_>>(), [Some(tenant("acme").into())]);
}

#[tokio::test]
async fn a_shadow_quota_logs_and_marks_requests_it_would_refuse() {
    let shadow = per_minute(1).with_name("trial").unwrap().shadow();
    for (plan, shown) in
        [(Plan::from(shadow), [None, None]), (Plan::new([shadow, per_minute(5)]).unwrap(), [Some("5"), Some("3")])]
    {
        let (engine, log) = logged(plan);
        let layer = layer(&engine.limiter);
        assert_eq!(header(&send(&layer, 200).await.1, "x-ratelimit-would-refuse"), None);
        let (status, headers) = send(&layer, 200).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(header(&headers, "x-ratelimit-would-refuse"), Some("trial"));
        assert_eq!(["x-ratelimit-limit", "x-ratelimit-remaining"].map(|n| header(&headers, n)), shown);
        let events = events(&log, EventKind::RateLimited);
        assert_eq!(
            events.iter().map(|event| (event.mode, event.policy)).collect::<Vec<_>>(),
            [(Mode::Shadow, Some("trial"))]
        );
        // requests that it would have refused are not charged there, so only the first counts
        engine.clock().advance(30 * SECOND);
        send(&layer, 200).await;
        engine.clock().advance(30 * SECOND);
        assert_eq!(header(&send(&layer, 200).await.1, "x-ratelimit-would-refuse"), None);
        // the next one would be refused, and the header names the quota unless it is switched off
        assert_eq!(header(&send(&layer, 200).await.1, "x-ratelimit-would-refuse"), Some("trial"));
        let hidden = layer.headers(HeaderStyle::new().without_shadow());
        let (_, headers) = send(&hidden, 200).await;
        assert_eq!(header(&headers, "x-ratelimit-would-refuse"), None);
        assert_eq!(header(&headers, "x-ratelimit-limit"), shown[0], "other headers stay");
    }
}

#[test]
fn at_the_tenant_limit_named_tenants_have_room_and_others_share_buckets() {
    const BUCKETS: usize = 4096;
    let log = EventLog::new();
    let builder = Limiter::builder(Plans::new(per_minute(1))).events(log.clone()).max_tenants(3);
    let engine = InMemory::of(builder, ManualClock::new());
    engine.set_plan(&tenant("named"), per_minute(2).into());
    let early = ["early-1", "early-2"];
    assert!(early.iter().all(|name| spend(&engine, name, 1).is_some()));
    assert!(events(&log, EventKind::OverflowBegan).is_empty());

    let strangers = || (0..3 * BUCKETS).map(|number| format!("stranger-{number}"));
    let admitted = strangers().filter(|name| spend(&engine, name, 1).is_some()).count();
    assert!((BUCKETS / 2..=BUCKETS).contains(&admitted), "{admitted}");
    assert_eq!(engine.limiter.tenants(), 2 + admitted);
    assert_eq!(events(&log, EventKind::OverflowBegan).len(), 1);
    assert!(spend(&engine, "named", 2).is_some(), "room is kept for named tenants");
    assert!(early.iter().all(|name| spend(&engine, name, 1).is_none()), "no spent unit is forgotten");
    assert!(strangers().all(|name| spend(&engine, &name, 1).is_none()));
}

#[test]
fn a_tenant_leaves_its_bucket_with_the_units_spent_there() {
    let builder = Limiter::builder(Plans::new(Quota::per_hour(1).unwrap())).max_tenants(1);
    let engine = InMemory::of(builder, ManualClock::new());
    let at = |seconds: u32| engine.clock().set(tollgate::clock::Moment::default() + seconds * SECOND);
    spend(&engine, "early", 1).unwrap();
    at(1_800);
    spend(&engine, "late", 1).unwrap();
    assert_eq!(engine.limiter.tenants(), 2);
    // the early tenant is idle after an hour and is swept, so the late one gets its own row
    for step in 0..300 {
        at(3_600 + 5 * step);
        assert!(spend(&engine, "late", 1).is_none(), "the units still count");
    }
    at(5_400);
    assert!(spend(&engine, "late", 1).is_some());
    assert!(spend(&engine, "late", 1).is_none());
}

#[tokio::test]
async fn a_request_that_costs_more_than_the_quota_gets_no_retry_time() {
    let (engine, log) =
        logged(Plan::new([per_minute(5), Quota::per_day(100).unwrap().with_name("daily").unwrap()]).unwrap());
    let (status, headers) = send(&layer(&engine.limiter).cost(|_| 6), 200).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(&headers, "x-ratelimit-limit"), Some("5"));
    assert_eq!(header(&headers, "x-ratelimit-remaining"), Some("5"));
    assert_eq!(header(&headers, "x-ratelimit-reset"), None);
    assert_eq!(header(&headers, "retry-after"), None);
    assert_eq!(events(&log, EventKind::QuotaImpossible).len(), 1);
    assert_eq!(refused(&engine, 6).refusal_reason(), Some(RefusalReason::Impossible));
    assert_eq!(remaining(&engine, "acme"), 5);
}

#[tokio::test]
async fn a_request_through_two_layers_of_one_limiter_is_charged_once() {
    let (engine, _) = logged(per_minute(10));
    let twice = tower::layer::util::Stack::new(layer(&engine.limiter), layer(&engine.limiter));
    let (_, headers) = send(&twice, 200).await;
    assert_eq!(header(&headers, "x-ratelimit-remaining"), Some("9"));
    assert_eq!(remaining(&engine, "acme"), 9);
    // another limiter has another budget
    let (other, _) = logged(per_minute(10));
    let both = tower::layer::util::Stack::new(layer(&engine.limiter), layer(&other.limiter));
    send(&both, 200).await;
    assert_eq!((remaining(&engine, "acme"), remaining(&other, "acme")), (8, 9));
}

#[tokio::test]
async fn with_several_quotas_headers_show_the_one_that_refused_or_else_the_tightest() {
    let burst = Quota::new(3, 10 * SECOND).unwrap().with_name("burst").unwrap();
    let (engine, _) = logged(Plan::new([burst, per_minute(4).with_name("minute").unwrap()]).unwrap());
    let layer = layer(&engine.limiter);
    let shown = |headers: &HeaderMap| {
        let shown = ["limit", "remaining", "reset"].map(|n| format!("x-ratelimit-{n}"));
        shown.map(|name| header(headers, &name).unwrap().to_owned())
    };
    engine.clock().advance(Duration::from_millis(500));
    for remaining in ["2", "1", "0"] {
        let (_, headers) = send(&layer, 200).await;
        assert_eq!(shown(&headers), ["3", remaining, "1000000011"]);
    }
    let (status, headers) = send(&layer, 200).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(shown(&headers), ["3", "0", "1000000011"]);
    assert_eq!(header(&headers, "retry-after"), Some("10"));
    engine.clock().advance(10 * SECOND);
    let (_, headers) = send(&layer, 200).await;
    assert_eq!(shown(&headers), ["4", "0", "1000000061"]);
    let (status, headers) = send(&layer, 200).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(shown(&headers), ["4", "0", "1000000061"]);
    assert_eq!(header(&headers, "retry-after"), Some("50"));
}

#[test]
fn if_several_quotas_have_as_much_left_the_reset_is_the_latest() {
    let burst = Quota::new(4, 10 * SECOND).unwrap().with_name("burst").unwrap();
    let (engine, _) = logged(Plan::new([burst, per_minute(4)]).unwrap());
    spend(&engine, "acme", 1).unwrap();
    let told = engine.peek(&tenant("acme")).unwrap();
    assert_eq!((told.remaining(), told.time_until_reset()), (3, 60 * SECOND));
}

/// A retry after the whole seconds of the header is admitted. One a second earlier is not.
#[tokio::test]
async fn headers_round_the_reset_up_and_retry_after_is_never_0() {
    let (engine, _) = logged(per_minute(1));
    let layer = layer(&engine.limiter);
    let clock = engine.clock();
    clock.advance(Duration::from_millis(250));
    send(&layer, 200).await;
    for (wait, after) in [(60_000_000_000_u64, "60"), (59_000_000_001, "60"), (1_000_000, "1"), (1, "1")] {
        clock.set(tollgate::clock::Moment::from_nanos(60_250_000_000 - wait));
        let (status, headers) = send(&layer, 200).await;
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(header(&headers, "retry-after"), Some(after), "{wait} ns before");
        assert_eq!(header(&headers, "x-ratelimit-reset"), Some("1000000061"));
    }
    clock.set(tollgate::clock::Moment::from_nanos(60_250_000_000));
    assert_eq!(send(&layer, 200).await.0, StatusCode::OK);
}
