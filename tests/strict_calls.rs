//! Four processes hold units and slots of 12 tenants on one Redis or Valkey, and are killed and paused meanwhile. Their
//! logs are merged. The units and slots that surely counted at a time are never more than the limit.

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

use std::{collections::HashMap, env, sync::Arc, time::Duration};

use support::{
    machine::{MachineClock, Random},
    process::{Process, end_with_parent, say},
    redis_server::RedisServer,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};
use tollgate::{
    Limiter, Plan, Plans, Quota, Tenant,
    clock::Clock,
    limit::{RefusalReason, SharedLimiter},
    store::RedisConfig,
};

const NODES: u64 = 4;
const TENANTS: u64 = 12;
/// How long the nodes run.
const TIME: Duration = Duration::from_secs(8);
const WINDOW: Duration = Duration::from_millis(300);
/// The server tells time in microseconds.
const TOLERANCE: u64 = 100_000;

fn slots(tenant: u64) -> u64 {
    3 + tenant % 3
}

fn units(tenant: u64) -> u64 {
    6 + tenant * 3
}

fn plan(tenant: u64) -> Plan {
    let rate = Quota::new(units(tenant) as u32, WINDOW).unwrap();
    Plan::new([Quota::concurrent(slots(tenant) as u32).unwrap(), rate]).unwrap()
}

async fn connect(url: &str) -> SharedLimiter {
    let config = RedisConfig::new(url).unwrap().deadline(Duration::from_millis(200)).unwrap();
    let plans = Plans::new(Quota::per_second(1).unwrap());
    (0..TENANTS).for_each(|number| plans.set(tenant(number), plan(number)));
    // on a busy machine, the first answer may come too late
    for _ in 0..10 {
        if let Ok(limiter) = Limiter::builder(plans.clone()).redis(config.clone()).connect().await {
            return limiter;
        }
    }
    panic!("the server can't be used");
}

fn tenant(number: u64) -> Tenant {
    Tenant::parse(format!("tenant-{number}")).unwrap()
}

// ---- a node

#[tokio::test]
#[ignore = "a node, which the other tests start as a process"]
async fn node() {
    let Ok(url) = env::var("NODE_REDIS") else { return };
    end_with_parent();
    let seed: u64 = env::var("NODE_SEED").unwrap().parse().unwrap();
    let (limiter, clock) = (connect(&url).await, Arc::new(MachineClock::new()));
    let mut tasks = JoinSet::new();
    for task in 1..=6 {
        let (limiter, clock, mut random) = (limiter.clone(), Arc::clone(&clock), Random(seed * 8 + task));
        tasks.spawn(async move {
            for call in 0_u64.. {
                let (number, estimate) = (random.below(TENANTS), 1 + random.below(4));
                // some expire before they end
                let lifetime = Duration::from_millis([20, 100, 5_000, 5_000][random.below(4) as usize]);
                let asked = clock.now().as_nanos();
                let Ok(hold) = limiter.hold(&tenant(number), estimate as u32, estimate as u32, lifetime).await else {
                    sleep(Duration::from_millis(1)).await;
                    continue;
                };
                let (answered, expires) = (clock.now().as_nanos(), asked + lifetime.as_nanos() as u64);
                say(&format!("open {task} {call} {number} {estimate} {answered} {expires} ."));
                sleep(Duration::from_millis(random.below(60))).await;
                let used = random.below(estimate + 1);
                say(&format!("end {task} {call} {used} {} .", clock.now().as_nanos()));
                match used {
                    // what is dropped has used its estimate
                    0 => drop(hold),
                    used => hold.commit(used as u32),
                }
            }
        });
    }
    tasks.join_all().await;
}

// ---- the log

/// A hold, at times when it surely counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    estimate: u64,
    opened: u64,
    expires: u64,
    /// The units that it used, and when it ended. Unknown if its process was killed.
    end: Option<(u64, u64)>,
    /// A time at which the process was alive.
    alive: u64,
}

impl Seen {
    /// From when until when the slot was taken.
    fn slot(&self) -> (u64, u64, u64) {
        (self.opened, self.end.map_or(self.alive, |(_, ended)| ended), 1)
    }

    /// From when until when how many units counted: the estimate while it was open, and what was charged for one window more.
    fn units(&self) -> [(u64, u64, u64); 2] {
        // a reply can arrive after the estimate has expired
        let ended = self.end.map_or(self.expires, |(_, ended)| ended.min(self.expires));
        let charged = match self.end {
            Some((used, _)) if used > 0 => used,
            _ => self.estimate,
        };
        [
            (self.opened, ended, self.estimate),
            (ended.max(self.opened), (ended + WINDOW.as_nanos() as u64).saturating_sub(TOLERANCE), charged),
        ]
    }
}

/// Returns the most that counted at the same time.
fn most_at_once(spans: impl Iterator<Item = (u64, u64, u64)>) -> u64 {
    let mut changes: Vec<(u64, i64)> = Vec::new();
    for (from, until, count) in spans.filter(|(from, until, _)| from < until) {
        changes.extend([(from, count as i64), (until, -(count as i64))]);
    }
    // what ends makes room for what begins then
    changes.sort_unstable();
    let sums = changes.iter().scan(0, |sum, (_, change)| {
        *sum += change;
        Some(*sum)
    });
    sums.max().unwrap_or(0) as u64
}

/// The calls of one process.
#[derive(Default)]
struct Log(HashMap<(u64, u64), (u64, Seen)>);

impl Log {
    /// Reads a line, which is cut off if its process was killed.
    fn read(&mut self, line: &str) {
        let Some((line, _)) = line.split_once(" .") else { return };
        let (kind, numbers) = line.split_once(' ').unwrap();
        let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        let id = (numbers[0], numbers[1]);
        if kind == "open" {
            let seen = Seen { estimate: numbers[3], opened: numbers[4], expires: numbers[5], end: None, alive: 0 };
            self.0.insert(id, (numbers[2], seen));
        } else if let Some((_, seen)) = self.0.get_mut(&id) {
            seen.end = Some((numbers[2], numbers[3]));
        }
    }

    /// Returns all calls with their tenants, after the process was alive at this time.
    fn finish(self, alive: u64) -> impl Iterator<Item = (u64, Seen)> {
        self.0.into_values().map(move |(tenant, seen)| (tenant, Seen { alive, ..seen }))
    }
}

/// Runs a node until the time is over, and kills and pauses it at random times. Returns its log, and how often it was killed and
/// paused.
async fn troubled_node(redis: String, number: u64) -> (Vec<(u64, Seen)>, [u32; 2]) {
    let clock = MachineClock::new();
    let (end, mut random, mut log, mut troubles) = (Instant::now() + TIME, Random(77 + number), Vec::new(), [0; 2]);
    while Instant::now() < end {
        let seed = (1 + number * 1000 + random.below(1000)).to_string();
        let mut node = Process::start("node", &[("NODE_REDIS", &redis), ("NODE_SEED", &seed)]);
        let (mut own, mut is_alive) = (Log::default(), true);
        while is_alive {
            let until = (Instant::now() + Duration::from_millis(300 + random.below(900))).min(end);
            while let Ok(line) = timeout_at(until, node.line()).await {
                own.read(&line.expect("a node runs until it is killed"));
            }
            if until < end && random.below(2) == 0 {
                node.signal("STOP");
                sleep(Duration::from_millis(250)).await;
                node.signal("CONT");
                troubles[1] += 1;
            } else {
                let alive = clock.now().as_nanos();
                node.kill().await;
                while let Some(line) = node.line().await {
                    own.read(&line);
                }
                troubles[0] += 1;
                log.extend(std::mem::take(&mut own).finish(alive));
                is_alive = false;
            }
        }
    }
    (log, troubles)
}

async fn hammer(server: &RedisServer) {
    // on a busy machine, little may happen in the time
    for _ in 0..3 {
        if much_happened(server).await {
            return;
        }
    }
    panic!("too little happened");
}

/// Checks the limits for a while, and returns whether they were put to the test.
async fn much_happened(server: &RedisServer) -> bool {
    let mut nodes = JoinSet::new();
    for number in 0..NODES {
        nodes.spawn(troubled_node(server.url(), number));
    }
    let mut log = vec![Vec::new(); TENANTS as usize];
    let (mut killed, mut paused) = (0, 0);
    for (own, [kills, pauses]) in nodes.join_all().await {
        (killed, paused) = (killed + kills, paused + pauses);
        own.into_iter().for_each(|(tenant, seen)| log[tenant as usize].push(seen));
    }
    let (mut full_rates, mut full_slots, mut calls, mut unknown) = (0, 0, 0, 0);
    for (own, tenant) in log.iter().zip(0..) {
        let open = most_at_once(own.iter().map(Seen::slot));
        assert!(open <= slots(tenant), "{open} of {} calls of tenant {tenant} were open", slots(tenant));
        let counted = most_at_once(own.iter().flat_map(Seen::units));
        assert!(counted <= units(tenant), "{counted} of {} units of tenant {tenant} counted", units(tenant));
        (full_rates, full_slots) =
            (full_rates + u32::from(counted * 10 >= units(tenant) * 9), full_slots + u32::from(open == slots(tenant)));
        calls += own.len();
        unknown += own.iter().filter(|seen| seen.end.is_none()).count();
    }
    println!(
        "{calls} calls, {unknown} without an end, {full_rates} tenants at their rate, {full_slots} with all slots, {killed} kills, {paused} \
         pauses"
    );
    killed >= 8 && paused >= 4 && full_rates >= 3 && full_slots >= 3 && calls > 500 && unknown > 0
}

#[test]
fn too_much_at_once_is_found() {
    assert_eq!(most_at_once([(0, 10, 2), (10, 20, 3), (15, 16, 1)].into_iter()), 4);
    assert_eq!(most_at_once([(0, 11, 2), (10, 20, 3), (15, 15, 9)].into_iter()), 5);
    let mut log = Log::default();
    for line in ["open 1 2 7 4 100 5000 .", "open 1 3 7 2 200 5000 .", "end 1 2 3 900 .", "end 1 3 1 95"] {
        log.read(line);
    }
    let mut calls: Vec<(u64, Seen)> = log.finish(1_000).collect();
    calls.sort_by_key(|(_, seen)| seen.opened);
    assert_eq!(
        calls.iter().map(|(tenant, seen)| (*tenant, seen.slot())).collect::<Vec<_>>(),
        [(7, (100, 900, 1)), (7, (200, 1000, 1))]
    );
    let [open, charged] = calls[0].1.units();
    assert_eq!((open, charged.0, charged.2), ((100, 900, 4), 900, 3));
    let [open, charged] = calls[1].1.units();
    assert_eq!((open, charged.0, charged.2), ((200, 5000, 2), 5000, 2));
}

#[tokio::test]
async fn nothing_exceeds_a_limit_while_nodes_are_killed_and_paused() {
    for server in RedisServer::each(&[]) {
        hammer(&server).await;
    }
}

// ---- a node that is paused for longer than its slots last

const PAUSED_TENANT: u64 = 0;

/// Opens two of three calls, and tries to open another one all the time.
#[tokio::test]
#[ignore = "a node, which another test starts as a process"]
async fn holder() {
    let Ok(url) = env::var("NODE_REDIS") else { return };
    end_with_parent();
    let limiter = connect(&url).await;
    let hold = || async { limiter.hold(&tenant(PAUSED_TENANT), 1, 1, Duration::from_secs(3600)).await };
    let mut calls = Vec::new();
    while calls.len() < 2 {
        calls.extend(hold().await);
    }
    say("ready");
    loop {
        let line = match hold().await {
            Ok(hold) => {
                hold.commit(0);
                "admitted"
            }
            Err(decision) if decision.refusal_reason() == Some(RefusalReason::Spent) => "refused",
            Err(_) => "failed",
        };
        say(line);
        sleep(Duration::from_millis(20)).await;
    }
}

/// Opens calls until none is admitted for a moment.
async fn take_slots(limiter: &SharedLimiter, calls: &mut Vec<tollgate::limit::Hold>) {
    while let Ok(call) = limiter.hold(&tenant(PAUSED_TENANT), 1, 1, Duration::from_secs(3600)).await {
        calls.push(call);
    }
}

async fn pause(server: &RedisServer) {
    let (limiter, mut calls) = (connect(&server.url()).await, Vec::new());
    let mut holder = Process::start("holder", &[("NODE_REDIS", &server.url())]);
    assert_eq!(holder.line().await.unwrap(), "ready");
    // its attempts take the third slot for a moment
    while calls.is_empty() {
        take_slots(&limiter, &mut calls).await;
    }
    assert_eq!(calls.len(), 1);
    holder.signal("STOP");
    let paused_at = Instant::now();
    while calls.len() < 3 {
        assert!(paused_at.elapsed() < Duration::from_secs(20), "the slots of a paused node have not ended");
        sleep(Duration::from_millis(50)).await;
        take_slots(&limiter, &mut calls).await;
    }
    // it has renewed them within three seconds
    assert!(paused_at.elapsed() > Duration::from_secs(4), "its slots ended after {:?}", paused_at.elapsed());
    // what it said before
    while timeout(Duration::from_millis(200), holder.line()).await.is_ok() {}
    holder.signal("CONT");
    for _ in 0..50 {
        let line = holder.line().await.unwrap();
        assert_ne!(line, "admitted", "no slot is free");
    }
    // now all five count: it gets none before three have ended
    calls.truncate(1);
    sleep(Duration::from_millis(200)).await;
    take_slots(&limiter, &mut calls).await;
    assert_eq!(calls.len(), 1, "its calls are counted again");
    calls.clear();
    while holder.line().await.unwrap() != "admitted" {}

    // the slots of a killed node end as well
    holder.kill().await;
    let killed_at = Instant::now();
    while calls.len() < 3 {
        assert!(killed_at.elapsed() < Duration::from_secs(20), "the slots of a dead node have not ended");
        sleep(Duration::from_millis(50)).await;
        take_slots(&limiter, &mut calls).await;
    }
}

#[tokio::test]
async fn slots_of_a_paused_node_end_and_are_counted_again_when_it_returns() {
    let servers: Vec<RedisServer> = RedisServer::each(&[]).collect();
    let pauses = servers.iter().map(pause);
    for pause in pauses.map(Box::pin).collect::<Vec<_>>() {
        pause.await;
    }
}
