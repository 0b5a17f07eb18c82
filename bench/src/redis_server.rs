//! A redis-server on loopback, which ends with its value.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    ops::Sub,
    process::{Child, Command, Stdio},
    thread,
};

use redis::{aio::MultiplexedConnection, cmd};

use crate::machine;

/// A server without persistence, on the first core if there are several.
pub struct RedisServer {
    pub port: u16,
    process: Child,
}

impl RedisServer {
    /// Starts a server. Returns `None` if it is not installed.
    pub fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        let mut command = Command::new("redis-server");
        if machine::cores() > 1 {
            command = Command::new("taskset");
            command.args(["-c", "0", "redis-server"]);
        }
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let mut lines = BufReader::new(process.stdout.take()?).lines().map_while(Result::ok);
        let is_ready = lines.by_ref().any(|line| line.contains("Ready to accept connections"));
        // it must be able to go on printing
        thread::spawn(move || lines.for_each(drop));
        is_ready.then_some(Self { port, process })
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Connects like the limiter does.
    pub async fn connect(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.url()).expect("a valid URL");
        let settings = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024);
        client.get_multiplexed_async_connection_with_config(&settings).await.expect("the server answers")
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection that reads the counters of the server.
#[derive(Clone)]
pub struct Watch(pub MultiplexedConnection);

/// The work of the server so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    pub scripts: f64,
    /// The time that scripts took, in microseconds.
    pub micros: f64,
    /// Reads of rows of the store.
    pub reads: f64,
}

impl Watch {
    pub async fn work(&mut self) -> Work {
        let info: String = cmd("INFO").arg("commandstats").query_async(&mut self.0).await.expect("the server answers");
        let figure = |command: &str, name: &str| {
            let line = info.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")))?;
            let (_, after) = line.split_once(&format!("{name}="))?;
            after.split(',').next()?.parse().ok()
        };
        let figure = |command, name| figure(command, name).unwrap_or(0.0);
        Work { scripts: figure("evalsha", "calls"), micros: figure("evalsha", "usec"), reads: figure("mget", "calls") }
    }
}

impl Sub for Work {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            scripts: self.scripts - before.scripts,
            micros: self.micros - before.micros,
            reads: self.reads - before.reads,
        }
    }
}
