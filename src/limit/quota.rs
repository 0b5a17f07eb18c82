//! A quota: how many units in what time, by which rule.

use std::{collections::BTreeSet, fmt, str::FromStr, sync::Mutex, time::Duration};

#[cfg(feature = "smooth")]
use crate::util::clock::saturating_nanos;
use crate::util::{error::ConfigError, lock::lock, scan::parse_digits};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);
pub(super) const DEFAULT_SLICES: u16 = 60;
const DEFAULT_NAME: &str = "default";
const CONCURRENT_NAME: &str = "concurrent";

/// A limit on the units that a tenant may spend in a period of time, and the rule by which they count.
///
/// | constructor | rule | the most units in any window |
/// |---|---|---|
/// | [`per_minute`](Self::per_minute) and similar, [`new`](Self::new) | sliding window | the limit, never more |
/// | `smooth` (feature `smooth`) | GCRA | `burst + units` |
/// | [`fixed`](Self::fixed) | calendar window | twice the limit, across a boundary |
/// | [`concurrent`](Self::concurrent) | open calls | none: it limits how many are open at the same time |
///
/// A limit that is known at compile time is checked by the compiler in [`const_per_minute`](Self::const_per_minute), which
/// returns no error.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Quota;
///
/// let quota = Quota::const_per_minute::<600>();
/// assert_eq!((quota, quota.to_string()), (Quota::per_minute(600)?, String::from("600/minute")));
/// let burst = Quota::per_second(10)?.with_name("burst")?;
/// let daily = Quota::fixed(10_000, Duration::from_secs(86_400))?.with_name("daily")?.shadow();
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
    /// Units that anonymous requests can't spend.
    reserved: u32,
    unit: Option<&'static str>,
}

/// How units come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Rule {
    /// One window after they were spent. Units spent in one slice of the window come back together.
    Window { slices: u16 },
    /// One every `interval` nanoseconds.
    #[cfg(feature = "smooth")]
    Smooth { interval: u64 },
    /// All at once, at multiples of the window since the Unix epoch.
    Fixed,
    /// One when a call ends.
    Concurrent,
}

impl Quota {
    /// Allows at most `limit` units in **every** window of this length, from one
    /// millisecond to 366 days.
    ///
    /// The window slides: a unit comes back one window after it was spent. Units spent
    /// within a 60th of the window come back together, with the last of them; see
    /// [`slices`](Self::slices).
    ///
    /// # Errors
    ///
    /// Returns an error if the limit is zero or the window is too short or too long. The same is true
    /// of all constructors.
    pub fn new(limit: u32, window: Duration) -> Result<Self, ConfigError> {
        Self::checked(limit, window, Rule::Window { slices: DEFAULT_SLICES })
    }

    /// Allows at most `limit` units in every second.
    pub fn per_second(limit: u32) -> Result<Self, ConfigError> {
        Self::new(limit, Duration::from_secs(1))
    }

    /// Allows at most `limit` units in every minute.
    pub fn per_minute(limit: u32) -> Result<Self, ConfigError> {
        Self::new(limit, Duration::from_secs(60))
    }

    /// Allows at most `limit` units in every hour.
    pub fn per_hour(limit: u32) -> Result<Self, ConfigError> {
        Self::new(limit, Duration::from_secs(60 * 60))
    }

    /// Allows at most `limit` units in every 24 hours.
    pub fn per_day(limit: u32) -> Result<Self, ConfigError> {
        Self::new(limit, DAY)
    }

    /// Allows at most `LIMIT` units in every minute. Zero does not compile.
    ///
    /// ```compile_fail
    /// tollgate::Quota::const_per_minute::<0>();
    /// ```
    pub fn const_per_minute<const LIMIT: u32>() -> Self {
        const { assert!(LIMIT > 0, "a quota must allow at least 1 unit") };
        Self::from_rule(LIMIT, Duration::from_secs(60), Rule::Window { slices: DEFAULT_SLICES })
    }

    /// Allows `units` per `per`, evenly spread, and up to `burst` at once after a pause (GCRA, from the crate
    /// `governor`).
    ///
    /// It spreads the load but does not bound a window: a window of length `per` can see
    /// `burst + units`.
    #[cfg(feature = "smooth")]
    pub fn smooth(units: u32, per: Duration, burst: u32) -> Result<Self, ConfigError> {
        let quota = Self::checked(burst, per, Rule::Fixed)?;
        ConfigError::refuse_if(units == 0, "quota rate", units, "must be at least 1")?;
        // rounded up: never faster than asked for
        let interval = saturating_nanos(per).div_ceil(u64::from(units));
        let refill = Duration::from_nanos(interval.saturating_mul(u64::from(burst)));
        ConfigError::refuse_if(refill > LONGEST, "quota burst", burst, "must refill within 366 days")?;
        Ok(Self { window: refill, rule: Rule::Smooth { interval }, ..quota })
    }

    /// Allows at most `limit` units in each calendar window. Windows begin at multiples
    /// of `period` since 1970-01-01T00:00:00Z, so a period of 24 hours is a UTC day.
    ///
    /// A tenant that spends late in one window and early in the next can spend twice the
    /// limit in one period.
    ///
    /// Windows follow the wall clock at each decision, so they stay in step even if the machine was suspended. No
    /// window begins twice: if the clock is set back, the current window lasts until the clock reaches its end. If the
    /// clock was far ahead by mistake, restart the process. With a `SharedLimiter`, the clock is that of the server,
    /// and all this holds if it is set back by at most a window and at most an hour.
    pub fn fixed(limit: u32, period: Duration) -> Result<Self, ConfigError> {
        Self::checked(limit, period, Rule::Fixed)
    }

    /// Allows at most `limit` calls that are open at the same time. Its name defaults to `concurrent`.
    ///
    /// A call is open from its admission until its response body, or its upgraded connection, has ended. Something must
    /// track that: a layer with [`tracking_bodies`](super::RateLimitLayer::tracking_bodies), or a
    /// [`Hold`](super::Hold). Under such a plan, requests that nothing tracks are refused, and so is an upgrade whose
    /// handler keeps no [`Usage`](super::Usage).
    ///
    /// Requests that other parts of this crate charge, without a layer of this module, take no slot: they are charged
    /// only to the rates of the plan. So give such a plan a rate, too. `docs/layers.md` names them.
    ///
    /// A request that was admitted before its plan had such a quota does not count. A hold does, unless its plan was
    /// [unlimited](super::Plan::unlimited) when it was opened. Each call counts as one, even if it costs several units. In a plan that also has rates, a request is charged to all quotas or to
    /// none. On Redis, a key has at most 1,024 open calls, even under a higher limit.
    ///
    /// # Errors
    ///
    /// Returns an error if the limit is zero.
    pub fn concurrent(limit: u32) -> Result<Self, ConfigError> {
        ConfigError::refuse_if(limit == 0, "quota limit", limit, "must be at least 1")?;
        Ok(Self { name: CONCURRENT_NAME, ..Self::from_rule(limit, Duration::ZERO, Rule::Concurrent) })
    }

    fn checked(limit: u32, window: Duration, rule: Rule) -> Result<Self, ConfigError> {
        ConfigError::refuse_if(limit == 0, "quota limit", limit, "must be at least 1")?;
        ConfigError::check_range("quota window", window, SHORTEST..=LONGEST, "must be from 1 ms to 366 days")?;
        Ok(Self::from_rule(limit, window, rule))
    }

    fn from_rule(limit: u32, window: Duration, rule: Rule) -> Self {
        Self { name: DEFAULT_NAME, limit, window, rule, shadow: false, reserved: 0, unit: None }
    }

    /// Sets the name that headers, problem documents and events show: 1 to 32 letters,
    /// digits, `.`, `_` or `-`. Defaults to `default`.
    ///
    /// Names are kept for the life of the process. Take them from your configuration,
    /// never from requests.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is too long or has other characters.
    pub fn with_name(self, name: &str) -> Result<Self, ConfigError> {
        ConfigError::check_word("quota name", name, 32)?;
        Ok(Self { name: intern_word(name), ..self })
    }

    /// Sets the unit that the parameter `qu` of the IETF fields names: 1 to 32 letters, digits, `.`, `_` or `-`, such
    /// as `content-bytes`. It does not affect the limit.
    ///
    /// Defaults to `requests`, or to `units` in a [metered](super::TrackingLayer::metered) layer or one with a
    /// [`cost`](super::RateLimitLayer::cost). For a quota of concurrent calls, it is always `concurrent-requests`.
    ///
    /// Units are kept for the life of the process, as names are.
    ///
    /// # Errors
    ///
    /// Returns an error if the unit is too long or has other characters, or if the quota limits concurrent calls.
    pub fn with_unit(self, unit: &str) -> Result<Self, ConfigError> {
        ConfigError::check_word("quota unit", unit, 32)?;
        let is_concurrent = self.rule == Rule::Concurrent;
        ConfigError::refuse_if(is_concurrent, "quota unit", unit, "a quota of concurrent calls counts calls")?;
        Ok(Self { unit: Some(intern_word(unit)), ..self })
    }

    /// Sets how many slices a sliding window is divided into, from 1 to 1000. Defaults to 60.
    ///
    /// Units spent in one slice come back together. More slices need more memory for a
    /// busy tenant (16 bytes each) and give units back sooner.
    ///
    /// # Errors
    ///
    /// Returns an error if the number is out of range, or if the quota has no sliding window.
    pub fn slices(self, slices: u16) -> Result<Self, ConfigError> {
        match self.rule {
            Rule::Window { .. } if (1..=1000).contains(&slices) => Ok(Self { rule: Rule::Window { slices }, ..self }),
            Rule::Window { .. } => Err(ConfigError::new("quota slices", slices, "must be from 1 to 1000")),
            _ => Err(ConfigError::new("quota slices", slices, "only a sliding window has slices")),
        }
    }

    /// Turns the quota into a shadow: what it would refuse is logged and marked, but
    /// admitted.
    pub fn shadow(self) -> Self {
        Self { shadow: true, ..self }
    }

    /// Reserves this part of the quota, from 0 to 1, for authenticated requests: those with
    /// an API key, an access token or a session. By default, any request can spend all of it.
    ///
    /// All anonymous requests of a tenant together never spend more than the rest. So callers who know only a tenant's
    /// name or public client id can't use up its budget. Authenticated requests can spend the whole quota, the rest
    /// included. The reserve is rounded up to whole units, and a smooth quota gives the rest back more slowly in
    /// proportion. For a quota of concurrent calls, it reserves slots, which anonymous callers could otherwise keep for
    /// as long as their calls last.
    ///
    /// A request is anonymous if its source only [claims](crate::tenant::TenantName::is_claimed)
    /// the tenant: [`HeaderTenant`](crate::tenant::HeaderTenant), `PathTenant`,
    /// `HostTenant`, [`ClientIp`](crate::ClientIp), a fixed tenant and a closure do, except in a
    /// [`ProvedTenant`](crate::tenant::ProvedTenant).
    ///
    /// The headers of an anonymous request show the limit of the whole quota, the units that
    /// anonymous requests have left, and the time at which those come back.
    ///
    /// ```
    /// use tollgate::{Limiter, Quota, Plans, Tenant};
    ///
    /// let limiter = Limiter::memory(Plans::new(Quota::per_minute(600)?.reserve(0.5)?));
    /// let acme = Tenant::parse("acme")?;
    /// assert!(limiter.check_anonymous(&acme, 300).is_admitted());
    /// assert!(!limiter.check_anonymous(&acme, 1).is_admitted());
    /// assert!(limiter.check(&acme, 300).is_admitted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the part is not between 0 and 1.
    pub fn reserve(self, fraction: f64) -> Result<Self, ConfigError> {
        ConfigError::refuse_if(!(0.0..=1.0).contains(&fraction), "quota reserve", fraction, "must be from 0 to 1")?;
        // 0.07 of 100 is 7.000000000000001
        let reserved = (f64::from(self.limit) * fraction - 1e-6).ceil();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is from 0 to the limit, and casts saturate"
        )]
        let reserved = (reserved as u32).min(self.limit);
        Ok(Self { reserved, ..self })
    }

    /// Reserves this many units, which must not be more than the limit.
    pub(super) fn reserve_units(self, reserved: u32) -> Option<Self> {
        (reserved <= self.limit).then_some(Self { reserved, ..self })
    }

    /// Returns the units that anonymous requests can't spend; see [`reserve`](Self::reserve).
    pub fn reserved(&self) -> u32 {
        self.reserved
    }

    /// Returns the unit, if it was [set](Self::with_unit).
    pub fn unit(&self) -> Option<&'static str> {
        self.unit
    }

    /// Returns the name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the maximum number of units at once: the limit, or the burst of a smooth
    /// quota.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the window: the time in which a spent quota comes back completely. Zero for a quota of concurrent calls.
    pub fn window(&self) -> Duration {
        self.window
    }

    /// Returns whether the quota is a [`shadow`](Self::shadow).
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Returns whether the quota has the name that its constructor gives.
    pub(super) fn has_default_name(&self) -> bool {
        self.name == if self.rule == Rule::Concurrent { CONCURRENT_NAME } else { DEFAULT_NAME }
    }

    pub(super) fn rule(&self) -> Rule {
        self.rule
    }
}

/// Units of time, the longest first.
const UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1000),
    ("ns", 1),
];

const WINDOWS: [(&str, Duration); 4] = [
    ("second", Duration::from_secs(1)),
    ("minute", Duration::from_secs(60)),
    ("hour", Duration::from_secs(60 * 60)),
    ("day", DAY),
];

/// Writes the limit, the window and the rule: `600/minute`, `5/10s`, `10000/day fixed`, `20/2s smooth`, `5 concurrent`. The text of a
/// [`Plan`](super::Plan) shows the other settings, too.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rule == Rule::Concurrent {
            return write!(f, "{} concurrent", self.limit);
        }
        write!(f, "{}/", self.limit)?;
        if let Some((name, _)) = WINDOWS.iter().find(|(_, window)| *window == self.window) {
            f.write_str(name)?;
        } else {
            let nanos = self.window.as_nanos();
            let unit = UNITS.iter().find(|(_, unit)| nanos.is_multiple_of(u128::from(*unit)));
            let (name, unit) = unit.copied().unwrap_or(("ns", 1));
            write!(f, "{}{name}", nanos / u128::from(unit))?;
        }
        f.write_str(match self.rule {
            Rule::Window { .. } => "",
            #[cfg(feature = "smooth")]
            Rule::Smooth { .. } => " smooth",
            Rule::Fixed => " fixed",
            Rule::Concurrent => " concurrent",
        })
    }
}

/// Reads what [`Display`](fmt::Display) writes. Windows are `second`, `minute`, `hour`, `day`, or a number with `d`, `h`, `m`, `s` or
/// `ms`. A smooth quota gives back its limit, which is also its burst, in the given time.
impl FromStr for Quota {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let malformed = || {
            ConfigError::new("quota", text, "must be written like 600/minute, 5/10s, 10000/day fixed or 5 concurrent")
        };
        let count = |limit: &str| parse_digits(limit).and_then(|limit| u32::try_from(limit).ok()).ok_or_else(malformed);
        if let Some(limit) = text.strip_suffix(" concurrent") {
            return Self::concurrent(count(limit)?);
        }
        let (limit, rest) = text.split_once('/').ok_or_else(malformed)?;
        let (window, rule) = rest.split_once(' ').unwrap_or((rest, ""));
        let limit = count(limit)?;
        let window = duration(window).ok_or_else(malformed)?;
        match rule {
            "" => Self::new(limit, window),
            "fixed" => Self::fixed(limit, window),
            #[cfg(feature = "smooth")]
            "smooth" if window >= SHORTEST => Self::smooth(limit, window, limit),
            // units may come back faster than a window may be short
            #[cfg(feature = "smooth")]
            "smooth" => {
                let interval = saturating_nanos(window).div_ceil(u64::from(limit.max(1)));
                Self::smooth(1_000_000, Duration::from_millis(interval), limit)
            }
            _ => Err(malformed()),
        }
    }
}

fn duration(text: &str) -> Option<Duration> {
    if let Some((_, window)) = WINDOWS.iter().find(|(name, _)| *name == text) {
        return Some(*window);
    }
    let (count, name) = text.split_at(text.find(|char: char| !char.is_ascii_digit())?);
    let (_, unit) = UNITS.iter().find(|(own, _)| *own == name)?;
    Some(Duration::from_nanos(parse_digits(count)?.checked_mul(*unit)?))
}

/// Returns a copy of a name or a unit that lives as long as the process. Each is stored once, so decisions carry it without
/// counting references.
fn intern_word(text: &str) -> &'static str {
    static WORDS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut words = lock(&WORDS);
    if let Some(known) = words.get(text) {
        return known;
    }
    let text: &'static str = Box::leak(text.into());
    words.insert(text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_quota_is_refused_with_the_setting_and_the_value() {
        let refused = |quota: Result<Quota, ConfigError>| {
            let error = quota.unwrap_err();
            (error.setting().to_owned(), error.value().to_owned())
        };
        let named = |setting: &str, value: &str| (setting.to_owned(), value.to_owned());
        let second = Duration::from_secs(1);
        assert_eq!(refused(Quota::per_minute(0)), named("quota limit", "0"));
        assert_eq!(refused(Quota::new(1, Duration::ZERO)), named("quota window", "0ns"));
        assert_eq!(refused(Quota::fixed(1, Duration::MAX)).0, "quota window");
        assert_eq!(refused(Quota::per_day(1).unwrap().with_name("a b")), named("quota name", "a b"));
        assert_eq!(refused(Quota::per_day(1).unwrap().slices(0)), named("quota slices", "0"));
        assert_eq!(refused(Quota::fixed(1, second).unwrap().slices(10)), named("quota slices", "10"));
        for (fraction, value) in [(-0.1, "-0.1"), (1.1, "1.1"), (f64::NAN, "NaN")] {
            assert_eq!(refused(Quota::per_day(1).unwrap().reserve(fraction)), named("quota reserve", value));
        }
    }

    #[cfg(feature = "smooth")]
    #[test]
    fn a_bad_smooth_quota_is_refused_with_the_setting_and_the_value() {
        let second = Duration::from_secs(1);
        for (quota, setting, value) in [
            (Quota::smooth(0, second, 1), "quota rate", "0"),
            (Quota::smooth(1, second, u32::MAX), "quota burst", "4294967295"),
            (Quota::smooth(1, second, 0), "quota limit", "0"),
        ] {
            let error = quota.unwrap_err();
            assert_eq!((error.setting(), error.value()), (setting, value));
        }
    }

    #[test]
    fn a_reserve_is_rounded_up_to_whole_units() {
        for (limit, fraction, reserved) in [
            (600, 0.5, 300),
            (100, 0.07, 7),
            (10, 0.25, 3),
            (1, 0.01, 1),
            (7, 0.0, 0),
            (7, 1.0, 7),
            (u32::MAX, 1.0, u32::MAX),
            (u32::MAX, 0.5, u32::MAX / 2 + 1),
        ] {
            assert_eq!(Quota::per_day(limit).unwrap().reserve(fraction).unwrap().reserved(), reserved, "{fraction}");
        }
    }

    #[test]
    fn a_name_is_stored_once() {
        let name = |text: &str| Quota::per_day(1).unwrap().with_name(text).unwrap().name();
        assert!(std::ptr::eq(name("burst"), name(&String::from("burst"))));
    }
}
