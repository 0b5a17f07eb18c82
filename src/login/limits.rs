//! How long logins and one-time codes last, and how failed attempts slow callers down.

use std::time::Duration;

use crate::util::{builder::setters, error::ConfigError};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The lifetimes of logins and one-time codes, and how failed attempts slow callers down.
///
/// | Setting | Default | Allowed |
/// |---|---|---|
/// | [`idle_timeout`](Self::idle_timeout) | 10 minutes | 1 minute to 1 hour |
/// | [`absolute_timeout`](Self::absolute_timeout) | 30 minutes | `idle_timeout` to 24 hours |
/// | [`completion_window`](Self::completion_window) | 5 minutes | 10 seconds to 5 minutes |
/// | [`code_lifetime`](Self::code_lifetime) | 5 minutes | 1 to 10 minutes |
/// | [`code_attempts`](Self::code_attempts) | 5 | 1 to 5 |
/// | [`resend_interval`](Self::resend_interval) | 30 seconds | 30 seconds to 10 minutes |
/// | [`free_failures`](Self::free_failures) | 5 | 1 to 10 |
/// | [`first_wait`](Self::first_wait) | 30 seconds | 30 seconds to `longest_wait` |
/// | [`longest_wait`](Self::longest_wait) | 1 hour | `first_wait` to 24 hours |
/// | [`failure_ceiling`](Self::failure_ceiling) | 100 | `free_failures` to 100 |
/// | [`failure_memory`](Self::failure_memory) | 24 hours | 24 hours to 30 days |
/// | [`device_lifetime`](Self::device_lifetime) | 90 days | 1 to 400 days |
///
/// The bounds come from NIST SP 800-63B and OWASP ASVS. The service checks them when it is built. A login keeps the
/// timeouts that were set when it began.
///
/// ```
/// use std::time::Duration;
/// use tollgate::auth::LoginLimits;
///
/// let limits = LoginLimits::new().idle_timeout(Duration::from_secs(5 * 60)).code_attempts(3);
/// # let _ = limits;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct LoginLimits {
    pub(super) idle_timeout: Duration,
    pub(crate) absolute_timeout: Duration,
    pub(super) completion_window: Duration,
    pub(crate) code_lifetime: Duration,
    pub(super) code_attempts: u8,
    pub(crate) resend_interval: Duration,
    pub(super) free_failures: u32,
    pub(super) first_wait: Duration,
    pub(super) longest_wait: Duration,
    pub(super) failure_ceiling: u32,
    pub(super) failure_memory: Duration,
    pub(crate) device_lifetime: Duration,
}

impl LoginLimits {
    /// Creates the default limits.
    pub fn new() -> Self {
        Self {
            idle_timeout: 10 * MINUTE,
            absolute_timeout: 30 * MINUTE,
            completion_window: 5 * MINUTE,
            code_lifetime: 5 * MINUTE,
            code_attempts: 5,
            resend_interval: 30 * SECOND,
            free_failures: 5,
            first_wait: 30 * SECOND,
            longest_wait: HOUR,
            failure_ceiling: 100,
            failure_memory: DAY,
            device_lifetime: 90 * DAY,
        }
    }

    setters! {
        /// Ends a login after this time without progress.
        pub fn idle_timeout(timeout: Duration) { idle_timeout: timeout }

        /// Ends a login this long after its start, even if it makes progress.
        pub fn absolute_timeout(timeout: Duration) { absolute_timeout: timeout }

        /// Sets how long the browser may take from `complete` to `/authorize`.
        pub fn completion_window(window: Duration) { completion_window: window }

        /// Sets how long a one-time code can be used.
        pub fn code_lifetime(lifetime: Duration) { code_lifetime: lifetime }

        /// Sets how many wrong guesses invalidate a one-time code.
        pub fn code_attempts(attempts: u8) { code_attempts: attempts }

        /// Sets the minimum time between two one-time codes by one method.
        pub fn resend_interval(interval: Duration) { resend_interval: interval }

        /// Sets how many failures in a row each name and method may have before the next attempt must wait.
        pub fn free_failures(failures: u32) { free_failures: failures }

        /// Sets the wait after the last free failure. Each further failure doubles it.
        pub fn first_wait(wait: Duration) { first_wait: wait }

        /// Sets the longest wait between two attempts.
        pub fn longest_wait(wait: Duration) { longest_wait: wait }

        /// Sets how many failures in a row lock an account's method until they are forgotten. The last fifth is kept for
        /// trusted browsers.
        pub fn failure_ceiling(failures: u32) { failure_ceiling: failures }

        /// Sets how long failures are remembered after the last of them.
        pub fn failure_memory(memory: Duration) { failure_memory: memory }

        /// Sets how long a browser stays trusted after a complete login. Its attempts are counted separately from
        /// those of other browsers.
        pub fn device_lifetime(lifetime: Duration) { device_lifetime: lifetime }
    }

    /// Checks the bounds in the table above.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        ConfigError::check_range("login idle_timeout", self.idle_timeout, MINUTE..=HOUR, "must be 1 minute to 1 hour")?;
        let reason = "must be idle_timeout to 24 hours";
        ConfigError::check_range("login absolute_timeout", self.absolute_timeout, self.idle_timeout..=DAY, reason)?;
        let reason = "must be 10 seconds to 5 minutes";
        ConfigError::check_range("login completion_window", self.completion_window, 10 * SECOND..=5 * MINUTE, reason)?;
        let reason = "must be 1 to 10 minutes";
        ConfigError::check_range("login code_lifetime", self.code_lifetime, MINUTE..=10 * MINUTE, reason)?;
        ConfigError::check_range("login code_attempts", self.code_attempts, 1..=5, "must be 1 to 5")?;
        let reason = "must be 30 seconds to 10 minutes";
        ConfigError::check_range("login resend_interval", self.resend_interval, 30 * SECOND..=10 * MINUTE, reason)?;
        ConfigError::check_range("login free_failures", self.free_failures, 1..=10, "must be 1 to 10")?;
        let reason = "must be 30 seconds to longest_wait";
        ConfigError::check_range("login first_wait", self.first_wait, 30 * SECOND..=self.longest_wait, reason)?;
        let reason = "must be first_wait to 24 hours";
        ConfigError::check_range("login longest_wait", self.longest_wait, self.first_wait..=DAY, reason)?;
        let reason = "must be free_failures to 100";
        ConfigError::check_range("login failure_ceiling", self.failure_ceiling, self.free_failures..=100, reason)?;
        let reason = "must be 24 hours to 30 days";
        ConfigError::check_range("login failure_memory", self.failure_memory, DAY..=30 * DAY, reason)?;
        let reason = "must be 1 to 400 days";
        ConfigError::check_range("login device_lifetime", self.device_lifetime, DAY..=400 * DAY, reason)
    }
}

crate::util::builder::default_by_new!(LoginLimits);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c055_c059_c087_c110_settings_stay_within_the_limits_of_the_standards() {
        type Set = fn(Duration) -> LoginLimits;
        assert_eq!(LoginLimits::default().validate(), Ok(()));
        let settings: [(Set, Duration, Duration); 9] = [
            (|it| LoginLimits::new().idle_timeout(it), MINUTE, 30 * MINUTE),
            (|it| LoginLimits::new().absolute_timeout(it), 10 * MINUTE, DAY),
            (|it| LoginLimits::new().completion_window(it), 10 * SECOND, 5 * MINUTE),
            (|it| LoginLimits::new().code_lifetime(it), MINUTE, 10 * MINUTE),
            (|it| LoginLimits::new().resend_interval(it), 30 * SECOND, 10 * MINUTE),
            (|it| LoginLimits::new().first_wait(it), 30 * SECOND, HOUR),
            (|it| LoginLimits::new().longest_wait(it), 30 * SECOND, DAY),
            (|it| LoginLimits::new().failure_memory(it), DAY, 30 * DAY),
            (|it| LoginLimits::new().device_lifetime(it), DAY, 400 * DAY),
        ];
        for (at, (set, least, most)) in settings.into_iter().enumerate() {
            let nanosecond = Duration::from_nanos(1);
            assert_eq!((set(least).validate(), set(most).validate()), (Ok(()), Ok(())), "{at}");
            for wrong in [Duration::ZERO, least - nanosecond, most + nanosecond, Duration::MAX] {
                assert!(set(wrong).validate().is_err(), "{at}: {wrong:?}");
            }
        }
        for (limits, is_valid) in [
            (LoginLimits::new().code_attempts(1), true),
            (LoginLimits::new().code_attempts(0), false),
            (LoginLimits::new().code_attempts(6), false),
            (LoginLimits::new().free_failures(0), false),
            (LoginLimits::new().free_failures(11), false),
            (LoginLimits::new().failure_ceiling(5), true),
            (LoginLimits::new().failure_ceiling(4), false),
            (LoginLimits::new().failure_ceiling(101), false),
            (LoginLimits::new().idle_timeout(HOUR), false),
            (LoginLimits::new().idle_timeout(HOUR).absolute_timeout(HOUR), true),
        ] {
            assert_eq!(limits.validate().is_ok(), is_valid, "{limits:?}");
        }
        let error = LoginLimits::new().code_lifetime(HOUR).validate().unwrap_err();
        assert_eq!(error.to_string(), "login code_lifetime: 3600s is not usable: must be 1 to 10 minutes");
    }
}
