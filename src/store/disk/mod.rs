mod file;
mod writer;

use std::{
    future::{Future, Ready},
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
};

use self::{
    file::OpenFile,
    writer::{Work, WriteQueue, Writer},
};
use super::{
    contract::{Store, one_by_one},
    error::{StoreError, StoreErrorKind},
    key::Key,
    record::{Entry, Operation, OperationOutcome, Record, Version, WriteOutcome},
    scan::{ScanCursor, ScanPage},
};
use crate::{gate::MaybeReady, util::error::ConfigError};

/// A [`Store`] in a single crash-safe file (feature `store-disk`).
///
/// - Writes are acknowledged after they are on disk. One thread writes, and all waiting writes
///   share a commit. Up to 1,024 writes may wait; further ones fail with [`StoreErrorKind::Busy`].
/// - Reads see the last commit and return synchronously, in about a microsecond if the page is
///   cached.
/// - It is limited in entries and bytes ([`DiskConfig`]). Writes beyond a limit fail with
///   [`StoreErrorKind::Full`]; live entries are never evicted, and removing still works.
/// - Each commit also removes some expired entries. The file does not shrink, but free pages are
///   reused.
/// - Only one process can open the file. In others, opening fails with [`Locked`](StoreErrorKind::Locked).
/// - Opening verifies the checksums of all pages, so it reads the whole file. A damaged file is
///   rejected with [`StoreErrorKind::Corrupt`] and not modified, a file of a newer version with
///   [`StoreErrorKind::NewerFormat`].
/// - If the disk is full, writes fail with [`StoreErrorKind::Full`] and reads still work. Writes work again
///   as soon as there is room for them. After any other failed disk write, everything fails until
///   the store is opened again.
///
/// Detection of damage has two limits. With `panic = "abort"`, some damage aborts the process. And
/// one bit of the file header has no checksum: if exactly this bit flips in the file of a crashed
/// process, the last commit is treated as unfinished.
///
/// Dropping the store waits until all queued writes are done.
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
    file: Arc<OpenFile>,
    queue: Option<WriteQueue>,
    writer: Option<JoinHandle<()>>,
}

/// Limits of a [`Disk`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct DiskConfig {
    entries: u64,
    bytes: u64,
    cache_bytes: usize,
}

impl DiskConfig {
    /// Creates the default limits: 10,000,000 entries, 4 GiB, and a cache of 64 MiB.
    pub fn new() -> Self {
        Self { entries: 10_000_000, bytes: 4 << 30, cache_bytes: 64 << 20 }
    }

    /// Sets the maximum number of entries. Writes beyond it fail with [`StoreErrorKind::Full`].
    ///
    /// # Errors
    ///
    /// Returns an error if `most` is zero.
    pub fn entries(mut self, most: u64) -> Result<Self, ConfigError> {
        ConfigError::refuse_if(most == 0, "store entries", most, "must be at least 1")?;
        self.entries = most;
        Ok(self)
    }

    /// Sets the maximum size of all entries in bytes, counting values, keys twice, and 64 bytes for each entry. Writes
    /// beyond it fail with [`StoreErrorKind::Full`]. Defaults to 4 GiB.
    ///
    /// The file can become about three times as large, because pages are only partly filled and
    /// are written to free pages first.
    ///
    /// # Errors
    ///
    /// Returns an error if `most` is less than 128 KiB.
    pub fn bytes(mut self, most: u64) -> Result<Self, ConfigError> {
        let reason = "must be at least 131072, the size of the largest value with its key";
        ConfigError::refuse_if(most < 128 * 1024, "store bytes", most, reason)?;
        self.bytes = most;
        Ok(self)
    }

    /// Sets the size of the page cache in bytes.
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }
}

crate::util::builder::default_by_new!(DiskConfig);

impl Disk {
    /// Opens or creates the file. Its directory must exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be opened, is in use, or is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, DiskConfig::new())
    }

    /// Opens or creates the file with other limits.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be opened, is in use, or is damaged.
    pub fn open_with(path: impl AsRef<Path>, config: DiskConfig) -> Result<Self, StoreError> {
        let file = Arc::new(OpenFile::open(path.as_ref(), config.cache_bytes)?);
        let (queue, jobs) = WriteQueue::new();
        let writer = Writer::new(Arc::clone(&file), config.entries, config.bytes)?;
        let thread = thread::Builder::new().name("tollgate-store".into());
        let writer = thread.spawn(move || writer.run(&jobs));
        let writer = writer.map_err(|error| StoreError::new(StoreErrorKind::Unavailable, error))?;
        Ok(Self { file, queue: Some(queue), writer: Some(writer) })
    }

    async fn execute(&self, work: Work) -> Result<Vec<OperationOutcome>, StoreError> {
        // it exists until the store is dropped
        let queue = self.queue.as_ref().ok_or(StoreErrorKind::Unavailable)?;
        let reply = queue.send(work)?.await;
        reply.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Unavailable, "the writer thread has stopped")))
    }

    async fn queue_write(
        &self,
        key: &Key,
        expected: Option<Version>,
        record: Record,
    ) -> Result<WriteOutcome, StoreError> {
        let write = Operation::Write(key.clone(), expected.into(), record);
        match self.execute(Work::Run(vec![write])).await?.pop() {
            Some(OperationOutcome::Write(outcome)) => Ok(outcome),
            _ => Err(StoreErrorKind::Corrupt.into()),
        }
    }
}

impl Store for Disk {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        MaybeReady::<Ready<_>>::Ready(self.file.with(|database| file::find(database, key)))
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        self.queue_write(key, None, record).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        self.queue_write(key, Some(expected), record).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        match self.execute(Work::Take(key.clone())).await?.pop() {
            Some(OperationOutcome::Read(found)) => Ok(found),
            _ => Err(StoreErrorKind::Corrupt.into()),
        }
    }

    /// Executes all operations in one commit, or none if there is no room for one of them.
    async fn run(&self, operations: Vec<Operation>) -> Result<Vec<OperationOutcome>, StoreError> {
        if operations.iter().all(|operation| matches!(operation, Operation::Read(_))) {
            return one_by_one(self, operations).await;
        }
        self.execute(Work::Run(operations)).await
    }

    /// Reads the entries in the order of their keys.
    async fn scan(&self, cursor: Option<ScanCursor>) -> Result<ScanPage, StoreError> {
        let after = cursor.as_ref().map_or(&[][..], ScanCursor::as_bytes);
        self.file.with(|database| file::page(database, after)).map(ScanPage::of_sorted)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.queue.take());
        // the last owner may be dropped on the writer's own thread, which can't join itself
        if let Some(writer) = self.writer.take()
            && writer.thread().id() != thread::current().id()
        {
            let _ = writer.join();
        }
    }
}

crate::util::fmt::opaque_debug!(Disk);
