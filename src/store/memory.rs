use std::{
    cmp::Ordering,
    collections::BTreeSet,
    future::{Future, Ready},
    hash::BuildHasher,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use foldhash::fast::RandomState;
use hashbrown::{HashTable, hash_table::OccupiedEntry};

use super::{
    contract::Store,
    error::{StoreError, StoreErrorKind},
    key::Key,
    record::{Entry, EntryView, Expected, Record, Version, WriteOutcome},
    scan::{ScanCursor, ScanPage},
};
use crate::{
    gate::MaybeReady,
    util::{clock::UnixTime, error::ConfigError},
};

/// An in-memory [`Store`]. Its content is lost when the process ends.
///
/// It is limited in entries and bytes. Writes beyond a limit fail with [`StoreErrorKind::Full`];
/// live entries are never evicted. Each write also removes a few expired entries, so there is
/// neither a background thread nor a pause. A write that reaches a limit first removes more of
/// them.
pub struct Memory {
    shards: Box<[RwLock<Shard>]>,
    hasher: RandomState,
    used: Used,
    next_swept: AtomicUsize,
}

/// Few enough to sweep all of them in microseconds, and many enough that growing one map moves few
/// entries.
const SHARDS: usize = 64;
/// Expired entries that a write removes from its own shard, and from another one.
const SWEPT_PER_WRITE: usize = 2;
/// Expired entries that a write removes from each shard when it reaches a limit.
const SWEPT_WHEN_FULL: usize = 8;
/// The memory overhead of an entry: its places in the map and in the expiry order at their usual
/// load, and an allocation.
const OVERHEAD: usize = 256;

impl Memory {
    /// Creates a store for at most 1,000,000 entries and 512 MiB.
    pub fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            hasher: RandomState::default(),
            used: Used { max_entries: 1_000_000, max_bytes: 512 << 20, ..Used::default() },
            next_swept: AtomicUsize::new(0),
        }
    }

    /// Sets the maximum number of entries.
    ///
    /// # Errors
    ///
    /// Returns an error if `most` is zero.
    pub fn entries(mut self, most: usize) -> Result<Self, ConfigError> {
        ConfigError::refuse_if(most == 0, "store entries", most, "must be at least 1")?;
        self.used.max_entries = most;
        Ok(self)
    }

    /// Sets the maximum size in bytes, counting keys, values and 256 bytes for each entry.
    ///
    /// # Errors
    ///
    /// Returns an error if `most` is less than 128 KiB.
    pub fn bytes(mut self, most: usize) -> Result<Self, ConfigError> {
        const LEAST: usize = 128 * 1024;
        let reason = "must be at least 131072, the size of the largest value with its key";
        ConfigError::check_range("store bytes", most, LEAST.., reason)?;
        self.used.max_bytes = most;
        Ok(self)
    }

    /// Returns the number of entries, including expired ones that are not yet removed.
    pub fn len(&self) -> usize {
        self.used.entries.load(Relaxed)
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows the entry of `key` to `see`. The entry is locked meanwhile.
    #[inline]
    pub(super) fn view_entry<R>(&self, key: &Key, see: impl FnOnce(Option<EntryView<'_>>) -> R) -> R {
        let hash = self.hash(key.as_bytes());
        match self.shard(hash) {
            Some(shard) => see(read_shard(shard).get(hash, key.as_bytes())),
            None => see(None),
        }
    }

    fn find(&self, key: &Key) -> Option<Entry> {
        self.view_entry(key, |entry| entry.map(EntryView::to_entry))
    }

    fn write_entry(&self, key: &Key, expected: Expected, record: &Record) -> Result<WriteOutcome, StoreError> {
        let (now, hash) = (record.written_at(), self.hash(key.as_bytes()));
        loop {
            let Some(shard) = self.shard(hash) else {
                return Err(StoreErrorKind::Unavailable.into());
            };
            let mut shard = write_shard(shard);
            let found = shard.get(hash, key.as_bytes());
            if !expected.is_met_by(found.map(|entry| entry.version)) {
                return Ok(WriteOutcome::Lost(found.map(EntryView::to_entry)));
            }
            let replaced = found.map_or(0, |entry| cost(key.as_bytes(), entry.value));
            let needed = cost(key.as_bytes(), record.value());
            if self.used.reserve(usize::from(found.is_none()), needed, replaced) {
                let version = shard.put(hash, key.as_bytes(), record, |row| self.hash(row.key()));
                self.sweep(&mut shard, now, SWEPT_PER_WRITE);
                drop(shard);
                self.sweep_next(now);
                return Ok(WriteOutcome::Done(version));
            }
            drop(shard);
            if self.sweep_all(now) == 0 {
                return Err(StoreErrorKind::Full.into());
            }
        }
    }

    fn remove(&self, key: &Key) -> Option<Entry> {
        let hash = self.hash(key.as_bytes());
        let row = write_shard(self.shard(hash)?).remove(hash, key.as_bytes())?;
        self.used.release(1, cost(row.key(), row.as_entry_view().value));
        Some(row.as_entry_view().to_entry())
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Returns the shard of this hash. It takes bits that the table of the shard does not use.
    #[inline]
    fn shard(&self, hash: u64) -> Option<&RwLock<Shard>> {
        self.shards.get((hash >> 48) as usize % SHARDS)
    }

    /// Removes a few expired entries from another shard, which may see no writes itself.
    fn sweep_next(&self, now: UnixTime) {
        let next = self.next_swept.fetch_add(1, Relaxed) % SHARDS;
        if let Some(Ok(mut shard)) = self.shards.get(next).map(RwLock::try_write) {
            self.sweep(&mut shard, now, SWEPT_PER_WRITE);
        }
    }

    fn sweep_all(&self, now: UnixTime) -> usize {
        self.shards.iter().map(|shard| self.sweep(&mut write_shard(shard), now, SWEPT_WHEN_FULL)).sum()
    }

    /// Removes at most `most` expired entries of a shard and returns their number.
    fn sweep(&self, shard: &mut Shard, now: UnixTime, most: usize) -> usize {
        let mut swept = 0;
        while swept < most && shard.by_expiry.first().is_some_and(|row| row.expires_at() <= now) {
            let Some(row) = shard.by_expiry.pop_first() else { break };
            if shard.rows.find_entry(self.hash(row.key()), |own| own == &row).map(OccupiedEntry::remove).is_ok() {
                self.used.release(1, cost(row.key(), row.as_entry_view().value));
            }
            swept += 1;
        }
        swept
    }
}

crate::util::builder::default_by_new!(Memory);

impl Store for Memory {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        MaybeReady::<Ready<_>>::Ready(Ok(self.find(key)))
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        self.write_entry(key, Expected::Absent, &record)
    }

    fn is_persistent(&self) -> bool {
        false
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        self.write_entry(key, Expected::Version(expected), &record)
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        Ok(self.remove(key))
    }

    /// A page is one of 64 parts of the store.
    async fn scan(&self, cursor: Option<ScanCursor>) -> Result<ScanPage, StoreError> {
        let part = match cursor.as_ref().map(ScanCursor::as_bytes) {
            None => 0,
            Some([part]) => usize::from(*part),
            Some(_) => SHARDS,
        };
        let shard = self.shards.get(part).ok_or(StoreErrorKind::Corrupt)?;
        let rows: Vec<Row> = read_shard(shard).rows.iter().cloned().collect();
        let entries = rows.iter().map(|row| Ok((Key::from_bytes(row.key())?, row.as_entry_view().to_entry())));
        let next = Some(part + 1).filter(|next| *next < SHARDS).map(|next| ScanCursor::new(vec![next as u8]));
        Ok(ScanPage { entries: entries.collect::<Result<_, StoreError>>()?, next })
    }
}

crate::util::fmt::debug_fields!(Memory { used });

#[derive(Default)]
struct Shard {
    rows: HashTable<Row>,
    by_expiry: BTreeSet<Row>,
    /// Counts all writes of the shard, so that no version repeats for a key.
    writes: u64,
}

/// An entry and its key in one block of memory, which makes look-ups fast: the number of the write and the expiry in 8 bytes each,
/// the length of the key in 2, the key, and the value. Rows are ordered by their expiry.
#[derive(Clone)]
struct Row(Arc<[u8]>);

/// The length of what precedes the key.
const HEAD: usize = 18;

impl Row {
    fn new(number: u64, key: &[u8], record: &Record) -> Self {
        let head = [number, record.expires_at().as_nanos()].map(u64::to_le_bytes).concat();
        // keys have at most 1,218 bytes
        let key_len = (key.len() as u16).to_le_bytes();
        Self([&head, &key_len[..], key, record.value()].concat().into())
    }

    /// Returns the bytes of a number in front of the key.
    #[inline]
    fn head<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..).and_then(|rest| rest.first_chunk().copied()).unwrap_or([0; N])
    }

    #[inline]
    fn parts(&self) -> (&[u8], &[u8]) {
        let key_len = u16::from_le_bytes(self.head(16));
        self.0.get(HEAD..).unwrap_or_default().split_at_checked(key_len.into()).unwrap_or_default()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.parts().0
    }

    #[inline]
    fn expires_at(&self) -> UnixTime {
        UnixTime::from_nanos(u64::from_le_bytes(self.head(8)))
    }

    #[inline]
    fn as_entry_view(&self) -> EntryView<'_> {
        let version = Version::from_u64(u64::from_le_bytes(self.head(0)));
        EntryView { value: self.parts().1, version, expires_at: self.expires_at() }
    }
}

impl Shard {
    #[inline]
    fn get(&self, hash: u64, key: &[u8]) -> Option<EntryView<'_>> {
        self.rows.find(hash, |row| row.key() == key).map(Row::as_entry_view)
    }

    fn put(&mut self, hash: u64, key: &[u8], record: &Record, hasher: impl Fn(&Row) -> u64) -> Version {
        self.remove(hash, key);
        self.writes += 1;
        let row = Row::new(self.writes, key, record);
        self.by_expiry.insert(row.clone());
        self.rows.insert_unique(hash, row, hasher);
        Version::from_u64(self.writes)
    }

    fn remove(&mut self, hash: u64, key: &[u8]) -> Option<Row> {
        let found = self.rows.find_entry(hash, |row| row.key() == key).ok()?;
        let (row, _) = found.remove();
        self.by_expiry.remove(&row);
        Some(row)
    }
}

impl Ord for Row {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.expires_at(), self.key()).cmp(&(other.expires_at(), other.key()))
    }
}

impl PartialOrd for Row {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Row {}

/// The used memory and its limits.
#[derive(Debug, Default)]
struct Used {
    entries: AtomicUsize,
    bytes: AtomicUsize,
    max_entries: usize,
    max_bytes: usize,
}

impl Used {
    /// Reserves room for `entries` more entries, and for `needed` bytes that replace `replaced`
    /// bytes.
    fn reserve(&self, entries: usize, needed: usize, replaced: usize) -> bool {
        let growth = needed.saturating_sub(replaced);
        if !add_within(&self.entries, entries, self.max_entries) {
            return false;
        }
        if !add_within(&self.bytes, growth, self.max_bytes) {
            self.release(entries, 0);
            return false;
        }
        self.release(0, replaced.saturating_sub(needed));
        true
    }

    fn release(&self, entries: usize, bytes: usize) {
        self.entries.fetch_sub(entries, Relaxed);
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

fn add_within(counter: &AtomicUsize, more: usize, most: usize) -> bool {
    more == 0 || counter.fetch_update(Relaxed, Relaxed, |now| now.checked_add(more).filter(|sum| *sum <= most)).is_ok()
}

fn cost(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + OVERHEAD
}

// Every step leaves a shard consistent, so a poisoned lock can be ignored.

fn read_shard(shard: &RwLock<Shard>) -> RwLockReadGuard<'_, Shard> {
    shard.read().unwrap_or_else(PoisonError::into_inner)
}

fn write_shard(shard: &RwLock<Shard>) -> RwLockWriteGuard<'_, Shard> {
    shard.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::any::AnyStore;

    fn key(number: usize) -> Key {
        Key::new("t", None, number.to_string()).unwrap()
    }

    fn insert(memory: &Memory, number: usize, len: usize, now: u64, until: u64) -> Result<WriteOutcome, StoreError> {
        let (now, until) = (UnixTime::from_secs(now), UnixTime::from_secs(until));
        memory.write_entry(&key(number), Expected::Absent, &Record::new(vec![0; len], now, until).unwrap())
    }

    #[test]
    fn writes_beyond_a_limit_fail_and_evict_nothing() {
        let by_entries = Memory::new().entries(100).unwrap();
        let by_bytes = Memory::new().bytes(128 * 1024).unwrap();
        let fits = 128 * 1024 / (1000 + OVERHEAD + 7);
        for (memory, fits) in [(by_entries, 100), (by_bytes, fits)] {
            for number in 0..fits {
                assert!(
                    matches!(insert(&memory, number, 1000, 0, 10), Ok(WriteOutcome::Done(_))),
                    "{number} of {fits}"
                );
            }
            assert_eq!(insert(&memory, fits, 1000, 9, 10).unwrap_err().kind(), StoreErrorKind::Full);
            assert!((0..fits).all(|number| memory.find(&key(number)).is_some()));
            assert!(
                matches!(insert(&memory, fits, 1000, 10, 20), Ok(WriteOutcome::Done(_))),
                "expired entries make room"
            );
        }
    }

    #[test]
    fn entries_spread_over_all_shards() {
        let memory = Memory::new();
        for number in 0..100 * SHARDS {
            assert!(insert(&memory, number, 1, 0, 10).is_ok());
        }
        let sizes: Vec<_> = memory.shards.iter().map(|shard| read_shard(shard).rows.len()).collect();
        assert!(sizes.iter().all(|size| (30..300).contains(size)), "{sizes:?}");
    }

    #[test]
    fn a_type_erased_memory_is_read_in_place() {
        let memory = Memory::new();
        assert!(insert(&memory, 0, 7, 0, 10).is_ok());
        let store = AnyStore::from(memory);
        let place = |number| {
            store.view_entry(&key(number), |entry| entry.map(|entry| (entry.value.as_ptr(), entry.value.len())))
        };
        assert!(matches!(place(0), Some(Some((_, 7)))));
        assert_eq!(place(0), place(0));
        assert_eq!(place(1), Some(None));
        // a store around it may change what is read
        assert_eq!(AnyStore::from(Around(store)).view_entry(&key(0), |_| ()), None);
    }

    struct Around(AnyStore);

    impl Store for Around {
        fn get(
            &self,
            key: &Key,
        ) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
            self.0.get(key)
        }

        async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
            self.0.insert(key, record).await
        }

        async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
            self.0.swap(key, expected, record).await
        }

        async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
            self.0.take(key).await
        }
    }

    #[test]
    fn a_value_that_grows_beyond_the_limit_is_rejected_and_the_old_one_kept() {
        let memory = Memory::new().bytes(128 * 1024).unwrap();
        let WriteOutcome::Done(version) = insert(&memory, 0, 60_000, 0, 10).unwrap() else { panic!() };
        assert!(matches!(insert(&memory, 1, 60_000, 0, 10), Ok(WriteOutcome::Done(_))));
        let larger = Record::new(vec![1; Record::MAX_VALUE], UnixTime::default(), UnixTime::from_secs(10)).unwrap();
        assert!(matches!(memory.write_entry(&key(0), Expected::Version(version), &larger), Ok(WriteOutcome::Done(_))));
        let WriteOutcome::Lost(Some(second)) = insert(&memory, 1, 0, 0, 10).unwrap() else { panic!() };
        assert_eq!(
            memory.write_entry(&key(1), Expected::Version(second.version), &larger).unwrap_err().kind(),
            StoreErrorKind::Full
        );
        assert_eq!(memory.find(&key(1)), Some(second));
    }

    #[test]
    fn writes_remove_expired_entries_and_memory_is_accounted_for() {
        let memory = Memory::new();
        for number in 0..10_000 {
            assert!(insert(&memory, number, number % 100, 0, 1).is_ok());
        }
        for number in 0..10_000 {
            assert!(insert(&memory, 10_000 + number, 8, 1, 2).is_ok());
        }
        assert!(memory.len() < 10_100, "{} are left", memory.len());
        for number in 0..20_000 {
            memory.remove(&key(number));
        }
        assert_eq!((memory.len(), memory.used.bytes.load(Relaxed)), (0, 0));
        assert!(memory.shards.iter().all(|shard| read_shard(shard).by_expiry.is_empty()));
    }
}
