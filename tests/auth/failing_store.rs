//! A store that fails on demand, and yields to other tasks before each operation.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, Ordering::SeqCst},
};

use tollgate::{
    gate::MaybeReady,
    store::{AnyStore, Entry, Key, Memory, Record, Store, StoreError, StoreErrorKind, Version, WriteOutcome},
};

/// An error text of a storage engine. It must never reach a caller.
pub(crate) const SAID: &str = "ERROR: relation \"logins\" at 10.0.0.7, password=hunter2";

/// Clones share one store.
#[derive(Clone, Debug)]
pub(crate) struct FailingStore {
    store: AnyStore,
    /// The number of operations before the failure.
    left: Arc<AtomicI64>,
    /// Whether it fails only once.
    once: Arc<AtomicBool>,
}

impl FailingStore {
    pub(crate) fn new() -> Self {
        Self { store: Memory::new().into(), left: Arc::new(AtomicI64::new(i64::MAX)), once: Arc::default() }
    }

    /// Fails after this many operations: once, or until it is repaired.
    pub(crate) fn fail_after(&self, things: i64, once: bool) {
        self.left.store(things, SeqCst);
        self.once.store(once, SeqCst);
    }

    /// Returns whether it has failed since the failure was scheduled.
    pub(crate) fn has_failed(&self) -> bool {
        self.left.load(SeqCst) < 0
    }

    pub(crate) fn repair(&self) {
        self.fail_after(i64::MAX, false);
    }

    fn act(&self) -> Result<(), StoreError> {
        let left = self.left.fetch_sub(1, SeqCst);
        if left > 0 || (left < 0 && self.once.load(SeqCst)) {
            return Ok(());
        }
        Err(StoreError::new(StoreErrorKind::Unavailable, SAID))
    }
}

impl Store for FailingStore {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        let (own, key) = (self.clone(), key.clone());
        MaybeReady::Pending(async move {
            tokio::task::yield_now().await;
            own.act()?;
            match own.store.get(&key) {
                MaybeReady::Ready(found) => found,
                MaybeReady::Pending(future) => future.await,
            }
        })
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        tokio::task::yield_now().await;
        self.act()?;
        self.store.insert(key, record).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        tokio::task::yield_now().await;
        self.act()?;
        self.store.swap(key, expected, record).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        tokio::task::yield_now().await;
        self.act()?;
        self.store.take(key).await
    }
}
