//! External programs that some tests need. If one is missing, the test prints a message and is
//! skipped, or fails if `TOLLGATE_REQUIRE_SERVICES` is set.

use std::{env, path::PathBuf};

/// Returns the path of the first of these programs that is on PATH.
pub(crate) fn program(names: &[&str]) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .flat_map(|directory| names.iter().map(move |name| directory.join(name)))
        .find(|program| program.is_file())
}

/// Reports that a test is skipped because something is missing. Fails if that is not allowed.
pub(crate) fn missing(what: &str) {
    assert!(env::var_os("TOLLGATE_REQUIRE_SERVICES").is_none(), "{what}");
    eprintln!("skipped: {what}");
}
