//! GCRA, as decided by the crate `governor`, on a state that is stored here.
//!
//! governor's own stores can neither look without spending nor refund a spend, and several
//! quotas must be charged all or nothing. It therefore gets the state and the time of one
//! decision, and its answer is kept or dropped.

use std::{cell::Cell, num::NonZeroU32, time::Duration};

use governor::{
    RateLimiter,
    clock::Clock,
    middleware::NoOpMiddleware,
    nanos::Nanos,
    state::{NotKeyed, StateStore},
};

use crate::util::clock::Moment;

/// The state of one smooth quota.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Smooth {
    /// When all units will have come back.
    whole_at: u64,
    /// How much earlier later units come back because of refunds. The marks of their spends are too late by this much.
    moved_up: u64,
}

/// The figures of one smooth quota.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) interval: u64,
    pub(crate) burst: u32,
}

impl Smooth {
    /// Returns the units that have not come back yet.
    pub(super) fn used(self, pace: Pace, now: Moment) -> u32 {
        let owed = self.whole_at.saturating_sub(now.as_nanos()).div_ceil(pace.interval);
        u32::try_from(owed).unwrap_or(u32::MAX)
    }

    /// Returns the state after spending these units now, or when they will fit.
    pub(super) fn try_spend(self, pace: Pace, now: Moment, units: u32) -> Result<Self, Moment> {
        let (Some(units), Some(burst)) = (NonZeroU32::new(units), NonZeroU32::new(pace.burst)) else {
            return Ok(self);
        };
        // governor adds without checking for overflow, which only a broken clock comes near
        let longest = pace.interval.saturating_mul(u64::from(pace.burst));
        if self.whole_at.max(now.as_nanos()).checked_add(longest).is_none() {
            return Err(Moment::from_nanos(u64::MAX));
        }
        let Some(quota) = governor::Quota::with_period(Duration::from_nanos(pace.interval)) else {
            return Ok(self);
        };
        let decider: RateLimiter<NotKeyed, OneState, SetClock, NoOpMiddleware<Nanos>> =
            RateLimiter::new(quota.allow_burst(burst), OneState(Cell::new(self.whole_at)), SetClock(Cell::new(0)));
        decider.clock().0.set(now.as_nanos());
        match decider.check_n(units) {
            Ok(Ok(())) => Ok(Self { whole_at: decider.into_state_store().0.get(), ..self }),
            Ok(Err(not_until)) => Err(Moment::from_nanos(not_until.earliest_possible().as_u64())),
            Err(_more_than_the_burst) => Err(Moment::from_nanos(u64::MAX)),
        }
    }

    /// Returns when one more unit than now will be left.
    pub(super) fn next_rise(self, pace: Pace, now: Moment) -> Moment {
        match self.used(pace, now).min(pace.burst) {
            0 => now,
            used => Moment::from_nanos(self.whole_at.saturating_sub(u64::from(used - 1) * pace.interval)),
        }
    }

    /// Charges units that were found to fit, and returns the mark of the spend.
    pub(super) fn charge(&mut self, pace: Pace, now: Moment, units: u32) -> Moment {
        let owed = pace.interval.saturating_mul(u64::from(units));
        self.whole_at = self.whole_at.max(now.as_nanos()).saturating_add(owed);
        Moment::from_nanos(self.whole_at.saturating_add(self.moved_up))
    }

    /// Refunds units of the spend with this mark, except those that have come back by now. After refunds out of order it
    /// may refund less than it could, never more.
    pub(super) fn refund(&mut self, pace: Pace, mark: Moment, now: Moment, units: u32) {
        let own_end = mark.as_nanos().saturating_sub(self.moved_up);
        let own_or_older = own_end.saturating_sub(now.as_nanos());
        let back = pace.interval.saturating_mul(u64::from(units)).min(own_or_older);
        if own_end < self.whole_at {
            self.moved_up = self.moved_up.saturating_add(back);
        }
        self.whole_at = self.whole_at.saturating_sub(back);
    }

    /// Returns when all units will have come back.
    pub(super) fn refilled_at(self) -> Moment {
        Moment::from_nanos(self.whole_at)
    }
}

/// A store of one state. A tenant that has spent nothing has the state zero.
struct OneState(Cell<u64>);

impl StateStore for OneState {
    type Key = NotKeyed;

    fn measure_and_replace<T, F, E>(&self, _: &NotKeyed, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let (outcome, next) = decide(Some(Nanos::new(self.0.get())))?;
        self.0.set(next.as_u64());
        Ok(outcome)
    }
}

/// A clock that is set by hand: to zero while governor reads its starting time, then to the moment of the decision.
#[derive(Clone)]
struct SetClock(Cell<u64>);

impl Clock for SetClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::new(self.0.get())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PACE: Pace = Pace { interval: 1_000_000_000, burst: 20 };

    fn second(seconds: u64) -> Moment {
        Moment::default() + Duration::from_secs(seconds)
    }

    fn spend(smooth: &mut Smooth, at: u64, units: u32) -> Moment {
        assert!(smooth.try_spend(PACE, second(at), units).is_ok());
        smooth.charge(PACE, second(at), units)
    }

    #[test]
    fn the_state_is_the_one_that_governor_would_store() {
        let mut smooth = Smooth::default();
        for (at, units) in [(5, 20), (9, 3), (40, 1), (41, 20)] {
            let spent = smooth.try_spend(PACE, second(at), units);
            if let Ok(spent) = spent {
                smooth.charge(PACE, second(at), units);
                assert_eq!(spent.refilled_at(), smooth.refilled_at());
            }
        }
    }

    #[test]
    fn a_second_refund_does_not_affect_a_newer_spend() {
        let mut smooth = Smooth::default();
        let (first, second_spend) = (spend(&mut smooth, 0, 10), spend(&mut smooth, 0, 10));
        smooth.refund(PACE, first, second(0), 10);
        assert_eq!(smooth.used(PACE, second(10)), 0, "the second has come back by then");
        spend(&mut smooth, 10, 20);
        smooth.refund(PACE, second_spend, second(10), 10);
        assert_eq!(smooth.used(PACE, second(10)), 20);
    }

    #[test]
    fn refunds_in_order_and_in_reverse_order_return_all_units() {
        for newest_first in [false, true] {
            let mut smooth = Smooth::default();
            let mut marks: Vec<_> = (0..20).map(|_| spend(&mut smooth, 0, 1)).collect();
            if newest_first {
                marks.reverse();
            }
            marks.into_iter().for_each(|mark| smooth.refund(PACE, mark, second(0), 1));
            assert_eq!(smooth.used(PACE, second(0)), 0, "newest first: {newest_first}");
        }
    }

    #[test]
    fn no_state_or_clock_overflows() {
        let mut smooth = Smooth::default();
        let end = Moment::from_nanos(u64::MAX - 1);
        assert!(smooth.try_spend(PACE, end, 1).is_err());
        smooth.charge(PACE, end, u32::MAX);
        assert!(smooth.try_spend(PACE, end, 20).is_err());
        assert!(smooth.try_spend(PACE, second(1), 1).is_err());
    }
}
