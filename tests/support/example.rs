//! The examples as programs.

use std::{
    net::SocketAddr,
    process::{Output, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use super::wire::Wire;

/// An example that runs until this value is dropped.
pub(crate) struct Example {
    pub(crate) child: Child,
    /// Kept open, so that it can go on printing.
    lines: Lines<BufReader<ChildStdout>>,
    /// The origin that it prints.
    pub(crate) origin: String,
    pub(crate) address: SocketAddr,
}

pub(crate) fn command(name: &str, arguments: &[&str]) -> Command {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples");
    path.push(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(path.exists(), "{} is not built: run `cargo build --examples` first", path.display());
    let mut command = Command::new(path);
    command.args(arguments).kill_on_drop(true);
    command
}

impl Example {
    /// Starts it, and waits until it prints its address.
    pub(crate) async fn start(name: &str, arguments: &[&str]) -> Self {
        Self::of(command(name, arguments)).await
    }

    /// Starts it by this command.
    pub(crate) async fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next_line().await.unwrap().unwrap();
        let (_, rest) = first.split_once("http://").unwrap();
        let host = rest.split(|c: char| !(c.is_ascii_alphanumeric() || ".:[]".contains(c))).next().unwrap();
        let address = host.replace("localhost", "127.0.0.1").parse().unwrap();
        Self { child, lines, origin: format!("http://{host}"), address }
    }

    pub(crate) async fn wire(&self) -> Wire {
        Wire::to(self.address).await
    }

    /// Returns the next line that it prints.
    pub(crate) async fn line(&mut self) -> String {
        self.lines.next_line().await.unwrap().unwrap()
    }
}

/// Runs it to its end.
pub(crate) async fn run(name: &str, arguments: &[&str]) -> Output {
    let ends = tokio::time::timeout(Duration::from_secs(60), command(name, arguments).output());
    ends.await.unwrap_or_else(|_| panic!("{name} {arguments:?} goes on")).unwrap()
}
