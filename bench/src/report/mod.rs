//! Collects the tables and the figures of all sections. Each section runs in a process of its own, so that none inherits
//! the heap of another.

pub mod budgets;
pub mod chart;
pub mod docs;
pub mod summary;

use std::{
    collections::BTreeMap,
    env,
    io::{self, BufRead, BufReader},
    process::{Command, Stdio},
    time::Instant,
};

const FIGURE: &str = "@figure ";
const SKIPPED: &str = "@skipped";
const QUICK: &str = "TOLLGATE_BENCH_QUICK";
/// The argument with which the benchmark starts itself for one section.
pub const SECTION: &str = "--section=";

/// Passes a figure of a section to the budgets, the summary and the chart.
pub fn figure(name: impl AsRef<str>, value: f64) {
    println!("{FIGURE}{} {value}", name.as_ref());
}

/// Prints that this section needs something that is missing. Its tables in the documents stay as they are.
pub fn skipped(reason: &str) {
    println!("**skipped: {reason}**\n{SKIPPED}\n");
}

/// Returns whether this run only tries out the benchmark: few rounds, and fewer tenants than a million.
pub fn is_quick() -> bool {
    env::var_os(QUICK).is_some()
}

/// Returns the first value, or the second one in a quick run.
pub fn unless_quick<T>(value: T, quick: T) -> T {
    if is_quick() { quick } else { value }
}

/// The figures of a run by their names.
#[derive(Default)]
pub struct Figures(BTreeMap<String, f64>);

impl Figures {
    /// Returns a figure, or NaN if no section has measured it.
    pub fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(f64::NAN)
    }

    pub fn set(&mut self, name: &str, value: f64) {
        self.0.insert(name.to_owned(), value);
    }
}

/// A section that has run.
pub struct Section {
    pub name: &'static str,
    /// The printed text, in Markdown.
    pub text: String,
    pub is_complete: bool,
}

/// The results of a run.
#[derive(Default)]
pub struct Report {
    pub figures: Figures,
    pub sections: Vec<Section>,
}

impl Report {
    /// Runs a section and shows what it prints.
    ///
    /// # Errors
    ///
    /// The section can't be started or ends with an error.
    pub fn run(&mut self, name: &'static str, is_quick: bool) -> io::Result<()> {
        let began = Instant::now();
        let mut command = Command::new(env::current_exe()?);
        if is_quick {
            command.env(QUICK, "1");
        }
        let mut child = command.arg(format!("{SECTION}{name}")).stdout(Stdio::piped()).spawn()?;
        let mut section = Section { name, text: String::new(), is_complete: true };
        for line in child.stdout.take().into_iter().flat_map(|output| BufReader::new(output).lines()) {
            let line = line?;
            if let Some((name, value)) = line.strip_prefix(FIGURE).and_then(|figure| figure.rsplit_once(' ')) {
                self.figures.set(name, value.parse().unwrap_or(f64::NAN));
            } else if line == SKIPPED {
                section.is_complete = false;
            } else {
                println!("{line}");
                section.text.push_str(&line);
                section.text.push('\n');
            }
        }
        let status = child.wait()?;
        if !status.success() {
            return Err(io::Error::other(status.to_string()));
        }
        eprintln!("({name}: {} s)\n", began.elapsed().as_secs());
        self.sections.push(section);
        Ok(())
    }
}
