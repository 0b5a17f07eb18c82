use std::{
    hash::Hash,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use dashmap::DashMap;
use foldhash::fast::RandomState;

use super::pace::Pace;
use crate::util::clock::Moment;

/// How long to wait before old answers are looked for again.
const BETWEEN_PURGES: Duration = Duration::from_secs(1);

/// The last answers about keys that callers can make up.
///
/// At most half of them say that a key is unknown or that its lookup failed, and they make room for known keys. So a flood of
/// made-up keys can't displace known ones or keep new ones out.
pub(crate) struct Answers<K: Eq + Hash, V> {
    answers: DashMap<K, Answer<V>, RandomState>,
    /// How many answers are not `Known`.
    unknown: AtomicUsize,
    most: usize,
    purge: Pace,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer<V> {
    /// From when on it is looked up again.
    pub(crate) renew_at: Moment,
    /// Until when it may be used meanwhile, if the key is known.
    pub(crate) until: Moment,
    pub(crate) found: Found<V>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<V> {
    Known(V),
    Nothing,
    Failure,
}

impl<V> Found<V> {
    pub(super) fn is_known(&self) -> bool {
        matches!(self, Self::Known(_))
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Answers<K, V> {
    pub(crate) fn new(most: usize) -> Self {
        Self { answers: DashMap::default(), unknown: AtomicUsize::new(0), most, purge: Pace::default() }
    }

    /// Returns the last answer, even if it may not be used any more.
    pub(crate) fn last_answer(&self, key: &K) -> Option<Answer<V>> {
        self.answers.get(key).map(|answer| answer.clone())
    }

    /// Keeps an answer, if there is room. Returns whether there was.
    ///
    /// If answers have to be removed first, `purge` is called with a function that removes them, which it must call with what
    /// else is to be done for each.
    pub(crate) fn keep_answer(
        &self,
        key: &K,
        answer: Answer<V>,
        now: Moment,
        purge: impl FnOnce(&dyn Fn(&dyn Fn(&K))),
    ) -> bool {
        let is_known = answer.found.is_known();
        // lookups that end at once may all find room: there are few
        if !self.answers.contains_key(key) && !self.has_room(is_known) {
            if self.purge.is_due(now, BETWEEN_PURGES) {
                purge(&|remove| self.remove_old_answers(now, is_known, remove));
            }
            if !(self.has_room(is_known) || is_known && self.forget_an_unknown_key()) {
                return false;
            }
        }
        let before = self.answers.insert(key.clone(), answer);
        self.unknown.fetch_add(usize::from(!is_known), Relaxed);
        self.unknown.fetch_sub(before.map_or(0, |answer| usize::from(!answer.found.is_known())), Relaxed);
        true
    }

    fn has_room(&self, is_known: bool) -> bool {
        self.answers.len() < self.most && (is_known || self.unknown.load(Relaxed) < self.most.div_ceil(2))
    }

    /// Forgets one unknown key, so that made-up ones can't keep a known one out.
    fn forget_an_unknown_key(&self) -> bool {
        if self.unknown.load(Relaxed) == 0 {
            return false;
        }
        let is_nothing = |answer: &Answer<V>| matches!(answer.found, Found::Nothing);
        let key = self.answers.iter().find(|answer| is_nothing(answer)).map(|answer| answer.key().clone());
        let is_gone = key.is_some_and(|key| self.answers.remove_if(&key, |_, answer| is_nothing(answer)).is_some());
        if is_gone {
            self.unknown.fetch_sub(1, Relaxed);
        }
        is_gone
    }

    /// Removes answers that must be looked up again, but known keys only if they may not be used meanwhile, or always may. Known keys
    /// go only if another known key needs the room, so that made-up ones can't displace them.
    fn remove_old_answers(&self, now: Moment, for_known: bool, remove: &dyn Fn(&K)) {
        let removes_known = for_known && self.answers.len() >= self.most;
        self.answers.retain(|key, answer| {
            let is_known = answer.found.is_known();
            let is_limited = is_known && answer.until < Moment::from_nanos(u64::MAX);
            let ends = if is_limited { answer.until } else { answer.renew_at };
            if now < ends || (is_known && !removes_known) {
                return true;
            }
            if !is_known {
                self.unknown.fetch_sub(1, Relaxed);
            }
            // while the answer is locked, so that what a lookup does that ends now comes afterwards; a failure may follow a
            // known key
            if !matches!(answer.found, Found::Nothing) {
                remove(key);
            }
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_key_that_may_still_be_used_makes_no_room() {
        let answers = Answers::new(1);
        let at = Moment::from_nanos;
        let known = |until| Answer { renew_at: at(10), until: at(until), found: Found::Known(()) };
        let keep = |key: &str, until, now| {
            answers.keep_answer(&key.to_owned(), known(until), at(now), |remove| remove(&|_| ()))
        };
        assert!(keep("first", 5_000_000_000, 0));
        assert!(!keep("second", u64::MAX, 3_000_000_000));
        assert!(keep("second", u64::MAX, 5_000_000_000));
        // one that may always be used makes room as soon as it must be looked up again
        assert!(keep("third", u64::MAX, 7_000_000_000));
    }
}
