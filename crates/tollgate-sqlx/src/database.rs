//! A connected database.

use std::{fmt, future::Future, time::Duration};

use tollgate::store::{StoreError, StoreErrorKind};

#[cfg(feature = "postgres")]
use crate::postgres;
#[cfg(feature = "sqlite")]
use crate::sqlite;
use crate::{
    error::store_error,
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
    #[cfg(feature = "postgres")]
    Postgres(sqlx::PgPool),
    #[cfg(feature = "sqlite")]
    Sqlite(sqlx::SqlitePool),
}

/// How long a call may take by default.
const DEADLINE: Duration = Duration::from_secs(5);

impl Database {
    /// Connects to `postgres://user:password@host/database` or `sqlite://file.db`. A SQLite file is created if it is
    /// missing.
    ///
    /// A pool has at most 10 connections to PostgreSQL, and 4 to SQLite. Use [`from_postgres`](Self::from_postgres) or
    /// [`from_sqlite`](Self::from_sqlite) for other settings, or to share the pool of your application.
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
                "postgres" | "postgresql" => {
                    postgres::connect(url, DEADLINE).await.map(Pool::Postgres).map_err(store_error)
                }
                #[cfg(feature = "sqlite")]
                "sqlite" => sqlite::connect(url, DEADLINE).await.map(Pool::Sqlite).map_err(store_error),
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
    /// calls whose [deadline](Self::deadline) is over.
    #[cfg(feature = "postgres")]
    pub fn from_postgres(pool: sqlx::PgPool) -> Self {
        Self { pool: Pool::Postgres(pool), deadline: DEADLINE }
    }

    /// Uses the pool of an application. Set `journal_mode` to `wal` and a `busy_timeout`.
    #[cfg(feature = "sqlite")]
    pub fn from_sqlite(pool: sqlx::SqlitePool) -> Self {
        Self { pool: Pool::Sqlite(pool), deadline: DEADLINE }
    }

    /// Sets how long a call may take. Defaults to 5 seconds.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Returns which kind of database this is.
    pub fn dialect(&self) -> Dialect {
        match &self.pool {
            #[cfg(feature = "postgres")]
            Pool::Postgres(_) => Dialect::Postgres,
            #[cfg(feature = "sqlite")]
            Pool::Sqlite(_) => Dialect::Sqlite,
        }
    }

    /// Returns the pool of PostgreSQL, to use it for tables of your own.
    #[cfg(feature = "postgres")]
    pub fn postgres_pool(&self) -> Option<&sqlx::PgPool> {
        match &self.pool {
            Pool::Postgres(pool) => Some(pool),
            #[cfg(feature = "sqlite")]
            Pool::Sqlite(_) => None,
        }
    }

    /// Returns the pool of SQLite, to use it for tables of your own.
    #[cfg(feature = "sqlite")]
    pub fn sqlite_pool(&self) -> Option<&sqlx::SqlitePool> {
        match &self.pool {
            #[cfg(feature = "postgres")]
            Pool::Postgres(_) => None,
            Pool::Sqlite(pool) => Some(pool),
        }
    }

    /// Creates the tables, or updates those of an earlier version, in one transaction. Several processes may call it at once.
    ///
    /// Connect as a user who may create tables. The application itself needs only to read and write them.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`StoreErrorKind::NewerFormat`] if a newer program has updated the schema.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        match &self.pool {
            #[cfg(feature = "postgres")]
            Pool::Postgres(pool) => postgres::migrate(pool).await,
            #[cfg(feature = "sqlite")]
            Pool::Sqlite(pool) => sqlite::migrate(pool).await,
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
            Pool::Postgres(pool) => self.within(async { postgres::schema(pool).await.map_err(store_error) }).await?,
            #[cfg(feature = "sqlite")]
            Pool::Sqlite(pool) => self.within(async { sqlite::schema(pool).await.map_err(store_error) }).await?,
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
}

async fn within<T, E: From<StoreError>>(deadline: Duration, call: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    match tokio::time::timeout(deadline, call).await {
        Ok(result) => result,
        Err(_) => {
            let text = format!("the database did not answer within {deadline:?}");
            Err(StoreError::new(StoreErrorKind::Unavailable, text).into())
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("dialect", &self.dialect()).finish_non_exhaustive()
    }
}
