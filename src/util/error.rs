//! Errors of invalid settings.

use std::{borrow::Cow, fmt};

/// An invalid setting.
///
/// Setters that can fail return this error, so that a bad configuration prevents the start and
/// never fails a request. It names the setting and the given value.
///
/// ```
/// let error = tollgate::Quota::per_minute(0).unwrap_err();
/// assert_eq!(error.to_string(), "quota limit: 0 is not usable: must be at least 1");
///
/// // without a value
/// let error = "".parse::<tollgate::Quota>().unwrap_err();
/// assert_eq!(error.to_string(), "quota must be written like 600/minute, 5/10s or 10000/day fixed");
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

    /// Adds the place in the document where the value was found.
    #[cfg(feature = "login")]
    pub(crate) fn at(self, place: impl fmt::Display) -> Self {
        Self { value: format!("{place}: {}", self.value), ..self }
    }

    /// Returns the name of the setting, such as `quota limit`.
    pub fn setting(&self) -> &str {
        self.setting
    }

    /// Returns the given value. It is empty if the setting is missing.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns why the value is invalid.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.as_str() {
            "" => write!(f, "{} {}", self.setting, self.reason),
            value => write!(f, "{}: {value} is not usable: {}", self.setting, self.reason),
        }
    }
}

impl std::error::Error for ConfigError {}
