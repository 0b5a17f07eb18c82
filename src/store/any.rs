use std::{
    any::{Any, type_name},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use super::{
    contract::{BoxFuture, Store},
    error::{StoreError, StoreErrorKind},
    key::Key,
    memory::Memory,
    record::{Entry, EntryView, Operation, OperationOutcome, Record, Version, WriteOutcome},
    scan::{ScanCursor, ScanPage},
};
use crate::{gate::MaybeReady, util::clock::UnixTime};

/// Counts a call of the store, with the feature `metrics`.
macro_rules! count_call {
    ($operation:literal) => {
        #[cfg(feature = "metrics")]
        metrics::counter!("tollgate_store_calls_total", "operation" => $operation).increment(1)
    };
}

/// Counts an error of the store, with the feature `metrics`.
fn count_failure<T>(result: Result<T, StoreError>) -> Result<T, StoreError> {
    #[cfg(feature = "metrics")]
    if result.is_err() {
        metrics::counter!("tollgate_store_errors_total").increment(1);
    }
    result
}

/// The maximum number of operations in one call.
const MOST_OPERATIONS: usize = 32;

/// A type-erased [`Store`]. Clones share the same store.
///
/// Everything that keeps state takes `impl Into<AnyStore>`: a store, or a clone of an `AnyStore` to
/// share it.
///
/// ```
/// use tollgate::store::{AnyStore, Memory};
///
/// let store = AnyStore::from(Memory::new());
/// let shared = store.clone();
/// # let _ = shared;
/// ```
#[derive(Clone)]
pub struct AnyStore(Arc<Shared<dyn DynStore>>);

struct Shared<S: ?Sized> {
    cutoff: KnownCutoff,
    store: S,
}

/// The time before which everything that was begun has ended, as far as this process knows.
#[derive(Default)]
pub(super) struct KnownCutoff {
    /// In nanoseconds.
    time: AtomicU64,
    /// What [`Store::complete_since`] was when the time was read, in nanoseconds, and one more. Zero if it was never read.
    read_for: AtomicU64,
}

impl KnownCutoff {
    pub(super) fn time(&self) -> UnixTime {
        UnixTime::from_nanos(self.time.load(SeqCst))
    }

    pub(super) fn is_of(&self, since: UnixTime) -> bool {
        self.read_for.load(SeqCst) == since.as_nanos().saturating_add(1)
    }

    /// Keeps a time that was read, or that was just written. It never falls.
    pub(super) fn keep(&self, time: UnixTime, since: UnixTime) {
        self.time.fetch_max(time.as_nanos(), SeqCst);
        self.read_for.store(since.as_nanos().saturating_add(1), SeqCst);
    }
}

impl AnyStore {
    /// Calls [`Store::get`]. A result that is available immediately is not boxed: call
    /// [`wait`](MaybeReady::wait) and await that.
    pub fn get(&self, key: &Key) -> MaybeReady<BoxFuture<'static, Result<Option<Entry>, StoreError>>> {
        count_call!("get");
        match self.0.store.get(key) {
            MaybeReady::Ready(found) => MaybeReady::Ready(count_failure(found)),
            #[cfg(feature = "metrics")]
            MaybeReady::Pending(found) => MaybeReady::Pending(Box::pin(async { count_failure(found.await) })),
            #[cfg(not(feature = "metrics"))]
            MaybeReady::Pending(found) => MaybeReady::Pending(found),
        }
    }

    /// Shows the entry of `key` to `see` without copying it. Returns `None`, and calls nothing, unless the store is a
    /// [`Memory`]. The entry is locked meanwhile, so `see` must be quick and must not use the store.
    pub(super) fn view_entry<R>(&self, key: &Key, see: impl FnOnce(Option<EntryView<'_>>) -> R) -> Option<R> {
        let (mut see, mut seen) = (Some(see), None);
        self.0.store.view_entry(key, &mut |entry| seen = see.take().map(|see| see(entry)));
        if seen.is_some() {
            count_call!("get");
        }
        seen
    }

    /// Calls [`Store::insert`].
    pub async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        count_call!("insert");
        count_failure(self.0.store.insert(key, record).await)
    }

    /// Calls [`Store::swap`].
    pub async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        count_call!("swap");
        count_failure(self.0.store.swap(key, expected, record).await)
    }

    /// Calls [`Store::take`].
    pub async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        count_call!("take");
        count_failure(self.0.store.take(key).await)
    }

    /// Calls [`Store::run`].
    ///
    /// # Errors
    ///
    /// Besides errors of the store, returns one of the kind [`StoreErrorKind::TooLarge`] for more than 32 operations.
    pub async fn run(&self, operations: Vec<Operation>) -> Result<Vec<OperationOutcome>, StoreError> {
        if operations.len() > MOST_OPERATIONS {
            return Err(StoreErrorKind::TooLarge.into());
        }
        count_call!("run");
        count_failure(self.0.store.run(operations).await)
    }

    /// Calls [`Store::scan`].
    pub async fn scan(&self, cursor: Option<ScanCursor>) -> Result<ScanPage, StoreError> {
        count_call!("scan");
        count_failure(self.0.store.scan(cursor).await)
    }

    /// Calls [`Store::complete_since`]. If everything was ended later than that, returns the time at which it ended.
    pub fn complete_since(&self) -> UnixTime {
        self.own_complete_since().max(self.0.cutoff.time())
    }

    /// Calls [`Store::begin_epoch`].
    pub async fn begin_epoch(&self) -> Result<(), StoreError> {
        self.0.store.begin_epoch().await
    }

    pub(super) fn own_complete_since(&self) -> UnixTime {
        self.0.store.complete_since()
    }

    pub(super) fn known_cutoff(&self) -> &KnownCutoff {
        &self.0.cutoff
    }

    /// Calls [`Store::is_persistent`].
    pub fn is_persistent(&self) -> bool {
        self.0.store.is_persistent()
    }
}

impl<S: Store> From<S> for AnyStore {
    fn from(store: S) -> Self {
        Self(Arc::new(Shared { cutoff: KnownCutoff::default(), store }))
    }
}

crate::util::fmt::debug_text!(AnyStore, |own| own.0.store.name());

/// The dyn-compatible form of [`Store`].
trait DynStore: Send + Sync {
    fn get(&self, key: &Key) -> MaybeReady<BoxFuture<'static, Result<Option<Entry>, StoreError>>>;
    fn view_entry(&self, key: &Key, see: &mut dyn FnMut(Option<EntryView<'_>>));
    fn insert<'a>(&'a self, key: &'a Key, record: Record) -> BoxFuture<'a, Result<WriteOutcome, StoreError>>;
    fn swap<'a>(
        &'a self,
        key: &'a Key,
        expected: Version,
        record: Record,
    ) -> BoxFuture<'a, Result<WriteOutcome, StoreError>>;
    fn take<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>, StoreError>>;
    fn run(&self, operations: Vec<Operation>) -> BoxFuture<'_, Result<Vec<OperationOutcome>, StoreError>>;
    fn scan(&self, cursor: Option<ScanCursor>) -> BoxFuture<'_, Result<ScanPage, StoreError>>;
    fn complete_since(&self) -> UnixTime;
    fn begin_epoch(&self) -> BoxFuture<'_, Result<(), StoreError>>;
    fn is_persistent(&self) -> bool;
    fn name(&self) -> &'static str;
}

impl<S: Store> DynStore for S {
    fn get(&self, key: &Key) -> MaybeReady<BoxFuture<'static, Result<Option<Entry>, StoreError>>> {
        match Store::get(self, key) {
            MaybeReady::Ready(found) => MaybeReady::Ready(found),
            MaybeReady::Pending(future) => MaybeReady::Pending(Box::pin(future)),
        }
    }

    fn view_entry(&self, key: &Key, see: &mut dyn FnMut(Option<EntryView<'_>>)) {
        // decided by the compiler
        if let Some(memory) = (self as &dyn Any).downcast_ref::<Memory>() {
            memory.view_entry(key, see);
        }
    }

    fn insert<'a>(&'a self, key: &'a Key, record: Record) -> BoxFuture<'a, Result<WriteOutcome, StoreError>> {
        Box::pin(Store::insert(self, key, record))
    }

    fn swap<'a>(
        &'a self,
        key: &'a Key,
        expected: Version,
        record: Record,
    ) -> BoxFuture<'a, Result<WriteOutcome, StoreError>> {
        Box::pin(Store::swap(self, key, expected, record))
    }

    fn take<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        Box::pin(Store::take(self, key))
    }

    fn run(&self, operations: Vec<Operation>) -> BoxFuture<'_, Result<Vec<OperationOutcome>, StoreError>> {
        Box::pin(Store::run(self, operations))
    }

    fn scan(&self, cursor: Option<ScanCursor>) -> BoxFuture<'_, Result<ScanPage, StoreError>> {
        Box::pin(Store::scan(self, cursor))
    }

    fn complete_since(&self) -> UnixTime {
        Store::complete_since(self)
    }

    fn begin_epoch(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(Store::begin_epoch(self))
    }

    fn is_persistent(&self) -> bool {
        Store::is_persistent(self)
    }

    fn name(&self) -> &'static str {
        type_name::<S>()
    }
}
