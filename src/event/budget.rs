//! How many events a second may be recorded one by one.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed},
};

use crate::util::clock::{Moment, UnixTime};

/// Lets through so many events for each second of the events' own time.
#[derive(Debug)]
pub(super) struct Budget {
    max: AtomicU32,
    /// The newest second, and in the low bits what it has spent.
    state: AtomicU64,
}

const SPENT_BITS: u32 = 24;
const SPENT: u64 = (1 << SPENT_BITS) - 1;

impl Budget {
    pub(super) const MOST: u32 = SPENT as u32;

    pub(super) fn new() -> Self {
        Self { max: AtomicU32::new(1_000), state: AtomicU64::new(0) }
    }

    pub(super) fn set(&self, max: u32) {
        self.max.store(max.clamp(1, Self::MOST), Relaxed);
    }

    /// Whether one more event of this time may be recorded by itself.
    pub(super) fn take(&self, at: UnixTime) -> bool {
        let (max, second) = (u64::from(self.max.load(Relaxed)), at.as_secs());
        let spend = |state: u64| {
            let (current, spent) = (state >> SPENT_BITS, state & SPENT);
            // what comes late counts now; far back means that the wall clock was set
            let anew = second > current || current - second > 60;
            match anew {
                true => Some(second << SPENT_BITS | 1),
                false => (spent < max).then_some(state + 1),
            }
        };
        self.state.fetch_update(Relaxed, Acquire, spend).is_ok()
    }
}

/// Lets readers ask for the newest counts so many times a second, so that
/// reading often can't fill the log with counts.
#[derive(Debug, Default)]
pub(super) struct Pace {
    began: Moment,
    drains: u32,
}

impl Pace {
    pub(super) const DRAINS_PER_SECOND: u32 = 20;

    pub(super) fn allows(&mut self, now: Moment) -> bool {
        if now.since(self.began).as_secs() >= 1 {
            *self = Self { began: now, drains: 0 };
        }
        self.drains += 1;
        self.drains <= Self::DRAINS_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_second_has_its_own_budget_and_the_past_has_none() {
        let budget = Budget::new();
        budget.set(2);
        let take = |second| budget.take(UnixTime::from_secs(second));
        assert_eq!([take(100), take(100), take(100)], [true, true, false]);
        assert_eq!([take(101), take(100), take(101)], [true, true, false]);
        assert!(take(1), "a wall clock that was set back does not silence the log");
    }

    #[test]
    fn readers_get_the_newest_counts_twenty_times_a_second() {
        let mut pace = Pace::default();
        let now = Moment::from_nanos(5_000_000_000);
        assert_eq!((0..100).filter(|_| pace.allows(now)).count(), 20);
        assert!(!pace.allows(now + Duration::from_millis(999)));
        assert!(pace.allows(now + Duration::from_secs(1)));
    }
}
