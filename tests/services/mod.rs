//! Programs that some tests need. Where one is missing, a test says so and is skipped, or fails if
//! `TOLLGATE_REQUIRE_SERVICES` is set.

use std::{env, path::PathBuf};

/// The first of these programs that is on PATH.
pub(crate) fn program(names: &[&str]) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .flat_map(|directory| names.iter().map(move |name| directory.join(name)))
        .find(|program| program.is_file())
}

/// Says that a test is skipped for want of this; fails where that must not be.
pub(crate) fn missing(what: &str) {
    assert!(env::var_os("TOLLGATE_REQUIRE_SERVICES").is_none(), "{what}");
    eprintln!("skipped: {what}");
}
