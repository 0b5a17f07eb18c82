//! Why a call failed.

use std::sync::Arc;

use redis::RedisError;

/// A failed call.
#[derive(Clone, Debug)]
pub(crate) struct RedisFailure {
    pub(crate) kind: FailureKind,
    /// A fixed word for the event log, which must not show what the server says.
    pub(crate) reason: &'static str,
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
        let reason = match kind {
            FailureKind::Unavailable => "no_connection",
            FailureKind::Full => "out_of_memory",
            FailureKind::Misconfigured | FailureKind::Corrupt => "error",
        };
        Self { kind, reason, text: text.into() }
    }

    /// The server has not answered within the deadline.
    pub(crate) fn late(text: &str) -> Self {
        Self { reason: "no_answer", ..Self::new(FailureKind::Unavailable, text) }
    }
}

impl From<&RedisError> for RedisFailure {
    fn from(error: &RedisError) -> Self {
        let text = error.to_string();
        let kind = match error.code() {
            Some("OOM") => FailureKind::Full,
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => FailureKind::Misconfigured,
            Some("WRONGTYPE") => FailureKind::Corrupt,
            // a script can't read a value. Errors of its commands have `@user_script:`
            _ if text.contains(" user_script:") => FailureKind::Corrupt,
            _ => FailureKind::Unavailable,
        };
        let reason = match error.code() {
            Some("OOM") => "out_of_memory",
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => "access_denied",
            Some("READONLY") => "read_only",
            Some("LOADING") => "loading",
            _ if error.is_timeout() => "no_answer",
            _ if error.is_io_error() || error.is_unrecoverable_error() => "no_connection",
            _ => "error",
        };
        Self { kind, reason, text: text.into() }
    }
}

crate::util::fmt::text_error!(RedisFailure, |own| &own.text);
