//! Everything that can happen to a Redis server, and what a limiter and a store on it do meanwhile: what calls get, how long
//! they take, when it is over, and what is left behind.
//!
//! Each test prints one row of the table in `docs/scale.md`.

#![cfg(unix)]
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
    panic,
    sync::{
        Once,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use support::{
    proxy::Proxy,
    redis_server::{RedisServer, wait_until},
};
use tokio::{
    runtime::Handle,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tollgate::{
    Limiter, Plans, Quota, Tenant,
    clock::{Clock, SystemClock},
    limit::{Fallback, RefusalReason, SharedLimiter},
    store::{Key, Record, Redis, RedisConfig, Store, StoreErrorKind, WriteOutcome},
};

const LIMITER_DEADLINE: Duration = Duration::from_millis(200);
const STORE_DEADLINE: Duration = Duration::from_millis(400);
/// The patience of a busy machine, on top of a deadline.
const PATIENCE: Duration = Duration::from_secs(3);
/// The margin above the deadline for most calls.
const MARGIN: Duration = Duration::from_millis(300);
/// The interval of calls.
const PACE: Duration = Duration::from_millis(10);

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// A server behind a proxy, and its clients.
struct World {
    server: RedisServer,
    proxy: Proxy,
    clients: Clients,
    /// The connections of the server and the tasks of the runtime without a fault.
    at_rest: (usize, usize),
}

#[derive(Clone)]
struct Clients {
    limiter: SharedLimiter,
    store: Redis,
}

/// How calls ended. The limiter's fallback refuses all requests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ended {
    Served,
    Failed(StoreErrorKind),
}

use Ended::{Failed, Served};

const UNAVAILABLE: Ended = Failed(StoreErrorKind::Unavailable);

/// The calls of one kind, while the fault lasts.
#[derive(Default)]
struct Calls(Vec<(Ended, Duration)>);

impl Calls {
    fn sorted(&self) -> Vec<Duration> {
        let mut times: Vec<_> = self.0.iter().map(|(_, time)| *time).collect();
        times.sort();
        times
    }

    /// Checks that none ended much later than the deadline.
    fn in_time(&self, name: &str, deadline: Duration) {
        let times = self.sorted();
        let (most, longest) = (times[times.len() * 9 / 10], times[times.len() - 1]);
        assert!(most <= deadline + MARGIN && longest <= deadline + PATIENCE, "{name}: {most:?}, {longest:?}");
    }

    /// Checks that all ended like this, and none much later than the deadline.
    fn check(&self, name: &str, deadline: Duration, expected: Ended) {
        self.in_time(name, deadline);
        let other = self.0.iter().find(|(ended, _)| *ended != expected);
        assert!(other.is_none(), "{name}: {other:?} among {}", self.row());
    }

    fn row(&self) -> String {
        let times = self.sorted();
        if times.is_empty() {
            return "none".to_owned();
        }
        let served = self.0.iter().filter(|(ended, _)| *ended == Served).count();
        let (median, longest) = (times[times.len() / 2].as_micros(), times[times.len() - 1].as_micros());
        format!("{served} of {} served, {median} µs median, {longest} µs longest", times.len())
    }
}

/// The calls during a fault.
#[derive(Default)]
struct During {
    checks: Calls,
    reads: Calls,
    writes: Calls,
}

impl During {
    fn add(&mut self, [check, read, write]: [(Ended, Duration); 3]) {
        self.checks.0.push(check);
        self.reads.0.push(read);
        self.writes.0.push(write);
    }
}

fn key(id: impl AsRef<[u8]>) -> Key {
    Key::new("rows", None, id).unwrap()
}

async fn measured(call: impl Future<Output = Ended>) -> (Ended, Duration) {
    let began = Instant::now();
    let ended = timeout(Duration::from_secs(10), call).await.expect("a call hangs");
    (ended, began.elapsed())
}

impl Clients {
    /// Connects with the deadlines times this number.
    async fn connect(url: &str, leased: bool, times: u32) -> Option<Self> {
        let config = |deadline: Duration| RedisConfig::new(url).unwrap().deadline(deadline * times).unwrap();
        let quotas = Plans::new(Quota::new(1_000_000, Duration::from_secs(3600)).unwrap());
        let limiter = Limiter::redis(config(LIMITER_DEADLINE), quotas).fallback(Fallback::Closed);
        let limiter = if leased { limiter.leased() } else { limiter }.connect().await.ok()?;
        Some(Self { limiter, store: Redis::connect_with(config(STORE_DEADLINE)).await.ok()? })
    }

    async fn check(&self) -> Ended {
        match self.limiter.check(&Tenant::parse("acme").unwrap(), 1).await.refusal_reason() {
            None => Served,
            Some(RefusalReason::Unavailable) => UNAVAILABLE,
            other => panic!("{other:?}"),
        }
    }

    async fn read(&self) -> Ended {
        self.store.get(&key("first")).wait().await.map_or_else(|error| Failed(error.kind()), |_| Served)
    }

    async fn write(&self, id: &str) -> Ended {
        let now = SystemClock::new().read().1;
        let record = Record::new("value", now, now + Duration::from_secs(600)).unwrap();
        match self.store.insert(&key(id), record).await {
            Ok(WriteOutcome::Done(_) | WriteOutcome::Lost(_)) => Served,
            Err(error) => Failed(error.kind()),
        }
    }
}

impl World {
    async fn start() -> Option<Self> {
        Self::with(false, 1).await
    }

    /// For faults during which calls get their answers. On a busy machine, some take longer than most.
    async fn patient() -> Option<Self> {
        Self::with(false, 10).await
    }

    async fn with(leased: bool, times: u32) -> Option<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let usual = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                PANICS.fetch_add(1, SeqCst);
                usual(info);
            }));
        });
        let server = RedisServer::start(&[])?;
        let proxy = Proxy::start(server.port);
        // the proxy may need a moment to listen
        let clients = loop {
            if let Some(clients) = Clients::connect(&proxy.url(), leased, times).await {
                break clients;
            }
        };
        let mut own = Self { server, proxy, clients, at_rest: (0, 0) };
        let Self { clients, .. } = &own;
        let began = Instant::now();
        while [clients.check().await, clients.read().await, clients.write("first").await] != [Served; 3] {
            assert!(began.elapsed() < Duration::from_secs(20), "it does not start");
        }
        // the attempts before have ended
        wait_until(|| own.connections() == 2);
        own.at_rest = (2, tasks());
        Some(own)
    }

    /// Returns the number of connections that the server has, without that of the command itself.
    fn connections(&self) -> usize {
        self.server.cli(&["client", "list"]).lines().filter(|line| !line.trim().is_empty()).count() - 1
    }

    /// Sends calls for this long: first many at once, and then one of each kind after the other.
    async fn during(&self, time: Duration) -> During {
        let (began, mut all, mut at_once) = (Instant::now(), During::default(), JoinSet::new());
        for number in 0..20 {
            let clients = self.clients.clone();
            at_once.spawn(async move { calls(&clients, &number.to_string()).await });
        }
        while let Some(ended) = at_once.join_next().await {
            all.add(ended.unwrap());
        }
        while began.elapsed() < time {
            all.add(calls(&self.clients, "other").await);
            sleep(PACE).await;
        }
        all
    }

    /// Waits until all calls are served again, and nothing is left behind. Prints a row of the table.
    async fn recovers(&self, name: &str, during: &During) {
        let (began, mut checks, mut store) = (Instant::now(), None, None);
        while checks.is_none() || store.is_none() {
            assert!(began.elapsed() < Duration::from_secs(20), "{name}: it does not recover: {checks:?}, {store:?}");
            let [check, read, write] = calls(&self.clients, "other").await.map(|(ended, _)| ended);
            if check == Served {
                checks = checks.or_else(|| Some(began.elapsed()));
            }
            if [read, write] == [Served; 2] {
                store = store.or_else(|| Some(began.elapsed()));
            }
            sleep(PACE).await;
        }
        println!(
            "{name}:\n  checks {}\n  reads {}\n  writes {}\n  again after {checks:?} (limiter), {store:?} (store)",
            during.checks.row(),
            during.reads.row(),
            during.writes.row()
        );
        let mut late = 0;
        for _ in 0..20 {
            let failed = calls(&self.clients, "other").await.into_iter().filter(|(ended, _)| *ended != Served);
            // the machine may pause for longer than a deadline
            for (ended, time) in failed {
                late += 1;
                assert!(time >= LIMITER_DEADLINE && late <= 6, "{name}: it recovers for a moment only: {ended:?}");
            }
        }
        // the task of an earlier fault may have ended since
        let (connections, most_tasks) = self.at_rest;
        wait_until(|| self.connections() == connections && tasks() <= most_tasks);
        assert_eq!(PANICS.load(SeqCst), 0, "{name}");
    }

    /// Checks what calls get for this long, and that all is well afterwards.
    async fn endures(
        mut self,
        name: &str,
        time: Duration,
        begin: impl FnOnce(&mut Self),
        expected: [Ended; 3],
        end: impl FnOnce(&mut Self),
    ) {
        begin(&mut self);
        let during = self.during(time).await;
        during.checks.check(name, LIMITER_DEADLINE, expected[0]);
        if expected[0] == UNAVAILABLE {
            // those at once, three failures, and then one check a second
            let waited = during.checks.0.iter().filter(|(_, time)| *time >= LIMITER_DEADLINE).count();
            assert!(waited <= 25 + time.as_secs() as usize, "{name}: {waited} checks waited");
        }
        during.reads.check(name, STORE_DEADLINE, expected[1]);
        during.writes.check(name, STORE_DEADLINE, expected[2]);
        end(&mut self);
        self.recovers(name, &during).await;
    }
}

/// Sends a check, a read and a write at the same time.
async fn calls(clients: &Clients, id: &str) -> [(Ended, Duration); 3] {
    tokio::join!(measured(clients.check()), measured(clients.read()), measured(clients.write(id))).into()
}

/// Returns the number of tasks of this test, without itself.
fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

const BRIEF: Duration = Duration::from_millis(1500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_restarted() {
    let Some(world) = World::start().await else { return };
    world.endures("killed", BRIEF, |world| world.server.kill(), [UNAVAILABLE; 3], |world| world.server.restart()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_for_five_seconds() {
    let Some(world) = World::start().await else { return };
    let (stop, go_on) =
        (|world: &mut World| world.server.signal("STOP"), |world: &mut World| world.server.signal("CONT"));
    world.endures("paused", Duration::from_secs(5), stop, [UNAVAILABLE; 3], go_on).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusing_connections() {
    let Some(world) = World::start().await else { return };
    let (refuse, accept) =
        (|world: &mut World| world.proxy.refuse(true), |world: &mut World| world.proxy.refuse(false));
    world.endures("refusing", BRIEF, refuse, [UNAVAILABLE; 3], accept).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed() {
    for what in ["script", "all"] {
        let Some(world) = World::patient().await else { return };
        let flush = |world: &mut World| {
            let command = if what == "script" { ["script", "flush"] } else { ["flushall", "sync"] };
            world.server.cli(&command);
        };
        let brief = Duration::from_millis(300);
        world.endures(&format!("flushed: {what}"), brief, flush, [Served; 3], |_| ()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_replica() {
    let Some(world) = World::patient().await else { return };
    let demote = |world: &mut World| drop(world.server.cli(&["replicaof", "127.0.0.1", "1"]));
    let promote = |world: &mut World| drop(world.server.cli(&["replicaof", "no", "one"]));
    world.endures("read-only", BRIEF, demote, [UNAVAILABLE, Served, UNAVAILABLE], promote).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory() {
    let Some(world) = World::patient().await else { return };
    let fill = |world: &mut World| drop(world.server.cli(&["config", "set", "maxmemory", "1"]));
    let empty = |world: &mut World| drop(world.server.cli(&["config", "set", "maxmemory", "0"]));
    world.endures("out of memory", BRIEF, fill, [UNAVAILABLE, Served, Failed(StoreErrorKind::Full)], empty).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow() {
    for (delay, expected) in [(20, Served), (600, UNAVAILABLE)] {
        let world = if expected == Served { World::patient().await } else { World::start().await };
        let Some(world) = world else { return };
        let delay_by = |millis| move |world: &mut World| world.proxy.delay(Duration::from_millis(millis));
        world.endures(&format!("slow by {delay} ms"), BRIEF, delay_by(delay), [expected; 3], delay_by(0)).await;
    }
}

/// A connection that leads nowhere is replaced while few calls, or many, wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open() {
    for few in [true, false] {
        let Some(world) = World::start().await else { return };
        world.proxy.strand();
        let during = if few { During::default() } else { world.during(Duration::ZERO).await };
        if !few {
            during.checks.check("half-open", LIMITER_DEADLINE, UNAVAILABLE);
            during.reads.check("half-open", STORE_DEADLINE, UNAVAILABLE);
            during.writes.check("half-open", STORE_DEADLINE, UNAVAILABLE);
        }
        world.recovers(&format!("half-open, few calls: {few}"), &during).await;
    }
}

/// The units in hand are used first. Requests that wait for a call of another wait no longer than it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_leases() {
    type Change = fn(&mut World);
    let faults: [(&str, Change, Change); 3] = [
        ("leases, killed", |world| world.server.kill(), |world| world.server.restart()),
        ("leases, paused", |world| world.server.signal("STOP"), |world| world.server.signal("CONT")),
        (
            "leases, slow",
            |world| world.proxy.delay(Duration::from_millis(600)),
            |world| world.proxy.delay(Duration::ZERO),
        ),
    ];
    for (name, begin, end) in faults {
        let Some(mut world) = World::with(true, 1).await else { return };
        let (mut served, began) = (0, Instant::now());
        while served < 50 {
            assert!(began.elapsed() < Duration::from_secs(20), "{name}: {served} checks are served");
            served += u32::from(world.clients.check().await == Served);
        }
        begin(&mut world);
        // on a busy machine, the units in hand are too old by now
        let has_units = began.elapsed() < Duration::from_millis(500);
        let during = world.during(BRIEF).await;
        during.checks.in_time(name, LIMITER_DEADLINE);
        // until the lease is used up
        let ended: Vec<_> = during.checks.0.iter().map(|(ended, _)| *ended).collect();
        assert!(
            (!has_units || ended.contains(&Served)) && ended.last() == Some(&UNAVAILABLE),
            "{name}: {}",
            during.checks.row()
        );
        end(&mut world);
        world.recovers(name, &during).await;
    }
}
