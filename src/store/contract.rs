//! What every store does and guarantees.

use std::{future::Future, pin::Pin};

use super::{
    error::StoreError,
    key::Key,
    record::{Entry, Record, Version, WriteOutcome},
};
use crate::gate::MaybeReady;

/// A future in a box.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where state is kept. The module docs show one in full.
///
/// What every store guarantees, and `testing::store_conformance` checks:
///
/// - A write is seen whole or not at all, and by every read that begins after
///   it was acknowledged.
/// - Of any number of writes that expect the same (nothing, or one version) at
///   most one succeeds; of any number of takes at most one gets the value.
/// - A version never comes back for its key, not even after the key is gone.
/// - What has not expired is never forgotten to make room: a write beyond the
///   bounds is refused with [`StoreErrorKind::Full`].
///
/// A store may forget a value once it has expired, by the time that later
/// writes bring ([`Record::written_at`]) or by a clock of its own, and need not
/// be quick about it: until then it answers with it as with any other. Whether
/// it still counts is decided by whoever reads.
///
/// Dropping a future leaves open whether its write happens. So does
/// [`StoreErrorKind::Unavailable`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store",
    note = "implement `tollgate::store::Store` for it; the module docs of `tollgate::store` show one in full"
)]
pub trait Store: Send + Sync + 'static {
    /// What stands under `key`.
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static>;

    /// Writes where nothing stands.
    fn insert(&self, key: &Key, record: Record) -> impl Future<Output = Result<WriteOutcome, StoreError>> + Send;

    /// Replaces exactly the write that has this version.
    fn swap(
        &self,
        key: &Key,
        expected: Version,
        record: Record,
    ) -> impl Future<Output = Result<WriteOutcome, StoreError>> + Send;

    /// Removes what stands under `key` and gives it to one caller.
    fn take(&self, key: &Key) -> impl Future<Output = Result<Option<Entry>, StoreError>> + Send;
}
