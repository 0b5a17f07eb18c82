//! Limiters that lease units from a shared server.
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
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use redis_server::{RedisCluster, RedisServer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, timeout},
};
use tollgate::{
    Limiter, Plan, Plans, Quota, Tenant,
    limit::{Fallback, RefusalReason, SharedLimiter},
    store::RedisConfig,
    testing::ManualClock,
};

const HOUR: Duration = Duration::from_secs(3600);
const DEADLINE: Duration = Duration::from_secs(2);
const LIFETIME: Duration = Duration::from_secs(1);

fn config(url: &str) -> RedisConfig {
    RedisConfig::new(url).unwrap().deadline(DEADLINE).unwrap()
}

/// Connects a node whose time is set by the test.
async fn node(server: &RedisServer, plan: impl Into<Plan>) -> (SharedLimiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder(Plans::new(plan)).clock(clock.clone()).redis(config(&server.url()));
    (limiter.leased().fallback(Fallback::Closed).connect().await.unwrap(), clock)
}

fn per_hour(limit: u32) -> Quota {
    Quota::new(limit, HOUR).unwrap()
}

fn acme() -> Tenant {
    Tenant::parse("acme").unwrap()
}

/// Returns how many calls of scripts the server has run.
fn calls(server: &RedisServer) -> u32 {
    let stats = server.cli(&["info", "commandstats"]);
    let scripts = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    scripts.map(|rest| rest.split_once(',').unwrap().0.parse::<u32>().unwrap()).sum()
}

/// Returns what is left on the server, besides what nodes hold.
async fn left(server: &RedisServer, plan: impl Into<Plan>) -> u32 {
    let plain = Limiter::redis(config(&server.url()), Plans::new(plan)).connect().await.unwrap();
    plain.peek(&acme()).await.unwrap().remaining()
}

async fn until_left(server: &RedisServer, limit: u32, expected: u32) {
    let began = Instant::now();
    while left(server, per_hour(limit)).await != expected {
        assert!(began.elapsed() < Duration::from_secs(20), "{} units are left", left(server, per_hour(limit)).await);
    }
}

async fn admitted(limiter: &SharedLimiter, checks: u32) -> u32 {
    let mut admitted = 0;
    for _ in 0..checks {
        admitted += u32::from(limiter.check(&acme(), 1).await.is_admitted());
    }
    admitted
}

#[tokio::test]
async fn a_busy_tenant_needs_few_calls_and_a_quiet_one_holds_nothing_back() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let (busy, clock) = node(&server, per_hour(1_000_000)).await;
    assert_eq!(admitted(&busy, 10_000).await, 10_000);
    // 1, 2, 4, … and then 1,000 at once
    assert!((12..=24).contains(&calls(&server)), "{} calls", calls(&server));
    // what was not used comes back, and from then on nothing is held
    clock.advance(LIFETIME);
    until_left(&server, 1_000_000, 990_000).await;
    assert!(busy.check(&acme(), 1).await.is_admitted());
    clock.advance(LIFETIME);
    until_left(&server, 1_000_000, 989_999).await;
    for number in 1..=5 {
        assert!(busy.check(&acme(), 1).await.is_admitted());
        assert_eq!(left(&server, per_hour(1_000_000)).await, 989_999 - number);
        clock.advance(LIFETIME);
    }
}

#[tokio::test]
async fn a_refused_tenant_is_refused_without_a_call_until_the_lifetime_has_passed() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let (limiter, clock) = node(&server, per_hour(10)).await;
    assert!(limiter.check(&acme(), 7).await.is_admitted());
    let refused = limiter.check(&acme(), 5).await;
    assert_eq!((refused.refusal_reason(), refused.standing().unwrap().remaining()), (Some(RefusalReason::Spent), 3));
    let before = calls(&server);
    for _ in 0..4 {
        let again = limiter.check(&acme(), 5).await;
        assert_eq!((again.refusal_reason(), again.standing().unwrap().remaining()), (Some(RefusalReason::Spent), 3));
        assert!(again.retry_after() > HOUR - Duration::from_secs(60));
    }
    assert_eq!(calls(&server), before);
    // fewer units may fit
    assert_eq!(admitted(&limiter, 5).await, 3);
    assert_eq!(calls(&server), before + 4);
    assert_eq!(admitted(&limiter, 1_000).await, 0);
    assert_eq!(calls(&server), before + 4);
    clock.advance(LIFETIME);
    assert_eq!(admitted(&limiter, 1_000).await, 0);
    assert_eq!(calls(&server), before + 5);
    // a request that never fits
    assert_eq!(limiter.check(&acme(), 11).await.refusal_reason(), Some(RefusalReason::Impossible));
}

#[tokio::test]
async fn a_refusal_of_some_units_says_nothing_about_when_more_fit() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let per_day = Quota::new(15, HOUR * 24).unwrap().with_name("day").unwrap();
    let (limiter, _) = node(&server, Plan::new([per_hour(10), per_day]).unwrap()).await;
    assert!(limiter.check(&acme(), 10).await.is_admitted());
    // one unit fits in an hour, eight in a day
    for (units, longest) in [(1, HOUR), (8, HOUR * 24)] {
        let refused = limiter.check(&acme(), units).await;
        assert_eq!(refused.refusal_reason(), Some(RefusalReason::Spent));
        assert!(
            (longest - HOUR / 2..=longest + HOUR / 2).contains(&refused.retry_after()),
            "{:?}",
            refused.retry_after()
        );
    }
}

#[tokio::test]
async fn a_change_or_a_reset_at_one_node_reaches_the_others_within_a_lifetime() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let ((one, _), (other, clock)) = (node(&server, per_hour(10)).await, node(&server, per_hour(10)).await);
    assert!(one.check(&acme(), 10).await.is_admitted());
    assert_eq!(admitted(&other, 100).await, 0);
    one.reset(&acme()).await.unwrap();
    assert_eq!(admitted(&one, 1).await, 1, "the node itself knows at once");
    assert_eq!(admitted(&other, 1).await, 0);
    clock.advance(LIFETIME);
    assert_eq!(admitted(&other, 1).await, 1);
    // a change of the plan applies to the next request of the node that makes it
    one.plans().set(acme(), per_hour(4));
    assert_eq!(admitted(&one, 100).await, 2);
    one.plans().set(acme(), per_hour(40));
    assert_eq!(admitted(&one, 100).await, 36);
}

#[tokio::test]
async fn a_lease_of_another_plan_is_not_used() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let (limiter, _) = node(&server, per_hour(1_000)).await;
    assert_eq!(admitted(&limiter, 40).await, 40);
    assert!(left(&server, per_hour(1_000)).await < 960, "some units are held");
    limiter.plans().set(acme(), per_hour(20));
    assert_eq!(admitted(&limiter, 1).await, 0);
    limiter.plans().set(acme(), Plan::denied());
    assert_eq!(limiter.check(&acme(), 1).await.refusal_reason(), Some(RefusalReason::Denied));
}

#[tokio::test]
async fn closing_returns_what_is_not_used() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let (limiter, _) = node(&server, per_hour(1_000)).await;
    let globex = Tenant::parse("globex").unwrap();
    for _ in 0..9 {
        assert!(limiter.check(&acme(), 1).await.is_admitted());
        assert!(limiter.check(&globex, 1).await.is_admitted());
    }
    assert!(left(&server, per_hour(1_000)).await < 991);
    assert_eq!(limiter.peek(&acme()).await.unwrap().remaining(), 991, "the node counts its own");
    limiter.close().await;
    assert_eq!(left(&server, per_hour(1_000)).await, 991);
    // each check is a call from now on
    let before = calls(&server);
    assert_eq!(admitted(&limiter, 10).await, 10);
    assert_eq!(calls(&server), before + 10);
    assert_eq!(left(&server, per_hour(1_000)).await, 981);
}

#[tokio::test]
async fn a_refund_goes_back_into_the_lease_or_to_the_server() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let (limiter, clock) = node(&server, per_hour(1_000)).await;
    for _ in 0..2 {
        assert!(limiter.check(&acme(), 3).await.is_admitted());
    }
    let decision = limiter.check(&acme(), 3).await;
    assert_eq!(decision.standing().unwrap().remaining(), 991);
    let (spend, before) = (decision.into_spend(), calls(&server));
    assert_eq!(limiter.refund(spend).await.unwrap().remaining(), 994);
    assert_eq!(calls(&server), before, "it goes back into the lease");
    let spend = limiter.check(&acme(), 2).await.into_spend();
    clock.advance(LIFETIME);
    // the last unit of the lease has come back, so the lease is gone
    until_left(&server, 1_000, 992).await;
    assert_eq!(limiter.refund(spend).await.unwrap().remaining(), 994);
    assert_eq!(left(&server, per_hour(1_000)).await, 994);
    // a request that was charged alone
    let (limiter, _) = node(&server, per_hour(1_000)).await;
    let spend = limiter.check(&acme(), 4).await.into_spend();
    assert_eq!(limiter.refund(spend).await.unwrap().remaining(), 994);
}

#[tokio::test]
async fn a_refund_makes_a_refused_node_ask_again() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let (limiter, _) = node(&server, per_hour(5)).await;
    let spend = limiter.check(&acme(), 5).await.into_spend();
    assert_eq!(admitted(&limiter, 3).await, 0);
    assert!(limiter.refund(spend).await.is_some());
    assert_eq!(admitted(&limiter, 8).await, 5);
}

#[tokio::test]
async fn anonymous_requests_lease_from_their_part() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let (limiter, _) = node(&server, per_hour(100).reserve(0.4).unwrap()).await;
    let mut anonymous = 0;
    for _ in 0..200 {
        anonymous += u32::from(limiter.check_anonymous(&acme(), 1).await.is_admitted());
    }
    assert_eq!(anonymous, 60);
    assert_eq!(admitted(&limiter, 200).await, 40);
}

#[tokio::test]
async fn a_plan_with_a_shadow_quota_is_checked_for_each_request() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let shadow = per_hour(2).shadow().with_name("trial").unwrap();
    let (limiter, _) = node(&server, Plan::new([per_hour(100), shadow]).unwrap()).await;
    let mut would_refuse = Vec::new();
    for _ in 0..4 {
        would_refuse.push(limiter.check(&acme(), 1).await.would_refuse());
    }
    assert_eq!(would_refuse, [None, None, Some("trial"), Some("trial")]);
    assert_eq!(calls(&server), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_admit_all_units_and_no_more() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let nodes = [node(&server, per_hour(500)).await, node(&server, per_hour(500)).await];
    let admitted = Arc::new(AtomicU32::new(0));
    let mut rounds = 0;
    while admitted.load(SeqCst) < 500 {
        rounds += 1;
        assert!(rounds < 200, "{} of 500 units", admitted.load(SeqCst));
        let mut tasks = JoinSet::new();
        for number in 0..20 {
            let (limiter, admitted) = (nodes[number % 2].0.clone(), Arc::clone(&admitted));
            tasks.spawn(async move {
                for weight in [1, 2, 3, 1, 2, 3, 1] {
                    let decision = limiter.check(&acme(), weight).await;
                    assert_ne!(decision.refusal_reason(), Some(RefusalReason::Unavailable));
                    admitted.fetch_add(if decision.is_admitted() { weight } else { 0 }, SeqCst);
                }
            });
        }
        tasks.join_all().await;
        for (_, clock) in &nodes {
            clock.advance(LIFETIME);
        }
    }
    assert_eq!(admitted.load(SeqCst), 500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_at_the_same_time_share_a_call() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let (limiter, _) = node(&server, per_hour(100_000)).await;
    // the first call is under way while the others arrive
    server.signal("STOP");
    let (mut tasks, waiting) = (JoinSet::new(), Arc::new(AtomicU32::new(0)));
    for _ in 0..500 {
        let (limiter, tenant, waiting) = (limiter.clone(), acme(), Arc::clone(&waiting));
        tasks.spawn(async move {
            let mut check = std::pin::pin!(limiter.check(&tenant, 1));
            tokio::select! {
                biased;
                _ = &mut check => panic!("there can't be a reply yet"),
                () = std::future::ready(()) => {}
            }
            waiting.fetch_add(1, SeqCst);
            check.await.is_admitted()
        });
    }
    redis_server::wait_until(|| waiting.load(SeqCst) == 500);
    server.signal("CONT");
    assert!(tasks.join_all().await.into_iter().all(|is_admitted| is_admitted));
    assert!(calls(&server) <= 4, "{} calls", calls(&server));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_server_the_lease_is_used_first_and_nobody_waits_long() {
    let Some(mut server) = RedisServer::start(&[]) else { return };
    let (limiter, clock) = node(&server, per_hour(1_000)).await;
    assert_eq!(admitted(&limiter, 8).await, 8);
    // a lease of eight units, one is used
    server.signal("STOP");
    assert_eq!(admitted(&limiter, 7).await, 7);
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            timeout(DEADLINE + Duration::from_secs(10), limiter.check(&acme(), 1))
                .await
                .expect("it waits too long")
                .refusal_reason()
        });
    }
    let refused = tasks.join_all().await;
    assert!(refused.iter().all(|reason| *reason == Some(RefusalReason::Unavailable)), "{refused:?}");
    server.signal("CONT");
    server.kill();
    clock.advance(LIFETIME);
    assert_eq!(limiter.check(&acme(), 1).await.refusal_reason(), Some(RefusalReason::Unavailable));
    server.restart();
    let began = Instant::now();
    while !limiter.check(&acme(), 1).await.is_admitted() {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not recover");
        clock.advance(LIFETIME);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn an_abandoned_request_leaves_its_lease_to_others() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let (limiter, _) = node(&server, per_hour(1_000)).await;
    assert_eq!(admitted(&limiter, 3).await, 3);
    server.signal("STOP");
    // the fourth request goes away while its call is under way
    assert!(timeout(Duration::from_millis(5), limiter.check(&acme(), 1)).await.is_err());
    server.signal("CONT");
    assert!(limiter.check(&acme(), 1).await.is_admitted());
    let before = calls(&server);
    assert_eq!(admitted(&limiter, 2).await, 2);
    assert_eq!(calls(&server), before);
}

#[tokio::test]
async fn a_cluster_leases_as_well() {
    let Some(cluster) = RedisCluster::start() else { return };
    let limiter = Limiter::leased(config(&cluster.url()), Plans::new(per_hour(50))).connect().await.unwrap();
    for number in 0..10 {
        let tenant = Tenant::parse(format!("tenant-{number}")).unwrap();
        let mut admitted = 0;
        for _ in 0..60 {
            admitted += u32::from(limiter.check(&tenant, 1).await.is_admitted());
        }
        assert_eq!(admitted, 50);
    }
    limiter.close().await;
}

/// Forwards connections to a port. The connection that sends a refund is closed after the refund has been forwarded.
async fn losing_refunds(listener: TcpListener, port: u16, refunds: Arc<AtomicU32>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let refunds = Arc::clone(&refunds);
        tokio::spawn(async move {
            let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let (mut request, mut reply) = (vec![0; 65_536], vec![0; 65_536]);
            loop {
                tokio::select! {
                    read = client.read(&mut request) => {
                        let Ok(read @ 1..) = read else { return };
                        server.write_all(&request[..read]).await.unwrap();
                        if request[..read].windows(12).any(|part| part == b"$6\r\nrefund\r\n") {
                            refunds.fetch_add(1, SeqCst);
                            // it is executed
                            _ = server.read(&mut reply).await;
                            return;
                        }
                    }
                    read = server.read(&mut reply) => {
                        let Ok(read @ 1..) = read else { return };
                        client.write_all(&reply[..read]).await.unwrap();
                    }
                }
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_gets_a_refund_once_even_if_the_connection_is_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let settings = ["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port"];
    let Some(server) = RedisServer::start(&[&settings[..], &[&port.to_string()]].concat()) else { return };
    server.cli(&["cluster", "addslotsrange", "0", "16383"]);
    redis_server::wait_until(|| server.cli(&["cluster", "info"]).contains("cluster_state:ok"));
    let refunds = Arc::new(AtomicU32::new(0));
    tokio::spawn(losing_refunds(listener, server.port, Arc::clone(&refunds)));

    let url = format!("redis://127.0.0.1:{port}?cluster=true");
    let limiter = Limiter::redis(config(&url), Plans::new(per_hour(100))).fallback(Fallback::Closed);
    let limiter = limiter.connect().await.unwrap();
    assert!(limiter.check(&acme(), 10).await.is_admitted());
    let spend = limiter.check(&acme(), 10).await.into_spend();
    assert!(limiter.refund(spend).await.is_none(), "there is no reply");
    let began = Instant::now();
    let standing = loop {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not recover");
        if let Some(standing) = limiter.peek(&acme()).await {
            break standing;
        }
    };
    assert_eq!((refunds.load(SeqCst), standing.remaining()), (1, 90));
}
