use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex},
};

use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::util::lock::lock;

type Results<K, T> = HashMap<K, watch::Receiver<Option<T>>>;

/// The lookups that are running, at most one for each key. No lock is held while one runs.
pub(crate) struct Running<K: Eq + Hash, T>(Arc<Mutex<Results<K, T>>>);

/// The part of a request in the lookup of a key.
pub(crate) enum Turn<K: Eq + Hash, T> {
    /// It does the lookup.
    Leads(Lookup<K, T>),
    /// It waits for another request that does the lookup. There is no result if that request is dropped.
    Follows(watch::Receiver<Option<T>>),
    /// Too many lookups are running.
    Full,
}

impl<K: Clone + Eq + Hash, T: Clone> Running<K, T> {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        lock(&self.0).contains_key(key)
    }

    /// Begins a lookup, which keeps its place, if fewer than `most` are running. Or finds the one that is running.
    pub(crate) fn join_lookup(&self, key: &K, most: usize, place: &mut Option<OwnedSemaphorePermit>) -> Turn<K, T> {
        let mut results = lock(&self.0);
        if let Some(result) = results.get(key) {
            return Turn::Follows(result.clone());
        }
        if results.len() >= most {
            return Turn::Full;
        }
        let (result, receiver) = watch::channel(None);
        results.insert(key.clone(), receiver);
        Turn::Leads(Lookup { running: Arc::clone(&self.0), key: key.clone(), result, _place: place.take() })
    }
}

/// A running lookup. It ends when this is dropped, which also happens if the request or the task that does it is dropped.
pub(crate) struct Lookup<K: Eq + Hash, T> {
    running: Arc<Mutex<Results<K, T>>>,
    key: K,
    result: watch::Sender<Option<T>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl<K: Eq + Hash, T> Lookup<K, T> {
    /// Sends the result to all who wait.
    pub(crate) fn publish_result(&self, result: T) {
        // they may be gone
        _ = self.result.send(Some(result));
    }
}

impl<K: Eq + Hash, T> Drop for Lookup<K, T> {
    fn drop(&mut self) {
        lock(&self.running).remove(&self.key);
    }
}
