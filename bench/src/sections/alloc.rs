//! Allocations per request.

use crate::{
    heap,
    service::Workload,
    stats::Table,
    subject::{ALL, BudgetState, LimiterKind, subject},
};

const CALLS: u64 = 10_000;

pub fn run() {
    println!("### Heap allocations per request, beyond the inner service\n");
    println!(
        "100 known tenants. A header map allocates twice for its first header, and twice whenever it grows. \
         If the inner response already has headers, the first allocations are not the layer's.\n"
    );
    let columns = [(BudgetState::Ample, 0), (BudgetState::Ample, 1), (BudgetState::Ample, 2), (BudgetState::Spent, 0)];
    let mut table =
        Table::new(["subject", "admitted, inner answer without headers", "with 1 header", "with 2 headers", "refused"]);
    for kind in ALL {
        let cells = columns.map(|(budget, headers)| {
            let workload = Workload { headers, ..Workload::default() };
            let own = per_call(kind, budget, workload);
            match kind {
                LimiterKind::Inner if budget == BudgetState::Spent => "–".to_owned(),
                LimiterKind::Inner => format!("({own:.2})"),
                // refusals are compared with an empty response
                _ => format!("{:.2}", own - per_call(LimiterKind::Inner, budget, workload)),
            }
        });
        table.row([kind.name().to_owned()].into_iter().chain(cells));
    }
    table.print();
}

fn per_call(kind: LimiterKind, budget: BudgetState, workload: Workload) -> f64 {
    let mut subject = subject(kind, budget, 100, workload);
    subject.run(CALLS);
    let (_, counts) = heap::count(|| subject.run(CALLS));
    counts.allocations as f64 / CALLS as f64
}
