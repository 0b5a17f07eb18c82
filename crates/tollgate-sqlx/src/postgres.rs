//! The statements for PostgreSQL.

use std::{
    io,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use sqlx::{
    AssertSqlSafe, Connection, Error, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::{Instant, timeout};
use tollgate::store::{Entry, OperationOutcome, StoreError, WriteOutcome};

use crate::{
    database::Pool,
    error::store_error,
    migrations::{self, Dialect},
    row::{self, Call, InEpoch, READ, ReadRow, found, version},
};

/// A connection that was idle for this long is tested before its next use.
const IDLE: Duration = Duration::from_secs(1);

pub(crate) async fn connect(url: &str, deadline: Duration) -> Result<Pool, Error> {
    let options = with_deadline(PgConnectOptions::from_str(url)?.application_name("tollgate"), deadline);
    // a pool waits for a server that does not answer, and does not say why
    PgConnection::connect_with(&options).await?.close().await?;
    let renewal = Renewal::new();
    let current = renewal.clone();
    let pool = PgPoolOptions::new().max_connections(10).acquire_timeout(deadline).test_before_acquire(false);
    let pool = pool.before_acquire(move |connection, found| {
        let (is_current, is_idle) = (current.is_current(found.age), found.idle_for >= IDLE);
        Box::pin(async move { Ok(is_current && !(is_idle && connection.ping().await.is_err())) })
    });
    // the pool tests a connection that it gets back, and waits for the answer without a bound: if the network is lost in
    // silence, the connection would keep its place. An error closes it at once
    let pool = pool.after_release(move |connection, _| {
        Box::pin(async move {
            let tested = timeout(deadline, connection.ping()).await;
            tested.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into())).map(|()| true)
        })
    });
    Ok(Pool::Postgres(pool.connect_lazy_with(options), Some(renewal)))
}

/// Sets what all connections need, also if the database has other defaults.
fn with_deadline(options: PgConnectOptions, deadline: Duration) -> PgConnectOptions {
    // zero would be no deadline, and the server accepts no larger number
    let milliseconds = deadline.as_millis().clamp(1, i32::MAX.unsigned_abs().into()).to_string();
    options.options([
        ("statement_timeout", milliseconds.as_str()),
        ("lock_timeout", &milliseconds),
        // a node that is lost in the middle of a transaction holds its locks no longer
        ("idle_in_transaction_session_timeout", &milliseconds),
        ("default_transaction_isolation", "read committed"),
    ])
}

/// Sets the deadline of the server. Connections with another one are replaced.
pub(crate) fn set_deadline(pool: &PgPool, renewal: &Renewal, deadline: Duration) {
    pool.set_connect_options(with_deadline(PgConnectOptions::clone(&pool.connect_options()), deadline));
    renewal.replace_connections();
}

/// Remembers which connections of a pool must be replaced before their next use: those that were opened before the pool got
/// another deadline, or before a connection was lost, because a server that restarts ends all of them.
#[derive(Clone)]
pub(crate) struct Renewal(Arc<(Instant, AtomicU64)>);

impl Renewal {
    fn new() -> Self {
        Self(Arc::new((Instant::now(), AtomicU64::new(0))))
    }

    /// Returns the age of this value.
    fn age(&self) -> Duration {
        self.0.0.elapsed()
    }

    pub(crate) fn replace_connections(&self) {
        self.0.1.fetch_max(nanos(self.age()), SeqCst);
    }

    /// Returns whether a connection of this age may be used.
    fn is_current(&self, age: Duration) -> bool {
        nanos(self.age().saturating_sub(age)) >= self.0.1.load(SeqCst)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads the catalog, not `to_regclass`: a connection that has not found the table remembers that until it opens another
/// table, even if another process has created it since.
const EXISTS: &str = "select exists (
    select from pg_catalog.pg_class where relname = 'tollgate_schema' and pg_catalog.pg_table_is_visible(oid))";

/// Returns the version of the schema, or `None` for a database without tables.
pub(crate) async fn schema(pool: &PgPool) -> Result<Option<i64>, Error> {
    let exists: bool = sqlx::query_scalar(EXISTS).fetch_one(pool).await?;
    if !exists {
        return Ok(None);
    }
    sqlx::query_scalar("select version::bigint from tollgate_schema").fetch_optional(pool).await
}

pub(crate) async fn migrate(pool: &PgPool) -> Result<(), StoreError> {
    let mut transaction = pool.begin_with("begin isolation level read committed").await.map_err(store_error)?;
    // two processes that start at once: the second one finds what the first one has done
    let lock = "select pg_advisory_xact_lock(hashtextextended('tollgate_schema', 0))";
    sqlx::query(lock).execute(&mut *transaction).await.map_err(store_error)?;
    let exists: bool = sqlx::query_scalar(EXISTS).fetch_one(&mut *transaction).await.map_err(store_error)?;
    let found: i64 = if exists {
        let version = "select version::bigint from tollgate_schema";
        sqlx::query_scalar(version).fetch_one(&mut *transaction).await.map_err(store_error)?
    } else {
        0
    };
    let (found, newest) = (usize::try_from(found).unwrap_or(0), Dialect::Postgres.all().len());
    if found > newest {
        return Err(migrations::newer(found, newest));
    }
    if found < newest {
        let sql = Dialect::Postgres.migrations(found);
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *transaction).await.map_err(store_error)?;
    }
    transaction.commit().await.map_err(store_error)
}

pub(crate) async fn read(pool: &PgPool, key: &[u8]) -> Result<InEpoch<Option<Entry>>, Error> {
    let row: ReadRow = sqlx::query_as(READ).bind(key).fetch_one(pool).await?;
    Ok(row::read(row))
}

/// Moves the epoch to this time, and returns it.
pub(crate) async fn begin_epoch(pool: &PgPool, now: i64) -> Result<i64, Error> {
    let update = "update tollgate_epoch set began = greatest(began + 1, $1) returning began";
    sqlx::query_scalar(update).bind(now).fetch_one(pool).await
}

/// A row that `tollgate_run` returns.
type Reply = (i64, bool, Option<i64>, Option<i64>, Option<Vec<u8>>);

pub(crate) async fn run(pool: &PgPool, calls: &[Call]) -> Result<InEpoch<Vec<OperationOutcome>>, Error> {
    let numbers = |number: fn(&Call) -> i64| calls.iter().map(number).collect::<Vec<_>>();
    let replies: Vec<Reply> = sqlx::query_as("select * from tollgate_run($1, $2, $3, $4, $5, $6)")
        .bind(calls.iter().map(|call| call.kind as i16).collect::<Vec<_>>())
        .bind(calls.iter().map(|call| call.key.as_slice()).collect::<Vec<_>>())
        .bind(numbers(|call| call.version))
        .bind(numbers(|call| call.expires))
        .bind(numbers(|call| call.lifetime))
        .bind(calls.iter().map(|call| call.value.as_slice()).collect::<Vec<_>>())
        .fetch_all(pool)
        .await?;
    let epoch = replies.first().map_or(0, |reply| reply.0);
    let outcome = |(call, (_, is_written, number, expires, value)): (&Call, Reply)| {
        let found = found(number, expires, value);
        match number {
            Some(number) if is_written => OperationOutcome::Write(WriteOutcome::Done(version(number))),
            _ if call.is_write() => OperationOutcome::Write(WriteOutcome::Lost(found)),
            _ => OperationOutcome::Read(found),
        }
    };
    Ok(InEpoch { epoch, value: calls.iter().zip(replies).map(outcome).collect() })
}

/// Deletes some expired rows, and skips those that another call is deleting. Returns how many.
pub(crate) async fn sweep(pool: &PgPool, most: i64) -> Result<u64, Error> {
    // an array is looked up in the index; for a subquery, the server would read the whole table. The time of the statement
    // bounds the scan of the index, which `clock_timestamp` could not, because it changes from row to row
    let delete = "delete from tollgate_rows where key = any (array(
        select key from tollgate_rows
        where sweep_after < floor(extract(epoch from statement_timestamp()) * 1000)::bigint
        order by sweep_after limit $1 for update skip locked))";
    Ok(sqlx::query(delete).bind(most).execute(pool).await?.rows_affected())
}
