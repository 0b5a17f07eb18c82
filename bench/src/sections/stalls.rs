//! The slowest single call while tenants arrive and leave.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tollgate::{Limiter, Plans, Quota, testing::ManualClock};
use tower_governor::GovernorLayer;
use tower_layer::Layer;

use crate::{
    machine::scheduled,
    random::tenant_id,
    report::{figure, unless_quick},
    rivals,
    service::{Inner, Limited, call},
    stats::Table,
    subject::{BudgetState, LimiterKind, ServiceTask, with_limiter, with_service},
};

const ROUNDS: usize = 3;
/// Tenants that continue to call while the others leave.
const STAYING: u64 = 100;

pub fn run() {
    println!("### The worst single call while tenants arrive and leave, in microseconds\n");
    println!(
        "Each call is measured separately. `worst` is the slowest call of each of {ROUNDS} runs by wall time. \
         `less waiting` excludes the time that the thread waited for a core, as the scheduler reports it.\n"
    );
    let mut table = Table::new(["subject", "", "calls", "p99.99", "worst", "less waiting"]);
    for kind in [LimiterKind::Tollgate, LimiterKind::TowerGovernor, LimiterKind::Governor] {
        let worst = row(&mut table, kind.name(), "1M arrive", || arrive(kind));
        figure(format!("stalls/arrive/{}", kind.tag()), worst);
    }
    row(&mut table, "axum_gcra, collecting", "300k arrive", axum_gcra_arrive);
    let worst = row(&mut table, LimiterKind::Tollgate.name(), "1M idle leave", leave);
    figure("stalls/leave/Tollgate", worst);
    row(&mut table, "tower_governor, retain_recent elsewhere", "1M idle leave", tower_governor_leave);
    table.print();
}

/// The number of tenants that arrive or leave.
fn many() -> u64 {
    unless_quick(1_000_000, 50_000)
}

/// Adds a row. Returns the slowest call of all runs without waiting, in milliseconds.
fn row(table: &mut Table, name: &str, what: &str, run: impl Fn() -> Calls) -> f64 {
    let runs: Vec<Calls> = (0..ROUNDS).map(|_| run()).collect();
    let micros = |time: Duration| format!("{:.0}", time.as_nanos() as f64 / 1e3);
    let all = |of: fn(&Calls) -> Duration| {
        let each: Vec<String> = runs.iter().map(|calls| micros(of(calls))).collect();
        each.join(", ")
    };
    let mut tails: Vec<Duration> = runs.iter().map(Calls::tail).collect();
    tails.sort();
    let count = runs.first().map_or(0, |calls| calls.took.len());
    table.row([
        name.to_owned(),
        what.to_owned(),
        count.to_string(),
        micros(tails[ROUNDS / 2]),
        all(|calls| calls.worst),
        all(|calls| calls.worst_less_waiting),
    ]);
    runs.iter().map(|calls| calls.worst_less_waiting).max().unwrap_or_default().as_secs_f64() * 1e3
}

#[derive(Default)]
struct Calls {
    took: Vec<u32>,
    worst: Duration,
    worst_less_waiting: Duration,
}

impl Calls {
    /// Measures calls, without the time spent waiting for a core.
    fn lot(&mut self, count: u64, mut one: impl FnMut(u64)) {
        let (_, waited_before) = scheduled();
        let mut worst = Duration::ZERO;
        for number in 0..count {
            let began = Instant::now();
            one(number);
            let took = began.elapsed();
            worst = worst.max(took);
            self.took.push(u32::try_from(took.as_nanos()).unwrap_or(u32::MAX));
        }
        let (_, waited) = scheduled();
        let waited = Duration::from_nanos(waited - waited_before);
        self.worst = self.worst.max(worst);
        self.worst_less_waiting = self.worst_less_waiting.max(worst.saturating_sub(waited));
    }

    fn tail(&self) -> Duration {
        let mut sorted = self.took.clone();
        sorted.sort_unstable();
        let place = sorted.len().saturating_sub(1 + sorted.len() / 10_000);
        Duration::from_nanos(sorted.get(place).copied().unwrap_or(0).into())
    }
}

const LOT: u64 = 64;

struct Arrive(u64);

impl ServiceTask for Arrive {
    type Output = Calls;

    fn run<S: Limited>(self, mut service: S, _: Option<Limiter>) -> Calls {
        let mut calls = Calls { took: Vec::with_capacity(self.0 as usize), ..Calls::default() };
        for first in (0..self.0).step_by(LOT as usize) {
            calls.lot(LOT, |number| _ = call(&mut service, &tenant_id(first + number)));
        }
        calls
    }
}

fn arrive(kind: LimiterKind) -> Calls {
    with_service(kind, BudgetState::Ample, Inner::default(), Arrive(many()))
}

fn axum_gcra_arrive() -> Calls {
    Arrive(unless_quick(300_000, 10_000)).run(rivals::axum_gcra(Inner::default(), BudgetState::Spent, true), None)
}

/// All tenants become idle at once. Then the clock advances as if there were 1,000 requests a second, while a few
/// tenants continue to call, until the others are removed.
fn leave() -> Calls {
    struct Leave(ManualClock);
    impl ServiceTask for Leave {
        type Output = Calls;

        fn run<S: Limited>(self, mut service: S, limiter: Option<Limiter>) -> Calls {
            let limiter = limiter.expect("a limiter of tollgate");
            for tenant in 0..many() {
                call(&mut service, &tenant_id(tenant));
            }
            self.0.advance(Duration::from_secs(61));
            let mut calls = Calls::default();
            while limiter.tenants() > STAYING as usize {
                calls.lot(LOT, |number| {
                    self.0.advance(Duration::from_millis(1));
                    call(&mut service, &tenant_id(number % STAYING));
                });
            }
            calls
        }
    }
    let clock = ManualClock::new();
    let quota = Quota::per_minute(9_999).expect("the limit is not zero");
    let limiter = Limiter::builder(Plans::new(quota)).clock(clock.clone()).build().expect("the settings are valid");
    with_limiter(LimiterKind::Tollgate, BudgetState::Ample, Inner::default(), limiter, Leave(clock))
}

/// Follows the manual: another thread removes idle tenants, here once.
fn tower_governor_leave() -> Calls {
    let config = rivals::tower_governor_config(BudgetState::Ample);
    let mut service = GovernorLayer::new(Arc::clone(&config)).layer(Inner::default());
    for tenant in 0..many() {
        call(&mut service, &tenant_id(tenant));
    }
    let sweeper = thread::spawn(move || config.limiter().retain_recent());
    let (mut calls, mut next) = (Calls::default(), 0);
    while !sweeper.is_finished() {
        calls.lot(1, |_| _ = call(&mut service, &tenant_id(next % STAYING)));
        next += 1;
    }
    sweeper.join().expect("the sweeper panicked");
    calls
}
