//! Nanoseconds per call on one thread.

use std::time::Duration;

use super::{calls_in, rounds, tenant_counts};
use crate::{
    report::figure,
    service::{WORKLOADS, Workload},
    stats::{Table, by_round, median, nanos, ratio, tenants},
    subject::{ALL, BudgetState, LimiterKind, subject},
};

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(15);

pub fn run() {
    println!("### One thread: nanoseconds of a whole call\n");
    println!(
        "From creating the request to dropping the response. `tollgate` has default settings: four headers, and an \
         extension of the request. tower_governor writes two headers. The inner service answers without headers or with \
         two, and the request has no extension or one already, as under axum. Medians of {} interleaved rounds. `÷` \
         compares with tower_governor, for rows without headers with its variant without headers, and is the median of \
         per-round ratios. The last column compares refusals with our own admitted calls.\n",
        rounds(ROUNDS)
    );
    for (label, count) in tenant_counts() {
        println!("#### {} tenant(s), uniform\n", tenants(count));
        table(label, count);
    }
}

struct Measured {
    kind: LimiterKind,
    budget: BudgetState,
    /// For each round.
    nanos: Vec<f64>,
}

fn find(all: &[Measured], kind: LimiterKind, budget: BudgetState) -> &[f64] {
    all.iter().find(|one| (one.kind, one.budget) == (kind, budget)).map_or(&[], |one| &one.nanos)
}

fn table(label: &str, count: u64) {
    let head = WORKLOADS.iter().flat_map(|workload| [workload.name(), "÷"]);
    let mut table = Table::new(["subject", ""].into_iter().chain(head).chain(["÷ own admitted"]));
    let all = WORKLOADS.map(|workload| measure(count, workload));
    for budget in [BudgetState::Ample, BudgetState::Spent] {
        for kind in ALL {
            if kind == LimiterKind::Inner && budget == BudgetState::Spent {
                continue;
            }
            let mut cells = vec![kind.name().to_owned(), budget.name().to_owned()];
            for (workload, all) in WORKLOADS.iter().zip(&all) {
                let own = find(all, kind, budget);
                let compared = match kind {
                    LimiterKind::Inner => f64::NAN,
                    _ => by_round(own, find(all, kind.rival(), budget), |a, b| a / b),
                };
                cells.extend([nanos(median(own)), ratio(compared)]);
                let name = format!("layer/{}/{label}/{budget:?}/{}", workload.tag(), kind.tag());
                figure(format!("{name}/nanos"), median(own));
                figure(format!("{name}/ratio"), compared);
            }
            let [all, ..] = &all;
            let refused =
                by_round(find(all, kind, BudgetState::Spent), find(all, kind, BudgetState::Ample), |a, b| a / b);
            match budget {
                BudgetState::Ample => cells.push(ratio(f64::NAN)),
                BudgetState::Spent => {
                    cells.push(ratio(refused));
                    figure(format!("layer/empty/{label}/Spent/{}/own", kind.tag()), refused);
                }
            }
            table.row(cells);
        }
    }
    table.print();
}

/// Measures all limiters. Refusals don't call the inner service, so only the first workload has them.
fn measure(count: u64, workload: Workload) -> Vec<Measured> {
    let budgets: &[_] =
        if workload == Workload::default() { &[BudgetState::Ample, BudgetState::Spent] } else { &[BudgetState::Ample] };
    let mut subjects = Vec::new();
    for &budget in budgets {
        for kind in ALL {
            if kind == LimiterKind::Inner && budget == BudgetState::Spent {
                continue;
            }
            let mut subject = subject(kind, budget, count, workload);
            let calls = calls_in(|calls| subject.run(calls), ROUND);
            subjects.push((calls, subject, Measured { kind, budget, nanos: Vec::new() }));
        }
    }
    for _ in 0..rounds(ROUNDS) {
        for (calls, subject, measured) in &mut subjects {
            measured.nanos.push(subject.run(*calls).as_nanos() as f64 / *calls as f64);
        }
    }
    subjects.into_iter().map(|(_, _, measured)| measured).collect()
}
