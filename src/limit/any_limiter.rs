//! [`AnyLimiter`]: a limiter in memory, or one whose budgets are shared.

use std::time::Duration;

use tokio::time::{sleep_until, timeout_at};

#[cfg(feature = "redis")]
use super::shared::SharedLimiter;
use super::{
    decision::{Ask, Decision, Spend},
    error::LimiterError,
    hold::Hold,
    limiter::Limiter,
    line::Wait,
    plans::{source::PlanUnavailable, table::Plans},
};
use crate::{
    event::EventServiceBuilder,
    tenant::{LimitKey, Standing},
};

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

    /// Decides like [`check`](Self::check), but waits for units to come back; see [`Limiter::until_ready`].
    pub async fn until_ready(&self, key: &LimitKey, units: u32, at_most: Duration) -> Decision {
        let ask = Ask { refundable: true, ..Ask::new(units, false) };
        let decided = self.decide_or_wait(key, ask, |decision| Wait::begin(decision, at_most));
        // boxed, because it has room for the calls of a shared limiter
        Box::pin(decided).await.unwrap_or(Decision::UNAVAILABLE)
    }

    /// Decides, and waits if the first decision begins a wait. Reports the last decision.
    ///
    /// # Errors
    ///
    /// Returns an error if the plan of the key can't be looked up.
    pub(super) async fn decide_or_wait<'a>(
        &self,
        key: &LimitKey,
        ask: Ask,
        begin: impl FnOnce(&Decision) -> Option<Wait<'a>>,
    ) -> Result<Decision, PlanUnavailable> {
        let mut decision = self.decide(key, ask).await?;
        if let Some(wait) = begin(&decision) {
            decision = Box::pin(self.wait(key, ask, wait)).await?;
        }
        self.local.report(&decision, key, ask);
        Ok(decision)
    }

    /// Asks again whenever units come back, until the key is admitted or that is useless.
    async fn wait(&self, key: &LimitKey, ask: Ask, mut wait: Wait<'_>) -> Result<Decision, PlanUnavailable> {
        let place = self.local.lines().join(key, ask);
        // at the deadline, everyone asks for the last time
        let _first = timeout_at(wait.deadline, place.be_first()).await;
        loop {
            sleep_until(wait.until).await;
            let decision = self.decide(key, ask).await?;
            match wait.after(&decision) {
                Some(next) => wait = next,
                None => return Ok(decision),
            }
        }
    }

    /// Looks up the plan and decides. Reports nothing.
    async fn decide(&self, key: &LimitKey, ask: Ask) -> Result<Decision, PlanUnavailable> {
        self.local.load_plan(key).await?;
        #[cfg(feature = "redis")]
        if let Some(shared) = &self.shared {
            return Ok(shared.check_in_plan(key, ask).await);
        }
        Ok(self.local.check_unreported(key, ask))
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

impl Limiter {
    /// Decides like [`check`](Self::check), but waits up to `at_most` for units to come back.
    ///
    /// Returns the refusal at once if a retry can't be admitted in that time. Otherwise it waits for the
    /// [reset](Standing::reset) and tries again. Units are charged once, at admission. A call is charged nothing while it
    /// waits, or if it is dropped. Only the last decision is reported as an event.
    ///
    /// Calls with the same key and about as many units wait in line. A new call can be admitted before those that wait. While
    /// [open calls](Hold) block, it tries again ten times a second.
    ///
    /// Looks up the plan first, as [`load_plan`](Self::load_plan) does. Needs a tokio runtime with timers.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use std::time::Duration;
    /// use tollgate::{Limiter, Plans, Quota, Tenant};
    ///
    /// let limiter = Limiter::memory(Plans::new(Quota::new(2, Duration::from_millis(50))?));
    /// let acme = Tenant::parse("acme")?;
    /// for _ in 0..4 {
    ///     // the third call waits
    ///     assert!(limiter.until_ready(&acme, 1, Duration::from_secs(5)).await.is_admitted());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn until_ready(&self, key: &LimitKey, units: u32, at_most: Duration) -> Decision {
        AnyLimiter::from(self.clone()).until_ready(key, units, at_most).await
    }
}

#[cfg(feature = "redis")]
impl SharedLimiter {
    /// Decides like [`check`](Self::check), but waits for units to come back; see [`Limiter::until_ready`].
    ///
    /// A call that is dropped while the server decides may stay charged.
    pub async fn until_ready(&self, key: &LimitKey, units: u32, at_most: Duration) -> Decision {
        AnyLimiter::from(self.clone()).until_ready(key, units, at_most).await
    }
}

impl EventServiceBuilder {
    /// Shows at `/usage` and on the page what tenants have left in this limiter, and how many requests it admits.
    ///
    /// The limiter counts admitted requests under a lock that it takes anyway. A request counts if it spends units of a
    /// limit, and a refund does not change the count. A `SharedLimiter` shows what this process has admitted, and what
    /// its server has left as far as this process knows.
    pub fn limiter(self, limiter: impl Into<AnyLimiter>) -> Self {
        self.budgets(limiter.into().local)
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
