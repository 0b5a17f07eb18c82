//! Calls `tracing` if the feature is enabled, so that call sites need no `cfg`.

#[cfg(feature = "tracing")]
macro_rules! warning {
    ($($arg:tt)*) => { ::tracing::warn!($($arg)*) };
}

#[cfg(not(feature = "tracing"))]
macro_rules! warning {
    ($($arg:tt)*) => { { let _ = ::std::format_args!($($arg)*); } };
}

/// Logs what is of interest only to somebody who looks for it.
#[cfg(all(feature = "sso", feature = "tracing"))]
macro_rules! debug {
    ($($arg:tt)*) => { ::tracing::debug!($($arg)*) };
}

#[cfg(all(feature = "sso", not(feature = "tracing")))]
macro_rules! debug {
    ($($arg:tt)*) => { { let _ = ::std::format_args!($($arg)*); } };
}

#[cfg(feature = "sso")]
pub(crate) use debug;
pub(crate) use warning;
