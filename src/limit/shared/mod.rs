//! Limiters whose budget is shared by many processes, on Redis or Valkey.

mod breaker;
#[cfg(test)]
mod model;
#[cfg(feature = "plans")]
mod redis_plans;
mod script;
mod shared_limiter;

#[cfg(feature = "plans")]
pub use self::redis_plans::{RedisPlans, RedisPlansError};
pub(super) use self::shared_limiter::Ask;
pub use self::shared_limiter::{Fallback, SharedLimiter, SharedLimiterBuilder, SharedLimiterError};
