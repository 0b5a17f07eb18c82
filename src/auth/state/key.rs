//! The key under the keyed hashes: the operator's, or one that the store keeps.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use crate::{
    login::Keyed,
    store::{AnyStore, StoreError, StoreErrorKind, WriteOutcome, table::Table},
    util::{
        clock::{Clock, UnixTime},
        secret::Secret,
    },
};

#[derive(Serialize, Deserialize)]
struct Stored {
    key: Zeroizing<String>,
}

/// The key of a login service. One from the store is read again when the store may have lost it, because another process may
/// have made a new one.
pub(crate) struct HashKey {
    given: Option<Keyed>,
    first: OnceLock<LoadedKey>,
    loading: Mutex<()>,
}

/// A key from the store. Each one that replaced it follows, so that calls that still use it can go on.
struct LoadedKey {
    keyed: Keyed,
    /// What [`AnyStore::complete_since`] was when the key was read last, in nanoseconds.
    read_for: AtomicU64,
    next: OnceLock<Box<LoadedKey>>,
}

impl HashKey {
    pub(crate) fn new(given: Option<Keyed>) -> Self {
        Self { given, first: OnceLock::new(), loading: Mutex::default() }
    }

    /// Returns the key, unless it has to be read first.
    pub(crate) fn known(&self, store: &AnyStore) -> Option<&Keyed> {
        if !store.knows_cutoff() {
            return None;
        }
        if let Some(given) = &self.given {
            return Some(given);
        }
        let (last, since) = (self.last()?, store.complete_since().as_nanos());
        (last.read_for.load(SeqCst) == since).then_some(&last.keyed)
    }

    /// Reads the key, and what else is kept in memory until the store may have lost something.
    pub(crate) async fn load(&self, store: &AnyStore, clock: &Arc<dyn Clock>) -> Result<&Keyed, StoreError> {
        let _loading = self.loading.lock().await;
        if let Some(keyed) = self.known(store) {
            return Ok(keyed);
        }
        store.cutoff().wait().await?;
        if let Some(given) = &self.given {
            return Ok(given);
        }
        // as of before the read, which may show that more is lost
        let since = store.complete_since().as_nanos();
        let read = of_store(store.clone(), Arc::clone(clock)).await?;
        let Some(last) = self.last() else { return Ok(&self.first.get_or_init(|| LoadedKey::new(read, since)).keyed) };
        if last.keyed.is_same(&read) {
            last.read_for.store(since, SeqCst);
            return Ok(&last.keyed);
        }
        crate::util::trace::warning!("the key of the login service was replaced, because the store has lost it");
        Ok(&last.next.get_or_init(|| Box::new(LoadedKey::new(read, since))).keyed)
    }

    fn last(&self) -> Option<&LoadedKey> {
        let mut last = self.first.get()?;
        while let Some(next) = last.next.get() {
            last = next;
        }
        Some(last)
    }
}

impl LoadedKey {
    fn new(keyed: Keyed, since: u64) -> Self {
        Self { keyed, read_for: AtomicU64::new(since), next: OnceLock::new() }
    }
}

/// Returns the key of this store, which the first caller creates. Nodes that share a store share its key.
async fn of_store(store: AnyStore, clock: Arc<dyn Clock>) -> Result<Keyed, StoreError> {
    const ID: &[u8] = b"hashes";
    let table: Table<Stored> = Table::new(store, "auth_keys", clock);
    let new = Secret::generate();
    let row = Stored { key: Zeroizing::new(new.expose().to_owned()) };
    match table.insert(None, ID, &row, UnixTime::FOREVER).await? {
        WriteOutcome::Done(_) => Ok(Keyed::new(&new)),
        WriteOutcome::Lost(Some(found)) => {
            let key = Secret::parse(found.value.key.as_str()).ok_or(StoreErrorKind::Corrupt)?;
            Ok(Keyed::new(&key))
        }
        WriteOutcome::Lost(None) => Err(StoreErrorKind::Busy.into()),
    }
}
