//! Where logins, sessions, users and signing keys are kept: in memory, in a directory, or on Redis.

use std::{error::Error, fs, path::Path, path::PathBuf};

use tollgate::store::{AnyStore, Disk, Memory, Redis};

use crate::{
    explain::explained,
    state::{RedisServer, State},
    users::AccountTable,
};

/// How to run this server.
pub(crate) const COMMAND: &str = "cargo run --example server";
pub(crate) const WITH_SSO: &str = "cargo run --features external-providers --example server";

/// The part of `--help` about storage.
pub(crate) const HELP: &str = "  --data DIR         keeps logins, sessions, users and signing keys in this
                     directory, so that they survive a restart; keeps them in
                     memory by default
  --redis URL        keeps them in Redis or Valkey instead, so that several
                     servers can share them: redis://host:6379, or rediss://
                     for TLS; docs/scale.md has the details. The environment
                     variable REDIS_PASSWORD sets the password
";

pub(crate) enum Storage {
    Memory,
    Directory(PathBuf),
    Redis(RedisServer),
}

impl Storage {
    /// Reads the values of `--data`, `--redis` and `--database`, or of the file.
    pub(crate) fn read(
        data: Option<PathBuf>,
        redis: Option<RedisServer>,
        database: Option<String>,
    ) -> Result<Self, String> {
        match (data, redis, database) {
            (None, None, None) => Ok(Self::Memory),
            (Some(directory), None, None) => Ok(Self::Directory(directory)),
            (None, Some(server), None) => Ok(Self::Redis(server)),
            (_, _, None) => Err("--data and --redis exclude each other.".to_owned()),
            (_, _, Some(_)) => Err("--database: this server has no database driver. Run the one that has:\n\
                 cargo run -p tollgate-sqlx --example server -- --database URL\n"
                .to_owned()),
        }
    }
}

pub(crate) async fn open(storage: &Storage) -> Result<State, Box<dyn Error>> {
    let (store, redis) = match storage {
        Storage::Memory => (Memory::new().into(), None),
        Storage::Directory(path) => {
            let store = disk(path).map_err(|error| format!("--data {}: {}", path.display(), explained(&*error)))?;
            (store, None)
        }
        Storage::Redis(server) => {
            let config = server.config()?.share_connection();
            let store =
                Redis::connect_with(config.clone()).await.map_err(|error| format!("--redis: {}", explained(&error)))?;
            (AnyStore::from(store), Some(config))
        }
    };
    Ok(State::new(store.clone(), AccountTable::new(store), redis))
}

/// Opens a store for `--check-config`, in which nothing is kept.
#[expect(clippy::unused_async, reason = "the server on SQL opens a database")]
pub(crate) async fn scratch(_directory: &Path) -> Result<State, Box<dyn Error>> {
    let store = AnyStore::from(Memory::new());
    Ok(State::new(store.clone(), AccountTable::new(store), None))
}

fn disk(directory: &Path) -> Result<AnyStore, Box<dyn Error>> {
    if directory.exists() && !directory.is_dir() {
        return Err("is a file, not a directory".into());
    }
    fs::create_dir_all(directory)?;
    Ok(AnyStore::from(Disk::open(directory.join("state.redb"))?))
}
