//! The bundled server, as a user runs it.

use std::process::Stdio;

use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

/// Runs until this value is dropped.
pub(crate) struct Server {
    pub(crate) origin: String,
    _child: Child,
    /// Kept open, so that it can go on printing.
    _lines: Lines<BufReader<ChildStdout>>,
}

impl Server {
    /// Builds it if it must be, and waits until it says where it listens.
    pub(crate) async fn start() -> Self {
        let mut child = Command::new(env!("CARGO"))
            .args(["run", "--quiet", "--example", "server", "--", "--listen", "127.0.0.1:0"])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .stdout(Stdio::piped())
            // cargo becomes the server where there is exec, and so ends with it
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next_line().await.unwrap().unwrap();
        let origin = first.strip_prefix("Listening on ").unwrap().split(". ").next().unwrap().to_owned();
        Self { origin, _child: child, _lines: lines }
    }
}
