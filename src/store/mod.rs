//! The one narrow store under everything that must be remembered: sessions,
//! logins, codes, refresh families, throttles, passkeys.
//!
//! A [`Store`] keeps bytes under a [`Key`] (table, tenant, id), each write with
//! a [`Version`] of its own, and knows four things: read, insert if absent,
//! compare and swap, and take. Each record brings the time until which it lives. [`Memory`] is the default;
//! [`Disk`] (feature `store-disk`) survives a crash; yours passes the suite
//! `testing::store_conformance` (feature `test-util`).
//!
//! | | |
//! |---|---|
//! | table name | 1 to 64 bytes |
//! | id | 0 to 1024 bytes, any |
//! | value | 0 to 64 KiB |
//!
//! # A store of your own
//!
//! Write the methods as `async fn`, except `get`, which every request with a
//! session goes through and so answers at once where it can:
//!
//! ```
//! use std::{collections::HashMap, future::Future, sync::{Arc, Mutex}};
//! use tollgate::{MaybeReady, store::{Entry, Key, Outcome, Record, Store, StoreError, Version}};
//!
//! #[derive(Default)]
//! struct Plain(Mutex<(u64, HashMap<Key, Entry>)>);
//!
//! impl Plain {
//!     fn write(&self, key: &Key, expected: Option<Version>, record: Record) -> Outcome {
//!         let (versions, map) = &mut *self.0.lock().unwrap();
//!         let found = map.get(key);
//!         if found.map(|entry| entry.version) != expected {
//!             return Outcome::Lost(found.cloned());
//!         }
//!         *versions += 1;
//!         let version = Version::from_u64(*versions);
//!         let entry = Entry { value: record.value().clone(), version, expires_at: record.expires_at() };
//!         map.insert(key.clone(), entry);
//!         Outcome::Done(version)
//!     }
//! }
//!
//! impl Store for Plain {
//!     fn get(
//!         &self,
//!         key: &Key,
//!     ) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
//!         let found = self.0.lock().unwrap().1.get(key).cloned();
//!         MaybeReady::<std::future::Ready<_>>::Ready(Ok(found)) // else: Pending(async move { … })
//!     }
//!
//!     async fn insert(&self, key: &Key, record: Record) -> Result<Outcome, StoreError> {
//!         Ok(self.write(key, None, record))
//!     }
//!
//!     async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<Outcome, StoreError> {
//!         Ok(self.write(key, Some(expected), record))
//!     }
//!
//!     async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
//!         Ok(self.0.lock().unwrap().1.remove(key))
//!     }
//! }
//! ```

mod any;
#[cfg(feature = "store-disk")]
mod disk;
mod error;
mod key;
mod memory;
#[cfg(test)]
mod model;
mod record;
pub(crate) mod table;

use std::{future::Future, pin::Pin};

#[cfg(feature = "store-disk")]
pub use self::disk::{Disk, DiskConfig};
pub use self::{
    any::AnyStore,
    error::{StoreError, StoreErrorKind},
    key::Key,
    memory::Memory,
    record::{Entry, Outcome, Record, Version},
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
    fn insert(&self, key: &Key, record: Record) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Replaces exactly the write that has this version.
    fn swap(
        &self,
        key: &Key,
        expected: Version,
        record: Record,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Removes what stands under `key` and gives it to one caller.
    fn take(&self, key: &Key) -> impl Future<Output = Result<Option<Entry>, StoreError>> + Send;
}
