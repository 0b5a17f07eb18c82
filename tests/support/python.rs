//! Python servers that some tests need. The scripts are in this folder.

use std::{
    process::{self, Stdio},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use super::programs::{missing, program};

pub(crate) struct PythonServer {
    /// Killed on drop.
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    pub(crate) port: u16,
}

impl PythonServer {
    /// Starts a script. Returns `None` if there is no Python with this module.
    pub(crate) async fn start(name: &str, module: &str, arguments: &[&str]) -> Option<Self> {
        let has_it = |python: &std::path::PathBuf| {
            let mut import = process::Command::new(python);
            import.args(["-c", &format!("import {module}")]).stderr(Stdio::null());
            import.status().is_ok_and(|status| status.success())
        };
        let Some(python) = program(&["python3"]).filter(has_it) else {
            missing(&format!("there is no python3 with {module} on PATH"));
            return None;
        };
        let mut child = Command::new(python)
            .arg(format!("{}/tests/support/{name}", env!("CARGO_MANIFEST_DIR")))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut server = Self { _child: child, lines, port: 0 };
        server.port = server.next().await.get("port").unwrap().as_u64().unwrap().try_into().unwrap();
        Some(server)
    }

    /// Returns the next line that it prints.
    pub(crate) async fn next(&mut self) -> Value {
        let line = timeout(Duration::from_secs(60), self.lines.next_line()).await;
        serde_json::from_str(&line.expect("no output").unwrap().unwrap()).unwrap()
    }
}
