//! A connected database.

use std::{fmt, future::Future, time::Duration};

use sqlx::Error;
use tollgate::store::{StoreError, StoreErrorKind};

#[cfg(feature = "postgres")]
use crate::postgres;
#[cfg(feature = "sqlite")]
use crate::sqlite;
use crate::{
    error::{is_conflict, is_lost, store_error},
    migrations::{self, Dialect},
};

/// A database with its pool of connections. Clones share them.
#[derive(Clone)]
pub struct Database {
    pub(crate) pool: Pool,
    deadline: Duration,
}

#[derive(Clone)]
pub(crate) enum Pool {
    /// Pools of [`Database::connect`] can replace their connections.
    #[cfg(feature = "postgres")]
    Postgres(sqlx::PgPool, Option<postgres::Renewal>),
    /// Writes have a connection of their own, so that those that wait for a lock leave the others to reads.
    #[cfg(feature = "sqlite")]
    Sqlite { reads: sqlx::SqlitePool, writes: sqlx::SqlitePool },
}

impl Pool {
    /// Replaces all connections before their next use, if this pool can.
    fn replace_connections(&self) {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(_, Some(renewal)) = self {
            renewal.replace_connections();
        }
    }
}

/// How long a call may take by default.
const DEADLINE: Duration = Duration::from_secs(5);
/// How often a call is made that the database has rolled back because of another one.
const TRIES: u32 = 4;

impl Database {
    /// Connects to `postgres://user:password@host/database` or `sqlite://file.db`. A SQLite file is created if it is
    /// missing.
    ///
    /// A pool has at most 10 connections to PostgreSQL, or 5 to SQLite, of which one writes. Use
    /// [`from_postgres`](Self::from_postgres) or [`from_sqlite`](Self::from_sqlite) for other settings, or to share the pool
    /// of your application.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`StoreErrorKind::Misconfigured`] if the URL can't be used or the login is refused, and
    /// of the kind [`StoreErrorKind::Unavailable`] if the database can't be reached.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let scheme = url.split(':').next().unwrap_or_default();
        let connecting = async {
            match scheme {
                #[cfg(feature = "postgres")]
                "postgres" | "postgresql" => postgres::connect(url, DEADLINE).await.map_err(store_error),
                #[cfg(feature = "sqlite")]
                "sqlite" => sqlite::connect(url, DEADLINE).await.map_err(store_error),
                _ => {
                    // the URL may contain a password
                    let text = "the URL begins with neither postgres:// nor sqlite://, or the feature is not enabled";
                    Err(StoreError::new(StoreErrorKind::Misconfigured, text))
                }
            }
        };
        Ok(Self { pool: within(DEADLINE, connecting).await?, deadline: DEADLINE })
    }

    /// Uses the pool of an application. Its connections should have a `statement_timeout`, so that the server gives up
    /// calls whose [deadline](Self::deadline) has passed. They must have the isolation level `read committed`, which is
    /// the default of PostgreSQL. With another one, writes fail with an error of the kind
    /// [`StoreErrorKind::Misconfigured`].
    ///
    /// By default, such a pool tests a connection before it hands it out, which adds a round trip to each call. It also
    /// tests each connection that it gets back, and waits for the answer without a bound. If the network fails
    /// silently, all connections of the pool stay taken until the operating system gives up. To prevent this, set
    /// [`after_release`](sqlx::pool::PoolOptions::after_release) to a `ping` with a timeout that returns an error when
    /// it expires, as pools of [`connect`](Self::connect) do.
    #[cfg(feature = "postgres")]
    pub fn from_postgres(pool: sqlx::PgPool) -> Self {
        Self { pool: Pool::Postgres(pool, None), deadline: DEADLINE }
    }

    /// Uses the pool of an application. Set `journal_mode` to `wal` and a `busy_timeout`.
    ///
    /// Writes that wait for a lock of another process hold connections of this pool, so reads may have to wait, too.
    #[cfg(feature = "sqlite")]
    pub fn from_sqlite(pool: sqlx::SqlitePool) -> Self {
        Self { pool: Pool::Sqlite { reads: pool.clone(), writes: pool }, deadline: DEADLINE }
    }

    /// Sets how long a call may take, including the time that it waits for a connection. Defaults to 5 seconds.
    ///
    /// Set it before you clone the value: PostgreSQL has one `statement_timeout` for all clones, the one that was set last.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        #[cfg(feature = "postgres")]
        if let Pool::Postgres(pool, Some(renewal)) = &self.pool {
            postgres::set_deadline(pool, renewal, deadline);
        }
        Self { deadline, ..self }
    }

    /// Returns which kind of database this is.
    pub fn dialect(&self) -> Dialect {
        match &self.pool {
            #[cfg(feature = "postgres")]
            Pool::Postgres(..) => Dialect::Postgres,
            #[cfg(feature = "sqlite")]
            Pool::Sqlite { .. } => Dialect::Sqlite,
        }
    }

    /// Returns the pool of PostgreSQL, to use it for tables of your own.
    #[cfg(feature = "postgres")]
    pub fn postgres_pool(&self) -> Option<&sqlx::PgPool> {
        match &self.pool {
            Pool::Postgres(pool, _) => Some(pool),
            #[cfg(feature = "sqlite")]
            Pool::Sqlite { .. } => None,
        }
    }

    /// Returns the pool of SQLite, to use it for tables of your own.
    #[cfg(feature = "sqlite")]
    pub fn sqlite_pool(&self) -> Option<&sqlx::SqlitePool> {
        match &self.pool {
            #[cfg(feature = "postgres")]
            Pool::Postgres(..) => None,
            Pool::Sqlite { reads, .. } => Some(reads),
        }
    }

    /// Creates the tables, or updates those of an earlier version, in one transaction. Several processes may call it at
    /// once. It must finish within the [deadline](Self::deadline), like every call.
    ///
    /// Connect as a user who may create tables. The application itself needs only to read and write them.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`StoreErrorKind::NewerFormat`] if a newer program has updated the schema.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        match &self.pool {
            #[cfg(feature = "postgres")]
            Pool::Postgres(pool, _) => self.within(postgres::migrate(pool)).await,
            #[cfg(feature = "sqlite")]
            Pool::Sqlite { writes, .. } => self.within(sqlite::migrate(writes)).await,
        }
    }

    /// Checks that the schema is the one that this program knows.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`StoreErrorKind::Misconfigured`] if the migrations have not been run, and of the kind
    /// [`StoreErrorKind::NewerFormat`] if a newer program has run its own.
    pub async fn check(&self) -> Result<(), StoreError> {
        let found = match &self.pool {
            #[cfg(feature = "postgres")]
            Pool::Postgres(pool, _) => self.within(async { postgres::schema(pool).await.map_err(store_error) }).await?,
            #[cfg(feature = "sqlite")]
            Pool::Sqlite { reads, .. } => {
                self.within(async { sqlite::schema(reads).await.map_err(store_error) }).await?
            }
        };
        migrations::check(self.dialect(), found)
    }

    /// Runs a call with the deadline.
    pub(crate) async fn within<T, E: From<StoreError>>(
        &self,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        within(self.deadline, call).await
    }

    /// Returns what decides whether a call is repeated after an error.
    pub(crate) fn tries(&self, is_read: bool) -> Tries<'_> {
        Tries { pool: &self.pool, is_read, left: TRIES }
    }
}

/// Decides whether a call is repeated after an error. The deadline of the call bounds all of its tries.
pub(crate) struct Tries<'a> {
    pool: &'a Pool,
    is_read: bool,
    left: u32,
}

impl Tries<'_> {
    pub(crate) fn again(&mut self, error: &Error) -> bool {
        if matches!(error, Error::PoolTimedOut) {
            // nothing was sent
            return true;
        }
        self.left = self.left.saturating_sub(1);
        if is_lost(error) {
            self.pool.replace_connections();
            // a write may have been executed
            return std::mem::take(&mut self.is_read);
        }
        self.left > 0 && is_conflict(error)
    }
}

async fn within<T, E: From<StoreError>>(deadline: Duration, call: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    match tokio::time::timeout(deadline, call).await {
        Ok(result) => result,
        Err(_) => {
            let text = format!("no connection was free, or the database did not answer, within {deadline:?}");
            Err(StoreError::new(StoreErrorKind::Unavailable, text).into())
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("dialect", &self.dialect()).finish_non_exhaustive()
    }
}
