//! PostgreSQL and SQLite for [`tollgate`]: logins, sessions, tokens and accounts in the database that you already
//! back up.
//!
//! ```no_run
//! use tollgate::store::AnyStore;
//! use tollgate_sqlx::{Database, SqlStore};
//!
//! # async fn open() -> Result<(), Box<dyn std::error::Error>> {
//! let database = Database::connect("postgres://app@localhost/app").await?; // or "sqlite://app.db"
//! database.migrate().await?;
//! let store = AnyStore::from(SqlStore::new(&database));
//! # let _ = store;
//! # Ok(())
//! # }
//! ```
//!
//! [`SqlUsers`] keeps accounts in tables that an application can join.
//!
//! # What it needs
//!
//! PostgreSQL 14 or later (feature `postgres`), or SQLite, which is compiled into the program (feature `sqlite`).
//! [`SqlUsers`] needs the feature `users`. All three are on by default. The names of all tables, functions and
//! sequences begin with `tollgate_`. They are in the first schema of the search path.
//!
//! [`Database::migrate`] creates and updates them. To run the migrations by other means, print them with
//! [`Dialect::migrations`]. A program that is older than its schema gets an error of the kind
//! [`NewerFormat`](tollgate::store::StoreErrorKind::NewerFormat) at startup.
//!
//! # What is guaranteed
//!
//! - **One round trip** to PostgreSQL for a read, and one for a batch of operations, which is a call of the function
//!   `tollgate_run`. A connection that was idle for a second is tested first. A connection that is returned to the pool
//!   is tested in the background. On SQLite, a batch is a transaction.
//! - **Acknowledged writes are durable**, as far as the database keeps them: PostgreSQL with `synchronous_commit = on`,
//!   SQLite with `synchronous = full`, which [`Database::connect`] sets.
//! - **Times come from the clock of the application.** The clock of the database decides only when expired rows are
//!   deleted.
//! - **Nothing waits without a bound.** A call that takes longer than the [deadline](Database::deadline) fails with an
//!   error of the kind [`Unavailable`](tollgate::store::StoreErrorKind::Unavailable).
//!
//! Rate limits stay in memory or on Redis: a row per request would make a database slow for everybody else.
//!
//! A failover to a replica that lags can lose acknowledged writes, such as the end of a session. Use synchronous
//! replication if that must not happen.

#[cfg(not(any(feature = "postgres", feature = "sqlite")))]
compile_error!("enable the feature `postgres` or `sqlite` of tollgate-sqlx");

mod database;
mod error;
mod migrations;
#[cfg(feature = "postgres")]
mod postgres;
mod row;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
#[cfg(feature = "users")]
mod users;

#[cfg(feature = "users")]
pub use crate::users::{SqlUser, SqlUsers};
pub use crate::{database::Database, migrations::Dialect, store::SqlStore};
