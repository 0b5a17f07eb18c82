use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::util::clock::{Clock, Moment, UnixTime, saturating_nanos};

/// A clock that only moves when a test moves it.
///
/// Clones share the same time.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{clock::Clock, testing::ManualClock};
///
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_millis(250));
/// assert_eq!(clock.now().since(before), Duration::from_millis(250));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Hands>);

#[derive(Debug)]
struct Hands {
    moment: AtomicU64,
    /// The wall-clock time at moment zero.
    wall: AtomicU64,
}

impl ManualClock {
    /// Creates a clock at moment zero, with the wall clock at 2001-09-09T01:46:40Z (1,000,000,000
    /// seconds).
    pub fn new() -> Self {
        let wall = UnixTime::from_secs(1_000_000_000).as_nanos();
        Self(Arc::new(Hands { moment: AtomicU64::new(0), wall: AtomicU64::new(wall) }))
    }

    /// Advances both the monotonic and the wall clock.
    pub fn advance(&self, by: Duration) {
        self.0.moment.fetch_add(saturating_nanos(by), SeqCst);
    }

    /// Sets the monotonic clock, even backwards. Real monotonic clocks never go backwards, but code
    /// should tolerate it.
    pub fn set(&self, moment: Moment) {
        self.0.moment.store(moment.as_nanos(), SeqCst);
    }

    /// Sets the wall clock. The monotonic clock is not changed.
    pub fn set_wall(&self, now: UnixTime) {
        let moment = self.0.moment.load(SeqCst);
        self.0.wall.store(now.as_nanos().saturating_sub(moment), SeqCst);
    }
}

crate::util::builder::default_by_new!(ManualClock);

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.moment.load(SeqCst))
    }

    fn unix(&self, moment: Moment) -> UnixTime {
        UnixTime::from_nanos(self.0.wall.load(SeqCst).saturating_add(moment.as_nanos()))
    }
}
