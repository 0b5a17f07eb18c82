//! Two nodes on one Redis server: somebody who alternates between them gets no more than at one node.

use std::time::Duration;

use tollgate::{
    EventLog, Limiter, Plans, Quota,
    auth::{AbuseLimits, AuthServiceBuilder},
    clock::{Clock, SystemClock},
    event::{EventKind, Query},
    limit::{Fallback, SharedLimiter},
    store::{AnyStore, Memory, Redis, RedisConfig},
    testing::ManualClock,
};

use crate::{
    redis_server::RedisServer,
    world::{ADA, ADA_PASSWORD, ADA_PHONE, Answer, Browser, GRACE, NOBODY, World, parameters, query, with},
};

fn per_minute(limit: u32) -> Quota {
    Quota::per_minute(limit).unwrap()
}

fn config(server: &RedisServer, prefix: &str) -> RedisConfig {
    // patient, because the machine may be busy
    let config = RedisConfig::new(&server.url()).unwrap().deadline(Duration::from_secs(2)).unwrap();
    config.key_prefix(prefix).unwrap()
}

async fn limiter(config: RedisConfig) -> SharedLimiter {
    Limiter::redis(config, Plans::new(per_minute(1_000_000))).connect().await.unwrap()
}

/// Creates this many nodes with one store and one budget.
async fn nodes(
    number: usize,
    server: &RedisServer,
    prefix: &str,
    more: impl Fn(AuthServiceBuilder) -> AuthServiceBuilder,
) -> Vec<World> {
    let clock = ManualClock::new();
    // the server drops rows by its own time
    clock.set_wall(SystemClock::new().read().1);
    let mut worlds = Vec::new();
    for _ in 0..number {
        let config = config(server, prefix);
        let store = AnyStore::from(Redis::connect_with(config.clone()).await.unwrap());
        let limiter = limiter(config).await;
        worlds.push(World::on(store, clock.clone(), |service| more(service).limiter(limiter)).await);
    }
    worlds
}

/// Sends the same requests to one node, and in turn to two. Returns the statuses, which must be the same.
async fn in_turn(
    name: &str,
    more: impl Fn(AuthServiceBuilder) -> AuthServiceBuilder,
    ask: impl AsyncFn(&World, usize) -> Answer,
    number: usize,
) -> Option<Vec<u16>> {
    let server = RedisServer::start(&[])?;
    let mut all = Vec::new();
    for worlds in [nodes(1, &server, &format!("{name}-1"), &more).await, nodes(2, &server, name, &more).await] {
        let mut statuses = Vec::new();
        for turn in 0..number {
            statuses.push(ask(&worlds[turn % worlds.len()], turn).await.status.as_u16());
        }
        all.push(statuses);
    }
    let (one, two) = (all.remove(0), all.remove(0));
    assert_eq!(one, two, "{name}");
    Some(two)
}

/// Begins a login of another address, which does not count here.
async fn begun(world: &World, identifier: &str) -> (Browser, String) {
    let mut browser = world.browser();
    browser.address = [192, 0, 2, 77].into();
    let id = browser.start("web", identifier).await;
    browser.address = [192, 0, 2, 1].into();
    (browser, id)
}

async fn authorize(world: &World) -> Answer {
    world.browser().authorize("web").await
}

#[tokio::test]
async fn requests_of_an_address_are_counted_by_both() {
    let more =
        |service: AuthServiceBuilder| service.abuse_limits(AbuseLimits::new().requests_per_address(per_minute(5)));
    let Some(statuses) = in_turn("requests", more, async |world, _| authorize(world).await, 7).await else { return };
    assert_eq!(statuses, [302, 302, 302, 302, 302, 429, 429]);
}

#[tokio::test]
async fn failures_of_an_address_are_counted_by_both() {
    let guess = async |world: &World, turn: usize| {
        // another name each time, so that only the address is limited
        let name = format!("name-{turn}@example.com");
        let (mut browser, id) = begun(world, &name).await;
        browser.password("web", &id, &name, "a wrong guess").await
    };
    let Some(statuses) = in_turn("failures", |service| service, guess, 64).await else { return };
    assert_eq!((&statuses[..60], &statuses[60..]), (&[401; 60][..], &[429; 4][..]));
}

#[tokio::test]
async fn an_address_with_too_many_failures_at_one_node_starts_no_login_at_another() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let worlds = nodes(2, &server, "start", |service| service).await;
    for turn in 0..60 {
        let name = format!("name-{turn}@example.com");
        let (mut browser, id) = begun(&worlds[0], &name).await;
        assert_eq!(browser.password("web", &id, &name, "a wrong guess").await.status, 401);
    }
    let start = with(parameters("web"), &[("identifier", ADA)]);
    let refused = worlds[1].browser().post("/authentication/start", &start).await;
    assert_eq!((refused.status.as_u16(), refused.error().as_str()), (429, "too_many_attempts"));
    // a right password is not counted
    let (mut browser, id) = begun(&worlds[1], ADA).await;
    browser.address = [192, 0, 2, 2].into();
    assert_eq!(browser.password("web", &id, "ada", ADA_PASSWORD).await.status, 200);
}

#[tokio::test]
async fn messages_to_an_address_are_counted_by_both() {
    let more =
        |service: AuthServiceBuilder| service.abuse_limits(AbuseLimits::new().messages_per_address(per_minute(3)));
    let ask = async |world: &World, turn: usize| {
        let (mut browser, id) = begun(world, GRACE).await;
        browser.ask("web", &id, "sms", &format!("+1555555020{turn}")).await
    };
    let Some(statuses) = in_turn("messages", more, ask, 5).await else { return };
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
}

#[tokio::test]
async fn bad_requests_of_an_address_are_counted_by_both_and_good_ones_are_not() {
    let more =
        |service: AuthServiceBuilder| service.abuse_limits(AbuseLimits::new().unverified_per_address(per_minute(10)));
    let ask = async |world: &World, turn: usize| match turn {
        0..30 => authorize(world).await,
        _ => world.browser().get(&format!("/authorize?{}", query("unknown"))).await,
    };
    let Some(statuses) = in_turn("unverified", more, ask, 42).await else { return };
    assert_eq!((&statuses[..30], &statuses[40..]), (&[302; 30][..], &[429; 2][..]));
    assert!(statuses[30..40].iter().all(|status| *status == 400), "{statuses:?}");
}

#[tokio::test]
async fn failures_of_a_name_are_counted_by_both() {
    for name in ["ada", NOBODY] {
        let guess = async |world: &World, _| {
            let (mut browser, id) = begun(world, ADA).await;
            browser.password("web", &id, name, "a wrong guess").await
        };
        let Some(statuses) = in_turn("name", |service| service, guess, 7).await else { return };
        assert_eq!(statuses, [401, 401, 401, 401, 401, 429, 429]);
    }
}

#[tokio::test]
async fn codes_for_a_name_and_to_a_receiver_are_counted_by_both() {
    let soon = async |world: &World, _| {
        let (mut browser, id) = begun(world, ADA).await;
        browser.ask("web", &id, "sms", ADA_PHONE).await
    };
    let Some(statuses) = in_turn("soon", |service| service, soon, 3).await else { return };
    assert_eq!(statuses, [200, 429, 429]);

    let Some(server) = RedisServer::start(&[]) else { return };
    let worlds = nodes(2, &server, "receiver", |service| service).await;
    for turn in 0..14 {
        // two names of one account, six and a half times each in an hour
        let (mut browser, id) = begun(&worlds[turn % 2], if turn / 2 % 2 == 0 { "ada" } else { ADA }).await;
        assert_eq!(browser.ask("web", &id, "sms", ADA_PHONE).await.status, 200);
        worlds[0].advance(40);
        worlds[turn % 2].settle().await;
    }
    let sent = worlds.iter().map(|world| world.outbox.messages().len());
    assert_eq!(sent.sum::<usize>(), 10);
}

/// Returns how many commands of clients the server has run.
fn calls(server: &RedisServer) -> u64 {
    let stats = server.cli(&["info", "commandstats"]);
    let of = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.and_then(|line| line.split(',').next()).map_or(0, |number| number.parse().unwrap())
    };
    ["evalsha", "eval", "mget", "del"].into_iter().map(of).sum()
}

/// Waits until refunds in the background are done.
async fn quiet(server: &RedisServer) -> u64 {
    loop {
        let now = calls(server);
        tokio::time::sleep(Duration::from_millis(500)).await;
        if calls(server) == now {
            return now;
        }
    }
}

/// Waits until this many commands have been run since, and returns how many there are a moment later.
async fn since(server: &RedisServer, before: u64, expected: u64) -> u64 {
    let began = tokio::time::Instant::now();
    while calls(server) < before + expected && began.elapsed() < Duration::from_secs(20) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    calls(server) - before
}

#[tokio::test]
async fn a_request_makes_as_many_calls_as_documented_and_each_limit_has_its_keys() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let limiter = limiter(config(&server, "calls")).await;
    let world = World::with(Memory::new(), |service| {
        service.abuse_limits(AbuseLimits::new().requests_per_address(per_minute(100))).limiter(limiter)
    })
    .await;
    for who in ["ada", NOBODY] {
        let (mut browser, id) = begun(&world, ADA).await;
        let before = quiet(&server).await;
        // the address, its share, the tenant, and a refund
        assert_eq!(authorize(&world).await.status, 302);
        assert_eq!(since(&server, before, 4).await, 4);
        // and its failures
        assert_eq!(browser.password("web", &id, who, "a wrong guess").await.status, 401);
        assert_eq!(since(&server, before, 4 + 5).await, 4 + 5, "{who}");
        // and its messages
        assert_eq!(browser.ask("web", &id, "email", if who == "ada" { ADA } else { NOBODY }).await.status, 200);
        assert_eq!(since(&server, before, 4 + 5 + 5).await, 4 + 5 + 5, "{who}");
    }
    let keys = server.cli(&["keys", "*"]);
    let mut keys: Vec<&str> = keys.lines().filter(|key| !key.contains("2.77")).collect();
    keys.sort_unstable();
    let address = |space: &str| format!("calls:address-{space}:{{ip:192.0.2.1}}");
    let expected = ["failures", "messages", "requests", "unverified"].map(address);
    assert_eq!(keys[..4], expected);
    assert_eq!(keys[4..], ["calls:limit:{acme}"]);
    assert!(server.cli(&["pttl", keys[0]]).trim().parse::<u32>().unwrap() <= 61_000);
}

#[tokio::test]
async fn without_the_server_each_node_limits_addresses_on_its_own_and_one_event_tells() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let log = EventLog::new();
    let connect = async || {
        let config = config(&server, "frozen").deadline(Duration::from_millis(100)).unwrap();
        let limiter = Limiter::builder(Plans::new(per_minute(1_000_000))).events(log.clone()).redis(config);
        limiter.fallback(Fallback::Open).connect().await.unwrap()
    };
    let store = AnyStore::from(Memory::new());
    let mut worlds = Vec::new();
    for _ in 0..2 {
        let (limiter, clock) = (connect().await, ManualClock::new());
        let more = |service: AuthServiceBuilder| {
            service.abuse_limits(AbuseLimits::new().requests_per_address(per_minute(3))).limiter(limiter)
        };
        worlds.push(World::on(store.clone(), clock, more).await);
    }
    assert_eq!(authorize(&worlds[0]).await.status, 302);
    server.signal("STOP");
    // the first node remembers the request that it has admitted before
    for (world, admitted) in worlds.iter().zip([2, 3]) {
        let mut statuses = Vec::new();
        for _ in 0..5 {
            let answer = tokio::time::timeout(Duration::from_secs(5), authorize(world)).await.unwrap();
            statuses.push(answer.status.as_u16());
        }
        assert_eq!(statuses, [vec![302; admitted], vec![429; 5 - admitted]].concat());
    }
    let began = log.read_events(&Query::new().kind(EventKind::LimiterFallbackBegan)).events;
    assert_eq!(began.iter().map(|event| event.count).sum::<u64>(), 2, "one of each node: {began:?}");
    server.signal("CONT");
}
