//! Calls `tracing` if the feature is enabled, so that call sites need no `cfg`.

#[cfg(feature = "tracing")]
macro_rules! warning {
    ($($arg:tt)*) => { ::tracing::warn!($($arg)*) };
}

#[cfg(not(feature = "tracing"))]
macro_rules! warning {
    ($($arg:tt)*) => { { let _ = ::std::format_args!($($arg)*); } };
}

/// Warns of an error, with its sources.
macro_rules! failure {
    ($what:literal, $error:expr) => {
        $crate::util::trace::warning!("{}: {}", $what, $crate::util::error::with_sources($error))
    };
}

pub(crate) use {failure, warning};
