//! API keys that are looked up in a simulated database, over sockets.
#![cfg(feature = "test-util")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

#[path = "support/wire.rs"]
#[allow(dead_code, reason = "each test program uses some of it")]
mod wire;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::{Router, routing::get};
use http::Request;
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet};
use tollgate::{
    EventLog, Head, LimitKey, Limiter, Plan, Plans, ProblemJson, Quota, RateLimit, RateLimitLayer, Tenant,
    TenantSource,
    event::{EventKind, Query},
    limit::{CachedPlans, PlanSource},
    tenant::{CachedKeys, CachedKeysBuilder, HeaderTenant, KeyLookup, PresentedKey, ProvedTenant},
    testing::ManualClock,
};
use wire::{Wire, status};

const SECOND: Duration = Duration::from_secs(1);

/// A table of digests and tenants, which can be slow or down.
#[derive(Clone, Default)]
struct Database(Arc<State>);

#[derive(Default)]
struct State {
    tenants: Mutex<HashMap<[u8; 32], Tenant>>,
    is_down: Mutex<bool>,
    /// Lookups wait for these permits, if there are any rules.
    gate: Mutex<Option<Arc<Semaphore>>>,
    lookups: AtomicUsize,
    running: AtomicUsize,
    most_running: AtomicUsize,
}

/// Counts a lookup that is running, even if it is dropped.
struct Running<'a>(&'a State);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

impl Database {
    fn set(&self, key: &str, tenant: &str) {
        let digest = *tollgate::SecretDigest::of_secret(key).as_bytes();
        self.0.tenants.lock().unwrap().insert(digest, Tenant::parse(tenant).unwrap());
    }

    fn remove(&self, key: &str) {
        self.0.tenants.lock().unwrap().remove(tollgate::SecretDigest::of_secret(key).as_bytes());
    }

    fn is_down(&self, is_down: bool) {
        *self.0.is_down.lock().unwrap() = is_down;
    }

    /// Makes lookups wait for permits of the returned semaphore.
    fn make_slow(&self) -> Arc<Semaphore> {
        let permits = Arc::new(Semaphore::new(0));
        *self.0.gate.lock().unwrap() = Some(Arc::clone(&permits));
        permits
    }

    fn lookups(&self) -> usize {
        self.0.lookups.load(SeqCst)
    }

    async fn until_running(&self, lookups: usize) {
        while self.0.running.load(SeqCst) != lookups {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl KeyLookup for Database {
    type Error = &'static str;

    async fn tenant(&self, key: PresentedKey) -> Result<Option<Tenant>, &'static str> {
        let state = &*self.0;
        state.lookups.fetch_add(1, SeqCst);
        let running = state.running.fetch_add(1, SeqCst) + 1;
        state.most_running.fetch_max(running, SeqCst);
        let _running = Running(state);
        let gate = state.gate.lock().unwrap().clone();
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
        if *state.is_down.lock().unwrap() {
            return Err("the database is down");
        }
        Ok(state.tenants.lock().unwrap().get(key.digest().as_bytes()).cloned())
    }
}

struct World {
    database: Database,
    clock: ManualClock,
    log: EventLog,
    address: SocketAddr,
}

async fn hello(limit: RateLimit) -> String {
    format!("{}{}", limit.key(), if limit.tenant().is_none() { ", claimed" } else { "" })
}

impl World {
    async fn new(settings: impl Fn(CachedKeysBuilder) -> CachedKeysBuilder) -> Self {
        Self::with(settings, |keys| Arc::new(keys)).await
    }

    async fn with(
        settings: impl Fn(CachedKeysBuilder) -> CachedKeysBuilder,
        source: impl FnOnce(CachedKeys) -> Arc<dyn TenantSource>,
    ) -> Self {
        let (database, clock, log) = (Database::default(), ManualClock::new(), EventLog::new());
        database.set("key-of-acme", "acme");
        let keys = CachedKeys::builder("x-api-key", database.clone()).clock(clock.clone());
        let plans = Plans::new(Quota::per_hour(1000).unwrap());
        let limiter =
            Limiter::builder(plans).clock(clock.clone()).events(log.clone()).plan_source(CachedPlans::new(Gold));
        let layer = RateLimitLayer::new(source(settings(keys).build().unwrap()), limiter.build().unwrap());
        let app = Router::new().route("/", get(hello)).layer(layer.respond_with(ProblemJson));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { database, clock, log, address }
    }

    async fn ask(&self, key: &str) -> String {
        ask(self.address, &format!("x-api-key: {key}")).await
    }

    /// Returns the status with this key.
    async fn status(&self, key: &str) -> u16 {
        status(&self.ask(key).await)
    }

    fn failures(&self) -> u64 {
        let events = self.log.read_events(&Query::new().kind(EventKind::TenantLookupFailed)).events;
        events.iter().map(|event| event.count).sum()
    }
}

/// The plan of acme, whose limit tells it from the default.
struct Gold;

impl PlanSource for Gold {
    type Error = &'static str;

    async fn plan(&self, tenant: &LimitKey) -> Result<Option<Plan>, &'static str> {
        Ok((tenant.as_str() == "acme").then(|| Quota::per_hour(7000).unwrap().into()))
    }
}

async fn ask(address: SocketAddr, headers: &str) -> String {
    Wire::to(address).await.ask(&format!("GET / HTTP/1.1\nconnection: close\n{headers}")).await
}

fn body(answer: &str) -> &str {
    answer.split_once("\n\n").unwrap().1
}

#[tokio::test]
async fn a_key_is_looked_up_once_and_the_plan_of_its_tenant_applies() {
    let world = World::new(|keys| keys).await;
    for left in ["6999", "6998"] {
        let answer = world.ask("key-of-acme").await;
        let expected = format!(
            "HTTP/1.1 200 OK
connection: close
content-length: 4
content-type: text/plain; charset=utf-8
x-ratelimit-limit: 7000
x-ratelimit-remaining: {left}
x-ratelimit-reset: "
        );
        assert!(answer.starts_with(&expected), "{answer}");
        assert_eq!(body(&answer), "acme");
    }
    assert_eq!(world.database.lookups(), 1);
}

#[tokio::test]
async fn an_unknown_key_is_refused_and_works_soon_after_it_is_created() {
    let world = World::new(|keys| keys).await;
    let answer = world.ask("key-of-globex").await;
    let expected = "HTTP/1.1 401 Unauthorized
connection: close
content-length: 141
content-type: application/problem+json
www-authenticate: ApiKey

{\"type\":\"about:blank\",\"title\":\"Unauthorized\",\"status\":401,\"detail\":\"the API key in the header x-api-key is unknown\",\"kind\":\"unauthenticated\"}";
    assert_eq!(answer, expected);
    world.database.set("key-of-globex", "globex");
    world.clock.advance(10 * SECOND - Duration::from_nanos(1));
    assert_eq!((world.status("key-of-globex").await, world.database.lookups()), (401, 1));
    world.clock.advance(Duration::from_nanos(1));
    assert_eq!((world.status("key-of-globex").await, world.database.lookups()), (200, 2));

    // these name no key that could be looked up
    for (headers, expected) in [
        ("accept: */*", 401),
        ("x-api-key:", 400),
        (&format!("x-api-key: {}", "x".repeat(513)), 400),
        ("x-api-key: key-of-acme\nx-api-key: key-of-acme", 400),
    ] {
        assert_eq!(status(&ask(world.address, headers).await), expected, "{headers}");
    }
    assert_eq!((world.database.lookups(), world.failures()), (2, 0));
}

#[tokio::test]
async fn a_deleted_key_ends_with_its_time_to_live_and_a_busy_one_is_renewed_before() {
    let world = World::new(|keys| keys.time_to_live(40 * SECOND)).await;
    assert_eq!(world.status("key-of-acme").await, 200);
    world.clock.advance(30 * SECOND - Duration::from_nanos(1));
    assert_eq!((world.status("key-of-acme").await, world.database.lookups()), (200, 1));
    world.clock.advance(Duration::from_nanos(1));
    assert_eq!((world.status("key-of-acme").await, world.database.lookups()), (200, 2));
    world.database.remove("key-of-acme");
    world.clock.advance(30 * SECOND - Duration::from_nanos(1));
    assert_eq!((world.status("key-of-acme").await, world.database.lookups()), (200, 2));
    world.clock.advance(Duration::from_nanos(1));
    assert_eq!((world.status("key-of-acme").await, world.database.lookups()), (401, 3));

    // one request renews it, and others don't wait
    world.database.set("key-of-globex", "globex");
    assert_eq!(world.status("key-of-globex").await, 200);
    world.clock.advance(30 * SECOND);
    let permits = world.database.make_slow();
    let renewal = tokio::spawn(ask(world.address, "x-api-key: key-of-globex"));
    world.database.until_running(1).await;
    assert_eq!(world.status("key-of-globex").await, 200);
    permits.add_permits(1);
    assert_eq!((status(&renewal.await.unwrap()), world.database.lookups()), (200, 5));
}

#[tokio::test]
async fn while_the_database_is_down_only_known_keys_are_accepted_to_the_end_of_their_time() {
    let world = World::new(|keys| keys.time_to_live(40 * SECOND)).await;
    assert_eq!(world.status("key-of-acme").await, 200);
    world.database.is_down(true);
    let answer = world.ask("key-of-globex").await;
    let expected = "HTTP/1.1 503 Service Unavailable
connection: close
content-length: 132
content-type: application/problem+json

{\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,\"detail\":\"API keys cannot be checked for now\",\
\"kind\":\"unavailable\"}";
    assert_eq!(answer, expected);
    // it is not looked up at each request
    assert_eq!((world.status("key-of-globex").await, world.database.lookups(), world.failures()), (503, 2, 2));
    world.clock.advance(30 * SECOND);
    assert_eq!((world.status("key-of-acme").await, world.database.lookups()), (200, 3));
    assert_eq!((world.status("key-of-acme").await, world.database.lookups()), (200, 3));
    world.clock.advance(10 * SECOND - Duration::from_nanos(1));
    assert_eq!((world.status("key-of-acme").await, world.database.lookups()), (200, 4));
    world.clock.advance(Duration::from_nanos(1));
    assert_eq!(world.status("key-of-acme").await, 503);
    world.database.is_down(false);
    world.clock.advance(SECOND);
    assert_eq!((world.status("key-of-acme").await, world.status("key-of-globex").await), (200, 401));
}

#[tokio::test]
async fn a_slow_lookup_fails_at_the_deadline() {
    let world = World::new(|keys| keys.deadline(Duration::from_millis(20))).await;
    world.database.make_slow();
    assert_eq!((world.status("key-of-acme").await, world.failures()), (503, 1));
    world.database.until_running(0).await;
}

#[tokio::test]
async fn requests_with_one_key_make_one_lookup_even_if_the_first_client_hangs_up() {
    let world = World::new(|keys| keys).await;
    let permits = world.database.make_slow();
    let mut first = Wire::to(world.address).await;
    first.send("GET / HTTP/1.1\r\nhost: localhost\r\nx-api-key: key-of-acme\r\n\r\n").await;
    world.database.until_running(1).await;
    let mut others = JoinSet::new();
    (0..20).for_each(|_| _ = others.spawn(ask(world.address, "x-api-key: key-of-acme")));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(world.database.lookups(), 1);
    drop(first);
    tokio::time::sleep(Duration::from_millis(50)).await;
    permits.add_permits(1);
    let answers = others.join_all().await;
    assert!(answers.iter().all(|answer| status(answer) == 200));
    assert_eq!((world.database.lookups(), world.database.0.most_running.load(SeqCst)), (1, 1));
    // nobody waits for the answer about a made-up key, and it is kept all the same
    let mut alone = Wire::to(world.address).await;
    alone.send("GET / HTTP/1.1\r\nhost: localhost\r\nx-api-key: made-up\r\n\r\n").await;
    world.database.until_running(1).await;
    drop(alone);
    tokio::time::sleep(Duration::from_millis(50)).await;
    permits.add_permits(1);
    world.database.until_running(0).await;
    assert_eq!((world.status("made-up").await, world.database.lookups()), (401, 2));
}

fn request() -> Request<()> {
    Request::builder().header("x-api-key", "key-of-acme").body(()).unwrap()
}

#[tokio::test]
async fn requests_that_wait_for_a_lookup_that_panics_look_up_again() {
    let (gate, lookups) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let (waits, counted) = (Arc::clone(&gate), Arc::clone(&lookups));
    let keys = CachedKeys::new("x-api-key", move |_| {
        let (gate, is_first) = (Arc::clone(&waits), counted.fetch_add(1, SeqCst) == 0);
        async move {
            gate.acquire().await.unwrap().forget();
            assert!(!is_first, "the first lookup panics");
            Tenant::parse("acme").map(Some)
        }
    });
    let keys = keys.unwrap();
    let ask = || tokio::spawn(keys.look_up(Head::of_request(&request())));
    let first = ask();
    while lookups.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let others: Vec<_> = (0..5).map(|_| ask()).collect();
    gate.add_permits(2);
    assert!(first.await.unwrap().is_err());
    for other in others {
        assert_eq!(other.await.unwrap().unwrap().as_bytes(), b"acme");
    }
    assert_eq!(lookups.load(SeqCst), 2);
}

#[test]
fn a_caller_waits_no_longer_than_the_deadline_if_the_runtime_does_not_run() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _inside = runtime.enter();
    let keys = CachedKeys::builder("x-api-key", |_| async { Tenant::parse("acme").map(Some) });
    let keys = keys.deadline(Duration::from_millis(20)).build().unwrap();
    let mut lookup = keys.look_up(Head::of_request(&request()));
    let answer = (0..10_000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(1));
        match lookup.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    });
    assert!(answer.expect("the caller still waits").is_err());
}

#[tokio::test]
async fn a_key_that_was_never_seen_waits_for_its_turn_behind_invented_ones() {
    let world = World::new(|keys| keys.max_lookups(2).deadline(20 * SECOND)).await;
    let permits = world.database.make_slow();
    let mut flood = JoinSet::new();
    for number in 0..10 {
        flood.spawn(ask(world.address, &*Box::leak(format!("x-api-key: made-up-{number}").into_boxed_str())));
    }
    world.database.until_running(1).await;
    let mut customers = JoinSet::new();
    for _ in 0..3 {
        customers.spawn(ask(world.address, "x-api-key: key-of-acme"));
    }
    permits.add_permits(100);
    assert!(customers.join_all().await.iter().all(|answer| status(answer) == 200));
    assert!(flood.join_all().await.iter().all(|answer| status(answer) == 401));
    assert_eq!((world.database.lookups(), world.database.0.most_running.load(SeqCst)), (11, 1));

    // and no longer than for a deadline
    let world = World::new(|keys| keys.max_lookups(2).deadline(Duration::from_millis(50))).await;
    let _permits = world.database.make_slow();
    let first = tokio::spawn(ask(world.address, "x-api-key: made-up"));
    world.database.until_running(1).await;
    assert_eq!((world.status("key-of-acme").await, status(&first.await.unwrap())), (503, 503));
}

#[tokio::test]
async fn a_flood_of_unknown_keys_takes_half_of_the_lookups_and_displaces_no_customer() {
    let world = World::new(|keys| keys.max_lookups(8).max_keys(20)).await;
    let customers: Vec<String> = (0..10).map(|number| format!("key-{number}")).collect();
    for key in &customers {
        world.database.set(key, key);
        assert_eq!(world.status(key).await, 200);
    }
    // more answers than there is room for
    for number in 0..100 {
        assert_eq!(world.status(&format!("made-up-{number}")).await, 401);
    }
    assert_eq!(world.database.lookups(), 110);
    for key in &customers {
        assert_eq!(world.status(key).await, 200);
    }
    assert_eq!(world.database.lookups(), 110, "the customers are still known");
    // there is room for ten unknown keys, and none is looked up while its answer is kept
    for number in 0..10 {
        assert_eq!(world.status(&format!("made-up-{number}")).await, 401);
    }
    assert_eq!(world.database.lookups(), 110);
    // new customers displace them
    for number in 10..20 {
        world.database.set(&format!("key-{number}"), "acme");
        assert_eq!(world.status(&format!("key-{number}")).await, 200);
    }
    assert_eq!(world.database.lookups(), 120);
    assert_eq!((world.status("key-10").await, world.status("key-19").await, world.database.lookups()), (200, 200, 120));

    let permits = world.database.make_slow();
    world.clock.advance(60 * SECOND);
    let mut flood = JoinSet::new();
    for number in 0..50 {
        flood.spawn(ask(world.address, &*Box::leak(format!("x-api-key: new-{number}").into_boxed_str())));
    }
    world.database.until_running(4).await;
    let customer = tokio::spawn(ask(world.address, "x-api-key: key-3"));
    world.database.until_running(5).await;
    permits.add_permits(100);
    assert_eq!(status(&customer.await.unwrap()), 200);
    let answers = flood.join_all().await;
    assert!(answers.iter().all(|answer| status(answer) == 401), "each has waited for its turn");
    assert!(world.database.0.most_running.load(SeqCst) <= 5);
}

#[tokio::test]
async fn a_key_proves_its_tenant_in_a_chain_too() {
    let by_name = || HeaderTenant::new("x-tenant").unwrap();
    let first = World::with(|keys| keys, |keys| Arc::new(keys.or(by_name()))).await;
    let last = World::with(|keys| keys, |keys| Arc::new(ProvedTenant::new(by_name().or(Arc::new(keys))))).await;
    for (world, both, name) in [(&first, "acme", "initech, claimed"), (&last, "initech", "initech")] {
        assert_eq!(body(&world.ask("key-of-acme").await), "acme");
        assert_eq!(body(&ask(world.address, "x-tenant: initech").await), name);
        assert_eq!(body(&ask(world.address, "x-tenant: initech\nx-api-key: key-of-acme").await), both);
        // a wrong key is never served as another tenant
        let answer = ask(world.address, "x-api-key: wrong").await;
        assert_eq!(status(&answer), 401, "{answer}");
    }
    assert_eq!(status(&ask(first.address, "x-tenant: initech\nx-api-key: wrong").await), 401);
}

#[test]
fn invalid_settings_are_reported() {
    let keys = || CachedKeys::builder("x-api-key", Database::default());
    let zero = Duration::ZERO;
    for (builder, setting) in [
        (CachedKeys::builder("x api key", Database::default()), "API key header"),
        (keys().max_keys(0), "keys max_keys"),
        (keys().max_lookups(0), "keys max_lookups"),
        (keys().time_to_live(zero), "keys time_to_live"),
        (keys().unknown_time_to_live(zero), "keys unknown_time_to_live"),
        (keys().deadline(zero), "keys deadline"),
        (keys().retry_after(zero), "keys retry_after"),
    ] {
        assert_eq!(builder.build().unwrap_err().setting(), setting);
    }
    assert!(keys().build().is_ok());
}
