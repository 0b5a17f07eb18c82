//! [`Sends`]: how often a code is sent to one address.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{policy::Method, util::clock::UnixTime};

/// Between two codes by one method.
pub(crate) const COOL_DOWN: Duration = Duration::from_secs(30);

/// What an address takes: so many codes in so long a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    most: usize,
    within: Duration,
    cool_down: Duration,
}

impl Allowance {
    /// Calls and messages cost money and wake people; mail does neither.
    pub(crate) fn of(method: Method) -> Self {
        match method {
            Method::Email => Self { most: 50, within: Duration::from_secs(24 * 3600), cool_down: COOL_DOWN },
            _ => Self { most: 10, within: Duration::from_secs(3600), cool_down: COOL_DOWN },
        }
    }

    /// The same number, as close together as they come.
    pub(crate) fn without_cool_down(self) -> Self {
        Self { cool_down: Duration::ZERO, ..self }
    }
}

/// When codes were sent to an address, oldest first, and by which method.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sends(Vec<(u64, Method)>);

/// Why none is sent now, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooSoon {
    CoolDown(Duration),
    Spent(Duration),
}

impl Sends {
    /// With one more; or why not.
    pub(crate) fn one_more(&self, method: Method, allowance: Allowance, now: UnixTime) -> Result<Self, TooSoon> {
        let until = |at: u64, span: Duration| {
            let wait = (UnixTime::from_nanos(at) + span).as_nanos().saturating_sub(now.as_nanos());
            Some(Duration::from_nanos(wait)).filter(|wait| !wait.is_zero())
        };
        let last = self.0.iter().rev().find(|(_, by)| *by == method);
        if let Some(wait) = last.and_then(|(at, _)| until(*at, allowance.cool_down)) {
            return Err(TooSoon::CoolDown(wait));
        }
        let mut recent: Vec<_> =
            self.0.iter().copied().filter(|(at, _)| until(*at, allowance.within).is_some()).collect();
        if recent.len() >= allowance.most {
            let oldest = recent.get(recent.len() - allowance.most).map_or(0, |(at, _)| *at);
            return Err(TooSoon::Spent(until(oldest, allowance.within).unwrap_or_default()));
        }
        recent.push((now.as_nanos(), method));
        Ok(Self(recent))
    }

    /// When all that stands here now may be forgotten.
    pub(crate) fn forgotten_at(allowance: Allowance, now: UnixTime) -> UnixTime {
        now + allowance.within
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SMS: Method = Method::Sms;

    proptest! {
        #[test]
        fn c059_never_more_than_allowed_in_any_hour_and_never_two_within_thirty_seconds(
            steps in prop::collection::vec((0_u64..900, any::<bool>()), 0..200),
        ) {
            let (mut now, mut sends, mut sent) = (UnixTime::from_secs(1_000_000), Sends::default(), Vec::new());
            for (seconds, whatsapp) in steps {
                now = now + Duration::from_secs(seconds);
                let method = if whatsapp { Method::Whatsapp } else { SMS };
                let before = sends.clone();
                match sends.one_more(method, Allowance::of(method), now) {
                    Ok(next) => { sends = next; sent.push((now, method)); }
                    // the wait is exact: a moment less is refused, and after it nothing is refused for this reason
                    Err(too_soon) => {
                        let (TooSoon::CoolDown(wait) | TooSoon::Spent(wait)) = too_soon;
                        let ask = |at| before.one_more(method, Allowance::of(method), at);
                        prop_assert!(ask(UnixTime::from_nanos((now + wait).as_nanos() - 1)).is_err());
                        let same = |later: &TooSoon| std::mem::discriminant(later) == std::mem::discriminant(&too_soon);
                        prop_assert!(!ask(now + wait).err().as_ref().is_some_and(same));
                    }
                }
            }
            let hour = Duration::from_secs(3600);
            for (start, (at, method)) in sent.iter().enumerate() {
                let within = sent[start..].iter().take_while(|(later, _)| later.as_nanos() < (*at + hour).as_nanos());
                prop_assert!(within.count() <= 10);
                let again = sent[start + 1..].iter().find(|(_, by)| by == method);
                prop_assert!(again.is_none_or(|(later, _)| *later >= *at + COOL_DOWN));
            }
        }
    }

    #[test]
    fn another_method_needs_no_cool_down_but_spends_of_the_same() {
        let (mut now, mut sends) = (UnixTime::from_secs(1_000_000), Sends::default());
        for round in 0..5 {
            for method in [SMS, Method::Whatsapp] {
                sends = sends.one_more(method, Allowance::of(method), now).unwrap();
                let again = sends.one_more(method, Allowance::of(method), now);
                assert_eq!(again, Err(TooSoon::CoolDown(COOL_DOWN)), "{round}");
            }
            now = now + COOL_DOWN;
        }
        assert_eq!(sends.one_more(SMS, Allowance::of(SMS), now), Err(TooSoon::Spent(Duration::from_secs(3600 - 150))));
    }
}
