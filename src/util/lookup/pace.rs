use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crate::util::clock::Moment;

/// Lets something happen once in a while, no matter how many callers ask.
#[derive(Debug, Default)]
pub(crate) struct Pace(AtomicU64);

impl Pace {
    /// Returns whether it is time, which is then not so again for this long.
    #[inline]
    pub(crate) fn is_due(&self, now: Moment, every: Duration) -> bool {
        let due = self.0.load(Relaxed);
        now.as_nanos() >= due && self.claim_turn(due, now + every)
    }

    #[cold]
    fn claim_turn(&self, due: u64, next: Moment) -> bool {
        self.0.compare_exchange(due, next.as_nanos(), Relaxed, Relaxed).is_ok()
    }
}
