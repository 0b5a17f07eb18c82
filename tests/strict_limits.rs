//! Four processes hammer the budgets of 20 tenants on one Redis, and are killed and paused meanwhile. Their admissions are
//! merged into one log, and no window of it may have more than the limit.

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

use std::{env, sync::Arc, time::Duration};

use support::{
    machine::{MachineClock, Random},
    process::{Process, end_with_parent, say},
    redis_server::RedisServer,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout_at},
};
use tollgate::{Limiter, Plans, Quota, Tenant, clock::Clock, limit::Fallback, store::RedisConfig};

const NODES: u64 = 4;
const TENANTS: u64 = 20;
/// How long the nodes run.
const TIME: Duration = Duration::from_secs(8);

fn window(tenant: u64) -> Duration {
    Duration::from_millis(if tenant % 4 == 3 { 600 } else { 200 })
}

/// Returns the quota of a tenant, and the most units that it allows in any window of this length.
fn quota(tenant: u64) -> (Quota, u64) {
    let (units, burst, window) = (5 + (tenant * 7 % 46) as u32, 10, window(tenant));
    let (quota, most) = match tenant % 5 {
        0 => (Quota::smooth(units, window, burst), burst + units),
        1 => (Quota::fixed(units, window), 2 * units),
        _ => (Quota::new(units, window), units),
    };
    (quota.unwrap(), u64::from(most))
}

// ---- a node

#[tokio::test]
#[ignore = "a node, which the other tests start as a process"]
async fn node() {
    let Ok(url) = env::var("NODE_REDIS") else { return };
    end_with_parent();
    let seed: u64 = env::var("NODE_SEED").unwrap().parse().unwrap();
    let config = RedisConfig::new(&url).unwrap().deadline(Duration::from_millis(100)).unwrap();
    let tenants: Vec<_> = (0..TENANTS).map(|number| Tenant::parse(format!("tenant-{number}")).unwrap()).collect();
    let quotas = Plans::new(Quota::per_second(1).unwrap());
    for (tenant, number) in tenants.iter().zip(0..) {
        quotas.set(tenant.clone(), quota(number).0);
    }
    let clock = Arc::new(MachineClock::new());
    // on a busy machine, the first answer may come too late
    let limiter = loop {
        let builder = Limiter::builder(quotas.clone()).clock(Arc::clone(&clock)).redis(config.clone());
        let builder = match env::var("NODE_MODE").unwrap().as_str() {
            "leased" => builder.leased(),
            _ => builder,
        };
        if let Ok(limiter) = builder.fallback(Fallback::Closed).connect().await {
            break limiter;
        }
    };
    let mut tasks = JoinSet::new();
    for task in 1..=4 {
        let (limiter, clock, tenants, mut random) =
            (limiter.clone(), Arc::clone(&clock), tenants.clone(), Random(seed * 8 + task));
        tasks.spawn(async move {
            loop {
                let (number, units) = (random.below(TENANTS), [1, 1, 1, 2, 5][random.below(5) as usize]);
                let asked = clock.now();
                let decision = limiter.check(&tenants[number as usize], units).await;
                let answered = clock.now();
                if !decision.is_admitted() {
                    sleep(Duration::from_millis(1)).await;
                } else if random.below(8) == 0 {
                    // these units do not count
                    limiter.refund(decision.into_spend()).await;
                } else {
                    say(&format!("{number} {units} {} {} .", asked.as_nanos(), answered.as_nanos()));
                }
            }
        });
    }
    tasks.join_all().await;
}

// ---- the log

/// Units of one tenant, admitted at some time between two readings of the clock of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Admission {
    earliest: u64,
    latest: u64,
    units: u64,
}

/// Reads a line, which is cut off if its process was killed.
fn read(line: &str) -> Option<(usize, Admission)> {
    let (line, _) = line.split_once(" .")?;
    let mut numbers = line.split(' ').map_while(|number| number.parse().ok());
    let (tenant, units, earliest, latest) = (numbers.next()?, numbers.next()?, numbers.next()?, numbers.next()?);
    Some((tenant as usize, Admission { earliest, latest, units }))
}

/// Returns the most units that were surely admitted in one half-open window of this length.
fn most_in_a_window(log: &mut [Admission], window: Duration) -> u64 {
    log.sort();
    let window = window.as_nanos() as u64;
    let in_window = |(first, from): (usize, &Admission)| {
        let end = from.earliest + window;
        let later = log[first..].iter().take_while(|own| own.earliest < end);
        later.filter(|own| own.latest < end).map(|own| own.units).sum()
    };
    log.iter().enumerate().map(in_window).max().unwrap_or(0)
}

/// Runs a node until the time is over, and kills and pauses it at random times. Returns its log, and how often it was killed
/// and paused.
async fn troubled_node(
    redis: String,
    mode: &'static str,
    number: u64,
    pause: Duration,
) -> (Vec<(usize, Admission)>, [u32; 2]) {
    let (end, mut random, mut log, mut troubles) = (Instant::now() + TIME, Random(77 + number), Vec::new(), [0; 2]);
    while Instant::now() < end {
        let seed = (1 + number * 1000 + random.below(1000)).to_string();
        let mut node = Process::start("node", &[("NODE_REDIS", &redis), ("NODE_SEED", &seed), ("NODE_MODE", mode)]);
        let mut is_alive = true;
        while is_alive {
            let until = (Instant::now() + Duration::from_millis(300 + random.below(900))).min(end);
            while let Ok(line) = timeout_at(until, node.line()).await {
                log.extend(read(&line.expect("a node runs until it is killed")));
            }
            if until < end && random.below(2) == 0 {
                node.signal("STOP");
                sleep(pause).await;
                node.signal("CONT");
                troubles[1] += 1;
            } else {
                node.kill().await;
                while let Some(line) = node.line().await {
                    log.extend(read(&line));
                }
                troubles[0] += 1;
                is_alive = false;
            }
        }
    }
    (log, troubles)
}

async fn hammer(mode: &'static str, pause: Duration) {
    let Some(server) = RedisServer::start(&[]) else { return };
    // on a busy machine, little may happen in the time
    for _ in 0..3 {
        if much_happened(&server, mode, pause).await {
            return;
        }
    }
    panic!("too little happened");
}

/// Checks the limits for a while, and returns whether they were put to the test.
async fn much_happened(server: &RedisServer, mode: &'static str, pause: Duration) -> bool {
    let mut nodes = JoinSet::new();
    for number in 0..NODES {
        nodes.spawn(troubled_node(server.url(), mode, number, pause));
    }
    let mut log = vec![Vec::new(); TENANTS as usize];
    let (mut killed, mut paused) = (0, 0);
    for (own, [kills, pauses]) in nodes.join_all().await {
        (killed, paused) = (killed + kills, paused + pauses);
        for (tenant, admission) in own {
            log[tenant].push(admission);
        }
    }
    let (mut reached, mut admitted) = (0, 0);
    for (own, tenant) in log.iter_mut().zip(0..) {
        let (allowed, most) = (quota(tenant).1, most_in_a_window(own, window(tenant)));
        assert!(most <= allowed, "{most} of {allowed} units in one window of tenant {tenant}");
        reached += usize::from(most * 10 >= allowed * 9);
        admitted += own.iter().map(|own| own.units).sum::<u64>();
    }
    println!("{mode}: {admitted} units, {reached} tenants at their limit, {killed} kills, {paused} pauses");
    killed >= 8 && paused >= 4 && reached >= 5 && admitted > 1_000
}

#[test]
fn a_window_with_too_much_is_found() {
    let at = |earliest, latest, units| Admission { earliest, latest, units };
    let window = Duration::from_nanos(100);
    // half-open: the window from 0 to 100 excludes 100
    let mut log = vec![at(0, 0, 3), at(100, 100, 2), at(150, 150, 2), at(250, 250, 1)];
    assert_eq!(most_in_a_window(&mut log, window), 4);
    log.push(at(199, 199, 5));
    assert_eq!(most_in_a_window(&mut log, window), 9);
    // decided at an unknown time: perhaps after the window
    let mut log = vec![at(0, 1, 3), at(90, 100, 2), at(95, 99, 1)];
    assert_eq!(most_in_a_window(&mut log, window), 4);
    assert_eq!(read("3 1 20 30 ."), Some((3, at(20, 30, 1))));
    assert_eq!(read("3 1 20 3"), None);
}

#[tokio::test]
async fn no_window_has_too_much_while_nodes_are_killed_and_paused() {
    hammer("plain", Duration::from_millis(300)).await;
}

#[tokio::test]
async fn no_window_has_too_much_with_leases() {
    // a pause is longer than a lease
    hammer("leased", Duration::from_millis(150)).await;
}
