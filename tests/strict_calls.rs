//! Four processes hold units and slots of 12 tenants on one Redis or Valkey, and are killed and paused meanwhile. Their
//! logs are merged. The units and slots that surely counted at a time are never more than the limit, except for what open calls
//! used beyond their estimates.

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
    limit::{Hold, RefusalReason, SharedLimiter},
    store::RedisConfig,
};

const NODES: u64 = 4;
const TENANTS: u64 = 12;
/// How long the nodes run. The slots of the first that are killed end meanwhile.
const TIME: Duration = Duration::from_secs(26);
const WINDOW: Duration = Duration::from_secs(3);
/// The clocks of the server and of the processes may differ by this much in a window. The server tells time in microseconds.
const TOLERANCE: u64 = 2_000_000;
/// How long the server counts a slot that is not renewed.
const SLOT: Duration = Duration::from_secs(10);
/// The server counts the slots of a node for longer than this after it was last seen alive, in nanoseconds.
const SURELY_COUNTED: u64 = 4_000_000_000;
/// A node that is seen alive as often as this sends the ends of its calls within [`SENT`].
const ALIVE: u64 = 300_000_000;
const SENT: u64 = 1_000_000_000;

fn slots(tenant: u64) -> u64 {
    3 + tenant % 3
}

fn units(tenant: u64) -> u64 {
    18 + tenant * 3
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
    for task in 1..=7 {
        let (limiter, clock, mut random) = (limiter.clone(), Arc::clone(&clock), Random(seed * 8 + task));
        tasks.spawn(async move {
            for call in 0_u64.. {
                let (number, estimate) = (random.below(TENANTS), 1 + random.below(4));
                let at_most = estimate + random.below(4);
                // some expire before they end
                let lifetime = Duration::from_millis([20, 100, 5_000, 5_000][random.below(4) as usize]);
                let asked = clock.now().as_nanos();
                let Ok(hold) = limiter.hold(&tenant(number), estimate as u32, at_most as u32, lifetime).await else {
                    sleep(Duration::from_millis(5)).await;
                    continue;
                };
                let (answered, expires) = (clock.now().as_nanos(), asked + lifetime.as_nanos() as u64);
                say(&format!("open {task} {call} {number} {estimate} {asked} {answered} {expires} ."));
                // one of them needs its slot renewed
                let millis = if task == 7 { 10_500 } else { random.below(300) };
                sleep(Duration::from_millis(millis)).await;
                let used = random.below(at_most + 1);
                say(&format!("end {task} {call} {used} {} .", clock.now().as_nanos()));
                match used {
                    // what is dropped has used its estimate
                    0 => drop(hold),
                    used => hold.commit(used as u32),
                }
            }
        });
    }
    // shows that it is alive, and that the server answers
    tasks.spawn(async move {
        loop {
            if limiter.peek(&tenant(0)).await.is_some() {
                say(&format!("alive {} .", clock.now().as_nanos()));
            }
            sleep(Duration::from_millis(50)).await;
        }
    });
    tasks.join_all().await;
}

// ---- the log

/// A hold, at times when it surely counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    estimate: u64,
    /// The server has admitted it after the first and before the second time.
    asked: u64,
    opened: u64,
    expires: u64,
    /// The units that it used, and when it ended. Unknown if its process was killed.
    end: Option<(u64, u64)>,
    /// Until when its slot was surely taken.
    slot: u64,
    /// Whether the server surely knew within [`SENT`] what it used.
    is_sent: bool,
}

impl Seen {
    /// From when until when the slot was taken.
    fn slot(&self) -> (u64, u64, u64) {
        (self.opened, self.slot, 1)
    }

    /// From when until when the slot was taken, if slots of killed nodes never ended.
    fn endless_slot(&self) -> (u64, u64, u64) {
        (self.opened, self.end.map_or(u64::MAX, |(_, ended)| ended), 1)
    }

    /// From when until when how many units counted: the estimate while it was open, and what was charged of it for one window more.
    fn units(&self) -> [(u64, u64, u64); 2] {
        // a reply can arrive after the estimate has expired
        let ended = self.end.map_or(self.expires, |(_, ended)| ended.min(self.expires));
        let charged = match self.end {
            Some((used, _)) if used > 0 => used.min(self.estimate),
            _ => self.estimate,
        };
        [(self.opened, ended, self.estimate), (ended.max(self.opened), one_window_after(ended), charged)]
    }

    /// From when until when it surely counted how many units beyond the estimate.
    fn debt(&self) -> Option<(u64, u64, u64)> {
        let (used, ended) = self.end.filter(|_| self.is_sent)?;
        (used > self.estimate).then(|| (ended + SENT, one_window_after(ended), used - self.estimate))
    }
}

fn one_window_after(time: u64) -> u64 {
    time + WINDOW.as_nanos() as u64 - TOLERANCE
}

/// Returns the most units that counted when a call was admitted, with its own. Debts must be paid by then, so all that exceeds a
/// limit at other times was used by calls that were open at the last admission, beyond their estimates.
fn most_when_admitted(calls: &[Seen]) -> u64 {
    let spans: Vec<_> = calls.iter().flat_map(|seen| seen.units().into_iter().chain(seen.debt())).collect();
    let counted = |new: &Seen| {
        let throughout = spans.iter().filter(|(from, until, _)| *from <= new.asked && new.opened < *until);
        new.estimate + throughout.map(|(.., units)| units).sum::<u64>()
    };
    calls.iter().map(counted).max().unwrap_or(0)
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

/// The records of one process.
#[derive(Default)]
struct Log {
    /// The calls, with their tenants.
    calls: HashMap<(u64, u64), (u64, Seen)>,
    /// When it was alive.
    alive: Vec<u64>,
}

impl Log {
    /// Reads a line, which is cut off if its process was killed.
    fn read(&mut self, line: &str) {
        let Some((line, _)) = line.split_once(" .") else { return };
        let (kind, numbers) = line.split_once(' ').unwrap();
        let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        match (kind, numbers[..].first_chunk()) {
            ("open", Some([task, call])) => {
                let [tenant, estimate, asked, opened, expires] = numbers[2..].try_into().unwrap();
                let seen = Seen { estimate, asked, opened, expires, end: None, slot: 0, is_sent: false };
                self.calls.insert((*task, *call), (tenant, seen));
            }
            ("end", Some([task, call])) => {
                self.calls.get_mut(&(*task, *call)).unwrap().1.end = Some((numbers[2], numbers[3]));
            }
            _ => self.alive.push(numbers[0]),
        }
    }

    /// Returns until when it was alive after this time, without a pause as long as this.
    fn alive_until(&self, from: u64, pause: u64) -> u64 {
        let later = self.alive.iter().copied().filter(|alive| *alive > from);
        let mut before = from;
        later.take_while(|alive| *alive - std::mem::replace(&mut before, *alive) < pause).last().unwrap_or(from)
    }

    /// Returns all calls with their tenants.
    fn finish(self) -> Vec<(u64, Seen)> {
        let finished = self.calls.values().map(|(tenant, seen)| {
            // a node that is paused for long does not renew its slots
            let alive = self.alive_until(seen.opened, SURELY_COUNTED);
            let (slot, is_sent) = match seen.end {
                Some((_, ended)) => {
                    (ended.min(alive), alive >= ended && self.alive_until(ended, ALIVE) >= ended + SENT)
                }
                None => (alive, false),
            };
            (*tenant, Seen { slot, is_sent, ..*seen })
        });
        finished.collect()
    }
}

/// How often nodes were killed, paused for a moment, and paused for longer than they trust the server.
#[derive(Clone, Copy, Default, Debug)]
struct Troubles {
    killed: u32,
    paused: u32,
    paused_for_long: u32,
}

/// Runs a node until the time is over, and kills or pauses it at random times. Returns its log, and how often it was killed and
/// paused.
async fn troubled_node(redis: String, number: u64) -> (Vec<(u64, Seen)>, Troubles) {
    let (end, mut random, mut log) = (Instant::now() + TIME, Random(77 + number), Vec::new());
    let mut troubles = Troubles::default();
    while Instant::now() < end {
        let seed = (1 + number * 1000 + random.below(1000)).to_string();
        let mut node = Process::start("node", &[("NODE_REDIS", &redis), ("NODE_SEED", &seed)]);
        let (mut own, mut is_alive) = (Log::default(), true);
        while is_alive {
            let (runs, pause) = match number {
                // a node trusts the server for eight seconds, and its slots last for ten
                0 => (13_000, Some(9_000)),
                1 => (2_000, Some(11_000)),
                _ => (500 + random.below(3_000), (random.below(3) == 0).then_some(250)),
            };
            let until = (Instant::now() + Duration::from_millis(runs)).min(end);
            while let Ok(line) = timeout_at(until, node.line()).await {
                own.read(&line.expect("a node runs until it is killed"));
            }
            match pause.map(Duration::from_millis) {
                Some(pause) if until + pause < end => {
                    node.signal("STOP");
                    sleep(pause).await;
                    node.signal("CONT");
                    *(if pause < SLOT / 2 { &mut troubles.paused } else { &mut troubles.paused_for_long }) += 1;
                }
                Some(_) if until < end => {}
                _ => {
                    node.kill().await;
                    while let Some(line) = node.line().await {
                        own.read(&line);
                    }
                    troubles.killed += 1;
                    is_alive = false;
                }
            }
        }
        log.extend(own.finish());
    }
    (log, troubles)
}

async fn hammer(server: RedisServer) {
    // on a busy machine, little may happen in the time
    for _ in 0..3 {
        if much_happened(&server).await {
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
    let mut troubles = Troubles::default();
    for (own, more) in nodes.join_all().await {
        troubles.killed += more.killed;
        troubles.paused += more.paused;
        troubles.paused_for_long += more.paused_for_long;
        own.into_iter().for_each(|(tenant, seen)| log[tenant as usize].push(seen));
    }
    let [mut full_rates, mut full_slots, mut reused, mut in_debt, mut unknown, mut renewed] = [0; 6];
    for (own, tenant) in log.iter().zip(0..) {
        let open = most_at_once(own.iter().map(Seen::slot));
        assert!(open <= slots(tenant), "{open} of {} calls of tenant {tenant} were open", slots(tenant));
        let limit = units(tenant);
        let counted = most_at_once(own.iter().flat_map(Seen::units));
        assert!(counted <= limit, "{counted} of {limit} units of tenant {tenant} counted, of estimates alone");
        let admitted = most_when_admitted(own);
        assert!(admitted <= limit, "{admitted} of {limit} units of tenant {tenant} counted after an admission");
        let with_debts = most_at_once(own.iter().flat_map(|seen| seen.units().into_iter().chain(seen.debt())));
        full_rates += usize::from(counted * 10 >= limit * 9);
        full_slots += usize::from(open == slots(tenant));
        reused += usize::from(most_at_once(own.iter().map(Seen::endless_slot)) > slots(tenant));
        in_debt += usize::from(with_debts > limit);
        unknown += own.iter().filter(|seen| seen.end.is_none()).count();
        renewed += own.iter().filter(|seen| seen.slot > seen.opened + SLOT.as_nanos() as u64).count();
    }
    let calls: usize = log.iter().map(Vec::len).sum();
    println!(
        "{calls} calls, {unknown} without an end, {renewed} longer than a slot; {full_rates} tenants at their rate, {in_debt} in debt, \
         {full_slots} with all slots, {reused} with slots of killed nodes given again; {troubles:?}"
    );
    let Troubles { killed, paused, paused_for_long } = troubles;
    let is_troubled = killed >= 8 && paused >= 2 && paused_for_long == 2 && calls > 500 && unknown > 0 && renewed > 0;
    is_troubled && [full_rates, full_slots, reused, in_debt].iter().all(|tenants| *tenants >= 2)
}

#[test]
fn too_much_at_once_is_found() {
    assert_eq!(most_at_once([(0, 10, 2), (10, 20, 3), (15, 16, 1)].into_iter()), 4);
    assert_eq!(most_at_once([(0, 11, 2), (10, 20, 3), (15, 15, 9)].into_iter()), 5);
    const MS: u64 = 1_000_000;
    let mut log = Log::default();
    let mut say = |line: &str, times: &[u64]| {
        let times: String = times.iter().map(|time| format!(" {}", time * MS)).collect();
        log.read(&format!("{line}{times} ."));
    };
    say("open 1 2 7 4", &[90, 100, 5_090]);
    say("open 1 3 7 2", &[190, 200, 5_190]);
    (1..=30).for_each(|number| say("alive", &[number * 200]));
    say("end 1 2 6", &[900]);
    // paused for a moment, and then for long
    say("alive", &[6_400]);
    say("alive", &[13_000]);
    log.read("end 1 3 1 95");
    let mut calls = log.finish();
    calls.sort_by_key(|(_, seen)| seen.opened);
    assert_eq!(
        calls.iter().map(|(tenant, seen)| (*tenant, seen.slot())).collect::<Vec<_>>(),
        [(7, (100 * MS, 900 * MS, 1)), (7, (200 * MS, 6_400 * MS, 1))]
    );
    assert_eq!(calls[1].1.endless_slot(), (200 * MS, u64::MAX, 1));
    let [first, second] = [0, 1].map(|call| calls[call].1);
    assert_eq!(first.units(), [(100 * MS, 900 * MS, 4), (900 * MS, one_window_after(900 * MS), 4)]);
    assert_eq!(first.debt(), Some((1_900 * MS, one_window_after(900 * MS), 2)));
    assert_eq!(second.units(), [(200 * MS, 5_190 * MS, 2), (5_190 * MS, one_window_after(5_190 * MS), 2)]);
    assert_eq!(second.debt(), None);
    assert_eq!(most_when_admitted(&[first, second]), 4 + 2);
    // it is admitted while the debt counts, or perhaps before
    for (asked, most) in [(1_900, 4 + 2 + 2 + 1), (1_899, 4 + 2 + 1)] {
        let third = Seen { estimate: 1, asked: asked * MS, opened: 1_950 * MS, expires: 2_000 * MS, ..second };
        assert_eq!(most_when_admitted(&[first, second, third]), most);
    }
    // its node was paused when it ended
    let (mut log, at) = (Log::default(), |number: u64| number * 1_000 * MS);
    log.calls.insert((1, 1), (7, Seen { end: Some((6, at(2))), ..first }));
    log.alive = vec![at(1), at(2), at(4), at(5)];
    assert_eq!(log.finish()[0].1.debt(), None);
}

#[tokio::test]
async fn nothing_exceeds_a_limit_while_nodes_are_killed_and_paused() {
    on_each_server(hammer).await;
}

/// Runs a test on Redis and Valkey at the same time.
async fn on_each_server<F: Future<Output = ()> + Send + 'static>(test: impl Fn(RedisServer) -> F) {
    let tests: JoinSet<()> = RedisServer::each(&[]).map(test).collect();
    tests.join_all().await;
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
async fn take_slots(limiter: &SharedLimiter, calls: &mut Vec<Hold>) {
    while let Ok(call) = limiter.hold(&tenant(PAUSED_TENANT), 1, 1, Duration::from_secs(3600)).await {
        calls.push(call);
    }
}

/// Takes all three slots from a node that is gone since then. Fails if one is still taken after the length of a slot.
async fn take_slots_of_gone(limiter: &SharedLimiter, calls: &mut Vec<Hold>, gone_at: Instant) {
    let takes = async {
        while calls.len() < 3 {
            let asked_at = Instant::now();
            match limiter.hold(&tenant(PAUSED_TENANT), 1, 1, Duration::from_secs(3600)).await {
                Ok(call) => calls.push(call),
                Err(decision) => {
                    // a last renewal may have been on its way
                    let is_over = asked_at > gone_at + SLOT + Duration::from_millis(500);
                    let is_taken = decision.refusal_reason() == Some(RefusalReason::Spent);
                    assert!(!(is_over && is_taken), "the slots have not ended after {:?}", asked_at - gone_at);
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    };
    timeout(Duration::from_secs(60), takes).await.expect("the server answers");
    // it has renewed them within three seconds
    assert!(gone_at.elapsed() > Duration::from_secs(4), "its slots ended after {:?}", gone_at.elapsed());
}

/// Starts a node that holds two of three slots.
async fn start_holder(server: &RedisServer) -> Process {
    let mut holder = Process::start("holder", &[("NODE_REDIS", &server.url())]);
    assert_eq!(holder.line().await.unwrap(), "ready");
    holder
}

async fn pause(server: RedisServer) {
    let (limiter, mut calls, mut holder) = (connect(&server.url()).await, Vec::new(), start_holder(&server).await);
    // its attempts take the third slot for a moment
    while calls.is_empty() {
        take_slots(&limiter, &mut calls).await;
    }
    assert_eq!(calls.len(), 1);
    holder.signal("STOP");
    take_slots_of_gone(&limiter, &mut calls, Instant::now()).await;
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
}

#[tokio::test]
async fn c138_slots_of_a_paused_node_end_and_are_counted_again_before_it_opens_a_call() {
    on_each_server(pause).await;
}

async fn kill(server: RedisServer) {
    let (limiter, mut holder) = (connect(&server.url()).await, start_holder(&server).await);
    // it renews its slots, and keeps them
    let until = Instant::now() + Duration::from_secs(7);
    while timeout_at(until, holder.line()).await.is_ok() {}
    holder.kill().await;
    take_slots_of_gone(&limiter, &mut Vec::new(), Instant::now()).await;
}

#[tokio::test]
async fn c138_slots_of_a_killed_node_end_within_ten_seconds() {
    on_each_server(kill).await;
}
