//! Typed tables with exact expiry.

use std::{marker::PhantomData, sync::Arc};

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    any::AnyStore,
    contract::BoxFuture,
    error::{StoreError, StoreErrorKind},
    key::Key,
    record::{Entry, EntryView, Expected, Operation, Record, Version, WriteOutcome},
    scan::{ScanCursor, ScanPage},
};
use crate::{
    gate::MaybeReady,
    tenant::Tenant,
    util::clock::{Clock, UnixTime},
};

/// How often a write is retried after it lost a race. Each lost race is a successful write of
/// another caller, so the limit is reached only if hundreds of callers write the same key.
const TRIES: usize = 256;

/// The serialized form of a value. JSON for all types that implement serde's traits.
pub(crate) trait Value: Sized + Send + Sync + 'static {
    fn encode_row(&self) -> Result<Vec<u8>, StoreError>;

    fn decode_row(bytes: &[u8]) -> Result<Self, StoreError>;
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Value for T {
    fn encode_row(&self) -> Result<Vec<u8>, StoreError> {
        serde_json::to_vec(self).map_err(|error| not_json(&error))
    }

    fn decode_row(bytes: &[u8]) -> Result<Self, StoreError> {
        serde_json::from_slice(bytes).map_err(|error| not_json(&error))
    }
}

/// A named table of values of type `T`.
///
/// A value exists until just before its `expires_at`, according to the [`Clock`]. Expired values
/// can't be read, taken or swapped, and don't block an insert, no matter when the store removes
/// them.
pub(crate) struct Table<T> {
    store: AnyStore,
    name: &'static str,
    clock: Arc<dyn Clock>,
    of: PhantomData<fn() -> T>,
}

/// A value that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored<T> {
    pub(crate) value: T,
    pub(crate) version: Version,
    pub(crate) expires_at: UnixTime,
}

/// A row as it was read: the state that it must still have to be replaced, and the value if it lives.
#[derive(Debug)]
pub(crate) struct ReadRow<T> {
    expected: Expected,
    pub(crate) live: Option<Stored<T>>,
}

impl<T> ReadRow<T> {
    /// A row that does not exist, as far as is known.
    pub(crate) const ABSENT: Self = Self { expected: Expected::Absent, live: None };

    /// A row whose value is not needed any more.
    pub(crate) fn found<R>(read: &Stored<R>) -> Self {
        Self { expected: Expected::Version(read.version), live: None }
    }

    pub(crate) fn value(&self) -> Option<&T> {
        self.live.as_ref().map(|stored| &stored.value)
    }
}

/// An operation on a row, as part of a batch.
#[derive(Clone)]
pub(crate) struct RowOperation<'t, T> {
    pub(super) operation: Operation,
    pub(super) table: &'t Table<T>,
}

/// The decision of an update: what to write, and what to return afterwards.
pub(crate) enum Change<T, R> {
    /// Writes nothing.
    Keep(R),
    /// Writes this value with this expiry.
    Put(T, UnixTime, R),
}

impl<T: Value> Table<T> {
    pub(crate) fn new(store: AnyStore, name: &'static str, clock: Arc<dyn Clock>) -> Self {
        Self { store, name, clock, of: PhantomData }
    }

    pub(super) fn store(&self) -> &AnyStore {
        &self.store
    }

    #[cfg(test)]
    pub(crate) fn into_store(self) -> AnyStore {
        self.store
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> UnixTime {
        self.clock.read().1
    }

    /// Returns a value. This is the hot path: if the store returns immediately, so does this
    /// function. Values in memory are read in place.
    pub(crate) fn get(
        &self,
        tenant: Option<&Tenant>,
        id: &[u8],
    ) -> MaybeReady<BoxFuture<'static, Result<Option<Stored<T>>, StoreError>>> {
        match self.key(tenant, id) {
            Ok(key) => self.get_at(&key),
            Err(error) => MaybeReady::Ready(Err(error)),
        }
    }

    /// Like [`get`](Self::get), with a prepared key.
    pub(crate) fn get_at(&self, key: &Key) -> MaybeReady<BoxFuture<'static, Result<Option<Stored<T>>, StoreError>>> {
        // before the entry is locked, because an application can bring its own clock
        let now = self.now();
        if let Some(read) = self.store.view_entry(key, |found| read_at(now, found)) {
            return MaybeReady::Ready(read);
        }
        match self.store.get(key) {
            MaybeReady::Ready(found) => MaybeReady::Ready(found.and_then(|found| self.decode_found(found.as_ref()))),
            MaybeReady::Pending(future) => {
                let table = self.clone();
                MaybeReady::Pending(Box::pin(async move { table.decode_found(future.await?.as_ref()) }))
            }
        }
    }

    /// Returns since when the store has lost nothing, as far as the calls that have returned show.
    pub(crate) fn complete_since(&self) -> UnixTime {
        self.store.complete_since()
    }

    /// Returns the time before which everything that was begun has ended; at once if it is known.
    pub(crate) fn cutoff(&self) -> MaybeReady<BoxFuture<'static, Result<UnixTime, StoreError>>> {
        self.store.cutoff()
    }

    /// Returns some of the live rows of a tenant, each with its id, and where to continue.
    pub(crate) async fn scan(
        &self,
        tenant: Option<&Tenant>,
        cursor: Option<ScanCursor>,
    ) -> Result<(Vec<(Vec<u8>, Stored<T>)>, Option<ScanCursor>), StoreError> {
        let ScanPage { entries, next } = self.store.scan(cursor).await?;
        let is_own = |key: &Key| key.table() == self.name && key.tenant() == tenant.map(Tenant::as_str);
        let mut rows = Vec::new();
        for (key, entry) in entries.iter().filter(|(key, _)| is_own(key)) {
            rows.extend(self.decode_found(Some(entry))?.map(|row| (key.id().to_vec(), row)));
        }
        Ok((rows, next))
    }

    /// Writes a new value, unless there is a live one.
    pub(crate) async fn insert(
        &self,
        tenant: Option<&Tenant>,
        id: &[u8],
        value: &T,
        expires_at: UnixTime,
    ) -> Result<WriteOutcome<Stored<T>>, StoreError> {
        let key = self.key(tenant, id)?;
        let record = self.record(value, expires_at)?;
        let mut occupant: Option<Entry> = None;
        for _ in 0..TRIES {
            let outcome = match &occupant {
                None => self.store.insert(&key, record.clone()).await?,
                Some(expired) => self.store.swap(&key, expired.version, record.clone()).await?,
            };
            match outcome {
                WriteOutcome::Done(version) => return Ok(WriteOutcome::Done(version)),
                WriteOutcome::Lost(found) => occupant = found,
            }
            if let Some(found) = &occupant
                && self.lives(found.expires_at)
            {
                return Ok(WriteOutcome::Lost(self.decode_found(occupant.as_ref())?));
            }
        }
        Err(StoreErrorKind::Busy.into())
    }

    /// Replaces a value that was read, if it is still live and unchanged.
    pub(crate) async fn swap<R>(
        &self,
        tenant: Option<&Tenant>,
        id: &[u8],
        read: &Stored<R>,
        value: &T,
        expires_at: UnixTime,
    ) -> Result<WriteOutcome<Stored<T>>, StoreError> {
        let key = self.key(tenant, id)?;
        let record = self.record(value, expires_at)?;
        if !self.lives(read.expires_at) {
            return Ok(WriteOutcome::Lost(None));
        }
        match self.store.swap(&key, read.version, record).await? {
            WriteOutcome::Done(version) => Ok(WriteOutcome::Done(version)),
            WriteOutcome::Lost(found) => Ok(WriteOutcome::Lost(self.decode_found(found.as_ref())?)),
        }
    }

    /// Reads, changes and writes a value, and retries if it loses a race. `change` may be called
    /// several times; only its last decision takes effect.
    pub(crate) async fn update<R>(
        &self,
        tenant: Option<&Tenant>,
        id: &[u8],
        mut change: impl FnMut(Option<&T>, UnixTime) -> Change<T, R> + Send,
    ) -> Result<R, StoreError>
    where
        R: Send,
    {
        let key = self.key(tenant, id)?;
        let entry = self.store.get(&key).wait().await?;
        // the version of the entry, live or expired
        let mut occupant = entry.as_ref().map(|entry| entry.version);
        let mut found = self.decode_found(entry.as_ref())?;
        drop(entry);
        for _ in 0..TRIES {
            // the value may have expired since it was read
            found = found.filter(|read| self.lives(read.expires_at));
            let (value, expires_at, answer) = match change(found.as_ref().map(|stored| &stored.value), self.now()) {
                Change::Keep(answer) => return Ok(answer),
                Change::Put(value, expires_at, answer) => (value, expires_at, answer),
            };
            // or meanwhile, and then the change was based on nothing
            if found.as_ref().is_some_and(|read| !self.lives(read.expires_at)) {
                continue;
            }
            let record = self.record(&value, expires_at)?;
            drop(value);
            // an expired entry is overwritten directly, so that the amount of work does not reveal
            // whether there was one
            let outcome = match occupant {
                Some(version) => self.store.swap(&key, version, record).await?,
                None => self.store.insert(&key, record).await?,
            };
            match outcome {
                WriteOutcome::Done(_) => return Ok(answer),
                WriteOutcome::Lost(instead) => {
                    occupant = instead.as_ref().map(|entry| entry.version);
                    found = self.decode_found(instead.as_ref())?;
                }
            }
        }
        Err(StoreErrorKind::Busy.into())
    }

    /// Removes a value and returns it to exactly one caller.
    pub(crate) async fn take_value(&self, tenant: Option<&Tenant>, id: &[u8]) -> Result<Option<Stored<T>>, StoreError> {
        let key = self.key(tenant, id)?;
        let found = self.store.take(&key).await?;
        self.decode_found(found.as_ref())
    }

    /// Removes an entry without parsing it.
    pub(crate) async fn remove(&self, tenant: Option<&Tenant>, id: &[u8]) -> Result<(), StoreError> {
        let key = self.key(tenant, id)?;
        self.store.take(&key).await.map(|_| ())
    }

    /// Returns the operation that reads a row.
    pub(crate) fn prepare_row_read(
        &self,
        tenant: Option<&Tenant>,
        id: &[u8],
    ) -> Result<RowOperation<'_, T>, StoreError> {
        Ok(RowOperation { operation: Operation::Read(self.key(tenant, id)?), table: self })
    }

    /// Returns the operation that writes a row if it is still as it was read.
    pub(crate) fn prepare_row_write(
        &self,
        tenant: Option<&Tenant>,
        id: &[u8],
        over: &ReadRow<T>,
        value: &T,
        expires_at: UnixTime,
    ) -> Result<RowOperation<'_, T>, StoreError> {
        let operation = Operation::Write(self.key(tenant, id)?, over.expected, self.record(value, expires_at)?);
        Ok(RowOperation { operation, table: self })
    }

    pub(super) fn read_row(&self, entry: Option<&Entry>) -> Result<ReadRow<T>, StoreError> {
        let live = self.decode_found(entry)?;
        let expected = match entry.map(|entry| entry.version) {
            Some(version) if live.is_none() => Expected::Expired(version),
            version => version.into(),
        };
        Ok(ReadRow { expected, live })
    }

    fn lives(&self, expires_at: UnixTime) -> bool {
        self.now() < expires_at
    }

    pub(crate) fn key(&self, tenant: Option<&Tenant>, id: &[u8]) -> Result<Key, StoreError> {
        Key::new(self.name, tenant, id)
    }

    /// Prepares the check of a row that can be repeated without allocating.
    pub(crate) fn check(&self, tenant: Option<&Tenant>, id: &[u8]) -> Result<RowCheck<T>, StoreError> {
        Ok(RowCheck { key: self.key(tenant, id)?, table: self.clone() })
    }

    fn record(&self, value: &T, expires_at: UnixTime) -> Result<Record, StoreError> {
        Record::new(Bytes::from(value.encode_row()?), self.now(), expires_at)
    }

    fn decode_found(&self, found: Option<&Entry>) -> Result<Option<Stored<T>>, StoreError> {
        read_at(self.now(), found.map(Entry::as_entry_view))
    }
}

/// A repeatable check of one row.
pub(crate) struct RowCheck<T> {
    table: Table<T>,
    key: Key,
}

impl<T: Value> RowCheck<T> {
    /// Returns whether there is a row like this; at once if the store answers at once.
    pub(crate) fn finds(
        &self,
        is_like: impl Fn(&T) -> bool + Send + 'static,
    ) -> MaybeReady<BoxFuture<'static, Result<bool, StoreError>>> {
        self.table.get_at(&self.key).map(move |row| Ok(row?.is_some_and(|row| is_like(&row.value))))
    }
}

fn read_at<T: Value>(now: UnixTime, found: Option<EntryView<'_>>) -> Result<Option<Stored<T>>, StoreError> {
    let Some(EntryView { value, version, expires_at }) = found.filter(|entry| now < entry.expires_at) else {
        return Ok(None);
    };
    Ok(Some(Stored { value: T::decode_row(value)?, version, expires_at }))
}

/// Reports the position only, because serde's messages quote the value.
fn not_json(error: &serde_json::Error) -> StoreError {
    let (category, column) = (error.classify(), error.column());
    StoreError::new(StoreErrorKind::Corrupt, format!("invalid JSON: {category:?} error at byte {column}"))
}

impl<T> Stored<T> {
    pub(crate) fn map<R>(self, change: impl FnOnce(T) -> R) -> Stored<R> {
        let Self { value, version, expires_at } = self;
        Stored { value: change(value), version, expires_at }
    }
}

impl<T> Clone for Table<T> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), name: self.name, clock: Arc::clone(&self.clock), of: PhantomData }
    }
}

crate::util::fmt::debug_fields!(Table<T> { name, store });
