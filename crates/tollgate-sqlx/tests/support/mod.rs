//! A PostgreSQL cluster of its own for each test, in a temporary folder. It ends when its value is dropped.

#![allow(dead_code, reason = "each test program uses only some of the helpers")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
    time::Duration,
};

use tokio::time::Instant;

#[path = "../../../../tests/support/reserved_port.rs"]
pub(crate) mod reserved_port;

use reserved_port::ReservedPort;

pub(crate) struct Cluster {
    pub(crate) port: u16,
    directory: PathBuf,
    settings: Vec<String>,
    child: Child,
    /// Also while the server is down.
    _port: ReservedPort,
}

impl Cluster {
    /// Creates and starts a cluster. Returns `None` if PostgreSQL is not installed.
    pub(crate) fn start(settings: &[&str]) -> Option<Self> {
        if ["initdb", "postgres", "pg_isready", "psql"].into_iter().any(|name| program(name).is_none()) {
            missing("PostgreSQL is not installed, or not in the folder of TOLLGATE_POSTGRES");
            return None;
        }
        let options = ["--username=app", "--auth=trust", "--encoding=UTF8", "--locale=C"];
        Some(Self::made(settings.iter().map(|&text| text.to_owned()).collect(), ("initdb", &options)))
    }

    /// Starts a replica that follows this cluster.
    pub(crate) fn replica(&self) -> Self {
        let port = self.port.to_string();
        let options = ["-h", "127.0.0.1", "-p", &port, "-U", "app", "-R", "--checkpoint=fast"];
        Self::made(self.settings.clone(), ("pg_basebackup", &options))
    }

    /// Creates the data with this program, and starts a server on it.
    fn made(settings: Vec<String>, (name, options): (&str, &[&str])) -> Self {
        let directory = temporary("postgres");
        fs::create_dir_all(&directory).unwrap();
        if is_root() {
            assert!(Command::new("chown").arg("postgres").arg(&directory).status().unwrap().success());
        }
        let mut create = command(name);
        create.args(options).args(["--no-sync", "-D"]).arg(directory.join("data"));
        let created = create.current_dir(&directory).stdout(Stdio::null()).status();
        assert!(created.unwrap().success(), "{name}");
        let port = ReservedPort::new();
        let child = spawn(&directory, port.number, &settings);
        let cluster = Self { port: port.number, directory, settings, child, _port: port };
        cluster.wait();
        cluster
    }

    /// The URL of a database.
    pub(crate) fn url(&self) -> String {
        format!("postgres://app@127.0.0.1:{}/postgres", self.port)
    }

    /// The URL of an empty schema, in which tables are created.
    pub(crate) fn schema(&self) -> String {
        static SCHEMAS: AtomicU32 = AtomicU32::new(0);
        let name = format!("schema_{}", SCHEMAS.fetch_add(1, Relaxed));
        self.sql(&format!("create schema {name}"));
        format!("{}?options[search_path]={name}", self.url())
    }

    /// Runs SQL with psql and returns what it prints.
    pub(crate) fn sql(&self, sql: &str) -> String {
        let port = self.port.to_string();
        let arguments = ["-h", "127.0.0.1", "-p", &port, "-U", "app", "-d", "postgres", "-XAtq", "-c", sql];
        let mut psql = Command::new(program("psql").unwrap());
        let output = psql.env("PGOPTIONS", "-c default_transaction_read_only=off").args(arguments).output().unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Returns what the server has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap()
    }

    /// Ends all of its processes with SIGKILL, as a crash of the machine would.
    pub(crate) fn kill(&mut self) {
        let postmaster = self.child.id().to_string();
        // stopped, it neither starts other processes nor lets go of those that end
        assert!(Command::new("kill").args(["-STOP", &postmaster]).status().unwrap().success());
        let children = Command::new("pgrep").args(["-P", &postmaster]).output().unwrap();
        let children = String::from_utf8(children.stdout).unwrap();
        let mut all = vec![postmaster];
        all.extend(children.lines().map(str::to_owned));
        assert!(Command::new("kill").arg("-9").args(&all).status().unwrap().success());
        self.child.wait().unwrap();
    }

    /// Starts it again, at the same port and with its data.
    pub(crate) fn restart(&mut self) {
        let _ = fs::remove_file(self.directory.join("data/postmaster.pid"));
        self.child = spawn(&self.directory, self.port, &self.settings);
        self.wait();
    }

    fn wait(&self) {
        let port = self.port.to_string();
        let end = Instant::now() + Duration::from_secs(60);
        let arguments = ["-h", "127.0.0.1", "-p", &port, "-U", "app", "-q"];
        let is_ready = program("pg_isready").unwrap();
        while !Command::new(&is_ready).args(arguments).status().unwrap().success() {
            assert!(Instant::now() < end, "PostgreSQL does not start");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SIGINT: a fast shutdown
        let _ = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Reports that a test is skipped because something is missing. Fails if that is not allowed.
fn missing(what: &str) {
    assert!(env::var_os("TOLLGATE_REQUIRE_SERVICES").is_none(), "{what}");
    eprintln!("skipped: {what}");
}

/// Returns a path that no other test uses.
pub(crate) fn temporary(name: &str) -> PathBuf {
    static PATHS: AtomicU32 = AtomicU32::new(0);
    env::temp_dir().join(format!("tollgate-{name}-{}-{}", std::process::id(), PATHS.fetch_add(1, Relaxed)))
}

/// Finds a program of PostgreSQL: in the folder of TOLLGATE_POSTGRES, next to an `initdb` on PATH, or where distributions
/// keep them, out of PATH. The folder may have the server alone, of another version than the other programs.
fn program(name: &str) -> Option<PathBuf> {
    let chosen = env::var_os("TOLLGATE_POSTGRES").map(PathBuf::from);
    if let Some(folder) = chosen.as_ref()
        && ["initdb", "postgres"].contains(&name)
    {
        return Some(folder.join(name)).filter(|path| path.is_file());
    }
    let on_path = env::var_os("PATH").into_iter().flat_map(|path| env::split_paths(&path).collect::<Vec<_>>());
    let on_path = on_path.filter(|folder| folder.join("initdb").is_file());
    let mut versions: Vec<_> = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().collect();
    versions.sort_by_key(|version| std::cmp::Reverse(version.file_name()));
    let folders = chosen.into_iter().chain(on_path).chain(versions.iter().map(|version| version.path().join("bin")));
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

/// PostgreSQL refuses to run as root, so root runs it as the user that its package has made.
fn command(name: &str) -> Command {
    let program = program(name).unwrap();
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command
}

fn spawn(directory: &Path, port: u16, settings: &[String]) -> Child {
    let mut command = command("postgres");
    command.arg("-D").arg(directory.join("data")).arg("-k").arg(directory).args(["-p", &port.to_string()]);
    command.args(["-c", "listen_addresses=127.0.0.1"]);
    for setting in settings {
        command.args(["-c", setting]);
    }
    let log = fs::File::create(directory.join("log")).unwrap();
    command.current_dir(directory).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}
