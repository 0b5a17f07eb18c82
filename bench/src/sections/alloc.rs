//! Allocations of a request.

use crate::{
    heap,
    service::Inner,
    stats::Table,
    subject::{ALL, Budget, Kind, subject},
};

const CALLS: u64 = 10_000;

pub fn run() {
    println!("### Heap allocations of a request, over the inner service\n");
    println!(
        "100 known tenants. The map of headers allocates twice on its first header, and twice whenever it grows: an \
         answer that has headers already has paid for the first.\n"
    );
    let columns = [(Budget::Never, 0), (Budget::Never, 1), (Budget::Never, 2), (Budget::Spent, 0)];
    let mut table =
        Table::new(["subject", "admitted, inner answer without headers", "with 1 header", "with 2 headers", "refused"]);
    for kind in ALL {
        let cells = columns.map(|(budget, headers)| {
            let inner = Inner { headers };
            let own = per_call(kind, budget, inner);
            match kind {
                Kind::Inner if budget == Budget::Spent => "–".to_owned(),
                Kind::Inner => format!("({own:.2})"),
                // a refusal is compared with an empty answer
                _ => format!("{:.2}", own - per_call(Kind::Inner, budget, inner)),
            }
        });
        table.row([kind.name().to_owned()].into_iter().chain(cells));
    }
    table.print();
}

fn per_call(kind: Kind, budget: Budget, inner: Inner) -> f64 {
    let mut subject = subject(kind, budget, 100, inner);
    subject.run(CALLS);
    let (_, counts) = heap::count(|| subject.run(CALLS));
    counts.allocations as f64 / CALLS as f64
}
