//! Calls `tracing` if the feature is enabled, so that call sites need no `cfg`.

#[cfg(feature = "tracing")]
macro_rules! warning {
    ($($arg:tt)*) => { ::tracing::warn!($($arg)*) };
}

#[cfg(not(feature = "tracing"))]
macro_rules! warning {
    ($($arg:tt)*) => { { let _ = ::std::format_args!($($arg)*); } };
}

pub(crate) use warning;
