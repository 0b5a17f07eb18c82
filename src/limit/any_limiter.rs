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

/// Declares calls that the shared limiter decides, if there is one.
macro_rules! shared_or_local {
    ($($(#[$attribute:meta])* fn $call:ident($($argument:ident: $kind:ty),+) -> $answer:ty $(: $wrap:path)?;)+) => {
        impl AnyLimiter {$(
            $(#[$attribute])*
            pub async fn $call(&self, $($argument: $kind),+) -> $answer {
                #[cfg(feature = "redis")]
                if let Some(shared) = &self.shared {
                    // boxed, so that the futures of other limiters have no room for it
                    return Box::pin(shared.$call($($argument),+)).await;
                }
                $($wrap)?(self.local.$call($($argument),+))
            }
        )+}
    };
}

shared_or_local! {
    /// Decides whether this key may spend these units now, and charges them if so; see [`Limiter::check`].
    fn check(key: &LimitKey, units: u32) -> Decision;

    /// Decides like [`check`](Self::check) on a request that has proved nothing; see [`Limiter::check_anonymous`].
    fn check_anonymous(key: &LimitKey, units: u32) -> Decision;

    /// Returns the standing of the key without spending; see [`Limiter::peek`].
    fn peek(key: &LimitKey) -> Option<Standing>;

    /// Refunds the part of a charge that still counts, and returns the new standing; see [`Limiter::refund`].
    fn refund(spend: Spend) -> Option<Standing>;

    /// Clears everything the key has spent, and logs the reset; see [`Limiter::reset`].
    ///
    /// # Errors
    ///
    /// Returns an error if the limiter is shared and its server does not answer. The reset may have taken effect.
    fn reset(key: &LimitKey) -> Result<(), LimiterError>: Ok;

    /// Holds units of this key while a call is open; see [`Limiter::hold`].
    ///
    /// # Errors
    ///
    /// Returns the decision if the call is refused.
    fn hold(key: &LimitKey, estimate: u32, at_most: u32, lifetime: Duration) -> Result<Hold, Decision>;

    /// Holds units for a caller who has proved no tenant; see [`Limiter::hold_anonymous`].
    ///
    /// # Errors
    ///
    /// Returns the decision if the call is refused.
    fn hold_anonymous(key: &LimitKey, estimate: u32, at_most: u32, lifetime: Duration) -> Result<Hold, Decision>;
}

impl AnyLimiter {
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
