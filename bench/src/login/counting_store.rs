//! A store that counts its calls and measures their time.

use std::{
    cell::Cell,
    future::Future,
    time::{Duration, Instant},
};

use tollgate::{
    gate::MaybeReady,
    store::{Entry, Key, Memory, Operation, OperationOutcome, Record, Store, StoreError, Version, WriteOutcome},
};

pub struct CountingStore(pub Memory);

thread_local! {
    static CALLS: Cell<(u64, Duration)> = const { Cell::new((0, Duration::ZERO)) };
}

/// Returns the number of calls of this thread so far, and their total time.
pub fn counted() -> (u64, Duration) {
    CALLS.get()
}

fn note(began: Instant) {
    let (calls, took) = CALLS.get();
    CALLS.set((calls + 1, took + began.elapsed()));
}

async fn noted<T>(call: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let answer = call.await;
    note(began);
    answer
}

impl Store for CountingStore {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        let began = Instant::now();
        let found = self.0.get(key);
        note(began);
        found
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        noted(self.0.insert(key, record)).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        noted(self.0.swap(key, expected, record)).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        noted(self.0.take(key)).await
    }

    async fn run(&self, operations: Vec<Operation>) -> Result<Vec<OperationOutcome>, StoreError> {
        noted(self.0.run(operations)).await
    }
}
