//! [`ConfigError`]: what is wrong with a setting, said at the setter.

use std::{borrow::Cow, fmt};

/// A setting that can't be used.
///
/// Every fallible setter answers with one, at the call, so that a bad
/// configuration stops the start-up and never the first request. It names the
/// setting and the value that was given.
///
/// ```
/// let error = tollgate::Quota::per_minute(0).unwrap_err();
/// assert_eq!(error.to_string(), "quota limit: 0 is not usable: must be at least 1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    setting: &'static str,
    value: String,
    reason: Cow<'static, str>,
}

impl ConfigError {
    pub(crate) fn new(setting: &'static str, value: impl fmt::Display, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { setting, value: value.to_string(), reason: reason.into() }
    }

    /// Says where in a document the value stands.
    #[cfg(feature = "login")]
    pub(crate) fn at(self, place: impl fmt::Display) -> Self {
        Self { value: format!("{place}: {}", self.value), ..self }
    }

    /// The setting, such as `quota limit`.
    pub fn setting(&self) -> &str {
        self.setting
    }

    /// The value that was given.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Why it can't be used.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} is not usable: {}", self.setting, self.value, self.reason)
    }
}

impl std::error::Error for ConfigError {}
