//! Where logins, sessions, users and signing keys are kept: in PostgreSQL or SQLite.

use std::{error::Error, path::Path, path::PathBuf};

use tollgate::store::StoreError;
use tollgate_sqlx::{Database, SqlStore, SqlUsers};

use crate::{
    explain::explained,
    state::{RedisServer, State},
};

/// How to run this server.
pub(crate) const COMMAND: &str = "cargo run -p tollgate-sqlx --example server";
pub(crate) const WITH_SSO: &str = "cargo run -p tollgate-sqlx --features external-providers --example server";

/// The part of `--help` about storage.
pub(crate) const HELP: &str = "  --database URL     keeps logins, sessions, users and signing keys there:
                     postgres://user:password@host/database, which several
                     servers can share, or sqlite://file.db; creates or updates
                     its tables. docs/sql.md has the details. The environment
                     variable PGPASSWORD sets the password
  --redis URL        keeps the budgets of rate limits in Redis or Valkey, so that
                     servers with the same database share them, too: each counts
                     on its own by default. The environment variable
                     REDIS_PASSWORD sets the password
";

pub(crate) struct Storage {
    database: String,
    redis: Option<RedisServer>,
}

impl Storage {
    /// Reads the values of `--data`, `--redis` and `--database`, or of the file.
    pub(crate) fn read(
        data: Option<PathBuf>,
        redis: Option<RedisServer>,
        database: Option<String>,
    ) -> Result<Self, String> {
        if data.is_some() {
            return Err("--data: this server keeps its state in a database. The one with --data is:\n\
                 cargo run --example server -- --data DIR\n"
                .to_owned());
        }
        let database = database.ok_or("--database is needed, such as --database sqlite://tollgate.db.")?;
        Ok(Self { database, redis })
    }
}

pub(crate) async fn open(storage: &Storage) -> Result<State, Box<dyn Error>> {
    let said = |error: StoreError| format!("--database: {}", explained(&error));
    let database = Database::connect(&storage.database).await.map_err(said)?;
    // a user of the database who may not create tables needs none of this if an operator has run the migrations
    if database.check().await.is_err() {
        database.migrate().await.map_err(said)?;
    }
    let redis = storage.redis.as_ref().map(RedisServer::config).transpose()?;
    Ok(State::new(SqlStore::new(&database).into(), SqlUsers::new(&database), redis))
}

/// Opens a database for `--check-config` in this directory, which is removed afterwards.
pub(crate) async fn scratch(directory: &Path) -> Result<State, Box<dyn Error>> {
    let database = format!("sqlite://{}", directory.join("check.db").display());
    open(&Storage { database, redis: None }).await
}
