//! A store that records its operations, fails on demand, and lets concurrent calls go first.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use serde_json::Value;
use tollgate::{
    clock::UnixTime,
    gate::MaybeReady,
    store::{
        Entry, Expected, Key, Memory, Operation, OperationOutcome, Record, Store, StoreError, StoreErrorKind, Version,
        WriteOutcome,
    },
};

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It fails without any effect.
    Before,
    /// It takes effect, but returns an error.
    After,
    /// It fails without any effect, and so do all operations after it.
    Down,
}

pub(crate) const FAULTS: [Fault; 3] = [Fault::Before, Fault::After, Fault::Down];

/// A row that was written, or would have been.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) table: String,
    pub(crate) value: Bytes,
    pub(crate) expires_at: UnixTime,
}

impl Written {
    /// Describes the row by what does not depend on chance or on the found user: its table, its length and its end.
    pub(crate) fn shape(&self) -> String {
        let len = match &*self.table {
            // logins contain the id of a known user, and codes to one address count together or apart, depending on whose
            // account the name belongs to
            "logins" | "sends" => "any".to_owned(),
            // contains a digest as numbers, whose length is random
            "tickets" => {
                let mut row: Value = serde_json::from_slice(&self.value).unwrap();
                if let Some(code) = row.get_mut("code").filter(|code| !code.is_null()) {
                    code["digest"] = Value::Null;
                }
                row.to_string().len().to_string()
            }
            _ => self.value.len().to_string(),
        };
        format!("{} of {len} bytes until {}", self.table, self.expires_at.as_nanos())
    }
}

/// A recording store. Clones share everything.
#[derive(Clone, Default)]
pub(crate) struct ControlledStore {
    memory: Arc<Memory>,
    rein: Arc<Controls>,
}

#[derive(Default)]
struct Controls {
    done: Mutex<Vec<String>>,
    written: Mutex<Vec<Written>>,
    /// The number of operations before the failure.
    fault: Mutex<Option<(usize, Fault)>>,
    has_failed: AtomicBool,
    yields: AtomicBool,
}

impl ControlledStore {
    /// Makes an operation fail after `at` successful ones.
    pub(crate) fn fail(&self, at: usize, fault: Fault) {
        *self.rein.fault.lock().unwrap() = Some((at, fault));
    }

    /// Ends the failure. Returns whether any operation has failed.
    pub(crate) fn heal(&self) -> bool {
        *self.rein.fault.lock().unwrap() = None;
        self.rein.has_failed.swap(false, SeqCst)
    }

    /// From now on, lets other calls go first before each operation.
    pub(crate) fn yields(&self) {
        self.rein.yields.store(true, SeqCst);
    }

    /// Returns the operations since the last call, such as `get logins`.
    pub(crate) fn done(&self) -> Vec<String> {
        std::mem::take(&mut *self.rein.done.lock().unwrap())
    }

    /// Returns the rows that were written since the last call.
    pub(crate) fn written(&self) -> Vec<Written> {
        std::mem::take(&mut *self.rein.written.lock().unwrap())
    }
}

impl Controls {
    /// Records an operation. Returns how it must fail, if it must.
    fn next(&self, what: &str, key: &Key) -> Option<Fault> {
        self.done.lock().unwrap().push(format!("{what} {}", key.table()));
        let mut fault = self.fault.lock().unwrap();
        let (left, kind) = (*fault)?;
        if left > 0 {
            *fault = Some((left - 1, kind));
            return None;
        }
        if kind != Fault::Down {
            *fault = None;
        }
        self.has_failed.store(true, SeqCst);
        Some(kind)
    }

    fn note(&self, key: &Key, record: &Record) {
        let (table, value) = (key.table().to_owned(), record.value().clone());
        self.written.lock().unwrap().push(Written { table, value, expires_at: record.expires_at() });
    }

    async fn others_first(&self) {
        let mut polled = !self.yields.load(SeqCst);
        poll_fn(|context| match std::mem::replace(&mut polled, true) {
            true => Poll::Ready(()),
            false => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await;
    }

    async fn run<T>(
        &self,
        what: &str,
        key: &Key,
        operation: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.others_first().await;
        let fault = self.next(what, key);
        if matches!(fault, Some(Fault::Before | Fault::Down)) {
            return Err(StoreErrorKind::Unavailable.into());
        }
        let done = operation.await;
        if fault.is_some() { Err(StoreErrorKind::Unavailable.into()) } else { done }
    }
}

impl Store for ControlledStore {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        let (own, key) = (self.clone(), key.clone());
        MaybeReady::Pending(async move { own.rein.run("get", &key, async { own.memory.get(&key).wait().await }).await })
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        self.rein.note(key, &record);
        self.rein.run("insert", key, self.memory.insert(key, record)).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        self.rein.note(key, &record);
        self.rein.run("swap", key, self.memory.swap(key, expected, record)).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.rein.run("take", key, self.memory.take(key)).await
    }

    /// Lets others go first and can fail before each operation, and records each.
    async fn run(&self, operations: Vec<Operation>) -> Result<Vec<OperationOutcome>, StoreError> {
        let mut outcomes = Vec::new();
        for operation in operations {
            let (what, key) = match &operation {
                Operation::Read(key) => ("get", key.clone()),
                Operation::Write(key, Expected::Absent, _) => ("insert", key.clone()),
                Operation::Write(key, _, _) => ("swap", key.clone()),
                _ => return Err(StoreErrorKind::NotOffered.into()),
            };
            if let Operation::Write(key, _, record) = &operation {
                self.rein.note(key, record);
            }
            outcomes.extend(self.rein.run(what, &key, self.memory.run(vec![operation])).await?);
            if let Some(OperationOutcome::Write(WriteOutcome::Lost(_))) = outcomes.last() {
                break;
            }
        }
        Ok(outcomes)
    }
}

pub(crate) type Running<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Polls calls in this order, and then in turn until all are done.
pub(crate) fn interleave<T>(calls: Vec<Running<T>>, order: &[usize]) -> Vec<T> {
    let count = calls.len();
    let mut calls: Vec<Option<Running<T>>> = calls.into_iter().map(Some).collect();
    let mut answers: Vec<Option<T>> = calls.iter().map(|_| None).collect();
    for at in order.iter().copied().filter(|at| *at < count).chain((0..count).cycle()) {
        if let Some(call) = &mut calls[at]
            && let Poll::Ready(answer) = call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            (calls[at], answers[at]) = (None, Some(answer));
        }
        if calls.iter().all(Option::is_none) {
            break;
        }
        // a thread does the hashing
        std::thread::yield_now();
    }
    answers.into_iter().map(Option::unwrap).collect()
}
