//! [`LimiterError`]: why a limiter can't reach what it shares with other processes.

use std::{error::Error, fmt};

#[cfg(feature = "redis")]
use crate::{
    redis::{FailureKind, RedisFailure},
    util::error::ConfigError,
};

/// The error of a call to a limiter or to plans on a server. A limiter in memory never fails.
#[derive(Clone, Debug)]
pub struct LimiterError {
    kind: LimiterErrorKind,
    detail: String,
}

/// The kind of a [`LimiterError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimiterErrorKind {
    /// A setting or the text of a plan is invalid.
    Invalid,
    /// The server could not be reached or has not answered in time. The call may have taken effect.
    Unavailable,
    /// The server has no memory left.
    Full,
    /// The server refuses the call, or is configured in a way that may lose what it counts.
    Misconfigured,
    /// The server has sent an unexpected answer.
    Corrupt,
}

impl LimiterError {
    #[cfg(feature = "redis")]
    pub(super) fn new(kind: LimiterErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> LimiterErrorKind {
        self.kind
    }
}

#[cfg(feature = "redis")]
impl From<RedisFailure> for LimiterError {
    fn from(failure: RedisFailure) -> Self {
        let kind = match failure.kind {
            FailureKind::Unavailable => LimiterErrorKind::Unavailable,
            FailureKind::Full => LimiterErrorKind::Full,
            FailureKind::Misconfigured => LimiterErrorKind::Misconfigured,
            FailureKind::Corrupt => LimiterErrorKind::Corrupt,
        };
        Self::new(kind, failure.to_string())
    }
}

#[cfg(feature = "redis")]
impl From<ConfigError> for LimiterError {
    fn from(error: ConfigError) -> Self {
        Self::new(LimiterErrorKind::Invalid, error.to_string())
    }
}

impl fmt::Display for LimiterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shared limits: {}", self.detail)
    }
}

impl Error for LimiterError {}
