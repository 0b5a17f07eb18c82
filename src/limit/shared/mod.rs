//! Limiters whose budget is shared by many processes, on Redis or Valkey.

mod breaker;
mod call;
#[cfg(test)]
mod call_proof;
#[cfg(test)]
mod fallback_tests;
pub(crate) mod lease;
mod leasing;
mod mirror;
#[cfg(test)]
mod model;
mod newcomers;
mod open_calls;
mod redis_plans;
mod script;
mod server;
mod settling;
mod shared_limiter;

pub use self::breaker::Fallback;
pub use self::redis_plans::RedisPlans;
pub use self::shared_limiter::{SharedLimiter, SharedLimiterBuilder};
