//! Why a call failed.

use std::{error::Error, fmt, sync::Arc};

use redis::RedisError;

/// A failed call.
#[derive(Clone, Debug)]
pub(crate) struct RedisFailure {
    pub(crate) kind: FailureKind,
    text: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The server could not be reached or has not answered in time. The call may have taken effect.
    Unavailable,
    /// The server has no memory left.
    Full,
    /// The server is not set up as it has to be.
    Misconfigured,
    /// The reply makes no sense.
    Corrupt,
}

impl RedisFailure {
    pub(crate) fn new(kind: FailureKind, text: impl Into<Arc<str>>) -> Self {
        Self { kind, text: text.into() }
    }
}

impl From<&RedisError> for RedisFailure {
    fn from(error: &RedisError) -> Self {
        let kind = match error.code() {
            Some("OOM") => FailureKind::Full,
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => FailureKind::Misconfigured,
            Some("WRONGTYPE") => FailureKind::Corrupt,
            _ => FailureKind::Unavailable,
        };
        Self::new(kind, error.to_string())
    }
}

impl fmt::Display for RedisFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for RedisFailure {}
