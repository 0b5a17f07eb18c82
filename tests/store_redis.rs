//! `store::Redis` on real servers and clusters: the conformance suite, and all that can happen to a server.
#![cfg(all(feature = "redis", feature = "test-util"))]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

#[path = "support/certificate.rs"]
mod certificate;
#[path = "support/programs.rs"]
mod programs;
#[expect(dead_code, reason = "not every test uses all of it")]
#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/redis_server.rs"]
mod redis_server;

use std::{
    error::Error,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use proxy::Proxy;
use redis_server::{RedisCluster, RedisServer, ReservedPort, wait_until};
use tokio::{
    runtime::Runtime,
    time::{Instant, timeout},
};
use tollgate::{
    clock::{SystemClock, UnixTime},
    store::{Entry, Key, Record, Redis, RedisConfig, Store, StoreError, StoreErrorKind, Version, WriteOutcome},
    testing,
};

const DEADLINE: Duration = Duration::from_secs(5);
/// The deadline where a server does not answer.
const SHORT: Duration = Duration::from_millis(300);

fn config(url: &str) -> RedisConfig {
    RedisConfig::new(url).unwrap().deadline(DEADLINE).unwrap()
}

async fn connect(url: &str) -> Redis {
    Redis::connect_with(config(url)).await.unwrap()
}

/// Connects with the short deadline.
async fn connect_impatiently(url: &str) -> Redis {
    Redis::connect_with(config(url).deadline(SHORT).unwrap()).await.unwrap()
}

fn now() -> UnixTime {
    use tollgate::clock::Clock;
    SystemClock::new().read().1
}

fn key(id: impl AsRef<[u8]>) -> Key {
    Key::new("rows", None, id).unwrap()
}

fn record(value: &str) -> Record {
    Record::new(value.to_owned(), now(), now() + Duration::from_secs(600)).unwrap()
}

async fn get(store: &Redis, id: &str) -> Result<Option<Entry>, StoreError> {
    store.get(&key(id)).wait().await
}

async fn insert(store: &Redis, id: &str, value: &str) -> Result<Version, StoreError> {
    match store.insert(&key(id), record(value)).await? {
        WriteOutcome::Done(version) => Ok(version),
        lost => panic!("{lost:?}"),
    }
}

/// Runs a call, which must not take longer than the deadline and the patience of a busy machine.
async fn in_time<T>(call: impl Future<Output = T>) -> T {
    timeout(DEADLINE + Duration::from_secs(10), call).await.expect("a call waits much longer than its deadline")
}

/// Calls until it succeeds.
async fn recovered(store: &Redis) {
    let began = Instant::now();
    while let Err(error) = in_time(get(store, "any")).await {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not recover: {error:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn conformance(url: &str, is_cluster: bool) {
    let runtime = Runtime::new().unwrap();
    let stores = AtomicU32::new(0);
    let make = || {
        let prefix = format!("suite-{}", stores.fetch_add(1, SeqCst));
        runtime.block_on(Redis::connect_with(RedisConfig::new(url).unwrap().key_prefix(&prefix).unwrap())).unwrap()
    };
    testing::store_conformance(make, |future| runtime.block_on(future));
    let page = runtime.block_on(make().scan(None));
    assert!(page.is_ok() || is_cluster, "{page:?}");
}

#[test]
fn a_server_is_a_store() {
    for server in RedisServer::each(&[]) {
        conformance(&server.url(), false);
    }
}

#[test]
fn a_cluster_is_a_store() {
    for cluster in RedisCluster::each() {
        conformance(&cluster.url(), true);
        // all nodes have a part of it
        for node in &cluster.0 {
            assert_ne!(node.cli(&["dbsize"]).trim(), "0");
        }
    }
}

#[tokio::test]
async fn every_process_sees_what_another_has_written() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    for round in 0..100 {
        let id = round.to_string();
        let version = insert(&one, &id, "session").await.unwrap();
        let seen = get(&other, &id).await.unwrap().unwrap();
        assert_eq!((seen.version, &seen.value[..]), (version, &b"session"[..]));
        // revoked on one node, gone on the other
        assert_eq!(other.take(&key(&id)).await.unwrap(), Some(seen));
        assert_eq!(get(&one, &id).await.unwrap(), None);
    }
}

#[tokio::test]
async fn entries_expire_on_the_server() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = connect(&server.url()).await;
    let now = now();
    let short = Record::new("short", now, now + Duration::from_millis(20)).unwrap();
    let past = Record::new("past", now, UnixTime::from_secs(1)).unwrap();
    let forever = Record::new("forever", now, UnixTime::from_nanos(u64::MAX)).unwrap();
    for (id, record) in [("short", short), ("past", past), ("forever", forever)] {
        assert!(matches!(store.insert(&key(id), record).await, Ok(WriteOutcome::Done(_))));
    }
    // the 64 epochs and one entry are left
    wait_until(|| server.cli(&["dbsize"]).trim() == "65");
    assert_eq!(&get(&store, "forever").await.unwrap().unwrap().value[..], b"forever");
}

#[tokio::test]
async fn a_server_that_was_killed_is_found_again() {
    let Some(mut server) = RedisServer::start(&[]) else { return };
    let store = connect_impatiently(&server.url()).await;
    let version = insert(&store, "row", "value").await.unwrap();
    let before = store.complete_since();
    server.kill();
    for _ in 0..5 {
        let error = in_time(get(&store, "row")).await.unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (StoreErrorKind::Unavailable, true));
        let error = in_time(store.swap(&key("row"), version, record("new"))).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    }
    server.restart();
    recovered(&store).await;
    // it kept nothing, and the store knows
    assert_eq!(get(&store, "row").await.unwrap(), None);
    assert!(store.complete_since() > before);
    insert(&store, "row", "again").await.unwrap();
}

#[tokio::test]
async fn a_restart_begins_an_epoch_even_if_the_server_kept_its_data() {
    for mut server in RedisServer::each(&[]) {
        let (store, idle) = (connect(&server.url()).await, connect(&server.url()).await);
        let before = store.complete_since();
        insert(&store, "kept", "value").await.unwrap();
        server.cli(&["save"]);
        insert(&store, "lost", "value").await.unwrap();
        server.kill();
        // the epoch has seconds
        tokio::time::sleep(Duration::from_millis(1100)).await;
        server.restart();
        for store in [&store, &idle] {
            recovered(store).await;
            assert!(get(store, "kept").await.unwrap().is_some());
            assert_eq!(get(store, "lost").await.unwrap(), None);
            assert!(store.complete_since() > before);
        }
        assert_eq!(store.complete_since(), idle.complete_since(), "one partition, one epoch");
    }
}

/// Uses all partitions.
async fn touch_all(store: &Redis) {
    for number in 0..640 {
        in_time(get(store, &number.to_string())).await.unwrap();
    }
}

/// Waits until the clock of the server shows a later second.
fn next_second(server: &RedisServer) {
    let second = || server.cli(&["time"]).lines().next().map(str::to_owned);
    let now = second();
    wait_until(|| second() != now);
}

#[tokio::test]
async fn b36_after_a_restart_or_a_flush_all_partitions_begin_their_epochs_at_once() {
    let persistent = &["--appendonly", "yes", "--appendfsync", "always"][..];
    for settings in [&[][..], persistent] {
        for mut server in RedisServer::each(settings) {
            let (store, other) = (connect(&server.url()).await, connect(&server.url()).await);
            insert(&store, "kept", "value").await.unwrap();
            for is_restart in [true, false] {
                let before = store.complete_since();
                if is_restart {
                    server.kill();
                    server.restart();
                } else {
                    server.cli(&["flushall"]);
                }
                recovered(&store).await;
                let began = store.complete_since();
                assert!(began > before);
                // later calls on other partitions, of this node and of others, find nothing new
                next_second(&server);
                touch_all(&store).await;
                recovered(&other).await;
                touch_all(&other).await;
                assert_eq!([store.complete_since(), other.complete_since()], [began; 2]);
            }
            assert_eq!(get(&store, "kept").await.unwrap(), None);
            let later = connect(&server.url()).await;
            assert_eq!(later.complete_since(), store.complete_since());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b36_behind_a_proxy_that_delays_and_resets_only_a_restart_begins_epochs() {
    for mut server in RedisServer::each(&[]) {
        let proxy = Proxy::start(server.port);
        let store = connect(&proxy.url()).await;
        touch_all(&store).await;
        let before = store.complete_since();
        for fault in [Proxy::close, Proxy::cut_next_reply, |proxy: &Proxy| proxy.delay(Duration::from_millis(5))] {
            fault(&proxy);
            recovered(&store).await;
            next_second(&server);
            touch_all(&store).await;
            assert_eq!(store.complete_since(), before);
        }
        proxy.delay(Duration::ZERO);
        server.kill();
        server.restart();
        recovered(&store).await;
        let began = store.complete_since();
        assert!(began > before);
        proxy.close();
        recovered(&store).await;
        next_second(&server);
        touch_all(&store).await;
        assert_eq!(store.complete_since(), began);
    }
}

#[tokio::test]
async fn b36_a_replaced_primary_of_a_cluster_begins_the_epochs_of_all_its_partitions_at_once() {
    let Some(mut cluster) = RedisCluster::start() else { return };
    let store = connect(&cluster.url()).await;
    touch_all(&store).await;
    let before = store.complete_since();
    cluster.0[2].kill();
    let mut lost = None;
    for number in 0..640 {
        if in_time(get(&store, &number.to_string())).await.is_err() {
            lost = Some(number.to_string());
            break;
        }
    }
    let lost = lost.expect("the primary has some of the keys");
    cluster.0[2].restart();
    let began = Instant::now();
    while in_time(get(&store, &lost)).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not recover");
    }
    let since = store.complete_since();
    assert!(since > before);
    // until each partition is due for its next check
    for _ in 0..6 {
        next_second(&cluster.0[0]);
    }
    touch_all(&store).await;
    assert_eq!(store.complete_since(), since);
}

#[tokio::test]
async fn b37_an_epoch_that_one_process_begins_is_noticed_by_all_and_loses_nothing() {
    let (servers, cluster) = (RedisServer::each(&[]).collect::<Vec<_>>(), RedisCluster::start());
    for url in servers.iter().map(RedisServer::url).chain(cluster.iter().map(RedisCluster::url)) {
        let (one, other) = (connect(&url).await, connect(&url).await);
        insert(&one, "kept", "value").await.unwrap();
        let before = other.complete_since();
        one.begin_epoch().await.unwrap();
        assert!(one.complete_since() > before);
        assert!(get(&other, "kept").await.unwrap().is_some());
        assert_eq!(other.complete_since(), one.complete_since());
        // as often as somebody asks, also within one second
        one.begin_epoch().await.unwrap();
        assert!(one.complete_since() > other.complete_since());
        assert!(get(&other, "kept").await.unwrap().is_some());
        touch_all(&other).await;
        assert_eq!(other.complete_since(), one.complete_since());
    }
}

#[tokio::test]
async fn a_frozen_server_costs_no_more_than_the_deadline() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = connect_impatiently(&server.url()).await;
    server.signal("STOP");
    let began = Instant::now();
    let error = in_time(insert(&store, "row", "value")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(began.elapsed() >= SHORT, "{:?}", began.elapsed());
    let calls = (0..100).map(|number| {
        let store = store.clone();
        tokio::spawn(async move { in_time(get(&store, &number.to_string())).await.unwrap_err().kind() })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap(), StoreErrorKind::Unavailable);
    }
    server.signal("CONT");
    recovered(&store).await;
}

#[tokio::test]
async fn flushed_scripts_are_sent_again() {
    for server in RedisServer::each(&[]) {
        let store = connect(&server.url()).await;
        for round in 0..3 {
            let version = insert(&store, &round.to_string(), "value").await.unwrap();
            server.cli(&["script", "flush"]);
            let swapped = store.swap(&key(round.to_string()), version, record("other")).await;
            assert!(matches!(swapped, Ok(WriteOutcome::Done(_))), "{swapped:?}");
            server.cli(&["script", "flush"]);
            assert_eq!(&store.take(&key(round.to_string())).await.unwrap().unwrap().value[..], b"other");
        }
    }
}

#[tokio::test]
async fn a_flush_begins_an_epoch_for_every_node() {
    for server in RedisServer::each(&[]) {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let version = insert(&one, "row", "value").await.unwrap();
        let before = one.complete_since();
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert_eq!(get(&other, "row").await.unwrap().unwrap().version, version);
        assert_eq!(other.complete_since(), before);
        server.cli(&["flushall"]);
        let began = now();
        // whether the first call reads or writes
        assert_eq!(get(&one, "row").await.unwrap(), None);
        assert!(one.complete_since() > before && one.complete_since() <= began + Duration::from_secs(2));
        insert(&other, "row", "value").await.unwrap();
        assert_eq!(other.complete_since(), one.complete_since());
    }
}

#[tokio::test]
async fn a_server_that_may_evict_entries_is_refused() {
    for server in RedisServer::each(&["--maxmemory-policy", "allkeys-lru"]) {
        let error = Redis::connect(&server.url()).await.unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (StoreErrorKind::Misconfigured, false));
        let cause = error.source().unwrap().to_string();
        assert_eq!(cause, "maxmemory-policy is allkeys-lru and must be noeviction, or live entries may be removed");
        server.cli(&["config", "set", "maxmemory-policy", "noeviction"]);
        connect(&server.url()).await;
    }
}

#[tokio::test]
async fn a_full_server_refuses_writes_and_still_reads_and_removes() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = connect(&server.url()).await;
    insert(&store, "first", "value").await.unwrap();
    server.cli(&["config", "set", "maxmemory", "1"]);
    let error = insert(&store, "second", "value").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Full, "{error:?}");
    assert!(get(&store, "first").await.unwrap().is_some());
    assert!(store.take(&key("first")).await.unwrap().is_some());
    server.cli(&["config", "set", "maxmemory", "0"]);
    insert(&store, "second", "value").await.unwrap();
}

#[tokio::test]
async fn users_and_passwords_are_sent() {
    for server in RedisServer::each(&["--requirepass", "root-secret"]) {
        // all that the store needs
        let rules = "on >app-secret ~tollgate:* +get +set +getrange +mget +del +eval +evalsha +time +info +hello";
        let rules: Vec<&str> = rules.split(' ').collect();
        server.cli(&[&["-a", "root-secret", "acl", "setuser", "app"], &rules[..]].concat());
        let store = Redis::connect_with(config(&server.url()).user("app").password("app-secret")).await.unwrap();
        let version = insert(&store, "row", "value").await.unwrap();
        assert!(matches!(store.swap(&key("row"), version, record("x")).await, Ok(WriteOutcome::Done(_))));
        assert!(store.take(&key("row")).await.unwrap().is_some());
        let in_url = server.url().replace("redis://", "redis://app:app-secret@");
        assert!(Redis::connect(&in_url).await.is_ok());
        // without INFO, a failover that lost revocations would go unnoticed
        server.cli(&["-a", "root-secret", "acl", "setuser", "app", "-info"]);
        assert!(Redis::connect(&in_url).await.is_err());
        for wrong in [config(&server.url()), config(&server.url()).password("wrong"), config(&in_url).password("wrong")]
        {
            let error = Redis::connect_with(wrong).await.unwrap_err();
            assert!(matches!(error.kind(), StoreErrorKind::Misconfigured | StoreErrorKind::Unavailable), "{error:?}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
    }
}

#[tokio::test]
async fn tls_trusts_the_given_authority_only() {
    let Some(certificate) = certificate::Certificate::new("store-redis") else { return };
    let (chain, private) = (certificate.chain.to_str().unwrap(), certificate.key.to_str().unwrap());
    // it has a second port without TLS
    let reserved = ReservedPort::new();
    let port = reserved.number.to_string();
    let settings =
        ["--tls-port", &port, "--tls-cert-file", chain, "--tls-key-file", private, "--tls-auth-clients", "no"];
    let authority = certificate.chain.with_file_name("ca.pem");
    let settings = [&settings[..], &["--tls-ca-cert-file", authority.to_str().unwrap()]].concat();
    let Some(_server) = RedisServer::start(&settings) else { return };
    let url = format!("rediss://localhost:{port}");
    let trusted = config(&url).certificate_authorities(certificate.authority.clone());
    let store = Redis::connect_with(trusted).await.unwrap();
    insert(&store, "row", "value").await.unwrap();
    assert!(get(&store, "row").await.unwrap().is_some());
    let error = Redis::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
    let broken = config(&url).certificate_authorities(*b"no certificate");
    assert!(Redis::connect_with(broken).await.is_err());
}

#[tokio::test]
async fn a_missing_server_is_an_error_at_the_start() {
    let nobody = ReservedPort::new();
    let address = format!("127.0.0.1:{}", nobody.number);
    for url in [format!("redis://{address}"), format!("redis://{address}?cluster=true")] {
        let error = timeout(Duration::from_secs(10), Redis::connect(&url)).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
    }
    assert_eq!(Redis::connect("http://localhost").await.unwrap_err().kind(), StoreErrorKind::Misconfigured);
}

#[tokio::test]
async fn one_failed_primary_of_a_cluster_fails_its_own_keys_only() {
    let Some(mut cluster) = RedisCluster::start() else { return };
    let store = connect(&cluster.url()).await;
    for number in 0..64 {
        insert(&store, &number.to_string(), "value").await.unwrap();
    }
    cluster.0[2].kill();
    let (mut found, mut failed) = (0, 0);
    for number in 0..64 {
        match in_time(get(&store, &number.to_string())).await {
            Ok(Some(_)) => found += 1,
            Ok(None) => panic!("an entry is missing"),
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
                failed += 1;
            }
        }
    }
    assert!(found > 16 && failed > 8, "{found} found, {failed} failed");
    cluster.0[2].restart();
    let began = Instant::now();
    let mut number = 0;
    while number < 64 {
        match in_time(get(&store, &number.to_string())).await {
            Ok(_) => number += 1,
            Err(error) => assert!(began.elapsed() < Duration::from_secs(20), "{error:?}"),
        }
    }
}
