//! Instructions per call, counted by callgrind.

use std::{path::Path, process::Command};

use crate::{
    report::{figure, skipped},
    stats::Table,
    subject::{BudgetState, LimiterKind},
};

const TENANTS: u64 = 10_000;
const CALLS: u64 = 10_000;

pub fn run(one: &Path) {
    println!("### Instructions per call (callgrind)\n");
    if Command::new("valgrind").arg("--version").output().is_err() {
        skipped("valgrind is not installed");
        return;
    }
    println!("{TENANTS} tenants, {CALLS} calls, without the setup. The inner response has no headers.\n");
    let mut table = Table::new(["subject", "", "call", "over the inner service"]);
    let inner = per_call(one, LimiterKind::Inner, BudgetState::Ample);
    table.row([LimiterKind::Inner.name(), "", &shown(inner), "–"]);
    for (kind, budget) in [
        (LimiterKind::Tollgate, BudgetState::Ample),
        (LimiterKind::TollgateNoExtensions, BudgetState::Ample),
        (LimiterKind::TollgateBare, BudgetState::Ample),
        (LimiterKind::Tollgate, BudgetState::Spent),
        (LimiterKind::TollgateNoExtensions, BudgetState::Spent),
        (LimiterKind::TowerGovernor, BudgetState::Ample),
        (LimiterKind::TowerGovernorPlain, BudgetState::Ample),
        (LimiterKind::TowerGovernor, BudgetState::Spent),
        (LimiterKind::AxumGcra, BudgetState::Ample),
    ] {
        let own = per_call(one, kind, budget);
        let over = own.zip(inner).map(|(own, inner)| own - inner);
        figure(format!("callgrind/{budget:?}/{}", kind.tag()), over.unwrap_or(f64::NAN));
        table.row([kind.name(), budget.name(), &shown(own), &shown(over)]);
    }
    table.print();
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "failed".to_owned(), |value| format!("{value:.0}"))
}

fn per_call(one: &Path, kind: LimiterKind, budget: BudgetState) -> Option<f64> {
    let arguments = ["calls".to_owned(), kind.tag(), format!("{budget:?}"), TENANTS.to_string(), CALLS.to_string()];
    Some(collected(one, &["--toggle-collect=*Subject>::run*"], &arguments)? / CALLS as f64)
}

/// Returns the count of callgrind for a run with these arguments.
pub(super) fn collected(one: &Path, options: &[&str], arguments: &[String]) -> Option<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(options)
        .arg(one)
        .args(arguments)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}
