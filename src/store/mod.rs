//! Storage for users, sessions, and everything else that must be remembered.
//!
//! State lives behind the small [`Store`] trait. A store keeps bytes under a [`Key`] (table,
//! tenant, id) and offers four operations: read, insert if absent, compare-and-swap, and take; and
//! several of them can be executed in one call. Each write has a unique [`Version`], and each record an expiry.
//!
//! [`Memory`] forgets everything when the process ends. [`Disk`] (feature `store-disk`) survives crashes. `Redis` (feature
//! `redis`) is shared by many processes. The package `tollgate-sqlx` has stores in PostgreSQL and SQLite. Test your own store
//! with `testing::store_conformance` (feature `test-util`).
//!
//! | | |
//! |---|---|
//! | table name | 1 to 64 bytes |
//! | id | 0 to 1,024 arbitrary bytes |
//! | value | 0 to 64 KiB |
//!
//! # Data of your own
//!
//! Your application can use the store, too, for example for what it remembers about a session. A write names the version
//! that it replaces, so repeat it if another write came first:
//!
//! ```
//! use tollgate::{Session, clock::{Clock, SystemClock}, store::{AnyStore, Key, Record, StoreError, WriteOutcome}};
//!
//! async fn add_to_cart(store: &AnyStore, clock: &SystemClock, session: &Session, item: u8) -> Result<(), StoreError> {
//!     let key = Key::new("shop.carts", Some(session.tenant()), session.sid().to_string())?;
//!     loop {
//!         let (_, now) = clock.read();
//!         let found = store.get(&key).wait().await?;
//!         // a store may return an expired entry: its value is void, but its version is needed
//!         let live = found.as_ref().filter(|entry| entry.expires_at > now);
//!         let mut cart = live.map_or(Vec::new(), |entry| entry.value.to_vec());
//!         cart.push(item);
//!         let record = Record::new(cart, now, session.expires())?;
//!         let written = match &found {
//!             Some(entry) => store.swap(&key, entry.version, record).await?,
//!             None => store.insert(&key, record).await?,
//!         };
//!         if matches!(written, WriteOutcome::Done(_)) {
//!             return Ok(());
//!         }
//!     }
//! }
//! ```
//!
//! # Writing your own store
//!
//! Implement the methods as `async fn`, except for `get`. It is called for every request with a
//! session, so it can return immediately:
//!
//! ```
//! use std::{collections::HashMap, future::Future, sync::{Arc, Mutex}};
//! use tollgate::{gate::MaybeReady, store::{Entry, Key, Record, Store, StoreError, Version, WriteOutcome}};
//!
//! #[derive(Default)]
//! struct Plain(Mutex<(u64, HashMap<Key, Entry>)>);
//!
//! impl Plain {
//!     fn write(&self, key: &Key, expected: Option<Version>, record: Record) -> WriteOutcome {
//!         let (versions, map) = &mut *self.0.lock().unwrap();
//!         let found = map.get(key);
//!         if found.map(|entry| entry.version) != expected {
//!             return WriteOutcome::Lost(found.cloned());
//!         }
//!         *versions += 1;
//!         let version = Version::from_u64(*versions);
//!         let entry = Entry { value: record.value().clone(), version, expires_at: record.expires_at() };
//!         map.insert(key.clone(), entry);
//!         WriteOutcome::Done(version)
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
//!     async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
//!         Ok(self.write(key, None, record))
//!     }
//!
//!     async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
//!         Ok(self.write(key, Some(expected), record))
//!     }
//!
//!     async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
//!         Ok(self.0.lock().unwrap().1.remove(key))
//!     }
//! }
//! ```

mod any;
pub(crate) mod batch;
pub(crate) mod compact;
mod contract;
mod cutoff;
#[cfg(feature = "store-disk")]
mod disk;
mod error;
mod key;
mod memory;
#[cfg(test)]
mod model;
mod probe;
mod record;
mod scan;
#[cfg(feature = "redis")]
mod redis;
pub(crate) mod table;

#[cfg(feature = "store-disk")]
pub use self::disk::{Disk, DiskConfig};
#[cfg(feature = "redis")]
pub use self::redis::Redis;
pub use self::{
    any::AnyStore,
    contract::{BoxFuture, Store},
    error::{StoreError, StoreErrorKind},
    key::Key,
    memory::Memory,
    record::{Entry, Expected, Operation, OperationOutcome, Record, Version, WriteOutcome},
    scan::{ScanCursor, ScanPage},
};
#[cfg(feature = "redis")]
pub use crate::redis::RedisConfig;
