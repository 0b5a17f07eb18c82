//! Limiters that several processes share, on real servers and clusters.
#![cfg(all(feature = "redis", feature = "test-util"))]
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

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use http::{Request, Response, StatusCode};
use redis_server::{RedisCluster, RedisServer};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};
use tollgate::{
    EventLog, Limiter, Plan, Plans, Quota, RateLimitLayer, Tenant,
    clock::{Clock, SystemClock, UnixTime},
    event::{Event, EventKind, Query},
    limit::{Fallback, LimiterErrorKind, RefusalReason, SharedLimiter},
    store::RedisConfig,
    tenant::{HeaderTenant, Standing},
    testing::ManualClock,
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

const HOUR: Duration = Duration::from_secs(3600);
const DEADLINE: Duration = Duration::from_secs(2);

fn config(url: &str) -> RedisConfig {
    RedisConfig::new(url).unwrap().deadline(DEADLINE).unwrap()
}

/// Connects a node with a quota of a hundred units an hour.
async fn node(url: &str) -> SharedLimiter {
    Limiter::redis(config(url), Plans::new(Quota::new(100, HOUR).unwrap())).connect().await.unwrap()
}

async fn with_fallback(config: RedisConfig, fallback: Fallback, log: &EventLog) -> SharedLimiter {
    let quotas = Plans::new(Quota::new(5, HOUR).unwrap());
    Limiter::builder(quotas).events(log.clone()).redis(config).fallback(fallback).connect().await.unwrap()
}

fn acme() -> Tenant {
    Tenant::parse("acme").unwrap()
}

/// Runs a check, which must not take longer than the deadline and the patience of a busy machine.
async fn in_time<T>(call: impl Future<Output = T>) -> T {
    timeout(DEADLINE + Duration::from_secs(10), call).await.expect("a check waits much longer than its deadline")
}

/// Returns when the fallback began and ended, oldest first.
fn changes(log: &EventLog) -> Vec<EventKind> {
    let of = |kind| log.read_events(&Query::new().kind(kind)).events.into_iter();
    let (began, ended) = (of(EventKind::LimiterFallbackBegan), of(EventKind::LimiterFallbackEnded));
    let mut events: Vec<Event> = began.chain(ended).collect();
    events.sort_by_key(|event| event.id);
    events.into_iter().map(|event| event.kind).collect()
}

/// Checks until the server decides again.
async fn recovered(limiter: &SharedLimiter, log: &EventLog) {
    let began = Instant::now();
    while changes(log).iter().filter(|kind| **kind == EventKind::LimiterFallbackEnded).count() == 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not recover");
        _ = in_time(limiter.check(&acme(), 0)).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_share_one_budget() {
    for server in RedisServer::each(&[]) {
        let nodes = [node(&server.url()).await, node(&server.url()).await];
        let (mut tasks, admitted) = (JoinSet::new(), Arc::new(AtomicU32::new(0)));
        for number in 0..20 {
            let (limiter, admitted) = (nodes[number % 2].clone(), Arc::clone(&admitted));
            tasks.spawn(async move {
                for weight in [1, 2, 3, 1, 2, 3] {
                    let decision = limiter.check(&acme(), weight).await;
                    assert_ne!(decision.refusal_reason(), Some(RefusalReason::Unavailable));
                    admitted.fetch_add(if decision.is_admitted() { weight } else { 0 }, SeqCst);
                }
            });
        }
        tasks.join_all().await;
        assert_eq!(admitted.load(SeqCst), 100);
        for limiter in &nodes {
            let standing = limiter.peek(&acme()).await.unwrap();
            assert_eq!((standing.remaining(), standing.limit()), (0, 100));
            assert!(
                standing.time_until_reset() > HOUR - Duration::from_secs(60) && standing.time_until_reset() <= HOUR
            );
        }
        let other = Tenant::parse("globex").unwrap();
        assert_eq!(nodes[0].peek(&other).await.unwrap().remaining(), 100);
        // cleared by one, free for all
        nodes[0].reset(&acme()).await.unwrap();
        assert_eq!(nodes[1].check(&acme(), 1).await.standing().unwrap().remaining(), 99);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_on_several_nodes_wait_until_units_come_back() {
    const LIMIT: usize = 4;
    let window = Duration::from_millis(500);
    for server in RedisServer::each(&[]) {
        let quotas = || Plans::new(Quota::new(LIMIT as u32, window).unwrap());
        let one = Limiter::redis(config(&server.url()), quotas()).connect().await.unwrap();
        let other = Limiter::leased(config(&server.url()), quotas()).connect().await.unwrap();
        let layer = RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), other.clone()).waiting(HOUR, 9);
        let (mut calls, began) = (JoinSet::new(), Instant::now());
        for number in 0..3 * LIMIT {
            let (one, layer) = (one.clone(), layer.clone());
            calls.spawn(async move {
                let is_admitted = if number % 2 == 0 {
                    one.until_ready(&acme(), 1, HOUR).await.is_admitted()
                } else {
                    let service = service_fn(async |_| Ok::<_, Infallible>(Response::new(String::new())));
                    let request = Request::get("/").header("x-tenant", "acme").body(()).unwrap();
                    layer.layer(service).oneshot(request).await.unwrap().status() == StatusCode::OK
                };
                (is_admitted, began.elapsed())
            });
        }
        let mut admitted = timeout(Duration::from_secs(20), calls.join_all()).await.unwrap();
        admitted.sort_by_key(|(_, at)| *at);
        assert!(admitted.iter().all(|(is_admitted, _)| *is_admitted));
        // the reply to the last one of a window arrives after the server has decided, and the first one was decided after it began
        assert!(admitted[LIMIT].1 >= window && admitted[2 * LIMIT].1 >= 2 * window, "{admitted:?}");
        // useless
        assert!(!one.until_ready(&acme(), 1, Duration::ZERO).await.is_admitted());
        assert_eq!(one.until_ready(&acme(), 5, HOUR).await.refusal_reason(), Some(RefusalReason::Impossible));
        other.close().await;
        // the fallback
        drop(server);
        for _ in 0..2 * LIMIT {
            assert!(in_time(one.until_ready(&acme(), 1, HOUR)).await.is_admitted());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_window_of_any_length_admits_more_than_the_limit() {
    const LIMIT: usize = 20;
    let window = Duration::from_millis(300);
    let Some(server) = RedisServer::start(&[]) else { return };
    let quotas = || Plans::new(Quota::new(LIMIT as u32, window).unwrap());
    let connect =
        || async { Limiter::redis(config(&server.url()), quotas()).fallback(Fallback::Closed).connect().await };
    let (nodes, admissions) = ([connect().await.unwrap(), connect().await.unwrap()], Arc::new(Mutex::new(Vec::new())));
    let (mut tasks, began) = (JoinSet::new(), Instant::now());
    for number in 0..8 {
        let (limiter, admissions) = (nodes[number % 2].clone(), Arc::clone(&admissions));
        tasks.spawn(async move {
            while began.elapsed() < window * 6 {
                let asked = Instant::now();
                if limiter.check(&acme(), 1).await.is_admitted() {
                    admissions.lock().unwrap().push((asked, Instant::now()));
                }
            }
        });
    }
    tasks.join_all().await;
    // it was decided at some time between asking and the answer
    let mut admissions = std::mem::take(&mut *admissions.lock().unwrap());
    admissions.sort();
    assert!(admissions.len() > LIMIT * 3, "{}", admissions.len());
    for (index, (first, _)) in admissions.iter().enumerate() {
        let inside = admissions[index..].iter().filter(|(_, answered)| answered.duration_since(*first) < window);
        assert!(inside.count() <= LIMIT);
    }
}

#[tokio::test]
async fn a_cluster_shares_the_work_among_its_nodes() {
    for cluster in RedisCluster::each() {
        let quotas = || {
            let burst = Quota::per_second(50).unwrap().with_name("burst").unwrap();
            Plans::new(
                Plan::new([
                    burst,
                    Quota::new(3, HOUR).unwrap(),
                    Quota::fixed(9, HOUR).unwrap().with_name("f").unwrap(),
                ])
                .unwrap(),
            )
        };
        let connect =
            || async { Limiter::redis(config(&cluster.url()), quotas()).fallback(Fallback::Closed).connect().await };
        let nodes = [connect().await.unwrap(), connect().await.unwrap()];
        for number in 0..60 {
            let tenant = Tenant::parse(format!("tenant-{number}")).unwrap();
            let mut admitted = Vec::new();
            for turn in 0..5 {
                admitted.push(nodes[turn % 2].check(&tenant, 1).await.is_admitted());
            }
            assert_eq!(admitted, [true, true, true, false, false]);
        }
        for node in &cluster.0 {
            assert!(node.cli(&["dbsize"]).trim().parse::<u32>().unwrap() > 5);
        }
    }
}

#[tokio::test]
async fn refunds_and_live_quotas_work_across_nodes() {
    for server in RedisServer::each(&[]) {
        let (one, other) = (node(&server.url()).await, node(&server.url()).await);
        let spend = one.check(&acme(), 40).await.into_spend();
        assert_eq!(one.refund(spend).await.unwrap().remaining(), 100);
        let spend = one.check(&acme(), 30).await.into_spend();
        // lowered live: nothing is forgiven
        for limiter in [&one, &other] {
            limiter.plans().set(acme(), Quota::new(20, HOUR).unwrap());
        }
        let refused = other.check(&acme(), 1).await;
        assert_eq!(
            (refused.refusal_reason(), refused.standing().unwrap().remaining()),
            (Some(RefusalReason::Spent), 0)
        );
        // a spend of another plan stays spent
        assert_eq!(one.refund(spend).await.unwrap().remaining(), 0);
        assert_eq!(other.check(&acme(), 21).await.refusal_reason(), Some(RefusalReason::Impossible));
        for limiter in [&one, &other] {
            limiter.plans().set(acme(), Plan::denied());
            assert_eq!(limiter.check(&acme(), 1).await.refusal_reason(), Some(RefusalReason::Denied));
            limiter.plans().set(acme(), Quota::new(50, HOUR).unwrap());
        }
        assert_eq!(one.check(&acme(), 5).await.standing().unwrap().remaining(), 15);
    }
}

#[tokio::test]
async fn limiters_with_different_names_leave_each_other_alone() {
    for server in RedisServer::each(&[]) {
        let config = config(&server.url()).share_connection();
        let connect = async |name: &str, quota: Quota| {
            let builder = Limiter::redis(config.clone(), Plans::new(quota)).fallback(Fallback::Closed);
            builder.name(name).unwrap().connect().await.unwrap()
        };
        let hourly = || Quota::new(20, HOUR).unwrap();
        let (window, per_window) = (Duration::from_millis(20), 10);
        // two nodes, because each counts what it admits itself
        let nodes = [connect("hourly", hourly()).await, connect("hourly", hourly()).await];
        let burst = connect("burst", Quota::new(per_window, window).unwrap()).await;
        let spend = nodes[0].check(&acme(), 1).await.into_spend();
        let (mut admitted_by_burst, mut admitted_by_hourly, began) = (0, 0, Instant::now());
        for turn in 0.. {
            admitted_by_burst += u32::from(burst.check(&acme(), 1).await.is_admitted());
            admitted_by_hourly += u32::from(nodes[turn % 2].check(&acme(), 1).await.is_admitted());
            if admitted_by_burst >= 10 * per_window {
                break;
            }
        }
        assert!(began.elapsed() >= 8 * window, "it admits too much: {:?}", began.elapsed());
        assert_eq!(admitted_by_hourly, 19);
        assert_eq!(keys(&server, "limit:hourly"), ["tollgate:limit:hourly:{acme}"]);
        assert_eq!(nodes[0].refund(spend).await.unwrap().remaining(), 1);
        assert!(nodes[1].check(&acme(), 1).await.is_admitted());
        burst.reset(&acme()).await.unwrap();
        burst.plans().set(acme(), Quota::new(1, window).unwrap());
        assert!(burst.check(&acme(), 1).await.is_admitted());
        assert_eq!(nodes[0].check(&acme(), 1).await.refusal_reason(), Some(RefusalReason::Spent));
        nodes[0].reset(&acme()).await.unwrap();
        assert_eq!(nodes[1].peek(&acme()).await.unwrap().remaining(), 20);
    }
    let builder = || Limiter::redis(config("redis://h"), Plans::new(Quota::new(1, HOUR).unwrap()));
    for name in ["", "a:b", "{a", "a b", &"x".repeat(33)] {
        assert_eq!(builder().name(name).unwrap_err().setting(), "limiter name");
    }
}

#[test]
fn closing_waits_for_what_ends_and_comes_back_in_the_background() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for server in RedisServer::each(&[]) {
        runtime().block_on(async {
            let limiter = node(&server.url()).await;
            let layer = RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter.clone());
            let free = layer
                .charge_if(|_, _| false)
                .layer(service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::new()))));
            let hold = limiter.hold(&acme(), 10, 60, HOUR).await.unwrap();
            let request = Request::get("/").header("x-tenant", "acme").body(String::new()).unwrap();
            assert_eq!(free.oneshot(request).await.unwrap().status(), 200);
            hold.commit(25);
            limiter.close().await;
        });
        // the runtime has ended, and what was in the background with it
        let left = runtime().block_on(async { node(&server.url()).await.peek(&acme()).await.unwrap().remaining() });
        assert_eq!(left, 75);
    }
}

#[tokio::test]
async fn a_layer_asks_the_server() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let quotas = || Plans::new(Quota::new(2, HOUR).unwrap());
    let service = |limiter: SharedLimiter| {
        ServiceBuilder::new()
            .layer(
                RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter)
                    .charge_if(|status, _| status != StatusCode::NOT_FOUND),
            )
            .service(service_fn(async |request: Request<String>| {
                let mut response = Response::new(String::new());
                if request.uri().path() == "/free" {
                    *response.status_mut() = StatusCode::NOT_FOUND;
                }
                Ok::<_, Infallible>(response)
            }))
    };
    let connect = || async { Limiter::redis(config(&server.url()), quotas()).connect().await.unwrap() };
    let limiter = connect().await;
    let mut services = [service(limiter.clone()), service(connect().await)];
    let mut send = async |turn: usize, path: &str| {
        let request = Request::get(path).header("x-tenant", "acme").body(String::new()).unwrap();
        let response = services[turn % 2].ready().await.unwrap().call(request).await.unwrap();
        let header = |name: &str| response.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        (response.status().as_u16(), header("x-ratelimit-limit"), header("x-ratelimit-remaining"))
    };
    let answer = |status, remaining: &str| (status, "2".to_owned(), remaining.to_owned());
    assert_eq!(send(0, "/").await, answer(200, "1"));
    assert_eq!(send(1, "/free").await, answer(404, "1"));
    // the refund runs in the background
    while limiter.peek(&acme()).await.unwrap().remaining() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(send(1, "/").await, answer(200, "0"));
    assert_eq!(send(0, "/").await, answer(429, "0"));
    let request = Request::get("/").header("x-tenant", "not a name\u{e9}").body(String::new()).unwrap();
    assert_eq!(services[0].ready().await.unwrap().call(request).await.unwrap().status(), 400);
}

#[tokio::test]
async fn each_fallback_decides_while_the_server_is_down() {
    let Some(mut server) = RedisServer::start(&[]) else { return };
    for fallback in [Fallback::Local, Fallback::Open, Fallback::Closed] {
        let log = EventLog::new();
        let limiter = with_fallback(config(&server.url()), fallback, &log).await;
        limiter.reset(&acme()).await.unwrap();
        assert_eq!(limiter.check(&acme(), 3).await.standing().unwrap().remaining(), 2);
        assert_eq!(changes(&log), []);
        server.kill();
        let mut seen = Vec::new();
        for _ in 0..7 {
            let decision = in_time(limiter.check(&acme(), 1)).await;
            seen.push((decision.refusal_reason(), decision.standing().map(Standing::remaining)));
        }
        let expected = match fallback {
            // the process knows what it has spent
            Fallback::Local => {
                let mut all = vec![(None, Some(1)), (None, Some(0))];
                all.extend([(Some(RefusalReason::Spent), Some(0)); 5]);
                all
            }
            Fallback::Open => vec![(None, None); 7],
            _ => vec![(Some(RefusalReason::Unavailable), None); 7],
        };
        assert_eq!(seen, expected, "{fallback:?}");
        assert_eq!(changes(&log), [EventKind::LimiterFallbackBegan]);
        assert!(fallback == Fallback::Local || limiter.peek(&acme()).await.is_none());
        assert!(limiter.reset(&acme()).await.is_err());

        let layer = RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter.clone());
        let service = ServiceBuilder::new()
            .layer(layer)
            .service(service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::new()))));
        let request = Request::get("/").header("x-tenant", "acme").body(String::new()).unwrap();
        let status = in_time(service.oneshot(request)).await.unwrap().status().as_u16();
        assert_eq!(
            status,
            if fallback == Fallback::Local {
                429
            } else if fallback == Fallback::Open {
                200
            } else {
                503
            }
        );

        server.restart();
        recovered(&limiter, &log).await;
        // the server has forgotten, and is charged for what the fallback has admitted
        let left = if fallback == Fallback::Local { 3 } else { 5 };
        let began = Instant::now();
        while limiter.peek(&acme()).await.unwrap().remaining() != left {
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", limiter.peek(&acme()).await);
        }
        assert_eq!(limiter.check(&acme(), 1).await.standing().unwrap().remaining(), left - 1);
    }
}

/// The event says why the fallback decides.
#[tokio::test]
async fn b41_the_event_of_a_fallback_has_a_reason() {
    let reasons = |log: &EventLog| {
        let began = log.read_events(&Query::new().kind(EventKind::LimiterFallbackBegan)).events;
        began.iter().map(|event| event.reason).collect::<Vec<_>>()
    };
    let Some(mut server) = RedisServer::start(&[]) else { return };
    for (reason, is_dead) in [("no_answer", false), ("no_connection", true)] {
        let log = EventLog::builder().build();
        let config = config(&server.url());
        // three calls fail before the link gives its connection up
        let config = if is_dead { config } else { config.deadline(Duration::from_millis(100)).unwrap() };
        let limiter = with_fallback(config, Fallback::Local, &log).await;
        if is_dead {
            server.kill();
        } else {
            server.signal("STOP");
        }
        for _ in 0..100 {
            _ = in_time(limiter.check(&acme(), 1)).await;
        }
        assert_eq!(reasons(&log), [Some(reason)]);
        assert!(log.read_events(&Query::new()).events[0].to_json().contains(&format!(r#""reason":"{reason}""#)));
        if !is_dead {
            server.signal("CONT");
            recovered(&limiter, &log).await;
        }
    }
}

#[tokio::test]
async fn a_flush_of_scripts_costs_nothing_and_one_of_all_keys_the_counts() {
    for server in RedisServer::each(&[]) {
        let log = EventLog::new();
        let limiter = with_fallback(config(&server.url()), Fallback::Closed, &log).await;
        assert_eq!(limiter.check(&acme(), 2).await.standing().unwrap().remaining(), 3);
        server.cli(&["script", "flush"]);
        assert_eq!(limiter.check(&acme(), 2).await.standing().unwrap().remaining(), 1);
        server.cli(&["flushall"]);
        assert_eq!(limiter.check(&acme(), 2).await.standing().unwrap().remaining(), 3);
        assert_eq!(changes(&log), []);
    }
}

#[tokio::test]
async fn state_is_small_and_expires() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let limiter = node(&server.url()).await;
    let key = "tollgate:limit:{acme}";
    let number = |arguments: &[&str]| server.cli(arguments).trim().parse::<i64>().unwrap();
    _ = limiter.check(&acme(), 1).await;
    let bytes = number(&["memory", "usage", key]);
    assert!((1..=240).contains(&bytes), "{bytes} bytes for a quiet tenant");
    let lives = number(&["pttl", key]);
    assert!((3_590_000..=3_601_000).contains(&lives), "{lives}");
    // 60 slices of 8 ms
    let quota = Quota::new(1_000_000, Duration::from_millis(480)).unwrap();
    limiter.plans().set(acme(), quota);
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(600) {
        _ = limiter.check(&acme(), 1).await;
    }
    let bytes = number(&["memory", "usage", key]);
    assert!((500..=1_700).contains(&bytes), "{bytes} bytes for a busy tenant");
    assert!(number(&["pttl", key]) <= 1_480);
    // refused requests write nothing
    limiter.plans().set(acme(), Quota::new(1, HOUR).unwrap());
    _ = limiter.check(&acme(), 1).await;
    let before = server.cli(&["get", key]);
    assert_eq!(limiter.check(&acme(), 1).await.refusal_reason(), Some(RefusalReason::Spent));
    assert_eq!(server.cli(&["get", key]), before);
}

#[tokio::test]
async fn a_server_that_cannot_be_used_is_an_error_at_the_start() {
    let Some(server) = RedisServer::start(&["--maxmemory-policy", "allkeys-lru"]) else { return };
    let quotas = || Plans::new(Quota::new(5, HOUR).unwrap());
    let error = Limiter::redis(config(&server.url()), quotas()).connect().await.unwrap_err();
    assert_eq!(error.kind(), LimiterErrorKind::Misconfigured);
    assert!(error.to_string().starts_with("shared limits: maxmemory-policy is allkeys-lru"), "{error}");
    let error = Limiter::builder(quotas()).max_tenants(0).redis(config(&server.url())).connect().await.unwrap_err();
    assert_eq!(error.kind(), LimiterErrorKind::Invalid);
    assert!(error.to_string().contains("max_tenants"), "{error}");
}

/// The server forgets a key by its wall clock, so after a step back it still finds the count of a window that has ended.
#[tokio::test]
async fn b26_the_count_of_a_calendar_window_is_kept_for_one_more_window() {
    for server in RedisServer::each(&[]) {
        let limiter = node(&server.url()).await;
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let daily = Quota::fixed(9, HOUR * 24).unwrap();
        let burst = Quota::per_second(20).unwrap().with_name("burst").unwrap();
        for (plan, kept) in [
            (Quota::fixed(9, minutes(20)).unwrap().into(), minutes(20)),
            (daily.into(), HOUR),
            (Plan::new([burst, daily]).unwrap(), HOUR),
        ] {
            server.cli(&["flushall"]);
            limiter.plans().set(acme(), plan);
            let decision = limiter.check(&acme(), 9).await;
            assert!(decision.is_admitted());
            let lives = server.cli(&["pttl", "tollgate:limit:{acme}"]).trim().parse().unwrap();
            let after =
                Duration::from_millis(lives).checked_sub(decision.standing().unwrap().time_until_reset()).unwrap();
            assert!(after > kept - minutes(1) && after < kept + minutes(1), "{after:?}");
        }
    }
}

#[tokio::test]
async fn b39_the_reset_is_told_by_the_time_of_the_server() {
    for server in RedisServer::each(&[]) {
        for leases in [false, true] {
            server.cli(&["flushall"]);
            let clock = ManualClock::new();
            let now = SystemClock::new().read().1;
            // the node is five seconds behind
            clock.set_wall(UnixTime::from_nanos(now.as_nanos() - 5_000_000_000));
            let quotas = Plans::new(Quota::new(2, HOUR).unwrap());
            let builder = Limiter::builder(quotas).clock(clock.clone()).redis(config(&server.url()));
            let builder = if leases { builder.leased() } else { builder };
            let limiter = builder.fallback(Fallback::Closed).connect().await.unwrap();
            let service = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::new())));
            let layer = RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter.clone());
            let mut service = ServiceBuilder::new().layer(layer).service(service);
            for status in [200, 200, 429, 429] {
                let request = Request::get("/").header("x-tenant", "acme").body(String::new()).unwrap();
                let response = service.ready().await.unwrap().call(request).await.unwrap();
                assert_eq!(response.status(), status);
                let reset: u64 = response.headers()["x-ratelimit-reset"].to_str().unwrap().parse().unwrap();
                // rounded up, and at most as late as the test
                let (first, last) = ((now + HOUR).as_secs_ceil(), (SystemClock::new().read().1 + HOUR).as_secs_ceil());
                assert!((first..=last).contains(&reset), "{reset} is not from {first} to {last}, leases: {leases}");
                // the node's steady clock goes on
                clock.advance(Duration::from_millis(1));
            }
        }
    }
}

/// Returns the keys of this space.
fn keys(server: &RedisServer, space: &str) -> Vec<String> {
    server.cli(&["keys", &format!("tollgate:{space}:*")]).lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn b06_names_that_were_never_seen_share_keys_above_a_number_a_minute() {
    for server in RedisServer::each(&[]) {
        let clock = ManualClock::new();
        let quotas = || Plans::new(Quota::new(3, HOUR).unwrap());
        let builder = Limiter::builder(quotas()).clock(clock.clone()).redis(config(&server.url()));
        let limiter = builder.fallback(Fallback::Closed).max_new_names_per_minute(10).connect().await.unwrap();
        let named = |number: u32| Tenant::parse(format!("made-up-{number}")).unwrap();
        for number in 0..3_000 {
            _ = limiter.check_anonymous(&named(number), 1).await;
        }
        let (all, own) = (keys(&server, "limit"), |key: &&String| key.contains("made-up"));
        assert!(all.len() <= 1_034 && all.iter().filter(own).count() == 10, "{} keys", all.len());
        // the ten go on with their own budgets, and the others are limited together
        assert_eq!(limiter.check_anonymous(&named(3), 1).await.standing().unwrap().remaining(), 1);
        let mut admitted = 0;
        for number in 3_000..9_000 {
            admitted += u32::from(limiter.check_anonymous(&named(number), 1).await.is_admitted());
        }
        assert!(admitted <= 3 * 1_024, "{admitted}");
        assert!(keys(&server, "limit").len() <= 1_034);
        // what a tenant has proved, or what is configured, has a key of its own
        let [proved, configured] = [named(9_001), named(9_002)];
        assert_eq!(limiter.check(&proved, 1).await.standing().unwrap().remaining(), 2);
        assert_eq!(limiter.check_anonymous(&proved, 1).await.standing().unwrap().remaining(), 1);
        limiter.plans().set(configured.clone(), Quota::new(7, HOUR).unwrap());
        assert_eq!(limiter.check_anonymous(&configured, 1).await.standing().unwrap().remaining(), 6);
        // a shared charge is refunded to the shared key
        let other =
            Limiter::redis(config(&server.url()), quotas()).max_new_names_per_minute(0).connect().await.unwrap();
        server.cli(&["flushall"]);
        let spend = other.check_anonymous(&named(5), 2).await.into_spend();
        assert_eq!(other.refund(spend).await.unwrap().remaining(), 3);
        assert_eq!(keys(&server, "limit").len(), 1);
    }
}

#[tokio::test]
async fn b06_a_name_gets_a_key_of_its_own_when_there_is_room_again() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let clock = ManualClock::new();
    let builder = Limiter::builder(Plans::new(Quota::new(3, HOUR).unwrap())).clock(clock.clone());
    let builder = builder.redis(config(&server.url())).fallback(Fallback::Closed).max_new_names_per_minute(1);
    let limiter = builder.connect().await.unwrap();
    let (first, second) = (Tenant::parse("first").unwrap(), Tenant::parse("second").unwrap());
    _ = limiter.check_anonymous(&first, 1).await;
    for expected in [true, true, true, false] {
        assert_eq!(limiter.check_anonymous(&second, 1).await.is_admitted(), expected);
    }
    clock.advance(Duration::from_secs(60));
    // to look makes no key and leaves the room to others
    assert!(limiter.check_anonymous(&first, 0).await.is_admitted());
    assert_eq!(limiter.check_anonymous(&Tenant::parse("third").unwrap(), 0).await.standing().unwrap().remaining(), 3);
    // at most the limit twice, see `docs/scale.md`
    for expected in [true, true, true, false, false] {
        assert_eq!(limiter.check_anonymous(&second, 1).await.is_admitted(), expected);
    }
}

#[tokio::test]
async fn b06_a_name_whose_request_is_refused_leaves_the_room_to_others() {
    for server in RedisServer::each(&[]) {
        let builder = Limiter::redis(config(&server.url()), Plans::new(Quota::new(3, HOUR).unwrap()));
        let limiter = builder.fallback(Fallback::Closed).max_new_names_per_minute(1).connect().await.unwrap();
        let [refused, other] = ["refused", "other"].map(|name| Tenant::parse(name).unwrap());
        for _ in 0..3 {
            assert!(!limiter.check_anonymous(&refused, 4).await.is_admitted());
        }
        assert!(limiter.check_anonymous(&other, 1).await.is_admitted());
        assert_eq!(keys(&server, "limit"), ["tollgate:limit:{other}"]);
    }
}

#[tokio::test]
async fn b06_names_that_come_during_an_outage_leave_the_room_to_others() {
    let Some(mut server) = RedisServer::start(&[]) else { return };
    let clock = ManualClock::new();
    let builder = Limiter::builder(Plans::new(Quota::new(3, HOUR).unwrap())).clock(clock.clone());
    let builder = builder.redis(config(&server.url())).fallback(Fallback::Closed).max_new_names_per_minute(10);
    let limiter = builder.connect().await.unwrap();
    let named = |number: u32| Tenant::parse(format!("name-{number}")).unwrap();
    server.kill();
    for number in 0..100 {
        let reason = limiter.check_anonymous(&named(number), 1).await.refusal_reason();
        assert_eq!(reason, Some(RefusalReason::Unavailable));
    }
    server.restart();
    // in the same minute
    for _ in 0..500 {
        if limiter.check(&acme(), 1).await.is_admitted() {
            break;
        }
        clock.advance(Duration::from_millis(100));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(limiter.check_anonymous(&named(200), 1).await.is_admitted());
    assert!(keys(&server, "limit").contains(&String::from("tollgate:limit:{name-200}")));
}

#[tokio::test]
async fn b06_a_request_without_a_cost_is_no_new_name() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let builder = Limiter::redis(config(&server.url()), Plans::new(Quota::new(3, HOUR).unwrap()));
    let limiter = builder.fallback(Fallback::Closed).max_new_names_per_minute(1).connect().await.unwrap();
    let layer =
        RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter.clone()).cost(|_| 0).tracking_bodies();
    let mut service = layer.layer(service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new()))));
    for number in 0..3 {
        let request = Request::get("/").header("x-tenant", format!("free-{number}")).body(()).unwrap();
        assert_eq!(service.ready().await.unwrap().call(request).await.unwrap().status(), 200);
    }
    assert!(limiter.check_anonymous(&acme(), 1).await.is_admitted());
    assert_eq!(keys(&server, "limit"), ["tollgate:limit:{acme}"]);
}

#[tokio::test]
async fn b06_a_key_that_can_not_be_used_leaves_the_others_alone() {
    for server in RedisServer::each(&[]) {
        let log = EventLog::new();
        let limiter = with_fallback(config(&server.url()), Fallback::Closed, &log).await;
        // keys that hold something else
        for (write, name) in [("lpush", "list"), ("set", "text")] {
            server.cli(&[write, &format!("tollgate:limit:{{{name}}}"), "1"]);
            let broken = Tenant::parse(name).unwrap();
            for _ in 0..10 {
                assert_eq!(limiter.check(&broken, 1).await.refusal_reason(), Some(RefusalReason::Unavailable));
            }
            assert!(limiter.check(&acme(), 1).await.is_admitted());
        }
        assert_eq!(changes(&log), []);
    }
}
