//! Copies the sources that are modelled. The copies use the atomic types of loom, fewer slots, and a semaphore on loom.
//! Each copy that is named after a fault is weakened in one place, which a model must notice.
#![allow(clippy::unwrap_used, reason = "a build may fail")]

use std::{env, fs, path::Path};

/// A name and the changes of a copy.
type Copy<'a> = (&'a str, &'a [(&'a str, &'a str)]);

const ON_LOOM: &[(&str, &str)] = &[
    ("use std::sync::atomic::", "use loom::sync::atomic::"),
    ("std::hint::spin_loop", "loom::hint::spin_loop"),
    ("const SLOTS: usize = 512;", "const SLOTS: usize = 2;"),
    ("const GROUP: usize = 4;", "const GROUP: usize = 2;"),
    ("[AtomicU64; SLOTS / 64]", "[AtomicU64; 1]"),
];

const CLAIM: &str = "self.version.compare_exchange(version, version + 1, Acquire, Relaxed).is_err()";

const BOARDS: &[Copy<'_>] = &[
    ("board", &[]),
    ("board_without_the_fence_of_readers", &[("fence(Acquire);", "")]),
    ("board_without_the_fence_of_writers", &[("fence(Release);", "")]),
    (
        "board_with_a_relaxed_end_of_writing",
        &[("self.version.store(version + 2, Release)", "self.version.store(version + 2, Relaxed)")],
    ),
    ("board_with_a_relaxed_begin_of_reading", &[("self.version.load(Acquire)", "self.version.load(Relaxed)")]),
    ("board_without_a_second_look_at_the_version", &[("self.version.load(Relaxed) != before || ", "")]),
    ("board_that_reads_while_it_is_written", &[("if before % 2 == 1 {", "if false {")]),
    ("board_that_two_can_write", &[(CLAIM, "{ self.version.store(version + 1, Relaxed); false }")]),
    (
        "board_that_clears_the_home_alone",
        &[("for slot in self.group(first_hash) {", "for slot in self.group(first_hash).take(1) {")],
    ),
];

const SLOTS: &[Copy<'_>] = &[
    ("slot", &[]),
    ("slot_that_takes_every_reply", &[("let is_current = self", "let is_current = true || self")]),
    ("slot_that_ends_no_wait_after_a_reply", &[("Some(_) => call.end.0.close(),", "Some(_) => {}")]),
    ("slot_that_ends_no_wait_without_a_reply", &[("None => call.end.0.add_permits(1),", "None => {}")]),
];

fn main() {
    copy("limit/engine/board.rs", ON_LOOM, BOARDS);
    copy("limit/shared/lease/slot.rs", &[("use tokio::sync::Semaphore;", "use tollgate_models::Semaphore;")], SLOTS);
    copy("limit/shared/lease/slots.rs", &[], &[("slots", &[])]);
}

fn copy(source: &str, changes: &[(&str, &str)], copies: &[Copy<'_>]) {
    let path = Path::new("../src").join(source);
    println!("cargo::rerun-if-changed={}", path.display());
    let text = fs::read_to_string(&path).unwrap();
    // a copy is included, where a file has no documentation of its own
    let text = text.replace("//!", "//");
    let text = text.split("#[cfg(test)]").next().unwrap();
    let text = changed(text.to_owned(), changes);
    for (name, faults) in copies {
        let target = Path::new(&env::var_os("OUT_DIR").unwrap()).join(format!("{name}.rs"));
        fs::write(target, changed(text.clone(), faults)).unwrap();
    }
}

fn changed(text: String, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text, |text, (old, new)| {
        assert_eq!(text.matches(old).count(), 1, "change this model, too: {old}");
        text.replace(old, new)
    })
}
