//! The crates and the bytes that a limit adds to a program.

use std::{
    collections::BTreeSet,
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    report::{docs, figure, skipped},
    stats::Table,
};

/// A program with axum: its name, its dependencies, and the line that adds a limit to a router.
const PROGRAMS: [(&str, &str, &str); 3] = [
    ("axum alone", "", ""),
    (
        "tollgate, one limit per address",
        "tollgate = { path = \"ROOT\", default-features = false }",
        ".layer(tollgate::RateLimitLayer::new(tollgate::ClientIp::peer(), \
         tollgate::Limiter::memory(tollgate::Plans::new(tollgate::Quota::const_per_minute::<600>()))))",
    ),
    (
        "tower_governor, the same",
        "tower_governor = { version = \"0.8.0\", default-features = false, features = [\"axum\"] }",
        ".layer(tower_governor::GovernorLayer::new(std::sync::Arc::new(\
         tower_governor::governor::GovernorConfigBuilder::default().use_headers().finish().unwrap())))",
    ),
];

pub fn run() {
    println!("### Crates and bytes of a limit\n");
    println!(
        "A program with axum and tokio that answers one route, built with cargo's plain release profile and without \
         symbols, and the same program with a limit. The limiters have no optional features.\n"
    );
    let mut table = Table::new(["program", "crates", "more than axum", "binary, KiB", "more than axum"]);
    let mut base = None;
    for (name, dependency, layer) in PROGRAMS {
        let (crates, bytes) = match measure(name, dependency, layer) {
            Ok(measured) => measured,
            Err(error) => return skipped(&format!("{name}: {error}")),
        };
        let (fewest, least) = *base.get_or_insert((crates, bytes));
        let more = |value: u64, base: u64| if value == base { "–".to_owned() } else { (value - base).to_string() };
        table.row([
            name.to_owned(),
            crates.to_string(),
            more(crates, fewest),
            (bytes / 1024).to_string(),
            more(bytes / 1024, least / 1024),
        ]);
        figure(format!("size/{}/bytes", name.split(',').next().unwrap_or(name)), (bytes - least) as f64);
    }
    table.print();
}

/// Builds a program. Returns the number of its crates, and the bytes of its binary.
fn measure(name: &str, dependency: &str, layer: &str) -> io::Result<(u64, u64)> {
    let folder = folder().join(name.split([' ', ',']).next().unwrap_or(name));
    fs::create_dir_all(folder.join("src"))?;
    let root = docs::path("").canonicalize()?;
    fs::write(
        folder.join("Cargo.toml"),
        format!(
            "[package]\nname = \"size\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[profile.release]\nstrip = true\n\
             [dependencies]\naxum = {{ version = \"0.8.8\", default-features = false, features = [\"http1\", \"tokio\"] }}\n\
             tokio = {{ version = \"1.51\", features = [\"rt-multi-thread\", \"net\"] }}\n{}\n",
            dependency.replace("ROOT", &root.display().to_string())
        ),
    )?;
    // the versions that the project has tested
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
    fs::write(
        folder.join("src/main.rs"),
        format!(
            "fn main() {{\n    let app = axum::Router::new().route(\"/\", axum::routing::get(|| async {{ \"hello\" }})){layer};\n    \
             let service = app.into_make_service_with_connect_info::<std::net::SocketAddr>();\n    \
             let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();\n    \
             runtime.block_on(async {{\n        let listener = tokio::net::TcpListener::bind(\"127.0.0.1:0\").await.unwrap();\n        \
             axum::serve(listener, service).await.unwrap();\n    }});\n}}\n"
        ),
    )?;
    let tree = cargo(&folder, &["tree", "--edges", "normal", "--prefix", "none"])?;
    let crates: BTreeSet<&str> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    cargo(&folder, &["build", "--release"])?;
    let bytes = fs::metadata(folder.join("target/release/size"))?.len();
    // without the program itself
    Ok((crates.len() as u64 - 1, bytes))
}

fn folder() -> PathBuf {
    env::temp_dir().join("tollgate-bench-size")
}

fn cargo(folder: &Path, arguments: &[&str]) -> io::Result<String> {
    let output = Command::new("cargo")
        .args(arguments)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .stderr(Stdio::piped())
        .output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}
