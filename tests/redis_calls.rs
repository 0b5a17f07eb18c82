//! Holds and open calls that several nodes share, on real servers.
#![cfg(all(feature = "redis", feature = "login", feature = "test-util"))]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

#[path = "support/programs.rs"]
mod programs;
#[path = "support/redis_server.rs"]
#[allow(dead_code, reason = "each test program uses some of it")]
mod redis_server;

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use redis_server::{RedisCluster, RedisServer, wait_until};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tollgate::{
    BearerLayer, EventLog, Limiter, Plan, Plans, Quota, RateLimitLayer, Tenant,
    bearer::AccessTokenTenant,
    event::{EventKind, Query},
    limit::{Decision, Fallback, Hold, RefusalReason, SharedLimiter, Tracked, Usage},
    store::RedisConfig,
    tenant::{HeaderTenant, Standing},
    testing::{ManualClock, TestIssuer},
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

const MINUTE: Duration = Duration::from_secs(60);

fn config(url: &str) -> RedisConfig {
    RedisConfig::new(url).unwrap().deadline(Duration::from_secs(5)).unwrap()
}

/// Three calls at the same time, and a hundred units in an hour.
fn plan() -> Plan {
    let rate = Quota::per_hour(100).unwrap();
    Plan::new([Quota::concurrent(3).unwrap(), rate]).unwrap()
}

async fn node(url: &str, plan: impl Into<Plan>) -> SharedLimiter {
    Limiter::redis(config(url), Plans::new(plan)).connect().await.unwrap()
}

fn acme() -> Tenant {
    Tenant::parse("acme").unwrap()
}

async fn hold(limiter: &SharedLimiter, estimate: u32) -> Result<Hold, Decision> {
    limiter.hold(&acme(), estimate, 2 * estimate, 10 * MINUTE).await
}

/// Returns the policy, what remains, and whether the reset is exact.
fn shown(standing: &Standing) -> (&'static str, u32, bool) {
    (standing.policy(), standing.remaining(), standing.is_exact())
}

async fn left(limiter: &SharedLimiter) -> u32 {
    limiter.peek(&acme()).await.unwrap().remaining()
}

/// Calls end in the background.
async fn until_left(limiter: &SharedLimiter, expected: u32) {
    let began = Instant::now();
    while left(limiter).await != expected {
        assert!(began.elapsed() < Duration::from_secs(20), "{} units are left", left(limiter).await);
        sleep(Duration::from_millis(5)).await;
    }
}

/// Returns how many calls of scripts the server has run.
fn script_calls(server: &RedisServer) -> u32 {
    let stats = server.cli(&["info", "commandstats"]);
    let scripts = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    scripts.map(|rest| rest.split_once(',').unwrap().0.parse::<u32>().unwrap()).sum()
}

async fn nodes_count_calls_of_each_other(one: SharedLimiter, other: SharedLimiter) {
    let first = hold(&one, 40).await.unwrap();
    assert_eq!((first.estimate(), shown(first.standing().unwrap())), (40, ("default", 60, false)));
    let second = hold(&other, 50).await.unwrap();
    assert_eq!(shown(&one.peek(&acme()).await.unwrap()), ("default", 10, false));
    // the units of the first come back when it ends
    let refused = hold(&one, 20).await.unwrap_err();
    assert_eq!(shown(refused.standing().unwrap()), ("default", 10, false));
    assert!(refused.retry_after() > 9 * MINUTE && refused.retry_after() <= 10 * MINUTE);
    let third = hold(&one, 10).await.unwrap();
    let refused = hold(&other, 1).await.unwrap_err();
    assert_eq!(refused.refusal_reason(), Some(RefusalReason::Spent));
    first.commit(25);
    until_left(&other, 15).await;
    // it uses more than its estimate: a debt of five units, and then of no more than a limit
    second.commit(70);
    until_left(&one, 0).await;
    drop(third);
    let (began, mut standing) = (Instant::now(), one.peek(&acme()).await.unwrap());
    while !standing.is_exact() && began.elapsed() < Duration::from_secs(20) {
        sleep(Duration::from_millis(5)).await;
        standing = one.peek(&acme()).await.unwrap();
    }
    assert_eq!(shown(&standing), ("default", 0, true));
    assert!(hold(&other, 1).await.is_err());
    one.reset(&acme()).await.unwrap();

    // slots
    let mut calls = Vec::new();
    for limiter in [&one, &other, &one] {
        calls.push(hold(limiter, 1).await.unwrap());
    }
    let refused = hold(&other, 1).await.unwrap_err();
    assert_eq!(shown(refused.standing().unwrap()), ("concurrent", 0, false));
    assert_eq!(refused.retry_after(), Duration::from_secs(1));
    // a reset forgets units, and no slot
    other.reset(&acme()).await.unwrap();
    assert_eq!(left(&one).await, 100);
    assert!(hold(&one, 1).await.is_err());
    calls.pop().unwrap().commit(0);
    until_admitted(&other).await;
    calls.clear();
    for _ in 0..3 {
        until_admitted(&one).await;
    }
}

async fn until_admitted(limiter: &SharedLimiter) {
    let began = Instant::now();
    while hold(limiter, 1).await.map(|hold| hold.commit(0)).is_err() {
        assert!(began.elapsed() < Duration::from_secs(20), "no slot is free");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_share_holds_and_slots() {
    for server in RedisServer::each(&[]) {
        nodes_count_calls_of_each_other(node(&server.url(), plan()).await, node(&server.url(), plan()).await).await;
        // the last call ends in the background
        let head = || server.cli(&["getrange", "tollgate:limit:{acme}", "14", "14"]);
        wait_until(|| head().trim_end_matches('\n') == "\0");
    }
    if let Some(cluster) = RedisCluster::start() {
        nodes_count_calls_of_each_other(node(&cluster.url(), plan()).await, node(&cluster.url(), plan()).await).await;
        // its key has no hash tag
        let (limiter, brace) = (node(&cluster.url(), plan()).await, Tenant::parse("}x").unwrap());
        let held = limiter.hold(&brace, 10, 10, MINUTE).await.unwrap();
        assert_eq!(limiter.peek(&brace).await.unwrap().remaining(), 90);
        held.commit(10);
    }
}

#[tokio::test]
async fn a_call_that_the_server_has_lost_is_charged_what_it_uses_beyond_its_estimate() {
    for server in RedisServer::each(&[]) {
        let limiter = node(&server.url(), Quota::per_hour(1_000).unwrap()).await;
        let hold = limiter.hold(&acme(), 10, 500, 10 * MINUTE).await.unwrap();
        assert_eq!(server.cli(&["del", "tollgate:limit:{acme}"]).trim(), "1");
        let began = Instant::now();
        while server.cli(&["exists", "tollgate:limit:{acme}"]).trim() == "0" {
            assert!(began.elapsed() < Duration::from_secs(20), "its slot is not renewed");
            sleep(Duration::from_millis(50)).await;
        }
        hold.commit(500);
        until_left(&limiter, 510).await;
    }
}

#[tokio::test]
async fn a_call_that_ends_while_the_server_is_away_is_charged_when_it_is_back() {
    for mut server in RedisServer::each(&["--appendonly", "yes", "--appendfsync", "always"]) {
        let limiter = node(&server.url(), Quota::per_hour(1_000).unwrap()).await;
        let hold = limiter.hold(&acme(), 10, 500, 10 * MINUTE).await.unwrap();
        server.kill();
        hold.commit(500);
        // the first attempt fails
        sleep(Duration::from_millis(200)).await;
        server.restart();
        until_left(&limiter, 500).await;
    }
}

#[tokio::test]
async fn a_call_is_one_call_of_the_server_and_never_uses_a_lease() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let rate = Quota::per_hour(100_000).unwrap();
    // no lease ends meanwhile
    let builder = Limiter::builder(Plans::new(rate)).clock(ManualClock::new()).redis(config(&server.url()));
    let leased = builder.leased().connect().await.unwrap();
    for _ in 0..100 {
        assert!(leased.check(&acme(), 1).await.is_admitted());
    }
    let before = script_calls(&server);
    let open = hold(&leased, 10).await.unwrap();
    assert_eq!(script_calls(&server), before + 1);
    // other requests still use leases
    for _ in 0..20 {
        assert!(leased.check(&acme(), 1).await.is_admitted());
    }
    assert!(script_calls(&server) < before + 10);
    open.commit(10);
    let all = node(&server.url(), rate).await;
    leased.close().await;
    until_left(&all, 100_000 - 130).await;
}

#[tokio::test]
async fn a_plan_that_counts_calls_refuses_what_nothing_tracks() {
    let Some(server) = RedisServer::start(&[]) else { return };
    for leased in [false, true] {
        let builder = Limiter::redis(config(&server.url()), Plans::new(plan()));
        let limiter = if leased { builder.leased() } else { builder }.connect().await.unwrap();
        assert_eq!(limiter.check(&acme(), 1).await.refusal_reason(), Some(RefusalReason::Untracked));
        assert_eq!(left(&limiter).await, 100);
        // a check of zero units only looks, but a request that costs nothing is a call
        assert!(limiter.check(&acme(), 0).await.is_admitted());
        let layer = RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter).cost(|_| 0);
        let service = layer
            .layer(service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))));
        let request = Request::get("/").header("x-tenant", "acme").body(()).unwrap();
        assert_eq!(service.oneshot(request).await.unwrap().status(), 503);
    }
}

#[tokio::test]
async fn a_limit_by_token_charges_the_rates_of_a_plan_that_counts_calls() {
    let Some(server) = RedisServer::start(&[]) else { return };
    for (leased, units) in [(false, 98), (true, 96)] {
        let builder = Limiter::redis(config(&server.url()), Plans::new(plan()));
        let limiter = if leased { builder.leased() } else { builder }.connect().await.unwrap();
        let issuer = TestIssuer::new("https://auth.example", "https://api.example");
        let token = format!("Bearer {}", issuer.token(|claims| claims.tenant(&acme())));
        let request = || Request::get("/").header("authorization", &token).body(()).unwrap();
        let answer =
            || service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("ok")))));
        let layer = BearerLayer::new(issuer.verifier()).limit(limiter.clone());
        assert_eq!(layer.layer(answer()).oneshot(request()).await.unwrap().status(), 200);
        // a layer that tracks, inside it, takes the slot
        let tracking = RateLimitLayer::new(AccessTokenTenant, limiter.clone()).tracking_bodies();
        let service = layer.layer(tracking.layer(answer()));
        let open = service.clone().oneshot(request()).await.unwrap();
        assert_eq!((open.status(), left(&limiter).await), (StatusCode::OK, units));
        let others = [hold(&limiter, 1).await.unwrap(), hold(&limiter, 1).await.unwrap()];
        assert!(hold(&limiter, 1).await.is_err(), "three are open");
        drop(open);
        until_admitted(&limiter).await;
        for other in others {
            other.commit(0);
        }
        until_left(&limiter, units).await;
        limiter.close().await;
    }
}

#[tokio::test]
async fn anonymous_calls_of_all_nodes_leave_the_slots_that_are_reserved() {
    for server in RedisServer::each(&[]) {
        let plan = || Quota::concurrent(3).unwrap().reserve(0.5).unwrap();
        let [one, other] = [node(&server.url(), plan()).await, node(&server.url(), plan()).await];
        let anonymous = async |limiter: &SharedLimiter| limiter.hold_anonymous(&acme(), 1, 1, 10 * MINUTE).await;
        let first = anonymous(&one).await.unwrap();
        let refused = anonymous(&other).await.unwrap_err();
        assert_eq!(shown(refused.standing().unwrap()), ("concurrent", 0, false));
        let own = [hold(&other, 1).await.unwrap(), hold(&one, 1).await.unwrap()];
        assert!(hold(&other, 1).await.is_err());
        // a server that has lost the calls learns from the renewals which are anonymous
        server.cli(&["flushall"]);
        let began = Instant::now();
        while hold(&other, 1).await.map(|hold| hold.commit(0)).is_ok() {
            assert!(began.elapsed() < Duration::from_secs(10), "the slots are not renewed");
            sleep(Duration::from_millis(100)).await;
        }
        drop(own);
        until_admitted(&other).await;
        assert!(anonymous(&other).await.is_err());
        drop(first);
        let began = Instant::now();
        while anonymous(&other).await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(10), "no slot is free");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn an_upgrade_that_nothing_tracks_is_refused() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let limiter = node(&server.url(), plan()).await;
    let layer = RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter.clone()).tracking_bodies();
    let switching = service_fn(async |_: Request<()>| {
        let response = Response::builder().status(101).body(Full::<Bytes>::default());
        Ok::<_, Infallible>(response.unwrap())
    });
    let request = Request::get("/").header("x-tenant", "acme").body(()).unwrap();
    let response = layer.layer(switching).oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_hold_that_the_server_never_hears_of_again_is_charged_when_it_expires() {
    let Some(mut server) = RedisServer::start(&["--appendonly", "yes"]) else { return };
    let plans = || Plans::new(Quota::per_hour(100).unwrap());
    let soon = config(&server.url()).deadline(Duration::from_secs(1)).unwrap();
    let limiter = Limiter::redis(soon, plans()).connect().await.unwrap();
    let lifetime = Duration::from_millis(700);
    let expires = limiter.hold(&acme(), 30, 30, lifetime).await.unwrap();
    let lost = limiter.hold(&acme(), 20, 20, lifetime).await.unwrap();
    server.kill();
    lost.commit(1);
    // longer than a call waits
    sleep(Duration::from_millis(1_200)).await;
    server.restart();
    let began = Instant::now();
    // one that knows nothing without the server
    let builder = Limiter::redis(config(&server.url()), plans()).fallback(Fallback::Closed);
    let other = builder.connect().await.unwrap();
    while other.peek(&acme()).await.is_none_or(|standing| !standing.is_exact()) {
        assert!(began.elapsed() < Duration::from_secs(20));
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(left(&other).await, 50);
    // the estimate was charged already
    expires.commit(10);
    sleep(Duration::from_millis(200)).await;
    assert_eq!(left(&other).await, 50);
}

#[tokio::test]
async fn without_the_server_no_call_is_opened_and_rates_fall_back() {
    for fallback in [Fallback::Local, Fallback::Open, Fallback::Closed] {
        let Some(mut server) = RedisServer::start(&[]) else { return };
        let plans = Plans::new(Quota::per_hour(100).unwrap());
        plans.set(Tenant::parse("globex").unwrap(), plan());
        let limiter = Limiter::redis(config(&server.url()), plans).fallback(fallback).connect().await.unwrap();
        let open = hold(&limiter, 10).await.unwrap();
        server.kill();
        for tenant in [acme(), Tenant::parse("globex").unwrap()] {
            for _ in 0..5 {
                let refused = limiter.hold(&tenant, 1, 1, MINUTE).await.unwrap_err();
                assert_eq!(refused.refusal_reason(), Some(RefusalReason::Unavailable), "{fallback:?}");
            }
        }
        let decision = limiter.check(&acme(), 91).await;
        // with the units that this node holds, it would be too much
        assert_eq!(decision.is_admitted(), fallback == Fallback::Open, "{fallback:?}");
        assert_eq!(limiter.check(&acme(), 90).await.is_admitted(), fallback != Fallback::Closed, "{fallback:?}");
        drop(open);
    }
}

#[tokio::test]
async fn a_node_opens_nothing_before_its_calls_are_counted_again() {
    for server in RedisServer::each(&[]) {
        let clock = ManualClock::new();
        let plans = Plans::new(Quota::concurrent(2).unwrap());
        let limiter =
            Limiter::builder(plans).clock(clock.clone()).redis(config(&server.url())).connect().await.unwrap();
        let opened = Instant::now();
        let calls = [hold(&limiter, 1).await.unwrap(), hold(&limiter, 1).await.unwrap()];
        loop {
            // as if the node had been paused until its slots ended
            server.cli(&["flushall"]);
            clock.advance(Duration::from_secs(9));
            let before = script_calls(&server);
            assert_eq!(hold(&limiter, 1).await.unwrap_err().refusal_reason(), Some(RefusalReason::Spent));
            let first = script_calls(&server);
            // they are counted at once from then on
            assert!(hold(&limiter, 1).await.is_err());
            let seen = [first - before, script_calls(&server) - before];
            // the background may have renewed them as well, three seconds after they were opened
            if seen == [2, 3] || opened.elapsed() < Duration::from_secs(2) {
                assert_eq!(seen, [2, 3]);
                break;
            }
            assert!(opened.elapsed() < MINUTE, "{seen:?}");
        }
        // the wall clock goes on while a machine is suspended
        server.cli(&["flushall"]);
        clock.set_wall(tollgate::clock::Clock::read(&clock).1 + Duration::from_secs(9));
        assert!(hold(&limiter, 1).await.is_err());
        drop(calls);
        until_admitted(&limiter).await;
        // without a pause, the background counts them
        let call = hold(&limiter, 1).await.unwrap();
        server.cli(&["flushall"]);
        let other = node(&server.url(), Quota::concurrent(1).unwrap()).await;
        let began = Instant::now();
        while hold(&other, 1).await.map(|hold| hold.commit(0)).is_ok() {
            assert!(began.elapsed() < Duration::from_secs(20), "its slot is not renewed");
            sleep(Duration::from_millis(100)).await;
        }
        drop(call);
    }
}

#[tokio::test]
async fn requests_wait_for_one_renewal_of_the_calls_of_their_key() {
    for server in RedisServer::each(&[]) {
        let clock = ManualClock::new();
        let builder = Limiter::builder(Plans::new(Quota::concurrent(40).unwrap())).clock(clock.clone());
        let limiter = builder.redis(config(&server.url())).connect().await.unwrap();
        let first = hold(&limiter, 1).await.unwrap();
        server.cli(&["flushall"]);
        clock.advance(Duration::from_secs(9));
        let before = script_calls(&server);
        let requests: JoinSet<_> = (0..30)
            .map(|_| {
                let limiter = limiter.clone();
                async move { hold(&limiter, 1).await }
            })
            .collect();
        let calls = requests.join_all().await;
        assert!(calls.iter().all(Result::is_ok));
        // each opens its call. The background may renew them, too
        assert!(script_calls(&server) - before <= 32, "{} calls", script_calls(&server) - before);
        drop(first);
    }
}

/// Returns how long a call of a script took lately, in microseconds.
fn micros_per_script_call(server: &RedisServer) -> f64 {
    let stats = server.cli(&["info", "commandstats"]);
    let script = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap();
    let (_, rest) = script.split_once("usec_per_call=").unwrap();
    rest.split_once(',').unwrap().0.parse().unwrap()
}

#[tokio::test]
async fn a_key_with_the_most_open_calls_refuses_more_and_is_fast() {
    const MOST: u32 = 1_024;
    for server in RedisServer::each(&[]) {
        let log = EventLog::new();
        let builder = Limiter::builder(Plans::new(Quota::per_hour(1_000_000).unwrap())).events(log.clone());
        let limiter = builder.redis(config(&server.url())).connect().await.unwrap();
        let mut calls = Vec::new();
        for _ in 0..MOST {
            calls.push(hold(&limiter, 1).await.unwrap());
        }
        let refused = hold(&limiter, 1).await.unwrap_err();
        assert_eq!(refused.refusal_reason(), Some(RefusalReason::Spent));
        let standing = refused.standing().unwrap();
        assert_eq!((shown(standing), standing.limit()), (("open-calls", 0, false), MOST));
        assert_eq!(refused.retry_after(), Duration::from_secs(1));
        assert_eq!(left(&limiter).await, 1_000_000 - MOST);
        let events = log.read_events(&Query::new()).events;
        let shown: Vec<_> = events.iter().map(|event| (event.kind, event.policy, event.limit)).collect();
        assert_eq!(shown, [(EventKind::RateLimited, Some("open-calls"), MOST)]);
        // other work on the machine can slow some of them
        let fastest = async {
            let mut fastest = f64::MAX;
            for _ in 0..10 {
                server.cli(&["config", "resetstat"]);
                for _ in 0..20 {
                    assert!(limiter.check(&acme(), 1).await.is_admitted());
                }
                fastest = fastest.min(micros_per_script_call(&server));
            }
            fastest
        };
        let fastest = fastest.await;
        assert!(fastest < 1_000.0, "a spend takes {fastest} microseconds");
        calls.pop().unwrap().commit(1);
        until_admitted(&limiter).await;
    }
}

#[tokio::test]
async fn a_request_that_is_dropped_leaves_no_call_open() {
    for server in RedisServer::each(&[]) {
        let limiter = node(&server.url(), plan()).await;
        for _ in 0..20 {
            // it is polled once
            tokio::select! {
                biased;
                _ = hold(&limiter, 5) => panic!("there can't be a reply yet"),
                () = std::future::ready(()) => {}
            }
        }
        until_left(&limiter, 100).await;
        sleep(Duration::from_millis(100)).await;
        assert_eq!(left(&limiter).await, 100);
        for _ in 0..3 {
            until_admitted(&limiter).await;
        }
        let began = Instant::now();
        while !limiter.peek(&acme()).await.unwrap().is_exact() {
            assert!(began.elapsed() < Duration::from_secs(20), "a call is left");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn a_layer_that_tracks_bodies_shares_slots_and_usage() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let (one, other) = (node(&server.url(), plan()).await, node(&server.url(), plan()).await);
    let request = || Request::get("/").header("x-tenant", "acme").body(()).unwrap();
    let layer = |limiter: &SharedLimiter| RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter.clone());
    let hello = |_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello")))) };
    let mut plain = ServiceBuilder::new().layer(layer(&one).tracking_bodies()).service(service_fn(hello));
    let mut bodies: Vec<Tracked<Full<Bytes>>> = Vec::new();
    for left in [99, 98, 97] {
        let response = plain.ready().await.unwrap().call(request()).await.unwrap();
        assert_eq!((response.status(), &response.headers()["x-ratelimit-remaining"]), (StatusCode::OK, &left.into()));
        bodies.push(response.into_body());
    }
    let refused = plain.ready().await.unwrap().call(request()).await.unwrap();
    assert_eq!((refused.status(), &refused.headers()["retry-after"]), (StatusCode::TOO_MANY_REQUESTS, &1.into()));
    let metered = layer(&other).tracking_bodies().metered(10, 50);
    let mut metered = ServiceBuilder::new().layer(metered).service(service_fn(|request: Request<()>| async move {
        Usage::from_extensions(request.extensions()).unwrap().set(7);
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello"))))
    }));
    let refused = metered.ready().await.unwrap().call(request()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    bodies.clear();
    until_admitted(&other).await;
    let response = metered.ready().await.unwrap().call(request()).await.unwrap();
    assert_eq!((response.status(), left(&one).await), (StatusCode::OK, 87));
    drop(response);
    until_left(&one, 90).await;
}
