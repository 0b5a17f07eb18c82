//! Runs one subject in its own process, as a child of the sections or under a profiler.
//!
//! `one calls <subject> <budget> <tenants> <calls>`, `one memory quiet <subject>`, `one memory busy`,
//! `one serve <subject> <budget>`, `one sessions <subject> <sessions> <calls>`, `one logins <users>`,
//! `one steps <calls> <logins>`, `one passwords <at once>`, `one refreshes <algorithm> <scope> <refreshes>`, `one signatures`

use std::{env, process::ExitCode};

use tollgate_bench::{
    sections::{bearer, logins, memory, passwords, server, sessions, signatures, steps},
    service::Workload,
    subject::{BudgetState, LimiterKind, subject},
};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Some(()) => ExitCode::SUCCESS,
        None => {
            eprintln!("unknown arguments: {arguments:?}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Option<()> {
    match *arguments {
        ["calls", kind, budget, tenants, calls] => {
            let tenants = tenants.parse().ok()?;
            let mut subject = subject(LimiterKind::by_tag(kind)?, budget_of(budget)?, tenants, Workload::default());
            subject.run(calls.parse().ok()?);
            Some(())
        }
        ["memory", "quiet", kind] => {
            memory::quiet(LimiterKind::by_tag(kind)?);
            Some(())
        }
        ["memory", "busy"] => {
            memory::busy();
            Some(())
        }
        ["serve", kind, budget] => {
            server::serve(LimiterKind::by_tag(kind)?, budget_of(budget)?);
            Some(())
        }
        ["sessions", kind, count, calls] => {
            sessions::subject(sessions::SessionLayerKind::by_tag(kind)?, count.parse().ok()?)(calls.parse().ok()?);
            Some(())
        }
        ["logins", users] => {
            logins::serve(users.parse().ok()?);
            Some(())
        }
        ["passwords", at_once] => {
            passwords::burst(at_once.parse().ok()?);
            Some(())
        }
        ["refreshes", algorithm, scope, count] => bearer::refreshes(algorithm, scope, count.parse().ok()?),
        ["signatures"] => {
            signatures::serve();
            Some(())
        }
        ["steps", calls, count] => {
            steps::logins(calls.parse().ok()?, count.parse().ok()?);
            Some(())
        }
        _ => None,
    }
}

fn budget_of(tag: &str) -> Option<BudgetState> {
    [BudgetState::Ample, BudgetState::Spent].into_iter().find(|budget| format!("{budget:?}") == tag)
}
