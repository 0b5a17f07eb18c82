//! [`OpenCalls`]: the calls that a node has open on the server, and since when the server surely counts them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Duration,
};

use tokio::time::Instant;

use super::lease::ClockReading;
use crate::{
    tenant::LimitKey,
    util::{clock::Clock, lock::lock},
};

/// How long the server counts a slot that is not renewed.
pub(super) const SLOT: Duration = Duration::from_secs(10);
/// A node relies on a renewal for this long. With the time that the reply of the next call may take, it is shorter than a slot,
/// even if a clock is slower than the server's by a hundredth.
const TRUSTED: Duration = Duration::from_secs(8);
const LONGEST_REPLY: Duration = Duration::from_secs(1);
/// The most ends of a key that are sent again. As many calls can be open.
const MOST_ENDS: usize = 1024;
pub(super) type CallId = [u8; 8];

impl ClockReading {
    /// Reads the clocks. A machine notices at once that it was suspended.
    pub(super) fn now(clock: &dyn Clock) -> Self {
        let (steady, wall) = clock.read_fresh();
        Self { steady, wall }
    }

    /// Returns the earlier time of each clock, so that no time since one of the two is longer than since this.
    fn earliest(self, other: Self) -> Self {
        Self { steady: self.steady.min(other.steady), wall: self.wall.min(other.wall) }
    }

    /// Returns whether the reply to a call that was sent at this time comes so late that the slot may have ended meanwhile.
    pub(super) fn is_late(self, clock: &dyn Clock) -> bool {
        Self::now(clock).since(self) > LONGEST_REPLY
    }
}

/// The terms of a call. The server gets them again if it has lost the call.
#[derive(Clone, Copy)]
pub(super) struct CallTerms {
    pub(super) is_anonymous: bool,
    pub(super) estimate: u32,
    pub(super) at_most: u32,
}

/// The end of a call, until the server has confirmed it.
#[derive(Clone, Debug)]
pub(super) struct CallToEnd {
    pub(super) id: CallId,
    /// The argument of `commit`.
    pub(super) used: String,
    /// Until when the end can have an effect.
    until: Instant,
}

impl CallToEnd {
    /// Ends a call now. Its estimate expires at this time, if it has one.
    pub(super) fn new(id: CallId, used: String, expires: Instant) -> Self {
        Self { id, used, until: expires.max(Instant::now() + SLOT) }
    }
}

/// Held while the slots of a key are renewed, with the time of the last failure.
pub(super) type RenewalTurn = Arc<tokio::sync::Mutex<Option<Instant>>>;

/// The calls that this node has open on the server.
#[derive(Default)]
pub(super) struct OpenCalls {
    keys: Mutex<HashMap<LimitKey, OfKey, foldhash::fast::RandomState>>,
    pub(super) is_renewing: AtomicBool,
}

#[derive(Default)]
struct OfKey {
    /// Each was counted at its time or later.
    open: HashMap<CallId, (CallTerms, ClockReading), foldhash::fast::RandomState>,
    /// Each was counted at this time or later, too. `None` if there were no calls.
    counted_since: Option<ClockReading>,
    ended: Vec<CallToEnd>,
    turn: RenewalTurn,
}

impl OpenCalls {
    /// Returns an id that no other call has, not even one of a copy of this process. Returns `None` without randomness.
    pub(super) fn random_id() -> Option<CallId> {
        getrandom::u64().ok().map(u64::to_be_bytes)
    }

    pub(super) fn insert(&self, key: &LimitKey, id: CallId, terms: CallTerms, sent_at: ClockReading) {
        let mut keys = lock(&self.keys);
        let of_key = keys.entry(key.clone()).or_default();
        of_key.counted_since = Some(of_key.counted_since.map_or(sent_at, |since| since.earliest(sent_at)));
        of_key.open.insert(id, (terms, sent_at));
    }

    pub(super) fn remove(&self, key: &LimitKey, id: CallId) {
        self.update(key, |of_key| {
            of_key.open.remove(&id);
            of_key.counted_since.take_if(|_| of_key.open.is_empty());
        });
    }

    /// Keeps an end that the server has not confirmed, unless there are too many.
    pub(super) fn keep_end(&self, key: &LimitKey, call: CallToEnd) {
        let mut keys = lock(&self.keys);
        let ended = &mut keys.entry(key.clone()).or_default().ended;
        if ended.len() < MOST_ENDS {
            ended.push(call);
        }
    }

    /// Returns the ends of a key that the server has not confirmed. Forgets those that no longer have an effect.
    pub(super) fn ends_of_key(&self, key: &LimitKey) -> Vec<CallToEnd> {
        let now = Instant::now();
        self.update(key, |of_key| {
            of_key.ended.retain(|call| call.until > now);
            of_key.ended.clone()
        })
        .unwrap_or_default()
    }

    pub(super) fn forget_end(&self, key: &LimitKey, id: CallId) {
        self.update(key, |of_key| of_key.ended.retain(|call| call.id != id));
    }

    /// Keeps an end for the length of a slot at most, because the server does not know its call yet.
    pub(super) fn await_late_request(&self, key: &LimitKey, id: CallId) {
        let latest = Instant::now() + SLOT;
        self.update(key, |of_key| {
            of_key.ended.iter_mut().filter(|call| call.id == id).for_each(|call| call.until = call.until.min(latest));
            // others are sent first the next time
            of_key.ended.sort_by_key(|call| call.id == id);
        });
    }

    /// Returns the turn of renewals of a key, or `None` if it has no calls.
    pub(super) fn turn_of_key(&self, key: &LimitKey) -> Option<RenewalTurn> {
        lock(&self.keys).get(key).map(|of_key| Arc::clone(&of_key.turn))
    }

    /// Changes a key, and removes it if it has no calls any more.
    fn update<T>(&self, key: &LimitKey, change: impl FnOnce(&mut OfKey) -> T) -> Option<T> {
        let mut keys = lock(&self.keys);
        let of_key = keys.get_mut(key)?;
        let changed = change(of_key);
        if of_key.open.is_empty() && of_key.ended.is_empty() {
            keys.remove(key);
        }
        Some(changed)
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.keys).is_empty()
    }

    /// Returns whether the server may not count all calls of this key any more.
    pub(super) fn may_be_uncounted(&self, key: &LimitKey, clock: &dyn Clock) -> bool {
        let now = ClockReading::now(clock);
        let keys = lock(&self.keys);
        keys.get(key).and_then(|of_key| of_key.counted_since).is_some_and(|since| now.since(since) > TRUSTED)
    }

    /// Returns the keys under which calls are open, or whose end the server has not confirmed.
    pub(super) fn keys(&self) -> Vec<LimitKey> {
        lock(&self.keys).keys().cloned().collect()
    }

    /// Returns the calls of a key.
    pub(super) fn calls_of_key(&self, key: &LimitKey) -> Vec<(CallId, CallTerms)> {
        lock(&self.keys)
            .get(key)
            .map_or_else(Vec::new, |of_key| of_key.open.iter().map(|(id, (terms, _))| (*id, *terms)).collect())
    }

    /// Notes that the server counted these calls of a key after this time. Others may have been opened meanwhile.
    pub(super) fn note_renewal(&self, key: &LimitKey, renewed: impl Iterator<Item = CallId>, sent_at: ClockReading) {
        if let Some(of_key) = lock(&self.keys).get_mut(key) {
            for id in renewed {
                if let Some((_, counted_at)) = of_key.open.get_mut(&id) {
                    *counted_at = sent_at;
                }
            }
            let counted_at = of_key.open.values().map(|(_, counted_at)| *counted_at);
            of_key.counted_since = counted_at.reduce(ClockReading::earliest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ManualClock;

    #[test]
    fn an_id_does_not_follow_from_another_one() {
        let [one, next] = [(); 2].map(|()| u64::from_be_bytes(OpenCalls::random_id().unwrap()));
        assert!(one.abs_diff(next) > 1);
    }

    #[tokio::test(start_paused = true)]
    async fn ends_are_kept_while_they_have_an_effect_and_are_at_most_as_many_as_calls() {
        let (calls, key) = (OpenCalls::default(), LimitKey::parse("acme").unwrap());
        let lifetimes = [0, 60].map(Duration::from_secs);
        for (number, lifetime) in (0..2_000_u64).zip(lifetimes.into_iter().cycle()) {
            calls.keep_end(&key, CallToEnd::new(number.to_be_bytes(), String::new(), Instant::now() + lifetime));
        }
        for (seconds, kept) in [(9, MOST_ENDS), (1, MOST_ENDS / 2), (49, MOST_ENDS / 2), (1, 0)] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            assert_eq!(calls.ends_of_key(&key).len(), kept);
            assert_eq!(calls.is_empty(), kept == 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_waits_for_a_late_request_for_the_length_of_a_slot() {
        let (calls, key) = (OpenCalls::default(), LimitKey::parse("acme").unwrap());
        calls.keep_end(&key, CallToEnd::new([1; 8], String::new(), Instant::now() + Duration::from_secs(60)));
        tokio::time::advance(SLOT).await;
        for _ in 0..10 {
            assert_eq!(calls.ends_of_key(&key).len(), 1);
            calls.await_late_request(&key, [1; 8]);
            tokio::time::advance(SLOT / 10).await;
        }
        assert_eq!(calls.ends_of_key(&key).len(), 0);
    }

    #[test]
    fn a_renewal_counts_no_call_that_was_opened_meanwhile() {
        let (clock, calls, key) = (ManualClock::new(), OpenCalls::default(), LimitKey::parse("acme").unwrap());
        let [first, second] = [[1; 8], [2; 8]];
        let terms = CallTerms { is_anonymous: false, estimate: 0, at_most: 0 };
        let began = ClockReading::now(&clock);
        calls.insert(&key, first, terms, began);
        // the node is paused with the reply to the second call
        clock.advance(TRUSTED + LONGEST_REPLY);
        assert!(calls.may_be_uncounted(&key, &clock));
        calls.note_renewal(&key, [first].into_iter(), ClockReading::now(&clock));
        assert!(!calls.may_be_uncounted(&key, &clock));
        calls.insert(&key, second, terms, began);
        assert!(calls.may_be_uncounted(&key, &clock));
        calls.note_renewal(&key, [first].into_iter(), ClockReading::now(&clock));
        assert!(calls.may_be_uncounted(&key, &clock));
        calls.note_renewal(&key, [first, second].into_iter(), ClockReading::now(&clock));
        assert!(!calls.may_be_uncounted(&key, &clock));
    }
}
