//! Limiters whose budget is shared by many processes, on Redis or Valkey.

mod breaker;
pub(crate) mod lease;
mod leasing;
#[cfg(test)]
mod model;
mod script;
mod server;
mod shared_limiter;

pub use self::lease::Leases;
pub(super) use self::server::Ask;
pub use self::shared_limiter::{Fallback, SharedLimiter, SharedLimiterBuilder, SharedLimiterError};
