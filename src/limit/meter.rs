//! One meter per quota and tenant, whatever its rule.

use super::{
    budget::Budget,
    fixed::{Calendar, Fixed},
    quota::{Quota, Rule},
    smooth::{Pace, Smooth},
    window::{Log, Measure},
};
use crate::util::clock::{Moment, saturating_nanos};

/// What a decision knows beside the tenant.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) now: Moment,
    /// What the wall clock showed at moment zero, in nanoseconds since the Unix epoch.
    pub(super) unix_at_zero: u64,
    pub(super) budget: &'a Budget,
}

/// The measures of a quota, worked out once.
#[derive(Clone, Copy)]
pub(super) enum Gauge {
    Window(Measure),
    Smooth(Pace),
    Fixed { period: u64 },
}

impl Gauge {
    pub(super) fn new(quota: &Quota) -> Self {
        match quota.rule() {
            Rule::Window { grains } => Self::Window(Measure::new(quota, grains)),
            Rule::Smooth { interval } => Self::Smooth(Pace { interval, burst: quota.limit() }),
            Rule::Fixed => Self::Fixed { period: saturating_nanos(quota.window()) },
        }
    }
}

/// What one tenant has spent of one quota. A meter is only ever used with the
/// gauge of its own kind; beside another it counts as empty.
#[derive(Debug)]
pub(super) enum Meter {
    Window(Log),
    Smooth(Smooth),
    Fixed(Fixed),
}

impl Meter {
    pub(super) fn new(gauge: Gauge) -> Self {
        match gauge {
            Gauge::Window(_) => Self::Window(Log::EMPTY),
            Gauge::Smooth(_) => Self::Smooth(Smooth::default()),
            Gauge::Fixed { .. } => Self::Fixed(Fixed::default()),
        }
    }

    /// Lets go what no longer counts. The other methods expect it.
    #[inline]
    pub(super) fn refresh(&mut self, gauge: Gauge, context: Context<'_>) {
        match (self, gauge) {
            (Self::Window(log), Gauge::Window(measure)) => log.expire(measure, context.now, context.budget),
            (Self::Fixed(fixed), Gauge::Fixed { period }) => {
                fixed.turn(Calendar { period, unix_at_zero: context.unix_at_zero }, context.now);
            }
            _ => {}
        }
    }

    /// Units that count now.
    pub(super) fn used(&self, gauge: Gauge, now: Moment) -> u32 {
        match (self, gauge) {
            (Self::Window(log), Gauge::Window(_)) => log.used(),
            (Self::Smooth(smooth), Gauge::Smooth(pace)) => smooth.used(pace, now),
            (Self::Fixed(fixed), Gauge::Fixed { .. }) => fixed.used(),
            _ => 0,
        }
    }

    /// Until when so many units, at most the limit, do not fit; `None` where they fit now.
    #[inline]
    pub(super) fn full_until(&self, gauge: Gauge, limit: u32, now: Moment, units: u32) -> Option<Moment> {
        match (self, gauge) {
            // none is asked for: it fits however much is spent
            _ if units == 0 => None,
            (Self::Window(log), Gauge::Window(measure)) => {
                let over = over(log.used(), units, limit);
                (over > 0).then(|| log.freed_at(measure, over))
            }
            (Self::Smooth(smooth), Gauge::Smooth(pace)) => smooth.plan(pace, now, units).err(),
            (Self::Fixed(fixed), Gauge::Fixed { .. }) => (over(fixed.used(), units, limit) > 0).then(|| fixed.ends()),
            _ => None,
        }
    }

    /// When one more unit than now will be left; now, where nothing is spent.
    #[inline]
    pub(super) fn rises_at(&self, gauge: Gauge, limit: u32, now: Moment) -> Moment {
        match (self, gauge) {
            (Self::Window(log), Gauge::Window(measure)) if log.used() > 0 => {
                log.freed_at(measure, over(log.used(), 1, limit).max(1))
            }
            (Self::Smooth(smooth), Gauge::Smooth(pace)) => smooth.next_rise(pace, now),
            (Self::Fixed(fixed), Gauge::Fixed { .. }) if fixed.used() > 0 => fixed.ends(),
            _ => now,
        }
    }

    /// Spends units that were found to fit; the mark that is returned finds them again for a refund.
    #[inline]
    pub(super) fn charge(&mut self, gauge: Gauge, context: Context<'_>, units: u32) -> Moment {
        match (self, gauge) {
            (Self::Window(log), Gauge::Window(measure)) => log.add(measure, context.now, units, context.budget),
            (Self::Smooth(smooth), Gauge::Smooth(pace)) => smooth.charge(pace, context.now, units),
            (Self::Fixed(fixed), Gauge::Fixed { .. }) => fixed.add(units),
            _ => context.now,
        }
    }

    /// Takes units back that were spent under this mark, as far as they still count.
    pub(super) fn refund(&mut self, gauge: Gauge, now: Moment, mark: Moment, units: u32) {
        match (self, gauge) {
            (Self::Window(log), Gauge::Window(measure)) => log.refund(measure, mark, units),
            (Self::Smooth(smooth), Gauge::Smooth(pace)) => smooth.refund(pace, mark, now, units),
            (Self::Fixed(fixed), Gauge::Fixed { .. }) => fixed.refund(mark, units),
            _ => {}
        }
    }

    /// Whether nothing counts any more, so that the meter may be forgotten.
    pub(super) fn is_idle(&self, gauge: Gauge, now: Moment) -> bool {
        match (self, gauge) {
            (Self::Window(log), Gauge::Window(measure)) => log.is_idle(measure, now),
            (Self::Smooth(smooth), _) => smooth.whole() <= now,
            (Self::Fixed(fixed), _) => fixed.used() == 0 || fixed.ends() <= now,
            (Self::Window(_), _) => true,
        }
    }

    /// What was spent, carried over to another quota: nothing is forgiven.
    pub(super) fn carried(mut self, from: Gauge, to: Gauge, context: Context<'_>) -> Self {
        self.refresh(from, context);
        match (self, from, to) {
            (Self::Window(mut log), Gauge::Window(from), Gauge::Window(to)) => {
                log.remeasure(from, to);
                Self::Window(log)
            }
            (Self::Smooth(smooth), Gauge::Smooth(was), Gauge::Smooth(pace)) if was.interval == pace.interval => {
                Self::Smooth(smooth)
            }
            (Self::Fixed(fixed), Gauge::Fixed { period: was }, Gauge::Fixed { period }) if was == period => {
                Self::Fixed(fixed)
            }
            // another rule: what counts now is spent now
            (meter, from, to) => {
                // a burst that is spent is spent: more would keep the tenant out for longer than it takes to come back
                let most = if let Gauge::Smooth(pace) = to { pace.burst } else { u32::MAX };
                let used = meter.used(from, context.now).min(most);
                context.budget.give_back(meter.heap_bytes());
                let mut carried = Self::new(to);
                if used > 0 {
                    carried.refresh(to, context);
                    carried.charge(to, context, used);
                }
                carried
            }
        }
    }

    /// Another meter that counts the same.
    pub(super) fn copied(&self, gauge: Gauge, context: Context<'_>) -> Self {
        match (self, gauge) {
            (Self::Window(log), Gauge::Window(measure)) => Self::Window(log.copied(measure, context.budget)),
            (Self::Smooth(smooth), _) => Self::Smooth(*smooth),
            (Self::Fixed(fixed), _) => Self::Fixed(*fixed),
            (Self::Window(_), _) => Self::new(gauge),
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Window(log) => log.heap_bytes(),
            Self::Smooth(_) | Self::Fixed(_) => 0,
        }
    }
}

/// How many units too many there would be.
#[inline]
fn over(used: u32, units: u32, limit: u32) -> u32 {
    let wanted = u64::from(used) + u64::from(units);
    u32::try_from(wanted.saturating_sub(u64::from(limit))).unwrap_or(u32::MAX)
}
