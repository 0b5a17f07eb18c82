//! Nanoseconds per call on as many concurrent threads as there are cores.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use super::{calls_in, rounds, tenant_counts};
use crate::{
    machine::{cores, pin, scheduled},
    report::figure,
    service::{WORKLOADS, Workload},
    stats::{Table, by_round, median, nanos, ratio, tenants},
    subject::{BudgetState, LimiterKind, Subject, subject},
};

const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(40);
const KINDS: [LimiterKind; 6] = [
    LimiterKind::Inner,
    LimiterKind::Tollgate,
    LimiterKind::TollgateNoExtensions,
    LimiterKind::TowerGovernor,
    LimiterKind::AxumGcra,
    LimiterKind::Governor,
];

pub fn run() {
    println!("### {} threads: nanoseconds of a whole call\n", cores());
    println!(
        "There are as many threads as cores. Each has a clone of the service and its own core. Processor time of a thread divided by its calls, which \
         excludes the time in which the core ran something else. Medians of {} interleaved rounds; the ratios are medians of \
         per-round ratios. The last column compares with tower_governor on as many threads.\n",
        rounds(ROUNDS)
    );
    let [one, many, _] = tenant_counts();
    for workload in WORKLOADS {
        println!("#### One hot tenant, {}\n", workload.name());
        table(one, workload);
    }
    println!("#### {} tenants, {}\n", tenants(many.1), Workload::default().name());
    table(many, Workload::default());
}

struct Measured {
    kind: LimiterKind,
    budget: BudgetState,
    calls: u64,
    subject: Box<dyn Subject>,
    /// Nanoseconds of each round.
    alone: Vec<f64>,
    all: Vec<f64>,
}

fn table((label, count): (&str, u64), workload: Workload) {
    let mut all = Vec::new();
    for budget in [BudgetState::Ample, BudgetState::Spent] {
        for kind in KINDS {
            // refusals don't call the inner service
            if budget == BudgetState::Spent && (kind == LimiterKind::Inner || workload != Workload::default()) {
                continue;
            }
            let mut subject = subject(kind, budget, count, workload);
            let calls = calls_in(|calls| subject.run(calls), ROUND);
            all.push(Measured { kind, budget, calls, subject, alone: vec![], all: vec![] });
        }
    }
    let mut pinned = true;
    for round in 0..rounds(ROUNDS) as u64 {
        for one in &mut all {
            one.alone.push(together(one.subject.as_ref(), 1, one.calls, round, &mut pinned));
            one.all.push(together(one.subject.as_ref(), cores(), one.calls, round, &mut pinned));
        }
    }
    if !pinned {
        println!("(not pinned)\n");
    }
    let (many, scaling) = (format!("{} threads", cores()), format!("{} ÷ 1", cores()));
    let mut table = Table::new(["subject", "", "1 thread", &many, &scaling, "÷ tower_governor"]);
    for one in &all {
        let rival = all.iter().find(|other| (other.kind, other.budget) == (LimiterKind::TowerGovernor, one.budget));
        let scaling = by_round(&one.all, &one.alone, |a, b| a / b);
        let compared = match (one.kind, rival) {
            (LimiterKind::Inner, _) | (_, None) => f64::NAN,
            (_, Some(rival)) => by_round(&one.all, &rival.all, |a, b| a / b),
        };
        let (alone, together) = (median(&one.alone), median(&one.all));
        let name = format!("threads/{}/{label}/{:?}/{}", workload.tag(), one.budget, one.kind.tag());
        for (figure_name, value) in [("one", alone), ("all", together), ("scaling", scaling), ("ratio", compared)] {
            figure(format!("{name}/{figure_name}"), value);
        }
        table.row([
            one.kind.name().to_owned(),
            one.budget.name().to_owned(),
            nanos(alone),
            nanos(together),
            ratio(scaling),
            ratio(compared),
        ]);
    }
    table.print();
}

/// Calls on several threads at once. Returns the nanoseconds of processor time per call.
fn together(subject: &dyn Subject, threads: usize, calls: u64, round: u64, pinned: &mut bool) -> f64 {
    let barrier = Barrier::new(threads);
    let all_pinned = AtomicBool::new(true);
    let times: Vec<f64> = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|core| {
                let mut own = subject.fork(round * 16 + core as u64 + 2);
                let (barrier, all_pinned) = (&barrier, &all_pinned);
                scope.spawn(move || {
                    all_pinned.fetch_and(pin(core), Relaxed);
                    own.run(calls / 20 + 1);
                    barrier.wait();
                    let (before, _) = scheduled();
                    own.run(calls);
                    let (after, _) = scheduled();
                    (after - before) as f64 / calls as f64
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().expect("a thread panicked")).collect()
    });
    *pinned &= all_pinned.into_inner();
    times.iter().sum::<f64>() / threads as f64
}
