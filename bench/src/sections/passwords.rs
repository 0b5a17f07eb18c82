//! The cost of a hash, and the memory that stays in use after a burst of them.

use std::{path::Path, process::Command, sync::Arc, time::Instant};

use argon2::{Argon2, Block, Params};
use tokio::{runtime, task::JoinSet};
use tollgate::{Password, Passwords};

use crate::{
    machine,
    report::figure,
    stats::{Table, by_round, median, ratio},
};

const ROUNDS: usize = 60;
const CHECKS: usize = 200;
const PASSWORD: &str = "correct horse battery staple";

type Timed = Box<dyn FnMut()>;

pub fn run(one: &Path) {
    println!("### Passwords\n");
    println!(
        "argon2id at the default cost (19456 KiB, two passes), medians of {ROUNDS} interleaved rounds on one \
         thread. `Passwords` includes the change of threads.\n"
    );
    let mut table = Table::new(["subject", "µs a hash", "÷ argon2 alone"]);
    let mut all: [(&str, Timed, Vec<f64>); 3] = [
        ("argon2 alone, with memory that is reused", alone(true), Vec::new()),
        ("argon2 alone, with new memory for each", alone(false), Vec::new()),
        ("tollgate, Passwords", ours(), Vec::new()),
    ];
    for _ in 0..ROUNDS {
        for (_, hash, times) in &mut all {
            let began = Instant::now();
            hash();
            times.push(began.elapsed().as_nanos() as f64 / 1e3);
        }
    }
    for (name, _, times) in &all {
        let by = by_round(times, &all[0].2, |own, alone| own / alone);
        table.row([(*name).to_owned(), format!("{:.0}", median(times)), ratio(by)]);
    }
    table.print();
    println!(
        "Resident memory of a process with `Passwords` and its defaults, {} cores, before and after {CHECKS} \
         checks.\n",
        machine::cores()
    );
    let mut table = Table::new(["at once", "before, MB", "after, MB"]);
    for at_once in ["1", "16", "64"] {
        let output = Command::new(one).args(["passwords", at_once]).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let mut figures = text.split_whitespace();
        let [before, after] = [(); 2].map(|()| figures.next().unwrap_or("failed").to_owned());
        figure(format!("passwords/{at_once}/resident"), after.parse().unwrap_or(f64::NAN));
        table.row([at_once.to_owned(), before, after]);
    }
    table.print();
}

fn alone(reuses: bool) -> Timed {
    let argon2 = Argon2::from(Params::DEFAULT);
    let blocks = argon2.params().block_count();
    let mut kept = vec![Block::new(); blocks];
    Box::new(move || {
        let mut output = [0; 32];
        let mut new = if reuses { Vec::new() } else { vec![Block::new(); blocks] };
        let memory = if reuses { &mut kept } else { &mut new };
        let done = argon2.hash_password_into_with_memory(PASSWORD.as_bytes(), &[7; 16], &mut output, memory);
        assert!(done.is_ok());
    })
}

fn ours() -> Timed {
    let runtime = runtime::Builder::new_current_thread().build().expect("the runtime starts");
    let passwords = Passwords::new();
    Box::new(move || assert!(runtime.block_on(passwords.hash(Password::new(PASSWORD))).is_ok()))
}

/// Runs in the child: prints the resident memory before and after a burst.
pub fn burst(at_once: usize) {
    let runtime = runtime::Runtime::new().expect("the runtime starts");
    let megabytes = || machine::resident() as f64 / 1e6;
    let (before, passwords) = (megabytes(), Passwords::new());
    runtime.block_on(async {
        let turns = Arc::new(tokio::sync::Semaphore::new(at_once));
        let mut checks = JoinSet::new();
        for _ in 0..CHECKS {
            let (turns, passwords) = (Arc::clone(&turns), passwords.clone());
            checks.spawn(async move {
                let _turn = turns.acquire().await;
                passwords.verify(Password::new(PASSWORD), None).await.is_ok()
            });
        }
        assert!(checks.join_all().await.into_iter().all(|good| good));
    });
    println!("{before:.0} {:.0}", megabytes());
}
