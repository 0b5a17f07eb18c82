//! `SqlStore` on a real PostgreSQL and on SQLite: the conformance suite, the schema, and what can happen to a database.
#![cfg(all(feature = "postgres", feature = "sqlite", feature = "users"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod support;

use std::{
    error::Error,
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use sqlx::{Connection, Executor, PgConnection};
use support::{Cluster, temporary};
use tokio::{runtime::Runtime, time::Instant};
use tollgate::{
    Identifier, NewUser, Tenant, UserId,
    clock::{Clock, UnixTime},
    store::{
        AnyStore, Expected, Key, Operation, OperationOutcome, Record, Store, StoreError, StoreErrorKind, WriteOutcome,
    },
    testing::{self, ManualClock},
    user::EmailAddress,
};
use tollgate_sqlx::{Database, Dialect, SqlStore, SqlUsers};

const NOW: UnixTime = UnixTime::from_secs(1_800_000_000);

fn key(id: impl AsRef<[u8]>) -> Key {
    Key::new("rows", None, id).unwrap()
}

fn record(value: impl Into<Vec<u8>>) -> Record {
    Record::new(value.into(), NOW, NOW + Duration::from_secs(600)).unwrap()
}

async fn open(url: &str) -> Database {
    let database = Database::connect(url).await.unwrap();
    database.migrate().await.unwrap();
    database.check().await.unwrap();
    database
}

/// Returns a folder and the URL of a file in it.
fn sqlite_url() -> (std::path::PathBuf, String) {
    let folder = temporary("sqlite");
    fs::create_dir_all(&folder).unwrap();
    let url = format!("sqlite://{}/state.db", folder.display());
    (folder, url)
}

/// Returns the whole text of an error with its sources.
fn text(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

#[test]
fn postgres_is_a_store() {
    let Some(cluster) = Cluster::start(&["fsync=off"]) else { return };
    let runtime = Runtime::new().unwrap();
    let make = || SqlStore::new(&runtime.block_on(open(&cluster.schema())));
    testing::store_conformance(make, |future| runtime.block_on(future));
    assert!(runtime.block_on(make().scan(None)).is_ok());
}

#[test]
fn sqlite_is_a_store() {
    let directory = temporary("conformance");
    fs::create_dir_all(&directory).unwrap();
    let (runtime, files) = (Runtime::new().unwrap(), AtomicU64::new(0));
    let make = || {
        let file = directory.join(files.fetch_add(1, SeqCst).to_string());
        SqlStore::new(&runtime.block_on(open(&format!("sqlite://{}", file.display()))))
    };
    testing::store_conformance(make, |future| runtime.block_on(future));
    assert!(runtime.block_on(make().scan(None)).is_ok());
    fs::remove_dir_all(directory).unwrap();
}

/// Calls that write the same rows in different orders.
async fn batches_that_overlap(store: SqlStore) {
    let store = AnyStore::from(store);
    let ids = ["a", "b", "c", "d"];
    let tasks = (0..8).map(|task| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut done = 0_u64;
            for round in 0..40 {
                let rotated = (0..ids.len()).map(|place| ids[(place * (1 + task % 2 * 2) + round + task) % ids.len()]);
                let reads = store.run(rotated.clone().map(|id| Operation::Read(key(id))).collect()).await.unwrap();
                let writes = rotated.zip(reads).map(|(id, outcome)| {
                    let OperationOutcome::Read(found) = outcome else { panic!("a read has another outcome") };
                    let number = found.as_ref().map_or(0, |entry| entry.value.len());
                    let expected = Expected::from(found.map(|entry| entry.version));
                    Operation::Write(key(id), expected, record(vec![0; number + 1]))
                });
                let outcomes = store.run(writes.collect()).await.unwrap();
                let is_done =
                    |outcome: &&OperationOutcome| matches!(outcome, OperationOutcome::Write(WriteOutcome::Done(_)));
                done += outcomes.iter().filter(is_done).count() as u64;
            }
            done
        })
    });
    let mut written = 0;
    for task in tasks.collect::<Vec<_>>() {
        written += task.await.unwrap();
    }
    let mut found = 0;
    for id in ids {
        found += store.get(&key(id)).wait().await.unwrap().map_or(0, |entry| entry.value.len() as u64);
    }
    assert_eq!(found, written, "each acknowledged write made its row one byte longer");
}

#[test]
fn batches_in_any_order_lose_no_write_and_never_deadlock() {
    let runtime = Runtime::new().unwrap();
    let (folder, url) = sqlite_url();
    runtime.block_on(async { batches_that_overlap(SqlStore::new(&open(&url).await)).await });
    fs::remove_dir_all(folder).unwrap();
    let Some(cluster) = Cluster::start(&["fsync=off"]) else { return };
    runtime.block_on(async { batches_that_overlap(SqlStore::new(&open(&cluster.schema()).await)).await });
    assert_eq!(cluster.sql("select deadlocks from pg_stat_database where datname = 'postgres'"), "0");
}

/// The arguments of `tollgate_run` for operations of these kinds.
fn call_of(kinds: &[(u8, &str)]) -> String {
    let all = |column: &dyn Fn(&(u8, &str)) -> String| kinds.iter().map(column).collect::<Vec<_>>().join(",");
    let same = |text: &str| all(&|_| text.to_owned());
    let hex = |key: &[u8]| key.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!(
        "select coalesce(max(found_version), 0) from tollgate_run(array[{}]::smallint[], array[{}]::bytea[],
         array[{}]::bigint[], array[{}]::bigint[], array[{}]::bigint[], array[{}]::bytea[]) where not written",
        all(&|(kind, _)| kind.to_string()),
        all(&|(_, id)| format!("'\\x{}'", hex(key(id).as_bytes()))),
        same("-1"),
        same("9000000000000000000"),
        same("600000"),
        same("''"),
    )
}

/// A batch writes the list of a user and reads their generation. Before it commits, another call changes the generation and then
/// reads the list. One of the two sees the other.
async fn one_of_a_batch_and_a_change_sees_the_other(cluster: &Cluster, url: &str) {
    let store = AnyStore::from(SqlStore::new(&open(url).await));
    let mut first = PgConnection::connect(url).await.unwrap();
    for (round, change) in ["insert", "swap", "take"].into_iter().enumerate() {
        let [list, session, generation] = ["list", "session", "generation"].map(|name| format!("{name} {round}"));
        let before = match change {
            "insert" => None,
            _ => match store.insert(&key(&generation), record("0")).await.unwrap() {
                WriteOutcome::Done(version) => Some(version),
                WriteOutcome::Lost(_) => panic!("it is new"),
            },
        };
        sqlx::raw_sql("begin isolation level read committed").execute(&mut first).await.unwrap();
        let batch = call_of(&[(1, &list), (1, &session), (0, &generation)]);
        let read: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(batch)).fetch_one(&mut first).await.unwrap();
        assert_eq!(u128::from(read.unsigned_abs()), before.map_or(0, |version| version.as_u128()), "{change}");
        let (changed, list) = (store.clone(), key(&list));
        let mut changing = tokio::spawn(async move {
            let generation = key(&generation);
            match (change, before) {
                ("swap", Some(version)) => drop(changed.swap(&generation, version, record("1")).await.unwrap()),
                ("take", _) => assert!(changed.take(&generation).await.unwrap().is_some()),
                _ => drop(changed.insert(&generation, record("1")).await.unwrap()),
            }
            changed.get(&list).wait().await.unwrap().is_some()
        });
        let waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
        let end = Instant::now() + Duration::from_secs(4);
        while !changing.is_finished() && cluster.sql(waiting) == "0" {
            assert!(Instant::now() < end, "it neither ends nor waits");
            tokio::task::yield_now().await;
        }
        sqlx::raw_sql("commit").execute(&mut first).await.unwrap();
        let saw = tokio::time::timeout(Duration::from_secs(5), &mut changing).await.expect("it goes on").unwrap();
        assert!(saw, "neither the batch nor the {change} saw the other");
    }
}

/// The other way round: the change is not visible yet when the batch begins.
async fn a_batch_waits_for_a_change_of_what_it_reads(cluster: &Cluster, url: &str) {
    let store = AnyStore::from(SqlStore::new(&open(url).await));
    let mut first = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql("begin isolation level read committed").execute(&mut first).await.unwrap();
    let change = call_of(&[(1, "late generation")]);
    let _: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(change)).fetch_one(&mut first).await.unwrap();
    let mut batch = tokio::spawn(async move {
        let write = Operation::Write(key("late list"), Expected::Absent, record("x"));
        let outcomes = store.run(vec![write, Operation::Read(key("late generation"))]).await.unwrap();
        matches!(outcomes.last(), Some(OperationOutcome::Read(Some(_))))
    });
    let waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
    let end = Instant::now() + Duration::from_secs(4);
    while !batch.is_finished() && cluster.sql(waiting) == "0" {
        assert!(Instant::now() < end, "it neither ends nor waits");
        tokio::task::yield_now().await;
    }
    sqlx::raw_sql("commit").execute(&mut first).await.unwrap();
    let saw = tokio::time::timeout(Duration::from_secs(5), &mut batch).await.expect("it goes on").unwrap();
    // its own list was not written before the change was visible
    assert!(saw, "the batch missed the change");
}

#[test]
fn a_batch_that_reads_after_it_writes_misses_no_change_that_misses_it() {
    let Some(cluster) = Cluster::start(&["fsync=off"]) else { return };
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        one_of_a_batch_and_a_change_sees_the_other(&cluster, &cluster.schema()).await;
        a_batch_waits_for_a_change_of_what_it_reads(&cluster, &cluster.schema()).await;
        // also if the database has another default
        cluster.sql("alter database postgres set default_transaction_isolation = 'repeatable read'");
        one_of_a_batch_and_a_change_sees_the_other(&cluster, &cluster.schema()).await;
        a_batch_waits_for_a_change_of_what_it_reads(&cluster, &cluster.schema()).await;
    });
    assert_eq!(cluster.sql("select deadlocks from pg_stat_database where datname = 'postgres'"), "0");
}

#[test]
fn a_pool_with_another_isolation_level_is_refused() {
    let Some(cluster) = Cluster::start(&["fsync=off"]) else { return };
    let runtime = Runtime::new().unwrap();
    cluster.sql("alter database postgres set default_transaction_isolation = 'serializable'");
    runtime.block_on(async {
        let pool = sqlx::PgPool::connect(&cluster.url()).await.unwrap();
        let database = Database::from_postgres(pool);
        database.migrate().await.unwrap();
        let refused = AnyStore::from(SqlStore::new(&database)).insert(&key("a"), record("x")).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Misconfigured, "{refused:?}");
        let text = text(&refused);
        assert!(text.contains("read committed") && text.contains("serializable"), "{text}");
    });
}

/// A runtime that ends takes the sweep with it, which another runtime begins anew.
#[test]
fn a_sweep_that_was_dropped_does_not_stop_the_next_ones() {
    let (folder, url) = sqlite_url();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let store = first.block_on(async { SqlStore::new(&open(&url).await) });
    let ended = |id: String| (key(id), Record::new("x", NOW, NOW).unwrap());
    let (own, record) = ended("ended".to_owned());
    // the first write begins a sweep
    assert!(matches!(first.block_on(store.insert(&own, record)).unwrap(), WriteOutcome::Done(_)));
    drop(first);
    let second = runtime();
    second.block_on(async {
        let end = Instant::now() + Duration::from_secs(20);
        for number in 0.. {
            let (key, record) = ended(number.to_string());
            assert!(matches!(store.insert(&key, record).await.unwrap(), WriteOutcome::Done(_)));
            if store.get(&own).wait().await.unwrap().is_none() {
                return;
            }
            assert!(number < 1000 && Instant::now() < end, "nothing is swept");
        }
    });
    fs::remove_dir_all(folder).unwrap();
}

async fn an_epoch_begins_at_the_time_of_the_clock(database: Database) {
    let clock = Arc::new(ManualClock::new());
    let now = || clock.read().1;
    let [own, other] = [(); 2].map(|()| SqlStore::with_clock(&database, Arc::clone(&clock)));
    own.begin_epoch().await.unwrap();
    assert_eq!(own.complete_since(), now());
    // it moves even if the clock does not
    own.begin_epoch().await.unwrap();
    assert_eq!(own.complete_since(), now() + Duration::from_nanos(1));
    clock.advance(Duration::from_secs(60));
    own.begin_epoch().await.unwrap();
    assert!(other.get(&key("a")).wait().await.unwrap().is_none());
    assert_eq!((own.complete_since(), other.complete_since()), (now(), now()));
}

#[test]
fn epochs_begin_at_the_time_of_the_clock() {
    let runtime = Runtime::new().unwrap();
    let (folder, url) = sqlite_url();
    runtime.block_on(async { an_epoch_begins_at_the_time_of_the_clock(open(&url).await).await });
    fs::remove_dir_all(folder).unwrap();
    let Some(cluster) = Cluster::start(&["fsync=off"]) else { return };
    runtime.block_on(async { an_epoch_begins_at_the_time_of_the_clock(open(&cluster.schema()).await).await });
}

async fn expired_rows_are_swept(store: SqlStore) {
    let ended = |id: String| (key(id), Record::new("x", NOW, NOW).unwrap());
    let any = AnyStore::from(store.clone());
    assert!(matches!(any.insert(&key("lives"), record("x")).await.unwrap(), WriteOutcome::Done(_)));
    for number in 0..600 {
        let (key, record) = ended(format!("ended {number}"));
        assert!(matches!(any.insert(&key, record).await.unwrap(), WriteOutcome::Done(_)));
    }
    // the last ones may have been written in this millisecond
    while any.get(&key("ended 599")).wait().await.unwrap().is_some() {
        store.sweep().await.unwrap();
    }
    for number in 0..600 {
        assert!(any.get(&key(format!("ended {number}"))).wait().await.unwrap().is_none(), "{number}");
    }
    assert!(any.get(&key("lives")).wait().await.unwrap().is_some());
}

#[test]
fn expired_rows_are_swept_and_live_ones_stay() {
    let runtime = Runtime::new().unwrap();
    let (folder, url) = sqlite_url();
    runtime.block_on(async { expired_rows_are_swept(SqlStore::new(&open(&url).await)).await });
    fs::remove_dir_all(folder).unwrap();
    let Some(cluster) = Cluster::start(&["fsync=off"]) else { return };
    runtime.block_on(async { expired_rows_are_swept(SqlStore::new(&open(&cluster.schema()).await)).await });
}

#[test]
fn the_schema_is_checked_and_migrated_once() {
    let runtime = Runtime::new().unwrap();
    let (folder, url) = sqlite_url();
    let cluster = Cluster::start(&["fsync=off"]);
    let urls: Vec<String> = [Some(url), cluster.as_ref().map(Cluster::schema)].into_iter().flatten().collect();
    runtime.block_on(async {
        for url in urls {
            let database = Database::connect(&url).await.unwrap();
            let missing = database.check().await.unwrap_err();
            assert_eq!(missing.kind(), StoreErrorKind::Misconfigured);
            assert!(text(&missing).contains("run the migrations first"), "{missing:?}");
            let unused = AnyStore::from(SqlStore::new(&database)).get(&key("a")).wait().await.unwrap_err();
            assert_eq!(unused.kind(), StoreErrorKind::Misconfigured, "{unused:?}");

            // several processes start at once
            let starts = (0..8).map(|_| {
                let url = url.clone();
                tokio::spawn(async move { open(&url).await })
            });
            for start in starts.collect::<Vec<_>>() {
                start.await.unwrap();
            }
            database.migrate().await.unwrap();
            database.check().await.unwrap();

            execute(&database, "update tollgate_schema set version = 99").await;
            for error in [database.check().await.unwrap_err(), database.migrate().await.unwrap_err()] {
                assert_eq!(error.kind(), StoreErrorKind::NewerFormat);
                assert!(text(&error).contains("the schema has version 99"), "{error:?}");
            }
        }
    });
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_process_that_found_no_tables_sees_those_that_another_one_has_created_since() {
    let Some(cluster) = Cluster::start(&["fsync=off"]) else { return };
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1).connect(&cluster.url()).await.unwrap();
        let late = Database::from_postgres(pool);
        assert!(late.check().await.is_err());
        let mut other = PgConnection::connect(&cluster.url()).await.unwrap();
        let lock = "select pg_advisory_lock(hashtextextended('tollgate_schema', 0))";
        sqlx::query(lock).execute(&mut other).await.unwrap();
        let migrating = tokio::spawn(async move { late.migrate().await });
        // it has begun its transaction, and waits
        let waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
        while cluster.sql(waiting) == "0" {}
        sqlx::raw_sql(sqlx::AssertSqlSafe(Dialect::Postgres.migrations(0))).execute(&mut other).await.unwrap();
        other.close().await.unwrap();
        migrating.await.unwrap().unwrap();
    });
}

/// Runs SQL on a database that the store uses.
async fn execute(database: &Database, sql: &'static str) {
    match database.dialect() {
        Dialect::Postgres => sqlx::query(sql).execute(database.postgres_pool().unwrap()).await.map(|_| ()).unwrap(),
        _ => sqlx::query(sql).execute(database.sqlite_pool().unwrap()).await.map(|_| ()).unwrap(),
    }
}

/// Another user runs the printed SQL, and grants what `docs/sql.md` says.
#[test]
fn the_printed_migrations_and_grants_are_enough_for_a_user_with_few_rights() {
    let runtime = Runtime::new().unwrap();
    let Some(cluster) = Cluster::start(&["fsync=off"]) else { return };
    cluster.sql("create role service login; revoke create on schema public from public");
    let url = cluster.url().replace("app@", "service@");
    runtime.block_on(async {
        let database = Database::connect(&url).await.unwrap();
        let refused = database.migrate().await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Misconfigured);
        assert!(text(&refused).contains("permission denied for schema public"), "{refused:?}");

        cluster.sql(&format!("begin; {} commit", Dialect::Postgres.migrations(0)));
        let refused = database.check().await.unwrap_err();
        assert!(text(&refused).contains("permission denied for table tollgate_schema"), "{refused:?}");
        let grants = include_str!("../../../docs/sql.md").lines().filter(|line| line.starts_with("grant "));
        for grant in grants {
            cluster.sql(&grant.replace("to app;", "to service;"));
        }
        database.check().await.unwrap();
        let store = SqlStore::new(&database);
        assert!(matches!(store.insert(&key("a"), record("x")).await.unwrap(), WriteOutcome::Done(_)));
        assert!(store.take(&key("a")).await.unwrap().is_some());
        store.begin_epoch().await.unwrap();
        store.sweep().await.unwrap();
        let (users, acme, ada) =
            (SqlUsers::new(&database), Tenant::parse("acme").unwrap(), UserId::parse("u-1").unwrap());
        users.create(&acme, NewUser::new(ada.clone(), Identifier::parse("ada").unwrap())).await.unwrap();
        users.set_claim(&acme, &ada, "roles", "roles", &true.into()).await.unwrap();
        users.add_contact(&acme, &ada, EmailAddress::parse("ada@example.com").unwrap().into()).await.unwrap();
        users.remove(&acme, &ada).await.unwrap();
        assert!(users.release_id(&acme, &ada).await.unwrap());
    });
}

#[test]
fn a_read_is_one_look_at_the_index() {
    let Some(cluster) = Cluster::start(&["fsync=off"]) else { return };
    cluster.sql(&Dialect::Postgres.migrations(0));
    cluster.sql(
        "insert into tollgate_rows select decode(md5(n::text), 'hex'), n, 0, n, '\\x00' from generate_series(1, 50000) n;
         analyze tollgate_rows",
    );
    let read = cluster.sql(
        "explain select e.began, r.version, r.expires, r.value from tollgate_epoch e
         left join tollgate_rows r on r.key = '\\x00'",
    );
    assert!(read.contains("Index Scan using tollgate_rows_pkey"), "{read}");
    let sweep =
        cluster.sql("explain select key from tollgate_rows where sweep_after < 100 order by sweep_after limit 500");
    assert!(sweep.contains("using tollgate_rows_sweep_after"), "{sweep}");
}

#[test]
fn kill_9_of_the_server_loses_no_acknowledged_write() {
    let Some(mut cluster) = Cluster::start(&[]) else { return };
    let runtime = Runtime::new().unwrap();
    let store = runtime.block_on(async { AnyStore::from(SqlStore::new(&open(&cluster.url()).await)) });
    let acknowledged = Arc::new(AtomicU64::new(0));
    let mut written = 0;
    for round in 0..3 {
        let tasks: Vec<_> = (0..4)
            .map(|task| {
                let (store, acknowledged) = (store.clone(), Arc::clone(&acknowledged));
                runtime.spawn(async move {
                    let mut own = Vec::new();
                    for number in 0.. {
                        let id = format!("{round} {task} {number}");
                        let pair = [&id, &format!("{id} too")]
                            .map(|id| Operation::Write(key(id), Expected::Absent, record(id.as_bytes())));
                        match store.run(pair.into()).await {
                            Ok(_) => own.push(id),
                            Err(_) => return own,
                        }
                        acknowledged.fetch_add(1, SeqCst);
                    }
                    own
                })
            })
            .collect();
        let enough = acknowledged.load(SeqCst) + 100;
        while acknowledged.load(SeqCst) < enough && tasks.iter().any(|task| !task.is_finished()) {
            std::thread::yield_now();
        }
        cluster.kill();
        let own: Vec<String> = tasks.into_iter().flat_map(|task| runtime.block_on(task).unwrap()).collect();
        cluster.restart();
        runtime.block_on(async {
            for id in &own {
                for id in [id, &format!("{id} too")] {
                    let found = store.get(&key(id)).wait().await.unwrap().expect("an acknowledged row");
                    assert_eq!(found.value, id.as_bytes());
                }
            }
        });
        written += own.len();
    }
    assert!(written >= 300, "{written}");
}

#[test]
fn what_happens_to_a_server_is_a_clear_error_and_ends_by_itself() {
    let Some(mut cluster) = Cluster::start(&["fsync=off", "max_connections=20"]) else { return };
    let runtime = Runtime::new().unwrap();
    let deadline = Duration::from_millis(800);
    let database = runtime.block_on(open(&cluster.url())).deadline(deadline);
    let store = AnyStore::from(SqlStore::new(&database));
    let insert = |id: &str| runtime.block_on(store.insert(&key(id), record("x")));
    let works = |id: &str| matches!(insert(id), Ok(WriteOutcome::Done(_)));
    let failed = |id: &str| {
        let began = Instant::now();
        let error = insert(id).unwrap_err();
        assert!(began.elapsed() < deadline * 3 + Duration::from_secs(5), "{id}: {:?}", began.elapsed());
        error
    };
    // a call may be late on a busy machine, and may have written its row
    let until_works = |id: &str| {
        let began = Instant::now();
        for number in 0.. {
            if works(&format!("{id} {number}")) {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{id}: it does not recover");
        }
    };
    assert!(works("first"));

    // another client holds a lock
    let mut other = runtime.block_on(PgConnection::connect(&cluster.url())).unwrap();
    runtime.block_on(other.execute("begin; lock table tollgate_rows")).unwrap();
    assert_eq!(failed("locked").kind(), StoreErrorKind::Unavailable);
    runtime.block_on(other.execute("rollback")).unwrap();
    until_works("after the lock");

    // a replica, or an operator who makes it read-only
    cluster.sql("alter database postgres set default_transaction_read_only = on");
    cluster.sql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'tollgate'");
    let read_only = loop {
        let error = insert("read-only").unwrap_err();
        if text(&error).contains("read-only transaction") {
            break error;
        }
    };
    assert_eq!(read_only.kind(), StoreErrorKind::Unavailable);
    assert!(runtime.block_on(store.get(&key("first")).wait()).unwrap().is_some(), "reads go on");
    cluster.sql("alter database postgres set default_transaction_read_only = off");
    cluster.sql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'tollgate'");
    until_works("writable again");

    // it stops and comes back
    cluster.kill();
    assert_eq!(failed("stopped").kind(), StoreErrorKind::Unavailable);
    cluster.restart();
    until_works("restarted");
}
