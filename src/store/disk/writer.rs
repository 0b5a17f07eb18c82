//! The writer thread, which commits all waiting writes at once.

use std::sync::{
    Arc,
    mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
};

use redb::{Database, ReadableTable, ReadableTableMetadata, Table, WriteTransaction};
use tokio::sync::oneshot;

use super::file::{
    BY_EXPIRY, ENTRIES, Failed, HEADER, META, OpenFile, begin_write, corrupt, cost, decode_disk_entry,
    encode_disk_entry, expiry_key, stored_bytes,
};
use crate::{
    store::{
        error::{StoreError, StoreErrorKind},
        key::Key,
        record::{Entry, Expected, Operation, OperationOutcome, Record, Version, WriteOutcome},
    },
    util::clock::UnixTime,
};

/// The maximum number of waiting calls. A single write takes at most 64 KiB. A call of several takes more if they are large,
/// but most take a few KiB.
const WAITING: usize = 1024;
/// The maximum number of writes in a commit.
const BATCH: usize = 256;
/// Expired entries that a commit removes, in addition to two for each of its writes.
const SWEPT_PER_COMMIT: usize = 32;

/// The change that a waiting write makes.
pub(super) enum Work {
    Take(Key),
    Run(Vec<Operation>),
}

type Reply = Result<Vec<OperationOutcome>, StoreError>;

/// A waiting write.
pub(super) struct Job {
    work: Work,
    sender: oneshot::Sender<Reply>,
}

/// A write whose transaction is not committed yet.
struct Settled {
    /// `None` if the limit of entries or bytes was reached on the way.
    outcomes: Option<Vec<OperationOutcome>>,
    sender: oneshot::Sender<Reply>,
}

/// The queue of the writer.
#[derive(Debug)]
pub(super) struct WriteQueue(SyncSender<Job>);

impl WriteQueue {
    pub(super) fn new() -> (Self, Receiver<Job>) {
        let (sender, receiver) = sync_channel(WAITING);
        (Self(sender), receiver)
    }

    /// Queues a write. It fails if there is no room.
    pub(super) fn send(&self, work: Work) -> Result<oneshot::Receiver<Reply>, StoreError> {
        let (sender, reply) = oneshot::channel();
        match self.0.try_send(Job { work, sender }) {
            Ok(()) => Ok(reply),
            Err(TrySendError::Full(_)) => Err(StoreErrorKind::Busy.into()),
            Err(TrySendError::Disconnected(_)) => {
                Err(StoreError::new(StoreErrorKind::Unavailable, "the writer thread has stopped"))
            }
        }
    }
}

/// The thread that writes.
pub(super) struct Writer {
    file: Arc<OpenFile>,
    limits: Limits,
    /// The bytes that all entries count for.
    bytes: u64,
    /// Whether the last commit failed because the disk was full.
    is_disk_full: bool,
    /// Whether the file could not be opened again after that.
    is_closed: bool,
}

#[derive(Clone, Copy)]
struct Limits {
    entries: u64,
    bytes: u64,
}

impl Writer {
    pub(super) fn new(file: Arc<OpenFile>, entries: u64, bytes: u64) -> Result<Self, StoreError> {
        let stored = file.with(stored_bytes)?;
        Ok(Self { file, limits: Limits { entries, bytes }, bytes: stored, is_disk_full: false, is_closed: false })
    }

    /// Runs until the store is dropped and all queued writes are done.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        while let Ok(first) = jobs.recv() {
            let batch = std::iter::once(first).chain(jobs.try_iter()).take(BATCH).collect::<Vec<_>>();
            let (mut settled, mut batch) = (Vec::with_capacity(batch.len()), batch.into_iter());
            let done = self.recover().and_then(|()| {
                let (limits, bytes) = (self.limits, self.bytes);
                self.file.with(|database| commit(database, &mut batch, (limits, bytes), &mut settled))
            });
            let failed = done.as_ref().err().map(StoreError::kind);
            if let Ok(bytes) = done {
                self.bytes = bytes;
            }
            if failed == Some(StoreErrorKind::Full) && !self.is_disk_full {
                crate::util::trace::warning!("the disk is full; writes to the store file fail until there is room");
                self.is_disk_full = true;
                self.is_closed = self.file.reopen().is_err();
            }
            for one in settled {
                one.reply_to_caller(done.as_ref().err());
            }
            if let Err(error) = done {
                batch.for_each(|job| _ = job.sender.send(Err(error.clone())));
            }
            if failed == Some(StoreErrorKind::Corrupt) {
                crate::util::trace::warning!("the store file is damaged; further writes will fail");
                return;
            }
        }
    }

    /// Makes the file writable again after the disk was full. Fails if there is still no room.
    fn recover(&mut self) -> Result<(), StoreError> {
        if self.is_disk_full {
            self.file.check_room()?;
            if self.is_closed {
                self.file.reopen()?;
            }
            (self.is_disk_full, self.is_closed) = (false, false);
        }
        Ok(())
    }
}

impl Settled {
    /// Replies to the caller after the transaction has ended. Nothing is acknowledged unless the
    /// whole transaction is durable.
    fn reply_to_caller(self, failed: Option<&StoreError>) {
        _ = self.sender.send(match failed {
            Some(error) => Err(error.clone()),
            None => self.outcomes.ok_or_else(|| StoreErrorKind::Full.into()),
        });
    }
}

/// Commits these jobs, and returns the bytes that all entries count for afterwards.
fn commit(
    database: &Database,
    batch: &mut impl Iterator<Item = Job>,
    (limits, bytes): (Limits, u64),
    settled: &mut Vec<Settled>,
) -> Result<u64, Failed> {
    let transaction = begin_write(database)?;
    let mut tables = Tables::open(&transaction, limits, bytes)?;
    for job in batch {
        tables.apply(job, settled)?;
    }
    match tables.finish()? {
        Some(bytes) => {
            transaction.commit()?;
            Ok(bytes)
        }
        None => {
            transaction.abort()?;
            Ok(bytes)
        }
    }
}

/// The tables in a transaction.
struct Tables<'txn> {
    meta: Table<'txn, &'static str, u64>,
    entries: Table<'txn, &'static [u8], &'static [u8]>,
    by_expiry: Table<'txn, &'static [u8], ()>,
    /// Counts all writes of the file, so that no version repeats for a key.
    writes: u64,
    limits: Limits,
    /// The bytes that all entries count for.
    bytes: u64,
    now: UnixTime,
    changes: usize,
}

impl<'txn> Tables<'txn> {
    fn open(transaction: &'txn WriteTransaction, limits: Limits, bytes: u64) -> Result<Self, Failed> {
        let meta = transaction.open_table(META)?;
        let writes = meta.get("writes")?.map(|writes| writes.value());
        Ok(Self {
            entries: transaction.open_table(ENTRIES)?,
            by_expiry: transaction.open_table(BY_EXPIRY)?,
            writes: writes.ok_or_else(|| corrupt("the file has no write counter"))?,
            meta,
            limits,
            bytes,
            now: UnixTime::default(),
            changes: 0,
        })
    }

    /// Applies a write. An error concerns the file and fails the whole transaction.
    fn apply(&mut self, Job { work, sender }: Job, settled: &mut Vec<Settled>) -> Result<(), Failed> {
        let outcomes = match work {
            Work::Take(key) => self.take_disk_entry(&key).map(|found| Some(vec![OperationOutcome::Read(found)])),
            Work::Run(operations) => self.execute(operations),
        };
        match outcomes {
            Ok(outcomes) => {
                settled.push(Settled { outcomes, sender });
                Ok(())
            }
            Err(Failed(error)) => {
                _ = sender.send(Err(error.clone()));
                Err(error.into())
            }
        }
    }

    /// Executes operations up to the first write that loses. Returns `None` if there is no room for one of them, and then none
    /// of them has an effect.
    fn execute(&mut self, operations: Vec<Operation>) -> Result<Option<Vec<OperationOutcome>>, Failed> {
        let mut outcomes = Vec::with_capacity(operations.len());
        let mut replaced = Vec::new();
        for operation in operations {
            let written = match operation {
                Operation::Read(key) => {
                    outcomes.push(OperationOutcome::Read(self.find(&key)?));
                    continue;
                }
                Operation::Write(key, expected, record) => {
                    self.write_disk_entry(key, expected, &record, &mut replaced)?
                }
            };
            let Some(written) = written else {
                self.restore(replaced)?;
                return Ok(None);
            };
            let is_lost = matches!(written, WriteOutcome::Lost(_));
            outcomes.push(OperationOutcome::Write(written));
            if is_lost {
                break;
            }
        }
        Ok(Some(outcomes))
    }

    /// Puts back the entries that were replaced, the last one first.
    fn restore(&mut self, replaced: Vec<(Key, Option<Entry>)>) -> Result<(), Failed> {
        for (key, before) in replaced.into_iter().rev() {
            self.take_disk_entry(&key)?;
            if let Some(Entry { value, version, expires_at }) = before {
                self.entries.insert(key.as_bytes(), &*encode_disk_entry(version, expires_at, &value))?;
                self.by_expiry.insert(&*expiry_key(expires_at, key.as_bytes()), ())?;
                self.bytes += cost(key.as_bytes(), value.len());
            }
        }
        Ok(())
    }

    /// Adds what it replaces to the list. Returns `None` if there is no room.
    fn write_disk_entry(
        &mut self,
        key: Key,
        expected: Expected,
        record: &Record,
        all_replaced: &mut Vec<(Key, Option<Entry>)>,
    ) -> Result<Option<WriteOutcome>, Failed> {
        self.now = self.now.max(record.written_at());
        let found = self.find(&key)?;
        if !expected.is_met_by(found.as_ref().map(|entry| entry.version)) {
            return Ok(Some(WriteOutcome::Lost(found)));
        }
        // without its expiry, the sweep below leaves it alone
        if let Some(old) = &found {
            self.by_expiry.remove(&*expiry_key(old.expires_at, key.as_bytes()))?;
        }
        let replaced = found.as_ref().map_or(0, |old| cost(key.as_bytes(), old.value.len()));
        let needed = cost(key.as_bytes(), record.value().len());
        while (found.is_none() && self.entries.len()? >= self.limits.entries)
            || (needed > replaced && self.bytes + needed - replaced > self.limits.bytes)
        {
            let swept = self.sweep(SWEPT_PER_COMMIT)?;
            self.changes += swept;
            if swept == 0 {
                if let Some(old) = &found {
                    self.by_expiry.insert(&*expiry_key(old.expires_at, key.as_bytes()), ())?;
                }
                return Ok(None);
            }
        }
        self.writes += 1;
        self.changes += 1;
        self.bytes = (self.bytes + needed).saturating_sub(replaced);
        let version = Version::from_u64(self.writes);
        self.entries.insert(key.as_bytes(), &*encode_disk_entry(version, record.expires_at(), record.value()))?;
        self.by_expiry.insert(&*expiry_key(record.expires_at(), key.as_bytes()), ())?;
        all_replaced.push((key, found));
        Ok(Some(WriteOutcome::Done(version)))
    }

    fn take_disk_entry(&mut self, key: &Key) -> Result<Option<Entry>, Failed> {
        let found = self.find(key)?;
        if let Some(entry) = &found {
            self.changes += 1;
            self.remove(key.as_bytes())?;
            self.by_expiry.remove(&*expiry_key(entry.expires_at, key.as_bytes()))?;
        }
        Ok(found)
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), Failed> {
        if let Some(old) = self.entries.remove(key)? {
            self.bytes = self.bytes.saturating_sub(cost(key, old.value().len().saturating_sub(HEADER)));
        }
        Ok(())
    }

    fn find(&self, key: &Key) -> Result<Option<Entry>, Failed> {
        self.entries.get(key.as_bytes())?.map(|found| decode_disk_entry(found.value())).transpose()
    }

    /// Removes at most `most` expired entries and returns their number.
    fn sweep(&mut self, most: usize) -> Result<usize, Failed> {
        let end = expiry_key(UnixTime::from_nanos(self.now.as_nanos().saturating_add(1)), &[]);
        let mut expired = Vec::new();
        for row in self.by_expiry.range(..&*end)?.take(most) {
            expired.push(row?.0.value().to_vec());
        }
        for row in &expired {
            let key = row.get(size_of::<u64>()..).unwrap_or_default();
            self.remove(key)?;
            self.by_expiry.remove(&**row)?;
        }
        Ok(expired.len())
    }

    /// Returns the bytes that all entries count for, or `None` if there is nothing to commit.
    fn finish(mut self) -> Result<Option<u64>, Failed> {
        if self.changes == 0 {
            return Ok(None);
        }
        self.sweep(SWEPT_PER_COMMIT + 2 * self.changes)?;
        self.meta.insert("writes", self.writes)?;
        Ok(Some(self.bytes))
    }
}
