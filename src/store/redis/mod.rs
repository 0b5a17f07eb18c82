mod entry;
mod epoch;

use std::{sync::Arc, time::Duration};

use self::{
    entry::{decode_redis_entry, encode_redis_entry},
    epoch::Epochs,
};
use super::{
    contract::{Store, one_by_one},
    error::{StoreError, StoreErrorKind},
    key::Key,
    record::{Entry, Expected, Operation, OperationOutcome, Record, Version, WriteOutcome},
    scan::{ScanCursor, ScanPage},
};
use crate::{
    gate::MaybeReady,
    redis::{Delivery, FailureKind, Link, RedisConfig, RedisFailure, Reply, Script, unexpected},
    util::{clock::UnixTime, error::ConfigError},
};

/// A [`Store`] on Redis or Valkey that many processes share (feature `redis`).
///
/// - Needs Redis 6.2 or later, or Valkey: one server or a cluster, with or without TLS ([`RedisConfig`]).
/// - A write is one script call, a read one `MGET`. Each process sees the writes of all others with its next call.
/// - Entries expire on the server. None may be evicted: [`connect`](Self::connect) refuses a server whose
///   `maxmemory-policy` is not `noeviction`. A server without free memory refuses writes with
///   [`StoreErrorKind::Full`]; reading and removing still work.
/// - No call waits longer than the [deadline](RedisConfig::deadline). While the server is down, calls fail at once with
///   [`StoreErrorKind::Unavailable`]. The connection is restored in the background.
/// - After a restart, a failover or a flush, revocations may be missing. The store notices this, and anything signed
///   before, such as an access token, is refused ([`Store::complete_since`]). Clients get a new one.
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
    is_cluster: bool,
    prefix: String,
    epochs: Epochs,
}

const DEADLINE: Duration = Duration::from_millis(500);

/// Executes operations up to the first write that loses. Keys: the epoch and the entry of each. Arguments of each: the
/// epoch, the expected version or nothing, whether the entry may be missing, the entry or nothing to read it, and its
/// lifetime, or `take` to remove what was read. Returns 0 if an epoch is another one, or else a list with the entry that was
/// read, 1 for a write, or the entry that a write lost against.
static RUN: Script = Script::new(
    "local count, done = #KEYS / 2, {}
for i = 1, count do
if redis.call('GET', KEYS[2 * i - 1]) ~= ARGV[5 * i - 4] then return 0 end
end
for i = 1, count do
local key, at = KEYS[2 * i], 5 * i - 4
if ARGV[at + 3] == '' then
done[i] = redis.call('GET', key)
if done[i] and ARGV[at + 4] == 'take' then redis.call('DEL', key) end
else
local own = redis.call('GETRANGE', key, 0, 15)
if own ~= ARGV[at + 1] and not (own == '' and ARGV[at + 2] == '1') then
done[i] = redis.call('GET', key)
return done
end
redis.call('SET', key, ARGV[at + 3], 'PX', ARGV[at + 4])
done[i] = 1
end
end
return done",
);

/// Reads some entries. Arguments: the cursor of the server, a pattern of the keys, and about how many. Returns the next cursor, the
/// keys, and their entries.
static SCAN: Script = Script::new(
    "local found = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
local entries = {}
for i, key in ipairs(found[2]) do entries[i] = redis.call('GET', key) end
return {found[1], found[2], entries}",
);

impl Redis {
    /// Connects to the server at this URL; [`RedisConfig::new`] describes its form.
    ///
    /// Call it in a tokio runtime that outlives the store.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is invalid, or if the server can't be reached or is configured to evict entries.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let misconfigured = |error: ConfigError| StoreError::new(StoreErrorKind::Misconfigured, error);
        Self::connect_with(RedisConfig::new(url).map_err(misconfigured)?).await
    }

    /// Connects with other settings.
    ///
    /// # Errors
    ///
    /// Returns an error if the settings are invalid, or if the server can't be reached or is configured to evict
    /// entries.
    pub async fn connect_with(config: RedisConfig) -> Result<Self, StoreError> {
        let link = Link::connect(&config, config.deadline_or(DEADLINE)).await?;
        let RedisConfig { prefix, is_cluster, .. } = config;
        let epochs = Epochs::load_epochs(&link, &prefix, is_cluster).await?;
        Ok(Self(Arc::new(Shared { link, is_cluster, prefix, epochs })))
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
        let known = epochs.current_epoch(&self.link, part).await?;
        let found = match self.link.read_redis_keys(&[epochs.key(part), &key]).await {
            Ok(Reply::List(found)) => found,
            Ok(_) => return Err(unexpected().into()),
            Err(failure) => {
                epochs.forget_epoch(part);
                return Err(failure.into());
            }
        };
        let mut found = found.into_iter();
        let (epoch, entry) = (found.next(), found.next());
        if epoch != Some(Reply::Bytes(known)) {
            // learns since when the entries are complete, before anybody relies on there being none
            epochs.forget_epoch(part);
            epochs.current_epoch(&self.link, part).await?;
        }
        read_entry(entry.unwrap_or(Reply::Nothing))
    }

    async fn write_redis_entry(
        &self,
        key: &Key,
        expected: Expected,
        record: Record,
    ) -> Result<WriteOutcome, StoreError> {
        let write = Operation::Write(key.clone(), expected, record);
        match self.run(vec![ScriptedCall::from_operation(self, &write)]).await?.pop() {
            Some(OperationOutcome::Write(outcome)) => Ok(outcome),
            _ => Err(unexpected().into()),
        }
    }

    async fn take_redis_entry(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        let take = ScriptedCall { lives: "take".into(), ..ScriptedCall::read(self, key) };
        match self.run(vec![take]).await?.pop() {
            Some(OperationOutcome::Read(found)) => Ok(found),
            _ => Err(unexpected().into()),
        }
    }

    /// Executes operations on one server with one script call, in the current epochs.
    async fn run(&self, calls: Vec<ScriptedCall>) -> Result<Vec<OperationOutcome>, StoreError> {
        for _ in 0..TRIES {
            let mut epochs = Vec::with_capacity(calls.len());
            for call in &calls {
                epochs.push(self.epochs.current_epoch(&self.link, call.part).await?);
            }
            let keys: Vec<&[u8]> = calls.iter().flat_map(|call| [self.epochs.key(call.part), &call.key]).collect();
            let arguments = calls.iter().zip(&epochs);
            let arguments: Vec<&[u8]> = arguments
                .flat_map(|(call, epoch)| {
                    let may_be_missing = if call.may_be_missing { &b"1"[..] } else { b"" };
                    [&epoch[..], &call.expected, may_be_missing, &call.entry, call.lives.as_bytes()]
                })
                .collect();
            match self.link.run(&RUN, &keys, &arguments, Delivery::Resent).await {
                Ok(Reply::Number(0)) => calls.iter().for_each(|call| self.epochs.forget_epoch(call.part)),
                Ok(Reply::List(replies)) => {
                    return calls.iter().zip(replies).map(|(call, reply)| call.outcome(reply)).collect();
                }
                Ok(_) => return Err(unexpected().into()),
                // the server may have been replaced, so that the epochs must be checked before the next call
                Err(failure) => {
                    calls.iter().for_each(|call| self.epochs.forget_epoch(call.part));
                    return Err(failure.into());
                }
            }
        }
        Err(StoreError::new(StoreErrorKind::Unavailable, "the server is losing its entries"))
    }

    /// Reads some entries of a server.
    async fn scan(&self, cursor: &[u8]) -> Result<ScanPage, StoreError> {
        let escaped = self.prefix.chars().flat_map(|char| ['\\', char]);
        let pattern: String = escaped.chain(":{*}?*".chars()).collect();
        let arguments = [cursor, pattern.as_bytes(), ScanPage::USUAL_LEN.to_string().as_bytes()].map(<[u8]>::to_vec);
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        let Reply::List(reply) = self.link.run(&SCAN, &[], &arguments, Delivery::Resent).await? else {
            return Err(unexpected().into());
        };
        let Ok([Reply::Bytes(next), Reply::List(keys), Reply::List(found)]) = <[Reply; 3]>::try_from(reply) else {
            return Err(unexpected().into());
        };
        let mut entries = Vec::with_capacity(keys.len());
        for (key, entry) in keys.into_iter().zip(found) {
            let Reply::Bytes(name) = key else { return Err(unexpected().into()) };
            // after the prefix and the partition in braces
            let key = name.get(self.prefix.len() + 2..).and_then(|rest| rest.splitn(2, |byte| *byte == b'}').nth(1));
            // it can expire at any time
            if let Some(entry) = read_entry(entry)? {
                entries.push((Key::from_bytes(key.unwrap_or_default())?, entry));
            }
        }
        let next = Some(next).filter(|next| next != "0").map(ScanCursor::new);
        Ok(ScanPage { entries, next })
    }
}

/// An operation as keys and arguments of the script.
struct ScriptedCall {
    part: usize,
    key: Vec<u8>,
    /// The version that is written, or `None` to read.
    version: Option<Version>,
    expected: Vec<u8>,
    may_be_missing: bool,
    entry: Vec<u8>,
    lives: String,
}

impl ScriptedCall {
    fn read(shared: &Shared, key: &Key) -> Self {
        let (part, key) = shared.place(key);
        let (expected, entry, lives) = (Vec::new(), Vec::new(), String::new());
        Self { part, key, version: None, expected, may_be_missing: false, entry, lives }
    }

    fn from_operation(shared: &Shared, operation: &Operation) -> Self {
        match operation {
            Operation::Read(key) => Self::read(shared, key),
            Operation::Write(key, expected, record) => {
                let (part, key) = shared.place(key);
                let version = entry::new_version();
                let may_be_missing = matches!(expected, Expected::Expired(_));
                let expected = match expected {
                    Expected::Absent => Vec::new(),
                    Expected::Version(own) | Expected::Expired(own) => own.as_u128().to_le_bytes().to_vec(),
                };
                let entry = encode_redis_entry(version, record.expires_at(), record.value());
                let lives = milliseconds(record);
                Self { part, key, version: Some(version), expected, may_be_missing, entry, lives }
            }
        }
    }

    fn outcome(&self, reply: Reply) -> Result<OperationOutcome, StoreError> {
        Ok(match (self.version, reply) {
            (None, reply) => OperationOutcome::Read(read_entry(reply)?),
            (Some(version), Reply::Number(1)) => OperationOutcome::Write(WriteOutcome::Done(version)),
            (Some(version), reply) => OperationOutcome::Write(match read_entry(reply)? {
                // a cluster may have executed the call twice
                Some(own) if own.version == version => WriteOutcome::Done(version),
                found => WriteOutcome::Lost(found),
            }),
        })
    }
}

/// Returns the lifetime of a record. The server's time has a resolution of a millisecond; readers check the exact time.
fn milliseconds(record: &Record) -> String {
    record.time_to_live().as_nanos().div_ceil(1_000_000).max(1).to_string()
}

fn read_entry(reply: Reply) -> Result<Option<Entry>, StoreError> {
    match reply {
        Reply::Nothing => Ok(None),
        Reply::Bytes(bytes) => decode_redis_entry(&bytes).map(Some),
        Reply::Number(_) | Reply::List(_) => Err(unexpected().into()),
    }
}

impl Store for Redis {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        let (shared, key) = (Arc::clone(&self.0), key.clone());
        MaybeReady::Pending(async move { shared.get(&key).await })
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        self.0.write_redis_entry(key, Expected::Absent, record).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        self.0.write_redis_entry(key, Expected::Version(expected), record).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.0.take_redis_entry(key).await
    }

    /// One script call on a server. On a cluster, where the keys can be on several servers, one call after the other.
    async fn run(&self, operations: Vec<Operation>) -> Result<Vec<OperationOutcome>, StoreError> {
        if self.0.is_cluster {
            return one_by_one(self, operations).await;
        }
        self.0.run(operations.iter().map(|own| ScriptedCall::from_operation(&self.0, own)).collect()).await
    }

    /// Asks the server for the keys, in its own order. Not offered on a cluster.
    async fn scan(&self, cursor: Option<ScanCursor>) -> Result<ScanPage, StoreError> {
        if self.0.is_cluster {
            return Err(StoreErrorKind::NotOffered.into());
        }
        let cursor = cursor.as_ref().map_or(&b"0"[..], ScanCursor::as_bytes);
        if !cursor.iter().all(u8::is_ascii_digit) {
            return Err(StoreErrorKind::Corrupt.into());
        }
        self.0.scan(cursor).await
    }

    fn complete_since(&self) -> UnixTime {
        self.0.epochs.complete_since()
    }

    /// Begins a new epoch in all partitions. Each process notices it with its next call.
    async fn begin_epoch(&self) -> Result<(), StoreError> {
        Ok(self.0.epochs.check_all(&self.0.link, b"new").await?)
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

crate::util::fmt::debug_fields!(Redis, |own| prefix: own.0.prefix);
