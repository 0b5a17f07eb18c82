//! How often one-time codes are sent to one address.

use std::time::Duration;

use super::limits::RESEND_INTERVAL;
use crate::{
    policy::Method,
    store::compact::{row_struct, stored_row},
    util::clock::UnixTime,
};

/// The maximum number of codes that one address receives in a period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendLimit {
    most: usize,
    within: Duration,
    interval: Duration,
}

impl SendLimit {
    /// The limit of tickets, whose address need not belong to an account: any caller can have messages sent to it.
    pub(crate) const OF_TICKETS: Self =
        Self { most: 10, within: Duration::from_secs(24 * 3600), interval: Duration::ZERO };

    /// The share of callers who are not signed in. It leaves messages to each address for users who are.
    pub(crate) const OF_TICKETS_BY_STRANGERS: Self = Self { most: 8, ..Self::OF_TICKETS };

    /// The share of callers at one client address who are not signed in, and as much for those who are.
    pub(crate) const OF_TICKETS_BY_CLIENT: Self = Self { most: 5, ..Self::OF_TICKETS };

    /// The share of one user who is signed in.
    pub(crate) const OF_TICKETS_BY_USER: Self = Self { most: 3, ..Self::OF_TICKETS };

    /// The limit of one user, or of one login without a user, who requests messages to addresses that may belong to others.
    pub(crate) const OF_TICKET_REQUESTS: Self =
        Self { most: 10, within: Duration::from_secs(3600), interval: Duration::ZERO };

    /// The limit of one user who requests text messages, which cost money, to numbers that may belong to others.
    pub(crate) const OF_TEXT_REQUESTS: Self = Self { most: 3, ..Self::OF_TICKET_REQUESTS };

    /// The limit of all users at one client address who request such text messages. Open sign-up gives anyone many users.
    pub(crate) const OF_TEXT_REQUESTS_BY_CLIENT: Self = Self { most: 5, ..Self::OF_TICKET_REQUESTS };

    /// Returns the limit of a method. Text messages cost money and wake people up, so they have a lower one than e-mail.
    pub(crate) fn for_send_method(method: Method) -> Self {
        let interval = RESEND_INTERVAL;
        match method {
            Method::Email => Self { most: 50, within: Duration::from_secs(24 * 3600), interval },
            _ => Self { most: 10, within: Duration::from_secs(3600), interval },
        }
    }

    /// Removes the minimum time between two codes and keeps the number.
    pub(crate) fn without_interval(self) -> Self {
        Self { interval: Duration::ZERO, ..self }
    }
}

/// When codes were sent to an address and by which method, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SentCodes(Vec<(u64, Method)>);

stored_row!(SentCodes, 1, "not a list of sent codes");
row_struct!(SentCodes(codes));

/// Why no code is sent now, and how long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendRefused {
    /// The previous code was sent a moment ago.
    TooSoon(Duration),
    /// The address received too many codes in this period.
    TooMany(Duration),
}

impl SentCodes {
    /// Adds one code, unless the limit is reached.
    pub(crate) fn one_more(&self, method: Method, limit: SendLimit, now: UnixTime) -> Result<Self, SendRefused> {
        let until = |at: u64, span: Duration| {
            let wait = (UnixTime::from_nanos(at) + span).as_nanos().saturating_sub(now.as_nanos());
            Some(Duration::from_nanos(wait)).filter(|wait| !wait.is_zero())
        };
        let last = self.0.iter().rev().find(|(_, by)| *by == method);
        if let Some(wait) = last.and_then(|(at, _)| until(*at, limit.interval)) {
            return Err(SendRefused::TooSoon(wait));
        }
        let mut recent: Vec<_> = self.0.iter().copied().filter(|(at, _)| until(*at, limit.within).is_some()).collect();
        if recent.len() >= limit.most {
            let oldest = recent.get(recent.len() - limit.most).map_or(0, |(at, _)| *at);
            return Err(SendRefused::TooMany(until(oldest, limit.within).unwrap_or_default()));
        }
        recent.push((now.as_nanos(), method));
        Ok(Self(recent))
    }

    /// Returns when all current entries can be forgotten.
    pub(crate) fn forgotten_at(limit: SendLimit, now: UnixTime) -> UnixTime {
        now + limit.within
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SMS: Method = Method::Sms;
    const INTERVAL: Duration = Duration::from_secs(30);

    fn limit(method: Method) -> SendLimit {
        SendLimit::for_send_method(method)
    }

    proptest! {
        #[test]
        fn c059_limits_per_hour_and_the_minimum_interval_are_never_exceeded(
            steps in prop::collection::vec((0_u64..900, any::<bool>()), 0..200),
        ) {
            let (mut now, mut sends, mut sent) = (UnixTime::from_secs(1_000_000), SentCodes::default(), Vec::new());
            for (seconds, whatsapp) in steps {
                now = now + Duration::from_secs(seconds);
                let method = if whatsapp { Method::Whatsapp } else { SMS };
                let before = sends.clone();
                match sends.one_more(method, limit(method), now) {
                    Ok(next) => { sends = next; sent.push((now, method)); }
                    // the wait is exact: one nanosecond earlier is refused, and after it this reason no longer applies
                    Err(too_soon) => {
                        let (SendRefused::TooSoon(wait) | SendRefused::TooMany(wait)) = too_soon;
                        let ask = |at| before.one_more(method, limit(method), at);
                        prop_assert!(ask(UnixTime::from_nanos((now + wait).as_nanos() - 1)).is_err());
                        let same = |later: &SendRefused| std::mem::discriminant(later) == std::mem::discriminant(&too_soon);
                        prop_assert!(!ask(now + wait).err().as_ref().is_some_and(same));
                    }
                }
            }
            let hour = Duration::from_secs(3600);
            for (start, (at, method)) in sent.iter().enumerate() {
                let within = sent[start..].iter().take_while(|(later, _)| later.as_nanos() < (*at + hour).as_nanos());
                prop_assert!(within.count() <= 10);
                let again = sent[start + 1..].iter().find(|(_, by)| by == method);
                prop_assert!(again.is_none_or(|(later, _)| *later >= *at + INTERVAL));
            }
        }
    }

    #[test]
    fn another_method_needs_no_wait_but_shares_the_limit() {
        let (mut now, mut sends) = (UnixTime::from_secs(1_000_000), SentCodes::default());
        for round in 0..5 {
            for method in [SMS, Method::Whatsapp] {
                sends = sends.one_more(method, limit(method), now).unwrap();
                let again = sends.one_more(method, limit(method), now);
                assert_eq!(again, Err(SendRefused::TooSoon(INTERVAL)), "{round}");
            }
            now = now + INTERVAL;
        }
        assert_eq!(sends.one_more(SMS, limit(SMS), now), Err(SendRefused::TooMany(Duration::from_secs(3600 - 150))));
    }
}
