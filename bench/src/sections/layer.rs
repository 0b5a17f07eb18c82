//! Nanoseconds per call on one thread.

use std::time::Duration;

use super::calls_in;
use crate::{
    service::Inner,
    stats::{Table, by_round, least, median, nanos, ratio, tenants},
    subject::{ALL, BudgetState, LimiterKind, Subject, subject},
};

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(15);

pub fn run() {
    println!("### One thread: nanoseconds of a whole call\n");
    println!(
        "`call` is the median of {ROUNDS} interleaved rounds, from creating the request to dropping the \
         response. `layer` is the call minus the inner service in the same round. The ratios are medians of \
         per-round ratios. They compare with tower_governor with its headers, and, in the last column, \
         refusals with our own admitted calls.\n"
    );
    for count in [1, 10_000, 1_000_000] {
        println!("#### {} tenant(s), uniform\n", tenants(count));
        table(count);
    }
}

struct Measured {
    kind: LimiterKind,
    budget: BudgetState,
    calls: u64,
    subject: Box<dyn Subject>,
    nanos: Vec<f64>,
}

fn table(count: u64) {
    let mut all = Vec::new();
    for budget in [BudgetState::Ample, BudgetState::Spent] {
        for kind in ALL {
            if kind == LimiterKind::Inner && budget == BudgetState::Spent {
                continue;
            }
            let mut subject = subject(kind, budget, count, Inner::default());
            let calls = calls_in(|calls| subject.run(calls), ROUND);
            all.push(Measured { kind, budget, calls, subject, nanos: Vec::new() });
        }
    }
    for _ in 0..ROUNDS {
        for one in &mut all {
            one.nanos.push(one.subject.run(one.calls).as_nanos() as f64 / one.calls as f64);
        }
    }
    let figures = |kind, budget| {
        all.iter().find(|one| (one.kind, one.budget) == (kind, budget)).map_or(&[][..], |one| one.nanos.as_slice())
    };
    let net = |values: &[f64]| -> Vec<f64> {
        let inner = figures(LimiterKind::Inner, BudgetState::Ample);
        values.iter().zip(inner).map(|(value, inner)| value - inner).collect()
    };
    let mut table = Table::new([
        "subject",
        "",
        "call",
        "min",
        "layer",
        "call ÷ tower_governor",
        "layer ÷ tower_governor",
        "call ÷ own admitted",
    ]);
    for one in &all {
        let rival = figures(LimiterKind::TowerGovernor, one.budget);
        let own = figures(one.kind, BudgetState::Ample);
        let what = if one.kind == LimiterKind::Inner { "" } else { one.budget.name() };
        let (layer, layer_ratio) = match one.kind {
            LimiterKind::Inner => (f64::NAN, f64::NAN),
            _ => {
                let layer = net(&one.nanos);
                (median(&layer), by_round(&layer, &net(rival), |a, b| a / b))
            }
        };
        let own_ratio = match one.budget {
            BudgetState::Ample => f64::NAN,
            BudgetState::Spent => by_round(&one.nanos, own, |a, b| a / b),
        };
        table.row([
            one.kind.name().to_owned(),
            what.to_owned(),
            nanos(median(&one.nanos)),
            nanos(least(&one.nanos)),
            nanos(layer),
            ratio(by_round(&one.nanos, rival, |a, b| a / b)),
            ratio(layer_ratio),
            ratio(own_ratio),
        ]);
    }
    table.print();
}
