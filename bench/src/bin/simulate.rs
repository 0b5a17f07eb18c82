//! Simulates a thousand nodes: `cargo run --release -p tollgate-bench --bin simulate -- --seed 1`. Fails if the engine admitted
//! more than the limit.

use std::{env, process::ExitCode};

use tollgate_bench::simulation::{Scale, run};

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let mut seed = 1;
    while let Some(name) = arguments.next() {
        match (name.as_str(), arguments.next().and_then(|value| value.parse().ok())) {
            ("--seed", Some(value)) => seed = value,
            _ => {
                eprintln!("usage: simulate [--seed NUMBER]");
                return ExitCode::FAILURE;
            }
        }
    }
    match run(&Scale::internet(seed)) {
        0 => ExitCode::SUCCESS,
        over => {
            eprintln!("{over} units were admitted beyond the limit");
            ExitCode::FAILURE
        }
    }
}
