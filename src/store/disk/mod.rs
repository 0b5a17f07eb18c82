mod file;
mod reply;
mod writer;

use std::{
    fmt,
    future::{Future, Ready},
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
};

use redb::Database;

use self::writer::{Job, WriteQueue};
use super::{
    contract::Store,
    error::{StoreError, StoreErrorKind},
    key::Key,
    record::{Entry, Record, Version, WriteOutcome},
};
use crate::{gate::MaybeReady, util::error::ConfigError};

/// Keeps everything in one file, which survives a crash (feature
/// `store-disk`).
///
/// - A write is acknowledged once it is on the disk, never before. One thread
///   writes; what waits meanwhile shares the next commit. 1024 writes may wait,
///   further ones are refused with [`StoreErrorKind::Busy`].
/// - Reads see the last commit and answer on the calling thread: a microsecond
///   or so where the pages are cached, else a read of the disk.
/// - Each commit also forgets some of what has expired. The file keeps its
///   size; pages that became free are used again.
/// - One process at a time: for another one the file is
///   [`Locked`](StoreErrorKind::Locked).
/// - Opening verifies the checksum of every page, so it reads the whole file. A
///   damaged file is refused with [`StoreErrorKind::Corrupt`] and left as it
///   is, one of a newer version with [`StoreErrorKind::NewerFormat`]. Damage is
///   refused where unwinding is on: with `panic = "abort"` some of it ends the
///   process. One bit of the header stands under no checksum: if exactly that
///   one flips in the file of a process that crashed, its last commit is taken
///   for one that was never finished.
/// - After the disk has failed a write, all writes fail until the file is
///   opened again.
///
/// Dropping it waits until what was handed over is written.
///
/// ```
/// use tollgate::store::{AnyStore, Disk};
///
/// # let directory = std::env::temp_dir().join(format!("tollgate-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// let store = AnyStore::from(Disk::open(directory.join("state.redb"))?);
/// # drop(store);
/// # std::fs::remove_dir_all(directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Disk {
    database: Arc<Database>,
    queue: Option<WriteQueue>,
    writer: Option<JoinHandle<()>>,
}

/// How a [`Disk`] is bounded.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct DiskConfig {
    entries: u64,
    cache_bytes: usize,
}

impl DiskConfig {
    /// At most 10,000,000 entries; a cache of 64 MiB.
    pub fn new() -> Self {
        Self { entries: 10_000_000, cache_bytes: 64 << 20 }
    }

    /// Sets the most entries; a write beyond is refused with
    /// [`StoreErrorKind::Full`].
    pub fn entries(mut self, most: u64) -> Result<Self, ConfigError> {
        if most == 0 {
            return Err(ConfigError::new("store entries", most, "must be at least 1"));
        }
        self.entries = most;
        Ok(self)
    }

    /// Sets how many bytes of the file are kept in memory.
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }
}

impl Default for DiskConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl Disk {
    /// Opens the file, or creates it; its directory must exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, DiskConfig::new())
    }

    /// Opens the file, or creates it, with bounds of your choice.
    pub fn open_with(path: impl AsRef<Path>, config: DiskConfig) -> Result<Self, StoreError> {
        let database = Arc::new(file::open(path.as_ref(), config.cache_bytes)?);
        let (queue, jobs) = WriteQueue::new();
        let writer = {
            let database = Arc::clone(&database);
            let thread = thread::Builder::new().name("tollgate-store".into());
            thread.spawn(move || writer::run(&database, &jobs, config.entries))
        };
        let writer = writer.map_err(|error| StoreError::new(StoreErrorKind::Unavailable, error))?;
        Ok(Self { database, queue: Some(queue), writer: Some(writer) })
    }

    fn queue(&self) -> Result<&WriteQueue, StoreError> {
        // it is there until the store is dropped
        self.queue.as_ref().ok_or_else(|| StoreErrorKind::Unavailable.into())
    }

    async fn write(&self, key: &Key, expected: Option<Version>, record: Record) -> Result<WriteOutcome, StoreError> {
        let key = key.clone();
        self.queue()?.send(|sender| Job::Write { key, expected, record, sender })?.await
    }
}

impl Store for Disk {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        MaybeReady::<Ready<_>>::Ready(file::guard(|| file::find(&self.database, key)))
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        self.write(key, None, record).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        self.write(key, Some(expected), record).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        let key = key.clone();
        self.queue()?.send(|sender| Job::Take { key, sender })?.await
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.queue.take());
        // an answer may wake the last owner on the writer's own thread, which can't wait for itself
        if let Some(writer) = self.writer.take()
            && writer.thread().id() != thread::current().id()
        {
            let _ = writer.join();
        }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").finish_non_exhaustive()
    }
}
