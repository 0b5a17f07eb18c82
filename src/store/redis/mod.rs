mod entry;
mod epoch;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;

use self::{
    entry::{decode, encode},
    epoch::Epochs,
};
use super::{
    contract::Store,
    error::{StoreError, StoreErrorKind},
    key::Key,
    record::{Entry, Record, Version, WriteOutcome},
};
use crate::{
    gate::MaybeReady,
    redis::{FailureKind, Link, RedisConfig, RedisFailure, Reply, Script},
    util::{clock::UnixTime, error::ConfigError},
};

/// A [`Store`] on Redis or Valkey that many processes share (feature `redis`).
///
/// - Needs Redis 6.2 or later, or Valkey: one server or a cluster, with or without TLS ([`RedisConfig`]).
/// - A write is one script call, a read one `MGET`. Each process sees the writes of all others with its next call.
/// - Entries expire on the server. None may be evicted: [`connect`](Self::connect) refuses a server whose
///   `maxmemory-policy` is not `noeviction`. A server without memory refuses writes with [`StoreErrorKind::Full`],
///   and reading and removing go on.
/// - No call waits longer than the [deadline](RedisConfig::deadline). A server that is down makes calls fail at once
///   with [`StoreErrorKind::Unavailable`]. The connection is restored in the background.
/// - After a restart, a failover or a flush, revocations may be missing. The store notices it and refuses access tokens
///   that were issued before ([`Store::complete_since`]); clients get new ones with their refresh tokens.
///
/// `docs/scale.md` describes how to run it, and what can be lost.
///
/// ```no_run
/// use tollgate::store::{AnyStore, Redis};
///
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// let store = AnyStore::from(Redis::connect("redis://localhost:6379").await?);
/// # drop(store);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Redis(Arc<Shared>);

struct Shared {
    link: Link,
    prefix: String,
    epochs: Epochs,
}

const DEADLINE: Duration = Duration::from_millis(500);

/// Writes an entry if the current one has the expected version. Arguments: epoch, expected version or nothing, entry,
/// lifetime. Returns 0 if the epoch is another one, 1 if it wrote, or else the current entry.
static WRITE: Script = Script::new(
    "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if redis.call('GETRANGE', KEYS[2], 0, 15) ~= ARGV[2] then return redis.call('GET', KEYS[2]) end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
return 1",
);

/// Removes an entry. Argument: epoch. Returns 0 if the epoch is another one, or else the entry.
static TAKE: Script = Script::new(
    "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local found = redis.call('GET', KEYS[2])
if found then redis.call('DEL', KEYS[2]) end
return found",
);

impl Redis {
    /// Connects to the server at this URL; [`RedisConfig::new`] describes its form.
    ///
    /// Call it in a tokio runtime that lives as long as the store. The first process waits for up to a second, until
    /// the time of the server is past the beginning of the new store.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is invalid, the server can't be reached, or may evict entries.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let misconfigured = |error: ConfigError| StoreError::new(StoreErrorKind::Misconfigured, error);
        Self::connect_with(RedisConfig::new(url).map_err(misconfigured)?).await
    }

    /// Connects with other settings.
    ///
    /// # Errors
    ///
    /// Returns an error if the settings are invalid, the server can't be reached, or may evict entries.
    pub async fn connect_with(config: RedisConfig) -> Result<Self, StoreError> {
        let link = Link::connect(&config, config.deadline_or(DEADLINE)).await?;
        let prefix = config.prefix().to_owned();
        let epochs = Epochs::begin(&link, &prefix).await?;
        Ok(Self(Arc::new(Shared { link, prefix, epochs })))
    }
}

/// How often a call is repeated because the epoch of the store changes meanwhile.
const TRIES: usize = 3;

impl Shared {
    /// Returns the partition of a key, and its name on the server. The hash tag in braces places the key next to the
    /// epoch of its partition.
    fn place(&self, key: &Key) -> (usize, Vec<u8>) {
        let part = epoch::partition(key.as_bytes());
        (part, [format!("{}:{{{part}}}", self.prefix).as_bytes(), key.as_bytes()].concat())
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        let (part, key) = self.place(key);
        let epochs = &self.epochs;
        let known = epochs.known(&self.link, part).await?;
        let found = match self.link.read(&[epochs.key(part), &key]).await {
            Ok(Reply::List(found)) => found,
            Ok(_) => return Err(crate::redis::unexpected().into()),
            Err(failure) => return Err(self.failed(part, failure)),
        };
        let mut found = found.into_iter();
        let (epoch, entry) = (found.next(), found.next());
        if epoch != Some(Reply::Bytes(known)) {
            // learns since when the entries are complete, before anybody relies on there being none
            epochs.forget(part);
            epochs.known(&self.link, part).await?;
        }
        read_entry(entry.unwrap_or(Reply::Nothing))
    }

    async fn write(&self, key: &Key, expected: Option<Version>, record: &Record) -> Result<WriteOutcome, StoreError> {
        let version = entry::new_version();
        let expected = expected.map(|version| version.as_u128().to_le_bytes());
        let expected = expected.as_ref().map_or(&[][..], |version| version);
        let value = encode(version, record.expires_at(), record.value());
        // the server's time has a resolution of a millisecond; readers check the exact time
        let lives = record.time_to_live().as_nanos().div_ceil(1_000_000).max(1).to_string();
        match self.run(&WRITE, key, &[expected, &value, lives.as_bytes()]).await? {
            Reply::Number(1) => Ok(WriteOutcome::Done(version)),
            found => match read_entry(found)? {
                // a cluster may have executed the call twice
                Some(own) if own.version == version => Ok(WriteOutcome::Done(version)),
                found => Ok(WriteOutcome::Lost(found)),
            },
        }
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        read_entry(self.run(&TAKE, key, &[]).await?)
    }

    /// Runs a script in the current epoch.
    async fn run(&self, script: &Script, key: &Key, arguments: &[&[u8]]) -> Result<Reply, StoreError> {
        let (part, key) = self.place(key);
        let epochs = &self.epochs;
        for _ in 0..TRIES {
            let epoch: Bytes = epochs.known(&self.link, part).await?;
            let arguments = [&[&epoch[..]], arguments].concat();
            match self.link.run(script, &[epochs.key(part), &key], &arguments).await {
                Ok(Reply::Number(0)) => epochs.forget(part),
                Ok(reply) => return Ok(reply),
                Err(failure) => return Err(self.failed(part, failure)),
            }
        }
        Err(StoreError::new(StoreErrorKind::Unavailable, "the server is losing its entries"))
    }

    /// The server may have been replaced, so that the epoch must be checked before the next call.
    fn failed(&self, part: usize, failure: RedisFailure) -> StoreError {
        self.epochs.forget(part);
        failure.into()
    }
}

fn read_entry(reply: Reply) -> Result<Option<Entry>, StoreError> {
    match reply {
        Reply::Nothing => Ok(None),
        Reply::Bytes(bytes) => decode(&bytes).map(Some),
        Reply::Number(_) | Reply::List(_) => Err(crate::redis::unexpected().into()),
    }
}

impl Store for Redis {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        let (shared, key) = (Arc::clone(&self.0), key.clone());
        MaybeReady::Pending(async move { shared.get(&key).await })
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        self.0.write(key, None, &record).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        self.0.write(key, Some(expected), &record).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.0.take(key).await
    }

    fn complete_since(&self) -> UnixTime {
        self.0.epochs.complete_since()
    }
}

impl From<RedisFailure> for StoreError {
    fn from(failure: RedisFailure) -> Self {
        let kind = match failure.kind {
            FailureKind::Unavailable => StoreErrorKind::Unavailable,
            FailureKind::Full => StoreErrorKind::Full,
            FailureKind::Misconfigured => StoreErrorKind::Misconfigured,
            FailureKind::Corrupt => StoreErrorKind::Corrupt,
        };
        Self::new(kind, failure)
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("prefix", &self.0.prefix).finish_non_exhaustive()
    }
}
