//! A test program that runs itself again as other processes.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    pin::pin,
    process::Stdio,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

/// Begins the lines that a process prints for the program that started it.
const MARK: &str = "@@ ";

/// The patience of a busy machine: half a minute, in steps. No request takes longer.
const STEP: Duration = Duration::from_millis(100);
const STEPS: usize = 300;

/// Waits for at most half a minute. If the whole machine pauses, that counts as one step. Returns `None` if it takes longer.
pub(crate) async fn patiently<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    for _ in 0..STEPS {
        if let Ok(done) = timeout(STEP, &mut work).await {
            return Some(done);
        }
    }
    None
}

/// A process that runs one ignored test of this program. It is killed when this value is dropped.
pub(crate) struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Open as long as this program runs.
    _parent: ChildStdin,
}

impl Process {
    /// Starts the test with these environment variables.
    pub(crate) fn start(test: &str, variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", test, "--nocapture"])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let stdin = child.stdin.take().unwrap();
        Self { child, lines, _parent: stdin }
    }

    /// Returns the next line that it prints with [`say`], or `None` after its end.
    pub(crate) async fn line(&mut self) -> Option<String> {
        loop {
            let line = self.lines.next_line().await.unwrap()?;
            if let Some((_, line)) = line.split_once(MARK) {
                return Some(line.to_owned());
            }
        }
    }

    /// Sends SIGSTOP, SIGCONT or another signal.
    pub(crate) fn signal(&self, name: &str) {
        let process = self.child.id().unwrap().to_string();
        assert!(std::process::Command::new("kill").args([&format!("-{name}"), &process]).status().unwrap().success());
    }

    /// Ends it with SIGKILL.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }
}

/// Prints a line for the program that started this process.
pub(crate) fn say(line: &str) {
    println!("{MARK}{line}");
}

/// Ends this process together with the program that started it.
pub(crate) fn end_with_parent() {
    std::thread::spawn(|| {
        _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
}

/// Describes the sockets of a port on loopback and the processes that listen there, as far as the system tells.
pub(crate) fn describe_port(port: u16) -> String {
    let (port, sockets) = (format!(":{port:04X}"), read(Path::new("/proc/net/tcp")));
    let (mut text, mut listening) = ("Sockets (local, remote, state, queues):\n".to_owned(), Vec::new());
    for line in sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()) {
        if line.len() > 9 && (line[1].ends_with(&port) || line[2].ends_with(&port)) {
            text += &format!("{}\n", line[1..5].join(" "));
            if line[3] == "0A" {
                listening.push(PathBuf::from(format!("socket:[{}]", line[9])));
            }
        }
    }
    let holds = |process: &PathBuf| {
        files_of(&process.join("fd")).any(|file| fs::read_link(file).is_ok_and(|to| listening.contains(&to)))
    };
    for process in files_of(Path::new("/proc")).filter(holds) {
        text += &format!("{} runs {:?}\n", process.display(), read(&process.join("cmdline")));
        for thread in files_of(&process.join("task")) {
            let state: Vec<_> = read(&thread.join("stat")).split(' ').take(3).map(str::to_owned).collect();
            text += &format!("  {}, in {}\n", state.join(" "), read(&thread.join("wchan")));
        }
    }
    text
}

fn files_of(directory: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
