//! Tests of the fallback and its debts with a real server.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use super::{SharedLimiter, SharedLimiterBuilder, model::redis_server::RedisServer};
use crate::{
    limit::{
        decision::{Ask, RefusalReason},
        limiter::Limiter,
        plan::Plan,
        plans::table::Plans,
        quota::Quota,
    },
    redis::RedisConfig,
    tenant::LimitKey,
    testing::ManualClock,
};

const HOUR: Duration = Duration::from_secs(3600);
const LIMIT: u32 = 50;

async fn node(server: &RedisServer, clock: &ManualClock) -> SharedLimiter {
    connect(builder(server, clock)).await
}

async fn leased_node(server: &RedisServer, clock: &ManualClock) -> SharedLimiter {
    connect(builder(server, clock).leased()).await
}

fn builder(server: &RedisServer, clock: &ManualClock) -> SharedLimiterBuilder {
    let config = RedisConfig::new(&server.url()).unwrap().deadline(Duration::from_secs(5)).unwrap();
    Limiter::builder(Plans::new(Quota::new(LIMIT, HOUR).unwrap())).clock(clock.clone()).redis(config)
}

async fn connect(builder: SharedLimiterBuilder) -> SharedLimiter {
    let node = builder.connect().await.unwrap();
    // the tests settle
    node.0.server.is_settling.store(true, SeqCst);
    node
}

fn unit() -> Ask {
    Ask { refundable: true, ..Ask::new(1, false) }
}

fn named(name: &str) -> LimitKey {
    LimitKey::parse(name).unwrap()
}

async fn left(node: &SharedLimiter, tenant: &LimitKey) -> u32 {
    node.peek(tenant).await.unwrap().remaining()
}

#[tokio::test]
async fn b35_a_denied_tenant_keeps_its_debt_and_does_not_hold_up_those_of_others() {
    for server in RedisServer::each(&[]) {
        let node = node(&server, &ManualClock::new()).await;
        let (acme, shared) = (named("acme"), &node.0.server);
        let denied: Vec<_> = (0..20).map(|number| named(&format!("denied-{number}"))).collect();
        for tenant in denied.iter().chain([&acme]) {
            assert!(node.fall_back(tenant, unit()).is_admitted());
        }
        denied.iter().for_each(|tenant| node.plans().set(tenant.clone(), Plan::denied()));
        for _ in 0..5 {
            shared.settle_now().await;
        }
        assert_eq!(left(&node, &acme).await, LIMIT - 1);
        assert_eq!(shared.open_breakers.load(SeqCst), 0);
        // limited again
        denied.iter().for_each(|tenant| node.plans().remove(tenant));
        shared.settle_now().await;
        for tenant in &denied {
            assert_eq!(left(&node, tenant).await, LIMIT - 1);
        }
        assert!(!shared.mirror.has_debts());
    }
}

#[tokio::test]
async fn b35_a_key_that_can_not_be_used_does_not_hold_up_the_debts_of_others() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let node = node(&server, &ManualClock::new()).await;
    for number in 0..20 {
        let broken = named(&format!("broken-{number}"));
        server.cli(&["lpush", &format!("tollgate:limit:{{{broken}}}"), "1"]);
        assert!(node.fall_back(&broken, unit()).is_admitted());
    }
    assert!(node.fall_back(&named("acme"), unit()).is_admitted());
    node.0.server.settle_now().await;
    assert_eq!(left(&node, &named("acme")).await, LIMIT - 1);
}

#[tokio::test]
async fn b35_debts_that_are_charged_from_two_sides_are_charged_once() {
    for server in RedisServer::each(&[]) {
        let node = node(&server, &ManualClock::new()).await;
        for _ in 0..7 {
            assert!(node.fall_back(&named("acme"), unit()).is_admitted());
        }
        tokio::join!(node.0.server.settle_now(), node.close(), node.0.server.settle_now());
        assert_eq!(left(&node, &named("acme")).await, LIMIT - 7);
    }
}

#[tokio::test]
async fn b35_a_server_without_memory_does_not_end_the_fallback() {
    for server in RedisServer::each(&[]) {
        let clock = ManualClock::new();
        let node = node(&server, &clock).await;
        let settled = || clock.advance(Duration::from_secs(1));
        server.cli(&["config", "set", "maxmemory", "1"]);
        for _ in 0..5 {
            clock.advance(Duration::from_millis(1));
            assert!(node.check(&named("acme"), 1).await.is_admitted());
        }
        for _ in 0..5 {
            assert_eq!(node.0.server.open_breakers.load(SeqCst), 1);
            settled();
            node.0.server.settle_now().await;
        }
        server.cli(&["config", "set", "maxmemory", "0"]);
        settled();
        node.0.server.settle_now().await;
        assert_eq!(node.0.server.open_breakers.load(SeqCst), 0);
        assert_eq!(left(&node, &named("acme")).await, LIMIT - 5);
    }
}

#[tokio::test]
async fn b35_a_refusal_by_this_node_takes_nothing_from_the_server() {
    for server in RedisServer::each(&[]) {
        let node = node(&server, &ManualClock::new()).await;
        let acme = named("acme");
        assert!(node.check(&acme, LIMIT - 1).await.is_admitted());
        assert!(node.fall_back(&acme, unit()).is_admitted());
        // the server has lost what this node knows
        server.cli(&["flushall"]);
        for _ in 0..10 {
            assert_eq!(node.check(&acme, 1).await.refusal_reason(), Some(RefusalReason::Spent));
        }
        // the refunds run in the background
        let refunded = async { while left(&node, &acme).await < LIMIT {} };
        tokio::time::timeout(Duration::from_secs(20), refunded).await.unwrap();
    }
}

#[tokio::test]
async fn a_request_that_this_node_refuses_after_a_call_without_a_lease_takes_nothing_from_the_server() {
    for server in RedisServer::each(&[]) {
        let clock = ManualClock::new();
        let [plain, leased] = [node(&server, &clock).await, leased_node(&server, &clock).await];
        let acme = named("acme");
        assert!(leased.fall_back(&acme, Ask::new(LIMIT - 1, false)).is_admitted());
        for _ in 0..3 {
            assert_eq!(leased.check(&acme, 5).await.refusal_reason(), Some(RefusalReason::Spent));
            // the refund runs in the background
            let refunded = async { while left(&plain, &acme).await < LIMIT {} };
            tokio::time::timeout(Duration::from_secs(20), refunded).await.unwrap();
            clock.advance(Duration::from_secs(2));
        }
    }
}

#[tokio::test]
async fn b35_units_that_are_refunded_in_the_fallback_are_not_charged() {
    for server in RedisServer::each(&[]) {
        let node = node(&server, &ManualClock::new()).await;
        let acme = named("acme");
        assert!(node.check(&acme, 10).await.is_admitted());
        for _ in 0..10 {
            let spend = node.fall_back(&acme, unit()).into_spend();
            assert_eq!(node.refund(spend).await.unwrap().remaining(), LIMIT - 10);
        }
        let known = node.fall_back(&acme, unit()).into_spend();
        node.0.server.settle_now().await;
        assert_eq!(left(&node, &acme).await, LIMIT - 11);
        // the server knows the first unit, and not the second one
        assert!(node.fall_back(&acme, unit()).is_admitted());
        _ = node.refund(known).await;
        assert!(node.0.server.mirror.has_debts());
    }
}

#[tokio::test]
async fn b35_a_reply_counts_each_quota() {
    for server in RedisServer::each(&[]) {
        let node = node(&server, &ManualClock::new()).await;
        let quotas = [Quota::new(10, HOUR).unwrap(), Quota::new(40, HOUR * 24).unwrap().with_name("day").unwrap()];
        let (acme, plan) = (named("acme"), Plan::new(quotas).unwrap());
        for (hour, units, used) in [(0, 10, [0, 0]), (1, 9, [0, 10]), (1, 2, [9, 19]), (2, 0, [0, 19])] {
            let micros = (1_800_000_000 + hour * 3600) * 1_000_000_u64;
            let (time, ask) = (micros.to_string(), Ask::new(units, false));
            let answer = node.0.server.call_at(&time, "spend", &acme, &plan, ask, &[]).await.unwrap().unwrap();
            assert_eq!(answer.counts.used[..2], used, "{units} in hour {hour}");
        }
    }
}
