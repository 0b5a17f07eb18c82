//! Errors of invalid settings, and how errors are logged.

use std::{borrow::Cow, error::Error, fmt, ops::RangeBounds};

/// An invalid setting.
///
/// Setters that can fail return this error, so that a bad configuration fails at startup, never during a request. It
/// names the setting and the given value.
///
/// ```
/// let error = tollgate::Quota::per_minute(0).unwrap_err();
/// assert_eq!(error.to_string(), "quota limit: 0 is not usable: must be at least 1");
///
/// // without a value
/// let error = "".parse::<tollgate::Quota>().unwrap_err();
/// assert_eq!(error.to_string(), "quota must be written like 600/minute, 5/10s, 10000/day fixed or 5 concurrent");
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

    /// Returns an error if a value is refused.
    pub(crate) fn refuse_if(
        is_refused: bool,
        setting: &'static str,
        value: impl fmt::Display,
        reason: &'static str,
    ) -> Result<(), Self> {
        if is_refused { Err(Self::new(setting, value, reason)) } else { Ok(()) }
    }

    /// Returns an error unless a word has 1 to `most` characters that are allowed in names.
    pub(crate) fn check_word(setting: &'static str, word: &str, most: usize) -> Result<(), Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        match (1..=most).contains(&word.len()) && word.bytes().all(allowed) {
            true => Ok(()),
            false => Err(Self::new(setting, word, format!("must be 1 to {most} letters, digits, '.', '_' or '-'"))),
        }
    }

    /// Returns an error unless a value is in its range.
    pub(crate) fn check_range<T: Copy + PartialOrd + fmt::Debug>(
        setting: &'static str,
        value: T,
        range: impl RangeBounds<T>,
        reason: &'static str,
    ) -> Result<(), Self> {
        Self::refuse_if(!range.contains(&value), setting, format_args!("{value:?}"), reason)
    }

    /// Refuses a time of zero.
    pub(crate) fn refuse_zero(setting: &'static str, time: std::time::Duration) -> Result<(), Self> {
        Self::refuse_if(time.is_zero(), setting, format_args!("{time:?}"), "must be longer than zero")
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

impl Error for ConfigError {}

/// The maximum number of errors of a chain that are logged, and of characters of each of them.
const MOST_SOURCES: usize = 8;
const LONGEST_TEXT: usize = 500;

/// Returns an error with its sources, in one line for the log: `the store is not available: connection refused`.
///
/// The texts come from applications and from other servers, so control characters are left out and long texts are cut. A
/// source whose text the error before it ends with already is left out too.
pub(crate) fn with_sources(error: &(dyn Error + 'static)) -> String {
    let (mut line, mut next) = (String::new(), Some(error));
    for _ in 0..MOST_SOURCES {
        let Some(error) = next else { break };
        next = error.source();
        let text = error.to_string();
        let text: String = text.chars().filter(|character| !character.is_control()).take(LONGEST_TEXT).collect();
        if !line.is_empty() && line.ends_with(&text) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&text);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Layer(String, Option<Box<Layer>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|source| source as _)
        }
    }

    fn layers(texts: &[&str]) -> Layer {
        let [own, sources @ ..] = texts else { unreachable!() };
        Layer((*own).to_owned(), (!sources.is_empty()).then(|| Box::new(layers(sources))))
    }

    #[test]
    fn b12_the_log_shows_an_error_with_its_sources_in_one_line_of_bounded_length() {
        for (texts, expected) in [
            (&["a"][..], "a"),
            (&["a", "b", "c"], "a: b: c"),
            (&["failed: disk full", "disk full"], "failed: disk full"),
            (&["two\r\nlines\u{1b}[1m", "x"], "twolines[1m: x"),
        ] {
            assert_eq!(with_sources(&layers(texts)), expected);
        }
        let long = "é".repeat(10_000);
        let line = with_sources(&layers(&(0..100).map(|_| [long.as_str(), "x"]).collect::<Vec<_>>().concat()));
        assert!(line.chars().count() < MOST_SOURCES * (LONGEST_TEXT + 2), "{} characters", line.chars().count());
    }
}
