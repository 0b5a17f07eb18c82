//! [`AnyLimiter`]: a limiter in memory, or one whose budgets are shared.

#[cfg(feature = "login")]
use super::decision::{Decision, Spend};
use super::limiter::Limiter;
#[cfg(feature = "redis")]
use super::shared::SharedLimiter;
#[cfg(feature = "login")]
use crate::tenant::{LimitKey, Standing};

/// The limiter of a layer: a [`Limiter`], or with the feature `redis` a `SharedLimiter`.
#[derive(Clone, Debug)]
pub struct AnyLimiter {
    pub(super) local: Limiter,
    /// Decides instead of `local`, which then is its fallback.
    #[cfg(feature = "redis")]
    pub(super) shared: Option<SharedLimiter>,
}

#[cfg(feature = "login")]
impl AnyLimiter {
    /// Returns a limiter of something else, such as failures of addresses. It is shared if this one is, under keys of its own.
    pub(crate) fn beside(&self, space: &'static str, local: Limiter) -> Self {
        #[cfg(feature = "redis")]
        if let Some(shared) = &self.shared {
            return shared.beside(space, local).into();
        }
        let _ = space;
        local.into()
    }

    /// Decides whether this name may spend the units now, and charges them if so.
    pub(crate) async fn check(&self, name: &LimitKey, units: u32) -> Decision {
        #[cfg(feature = "redis")]
        if let Some(shared) = &self.shared {
            // boxed, so that the futures of other limiters have no room for it
            return Box::pin(shared.check(name, units)).await;
        }
        self.local.check(name, units)
    }

    /// Returns the standing of this name without spending.
    pub(crate) async fn peek(&self, name: &LimitKey) -> Option<Standing> {
        #[cfg(feature = "redis")]
        if let Some(shared) = &self.shared {
            return shared.peek(name).await;
        }
        self.local.peek(name)
    }

    /// Refunds a charge. A shared limiter does it in the background.
    pub(crate) fn refund(&self, spend: Spend) {
        #[cfg(feature = "redis")]
        if let Some(shared) = &self.shared {
            return shared.refund_later(spend);
        }
        self.local.refund(spend);
    }
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
