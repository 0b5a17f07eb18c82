//! The calendar window: a count that starts anew at fixed boundaries.

use crate::util::clock::Moment;

/// The state of one fixed quota.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fixed {
    ends: u64,
    count: u32,
}

/// The measures of one fixed quota.
#[derive(Clone, Copy)]
pub(super) struct Calendar {
    pub(super) period: u64,
    /// What the wall clock showed at moment zero, in nanoseconds since the Unix epoch.
    pub(super) unix_at_zero: u64,
}

impl Calendar {
    fn window_end(self, now: u64) -> u64 {
        let into_window = self.unix_at_zero.saturating_add(now) % self.period;
        now.saturating_add(self.period - into_window)
    }
}

impl Fixed {
    /// Begins a new window where the last has ended. A clock that steps back stays in the window that it has reached.
    pub(super) fn turn(&mut self, calendar: Calendar, now: Moment) {
        if self.ends <= now.as_nanos() {
            *self = Self { ends: calendar.window_end(now.as_nanos()), count: 0 };
        }
    }

    /// Units that count, once [`turn`](Self::turn) was called.
    pub(super) fn used(self) -> u32 {
        self.count
    }

    pub(super) fn ends(self) -> Moment {
        Moment::from_nanos(self.ends)
    }

    /// Adds units, and says with which window they go.
    pub(super) fn add(&mut self, units: u32) -> Moment {
        self.count = self.count.saturating_add(units);
        self.ends()
    }

    /// Takes units back, unless the window they were spent in has ended.
    pub(super) fn refund(&mut self, spent_in: Moment, units: u32) {
        if self.ends() == spent_in {
            self.count = self.count.saturating_sub(units);
        }
    }
}
