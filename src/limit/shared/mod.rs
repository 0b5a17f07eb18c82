//! Limiters whose budget is shared by many processes, on Redis or Valkey.

mod breaker;
#[cfg(test)]
mod model;
mod script;
mod shared_limiter;

pub(super) use self::shared_limiter::Ask;
pub use self::shared_limiter::{Fallback, SharedLimiter, SharedLimiterBuilder, SharedLimiterError};
