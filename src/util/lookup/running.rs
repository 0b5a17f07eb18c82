use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, MutexGuard},
};

use tokio::sync::watch;

use crate::util::lock::lock;

type Results<K, T> = HashMap<K, watch::Receiver<Option<T>>>;

/// The lookups that are running, at most one for each key. No lock is held while one runs.
pub(crate) struct Running<K: Eq + Hash, T>(Mutex<Results<K, T>>);

/// The part of a request in the lookup of a key.
pub(crate) enum Turn<'a, K: Eq + Hash, T> {
    /// It does the lookup.
    Leads(Lookup<'a, K, T>),
    /// It waits for another request that does the lookup.
    Follows(Following<T>),
    /// Too many lookups are running.
    Full,
}

impl<K: Clone + Eq + Hash, T: Clone> Running<K, T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.results().contains_key(key)
    }

    /// Begins a lookup if fewer than `most` are running, or finds the one that is running.
    pub(crate) fn join_lookup(&self, key: &K, most: usize) -> Turn<'_, K, T> {
        let mut results = self.results();
        if let Some(result) = results.get(key) {
            return Turn::Follows(Following(result.clone()));
        }
        if results.len() >= most {
            return Turn::Full;
        }
        let (result, receiver) = watch::channel(None);
        results.insert(key.clone(), receiver);
        Turn::Leads(Lookup { running: self, key: key.clone(), result })
    }
}

impl<K: Eq + Hash, T> Running<K, T> {
    fn results(&self) -> MutexGuard<'_, Results<K, T>> {
        lock(&self.0)
    }
}

/// A running lookup. It ends when this is dropped, which also happens if the request that does it is dropped.
pub(crate) struct Lookup<'a, K: Eq + Hash, T> {
    running: &'a Running<K, T>,
    key: K,
    result: watch::Sender<Option<T>>,
}

impl<K: Eq + Hash, T> Lookup<'_, K, T> {
    /// Sends the result to all who wait.
    pub(crate) fn publish_result(&self, result: T) {
        // they may be gone
        _ = self.result.send(Some(result));
    }
}

impl<K: Eq + Hash, T> Drop for Lookup<'_, K, T> {
    fn drop(&mut self) {
        self.running.results().remove(&self.key);
    }
}

pub(crate) struct Following<T>(watch::Receiver<Option<T>>);

impl<T: Clone> Following<T> {
    /// Waits for the result. Returns `None` if the request that did the lookup was dropped.
    pub(crate) async fn result(mut self) -> Option<T> {
        self.0.wait_for(Option::is_some).await.ok()?.clone()
    }
}
