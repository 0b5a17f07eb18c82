//! Plans of tenants on a real Redis server, changed while nodes use them.
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

use std::{convert::Infallible, time::Duration};

use http::{Request, Response};
use redis_server::{RedisCluster, RedisServer};
use tokio::time::{Instant, timeout};
use tollgate::{
    EventLog, Limiter, Plan, Plans, Quota, RateLimitLayer, Tenant,
    event::{EventKind, Query},
    limit::{AnyLimiter, CachedPlans, PlanFailure, RedisPlans},
    store::RedisConfig,
    tenant::HeaderTenant,
    testing::ManualClock,
};
use tower::{ServiceBuilder, ServiceExt, service_fn};

const SECOND: Duration = Duration::from_secs(1);
const KEY: &str = "tollgate:plan:{acme}";

fn acme() -> Tenant {
    Tenant::parse("acme").unwrap()
}

/// Where a node has its budgets.
#[derive(Clone, Copy)]
enum Kind {
    Memory,
    Redis,
    Leased,
}

/// A node that looks plans up.
struct Node {
    plans: RedisPlans,
    limiter: AnyLimiter,
    clock: ManualClock,
    log: EventLog,
}

impl Node {
    async fn new(url: &str, kind: Kind) -> Self {
        Self::with(url, kind, |plans| plans).await
    }

    async fn with(url: &str, kind: Kind, settings: impl Fn(CachedPlans) -> CachedPlans) -> Self {
        // patient, because the machine may be busy
        let config = RedisConfig::new(url).unwrap().deadline(SECOND).unwrap();
        let plans = RedisPlans::connect(config.clone()).await.unwrap();
        let (clock, log) = (ManualClock::new(), EventLog::new());
        let builder = Limiter::builder(Plans::new(Quota::per_hour(600).unwrap()))
            .plan_source(settings(plans.cached()))
            .clock(clock.clone())
            .events(log.clone());
        let limiter = match kind {
            Kind::Memory => builder.build().unwrap().into(),
            Kind::Redis => builder.redis(config).connect().await.unwrap().into(),
            Kind::Leased => builder.redis(config).leased().connect().await.unwrap().into(),
        };
        Self { plans, limiter, clock, log }
    }

    /// Sends a request of this tenant. Returns its limit, or the status of a response without a limit.
    async fn limit_of(&self, tenant: &str) -> String {
        let service = ServiceBuilder::new()
            .layer(RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), self.limiter.clone()))
            .service(service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::new()))));
        let request = Request::get("/").header("x-tenant", tenant).body(String::new()).unwrap();
        let response = service.oneshot(request).await.unwrap();
        match response.headers().get("x-ratelimit-limit") {
            Some(limit) => limit.to_str().unwrap().to_owned(),
            None => response.status().as_u16().to_string(),
        }
    }

    async fn limit(&self) -> String {
        self.limit_of("acme").await
    }

    fn failures(&self) -> usize {
        self.log.read_events(&Query::new().kind(EventKind::PlanLookupFailed)).events.len()
    }
}

async fn nodes(url: &str) -> [Node; 3] {
    [Node::new(url, Kind::Memory).await, Node::new(url, Kind::Redis).await, Node::new(url, Kind::Leased).await]
}

#[tokio::test]
async fn a_change_by_redis_cli_is_seen_by_every_node_within_a_second() {
    let Some(server) = RedisServer::start(&[]) else { return };
    for node in nodes(&server.url()).await {
        server.cli(&["del", KEY]);
        node.clock.advance(SECOND);
        assert_eq!(node.limit().await, "600");
        // at any time since the last lookup of this tenant and of another one
        let mut millis = (0_u64..).map(|step| 1 + step * step * 7919 % 97);
        for limit in 1000..1060 {
            let limit = limit.to_string();
            server.cli(&["set", KEY, &format!("{limit}/hour")]);
            let mut since = 0;
            while since < 999 {
                let step = millis.next().unwrap().min(999 - since);
                node.clock.advance(Duration::from_millis(step));
                node.limit_of(if step % 2 == 0 { "acme" } else { "globex" }).await;
                since += step;
            }
            assert_eq!(node.limit().await, limit);
        }
        for (text, seen) in
            [("unlimited", "200"), ("denied", "403"), ("7/second name=burst; 9000/hour", "7"), ("2/hour", "2")]
        {
            server.cli(&["set", KEY, text]);
            node.clock.advance(SECOND);
            assert_eq!(node.limit().await, seen, "{text}");
        }
        server.cli(&["del", KEY]);
        node.clock.advance(SECOND);
        assert_eq!(node.limit().await, "600");
    }
}

#[tokio::test]
async fn a_change_by_one_node_is_seen_by_the_others() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let [one, other, leased] = nodes(&server.url()).await;
    let plan: Plan = "50/hour reserve=10 slices=240; 20/2s smooth name=b shadow".parse().unwrap();
    for (setter, reader) in [(&one, &other), (&other, &leased), (&leased, &one)] {
        setter.plans.set(&acme(), plan.clone()).await.unwrap();
        assert_eq!(server.cli(&["get", KEY]).trim(), "50/hour slices=240 reserve=10; 20/2s smooth name=b shadow");
        reader.clock.advance(SECOND);
        assert_eq!(reader.limit().await, "50");
        setter.plans.remove(&acme()).await.unwrap();
        assert_eq!(server.cli(&["exists", KEY]).trim(), "0");
        reader.clock.advance(SECOND);
        assert_eq!(reader.limit().await, "600");
    }
    // other tenants are not affected; the compiler refuses plans of addresses
    assert_eq!(one.limit_of("globex").await, "600");
}

#[tokio::test]
async fn a_wrong_text_changes_nothing_and_is_an_event() {
    for server in RedisServer::each(&[]) {
        let long = format!("600/hour{}", " ".repeat(2000));
        for node in nodes(&server.url()).await {
            server.cli(&["del", KEY]);
            server.cli(&["set", KEY, "70/hour"]);
            assert_eq!((node.limit().await.as_str(), node.failures()), ("70", 0));
            for wrong in
                ["700/hours", "", "Unlimited", "unlimited!", "0/hour", "700/hour\u{1b}[2J", "700/hour é", &long]
            {
                server.cli(&["set", KEY, wrong]);
                node.clock.advance(SECOND);
                assert_eq!(node.limit().await, "70", "{wrong}");
            }
            server.cli(&["del", KEY]);
            server.cli(&["hset", KEY, "plan", "unlimited"]);
            node.clock.advance(SECOND);
            assert_eq!(node.limit().await, "70");
            assert!(node.failures() > 0);
            // a tenant without a known plan gets the default
            server.cli(&["set", "tollgate:plan:{globex}", "unlimited?"]);
            assert_eq!(node.limit_of("globex").await, "600");
            // corrected
            server.cli(&["del", KEY]);
            server.cli(&["set", KEY, "80/hour"]);
            node.clock.advance(SECOND);
            assert_eq!(node.limit().await, "80");
        }
        server.cli(&["set", KEY, "unlimited?"]);
        for kind in [Kind::Memory, Kind::Redis, Kind::Leased] {
            let strict = Node::with(&server.url(), kind, |plans| plans.on_failure(PlanFailure::Refuse)).await;
            assert_eq!(strict.limit().await, "503");
        }
    }
}

#[tokio::test]
async fn the_server_is_asked_a_few_times_a_second_and_waiting_is_bounded() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let node = Node::new(&server.url(), Kind::Memory).await;
    let lookups = || {
        let stats = server.cli(&["info", "commandstats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_get:calls=")).unwrap_or("0,");
        line.split(',').next().unwrap().parse::<u32>().unwrap()
    };
    for _ in 0..100 {
        node.clock.advance(SECOND / 50);
        node.limit().await;
    }
    assert!((2..=6).contains(&lookups()), "{} in two seconds", lookups());
    let config = RedisConfig::new(&server.url()).unwrap().deadline(SECOND / 10).unwrap();
    let clock = ManualClock::new();
    let plans = RedisPlans::connect(config).await.unwrap();
    let limiter =
        Limiter::builder(Plans::new(Quota::per_hour(600).unwrap())).plan_source(plans.cached()).clock(clock.clone());
    let frozen = Node { plans, limiter: limiter.build().unwrap().into(), clock, log: EventLog::new() };
    server.cli(&["set", KEY, "70/hour"]);
    let began = Instant::now();
    while frozen.limit().await != "70" {
        assert!(began.elapsed() < SECOND * 20, "it does not find the plan");
        frozen.clock.advance(SECOND);
    }
    server.signal("STOP");
    let began = Instant::now();
    for _ in 0..40 {
        frozen.clock.advance(SECOND);
        assert_eq!(timeout(SECOND * 10, frozen.limit()).await.expect("it waits"), "70");
    }
    // three times the deadline, and once more in each second, not the deadline forty times
    assert!(began.elapsed() < SECOND * 7 / 2, "{:?}", began.elapsed());
    server.signal("CONT");
    server.cli(&["set", KEY, "80/hour"]);
    let began = Instant::now();
    while frozen.limit().await != "80" {
        assert!(began.elapsed() < SECOND * 20, "it does not recover");
        frozen.clock.advance(SECOND);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn plans_are_on_all_nodes_of_a_cluster() {
    for cluster in RedisCluster::each() {
        for node in nodes(&cluster.url()).await {
            for number in 1..=30 {
                let name = format!("tenant-{number}");
                node.plans.set(&Tenant::parse(&name).unwrap(), Quota::per_hour(number).unwrap()).await.unwrap();
                assert_eq!(node.limit_of(&name).await, number.to_string());
            }
        }
        for node in &cluster.0 {
            assert!(node.cli(&["keys", "tollgate:plan:*"]).lines().count() > 3);
        }
    }
}
