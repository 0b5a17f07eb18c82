//! The meters of one tenant and one quota. Each rule has its own.

use std::time::Duration;

#[cfg(feature = "smooth")]
use super::smooth::{Pace, Smooth};
use super::window::{ByteBudget, Lengths, Log, over};
use crate::{
    limit::quota::{Quota, Rule},
    util::clock::{Moment, UnixTime, saturating_nanos},
};

/// The time and the memory budget of a decision.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) now: Moment,
    pub(crate) unix_now: UnixTime,
    /// The latest wall-clock time at which rows were removed, in nanoseconds since the Unix epoch.
    pub(crate) swept_at: u64,
    pub(crate) bytes: &'a ByteBudget,
}

impl Context<'_> {
    /// Returns the time of calendar quotas, in nanoseconds since the Unix epoch. While the wall clock is behind a time at which
    /// rows were removed, their periods could begin twice, so it stands still.
    fn calendar_now(self) -> u64 {
        self.unix_now.as_nanos().max(self.swept_at)
    }

    /// Returns the context of an earlier moment, whose calendar windows have not been removed.
    pub(super) fn at_earlier(self, now: Moment) -> Self {
        let ago = saturating_nanos(self.now.since(now));
        let unix_now = UnixTime::from_nanos(self.unix_now.as_nanos().saturating_sub(ago));
        Self { now, unix_now, swept_at: 0, ..self }
    }

    /// Returns the moment at which the wall clock will show this time, in nanoseconds since the Unix epoch.
    fn moment_of(self, unix: u64) -> Moment {
        self.now + Duration::from_nanos(unix.saturating_sub(self.unix_now.as_nanos()))
    }
}

/// The figures of a quota that its meters need, computed once.
#[derive(Clone, Copy)]
pub(crate) enum Gauge {
    Window(Lengths),
    #[cfg(feature = "smooth")]
    Smooth(Pace),
    Fixed {
        period: u64,
    },
    /// Counts open calls, so its meter has nothing to count.
    Concurrent,
}

impl Gauge {
    pub(crate) fn new(quota: &Quota) -> Self {
        match quota.rule() {
            Rule::Window { slices } => Self::Window(Lengths::new(quota, slices)),
            #[cfg(feature = "smooth")]
            Rule::Smooth { interval } => Self::Smooth(Pace { interval, burst: quota.limit() }),
            Rule::Fixed => Self::Fixed { period: saturating_nanos(quota.window()) },
            Rule::Concurrent => Self::Concurrent,
        }
    }

    /// Returns whether the quota counts units, and not open calls.
    pub(in crate::limit) fn counts_units(self) -> bool {
        !matches!(self, Self::Concurrent)
    }

    #[cfg_attr(not(feature = "smooth"), allow(unused_variables, reason = "only smooth quotas need the part"))]
    /// Creates the gauge of a part of the quota. A smooth part comes back as much more slowly as it is smaller.
    pub(crate) fn of_part(quota: &Quota, part: u32) -> Self {
        match Self::new(quota) {
            #[cfg(feature = "smooth")]
            Self::Smooth(Pace { interval, burst }) => {
                let slower = (u128::from(interval) * u128::from(burst)).div_ceil(u128::from(part.max(1)));
                Self::Smooth(Pace { interval: u64::try_from(slower).unwrap_or(u64::MAX), burst: part })
            }
            whole => whole,
        }
    }

    /// Returns whether a calendar quota is in the same period now as at this time. Other quotas have no periods.
    #[cfg(feature = "redis")]
    pub(super) fn is_same_period(self, context: Context<'_>, at: UnixTime) -> bool {
        let Self::Fixed { period } = self else { return true };
        at.as_nanos() / period == context.calendar_now() / period
    }
}

/// The units that one tenant has spent of one quota. A meter is only used with the gauge of its own rule. With another gauge it
/// counts as empty.
#[derive(Debug)]
pub(super) enum Meter {
    Window(Log),
    #[cfg(feature = "smooth")]
    Smooth(Smooth),
    Fixed(Fixed),
    Concurrent,
}

impl Meter {
    pub(super) fn new(gauge: Gauge) -> Self {
        match gauge {
            Gauge::Window(_) => Self::Window(Log::EMPTY),
            #[cfg(feature = "smooth")]
            Gauge::Smooth(_) => Self::Smooth(Smooth::default()),
            Gauge::Fixed { .. } => Self::Fixed(Fixed::default()),
            Gauge::Concurrent => Self::Concurrent,
        }
    }

    /// Removes what no longer counts. Call it before the other methods.
    #[inline]
    pub(super) fn refresh(&mut self, gauge: Gauge, context: Context<'_>) {
        match (self, gauge) {
            (Self::Window(log), Gauge::Window(lengths)) => log.expire(lengths, context.now, context.bytes),
            (Self::Fixed(fixed), Gauge::Fixed { period }) => {
                fixed.turn(period, context.calendar_now());
            }
            _ => {}
        }
    }

    /// Returns the units that count now.
    #[cfg_attr(not(feature = "smooth"), allow(unused_variables, reason = "only smooth quotas ask what time it is"))]
    pub(super) fn used(&self, gauge: Gauge, now: Moment) -> u32 {
        match (self, gauge) {
            (Self::Window(log), Gauge::Window(_)) => log.used(),
            #[cfg(feature = "smooth")]
            (Self::Smooth(smooth), Gauge::Smooth(pace)) => smooth.used(pace, now),
            (Self::Fixed(fixed), Gauge::Fixed { .. }) => fixed.used(),
            _ => 0,
        }
    }

    /// Returns when these units, at most the limit, will fit, or `None` if they fit now.
    #[inline]
    pub(super) fn full_until(&self, gauge: Gauge, limit: u32, context: Context<'_>, units: u32) -> Option<Moment> {
        match (self, gauge) {
            // zero units always fit
            _ if units == 0 => None,
            (Self::Window(log), Gauge::Window(lengths)) => {
                let over = over(log.used(), units, limit);
                (over > 0).then(|| log.freed_at(lengths, over))
            }
            #[cfg(feature = "smooth")]
            (Self::Smooth(smooth), Gauge::Smooth(pace)) => smooth.try_spend(pace, context.now, units).err(),
            (Self::Fixed(fixed), Gauge::Fixed { .. }) => {
                (over(fixed.used(), units, limit) > 0).then(|| context.moment_of(fixed.ends))
            }
            _ => None,
        }
    }

    /// Returns when one more unit than now will be left, or now if nothing is spent.
    #[inline]
    pub(super) fn rises_at(&self, gauge: Gauge, limit: u32, context: Context<'_>) -> Moment {
        match (self, gauge) {
            (Self::Window(log), Gauge::Window(lengths)) => log.rises_at(lengths, limit, context.now),
            #[cfg(feature = "smooth")]
            (Self::Smooth(smooth), Gauge::Smooth(pace)) => smooth.next_rise(pace, context.now),
            (Self::Fixed(fixed), Gauge::Fixed { .. }) if fixed.used() > 0 => context.moment_of(fixed.ends),
            _ => context.now,
        }
    }

    /// Charges units that were found to fit. Returns the mark by which a refund finds them.
    #[inline]
    pub(super) fn charge(&mut self, gauge: Gauge, context: Context<'_>, units: u32) -> Moment {
        match (self, gauge) {
            (Self::Window(log), Gauge::Window(lengths)) => log.add(lengths, context.now, units, context.bytes),
            #[cfg(feature = "smooth")]
            (Self::Smooth(smooth), Gauge::Smooth(pace)) => smooth.charge(pace, context.now, units),
            (Self::Fixed(fixed), Gauge::Fixed { .. }) => fixed.add(units),
            _ => context.now,
        }
    }

    /// Refunds units that were charged with this mark, if they still count.
    #[cfg_attr(not(feature = "smooth"), allow(unused_variables, reason = "only smooth quotas ask what time it is"))]
    pub(super) fn refund(&mut self, gauge: Gauge, now: Moment, mark: Moment, units: u32) {
        match (self, gauge) {
            (Self::Window(log), Gauge::Window(lengths)) => log.refund(lengths, mark, units),
            #[cfg(feature = "smooth")]
            (Self::Smooth(smooth), Gauge::Smooth(pace)) => smooth.refund(pace, mark, now, units),
            (Self::Fixed(fixed), Gauge::Fixed { .. }) => fixed.refund(mark, units),
            _ => {}
        }
    }

    /// Returns whether no units count any more, so that the meter may be dropped.
    pub(super) fn is_idle(&self, gauge: Gauge, context: Context<'_>) -> bool {
        match (self, gauge) {
            (Self::Window(log), Gauge::Window(lengths)) => log.is_idle(lengths, context.now),
            #[cfg(feature = "smooth")]
            (Self::Smooth(smooth), _) => smooth.refilled_at() <= context.now,
            (Self::Fixed(fixed), _) => fixed.used() == 0 || fixed.ends <= context.calendar_now(),
            (Self::Window(_) | Self::Concurrent, _) => true,
        }
    }

    /// Converts the spent units to another quota. No spent unit is lost.
    pub(super) fn converted(mut self, from: Gauge, to: Gauge, context: Context<'_>) -> Self {
        self.refresh(from, context);
        match (self, from, to) {
            (Self::Window(mut log), Gauge::Window(from), Gauge::Window(to)) => {
                log.convert(from, to);
                Self::Window(log)
            }
            #[cfg(feature = "smooth")]
            (Self::Smooth(smooth), Gauge::Smooth(was), Gauge::Smooth(pace)) if was.interval == pace.interval => {
                Self::Smooth(smooth)
            }
            (Self::Fixed(fixed), Gauge::Fixed { period: was }, Gauge::Fixed { period }) if was == period => {
                Self::Fixed(fixed)
            }
            // another rule: units that count now are treated as spent now
            (meter, from, to) => {
                // at most a burst: more would block the tenant for longer than a burst takes to refill
                let most = match to {
                    #[cfg(feature = "smooth")]
                    Gauge::Smooth(pace) => pace.burst,
                    _ => u32::MAX,
                };
                let used = meter.used(from, context.now).min(most);
                context.bytes.give_back(meter.heap_bytes());
                let mut carried = Self::new(to);
                carried.refresh(to, context);
                carried.charge(to, context, used);
                carried
            }
        }
    }

    /// Returns a meter that counts the same.
    pub(super) fn copied(&self, gauge: Gauge, context: Context<'_>) -> Self {
        match (self, gauge) {
            (Self::Window(log), Gauge::Window(lengths)) => Self::Window(log.copied(lengths, context.bytes)),
            #[cfg(feature = "smooth")]
            (Self::Smooth(smooth), _) => Self::Smooth(*smooth),
            (Self::Fixed(fixed), _) => Self::Fixed(*fixed),
            (Self::Window(_) | Self::Concurrent, _) => Self::new(gauge),
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Window(log) => log.heap_bytes(),
            #[cfg(feature = "smooth")]
            Self::Smooth(_) => 0,
            Self::Fixed(_) | Self::Concurrent => 0,
        }
    }
}

/// The calendar window: a count that restarts at fixed boundaries of the wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fixed {
    /// In nanoseconds since the Unix epoch.
    ends: u64,
    count: u32,
}

impl Fixed {
    /// Begins a new window if the last one has ended. If the clock steps back, the window lasts until the clock shows its end.
    fn turn(&mut self, period: u64, calendar_now: u64) {
        if self.ends <= calendar_now {
            *self = Self { ends: calendar_now.saturating_add(period - calendar_now % period), count: 0 };
        }
    }

    /// Returns the units that count. Call [`turn`](Self::turn) first.
    fn used(self) -> u32 {
        self.count
    }

    /// Returns what identifies the window: its end.
    fn mark(self) -> Moment {
        Moment::from_nanos(self.ends)
    }

    /// Adds units and returns the mark of the window that they belong to.
    fn add(&mut self, units: u32) -> Moment {
        self.count = self.count.saturating_add(units);
        self.mark()
    }

    /// Refunds units, unless the window that they were spent in has ended.
    fn refund(&mut self, spent_in: Moment, units: u32) {
        if self.mark() == spent_in {
            self.count = self.count.saturating_sub(units);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000_000;

    /// A clock on which an hour has passed when the wall clock shows `minutes`.
    fn at(minutes: u64, bytes: &ByteBudget) -> Context<'_> {
        let (now, unix_now) = (Moment::from_nanos(60 * MINUTE), UnixTime::from_nanos(minutes * MINUTE));
        Context { now, unix_now, swept_at: 0, bytes }
    }

    fn charged(gauge: Gauge, context: Context<'_>) -> Meter {
        let mut meter = Meter::new(gauge);
        meter.refresh(gauge, context);
        meter.charge(gauge, context, 3);
        meter
    }

    #[test]
    fn a_calendar_window_keeps_its_end_with_the_same_period_and_gets_one_of_another_period() {
        let bytes = ByteBudget::new(usize::MAX);
        let [ten_minutes, hour] = [10, 60].map(|minutes| Gauge::Fixed { period: minutes * MINUTE });
        // the wall clock steps back by an hour
        let (before, after) = (at(150, &bytes), at(90, &bytes));
        for (gauge, ends) in [(hour, 180), (ten_minutes, 100)] {
            let meter = charged(hour, before).converted(hour, gauge, after);
            assert_eq!(
                (meter.used(gauge, after.now), meter.rises_at(gauge, 9, after)),
                (3, after.moment_of(ends * MINUTE))
            );
        }
    }

    #[cfg(feature = "smooth")]
    #[test]
    fn units_of_a_smooth_quota_come_back_at_the_same_time_after_its_burst_has_changed() {
        let bytes = ByteBudget::new(usize::MAX);
        let [was, is] = [5, 9].map(|burst| Gauge::Smooth(Pace { interval: MINUTE, burst }));
        let meter = charged(was, at(60, &bytes));
        let later = Context { now: Moment::from_nanos(60 * MINUTE + MINUTE / 2), ..at(60, &bytes) };
        let rises_at = meter.rises_at(was, 5, later);
        assert_eq!(meter.converted(was, is, later).rises_at(is, 9, later), rises_at);
    }

    #[test]
    fn a_refund_after_the_end_of_a_calendar_window_leaves_the_next_one_alone() {
        let bytes = ByteBudget::new(usize::MAX);
        let gauge = Gauge::Fixed { period: 60 * MINUTE };
        let mut meter = charged(gauge, at(90, &bytes));
        let mark = meter.charge(gauge, at(90, &bytes), 2);
        meter.refresh(gauge, at(130, &bytes));
        meter.charge(gauge, at(130, &bytes), 4);
        meter.refund(gauge, Moment::default(), mark, 2);
        assert_eq!(meter.used(gauge, Moment::default()), 4);
    }
}
