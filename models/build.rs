//! Copies the sources that are modelled. The copies use a semaphore on loom.
//! Each copy that is named after a fault is weakened in one place, which a model must notice.
#![allow(clippy::unwrap_used, reason = "a build may fail")]

use std::{env, fs, path::Path};

/// A name and the changes of a copy.
type Copy<'a> = (&'a str, &'a [(&'a str, &'a str)]);

const SLOTS: &[Copy<'_>] = &[
    ("slot", &[]),
    ("slot_that_takes_every_reply", &[("let is_current = self", "let is_current = true || self")]),
    ("slot_that_ends_no_wait_after_a_reply", &[("Some(_) => call.end.0.close(),", "Some(_) => {}")]),
    ("slot_that_ends_no_wait_without_a_reply", &[("None => call.end.0.add_permits(1),", "None => {}")]),
];

fn main() {
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
