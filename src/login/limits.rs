//! How long logins and one-time codes last, and how failed attempts slow callers down.

use std::time::Duration;

use crate::util::{builder::setters, error::ConfigError};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// How long a login lasts without progress.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// How long the browser may take from `complete` to `/authorize`.
pub(super) const COMPLETION_WINDOW: Duration = Duration::from_secs(5 * 60);
/// The minimum time between two one-time codes by one method.
pub(crate) const RESEND_INTERVAL: Duration = Duration::from_secs(30);
/// The wait after the last free failure. Each further failure doubles it.
pub(super) const FIRST_WAIT: Duration = Duration::from_secs(30);
/// The longest wait between two attempts.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// How long failures are remembered after the last of them.
pub(super) const FAILURE_MEMORY: Duration = DAY;

/// The lifetimes of logins and one-time codes, and how failed attempts slow callers down.
///
/// | Setting | Default | Allowed |
/// |---|---|---|
/// | [`absolute_timeout`](Self::absolute_timeout) | 30 minutes | 10 minutes to 24 hours |
/// | [`code_lifetime`](Self::code_lifetime) | 5 minutes | 1 to 10 minutes |
/// | [`code_attempts`](Self::code_attempts) | 5 | 1 to 5 |
/// | [`free_failures`](Self::free_failures) | 5 | 1 to 10 |
/// | [`failure_ceiling`](Self::failure_ceiling) | 100 | `free_failures` to 100 |
/// | [`device_lifetime`](Self::device_lifetime) | 90 days | 1 to 400 days |
///
/// The bounds come from NIST SP 800-63B and OWASP ASVS. The service checks them when it is built. A login keeps the
/// timeouts that were set when it began.
///
/// ```
/// use std::time::Duration;
/// use tollgate::auth::LoginLimits;
///
/// let limits = LoginLimits::new().absolute_timeout(Duration::from_secs(20 * 60)).code_attempts(3);
/// # let _ = limits;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct LoginLimits {
    pub(crate) absolute_timeout: Duration,
    pub(crate) code_lifetime: Duration,
    pub(super) code_attempts: u8,
    pub(super) free_failures: u32,
    pub(super) failure_ceiling: u32,
    pub(crate) device_lifetime: Duration,
}

impl LoginLimits {
    /// Creates the default limits.
    pub fn new() -> Self {
        Self {
            absolute_timeout: 30 * MINUTE,
            code_lifetime: 5 * MINUTE,
            code_attempts: 5,
            free_failures: 5,
            failure_ceiling: 100,
            device_lifetime: 90 * DAY,
        }
    }

    setters! {
        /// Ends a login this long after its start, even if it makes progress.
        pub fn absolute_timeout(timeout: Duration) { absolute_timeout: timeout }

        /// Sets how long a one-time code can be used.
        pub fn code_lifetime(lifetime: Duration) { code_lifetime: lifetime }

        /// Sets how many wrong guesses invalidate a one-time code.
        pub fn code_attempts(attempts: u8) { code_attempts: attempts }

        /// Sets how many failures in a row each name and method may have before the next attempt must wait.
        pub fn free_failures(failures: u32) { free_failures: failures }

        /// Sets how many failures in a row lock an account's method until they are forgotten. The last fifth is kept for
        /// trusted browsers.
        pub fn failure_ceiling(failures: u32) { failure_ceiling: failures }

        /// Sets how long a browser stays trusted after a complete login. Its attempts are counted separately from
        /// those of other browsers.
        pub fn device_lifetime(lifetime: Duration) { device_lifetime: lifetime }
    }

    /// Checks the bounds in the table above.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let reason = "must be 10 minutes to 24 hours";
        ConfigError::check_range("login absolute_timeout", self.absolute_timeout, IDLE_TIMEOUT..=DAY, reason)?;
        let reason = "must be 1 to 10 minutes";
        ConfigError::check_range("login code_lifetime", self.code_lifetime, MINUTE..=10 * MINUTE, reason)?;
        ConfigError::check_range("login code_attempts", self.code_attempts, 1..=5, "must be 1 to 5")?;
        ConfigError::check_range("login free_failures", self.free_failures, 1..=10, "must be 1 to 10")?;
        let reason = "must be free_failures to 100";
        ConfigError::check_range("login failure_ceiling", self.failure_ceiling, self.free_failures..=100, reason)?;
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
        let settings: [(Set, Duration, Duration); 3] = [
            (|it| LoginLimits::new().absolute_timeout(it), 10 * MINUTE, DAY),
            (|it| LoginLimits::new().code_lifetime(it), MINUTE, 10 * MINUTE),
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
        ] {
            assert_eq!(limits.validate().is_ok(), is_valid, "{limits:?}");
        }
        let error = LoginLimits::new().code_lifetime(Duration::from_secs(3600)).validate().unwrap_err();
        assert_eq!(error.to_string(), "login code_lifetime: 3600s is not usable: must be 1 to 10 minutes");
    }
}
