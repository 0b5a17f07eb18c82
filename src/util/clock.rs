//! Time: every decision reads a [`Clock`], so that tests need not sleep.
//!
//! Two kinds of time have types of their own. A [`Moment`] only moves forward, and limits
//! compare moments. A [`UnixTime`] is wall-clock time. Headers, logs and cookies show it, and
//! the lifetime of credentials and stored records depends on it, so these end early or late if the
//! wall clock jumps.

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

/// A source of time.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the current moment, on a clock that only moves forward.
    fn now(&self) -> Moment;

    /// Returns the wall-clock time at `moment`, which must be close to now.
    fn unix(&self, moment: Moment) -> UnixTime;

    /// Reads both clocks at once.
    fn read(&self) -> (Moment, UnixTime) {
        let now = self.now();
        (now, self.unix(now))
    }

    /// Reads both clocks at once, with a wall clock that is not cached, so that a machine notices at once that it was
    /// suspended. Defaults to [`read`](Self::read).
    fn read_fresh(&self) -> (Moment, UnixTime) {
        self.read()
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Moment {
        (**self).now()
    }

    fn unix(&self, moment: Moment) -> UnixTime {
        (**self).unix(moment)
    }

    fn read(&self) -> (Moment, UnixTime) {
        (**self).read()
    }

    fn read_fresh(&self) -> (Moment, UnixTime) {
        (**self).read_fresh()
    }
}

/// A point on a clock that only moves forward, in nanoseconds since the clock began. Only
/// moments of the same clock can be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// Creates a moment from the nanoseconds since the clock began.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the clock began.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`, or zero if that is later.
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

/// A point in wall-clock time, in nanoseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(u64);

impl UnixTime {
    /// The latest time.
    pub(crate) const FOREVER: Self = Self(u64::MAX);

    /// Creates a time from the nanoseconds since the Unix epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Creates a time from the seconds since the Unix epoch.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(NANOS_PER_SECOND))
    }

    /// Returns the nanoseconds since the Unix epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the whole milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Returns the whole seconds since the Unix epoch.
    pub const fn as_secs(self) -> u64 {
        self.0 / NANOS_PER_SECOND
    }

    /// Returns the seconds since the Unix epoch, rounded up.
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

/// Times before 1970 become 1970, and times 584 years or more after it become 584 years after it.
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

/// Returns a duration in nanoseconds, and at most 584 years.
pub(crate) fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a duration in whole seconds, rounded up.
pub(crate) fn ceil_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

/// The system clock.
///
/// It reads the processor's time stamp counter, if the processor has an invariant one, and
/// otherwise the monotonic clock of the operating system. The counter is calibrated when
/// the first clock of the process is created, which takes up to 200 ms.
///
/// Wall-clock time is derived from the same reading and synchronized every 250 ms, so a
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
        Self::from_counter(quanta::Clock::new())
    }

    fn from_counter(counter: quanta::Clock) -> Self {
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

crate::util::builder::default_by_new!(SystemClock);

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

    fn read_fresh(&self) -> (Moment, UnixTime) {
        (self.now(), UnixTime(wall_nanos()))
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
    fn a_future_moment_does_not_read_the_wall_clock_again() {
        let clock = SystemClock::new();
        let (now, unix_now) = clock.read();
        let anchor = clock.anchor_again_at.load(Relaxed);
        let hour = Duration::from_secs(3_600);
        assert_eq!(clock.unix(now + hour), unix_now + hour);
        assert_eq!(clock.anchor_again_at.load(Relaxed), anchor);
    }

    #[test]
    fn the_wall_clock_is_read_again_after_250_ms() {
        let (counter, mock) = quanta::Clock::mock();
        mock.increment(7_000_u64);
        let clock = SystemClock::from_counter(counter);
        assert_eq!(clock.now(), Moment(0), "a clock begins when it is created");
        let minute = 60 * NANOS_PER_SECOND;
        // the wall clock jumps forward
        clock.unix_at_start.fetch_sub(60 * minute, Relaxed);
        mock.increment(ANCHOR_LASTS - 1);
        assert!(clock.read().1.0 < wall_nanos() - 59 * minute);
        assert!(clock.read_fresh().1.0.abs_diff(wall_nanos()) < minute);
        mock.increment(1_u64);
        let (now, unix_now) = clock.read();
        assert_eq!(now, Moment(ANCHOR_LASTS), "moments do not jump");
        assert!(unix_now.0.abs_diff(wall_nanos()) < minute);
        // and back
        clock.unix_at_start.fetch_add(60 * minute, Relaxed);
        mock.increment(ANCHOR_LASTS);
        assert!(clock.read().1.0.abs_diff(wall_nanos()) < minute);
        assert_eq!(clock.now(), Moment(2 * ANCHOR_LASTS));
    }

    /// The counter of a processor without an invariant time stamp counter is the clock of the operating system, in nanoseconds.
    #[test]
    fn a_counter_of_nanoseconds_is_used_as_it_is() {
        let (counter, mock) = quanta::Clock::mock();
        mock.increment(NANOS_PER_SECOND);
        let clock = SystemClock::from_counter(counter);
        mock.increment(123_456_789_u64);
        assert_eq!(clock.now(), Moment(123_456_789));
        mock.decrement(NANOS_PER_SECOND);
        assert_eq!(clock.now(), Moment(0), "another core may be behind");
    }

    /// An uncalibrated counter would run as fast as the processor.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn a_new_clock_is_calibrated() {
        let clock = SystemClock::new();
        let outer = std::time::Instant::now();
        let began = clock.now();
        let inner = std::time::Instant::now();
        while inner.elapsed() < Duration::from_millis(5) {
            std::hint::spin_loop();
        }
        let least = inner.elapsed();
        let passed = clock.now().since(began);
        let most = outer.elapsed();
        assert!(passed * 100 > least * 99 && passed * 100 < most * 101, "{least:?} {passed:?} {most:?}");
    }

    #[test]
    fn times_of_the_standard_library_round_trip() {
        for time in [UnixTime(0), UnixTime(1), UnixTime(1_700_000_000_123_456_700), UnixTime(u64::MAX)] {
            // Windows counts in steps of 100 ns
            assert!(UnixTime::from(SystemTime::from(time)).as_nanos().abs_diff(time.as_nanos()) < 100);
        }
        assert_eq!(SystemTime::from(UnixTime::from_secs(7)), SystemTime::UNIX_EPOCH + Duration::from_secs(7));
        assert_eq!(UnixTime::from(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), UnixTime(0));
    }

    #[test]
    fn shared_and_dynamic_clocks_are_clocks() {
        fn is_clock(_: impl Clock) {}
        let chosen: Arc<dyn Clock> = Arc::new(SystemClock::new());
        is_clock(Arc::clone(&chosen));
        is_clock(chosen);
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Moment(5) - Duration::from_secs(1), Moment(0));
        assert_eq!(Moment(u64::MAX) + Duration::from_secs(1), Moment(u64::MAX));
        assert_eq!(Moment(1).since(Moment(9)), Duration::ZERO);
        assert_eq!(UnixTime(u64::MAX) + Duration::MAX, UnixTime(u64::MAX));
    }

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(UnixTime::from_secs(7).as_secs_ceil(), 7);
        assert_eq!(UnixTime(7 * NANOS_PER_SECOND + 1).as_secs_ceil(), 8);
        assert_eq!(UnixTime(7 * NANOS_PER_SECOND + 1).as_secs(), 7);
    }
}
