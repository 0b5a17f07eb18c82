//! Instructions of a call, as callgrind counts them.

use std::{path::Path, process::Command};

use crate::{
    stats::Table,
    subject::{Budget, Kind},
};

const TENANTS: u64 = 10_000;
const CALLS: u64 = 10_000;

pub fn run(one: &Path) {
    println!("### Instructions of a call (callgrind)\n");
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("**skipped**: there is no valgrind on PATH\n");
        return;
    }
    println!("{TENANTS} tenants, {CALLS} calls, without the set-up; an inner answer without headers.\n");
    let mut table = Table::new(["subject", "", "call", "over the inner service"]);
    let inner = per_call(one, Kind::Inner, Budget::Never);
    table.row([Kind::Inner.name(), "", &figure(inner), "–"]);
    for (kind, budget) in [
        (Kind::Tollgate, Budget::Never),
        (Kind::TollgateExtensions, Budget::Never),
        (Kind::TollgatePlain, Budget::Never),
        (Kind::Tollgate, Budget::Spent),
        (Kind::TollgateExtensions, Budget::Spent),
        (Kind::TowerGovernor, Budget::Never),
        (Kind::TowerGovernorPlain, Budget::Never),
        (Kind::TowerGovernor, Budget::Spent),
        (Kind::AxumGcra, Budget::Never),
    ] {
        let own = per_call(one, kind, budget);
        let over = own.zip(inner).map(|(own, inner)| own - inner);
        table.row([kind.name(), budget.name(), &figure(own), &figure(over)]);
    }
    table.print();
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "failed".to_owned(), |value| format!("{value:.0}"))
}

fn per_call(one: &Path, kind: Kind, budget: Budget) -> Option<f64> {
    let arguments = ["calls".to_owned(), kind.tag(), format!("{budget:?}"), TENANTS.to_string(), CALLS.to_string()];
    Some(collected(one, &["--toggle-collect=*Subject>::run*"], &arguments)? / CALLS as f64)
}

/// What callgrind counts of a run with these arguments.
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
