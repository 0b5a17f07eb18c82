//! What happens to a database: every failure is a clear error within the deadline, and ends by itself.

#![cfg(all(unix, feature = "postgres", feature = "sqlite", feature = "users"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "helpers of tests")]

mod support;

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use sqlx::{Connection, Executor, PgConnection, SqliteConnection};
use support::{Cluster, temporary};
use tokio::{runtime::Runtime, time::Instant};
use tollgate::{
    Identifier, NewUser, Tenant, UserId, Users,
    clock::UnixTime,
    store::{AnyStore, Key, Operation, Record, StoreError, StoreErrorKind, WriteOutcome},
    user::UserError,
};
use tollgate_sqlx::{Database, SqlStore, SqlUsers};

const NOW: UnixTime = UnixTime::from_secs(1_800_000_000);
const DEADLINE: Duration = Duration::from_millis(700);
/// The deadline where no call waits for it.
const LONG: Duration = Duration::from_secs(10);

/// A database with its store and its accounts.
struct Opened {
    runtime: Runtime,
    database: Database,
    store: AnyStore,
    users: SqlUsers,
}

impl Opened {
    fn at(url: &str) -> Self {
        let runtime = Runtime::new().unwrap();
        let database = runtime.block_on(async {
            let database = Database::connect(url).await.unwrap();
            database.migrate().await.unwrap();
            database
        });
        Self::on(runtime, database)
    }

    fn on(runtime: Runtime, database: Database) -> Self {
        Self::with(DEADLINE, runtime, database)
    }

    /// Its calls have more time.
    fn patient(self) -> Self {
        Self::with(LONG, self.runtime, self.database)
    }

    fn with(deadline: Duration, runtime: Runtime, database: Database) -> Self {
        let database = database.deadline(deadline);
        let (store, users) = (AnyStore::from(SqlStore::new(&database)), SqlUsers::new(&database));
        Self { runtime, database, store, users }
    }

    /// Writes a row of this many bytes.
    fn write(&self, id: &str, bytes: usize) -> Result<(), StoreError> {
        let record = Record::new(vec![7; bytes], NOW, NOW + Duration::from_secs(600)).unwrap();
        let key = Key::new("rows", None, id).unwrap();
        match self.runtime.block_on(self.store.insert(&key, record))? {
            WriteOutcome::Done(_) => Ok(()),
            WriteOutcome::Lost(_) => panic!("{id} is there already"),
        }
    }

    fn has(&self, id: &str) -> bool {
        let key = Key::new("rows", None, id).unwrap();
        self.runtime.block_on(self.store.get(&key).wait()).unwrap().is_some()
    }

    fn create(&self, name: &str) -> Result<(), UserError> {
        let new = NewUser::new(UserId::parse(name).unwrap(), Identifier::parse(name).unwrap());
        self.runtime.block_on(self.users.create(&acme(), new)).map(|_| ())
    }

    fn finds(&self, name: &str) -> bool {
        self.runtime.block_on(self.users.find(&acme(), &Identifier::parse(name).unwrap())).unwrap().is_some()
    }

    /// Checks that writing a row and an account fail within the deadline, and returns both errors.
    fn fails(&self, id: &str) -> [StoreError; 2] {
        let began = Instant::now();
        let row = self.write(id, 10).expect_err("the row is not written");
        let account = match self.create(id) {
            Err(UserError::Store(error)) => error,
            other => panic!("{other:?}"),
        };
        assert!(began.elapsed() < DEADLINE * 4 + Duration::from_secs(5), "{:?}", began.elapsed());
        [row, account]
    }

    /// Waits until both can be written again.
    fn recovers(&self, id: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.write(&format!("{id} {:?}", Instant::now()), 10).is_err() {
            assert!(Instant::now() < end, "it does not recover");
        }
        self.create(id).unwrap();
        assert!(self.finds(id));
    }
}

fn acme() -> Tenant {
    Tenant::parse("acme").unwrap()
}

fn text(error: &StoreError) -> String {
    let (mut text, mut source) = (error.to_string(), error.source());
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

#[test]
fn connections_that_are_all_in_use_are_waited_for_until_the_deadline() {
    let Some(cluster) = Cluster::start(&["fsync=off", "max_connections=14"]) else { return };
    let opened = Opened::at(&cluster.url());
    let pool = opened.database.postgres_pool().unwrap().clone();
    let held: Vec<_> = (0..10).map(|_| opened.runtime.block_on(pool.acquire()).unwrap()).collect();
    for error in opened.fails("held") {
        assert!(matches!(error.kind(), StoreErrorKind::Busy | StoreErrorKind::Unavailable), "{error:?}");
    }
    opened.runtime.block_on(async { drop(held) });
    opened.recovers("free");

    // other clients have them all
    opened.runtime.block_on(async {
        let mut others = Vec::new();
        while let Ok(other) = PgConnection::connect(&cluster.url()).await {
            others.push(other);
        }
        assert!(!others.is_empty());
        let began = Instant::now();
        let error = Database::connect(&cluster.url()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Busy, "{error:?}");
        assert!(text(&error).contains("too many clients") && began.elapsed() < Duration::from_secs(15), "{error:?}");
        for other in others {
            other.close().await.unwrap();
        }
        while Database::connect(&cluster.url()).await.is_err() {}
    });
}

#[test]
fn a_lock_of_another_client_is_waited_for_until_the_deadline() {
    let directory = temporary("locked");
    fs::create_dir_all(&directory).unwrap();
    let url = format!("sqlite://{}/state.db", directory.display());
    let opened = Opened::at(&url);
    opened.write("first", 10).unwrap();
    let mut other = opened.runtime.block_on(SqliteConnection::connect(&url)).unwrap();
    opened.runtime.block_on(other.execute("begin immediate")).unwrap();
    for error in opened.fails("locked") {
        assert!(matches!(error.kind(), StoreErrorKind::Busy | StoreErrorKind::Unavailable), "{error:?}");
    }
    assert!(opened.has("first"), "reads go on");
    opened.runtime.block_on(other.execute("rollback")).unwrap();
    opened.recovers("free");
    fs::remove_dir_all(directory).unwrap();

    let Some(cluster) = Cluster::start(&["fsync=off"]) else { return };
    let opened = Opened::at(&cluster.url());
    let mut other = opened.runtime.block_on(PgConnection::connect(&cluster.url())).unwrap();
    let lock = "begin; lock table tollgate_rows, tollgate_users in exclusive mode";
    opened.runtime.block_on(other.execute(lock)).unwrap();
    for error in opened.fails("locked") {
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
    }
    assert!(!opened.finds("locked"), "reads go on");
    opened.runtime.block_on(other.execute("rollback")).unwrap();
    opened.recovers("free");
    // calls that were given up leave nothing behind that holds a lock
    assert_eq!(cluster.sql("select count(*) from pg_locks where mode = 'RowExclusiveLock' and not granted"), "0");
}

/// More writes wait for the lock than the pool has connections.
#[test]
fn writes_that_wait_for_a_lock_of_sqlite_leave_connections_to_reads() {
    let directory = temporary("reads");
    fs::create_dir_all(&directory).unwrap();
    let url = format!("sqlite://{}/state.db", directory.display());
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        // the reads end long before
        let database = Database::connect(&url).await.unwrap().deadline(Duration::from_secs(60));
        database.migrate().await.unwrap();
        let (store, users) = (AnyStore::from(SqlStore::new(&database)), SqlUsers::new(&database));
        let key = |id: &str| Key::new("rows", None, id).unwrap();
        let record = Record::new("x", NOW, NOW + Duration::from_secs(600)).unwrap();
        let _ = store.insert(&key("first"), record.clone()).await.unwrap();

        let mut other = SqliteConnection::connect(&url).await.unwrap();
        other.execute("begin exclusive").await.unwrap();
        let writes: Vec<_> = (0..12)
            .map(|number| {
                let (store, users, key, record) =
                    (store.clone(), users.clone(), key(&format!("{number}")), record.clone());
                tokio::spawn(async move {
                    if number % 2 == 0 {
                        return matches!(store.insert(&key, record).await, Ok(WriteOutcome::Done(_)));
                    }
                    let name = format!("u-{number}");
                    let new = NewUser::new(UserId::parse(&name).unwrap(), Identifier::parse(&name).unwrap());
                    users.create(&acme(), new).await.is_ok()
                })
            })
            .collect();
        for number in 0..300 {
            let reads = vec![Operation::Read(key("first")), Operation::Read(key("second"))];
            assert_eq!(store.run(reads).await.unwrap().len(), 2, "read {number}");
            assert!(store.get(&key("first")).wait().await.unwrap().is_some());
            assert!(users.find(&acme(), &Identifier::parse("ada").unwrap()).await.unwrap().is_none());
            tokio::task::yield_now().await;
        }
        assert!(writes.iter().all(|write| !write.is_finished()), "they still wait");
        other.execute("rollback").await.unwrap();
        for write in writes {
            assert!(write.await.unwrap());
        }
    });
    fs::remove_dir_all(directory).unwrap();
}

/// The server would otherwise give up a call before its deadline, or go on with it afterwards.
#[test]
fn the_deadline_is_that_of_the_server_too() {
    let Some(cluster) = Cluster::start(&["fsync=off"]) else { return };
    let opened = Opened::at(&cluster.url());
    let mut database = opened.database.clone();
    let of = Duration::from_millis;
    for (deadline, shown) in
        [(of(700), "700ms"), (of(60_000), "1min"), (Duration::MAX, "2147483647ms"), (of(300), "300ms")]
    {
        database = database.deadline(deadline);
        let pool = database.postgres_pool().unwrap();
        for name in ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"] {
            let query = sqlx::query_scalar("select current_setting($1)").bind(name);
            let found: String = opened.runtime.block_on(query.fetch_one(pool)).unwrap();
            assert_eq!(found, shown, "{name}");
        }
    }
}

#[test]
fn a_replica_is_read_and_not_written_until_it_is_promoted() {
    let Some(primary) = Cluster::start(&[]) else { return };
    let opened = Opened::at(&primary.url()).patient();
    opened.write("first", 10).unwrap();
    opened.create("ada").unwrap();
    let replica = primary.replica();
    let follower = Opened::at(&replica.url()).patient();
    assert!(follower.has("first") && follower.finds("ada"));
    for error in follower.fails("replica") {
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
        assert!(text(&error).contains("read-only"), "{error:?}");
    }
    // what is written at the primary arrives
    opened.write("second", 10).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while !follower.has("second") {
        assert!(Instant::now() < end, "the replica does not follow");
    }
    drop(primary);
    replica.sql("select pg_promote()");
    follower.recovers("promoted");
}

#[test]
fn a_read_only_file_is_read_and_not_written() {
    let directory = temporary("read-only");
    fs::create_dir_all(&directory).unwrap();
    let url = format!("sqlite://{}/state.db", directory.display());
    let pool = Opened::at(&url).database.sqlite_pool().unwrap().clone();
    // a pool of the application, which reads and writes
    let opened = Opened::on(Runtime::new().unwrap(), Database::from_sqlite(pool.clone()));
    opened.write("first", 10).unwrap();
    opened.create("ada").unwrap();
    let read_only = |is_on: bool| {
        let connections: Vec<_> = (0..4).map(|_| opened.runtime.block_on(pool.acquire()).unwrap()).collect();
        for mut connection in connections {
            let sql = if is_on { "pragma query_only = on" } else { "pragma query_only = off" };
            opened.runtime.block_on(connection.execute(sql)).unwrap();
            opened.runtime.block_on(async { drop(connection) });
        }
    };
    read_only(true);
    for error in opened.fails("read-only") {
        assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{error:?}");
        assert!(text(&error).contains("readonly"), "{error:?}");
    }
    assert!(opened.has("first") && opened.finds("ada"));
    read_only(false);
    opened.recovers("writable");
    fs::remove_dir_all(directory).unwrap();
}

/// A small file system in memory.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Returns `None` if this machine does not allow it.
    fn mount(name: &str) -> Option<Self> {
        let path = temporary(name);
        fs::create_dir_all(&path).unwrap();
        let mount = ["-t", "tmpfs", "-o", "size=24m", "tollgate"];
        if !Command::new("mount").args(mount).arg(&path).output().is_ok_and(|output| output.status.success()) {
            // this needs a permission of the machine, not a program that can be installed
            eprintln!("skipped: this machine does not allow a file system to be mounted");
            fs::remove_dir(&path).unwrap();
            return None;
        }
        Some(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Takes all room that is left.
    fn fill(&self) {
        let of = format!("of={}", self.ballast().display());
        let output = Command::new("dd").args(["if=/dev/zero", &of, "bs=4096"]).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stderr).contains("No space left"));
    }

    fn make_room(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}

/// Fills the disk, and makes room again.
fn full_disk(opened: &Opened, disk: &SmallDisk) {
    opened.write("first", 10).unwrap();
    opened.create("ada").unwrap();
    disk.fill();
    // pages may have room for a few more
    let error = (0..4000).find_map(|number| opened.write(&format!("full {number}"), 8000).err()).expect("it is full");
    assert_eq!(error.kind(), StoreErrorKind::Full, "{error:?}");
    let error = (0..4000).find_map(|number| opened.create(&format!("full-{number}")).err()).expect("it is full");
    assert!(matches!(&error, UserError::Store(error) if error.kind() == StoreErrorKind::Full), "{error:?}");
    assert!(opened.has("first") && opened.finds("ada"), "reads go on");
    disk.make_room();
    opened.recovers("with-room");
}

#[test]
fn a_full_disk_is_reported_and_works_again_when_there_is_room() {
    let Some(disk) = SmallDisk::mount("full-sqlite") else { return };
    let opened = Opened::at(&format!("sqlite://{}/state.db", disk.path().display())).patient();
    full_disk(&opened, &disk);
    drop(opened);

    // the log and the system tables of PostgreSQL are elsewhere
    let Some(cluster) = Cluster::start(&["fsync=off"]) else { return };
    let disk = SmallDisk::mount("full-postgres").unwrap();
    let place = disk.path().join("tables");
    fs::create_dir(&place).unwrap();
    assert!(Command::new("chown").arg("postgres").arg(&place).status().unwrap().success());
    cluster.sql(&format!("create tablespace small location '{}'", place.display()));
    cluster.sql("alter database postgres set default_tablespace = small");
    let opened = Opened::at(&cluster.url()).patient();
    full_disk(&opened, &disk);
}
