//! All benchmarks: `cargo bench -p tollgate-bench`. Names such as `-- layer threads` select some of the sections. `-- --write`
//! writes the tables into the documents, and `-- --quick` tries everything out with few rounds.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the machine's clock")]

use std::{
    env, fs, io, panic,
    path::Path,
    process::{self, ExitCode},
    time::Instant,
};

use tollgate_bench::{
    machine,
    report::{self, Report, budgets, chart, docs, summary},
    sections::{ALL, Programs},
};

const CHART: &str = "docs/benchmarks.svg";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let Some(name) = arguments.iter().find_map(|word| word.strip_prefix(report::SECTION)) {
        return run_section(name);
    }
    let (options, wanted): (Vec<String>, Vec<String>) = arguments.into_iter().partition(|word| word.starts_with('-'));
    let (mut writes, mut is_quick) = (false, false);
    for option in options {
        match option.as_str() {
            "--write" => writes = true,
            "--quick" => is_quick = true,
            // cargo adds it
            "--bench" => {}
            _ => return wrong(&format!("unknown option {option}")),
        }
    }
    if let Some(name) = wanted.iter().find(|word| ALL.iter().all(|(name, _)| name != word)) {
        return wrong(&format!("unknown section {name}"));
    }
    if writes && is_quick {
        return wrong("the figures of a quick run mean nothing, so they are not written");
    }
    match run(&wanted, writes, is_quick) {
        Ok(code) => code,
        Err(error) => wrong(&error.to_string()),
    }
}

fn wrong(what: &str) -> ExitCode {
    let names: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
    eprintln!(
        "{what}\nusage: cargo bench -p tollgate-bench [-- [--quick | --write] [SECTION …]]\nsections: {}",
        names.join(" ")
    );
    ExitCode::FAILURE
}

/// Runs in a child: one section.
fn run_section(name: &str) -> ExitCode {
    // a thread that panics must not leave the others waiting
    panic::set_hook(Box::new(|info| {
        eprintln!("{info}");
        process::exit(101);
    }));
    let Some((_, section)) = ALL.iter().find(|(own, _)| *own == name) else { return ExitCode::FAILURE };
    section(&Programs { one: Path::new(env!("CARGO_BIN_EXE_one")), server: Path::new(env!("CARGO_BIN_EXE_server")) });
    ExitCode::SUCCESS
}

fn run(wanted: &[String], writes: bool, is_quick: bool) -> io::Result<ExitCode> {
    let (began, mut report, mut code) = (Instant::now(), Report::default(), ExitCode::SUCCESS);
    let machine = machine::describe();
    println!("{machine}\n");
    for (name, _) in ALL {
        if (wanted.is_empty() || wanted.iter().any(|word| word == name))
            && let Err(error) = report.run(name, is_quick)
        {
            eprintln!("the section {name} failed: {error}\n");
            code = ExitCode::FAILURE;
        }
    }
    let budgets = budgets::table(&report.figures);
    println!("### Budgets\n\n{budgets}\n");
    let summary = summary::table(&report.figures);
    match &summary {
        Ok(summary) => println!("### Summary\n\n{summary}\n"),
        Err(missing) => eprintln!("no summary, because {missing} was not measured"),
    }
    for broken in summary::broken_claims(&report.figures) {
        eprintln!("{broken}");
        code = if is_quick { code } else { ExitCode::FAILURE };
    }
    eprintln!("{} s in all", began.elapsed().as_secs());
    if writes {
        for section in report.sections.iter().filter(|section| section.is_complete) {
            docs::write("BENCHMARKS.md", section.name, &section.text)?;
        }
        // figures of several runs are not mixed
        match (summary, chart::svg(&report.figures)) {
            (Ok(summary), Ok(chart)) if wanted.is_empty() => {
                docs::write("BENCHMARKS.md", "machine", &machine)?;
                docs::write("docs/budgets.md", "budgets", &budgets)?;
                fs::write(docs::path(CHART), chart)?;
                docs::write(
                    "BENCHMARKS.md",
                    "summary",
                    &format!("{summary}\n![Nanoseconds of an admitted call]({CHART})"),
                )?;
                docs::write("README.md", "benchmarks", &summary::claims())?;
            }
            _ => eprintln!("The budgets, the summary and the chart were not written, because they need all sections."),
        }
    }
    Ok(code)
}
