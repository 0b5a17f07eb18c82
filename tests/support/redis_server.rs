//! Redis and Valkey servers and clusters on loopback. Each ends when its value is dropped.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
    time::Duration,
};

use super::programs::{missing, program};

#[path = "reserved_port.rs"]
mod reserved_port;

pub(crate) use reserved_port::ReservedPort;

/// The servers that are supported.
const PROGRAMS: [&str; 2] = [REDIS, "valkey-server"];
const REDIS: &str = "redis-server";

pub(crate) struct RedisServer {
    pub(crate) port: u16,
    program: &'static str,
    settings: Vec<String>,
    directory: PathBuf,
    child: Child,
    /// Also while the server is down.
    _port: ReservedPort,
}

impl RedisServer {
    /// Starts Redis with these further settings. Returns `None` if it is not installed.
    pub(crate) fn start(settings: &[&str]) -> Option<Self> {
        Self::start_program(REDIS, settings)
    }

    /// Starts Redis, and then Valkey, each when it is its turn.
    pub(crate) fn each(settings: &[&str]) -> impl Iterator<Item = Self> {
        PROGRAMS.into_iter().filter_map(|program| Self::start_program(program, settings))
    }

    fn start_program(name: &'static str, settings: &[&str]) -> Option<Self> {
        if program(&[name]).is_none() || program(&["redis-cli"]).is_none() {
            missing(&format!("{name} and redis-cli are not on PATH"));
            return None;
        }
        static SERVERS: AtomicU32 = AtomicU32::new(0);
        let directory = format!("tollgate-redis-{}-{}", std::process::id(), SERVERS.fetch_add(1, Relaxed));
        let directory = std::env::temp_dir().join(directory);
        fs::create_dir_all(&directory).unwrap();
        let settings: Vec<String> = settings.iter().map(|text| (*text).to_owned()).collect();
        // another program may take the port first, where it can't be reserved
        let started = (0..5).find_map(|_| {
            let port = reserve_port();
            spawn(name, port.number, &settings, &directory).map(|child| (port, child))
        });
        let (port, child) = started.expect("the server starts");
        Some(Self { port: port.number, program: name, settings, directory, child, _port: port })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Runs a command with redis-cli and returns what it prints.
    pub(crate) fn cli(&self, arguments: &[&str]) -> String {
        cli(&[&["-p", &self.port.to_string()], arguments].concat())
    }

    /// Sends SIGSTOP, SIGCONT or another signal.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, at the same port and in the same directory.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(self.program, self.port, &self.settings, &self.directory).expect("it starts again");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Three primaries without replicas.
pub(crate) struct RedisCluster(pub(crate) Vec<RedisServer>);

impl RedisCluster {
    pub(crate) fn start() -> Option<Self> {
        Self::start_program(REDIS)
    }

    /// Starts a cluster of Redis, and then one of Valkey, each when it is its turn.
    pub(crate) fn each() -> impl Iterator<Item = Self> {
        PROGRAMS.into_iter().filter_map(Self::start_program)
    }

    fn start_program(name: &'static str) -> Option<Self> {
        let settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "5000"];
        let nodes: Vec<RedisServer> = (0..3)
            .map(|_| {
                RedisServer::start_program(name, &[&settings[..], &["--cluster-require-full-coverage", "no"]].concat())
            })
            .collect::<Option<_>>()?;
        let addresses: Vec<String> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        cli(&[&["--cluster", "create"], &addresses[..], &["--cluster-yes"]].concat());
        for node in &nodes {
            let is_ready = || {
                let info = node.cli(&["cluster", "info"]);
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
            };
            wait_until(is_ready);
        }
        Some(Self(nodes))
    }

    /// Returns a URL that names the first node only.
    pub(crate) fn url(&self) -> String {
        format!("{}?cluster=true", self.0[0].url())
    }
}

/// Waits for another program.
pub(crate) fn wait_until(mut is_done: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if is_done() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("it takes more than 20 seconds");
}

fn cli(arguments: &[&str]) -> String {
    let output = Command::new("redis-cli").args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn reserve_port() -> ReservedPort {
    loop {
        let port = ReservedPort::new();
        // nodes of a cluster also use the port 10,000 above
        if port.number < 55_000 {
            return port;
        }
    }
}

fn spawn(program: &str, port: u16, settings: &[String], directory: &Path) -> Option<Child> {
    let mut child = Command::new(program)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--dir", directory.to_str().unwrap()])
        .args(settings)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let is_ready = lines.by_ref().any(|line| line.contains("Ready to accept connections"));
    // it must be able to go on printing
    thread::spawn(move || lines.for_each(drop));
    if !is_ready {
        child.wait().unwrap();
        return None;
    }
    Some(child)
}
