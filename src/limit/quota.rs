//! [`Quota`]: so many units in so long a time, and by which rule.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::util::{clock::saturating_nanos, error::ConfigError};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);
const DEFAULT_GRAINS: u16 = 240;

/// How many units a tenant may spend, in what time, by which rule.
///
/// | made by | rule | the most that any window can see |
/// |---|---|---|
/// | [`per_minute`](Self::per_minute) and its like, [`new`](Self::new) | sliding window | the limit, never more |
/// | [`smooth`](Self::smooth) | GCRA | `burst + rate` |
/// | [`fixed`](Self::fixed) | calendar window | twice the limit, across a boundary |
///
/// ```
/// use std::time::Duration;
/// use tollgate::Quota;
///
/// let quota = Quota::per_minute(600)?;
/// let burst = Quota::per_second(10)?.named("burst")?;
/// let daily = Quota::fixed(10_000, Duration::from_secs(86_400))?.named("daily")?.shadow();
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Quota {
    name: &'static str,
    limit: u32,
    window: Duration,
    rule: Rule,
    shadow: bool,
}

/// By which rule units come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Rule {
    /// One window after they were spent, told apart by `grains` per window.
    Window { grains: u16 },
    /// One every `interval` nanoseconds.
    Smooth { interval: u64 },
    /// All at once, at multiples of the window since the Unix epoch.
    Fixed,
}

impl Quota {
    /// At most `limit` units in **every** window of this length, from a
    /// millisecond to 366 days.
    ///
    /// The window slides: a unit comes back one window after it was spent.
    /// Units spent within a 240th of the window of each other come back
    /// together, with the last of them (see [`grains`](Self::grains)).
    pub fn new(limit: u32, window: Duration) -> Result<Self, ConfigError> {
        Self::checked(limit, window, Rule::Window { grains: DEFAULT_GRAINS })
    }

    /// At most `limit` units in every second.
    pub fn per_second(limit: u32) -> Result<Self, ConfigError> {
        Self::new(limit, Duration::from_secs(1))
    }

    /// At most `limit` units in every minute.
    pub fn per_minute(limit: u32) -> Result<Self, ConfigError> {
        Self::new(limit, Duration::from_secs(60))
    }

    /// At most `limit` units in every hour.
    pub fn per_hour(limit: u32) -> Result<Self, ConfigError> {
        Self::new(limit, Duration::from_secs(60 * 60))
    }

    /// At most `limit` units in every 24 hours.
    pub fn per_day(limit: u32) -> Result<Self, ConfigError> {
        Self::new(limit, DAY)
    }

    /// `units` per `per`, evenly, and up to `burst` at once after a pause
    /// (GCRA, through the crate `governor`).
    ///
    /// It spreads the load; it does not bound a window: a window of length
    /// `per` can see `burst + units`.
    pub fn smooth(units: u32, per: Duration, burst: u32) -> Result<Self, ConfigError> {
        let quota = Self::checked(burst, per, Rule::Fixed)?;
        if units == 0 {
            return Err(ConfigError::new("quota rate", units, "must be at least 1"));
        }
        // rounded up: never faster than asked for
        let interval = saturating_nanos(per).div_ceil(u64::from(units));
        let refill = Duration::from_nanos(interval.saturating_mul(u64::from(burst)));
        if refill > LONGEST {
            return Err(ConfigError::new("quota burst", burst, "takes more than 366 days to come back"));
        }
        Ok(Self { window: refill, rule: Rule::Smooth { interval }, ..quota })
    }

    /// At most `limit` units in each window of the calendar: windows begin at
    /// multiples of `period` since 1970-01-01T00:00:00Z, so a period of 24
    /// hours is a UTC day.
    ///
    /// A tenant that spends late in one window and early in the next spends up
    /// to twice the limit in one period. The boundaries are fixed against the
    /// forward-only clock when the limiter is made; a step of the wall clock
    /// after that does not move them. A [`Clock`](crate::Clock) that steps back, as
    /// none should, may begin a window anew that it has left.
    pub fn fixed(limit: u32, period: Duration) -> Result<Self, ConfigError> {
        Self::checked(limit, period, Rule::Fixed)
    }

    fn checked(limit: u32, window: Duration, rule: Rule) -> Result<Self, ConfigError> {
        if limit == 0 {
            return Err(ConfigError::new("quota limit", limit, "must be at least 1"));
        }
        if !(SHORTEST..=LONGEST).contains(&window) {
            return Err(ConfigError::new("quota window", format!("{window:?}"), "must be from 1 ms to 366 days"));
        }
        Ok(Self { name: "default", limit, window, rule, shadow: false })
    }

    /// Names the quota, as it stands in headers, problem documents and events:
    /// 1 to 32 letters, digits, `.`, `_` or `-`. The name is `default` otherwise.
    ///
    /// Names are kept for the life of the process, so take them from your
    /// configuration, not from requests.
    pub fn named(self, name: &str) -> Result<Self, ConfigError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > 32 || !name.bytes().all(allowed) {
            return Err(ConfigError::new("quota name", name, "must be 1 to 32 letters, digits, '.', '_' or '-'"));
        }
        Ok(Self { name: interned(name), ..self })
    }

    /// How finely a sliding window tells times apart: 1 to 1000 parts of the
    /// window, 240 otherwise. More parts take more memory for a busy tenant
    /// (16 bytes each) and hold a unit less long beyond its window.
    pub fn grains(self, grains: u16) -> Result<Self, ConfigError> {
        match self.rule {
            Rule::Window { .. } if (1..=1000).contains(&grains) => Ok(Self { rule: Rule::Window { grains }, ..self }),
            Rule::Window { .. } => Err(ConfigError::new("quota grains", grains, "must be from 1 to 1000")),
            Rule::Smooth { .. } | Rule::Fixed => {
                Err(ConfigError::new("quota grains", grains, "only a sliding window has grains"))
            }
        }
    }

    /// Makes it a shadow: what it would refuse is logged and marked, and
    /// admitted all the same.
    pub fn shadow(self) -> Self {
        Self { shadow: true, ..self }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The most units at once: the limit, or the burst of a smooth quota.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The window: the time in which a spent quota comes back whole.
    pub fn window(&self) -> Duration {
        self.window
    }

    /// Whether it is only a shadow.
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    pub(super) fn rule(&self) -> Rule {
        self.rule
    }
}

/// One copy of each name, so that a decision can carry it without counting references.
fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let kept: &'static str = Box::leak(name.into());
    names.insert(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_quota_is_refused_by_the_value_it_was_given() {
        let refused = |quota: Result<Quota, ConfigError>| {
            let error = quota.unwrap_err();
            (error.setting().to_owned(), error.value().to_owned())
        };
        let named = |setting: &str, value: &str| (setting.to_owned(), value.to_owned());
        let second = Duration::from_secs(1);
        assert_eq!(refused(Quota::per_minute(0)), named("quota limit", "0"));
        assert_eq!(refused(Quota::new(1, Duration::ZERO)), named("quota window", "0ns"));
        assert_eq!(refused(Quota::fixed(1, Duration::MAX)).0, "quota window");
        assert_eq!(refused(Quota::smooth(0, second, 1)), named("quota rate", "0"));
        assert_eq!(refused(Quota::smooth(1, second, u32::MAX)), named("quota burst", "4294967295"));
        assert_eq!(refused(Quota::smooth(1, second, 0)), named("quota limit", "0"));
        assert_eq!(refused(Quota::per_day(1).unwrap().named("a b")), named("quota name", "a b"));
        assert_eq!(refused(Quota::per_day(1).unwrap().grains(0)), named("quota grains", "0"));
        assert_eq!(refused(Quota::fixed(1, second).unwrap().grains(10)), named("quota grains", "10"));
    }

    #[test]
    fn a_name_is_kept_once() {
        let name = |text: &str| Quota::per_day(1).unwrap().named(text).unwrap().name();
        assert!(std::ptr::eq(name("burst"), name(&String::from("burst"))));
    }
}
