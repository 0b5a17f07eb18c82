//! [`Throttle`]: how often somebody may be wrong.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::util::clock::UnixTime;

/// So many failures cost nothing but themselves.
const FREE: u32 = 5;
/// The wait after the last free failure; each further one doubles it.
const FIRST_WAIT: Duration = Duration::from_secs(30);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// After so many in a row nothing is tried any more, until it is forgotten.
const MOST: u32 = 100;
/// How long after the last failure all is forgotten.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// The failures in a row of one identifier with one method, counted before it is known whether they are any.
///
/// A try during the wait is refused and changes nothing, so that nobody can lock somebody out by trying on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Throttle {
    failures: u32,
    /// The next try may come then, in Unix nanoseconds; of a silent count, when it is forgotten.
    open_at: u64,
}

impl Throttle {
    /// Counts a try; or says how long to wait.
    pub(crate) fn counted(self, now: UnixTime) -> Result<Self, Duration> {
        let wait = Duration::from_nanos(self.open_at.saturating_sub(now.as_nanos()));
        if !wait.is_zero() {
            // a clock that was set back makes no wait longer than it was
            return Err(wait.min(wait_after(self.failures)));
        }
        let failures = self.failures.saturating_add(1);
        Ok(Self { failures, open_at: (now + wait_after(failures)).as_nanos() })
    }

    /// Counts a try, if it is one of the first hundred: the ceiling of an account, which shows no wait. Says how long the
    /// count is kept, which tries beyond the ceiling don't put off, and whether this one is below it.
    pub(crate) fn counted_silently(self, now: UnixTime) -> (Self, UnixTime, bool) {
        let is_below = self.failures < MOST;
        let next = match is_below {
            true => Self { failures: self.failures + 1, open_at: Self::forgotten_at(now).as_nanos() },
            false => self,
        };
        (next, UnixTime::from_nanos(next.open_at), is_below)
    }

    /// Takes back a try that was counted, for nobody could tell whether it was right.
    pub(crate) fn uncounted(self) -> Self {
        Self { failures: self.failures.saturating_sub(1), open_at: 0 }
    }

    /// When a count of this moment may be forgotten.
    pub(crate) fn forgotten_at(now: UnixTime) -> UnixTime {
        now + REMEMBERED
    }
}

fn wait_after(failures: u32) -> Duration {
    match failures.checked_sub(FREE) {
        None => Duration::ZERO,
        Some(_) if failures >= MOST => REMEMBERED,
        Some(doublings) => FIRST_WAIT.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST_WAIT),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn c110_waits_grow_from_thirty_seconds_to_an_hour_and_end_at_a_hundred() {
        let (mut throttle, mut now, mut waits) = (Throttle::default(), UnixTime::from_secs(1_000_000), Vec::new());
        for _ in 0..MOST {
            throttle = throttle.counted(now).unwrap();
            let wait = throttle.counted(now).err().unwrap_or_default();
            waits.push(wait.as_secs());
            now = now + wait;
        }
        assert_eq!(waits[..13], [0, 0, 0, 0, 30, 60, 120, 240, 480, 960, 1920, 3600, 3600]);
        assert!(waits[12..99].iter().all(|wait| *wait == 3600));
        assert_eq!(waits[99], 24 * 3600);
    }

    #[test]
    fn c058_an_account_takes_a_hundred_failures_and_then_no_more() {
        let mut throttle = Throttle::default();
        let now = UnixTime::from_secs(1_000_000);
        for failure in 1..=200 {
            let at = now + Duration::from_secs(failure);
            let (next, kept_until, is_below) = throttle.counted_silently(at);
            assert_eq!(is_below, failure <= 100, "{failure}");
            assert_eq!(kept_until, now + Duration::from_secs(failure.min(100)) + REMEMBERED);
            throttle = next;
        }
    }

    proptest! {
        #[test]
        fn c110_a_try_during_the_wait_changes_nothing(failures in 0_u32..120, early in 1_u64..3_600_000_000_000) {
            let now = UnixTime::from_secs(1_000_000);
            let mut throttle = Throttle::default();
            let mut at = now;
            for _ in 0..failures {
                throttle = throttle.counted(at).unwrap();
                at = UnixTime::from_nanos(throttle.open_at.max(at.as_nanos()));
            }
            let opens = throttle.open_at;
            if opens > early + now.as_nanos() {
                let wait = throttle.counted(UnixTime::from_nanos(opens - early)).unwrap_err();
                // a clock that was set back makes no wait longer than it was
                prop_assert_eq!(wait, Duration::from_nanos(early).min(wait_after(throttle.failures)));
            }
            prop_assert!(throttle.counted(UnixTime::from_nanos(opens)).is_ok());
        }
    }
}
