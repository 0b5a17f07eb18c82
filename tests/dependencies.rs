//! The crates that users of this one have to build.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may panic")]

use std::{fs, process::Command};

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

fn manifest(path: &str) -> toml::Table {
    fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap().parse().unwrap()
}

#[test]
fn the_lean_package_is_built_like_tollgate() {
    let (own, lean) = (manifest("Cargo.toml"), manifest("lean/Cargo.toml"));
    for table in ["features", "dependencies"] {
        let (own, lean) = (own[table].as_table().unwrap(), lean[table].as_table().unwrap());
        for (name, value) in lean {
            assert_eq!(Some(value), own.get(name), "{table}: {name}");
        }
        for (name, value) in own.iter().filter(|_| table == "dependencies") {
            let is_optional = value.get("optional").is_some();
            assert!(is_optional || lean.contains_key(name), "{name} is missing in lean/Cargo.toml");
        }
    }
}

#[test]
fn every_example_is_in_one_package() {
    let mut listed = Vec::new();
    for path in ["Cargo.toml", "interop/mcp/Cargo.toml", "lean/examples/Cargo.toml"] {
        let examples = manifest(path)["example"].as_array().unwrap().clone();
        listed.extend(examples.iter().map(|example| example["name"].as_str().unwrap().to_owned()));
    }
    listed.sort();
    let files = fs::read_dir(format!("{}/examples", env!("CARGO_MANIFEST_DIR"))).unwrap().map(|it| it.unwrap().path());
    let programs = files.filter(|path| path.is_dir() || path.extension().is_some_and(|extension| extension == "rs"));
    let mut programs: Vec<_> = programs.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    programs.sort();
    assert_eq!(listed, programs);
}

#[test]
fn drivers_of_databases_stay_in_their_own_package() {
    let all = crates(&["--all-features"]);
    for driver in ["sqlx", "sqlx_core", "sqlx_postgres", "sqlx_sqlite", "libsqlite3_sys", "tollgate_sqlx"] {
        assert!(!all.iter().any(|name| name == driver), "{driver}");
    }
}
