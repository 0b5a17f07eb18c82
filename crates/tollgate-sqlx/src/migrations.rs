//! The versions of the schema.

use std::fmt;

use tollgate::store::{StoreError, StoreErrorKind};

/// A kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// SQLite.
    Sqlite,
}

const POSTGRES: &[&str] =
    &[include_str!("../migrations/postgres/0001_store.sql"), include_str!("../migrations/postgres/0002_users.sql")];
const SQLITE: &[&str] =
    &[include_str!("../migrations/sqlite/0001_store.sql"), include_str!("../migrations/sqlite/0002_users.sql")];

impl Dialect {
    pub(crate) fn all(self) -> &'static [&'static str] {
        match self {
            Self::Postgres => POSTGRES,
            Self::Sqlite => SQLITE,
        }
    }

    /// Returns the SQL that brings a schema of this version to the newest one, for operators who run migrations
    /// themselves. Version 0 is a database without tables. The text ends with the statement that records the version. It is
    /// empty if the schema is the newest one, or newer.
    ///
    /// ```
    /// let sql = tollgate_sqlx::Dialect::Postgres.migrations(0);
    /// assert!(sql.contains("create table tollgate_rows"));
    /// ```
    pub fn migrations(self, from: usize) -> String {
        if from >= self.all().len() {
            return String::new();
        }
        let mut sql = String::from(if from == 0 { SCHEMA_TABLE } else { "" });
        for migration in self.all().iter().skip(from) {
            sql += "\n";
            sql += migration;
        }
        sql += &format!("\nupdate tollgate_schema set version = {};\n", self.all().len());
        sql
    }
}

const SCHEMA_TABLE: &str =
    "create table tollgate_schema (version integer not null);\ninsert into tollgate_schema values (0);\n";

/// Checks that this program can use a schema of this version.
pub(crate) fn check(dialect: Dialect, found: Option<i64>) -> Result<(), StoreError> {
    let newest = dialect.all().len();
    match found.map(usize::try_from) {
        Some(Ok(version)) if version == newest => Ok(()),
        Some(Ok(version)) if version > newest => Err(newer(version, newest)),
        Some(_) => Err(StoreError::new(StoreErrorKind::Misconfigured, Outdated)),
        None => Err(StoreError::new(StoreErrorKind::Misconfigured, Missing)),
    }
}

pub(crate) fn newer(version: usize, newest: usize) -> StoreError {
    let text = format!("the schema has version {version}, and this program knows versions up to {newest}");
    StoreError::new(StoreErrorKind::NewerFormat, text)
}

#[derive(Debug)]
struct Missing;

#[derive(Debug)]
struct Outdated;

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no table tollgate_schema: run the migrations first")
    }
}

impl fmt::Display for Outdated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the schema is older than this program: run the migrations first")
    }
}

impl std::error::Error for Missing {}
impl std::error::Error for Outdated {}
