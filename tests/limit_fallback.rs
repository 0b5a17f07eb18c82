//! What limiters on Redis and Valkey admit while the server is slow, far away, or loses connections.

#![cfg(all(unix, feature = "smooth"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests may panic and print"
)]

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use support::{proxy::Proxy, redis_server::RedisServer};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tollgate::{
    EventLog, Limiter, Plan, Plans, Quota, Tenant,
    event::{EventKind, Query},
    limit::{Decision, Fallback, RefusalReason, SharedLimiter},
    store::RedisConfig,
};

const HOUR: Duration = Duration::from_secs(3600);
/// The limit of all plans.
const LIMIT: u32 = 50;
/// Shorter than the stall that the tests cause, so that the fallback decides.
const SHORT: Duration = Duration::from_millis(20);
const STALL: Duration = Duration::from_millis(30);

/// A process with a connection of its own.
struct Node {
    proxy: Proxy,
    limiter: SharedLimiter,
    log: EventLog,
}

/// The settings of a node.
#[derive(Clone, Copy)]
struct Settings {
    deadline: Option<Duration>,
    leases: bool,
    fallback: Fallback,
}

const DEFAULT: Settings = Settings { deadline: None, leases: false, fallback: Fallback::Local };
/// On a busy machine, a reply may take longer than the default.
const PATIENT: Settings =
    Settings { deadline: Some(Duration::from_secs(2)), leases: false, fallback: Fallback::Closed };
const IMPATIENT: Settings = Settings { deadline: Some(SHORT), ..DEFAULT };

impl Node {
    async fn start(server: &RedisServer, plan: &Plan, settings: Settings) -> Self {
        let (proxy, log) = (Proxy::start(server.port), EventLog::new());
        let config = RedisConfig::new(&proxy.url()).unwrap();
        let config = settings.deadline.into_iter().fold(config, |config, deadline| config.deadline(deadline).unwrap());
        // on a busy machine, the first answer may come too late
        let limiter = loop {
            let builder = Limiter::builder(Plans::new(plan.clone())).events(log.clone()).redis(config.clone());
            let builder = builder.fallback(settings.fallback);
            if let Ok(limiter) = if settings.leases { builder.leased() } else { builder }.connect().await {
                break limiter;
            }
        };
        Self { proxy, limiter, log }
    }

    /// Sends checks one after the other and returns how many are admitted.
    async fn admitted(&self, checks: u32) -> u32 {
        let mut admitted = 0;
        for _ in 0..checks {
            admitted += u32::from(self.limiter.check(&acme(), 1).await.is_admitted());
        }
        admitted
    }

    fn count(&self, kind: EventKind) -> usize {
        self.log.read_events(&Query::new().kind(kind)).events.len()
    }

    /// Waits until the server decides again.
    async fn recovers(&self) {
        let began = Instant::now();
        while self.count(EventKind::LimiterFallbackBegan) > self.count(EventKind::LimiterFallbackEnded) {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not recover");
            _ = self.limiter.check(&acme(), 0).await;
            sleep(Duration::from_millis(10)).await;
        }
    }
}

fn acme() -> Tenant {
    Tenant::parse("acme").unwrap()
}

/// Plans of each rule, from which 50 units fit into an hour.
fn plans() -> Vec<(&'static str, Plan)> {
    vec![
        ("sliding", Quota::new(LIMIT, HOUR).unwrap().into()),
        ("smooth", Quota::smooth(1, HOUR, LIMIT).unwrap().into()),
        ("calendar", Quota::fixed(LIMIT, Duration::from_secs(7 * 86_400)).unwrap().into()),
        (
            "two quotas",
            Plan::new([Quota::new(LIMIT, HOUR).unwrap(), Quota::new(70, HOUR * 24).unwrap().with_name("day").unwrap()])
                .unwrap(),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b35_a_node_never_exceeds_the_limit_across_a_change_to_the_fallback_and_back() {
    for server in RedisServer::each(&[]) {
        for (name, plan) in plans() {
            for leases in [false, true] {
                for spent in [0, 20, LIMIT] {
                    server.cli(&["flushall"]);
                    let node = Node::start(&server, &plan, Settings { leases, ..IMPATIENT }).await;
                    let mut admitted = node.admitted(spent).await;
                    node.proxy.delay(STALL);
                    admitted += node.admitted(30).await;
                    node.proxy.delay(Duration::ZERO);
                    admitted += node.admitted(10).await;
                    node.recovers().await;
                    admitted += node.admitted(100).await;
                    // a lease whose reply was late, or a unit that was charged twice, may cost some
                    println!("{name}, leases: {leases}, {spent} before: {admitted} of {LIMIT}");
                    assert!(admitted <= LIMIT, "{name}, leases: {leases}: {admitted}");
                    assert!(admitted >= LIMIT / 2, "{name}, leases: {leases}: {admitted}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_for_the_last_leased_units_use_no_fallback_while_the_server_answers_each_call_in_time() {
    let (deadline, delay) = (Duration::from_secs(1), Duration::from_millis(220));
    for server in RedisServer::each(&[]) {
        for fallback in [Fallback::Open, Fallback::Local, Fallback::Closed] {
            server.cli(&["flushall"]);
            let mut checks = JoinSet::new();
            for _ in 0..2 {
                let settings = Settings { deadline: Some(deadline), leases: true, fallback };
                let node = Node::start(&server, &Quota::new(10, HOUR).unwrap().into(), settings).await;
                node.proxy.delay(delay);
                let node = Arc::new(node);
                // a lease has at most a quarter of what is left, so four calls are not enough
                for _ in 0..12 {
                    let node = Arc::clone(&node);
                    checks.spawn(async move { node.limiter.check(&acme(), 1).await });
                }
            }
            let decisions = checks.join_all().await;
            let admitted = decisions.iter().filter(|decision| decision.is_admitted()).count();
            let mut refused = decisions.iter().filter_map(Decision::refusal_reason);
            assert!((6..=10).contains(&admitted), "{admitted} of 10, {fallback:?}");
            assert!(refused.all(|reason| reason == RefusalReason::Spent), "{fallback:?}");
        }
    }
}

/// Four nodes send 25 checks each, over connections with this delay. Returns how many were admitted, and how often the fallback
/// began, or `None` if the machine was too busy to tell.
async fn four_nodes(server: &RedisServer, plan: &Plan, delay: Duration) -> Option<(u32, usize)> {
    server.cli(&["flushall"]);
    let mut nodes = Vec::new();
    for _ in 0..4 {
        nodes.push(Node::start(server, plan, DEFAULT).await);
    }
    for node in &nodes {
        node.proxy.delay(delay);
    }
    let (mut tasks, admitted) = (JoinSet::new(), Arc::new(AtomicU32::new(0)));
    for node in &nodes {
        for _ in 0..5 {
            let (limiter, admitted) = (node.limiter.clone(), Arc::clone(&admitted));
            tasks.spawn(async move {
                let mut longest = Duration::ZERO;
                for _ in 0..5 {
                    let asked = Instant::now();
                    let decision = limiter.check(&acme(), 1).await;
                    longest = longest.max(asked.elapsed());
                    admitted.fetch_add(u32::from(decision.is_admitted()), SeqCst);
                }
                longest
            });
        }
    }
    let longest = tasks.join_all().await.into_iter().max().unwrap();
    let began = nodes.iter().map(|node| node.count(EventKind::LimiterFallbackBegan)).sum();
    // the deadline
    (longest < Duration::from_millis(100)).then(|| (admitted.load(SeqCst), began))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b35_the_default_deadline_fits_a_stall_of_30_ms_and_a_round_trip_of_25() {
    for server in RedisServer::each(&[]) {
        for delay in [STALL, Duration::from_millis(25)] {
            for (name, plan) in plans() {
                let mut outcome = None;
                for _ in 0..50 {
                    outcome = four_nodes(&server, &plan, delay).await;
                    if outcome.is_some() {
                        break;
                    }
                    sleep(Duration::from_millis(100)).await;
                }
                assert_eq!(outcome, Some((LIMIT, 0)), "{name}, {delay:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b35_a_reply_that_is_cut_off_refuses_nothing_and_admits_no_more() {
    for server in RedisServer::each(&[]) {
        for (name, plan) in plans() {
            for leases in [false, true] {
                server.cli(&["flushall"]);
                let node = Node::start(&server, &plan, Settings { leases, ..PATIENT }).await;
                let mut admitted = node.admitted(10).await;
                node.proxy.cut_next_reply();
                for _ in 0..90 {
                    let decision = node.limiter.check(&acme(), 1).await;
                    assert_ne!(decision.refusal_reason(), Some(RefusalReason::Unavailable), "{name}, leases: {leases}");
                    admitted += u32::from(decision.is_admitted());
                }
                // what was charged without a reply counts twice
                assert!((LIMIT - 12..=LIMIT).contains(&admitted), "{name}, leases: {leases}: {admitted}");
                assert_eq!(node.count(EventKind::LimiterFallbackBegan), 0);
            }
        }
    }
}

/// On a busy machine, a reply may take longer than the deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b35_a_reset_within_the_default_deadline_refuses_nothing() {
    for server in RedisServer::each(&[]) {
        let plan = Quota::new(1_000, HOUR).unwrap().into();
        let mut refused = 0;
        for _ in 0..50 {
            let node = Node::start(&server, &plan, Settings { fallback: Fallback::Closed, ..DEFAULT }).await;
            let mut admitted = node.admitted(1).await;
            for fault in [Proxy::close, Proxy::cut_next_reply] {
                fault(&node.proxy);
                admitted += node.admitted(20).await;
            }
            refused = 41 - admitted;
            if refused == 0 {
                break;
            }
            sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(refused, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b35_connections_that_are_closed_again_and_again_refuse_nothing() {
    for server in RedisServer::each(&[]) {
        let plan = Quota::new(1_000_000, HOUR).unwrap().into();
        let node = Node::start(&server, &plan, PATIENT).await;
        for round in 0..10 {
            // a reply of this round is cut, never one of the next: a retry survives one fault
            if round % 2 == 1 {
                node.proxy.cut_next_reply();
            }
            let mut tasks = JoinSet::new();
            for _ in 0..20 {
                let limiter = node.limiter.clone();
                tasks.spawn(async move { limiter.check(&acme(), 1).await.refusal_reason() });
            }
            if round % 2 == 0 {
                node.proxy.close();
            }
            assert!(tasks.join_all().await.iter().all(Option::is_none), "round {round}");
        }
        assert_eq!(node.count(EventKind::LimiterFallbackBegan), 0);
    }
}

/// The figures in `docs/scale.md`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b35_four_nodes_admit_at_most_what_each_of_them_last_saw_as_left() {
    for server in RedisServer::each(&[]) {
        for (name, plan) in plans() {
            for (by_each, leases) in [0, 5, 10, 13].into_iter().flat_map(|by_each| [(by_each, false), (by_each, true)])
            {
                server.cli(&["flushall"]);
                let mut nodes = Vec::new();
                for _ in 0..4 {
                    nodes.push(
                        Node::start(&server, &plan, Settings { leases, fallback: Fallback::Local, ..PATIENT }).await,
                    );
                }
                // the most that one of them last saw as left
                let (mut admitted, mut left) = (0, if by_each == 0 { LIMIT } else { 0 });
                for _ in 0..by_each {
                    left = 0;
                    for node in &nodes {
                        let decision = node.limiter.check(&acme(), 1).await;
                        admitted += u32::from(decision.is_admitted());
                        left = left.max(decision.standing().unwrap().remaining());
                    }
                }
                for node in &nodes {
                    node.proxy.refuse(true);
                }
                for node in &nodes {
                    let own = node.admitted(80).await;
                    assert!(own + by_each.min(LIMIT / 4) <= LIMIT, "{own} besides {by_each}");
                    admitted += own;
                }
                println!("{name}, leases: {leases}: {admitted} of {LIMIT}, at most {left} left before");
                let row = format!("| {} | {left} | {admitted} |", (by_each * 4).min(LIMIT));
                assert!(leases || include_str!("../docs/scale.md").contains(&row), "{name}: {row}");
                assert!(admitted <= LIMIT + 3 * left, "{name}: {admitted}");
                for node in &nodes {
                    node.proxy.refuse(false);
                }
                // all of it is charged, without another request
                let observer = Node::start(&server, &plan, DEFAULT).await;
                let began = Instant::now();
                while observer.limiter.peek(&acme()).await.unwrap().remaining() > LIMIT.saturating_sub(admitted) {
                    assert!(began.elapsed() < Duration::from_secs(20), "{name}: it is not charged");
                    sleep(Duration::from_millis(10)).await;
                }
                for node in &nodes {
                    node.recovers().await;
                    assert_eq!(node.admitted(20).await, 0, "{name}");
                }
            }
        }
    }
}
