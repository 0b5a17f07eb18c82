//! The bundled server, as a user runs it.

#![allow(dead_code, reason = "each test uses only a part of it")]

#[path = "../../../tests/support/reserved_port.rs"]
pub(crate) mod reserved_port;

use std::{fs, process::Stdio};

use reserved_port::ReservedPort;

use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

/// A running server, stopped on drop.
pub(crate) struct Server {
    pub(crate) issuer: String,
    _child: Child,
    /// Kept open so that it can continue to print.
    _lines: Lines<BufReader<ChildStdout>>,
    _port: Option<ReservedPort>,
}

impl Server {
    /// Starts the server with its demo.
    pub(crate) async fn start() -> Self {
        let (child, lines, first) = run(&["--listen", "localhost:0"]).await;
        let issuer = first.strip_prefix("Listening on ").unwrap().to_owned();
        Self { issuer, _child: child, _lines: lines, _port: None }
    }

    /// Starts the server with the clients of `shared.toml`, below a path.
    pub(crate) async fn shared() -> Self {
        Self::with_client("").await
    }

    /// Starts the server with the clients of `shared.toml` and another one.
    pub(crate) async fn with_client(client: &str) -> Self {
        let port = ReservedPort::new();
        let listen = format!("127.0.0.1:{}", port.number);
        let issuer = format!("http://{listen}/auth");
        let file = std::env::temp_dir().join(format!("tollgate-interop-{}-{listen}.toml", std::process::id()));
        let settings = format!("issuer = \"{issuer}\"\n{}{client}", include_str!("../../shared.toml"));
        fs::write(&file, settings).unwrap();
        let (child, lines, _) = run(&["--listen", &listen, "--config", file.to_str().unwrap()]).await;
        fs::remove_file(file).unwrap();
        Self { issuer, _child: child, _lines: lines, _port: Some(port) }
    }
}

/// Builds the server if needed, starts it, and waits until it prints its address.
async fn run(arguments: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>, String) {
    let mut child = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--example", "server", "--"])
        .args(arguments)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stdout(Stdio::piped())
        // on Unix, cargo replaces itself with the server, so killing it is enough
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next_line().await.unwrap().unwrap();
    (child, lines, first)
}
