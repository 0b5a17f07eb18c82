//! The crates that users of this one have to build.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::process::Command;

/// Returns the crates that users of these features build, for any platform.
fn crates(features: &[&str]) -> Vec<String> {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command.args(["tree", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{lib}"]).args(features);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a20_rate_limits_alone_need_no_json_library_and_no_procedural_macros() {
    let with_json = |features: &[&str]| {
        let all = crates(features);
        assert!(all.iter().any(|name| name == "dashmap"), "{all:?}");
        ["serde", "serde_json", "serde_derive", "syn"].iter().any(|name| all.iter().any(|own| own == name))
    };
    assert!(!with_json(&["--no-default-features"]));
    assert!(!with_json(&["--no-default-features", "--features", "smooth,tracing,metrics"]));
    // sessions are stored as JSON
    assert!(with_json(&[]) && with_json(&["--no-default-features", "--features", "session"]));
}

#[test]
fn drivers_of_databases_stay_in_their_own_package() {
    let all = crates(&["--all-features"]);
    for driver in ["sqlx", "sqlx_core", "sqlx_postgres", "sqlx_sqlite", "libsqlite3_sys", "tollgate_sqlx"] {
        assert!(!all.iter().any(|name| name == driver), "{driver}");
    }
}
