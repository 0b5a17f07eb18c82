//! [`AnyLimiter`]: a limiter in memory, or one whose budgets are shared.

use std::time::Duration;

#[cfg(feature = "redis")]
use super::shared::SharedLimiter;
use super::{
    decision::{Decision, Spend},
    error::LimiterError,
    hold::Hold,
    limiter::Limiter,
    plans::table::Plans,
};
use crate::tenant::{LimitKey, Standing};

/// The limiter of a layer: a [`Limiter`] or, with the feature `redis`, a `SharedLimiter`. Clones share one budget.
///
/// Its methods do what the methods of the same name on those types do. With a `Limiter`, their futures are ready at
/// once.
#[derive(Clone, Debug)]
pub struct AnyLimiter {
    pub(super) local: Limiter,
    /// Decides instead of `local`, which then is its fallback.
    #[cfg(feature = "redis")]
    pub(super) shared: Option<SharedLimiter>,
}

/// Lets the shared limiter decide, if there is one.
macro_rules! ask_shared {
    ($own:ident.$call:ident($($argument:expr),*)) => {
        #[cfg(feature = "redis")]
        if let Some(shared) = &$own.shared {
            // boxed, so that the futures of other limiters have no room for it
            return Box::pin(shared.$call($($argument),*)).await;
        }
    };
}

impl AnyLimiter {
    /// Decides whether this key may spend these units now, and charges them if so; see [`Limiter::check`].
    pub async fn check(&self, key: &LimitKey, units: u32) -> Decision {
        ask_shared!(self.check(key, units));
        self.local.check(key, units)
    }

    /// Decides like [`check`](Self::check) on a request that has proved nothing; see [`Limiter::check_anonymous`].
    pub async fn check_anonymous(&self, key: &LimitKey, units: u32) -> Decision {
        ask_shared!(self.check_anonymous(key, units));
        self.local.check_anonymous(key, units)
    }

    /// Returns the standing of the key without spending; see [`Limiter::peek`].
    pub async fn peek(&self, key: &LimitKey) -> Option<Standing> {
        ask_shared!(self.peek(key));
        self.local.peek(key)
    }

    /// Refunds the part of a charge that still counts, and returns the new standing; see [`Limiter::refund`].
    pub async fn refund(&self, spend: Spend) -> Option<Standing> {
        ask_shared!(self.refund(spend));
        self.local.refund(spend)
    }

    /// Clears everything the key has spent, and logs the reset; see [`Limiter::reset`].
    ///
    /// # Errors
    ///
    /// Returns an error if the limiter is shared and its server does not answer. The reset may have taken effect.
    pub async fn reset(&self, key: &LimitKey) -> Result<(), LimiterError> {
        ask_shared!(self.reset(key));
        self.local.reset(key);
        Ok(())
    }

    /// Holds units of this key while a call is open; see [`Limiter::hold`].
    ///
    /// # Errors
    ///
    /// Returns the decision if the call is refused.
    pub async fn hold(
        &self,
        key: &LimitKey,
        estimate: u32,
        at_most: u32,
        lifetime: Duration,
    ) -> Result<Hold, Decision> {
        ask_shared!(self.hold(key, estimate, at_most, lifetime));
        self.local.hold(key, estimate, at_most, lifetime)
    }

    /// Holds units for a caller who has proved no tenant; see [`Limiter::hold_anonymous`].
    ///
    /// # Errors
    ///
    /// Returns the decision if the call is refused.
    pub async fn hold_anonymous(
        &self,
        key: &LimitKey,
        estimate: u32,
        at_most: u32,
        lifetime: Duration,
    ) -> Result<Hold, Decision> {
        ask_shared!(self.hold_anonymous(key, estimate, at_most, lifetime));
        self.local.hold_anonymous(key, estimate, at_most, lifetime)
    }

    /// Returns the plans, which can be changed live; see [`Limiter::plans`].
    pub fn plans(&self) -> &Plans {
        self.local.plans()
    }

    /// Returns a limiter of something else, such as failures of addresses. It is shared if this one is, under keys of its own.
    pub(crate) fn beside(&self, space: &'static str, local: Limiter) -> Self {
        #[cfg(feature = "redis")]
        if let Some(shared) = &self.shared {
            return shared.beside(space, local).into();
        }
        let _ = space;
        local.into()
    }

    /// Refunds a charge. A shared limiter does it in the background.
    pub(crate) fn refund_later(&self, spend: Spend) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{limit::quota::Quota, tenant::Tenant};

    #[tokio::test]
    async fn a_limiter_in_memory_has_the_surface_of_a_shared_one() {
        let acme = Tenant::parse("acme").unwrap();
        let plans = Plans::new(Quota::per_hour(4).unwrap().reserve(0.5).unwrap());
        let limiter = AnyLimiter::from(Limiter::memory(plans));
        let left = async || limiter.peek(&acme).await.unwrap().remaining();
        assert!(!limiter.check_anonymous(&acme, 3).await.is_admitted());
        let decision = limiter.check(&acme, 3).await;
        assert_eq!((decision.is_admitted(), left().await), (true, 1));
        assert_eq!(limiter.refund(decision.into_spend()).await.unwrap().remaining(), 4);
        _ = limiter.check(&acme, 4).await;
        limiter.reset(&acme).await.unwrap();
        assert_eq!(left().await, 4);
        assert_eq!(limiter.plans().plan(&acme).quotas().count(), 1);
    }
}
