//! The contract of all stores.

use std::{future::Future, pin::Pin};

use super::{
    error::{StoreError, StoreErrorKind},
    key::Key,
    record::{Entry, Expected, Operation, OperationOutcome, Record, Version, WriteOutcome},
    scan::{ScanCursor, ScanPage},
};
use crate::{gate::MaybeReady, util::clock::UnixTime};

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A key-value store. The [module documentation](super) has a complete example.
///
/// All stores guarantee the following, which `testing::store_conformance` checks:
///
/// - A write is seen completely or not at all, and by every read that starts after it was
///   acknowledged.
/// - Of concurrent writes that expect the same state (no entry, or one version), at most one
///   succeeds. Of concurrent takes, at most one gets the value.
/// - A version never repeats for its key, even after the entry is removed.
/// - Entries that have not expired are never evicted. A write beyond the limits fails with
///   [`StoreErrorKind::Full`].
///
/// A store may remove expired entries, judging by the time of later writes ([`Record::written_at`]) or by its own
/// clock. Until then, it may return them, so readers check the expiry.
///
/// After a future is dropped, or after [`StoreErrorKind::Unavailable`], it is unknown whether the
/// write happened.
///
/// [`StoreErrorKind::Full`]: super::StoreErrorKind::Full
/// [`StoreErrorKind::Unavailable`]: super::StoreErrorKind::Unavailable
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't implement `Store`",
    note = "implement `tollgate::store::Store` for it; the documentation of `tollgate::store` has a complete example"
)]
pub trait Store: Send + Sync + 'static {
    /// Returns the entry of `key`.
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static>;

    /// Writes a new entry. Returns [`WriteOutcome::Lost`] if the key has one.
    fn insert(&self, key: &Key, record: Record) -> impl Future<Output = Result<WriteOutcome, StoreError>> + Send;

    /// Replaces the entry if it still has the version `expected`.
    fn swap(
        &self,
        key: &Key,
        expected: Version,
        record: Record,
    ) -> impl Future<Output = Result<WriteOutcome, StoreError>> + Send;

    /// Removes the entry of `key` and returns it to exactly one caller.
    fn take(&self, key: &Key) -> impl Future<Output = Result<Option<Entry>, StoreError>> + Send;

    /// Executes several operations in this order, and stops after the first write that loses. Returns the outcomes of
    /// those that were executed, in the same order.
    ///
    /// Each operation has the same guarantees as on its own. Other calls can come in between, unless the store executes
    /// all of them at once. If the call fails or the process stops, it is unknown how many were executed, but none is
    /// executed without all those before it.
    ///
    /// **A call that reads after it writes must not miss a concurrent write whose caller then misses the writes of this
    /// call.** `Sessions::end_user` depends on it: a sign-in writes a session and then reads a number of the user, and
    /// `end_user` raises that number and then reads the sessions. At least one of the two must see the other. A
    /// database transaction that shows its writes only at its end must therefore lock what it reads, too, or run alone.
    ///
    /// By default, makes one call after the other. Override it if your store can execute all of them in one round trip
    /// or one commit: a sign-in makes about 30 operations in 18 calls. If it executes all or none, even when it is
    /// full, no sign-in is used up without creating a session.
    fn run(
        &self,
        operations: Vec<Operation>,
    ) -> impl Future<Output = Result<Vec<OperationOutcome>, StoreError>> + Send {
        one_by_one(self, operations)
    }

    /// Returns some of the entries, beginning where the page of this cursor ended, for operators and backups. No
    /// request needs it.
    ///
    /// An entry that exists from the first page to the last appears at least once. One that is written or removed in
    /// the meantime may or may not appear. Expired entries may appear, too. A cursor that another store has returned
    /// can be an error of the kind [`StoreErrorKind::Corrupt`](super::StoreErrorKind::Corrupt).
    ///
    /// Defaults to an error of the kind [`StoreErrorKind::NotOffered`](super::StoreErrorKind::NotOffered).
    fn scan(&self, cursor: Option<ScanCursor>) -> impl Future<Output = Result<ScanPage, StoreError>> + Send {
        let _ = cursor;
        async { Err(StoreErrorKind::NotOffered.into()) }
    }

    /// Returns the time since which no acknowledged write was lost, as far as the calls that have returned show.
    /// Anything signed before, such as an access token, is refused, because its revocation may be among the lost
    /// writes.
    ///
    /// Defaults to 1970: the store loses nothing, or everything, including the signing keys.
    fn complete_since(&self) -> UnixTime {
        UnixTime::from_nanos(0)
    }

    /// Moves [`complete_since`](Self::complete_since) to now, for all processes that share the store, with the next
    /// call of each. They then reload what they keep in memory, and refuse anything signed before.
    ///
    /// Defaults to doing nothing, which is right for a store of one process.
    fn begin_epoch(&self) -> impl Future<Output = Result<(), StoreError>> + Send {
        async { Ok(()) }
    }

    /// Returns whether entries can outlive this process, so that secrets in them must be encrypted. Defaults to `true`.
    fn is_persistent(&self) -> bool {
        true
    }
}

/// Executes operations one after the other.
pub(super) async fn one_by_one<S: Store + ?Sized>(
    store: &S,
    operations: Vec<Operation>,
) -> Result<Vec<OperationOutcome>, StoreError> {
    let mut outcomes = Vec::with_capacity(operations.len());
    for operation in operations {
        let written = match operation {
            Operation::Read(key) => {
                outcomes.push(OperationOutcome::Read(store.get(&key).wait().await?));
                continue;
            }
            Operation::Write(key, Expected::Absent, record) => store.insert(&key, record).await?,
            Operation::Write(key, Expected::Version(own), record) => store.swap(&key, own, record).await?,
            Operation::Write(key, Expected::Expired(own), record) => {
                match store.swap(&key, own, record.clone()).await? {
                    WriteOutcome::Lost(None) => store.insert(&key, record).await?,
                    written => written,
                }
            }
        };
        let is_lost = matches!(written, WriteOutcome::Lost(_));
        outcomes.push(OperationOutcome::Write(written));
        if is_lost {
            break;
        }
    }
    Ok(outcomes)
}
