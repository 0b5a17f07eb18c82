//! [`AnyLimiter`]: a limiter in memory, or one whose budgets are shared.

use super::limiter::Limiter;
#[cfg(feature = "redis")]
use super::shared::SharedLimiter;

/// The limiter of a layer: a [`Limiter`], or with the feature `redis` a `SharedLimiter`.
#[derive(Clone, Debug)]
pub struct AnyLimiter {
    pub(super) local: Limiter,
    #[cfg(feature = "redis")]
    pub(super) shared: Option<SharedLimiter>,
}

impl From<Limiter> for AnyLimiter {
    fn from(local: Limiter) -> Self {
        Self {
            local,
            #[cfg(feature = "redis")]
            shared: None,
        }
    }
}

#[cfg(feature = "redis")]
impl From<SharedLimiter> for AnyLimiter {
    fn from(shared: SharedLimiter) -> Self {
        Self { local: shared.local().clone(), shared: Some(shared) }
    }
}
