use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    future::{Future, Ready},
    hash::BuildHasher,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use foldhash::fast::RandomState;

use super::{
    contract::Store,
    error::{StoreError, StoreErrorKind},
    key::Key,
    record::{Entry, Record, Version, WriteOutcome},
};
use crate::{
    gate::MaybeReady,
    util::{clock::UnixTime, error::ConfigError},
};

/// Keeps everything in this process, and forgets it with the process.
///
/// Bounded in entries and bytes: a write beyond a bound is refused with
/// [`StoreErrorKind::Full`], and nothing that lives is dropped for it. Each
/// write also forgets a few entries that have expired, so that neither a thread
/// nor a pause is needed; one that meets a bound first forgets what it must.
pub struct Memory {
    shards: Box<[RwLock<Shard>]>,
    hasher: RandomState,
    used: Used,
    next_swept: AtomicUsize,
}

/// Few enough that a full store looks through all of them in microseconds, and
/// so many that a growing map moves few entries at a time.
const SHARDS: usize = 64;
/// Expired entries that a write may forget, in its own shard and in another.
const SWEPT_PER_WRITE: usize = 2;
/// Expired entries that a write may forget in each shard, when it finds no room.
const SWEPT_WHEN_FULL: usize = 8;
/// What an entry costs beside its key and value: its places in the map and in
/// the order of expiry, at their usual slack, and two allocations.
const OVERHEAD: usize = 256;

impl Memory {
    /// A store of at most 1,000,000 entries and 512 MiB.
    pub fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            hasher: RandomState::default(),
            used: Used { max_entries: 1_000_000, max_bytes: 512 << 20, ..Used::default() },
            next_swept: AtomicUsize::new(0),
        }
    }

    /// Sets the most entries.
    pub fn entries(mut self, most: usize) -> Result<Self, ConfigError> {
        if most == 0 {
            return Err(ConfigError::new("store entries", most, "must be at least 1"));
        }
        self.used.max_entries = most;
        Ok(self)
    }

    /// Sets the most bytes: keys, values and 256 bytes for each entry.
    pub fn bytes(mut self, most: usize) -> Result<Self, ConfigError> {
        const LEAST: usize = 128 * 1024;
        if most < LEAST {
            return Err(ConfigError::new("store bytes", most, "must be at least 131072, or a large value never fits"));
        }
        self.used.max_bytes = most;
        Ok(self)
    }

    /// How many entries there are, those that have expired but are not yet
    /// forgotten included.
    pub fn len(&self) -> usize {
        self.used.entries.load(Relaxed)
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn find(&self, key: &Key) -> Option<Entry> {
        read(self.shard(key)?).map.get(key.as_bytes()).map(MemoryEntry::entry)
    }

    fn write(&self, key: &Key, expected: Option<Version>, record: &Record) -> Result<WriteOutcome, StoreError> {
        let now = record.written_at();
        loop {
            let Some(shard) = self.shard(key) else {
                return Err(StoreErrorKind::Unavailable.into());
            };
            let mut shard = write(shard);
            let found = shard.map.get(key.as_bytes());
            if found.map(|slot| slot.version) != expected {
                return Ok(WriteOutcome::Lost(found.map(MemoryEntry::entry)));
            }
            let replaced = found.map_or(0, |slot| cost(key.as_bytes(), &slot.value));
            let needed = cost(key.as_bytes(), record.value());
            if self.used.reserve(usize::from(found.is_none()), needed, replaced) {
                let version = shard.put(key, record);
                shard.sweep(now, SWEPT_PER_WRITE, &self.used);
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
        let mut shard = write(self.shard(key)?);
        let slot = shard.remove(key.as_bytes())?;
        self.used.release(1, cost(key.as_bytes(), &slot.value));
        Some(slot.entry())
    }

    fn shard(&self, key: &Key) -> Option<&RwLock<Shard>> {
        let hash = self.hasher.hash_one(key.as_bytes());
        self.shards.get(hash as usize % SHARDS)
    }

    /// Forgets a little in a shard that may see no writes itself.
    fn sweep_next(&self, now: UnixTime) {
        let next = self.next_swept.fetch_add(1, Relaxed) % SHARDS;
        if let Some(Ok(mut shard)) = self.shards.get(next).map(RwLock::try_write) {
            shard.sweep(now, SWEPT_PER_WRITE, &self.used);
        }
    }

    fn sweep_all(&self, now: UnixTime) -> usize {
        self.shards.iter().map(|shard| write(shard).sweep(now, SWEPT_WHEN_FULL, &self.used)).sum()
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for Memory {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        MaybeReady::<Ready<_>>::Ready(Ok(self.find(key)))
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        self.write(key, None, &record)
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        self.write(key, Some(expected), &record)
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        Ok(self.remove(key))
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("used", &self.used).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Shard {
    map: HashMap<Arc<[u8]>, MemoryEntry, RandomState>,
    by_expiry: BTreeSet<(UnixTime, Arc<[u8]>)>,
    /// Counts all writes of the shard, so that no key sees a version twice.
    writes: u64,
}

struct MemoryEntry {
    value: Bytes,
    version: Version,
    expires_at: UnixTime,
}

impl MemoryEntry {
    fn entry(&self) -> Entry {
        Entry { value: self.value.clone(), version: self.version, expires_at: self.expires_at }
    }
}

impl Shard {
    fn put(&mut self, key: &Key, record: &Record) -> Version {
        self.writes += 1;
        let version = Version::from_u64(self.writes);
        let expires_at = record.expires_at();
        // a copy, for a slice could keep a whole buffer alive
        let slot = MemoryEntry { value: Bytes::copy_from_slice(record.value()), version, expires_at };
        let shared = match self.map.get_key_value(key.as_bytes()) {
            Some((shared, old)) => {
                let shared = Arc::clone(shared);
                self.by_expiry.remove(&(old.expires_at, Arc::clone(&shared)));
                shared
            }
            None => Arc::from(key.as_bytes()),
        };
        self.by_expiry.insert((expires_at, Arc::clone(&shared)));
        self.map.insert(shared, slot);
        version
    }

    fn remove(&mut self, key: &[u8]) -> Option<MemoryEntry> {
        let (key, slot) = self.map.remove_entry(key)?;
        self.by_expiry.remove(&(slot.expires_at, key));
        Some(slot)
    }

    /// Forgets at most `most` entries that have expired, and says how many.
    fn sweep(&mut self, now: UnixTime, most: usize, used: &Used) -> usize {
        let mut swept = 0;
        while swept < most && self.by_expiry.first().is_some_and(|(expires_at, _)| *expires_at <= now) {
            let Some((_, key)) = self.by_expiry.pop_first() else { break };
            if let Some(slot) = self.map.remove(&key) {
                used.release(1, cost(&key, &slot.value));
            }
            swept += 1;
        }
        swept
    }
}

/// What is in use, and what may be.
#[derive(Debug, Default)]
struct Used {
    entries: AtomicUsize,
    bytes: AtomicUsize,
    max_entries: usize,
    max_bytes: usize,
}

impl Used {
    /// Makes room for `entries` more and for `needed` bytes in place of `replaced`.
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

// A shard is whole between any two of its own steps, so one that a panic left is still good.

fn read(shard: &RwLock<Shard>) -> RwLockReadGuard<'_, Shard> {
    shard.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(shard: &RwLock<Shard>) -> RwLockWriteGuard<'_, Shard> {
    shard.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        Key::new("t", None, number.to_string()).unwrap()
    }

    fn insert(memory: &Memory, number: usize, len: usize, now: u64, until: u64) -> Result<WriteOutcome, StoreError> {
        let (now, until) = (UnixTime::from_secs(now), UnixTime::from_secs(until));
        memory.write(&key(number), None, &Record::new(vec![0; len], now, until).unwrap())
    }

    #[test]
    fn beyond_a_bound_a_write_is_refused_and_nothing_that_lives_is_dropped() {
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
                "room that expired is found"
            );
        }
    }

    #[test]
    fn a_value_that_grows_beyond_the_bound_is_refused_and_the_old_one_stands() {
        let memory = Memory::new().bytes(128 * 1024).unwrap();
        let WriteOutcome::Done(version) = insert(&memory, 0, 60_000, 0, 10).unwrap() else { panic!() };
        assert!(matches!(insert(&memory, 1, 60_000, 0, 10), Ok(WriteOutcome::Done(_))));
        let larger = Record::new(vec![1; Record::MAX_VALUE], UnixTime::default(), UnixTime::from_secs(10)).unwrap();
        assert!(matches!(memory.write(&key(0), Some(version), &larger), Ok(WriteOutcome::Done(_))));
        let WriteOutcome::Lost(Some(second)) = insert(&memory, 1, 0, 0, 10).unwrap() else { panic!() };
        assert_eq!(memory.write(&key(1), Some(second.version), &larger).unwrap_err().kind(), StoreErrorKind::Full);
        assert_eq!(memory.find(&key(1)), Some(second));
    }

    #[test]
    fn writes_forget_what_expired_and_all_of_it_is_accounted_for() {
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
        assert!(memory.shards.iter().all(|shard| read(shard).by_expiry.is_empty()));
    }
}
