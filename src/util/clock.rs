//! Time: a [`Clock`] that every decision asks, so that tests need not sleep.
//!
//! Two kinds of time are kept apart by type. A [`Moment`] only moves forward
//! and is what decisions of limits compare. A [`UnixTime`] is the wall clock; it
//! is read for headers, logs and cookies, and says how long tokens and what is
//! stored live: those end early, or late, where it jumps.

use std::{
    fmt,
    ops::{Add, Sub},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Where time comes from.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Now, on a clock that only moves forward.
    fn now(&self) -> Moment;

    /// What the wall clock shows at `moment`, which lies near now.
    fn unix(&self, moment: Moment) -> UnixTime;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Moment {
        (**self).now()
    }

    fn unix(&self, moment: Moment) -> UnixTime {
        (**self).unix(moment)
    }
}

/// A point on a clock that only moves forward: nanoseconds since the clock
/// began. It has a meaning only beside moments of the same clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The moment this many nanoseconds after the clock began.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock began.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(duration)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(saturating_nanos(duration)))
    }
}

/// A point in wall-clock time: nanoseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(u64);

impl UnixTime {
    /// The time this many nanoseconds after the Unix epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The time this many seconds after the Unix epoch.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(NANOS_PER_SECOND))
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Whole seconds since the Unix epoch.
    pub const fn as_secs(self) -> u64 {
        self.0 / NANOS_PER_SECOND
    }

    /// Seconds since the Unix epoch, rounded up: the first whole second that
    /// is not before this time.
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(NANOS_PER_SECOND)
    }
}

impl Add<Duration> for UnixTime {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(duration)))
    }
}

/// What lies before 1970 counts as 1970, and what lies 584 years after it and more as 584 years after it.
impl From<SystemTime> for UnixTime {
    fn from(time: SystemTime) -> Self {
        Self(time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, saturating_nanos))
    }
}

impl From<UnixTime> for SystemTime {
    fn from(time: UnixTime) -> Self {
        Self::UNIX_EPOCH + Duration::from_nanos(time.0)
    }
}

/// A duration in nanoseconds; 584 years and more count as 584 years.
pub(crate) fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A duration in whole seconds, rounded up.
pub(crate) fn ceil_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

/// The system clock.
///
/// It reads the processor's time stamp counter, if the processor has an invariant one, and
/// the monotonic clock of the operating system otherwise. The counter is calibrated when
/// the first clock of the process is created, which takes up to 200 ms.
///
/// Wall-clock time is derived from the same reading and anchored anew every 250 ms, so a
/// change of the wall clock takes at most that long to show.
#[derive(Debug)]
pub struct SystemClock {
    counter: quanta::Clock,
    /// The counter when this clock was created.
    began: u64,
    /// Wall-clock time at that moment, by the latest anchor.
    unix_at_start: AtomicU64,
    anchor_again_at: AtomicU64,
}

const ANCHOR_LASTS: u64 = NANOS_PER_SECOND / 4;

impl SystemClock {
    /// Creates a clock that begins now.
    pub fn new() -> Self {
        let counter = quanta::Clock::new();
        let began = counter.raw();
        Self {
            counter,
            began,
            unix_at_start: AtomicU64::new(wall_nanos()),
            anchor_again_at: AtomicU64::new(ANCHOR_LASTS),
        }
    }

    #[cold]
    fn anchor(&self) {
        // `moment` may lie in the future, which is no reason to read the wall clock
        let now = self.now().0;
        if now >= self.anchor_again_at.load(Relaxed) {
            self.anchor_again_at.store(now.saturating_add(ANCHOR_LASTS), Relaxed);
            self.unix_at_start.store(wall_nanos().saturating_sub(now), Relaxed);
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Moment {
        Moment(self.counter.delta_as_nanos(self.began, self.counter.raw()))
    }

    #[inline]
    fn unix(&self, moment: Moment) -> UnixTime {
        if moment.0 >= self.anchor_again_at.load(Relaxed) {
            self.anchor();
        }
        UnixTime(self.unix_at_start.load(Relaxed).saturating_add(moment.0))
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn wall_nanos() -> u64 {
    UnixTime::from(SystemTime::now()).as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_moves_forward_and_agrees_with_the_wall() {
        let clock = SystemClock::new();
        let first = clock.now();
        let wall = clock.unix(first);
        assert!(clock.now() >= first);
        assert!(wall.as_nanos().abs_diff(wall_nanos()) < NANOS_PER_SECOND);
    }

    #[test]
    fn the_time_of_the_standard_library_comes_back_the_same() {
        for time in [UnixTime(0), UnixTime(1), UnixTime(1_700_000_000_123_456_700), UnixTime(u64::MAX)] {
            // Windows counts in steps of 100 ns
            assert!(UnixTime::from(SystemTime::from(time)).as_nanos().abs_diff(time.as_nanos()) < 100);
        }
        assert_eq!(SystemTime::from(UnixTime::from_secs(7)), SystemTime::UNIX_EPOCH + Duration::from_secs(7));
        assert_eq!(UnixTime::from(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), UnixTime(0));
    }

    #[test]
    fn a_clock_that_is_shared_or_chosen_at_run_time_is_a_clock() {
        fn is_clock(_: impl Clock) {}
        let chosen: Arc<dyn Clock> = Arc::new(SystemClock::new());
        is_clock(Arc::clone(&chosen));
        is_clock(chosen);
    }

    #[test]
    fn arithmetic_stops_at_the_ends_of_time() {
        assert_eq!(Moment(5) - Duration::from_secs(1), Moment(0));
        assert_eq!(Moment(u64::MAX) + Duration::from_secs(1), Moment(u64::MAX));
        assert_eq!(Moment(1).since(Moment(9)), Duration::ZERO);
        assert_eq!(UnixTime(u64::MAX) + Duration::MAX, UnixTime(u64::MAX));
    }

    #[test]
    fn seconds_round_up_only_when_something_is_left_over() {
        assert_eq!(UnixTime::from_secs(7).as_secs_ceil(), 7);
        assert_eq!(UnixTime(7 * NANOS_PER_SECOND + 1).as_secs_ceil(), 8);
        assert_eq!(UnixTime(7 * NANOS_PER_SECOND + 1).as_secs(), 7);
    }
}
