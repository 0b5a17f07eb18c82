//! `tracing` where the feature is on and nothing where it is off, so that call
//! sites carry no `cfg`.

#[cfg(feature = "tracing")]
macro_rules! warning {
    ($($arg:tt)*) => { ::tracing::warn!($($arg)*) };
}

#[cfg(not(feature = "tracing"))]
macro_rules! warning {
    ($($arg:tt)*) => { { let _ = ::std::format_args!($($arg)*); } };
}

pub(crate) use warning;
