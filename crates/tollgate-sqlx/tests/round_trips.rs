//! How often a call waits for PostgreSQL, counted on the wire, and what happens to connections that the server has ended.

#![cfg(all(unix, feature = "postgres", feature = "users"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "helpers of tests")]

mod support;

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use support::Cluster;
use tokio::{runtime::Runtime, time::Instant};
use tollgate::{
    Identifier, NewUser, Tenant, UserId, Users,
    clock::UnixTime,
    store::{AnyStore, Expected, Key, Operation, Record, StoreError, WriteOutcome},
    user::ClaimsRequest,
};
use tollgate_sqlx::{Database, SqlStore, SqlUsers};

const NOW: UnixTime = UnixTime::from_secs(1_800_000_000);

fn key(id: &str) -> Key {
    Key::new("rows", None, id).unwrap()
}

fn record() -> Record {
    Record::new("x", NOW, NOW + Duration::from_secs(600)).unwrap()
}

/// Forwards connections to a server, and counts how often a client begins to send after the server has.
struct Proxy {
    port: u16,
    trips: Arc<AtomicU32>,
    /// How often the network was lost. Connections from before forward nothing any more, and stay open.
    losses: Arc<AtomicU32>,
}

impl Proxy {
    fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (trips, losses) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (counted, lost) = (Arc::clone(&trips), Arc::clone(&losses));
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", server)).unwrap());
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let is_asked = Arc::new(AtomicBool::new(false));
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (asked, counted) = (Arc::clone(&is_asked), Arc::clone(&counted));
                let (losses, begun) = (Arc::clone(&lost), lost.load(SeqCst));
                let is_silent = move || losses.load(SeqCst) != begun;
                let is_lost = is_silent.clone();
                thread::spawn(move || {
                    forward(from, to, is_lost, || {
                        if !asked.swap(true, SeqCst) {
                            counted.fetch_add(1, SeqCst);
                        }
                    });
                });
                thread::spawn(move || forward(server, client, is_silent, || is_asked.store(false, SeqCst)));
            }
        });
        Self { port, trips, losses }
    }

    fn url(&self) -> String {
        format!("postgres://app@127.0.0.1:{}/postgres", self.port)
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, is_lost: impl Fn() -> bool, mut seen: impl FnMut()) {
    let mut bytes = [0; 65536];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if is_lost() {
            continue;
        }
        seen();
        if to.write_all(bytes.get(..count).unwrap()).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn a_read_and_a_batch_wait_for_one_round_trip() {
    let Some(cluster) = Cluster::start(&["fsync=off"]) else { return };
    let proxy = Proxy::before(cluster.port);
    // one thread, so that nothing happens in the background between the calls
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let database = runtime.block_on(async {
        let database = Database::connect(&proxy.url()).await.unwrap();
        database.migrate().await.unwrap();
        database
    });
    let (store, users, acme) =
        (AnyStore::from(SqlStore::new(&database)), SqlUsers::new(&database), Tenant::parse("acme").unwrap());
    let name = Identifier::parse("ada").unwrap();
    runtime.block_on(users.create(&acme, NewUser::new(UserId::parse("u-1").unwrap(), name.clone()))).unwrap();
    let mut waited = Vec::new();
    macro_rules! count {
        ($name:literal, $call:expr) => {
            // the pool has all connections back
            let pool = database.postgres_pool().unwrap();
            runtime.block_on(async {
                while u32::try_from(pool.num_idle()).unwrap() < pool.size() {
                    tokio::task::yield_now().await;
                }
            });
            let before = proxy.trips.load(SeqCst);
            let _ = runtime.block_on($call).unwrap();
            waited.push(($name, proxy.trips.load(SeqCst) - before));
        };
    }
    for number in 0..8 {
        let round = format!("{number}");
        count!("a read", store.get(&key(&round)).wait());
        let write = |id: &str| Operation::Write(key(id), Expected::Absent, record());
        let batch = || vec![Operation::Read(key("a")), write(&round), write(&format!("{round} too"))];
        count!("a batch", store.run(batch()));
        count!("a write", store.insert(&key(&format!("{round} alone")), record()));
        count!("a removal", store.take(&key(&round)));
        count!("an account", users.find(&acme, &name));
        let account = runtime.block_on(users.find(&acme, &name)).unwrap().unwrap();
        let request = ClaimsRequest::new("web");
        count!("claims", users.claims(&acme, &account, &request));
        if number == 3 {
            // the server has prepared each statement once for each connection: the first write has swept with a second one
            waited.clear();
        }
    }
    // on a busy machine a connection may have been idle for a second, which is one more
    let least = |name| waited.iter().filter(|(own, _)| *own == name).map(|(_, trips)| *trips).min();
    assert!(waited.iter().all(|(name, _)| least(*name) == Some(1)), "{waited:?}");
}

struct Opened {
    cluster: Cluster,
    runtime: Runtime,
    store: AnyStore,
}

impl Opened {
    fn start() -> Option<Self> {
        let cluster = Cluster::start(&["fsync=off"])?;
        let runtime = Runtime::new().unwrap();
        let store = runtime.block_on(async {
            let database = Database::connect(&cluster.url()).await.unwrap();
            database.migrate().await.unwrap();
            AnyStore::from(SqlStore::new(&database))
        });
        Some(Self { cluster, runtime, store })
    }

    fn read(&self) -> Result<bool, StoreError> {
        self.runtime.block_on(self.store.get(&key("first")).wait()).map(|found| found.is_some())
    }

    fn write(&self, id: &str) -> Result<bool, StoreError> {
        let outcome = self.runtime.block_on(self.store.insert(&key(id), record()))?;
        Ok(matches!(outcome, WriteOutcome::Done(_)))
    }

    /// Opens several connections, and ends all of them at the server.
    fn end_connections(&self) {
        self.runtime.block_on(async {
            let reads = (0..50).map(|_| tokio::spawn(self.store.get(&key("first")).wait()));
            for read in reads.collect::<Vec<_>>() {
                read.await.unwrap().unwrap();
            }
        });
        let end =
            "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity where application_name = 'tollgate'";
        assert_ne!(self.cluster.sql(end), "0");
    }
}

#[test]
fn reads_do_not_notice_that_the_server_has_ended_all_connections() {
    let Some(opened) = Opened::start() else { return };
    assert!(opened.write("first").unwrap());
    for _ in 0..5 {
        opened.end_connections();
        for _ in 0..20 {
            assert!(opened.read().unwrap());
        }
    }
}

#[test]
fn at_most_one_write_fails_after_the_server_has_ended_all_connections() {
    let Some(opened) = Opened::start() else { return };
    opened.write("first").unwrap();
    for round in 0..5 {
        opened.end_connections();
        let write = |number: u32| opened.write(&format!("{round} {number}"));
        let results: Vec<_> = (0..20).map(write).collect();
        assert!(results.iter().filter(|result| result.is_err()).count() <= 1, "{results:?}");
        assert!(results.iter().flatten().all(|&is_done| is_done), "no write is repeated");
    }
}

#[test]
fn a_connection_that_was_idle_is_tested_before_a_write() {
    let Some(opened) = Opened::start() else { return };
    opened.write("first").unwrap();
    opened.end_connections();
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        thread::yield_now();
    }
    assert!(opened.write("second").unwrap());
}

/// Nothing arrives any more on the connections that are open, and nothing ends them.
#[test]
fn a_network_that_goes_silent_takes_no_place_in_the_pool() {
    let Some(cluster) = Cluster::start(&["fsync=off"]) else { return };
    let proxy = Proxy::before(cluster.port);
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let database = Database::connect(&proxy.url()).await.unwrap();
        database.migrate().await.unwrap();
        let database = database.deadline(Duration::from_secs(1));
        let (store, pool) = (AnyStore::from(SqlStore::new(&database)), database.postgres_pool().unwrap());
        let reads = || (0..20).map(|_| tokio::spawn(store.get(&key("first")).wait())).collect::<Vec<_>>();
        let all_are_back = async |end: Instant| {
            while pool.num_idle() < usize::try_from(pool.size()).unwrap() {
                assert!(Instant::now() < end, "connections stay lost");
                tokio::task::yield_now().await;
            }
        };
        while pool.size() < 10 {
            for read in reads() {
                read.await.unwrap().unwrap();
            }
        }
        all_are_back(Instant::now() + Duration::from_secs(20)).await;
        proxy.losses.fetch_add(1, SeqCst);
        let began = Instant::now();
        for read in reads() {
            let _ = read.await.unwrap();
        }
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        let end = began + Duration::from_secs(20);
        while store.get(&key("first")).wait().await.is_err() {
            assert!(Instant::now() < end, "it does not recover");
        }
        // all places are free again
        all_are_back(end).await;
        let mut all = Vec::new();
        for _ in 0..10 {
            all.push(pool.acquire().await.unwrap());
        }
    });
}
