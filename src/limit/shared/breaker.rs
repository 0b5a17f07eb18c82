//! [`Breaker`]: stops asking a server that does not answer. [`Fallback`]: what decides meanwhile.

use std::{
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    time::Duration,
};

use crate::util::clock::Moment;

/// After this many failures in a row, the server is not asked any more. Calls that were under way together fail as one.
const FAILURES: u32 = 3;
/// Then one call in this time finds out whether it answers again.
const PAUSE: Duration = Duration::from_secs(1);

/// The rule for requests while the server does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fallback {
    /// Each process limits on its own, in memory, with the same quotas, and starts from what it knows. All processes
    /// together may admit up to the limit times the number of processes. See
    /// [`SharedLimiter`](crate::limit::SharedLimiter#when-the-server-does-not-answer).
    #[default]
    Local,
    /// Admits all requests, without headers.
    Open,
    /// Refuses all requests with a 503.
    Closed,
}

/// Closed as long as calls succeed.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: AtomicU32,
    /// When the last failure was counted, in nanoseconds.
    counted_at: AtomicU64,
    /// When the next call may try, in nanoseconds. Zero if the breaker is closed.
    tries_at: AtomicU64,
}

impl Breaker {
    /// Returns whether a call may ask the server.
    pub(super) fn allows(&self, now: Moment) -> bool {
        let tries_at = self.tries_at.load(Relaxed);
        tries_at == 0 || (tries_at <= now.as_nanos() && self.pause(tries_at, now))
    }

    /// Returns whether [`allows`](Self::allows) would let a call ask, without counting one.
    pub(super) fn may_allow(&self, now: Moment) -> bool {
        self.tries_at.load(Relaxed) <= now.as_nanos()
    }

    /// Notes an answer. Returns whether it closes the breaker.
    pub(super) fn succeeded(&self) -> bool {
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
        }
        self.tries_at.load(Relaxed) != 0 && self.tries_at.swap(0, SeqCst) != 0
    }

    /// Notes the failure of a call. Returns whether it opens the breaker.
    pub(super) fn failed(&self, began: Moment, now: Moment) -> bool {
        let counted_at = self.counted_at.load(SeqCst);
        let is_first = counted_at == 0 || began.as_nanos() >= counted_at;
        if !is_first || self.counted_at.compare_exchange(counted_at, now.as_nanos(), SeqCst, SeqCst).is_err() {
            return false;
        }
        let failures = self.failures.fetch_add(1, SeqCst).saturating_add(1);
        failures >= FAILURES && self.pause(0, now)
    }

    /// Postpones the next try. Returns `false` if another call has done so.
    fn pause(&self, tries_at: u64, now: Moment) -> bool {
        let next = (now + PAUSE).as_nanos();
        self.tries_at.compare_exchange(tries_at, next, SeqCst, Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_three_failures_and_one_call_a_second_tries() {
        let (breaker, began) = (Breaker::default(), Moment::from_nanos(5));
        let failed = |at| breaker.failed(at, at);
        for _ in 0..2 {
            assert!(breaker.may_allow(began) && breaker.allows(began) && !failed(began));
        }
        // an answer between failures
        assert!(!breaker.succeeded());
        for _ in 0..2 {
            assert!(!failed(began));
        }
        assert!(failed(began), "the third in a row");
        assert!(!breaker.may_allow(began) && !breaker.allows(began));
        let later = began + PAUSE;
        assert!(breaker.may_allow(later) && breaker.may_allow(later));
        assert_eq!([later; 3].map(|now| breaker.allows(now)), [true, false, false]);
        assert!(!failed(later), "it is open already");
        assert!(breaker.allows(later + PAUSE));
        assert!(breaker.succeeded());
        assert!(breaker.allows(later) && !breaker.succeeded());
    }

    #[test]
    fn b35_calls_that_fail_together_count_as_one() {
        let (breaker, tick) = (Breaker::default(), Duration::from_millis(1));
        let at = |ticks: u32| Moment::from_nanos(5) + tick * ticks;
        for _ in 0..100 {
            assert!(!breaker.failed(at(0), at(20)));
        }
        // those that began before the failure was noted
        assert!(!breaker.failed(at(19), at(39)));
        assert!(!breaker.failed(at(20), at(40)));
        assert!(breaker.failed(at(40), at(60)));
    }
}
