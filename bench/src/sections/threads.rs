//! Nanoseconds per call on two concurrent threads.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use super::calls_in;
use crate::{
    machine::{pin, scheduled},
    service::Inner,
    stats::{Table, by_round, median, nanos, ratio, tenants},
    subject::{BudgetState, LimiterKind, Subject, subject},
};

const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(60);
const KINDS: [LimiterKind; 6] = [
    LimiterKind::Inner,
    LimiterKind::Tollgate,
    LimiterKind::TollgateExtensions,
    LimiterKind::TowerGovernor,
    LimiterKind::AxumGcra,
    LimiterKind::Governor,
];

pub fn run() {
    println!("### Two threads: nanoseconds of a whole call\n");
    println!(
        "Each thread has a clone of the service and its own core. `wall` is the time of a thread divided by \
         its calls. `cpu` excludes the time in which the core ran something else. Medians of {ROUNDS} \
         interleaved rounds; the ratios are medians of per-round ratios of `cpu`.\n"
    );
    for count in [1, 10_000] {
        println!("#### {} tenant(s)\n", tenants(count));
        table(count);
    }
}

struct Measured {
    kind: LimiterKind,
    budget: BudgetState,
    calls: u64,
    subject: Box<dyn Subject>,
    alone: Vec<Times>,
    both: Vec<Times>,
}

#[derive(Clone, Copy)]
struct Times {
    wall: f64,
    cpu: f64,
}

fn table(count: u64) {
    let mut all = Vec::new();
    for budget in [BudgetState::Ample, BudgetState::Spent] {
        for kind in KINDS {
            if kind == LimiterKind::Inner && budget == BudgetState::Spent {
                continue;
            }
            let mut subject = subject(kind, budget, count, Inner::default());
            let calls = calls_in(|calls| subject.run(calls), ROUND);
            all.push(Measured { kind, budget, calls, subject, alone: vec![], both: vec![] });
        }
    }
    let mut pinned = true;
    for round in 0..ROUNDS as u64 {
        for one in &mut all {
            one.alone.push(together(one.subject.as_ref(), 1, one.calls, round, &mut pinned));
            one.both.push(together(one.subject.as_ref(), 2, one.calls, round, &mut pinned));
        }
    }
    if !pinned {
        println!("(not pinned)\n");
    }
    let cpu = |times: &[Times]| times.iter().map(|times| times.cpu).collect::<Vec<_>>();
    let wall = |times: &[Times]| times.iter().map(|times| times.wall).collect::<Vec<_>>();
    let inner = all.first().map(|one| cpu(&one.both)).unwrap_or_default();
    let net = |values: &[f64]| -> Vec<f64> { values.iter().zip(&inner).map(|(value, inner)| value - inner).collect() };
    let mut table = Table::new([
        "subject",
        "",
        "1 thread, wall",
        "cpu",
        "2 threads, wall",
        "cpu",
        "2 ÷ 1 threads",
        "call ÷ tower_governor",
        "layer ÷ tower_governor",
    ]);
    for one in &all {
        let rival = all
            .iter()
            .find(|other| (other.kind, other.budget) == (LimiterKind::TowerGovernor, one.budget))
            .map(|rival| cpu(&rival.both))
            .unwrap_or_default();
        let both = cpu(&one.both);
        let layer = match one.kind {
            LimiterKind::Inner => f64::NAN,
            _ => by_round(&net(&both), &net(&rival), |a, b| a / b),
        };
        table.row([
            one.kind.name().to_owned(),
            if one.kind == LimiterKind::Inner { "" } else { one.budget.name() }.to_owned(),
            nanos(median(&wall(&one.alone))),
            nanos(median(&cpu(&one.alone))),
            nanos(median(&wall(&one.both))),
            nanos(median(&both)),
            ratio(by_round(&both, &cpu(&one.alone), |a, b| a / b)),
            ratio(by_round(&both, &rival, |a, b| a / b)),
            ratio(layer),
        ]);
    }
    table.print();
}

/// Calls on several threads at once. Returns the mean of their times.
fn together(subject: &dyn Subject, threads: usize, calls: u64, round: u64, pinned: &mut bool) -> Times {
    let barrier = Barrier::new(threads);
    let all_pinned = AtomicBool::new(true);
    let times: Vec<Times> = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|core| {
                let mut own = subject.fork(round * 16 + core as u64 + 2);
                let (barrier, all_pinned) = (&barrier, &all_pinned);
                scope.spawn(move || {
                    all_pinned.fetch_and(pin(core), Relaxed);
                    own.run(calls / 20 + 1);
                    barrier.wait();
                    let (before, _) = scheduled();
                    let wall = own.run(calls);
                    let (after, _) = scheduled();
                    Times { wall: wall.as_nanos() as f64 / calls as f64, cpu: (after - before) as f64 / calls as f64 }
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().expect("a thread panicked")).collect()
    });
    *pinned &= all_pinned.into_inner();
    let mean = |of: fn(&Times) -> f64| times.iter().map(of).sum::<f64>() / threads as f64;
    Times { wall: mean(|times| times.wall), cpu: mean(|times| times.cpu) }
}
