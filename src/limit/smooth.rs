//! GCRA, as the crate `governor` decides it, on a state that we keep.
//!
//! governor's own stores can neither look without spending nor take a spend
//! back, and several quotas must be spent all or nothing. So it is handed the
//! state and the time of one decision, and its verdict is kept or dropped.

use std::{cell::Cell, num::NonZeroU32, time::Duration};

use governor::{
    RateLimiter,
    clock::Clock,
    middleware::NoOpMiddleware,
    nanos::Nanos,
    state::{NotKeyed, StateStore},
};

use crate::util::clock::Moment;

/// The state of one smooth quota: the moment by which all that was spent will have come back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Smooth {
    whole_at: u64,
    /// By how much refunds have brought forward what was spent after the units that they gave back: the marks of those
    /// spends are that much too late.
    brought_forward: u64,
}

/// The measures of one smooth quota.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    pub(super) interval: u64,
    pub(super) burst: u32,
}

impl Smooth {
    pub(super) fn used(self, pace: Pace, now: Moment) -> u32 {
        let owed = self.whole_at.saturating_sub(now.as_nanos()).div_ceil(pace.interval);
        u32::try_from(owed).unwrap_or(u32::MAX)
    }

    /// When so many units fit, or the state after spending them now.
    pub(super) fn plan(self, pace: Pace, now: Moment, units: u32) -> Result<Self, Moment> {
        let (Some(units), Some(burst)) = (NonZeroU32::new(units), NonZeroU32::new(pace.burst)) else {
            return Ok(self);
        };
        // governor adds without a look; no clock but a broken one comes near
        let longest = pace.interval.saturating_mul(u64::from(pace.burst));
        if self.whole_at.max(now.as_nanos()).checked_add(longest).is_none() {
            return Err(Moment::from_nanos(u64::MAX));
        }
        let Some(quota) = governor::Quota::with_period(Duration::from_nanos(pace.interval)) else {
            return Ok(self);
        };
        let decider: RateLimiter<NotKeyed, One, Hand, NoOpMiddleware<Nanos>> =
            RateLimiter::new(quota.allow_burst(burst), One(Cell::new(self.whole_at)), Hand(Cell::new(0)));
        decider.clock().0.set(now.as_nanos());
        match decider.check_n(units) {
            Ok(Ok(())) => Ok(Self { whole_at: decider.into_state_store().0.get(), ..self }),
            Ok(Err(not_until)) => Err(Moment::from_nanos(not_until.earliest_possible().as_u64())),
            Err(_more_than_the_burst) => Err(Moment::from_nanos(u64::MAX)),
        }
    }

    /// When one more unit than now fits: not before as many are spent as the burst allows.
    pub(super) fn next_rise(self, pace: Pace, now: Moment) -> Moment {
        match self.used(pace, now).min(pace.burst) {
            0 => now,
            used => Moment::from_nanos(self.whole_at.saturating_sub(u64::from(used - 1) * pace.interval)),
        }
    }

    /// Spends units that were found to fit, and gives the mark of the spend.
    pub(super) fn charge(&mut self, pace: Pace, now: Moment, units: u32) -> Moment {
        let owed = pace.interval.saturating_mul(u64::from(units));
        self.whole_at = self.whole_at.max(now.as_nanos()).saturating_add(owed);
        Moment::from_nanos(self.whole_at.saturating_add(self.brought_forward))
    }

    /// Takes units back of the spend with this mark: none that have come back by now. After refunds out of order it may
    /// give back less than it could, never more.
    pub(super) fn refund(&mut self, pace: Pace, mark: Moment, now: Moment, units: u32) {
        let own_end = mark.as_nanos().saturating_sub(self.brought_forward);
        let own_or_older = own_end.saturating_sub(now.as_nanos());
        let back = pace.interval.saturating_mul(u64::from(units)).min(own_or_older);
        if own_end < self.whole_at {
            self.brought_forward = self.brought_forward.saturating_add(back);
        }
        self.whole_at = self.whole_at.saturating_sub(back);
    }

    pub(super) fn whole(self) -> Moment {
        Moment::from_nanos(self.whole_at)
    }
}

/// The store of one state; zero stands for none, as in governor's own.
struct One(Cell<u64>);

impl StateStore for One {
    type Key = NotKeyed;

    fn measure_and_replace<T, F, E>(&self, _: &NotKeyed, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let state = Some(self.0.get()).filter(|nanos| *nanos > 0).map(Nanos::new);
        let (outcome, next) = decide(state)?;
        self.0.set(next.as_u64());
        Ok(outcome)
    }
}

/// A clock that shows zero while governor takes its starting time, then the moment of the decision.
#[derive(Clone)]
struct Hand(Cell<u64>);

impl Clock for Hand {
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
        assert!(smooth.plan(PACE, second(at), units).is_ok());
        smooth.charge(PACE, second(at), units)
    }

    #[test]
    fn what_governor_would_keep_is_what_is_kept() {
        let mut smooth = Smooth::default();
        for (at, units) in [(5, 20), (9, 3), (40, 1), (41, 20)] {
            let planned = smooth.plan(PACE, second(at), units);
            if let Ok(planned) = planned {
                smooth.charge(PACE, second(at), units);
                assert_eq!(planned.whole(), smooth.whole());
            }
        }
    }

    #[test]
    fn a_refund_after_another_reaches_no_newer_spend() {
        let mut smooth = Smooth::default();
        let (first, second_spend) = (spend(&mut smooth, 0, 10), spend(&mut smooth, 0, 10));
        smooth.refund(PACE, first, second(0), 10);
        assert_eq!(smooth.used(PACE, second(10)), 0, "the second has come back by then");
        spend(&mut smooth, 10, 20);
        smooth.refund(PACE, second_spend, second(10), 10);
        assert_eq!(smooth.used(PACE, second(10)), 20);
    }

    #[test]
    fn refunds_in_order_and_from_the_newest_back_give_everything_back() {
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
    fn no_state_and_no_clock_overflow() {
        let mut smooth = Smooth::default();
        let end = Moment::from_nanos(u64::MAX - 1);
        assert!(smooth.plan(PACE, end, 1).is_err());
        smooth.charge(PACE, end, u32::MAX);
        assert!(smooth.plan(PACE, end, 20).is_err());
        assert!(smooth.plan(PACE, second(1), 1).is_err());
    }
}
