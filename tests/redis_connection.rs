//! The connections that objects on Redis open.
#![cfg(feature = "redis")]
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

use std::time::Duration;

use redis_server::{RedisServer, wait_until};
use tollgate::{
    Limiter, Plan, Plans, Quota, Tenant,
    limit::{RedisPlans, SharedLimiter},
    store::{Key, Record, Redis, RedisConfig, Store},
};

/// Returns the number of connections, without the one that asks.
fn connections(server: &RedisServer) -> usize {
    server.cli(&["client", "list"]).lines().filter(|line| !line.is_empty() && !line.contains("cmd=client|list")).count()
}

/// A store, a limiter and plans with one configuration.
async fn connect_all(config: &RedisConfig) -> (Redis, SharedLimiter, RedisPlans) {
    let store = Redis::connect_with(config.clone()).await.unwrap();
    let plans = RedisPlans::connect(config.clone()).await.unwrap();
    let default = Plans::new(Quota::per_hour(10).unwrap());
    let limiter = Limiter::builder(default).plan_source(plans.cached()).redis(config.clone()).connect().await.unwrap();
    (store, limiter, plans)
}

/// Uses all of them.
async fn use_all((store, limiter, plans): &(Redis, SharedLimiter, RedisPlans), tenant: &str) {
    let tenant = Tenant::parse(tenant).unwrap();
    plans.set(&tenant, "7/hour".parse::<Plan>().unwrap()).await.unwrap();
    assert_eq!(limiter.check(&tenant, 1).await.standing().unwrap().limit(), 7);
    let key = Key::new("test", Some(&tenant), "id").unwrap();
    let now = tollgate::clock::Clock::read(&tollgate::clock::SystemClock::new()).1;
    let record = Record::new("value", now, now + Duration::from_secs(60)).unwrap();
    _ = store.insert(&key, record).await.unwrap();
    assert_eq!(store.get(&key).wait().await.unwrap().unwrap().value, "value");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_share_one_connection_if_the_configuration_says_so() {
    for server in RedisServer::each(&[]) {
        let config = RedisConfig::new(&server.url()).unwrap().deadline(Duration::from_secs(5)).unwrap();
        let apart = connect_all(&config).await;
        use_all(&apart, "acme").await;
        assert_eq!(connections(&server), 3);
        drop(apart);
        wait_until(|| connections(&server) == 0);

        let config = config.share_connection();
        let together = connect_all(&config).await;
        use_all(&together, "globex").await;
        assert_eq!(connections(&server), 1);
        // another prefix and deadline, the same connection
        let other = config.clone().key_prefix("other").unwrap().deadline(Duration::from_secs(6)).unwrap();
        let others = connect_all(&other).await;
        use_all(&others, "globex").await;
        assert_eq!(connections(&server), 1);
        assert!(server.cli(&["keys", "*"]).contains("other:limit:{globex}"));
        // another user is another connection
        let stranger = Redis::connect_with(config.clone().user("default").password("")).await;
        assert!(stranger.is_err() || connections(&server) == 2);
        drop(stranger);
        wait_until(|| connections(&server) == 1);

        // a lost connection is restored for all of them, once
        server.cli(&["client", "kill", "type", "normal"]);
        wait_until(|| connections(&server) == 1);
        use_all(&together, "initech").await;
        use_all(&others, "initech").await;
        assert_eq!(connections(&server), 1);

        // it ends with the last of them, and the configuration can be used again
        drop(together);
        use_all(&others, "umbrella").await;
        drop(others);
        wait_until(|| connections(&server) == 0);
        use_all(&connect_all(&config).await, "acme").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_shares_a_connection_is_not_connected_while_the_server_is_away() {
    let Some(mut server) = RedisServer::start(&[]) else { return };
    let config = RedisConfig::new(&server.url()).unwrap().deadline(Duration::from_secs(5)).unwrap().share_connection();
    let _others = connect_all(&config).await;
    server.kill();
    let quotas = || Plans::new(Quota::per_hour(10).unwrap());
    assert!(Limiter::redis(config.clone(), quotas()).connect().await.is_err());
    assert!(RedisPlans::connect(config.clone()).await.is_err());
    server.restart();
    let connect = async {
        while RedisPlans::connect(config.clone()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), connect).await.expect("the connection is restored");
}
