//! The writer thread, which commits all waiting writes at once.

use std::sync::{
    Arc,
    mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
};

use redb::{Database, ReadableTable, ReadableTableMetadata, Table, WriteTransaction};

use super::{
    file::{BY_EXPIRY, ENTRIES, Failed, META, begin_write, corrupt, decode, encode, expiry_key, guard},
    reply::{Reply, Sender, reply},
};
use crate::{
    store::{
        error::{StoreError, StoreErrorKind},
        key::Key,
        record::{Entry, Record, Version, WriteOutcome},
    },
    util::clock::UnixTime,
};

/// The maximum number of waiting writes. At 64 KiB each, they take at most 64 MiB.
const WAITING: usize = 1024;
/// The maximum number of writes in a commit.
const BATCH: usize = 256;
/// Expired entries that a commit removes, in addition to two for each of its writes.
const SWEPT_PER_COMMIT: usize = 32;

/// A waiting write.
pub(super) enum Job {
    Write { key: Key, expected: Option<Version>, record: Record, sender: Sender<WriteOutcome> },
    Take { key: Key, sender: Sender<Option<Entry>> },
}

/// A write whose transaction is not committed yet.
enum Settled {
    Write(WriteOutcome, Sender<WriteOutcome>),
    Take(Option<Entry>, Sender<Option<Entry>>),
    Refused(StoreError, Sender<WriteOutcome>),
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
    pub(super) fn send<T>(&self, job: impl FnOnce(Sender<T>) -> Job) -> Result<Reply<T>, StoreError> {
        let (sender, reply) = reply();
        match self.0.try_send(job(sender)) {
            Ok(()) => Ok(reply),
            Err(TrySendError::Full(_)) => Err(StoreErrorKind::Busy.into()),
            Err(TrySendError::Disconnected(_)) => {
                Err(StoreError::new(StoreErrorKind::Unavailable, "the writer thread has stopped"))
            }
        }
    }
}

/// Runs until the store is dropped and all queued writes are done.
pub(super) fn run(database: &Arc<Database>, jobs: &Receiver<Job>, max_entries: u64) {
    while let Ok(first) = jobs.recv() {
        let batch = std::iter::once(first).chain(jobs.try_iter()).take(BATCH).collect::<Vec<_>>();
        let mut settled = Vec::with_capacity(batch.len());
        let done = guard(|| commit(database, batch, max_entries, &mut settled));
        let broken = done.as_ref().is_err_and(|error| error.kind() == StoreErrorKind::Corrupt);
        for one in settled {
            one.answer(done.as_ref().err());
        }
        if broken {
            crate::util::trace::warning!("the store file is damaged; further writes will fail");
            return;
        }
    }
}

impl Settled {
    /// Replies to the caller after the transaction has ended. Nothing is acknowledged unless the
    /// whole transaction is durable.
    fn answer(self, failed: Option<&StoreError>) {
        match (failed.cloned(), self) {
            (None, Self::Write(outcome, sender)) => sender.send(Ok(outcome)),
            (None, Self::Take(found, sender)) => sender.send(Ok(found)),
            (None, Self::Refused(error, sender)) => sender.send(Err(error)),
            (Some(error), Self::Write(_, sender) | Self::Refused(_, sender)) => {
                sender.send(Err(error));
            }
            (Some(error), Self::Take(_, sender)) => sender.send(Err(error)),
        }
    }
}

fn commit(database: &Database, batch: Vec<Job>, max_entries: u64, settled: &mut Vec<Settled>) -> Result<(), Failed> {
    let transaction = begin_write(database)?;
    let changed = {
        let mut tables = Tables::open(&transaction, max_entries)?;
        for job in batch {
            tables.apply(job, settled)?;
        }
        tables.finish()?
    };
    if changed {
        transaction.commit()?;
    } else {
        transaction.abort()?;
    }
    Ok(())
}

/// The tables in a transaction.
struct Tables<'txn> {
    meta: Table<'txn, &'static str, u64>,
    entries: Table<'txn, &'static [u8], &'static [u8]>,
    by_expiry: Table<'txn, &'static [u8], ()>,
    /// Counts all writes of the file, so that no version repeats for a key.
    writes: u64,
    max_entries: u64,
    now: UnixTime,
    changes: usize,
}

impl<'txn> Tables<'txn> {
    fn open(transaction: &'txn WriteTransaction, max_entries: u64) -> Result<Self, Failed> {
        let meta = transaction.open_table(META)?;
        let writes = meta.get("writes")?.map(|writes| writes.value());
        Ok(Self {
            entries: transaction.open_table(ENTRIES)?,
            by_expiry: transaction.open_table(BY_EXPIRY)?,
            writes: writes.ok_or_else(|| corrupt("the file has no write counter"))?,
            meta,
            max_entries,
            now: UnixTime::default(),
            changes: 0,
        })
    }

    /// Applies a write. An error concerns the file and fails the whole transaction.
    fn apply(&mut self, job: Job, settled: &mut Vec<Settled>) -> Result<(), Failed> {
        match job {
            Job::Write { key, expected, record, sender } => {
                let outcome = self.write(&key, expected, &record);
                settled.push(match outcome {
                    Ok(outcome) => Settled::Write(outcome, sender),
                    Err(Failed(error)) if error.kind() == StoreErrorKind::Full => Settled::Refused(error, sender),
                    Err(Failed(error)) => {
                        sender.send(Err(error.clone()));
                        return Err(error.into());
                    }
                });
            }
            Job::Take { key, sender } => match self.take(&key) {
                Ok(found) => settled.push(Settled::Take(found, sender)),
                Err(Failed(error)) => {
                    sender.send(Err(error.clone()));
                    return Err(error.into());
                }
            },
        }
        Ok(())
    }

    fn write(&mut self, key: &Key, expected: Option<Version>, record: &Record) -> Result<WriteOutcome, Failed> {
        self.now = self.now.max(record.written_at());
        let found = self.find(key)?;
        if found.as_ref().map(|entry| entry.version) != expected {
            return Ok(WriteOutcome::Lost(found));
        }
        match found {
            Some(old) => {
                self.by_expiry.remove(&*expiry_key(old.expires_at, key.as_bytes()))?;
            }
            None if self.entries.len()? >= self.max_entries && self.sweep(SWEPT_PER_COMMIT)? == 0 => {
                return Err(StoreError::from(StoreErrorKind::Full).into());
            }
            None => {}
        }
        self.writes += 1;
        self.changes += 1;
        let version = Version::from_u64(self.writes);
        self.entries.insert(key.as_bytes(), &*encode(version, record.expires_at(), record.value()))?;
        self.by_expiry.insert(&*expiry_key(record.expires_at(), key.as_bytes()), ())?;
        Ok(WriteOutcome::Done(version))
    }

    fn take(&mut self, key: &Key) -> Result<Option<Entry>, Failed> {
        let found = self.find(key)?;
        if let Some(entry) = &found {
            self.changes += 1;
            self.entries.remove(key.as_bytes())?;
            self.by_expiry.remove(&*expiry_key(entry.expires_at, key.as_bytes()))?;
        }
        Ok(found)
    }

    fn find(&self, key: &Key) -> Result<Option<Entry>, Failed> {
        self.entries.get(key.as_bytes())?.map(|found| decode(found.value())).transpose()
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
            self.entries.remove(key)?;
            self.by_expiry.remove(&**row)?;
        }
        Ok(expired.len())
    }

    /// Returns whether there is anything to commit.
    fn finish(mut self) -> Result<bool, Failed> {
        if self.changes == 0 {
            return Ok(false);
        }
        self.sweep(SWEPT_PER_COMMIT + 2 * self.changes)?;
        self.meta.insert("writes", self.writes)?;
        Ok(true)
    }
}
