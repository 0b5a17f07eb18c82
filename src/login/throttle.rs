//! How failed attempts slow down further ones.

use std::time::Duration;

use super::limits::{FAILURE_MEMORY, FIRST_WAIT, LONGEST_WAIT, LoginLimits};
use crate::{
    store::compact::{row_struct, stored_row},
    util::clock::UnixTime,
};

/// The consecutive failures of one name, passkey, account or trusted browser with one method. Attempts are counted before their outcome is known.
///
/// An attempt during a wait is refused and changes nothing, so repeated attempts cannot prolong a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Throttle {
    failures: u32,
    /// When the next attempt is allowed, in Unix nanoseconds. In a hidden count: when it is forgotten.
    open_at: u64,
}

stored_row!(Throttle, 2, "not a count of failures");
row_struct!(Throttle { failures, open_at });

impl Throttle {
    /// Counts an attempt, or returns how long to wait.
    pub(crate) fn count(self, limits: &LoginLimits, now: UnixTime) -> Result<Self, Duration> {
        let wait = Duration::from_nanos(self.open_at.saturating_sub(now.as_nanos()));
        if !wait.is_zero() {
            // a clock that was set back must not lengthen the wait
            return Err(wait.min(wait_after(self.failures, limits)));
        }
        let failures = self.failures.saturating_add(1);
        Ok(Self { failures, open_at: (now + wait_after(failures, limits)).as_nanos() })
    }

    /// Counts an attempt against an account, which shows no wait. Returns the new count, and whether the attempt is below the
    /// ceiling. Attempts beyond the ceiling do not prolong it, but the row lives on, so its end does not show the ceiling.
    ///
    /// The last fifth is kept for trusted browsers, so attackers cannot use up the attempts of the owner.
    pub(crate) fn count_hidden(self, limits: &LoginLimits, now: UnixTime, is_trusted: bool) -> (Self, bool) {
        let reserved = if is_trusted { 0 } else { limits.failure_ceiling / 5 };
        let failures = if self.open_at > now.as_nanos() { self.failures } else { 0 };
        match failures < limits.failure_ceiling - reserved {
            true => (Self { failures: failures + 1, open_at: Self::forgotten_at(now).as_nanos() }, true),
            false => (self, false),
        }
    }

    /// Removes an attempt whose secret could not be checked, and its wait, unless a later attempt has set another one.
    pub(crate) fn uncount(self, written: Self) -> Self {
        let open_at = if self.open_at == written.open_at { 0 } else { self.open_at };
        Self { failures: self.failures.saturating_sub(1), open_at }
    }

    /// Removes an attempt from a hidden count. The rest is forgotten as late as before.
    pub(crate) fn uncount_hidden(self) -> Self {
        Self { failures: self.failures.saturating_sub(1), ..self }
    }

    /// Returns when a count that was written now can be forgotten.
    pub(crate) fn forgotten_at(now: UnixTime) -> UnixTime {
        now + FAILURE_MEMORY
    }
}

fn wait_after(failures: u32, limits: &LoginLimits) -> Duration {
    match failures.checked_sub(limits.free_failures) {
        None => Duration::ZERO,
        Some(_) if failures >= limits.failure_ceiling => FAILURE_MEMORY,
        Some(doublings) => FIRST_WAIT.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST_WAIT),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn c110_waits_grow_from_thirty_seconds_to_an_hour_until_the_hundredth_failure() {
        let (mut throttle, mut now, mut waits) = (Throttle::default(), UnixTime::from_secs(1_000_000), Vec::new());
        for _ in 0..100 {
            throttle = throttle.count(&LoginLimits::new(), now).unwrap();
            let wait = throttle.count(&LoginLimits::new(), now).err().unwrap_or_default();
            waits.push(wait.as_secs());
            now = now + wait;
        }
        assert_eq!(waits[..13], [0, 0, 0, 0, 30, 60, 120, 240, 480, 960, 1920, 3600, 3600]);
        assert!(waits[12..99].iter().all(|wait| *wait == 3600));
        assert_eq!(waits[99], 24 * 3600);
    }

    #[test]
    fn c058_c125_an_account_accepts_a_hundred_failures_of_which_strangers_have_eighty() {
        let limits = LoginLimits::new();
        let now = UnixTime::from_secs(1_000_000);
        let fail = |throttle: &mut Throttle, seconds: u64, is_trusted| {
            let (next, is_below) = throttle.count_hidden(&limits, now + Duration::from_secs(seconds), is_trusted);
            *throttle = next;
            (UnixTime::from_nanos(next.open_at).as_secs() - now.as_secs() - 24 * 3600, is_below)
        };
        let mut throttle = Throttle::default();
        for at in 1..=150 {
            assert_eq!(fail(&mut throttle, at, false), (at.min(80), at <= 80));
        }
        for at in 151..=200 {
            assert_eq!(fail(&mut throttle, at, true), (at.min(170), at <= 170));
        }
        assert_eq!(fail(&mut throttle, 201, false), (170, false));
        // what could not be checked does not end the count of the others
        throttle = throttle.uncount_hidden();
        assert_eq!(fail(&mut throttle, 202, false), (170, false));
        assert_eq!(fail(&mut throttle, 203, true), (203, true));
        // the row may still be there when the count is forgotten
        assert_eq!(fail(&mut throttle, 203 + 24 * 3600 - 1, false), (203, false));
        assert_eq!(fail(&mut throttle, 203 + 24 * 3600, false), (203 + 24 * 3600, true));
        assert_eq!(throttle.failures, 1);
        let mut alone = Throttle::default();
        assert!((1..=100).all(|at| fail(&mut alone, at, true).1));
        assert!(!fail(&mut alone, 101, true).1);
    }

    #[test]
    fn a_withdrawn_attempt_takes_its_own_wait_along_and_no_later_one() {
        let limits = LoginLimits::new();
        let count = |throttle: Throttle, seconds| throttle.count(&limits, UnixTime::from_secs(seconds));
        let five = (0..5).fold(Throttle::default(), |throttle, _| count(throttle, 0).unwrap());
        let sixth = count(five, 30).unwrap();
        assert_eq!(count(sixth, 31).unwrap_err().as_secs(), 59);
        assert_eq!(sixth.uncount(sixth), Throttle { failures: 5, open_at: 0 });
        let seventh = count(sixth, 90).unwrap();
        assert_eq!(seventh.uncount(sixth), Throttle { failures: 6, ..seventh });
        assert!(count(seventh.uncount(sixth), 91).is_err());
    }

    proptest! {
        #[test]
        fn c110_an_attempt_during_the_wait_changes_nothing(failures in 0_u32..120, early in 1_u64..3_600_000_000_000) {
            let now = UnixTime::from_secs(1_000_000);
            let mut throttle = Throttle::default();
            let mut at = now;
            for _ in 0..failures {
                throttle = throttle.count(&LoginLimits::new(), at).unwrap();
                at = UnixTime::from_nanos(throttle.open_at.max(at.as_nanos()));
            }
            let opens = throttle.open_at;
            if opens > early + now.as_nanos() {
                let wait = throttle.count(&LoginLimits::new(), UnixTime::from_nanos(opens - early)).unwrap_err();
                // a clock that was set back must not lengthen the wait
                prop_assert_eq!(wait, Duration::from_nanos(early).min(wait_after(throttle.failures, &LoginLimits::new())));
            }
            prop_assert!(throttle.count(&LoginLimits::new(), UnixTime::from_nanos(opens)).is_ok());
        }
    }
}
