//! Metrics of a shared limiter whose server goes away and comes back.
#![cfg(all(feature = "redis", feature = "metrics"))]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "tests may panic"
)]

#[path = "support/programs.rs"]
mod programs;
#[path = "support/redis_server.rs"]
#[allow(dead_code, reason = "each test program uses some of it")]
mod redis_server;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use redis_server::RedisServer;
use tollgate::{Limiter, Plans, Quota, Tenant, store::RedisConfig};

/// Records counters by name.
#[derive(Default)]
struct Counters(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Counters {
    fn value(&self, name: &str) -> u64 {
        self.0.lock().unwrap().get(name).map_or(0, |count| count.load(SeqCst))
    }
}

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::clone(self.0.lock().unwrap().entry(key.name().to_owned()).or_default()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn each_change_and_each_decision_of_the_fallback_is_counted() {
    let Some(mut server) = RedisServer::start(&[]) else { return };
    let counters = Counters::default();
    let changes = || counters.value("tollgate_limiter_fallback_changes_total");
    let decided = || counters.value("tollgate_limiter_fallback_total");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let work = async {
        let quotas = Plans::new(Quota::per_day(1_000_000).unwrap());
        let limiter = Limiter::redis(RedisConfig::new(&server.url()).unwrap(), quotas).connect().await.unwrap();
        let tenant = Tenant::parse("acme").unwrap();
        server.kill();
        for _ in 0..10 {
            assert!(limiter.check(&tenant, 1).await.is_admitted());
        }
        assert_eq!((changes(), decided()), (1, 10));
        server.restart();
        while changes() == 1 {
            _ = limiter.check(&tenant, 1).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(changes(), 2);
    };
    metrics::with_local_recorder(&counters, || runtime.block_on(work));
    assert!(counters.value("tollgate_units_admitted_total") > 10);
}
