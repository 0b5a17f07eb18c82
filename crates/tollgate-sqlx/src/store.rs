//! The [`Store`] in a database.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst},
    },
};

use tollgate::{
    clock::{Clock, SystemClock, UnixTime},
    gate::MaybeReady,
    store::{
        Entry, Expected, Key, Operation, OperationOutcome, Record, ScanCursor, ScanPage, Store, StoreError,
        StoreErrorKind, Version, WriteOutcome,
    },
};

#[cfg(feature = "postgres")]
use crate::postgres;
#[cfg(feature = "sqlite")]
use crate::sqlite;
use crate::{
    database::{Database, Pool},
    error::store_error,
    row::{self, Call, InEpoch},
};

/// A [`Store`] in PostgreSQL or SQLite. Clones share it.
///
/// Each read is one statement, and each write or batch is one call of a function (PostgreSQL) or one transaction (SQLite).
/// One write in 64 deletes expired rows in the background, at most 500 at once, and goes on while there are more.
#[derive(Clone)]
pub struct SqlStore(Arc<Shared>);

struct Shared {
    database: Database,
    clock: Box<dyn Clock>,
    writes: AtomicU32,
    is_sweeping: AtomicBool,
    /// The latest epoch that a call has returned.
    epoch: AtomicU64,
}

const WRITES_PER_SWEEP: u32 = 64;
const ROWS_PER_SWEEP: u16 = 500;

impl SqlStore {
    /// Creates a store in this database. Call [`Database::migrate`] or [`Database::check`] first.
    pub fn new(database: &Database) -> Self {
        Self::with_clock(database, SystemClock::new())
    }

    /// Creates a store that takes the time from `clock`. Only [`Store::begin_epoch`] needs it.
    pub fn with_clock(database: &Database, clock: impl Clock) -> Self {
        let (writes, is_sweeping, epoch) = (AtomicU32::new(0), AtomicBool::new(false), AtomicU64::new(0));
        Self(Arc::new(Shared { database: database.clone(), clock: Box::new(clock), writes, is_sweeping, epoch }))
    }

    /// Deletes all rows that have expired by the clock of the database, in small batches. Writes do this as well, so it is
    /// only needed to free space at once. Returns how many rows were deleted.
    pub async fn sweep(&self) -> Result<u64, StoreError> {
        let mut all = 0;
        loop {
            let swept = self.0.sweep_some().await?;
            all += swept;
            if swept < u64::from(ROWS_PER_SWEEP) {
                return Ok(all);
            }
        }
    }

    async fn run_calls(&self, calls: &[Call]) -> Result<Vec<OperationOutcome>, StoreError> {
        let outcomes = self.0.run(calls).await?;
        if calls.iter().any(Call::is_write) && self.0.writes.fetch_add(1, Relaxed).is_multiple_of(WRITES_PER_SWEEP) {
            self.sweep_in_background();
        }
        Ok(outcomes)
    }

    fn sweep_in_background(&self) {
        if self.0.is_sweeping.swap(true, Relaxed) {
            return;
        }
        let sweeping = Sweeping(self.clone());
        tokio::spawn(async move {
            // a failure is no harm: the next sweep deletes the rows
            let _ = sweeping.0.sweep().await;
        });
    }

    async fn run_one(&self, call: Call) -> Result<OperationOutcome, StoreError> {
        let outcome = self.run_calls(&[call]).await?.pop();
        outcome.ok_or_else(|| StoreErrorKind::Corrupt.into())
    }

    async fn write(&self, key: &Key, expected: Expected, record: &Record) -> Result<WriteOutcome, StoreError> {
        match self.run_one(Call::write(key, expected, record)?).await? {
            OperationOutcome::Write(outcome) => Ok(outcome),
            _ => Err(StoreErrorKind::Corrupt.into()),
        }
    }
}

/// A sweep in the background. It also ends if its task is dropped, such as with its runtime.
struct Sweeping(SqlStore);

impl Drop for Sweeping {
    fn drop(&mut self) {
        self.0.0.is_sweeping.store(false, Relaxed);
    }
}

impl Shared {
    /// Remembers the epoch of a reply, and returns the rest.
    fn notice<T>(&self, reply: InEpoch<T>) -> T {
        self.epoch.fetch_max(reply.epoch.cast_unsigned(), SeqCst);
        reply.value
    }

    async fn begin_epoch(&self) -> Result<(), StoreError> {
        let now = self.clock.read().1.as_nanos().cast_signed();
        let beginning = async {
            match &self.database.pool {
                #[cfg(feature = "postgres")]
                Pool::Postgres(pool, _) => postgres::begin_epoch(pool, now).await,
                #[cfg(feature = "sqlite")]
                Pool::Sqlite { writes, .. } => sqlite::begin_epoch(writes, now).await,
            }
            .map_err(store_error)
        };
        let epoch = self.database.within(beginning).await?;
        self.notice(InEpoch { epoch, value: () });
        Ok(())
    }

    async fn read(&self, key: &[u8]) -> Result<Option<Entry>, StoreError> {
        let reading = async {
            let mut tries = self.database.tries(true);
            loop {
                let result = match &self.database.pool {
                    #[cfg(feature = "postgres")]
                    Pool::Postgres(pool, _) => postgres::read(pool, key).await,
                    #[cfg(feature = "sqlite")]
                    Pool::Sqlite { reads, .. } => sqlite::read(reads, key).await,
                };
                match result {
                    Err(error) if tries.again(&error) => {}
                    result => return result.map_err(store_error),
                }
            }
        };
        Ok(self.notice(self.database.within(reading).await?))
    }

    async fn run(&self, calls: &[Call]) -> Result<Vec<OperationOutcome>, StoreError> {
        let is_read = calls.iter().all(Call::is_read);
        let running = async {
            let mut tries = self.database.tries(is_read);
            loop {
                let result = match &self.database.pool {
                    #[cfg(feature = "postgres")]
                    Pool::Postgres(pool, _) => postgres::run(pool, calls).await,
                    #[cfg(feature = "sqlite")]
                    Pool::Sqlite { reads, .. } if is_read => sqlite::run(reads, sqlite::TO_READ, calls).await,
                    #[cfg(feature = "sqlite")]
                    Pool::Sqlite { writes, .. } => sqlite::run(writes, sqlite::TO_WRITE, calls).await,
                };
                match result {
                    Err(error) if tries.again(&error) => {}
                    result => return result.map_err(store_error),
                }
            }
        };
        Ok(self.notice(self.database.within(running).await?))
    }

    async fn scan(&self, after: &[u8]) -> Result<ScanPage, StoreError> {
        let most = ScanPage::USUAL_LEN.try_into().unwrap_or(i64::MAX);
        let scanning = async {
            match &self.database.pool {
                #[cfg(feature = "postgres")]
                Pool::Postgres(pool, _) => sqlx::query_as(row::SCAN).bind(after).bind(most).fetch_all(pool).await,
                #[cfg(feature = "sqlite")]
                Pool::Sqlite { reads, .. } => sqlx::query_as(row::SCAN).bind(after).bind(most).fetch_all(reads).await,
            }
            .map_err(store_error)
        };
        row::page(self.database.within(scanning).await?)
    }

    async fn sweep_some(&self) -> Result<u64, StoreError> {
        let sweeping = async {
            match &self.database.pool {
                #[cfg(feature = "postgres")]
                Pool::Postgres(pool, _) => postgres::sweep(pool, ROWS_PER_SWEEP.into()).await,
                #[cfg(feature = "sqlite")]
                Pool::Sqlite { writes, .. } => sqlite::sweep(writes, ROWS_PER_SWEEP.into()).await,
            }
            .map_err(store_error)
        };
        self.database.within(sweeping).await
    }
}

impl Store for SqlStore {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        let (shared, key) = (Arc::clone(&self.0), key.clone());
        MaybeReady::Pending(async move { shared.read(key.as_bytes()).await })
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        self.write(key, Expected::Absent, &record).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        self.write(key, Expected::Version(expected), &record).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        match self.run_one(Call::take(key)).await? {
            OperationOutcome::Read(found) => Ok(found),
            _ => Err(StoreErrorKind::Corrupt.into()),
        }
    }

    async fn run(&self, operations: Vec<Operation>) -> Result<Vec<OperationOutcome>, StoreError> {
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        self.run_calls(&operations.iter().map(Call::try_from).collect::<Result<Vec<_>, _>>()?).await
    }

    /// Reads the entries in the order of their keys.
    async fn scan(&self, cursor: Option<ScanCursor>) -> Result<ScanPage, StoreError> {
        self.0.scan(cursor.as_ref().map_or(&[], ScanCursor::as_bytes)).await
    }

    fn complete_since(&self) -> UnixTime {
        UnixTime::from_nanos(self.0.epoch.load(SeqCst))
    }

    async fn begin_epoch(&self) -> Result<(), StoreError> {
        self.0.begin_epoch().await
    }
}

impl fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlStore").field("database", &self.0.database).finish_non_exhaustive()
    }
}
