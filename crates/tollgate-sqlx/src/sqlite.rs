//! The statements for SQLite.

use std::{str::FromStr, time::Duration};

use sqlx::{
    AssertSqlSafe, Connection, Error, Sqlite, SqliteConnection, SqlitePool,
    pool::PoolConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use tollgate::store::{Entry, OperationOutcome, StoreError, WriteOutcome};

use crate::{
    database::Pool,
    error::store_error,
    migrations::{self, Dialect},
    row::{self, Call, InEpoch, Kind, READ, ReadRow, Row, entry, version},
};

/// How long a write waits for the lock of another process: longer than any deadline, which ends the call before.
const FOREVER: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) async fn connect(url: &str, deadline: Duration) -> Result<Pool, Error> {
    let options = SqliteConnectOptions::from_str(url)?
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(deadline);
    let of = |most| SqlitePoolOptions::new().max_connections(most).acquire_timeout(deadline).test_before_acquire(false);
    // SQLite has one writer at a time
    let writes = of(1).connect_lazy_with(options.clone().busy_timeout(FOREVER));
    Ok(Pool::Sqlite { reads: of(4).connect_with(options).await?, writes })
}

const EXISTS: &str = "select count(*) from sqlite_schema where name = 'tollgate_schema'";

/// Returns the version of the schema, or `None` for a database without tables.
pub(crate) async fn schema(pool: &SqlitePool) -> Result<Option<i64>, Error> {
    let exists: i64 = sqlx::query_scalar(EXISTS).fetch_one(pool).await?;
    if exists == 0 {
        return Ok(None);
    }
    sqlx::query_scalar("select version from tollgate_schema").fetch_optional(pool).await
}

pub(crate) async fn migrate(pool: &SqlitePool) -> Result<(), StoreError> {
    let mut transaction = pool.begin_with(TO_WRITE).await.map_err(store_error)?;
    let exists: i64 = sqlx::query_scalar(EXISTS).fetch_one(&mut *transaction).await.map_err(store_error)?;
    let found: i64 = if exists == 0 {
        0
    } else {
        let version = "select version from tollgate_schema";
        sqlx::query_scalar(version).fetch_one(&mut *transaction).await.map_err(store_error)?
    };
    let (found, newest) = (usize::try_from(found).unwrap_or(0), Dialect::Sqlite.all().len());
    if found > newest {
        return Err(migrations::newer(found, newest));
    }
    if found < newest {
        let sql = Dialect::Sqlite.migrations(found);
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *transaction).await.map_err(store_error)?;
    }
    transaction.commit().await.map_err(store_error)
}

const SELECT: &str = "select version, expires, value from tollgate_rows where key = ?";

pub(crate) async fn read(pool: &SqlitePool, key: &[u8]) -> Result<InEpoch<Option<Entry>>, Error> {
    let row: ReadRow = sqlx::query_as(READ).bind(key).fetch_one(pool).await?;
    Ok(row::read(row))
}

/// Moves the epoch to this time, and returns it.
pub(crate) async fn begin_epoch(pool: &SqlitePool, now: i64) -> Result<i64, Error> {
    let update = "update tollgate_epoch set began = max(began + 1, $1) returning began";
    sqlx::query_scalar(update).bind(now).fetch_one(pool).await
}

/// Executes the operations in one transaction, which is committed even if the last write lost.
pub(crate) async fn run(
    pool: &SqlitePool,
    begin: &'static str,
    calls: &[Call],
) -> Result<InEpoch<Vec<OperationOutcome>>, Error> {
    let mut connection = pool.acquire().await?;
    let result = run_on(&mut connection, begin, calls).await;
    if result.is_err() {
        discard(connection);
    }
    result
}

/// Closes a connection whose transaction has failed. SQLite may have ended the transaction itself, such as when the disk is
/// full, and the driver would not begin another one.
pub(crate) fn discard(connection: PoolConnection<Sqlite>) {
    drop(connection.detach());
}

/// Begins a transaction that only reads, and one that takes the lock of the writer at once.
pub(crate) const TO_READ: &str = "begin";
pub(crate) const TO_WRITE: &str = "begin immediate";

async fn run_on(
    connection: &mut SqliteConnection,
    begin: &'static str,
    calls: &[Call],
) -> Result<InEpoch<Vec<OperationOutcome>>, Error> {
    let mut transaction = connection.begin_with(begin).await?;
    let epoch = sqlx::query_scalar("select began from tollgate_epoch").fetch_one(&mut *transaction).await?;
    let mut outcomes = Vec::with_capacity(calls.len());
    for call in calls {
        let outcome = execute(&mut transaction, call).await?;
        let is_lost = matches!(outcome, OperationOutcome::Write(WriteOutcome::Lost(_)));
        outcomes.push(outcome);
        if is_lost {
            break;
        }
    }
    transaction.commit().await?;
    Ok(InEpoch { epoch, value: outcomes })
}

async fn execute(connection: &mut SqliteConnection, call: &Call) -> Result<OperationOutcome, Error> {
    let found: Option<Row> = sqlx::query_as(SELECT).bind(&call.key).fetch_optional(&mut *connection).await?;
    let number = found.as_ref().map(|(number, ..)| *number);
    let is_met = match call.kind {
        Kind::Read => return Ok(OperationOutcome::Read(found.map(entry))),
        Kind::Take => {
            let delete = "delete from tollgate_rows where key = ?";
            sqlx::query(delete).bind(&call.key).execute(connection).await?;
            return Ok(OperationOutcome::Read(found.map(entry)));
        }
        Kind::WriteAbsent => number.is_none(),
        Kind::WriteVersion => number == Some(call.version),
        Kind::WriteExpired => number.is_none_or(|number| number == call.version),
    };
    if !is_met {
        return Ok(OperationOutcome::Write(WriteOutcome::Lost(found.map(entry))));
    }
    let count = "update tollgate_versions set latest = latest + 1 returning latest";
    let next: i64 = sqlx::query_scalar(count).fetch_one(&mut *connection).await?;
    let write = "insert into tollgate_rows (key, version, expires, sweep_after, value)
        values (?1, ?2, ?3, cast(unixepoch('subsec') * 1000 as integer) + ?4, ?5)
        on conflict (key) do update
        set version = excluded.version, expires = excluded.expires, sweep_after = excluded.sweep_after,
            value = excluded.value";
    sqlx::query(write)
        .bind(&call.key)
        .bind(next)
        .bind(call.expires)
        .bind(call.lifetime)
        .bind(&call.value)
        .execute(connection)
        .await?;
    Ok(OperationOutcome::Write(WriteOutcome::Done(version(next))))
}

pub(crate) const SWEEP: &str = "delete from tollgate_rows where key in (
    select key from tollgate_rows where sweep_after < cast(unixepoch('subsec') * 1000 as integer)
    order by sweep_after limit ?)";

/// Deletes some expired rows. Returns how many.
pub(crate) async fn sweep(pool: &SqlitePool, most: i64) -> Result<u64, Error> {
    Ok(sqlx::query(SWEEP).bind(most).execute(pool).await?.rows_affected())
}
