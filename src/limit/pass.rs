//! The pass of an admitted request: its charges, and how they are settled with the response.

use std::{fmt, sync::Arc};

use http::{Extensions, HeaderMap, HeaderValue, StatusCode};

#[cfg(feature = "redis")]
use super::shared::SharedLimiter;
use super::{decision::Spend, headers::HeaderStyle, limiter::Limiter};
use crate::{
    gate::Pass,
    tenant::{LimiterCharge, RateLimit, Standing, Tenant},
};

/// Decides by the response whether a request is charged.
pub(super) type ChargeRule = dyn Fn(StatusCode, &HeaderMap) -> bool + Send + Sync;

/// The pass of a [`RateLimitGate`](super::RateLimitGate).
pub struct RateLimitPass {
    pub(super) standing: Option<Standing>,
    pub(super) style: HeaderStyle,
    pub(super) charge: Option<KeyCharge>,
    /// Boxed, because few requests have it, and a pass is moved several times.
    pub(super) extra: Option<Box<Extra>>,
}

/// The charge that goes into the extensions of the request.
pub(super) struct KeyCharge {
    pub(super) tenant: Tenant,
    pub(super) is_claimed: bool,
    pub(super) charge: LimiterCharge,
}

pub(super) struct Extra {
    pub(super) would_refuse: Option<&'static str>,
    pub(super) policy: Option<HeaderValue>,
    pub(super) settle: Option<Settle>,
}

/// A charge that depends on the response.
pub(super) struct Settle {
    pub(super) rule: Arc<ChargeRule>,
    pub(super) limiter: Limiter,
    #[cfg(feature = "redis")]
    pub(super) shared: Option<SharedLimiter>,
    pub(super) spend: Spend,
}

impl Settle {
    /// Refunds the charge and returns the standing after it.
    fn refund(self, before: Option<Standing>) -> Option<Standing> {
        #[cfg(feature = "redis")]
        if let Some(shared) = &self.shared {
            let after = before.map(|standing| standing.with_more(self.spend.units()));
            shared.refund_later(self.spend);
            return after;
        }
        let _ = before;
        self.limiter.refund(self.spend)
    }
}

impl RateLimitPass {
    /// The pass of a request that this layer does not charge.
    pub(super) fn uncharged() -> Self {
        Self { standing: None, style: HeaderStyle::none(), charge: None, extra: None }
    }
}

impl Pass for RateLimitPass {
    #[inline]
    fn admit(&mut self, extensions: &mut Extensions) {
        let Some(KeyCharge { tenant, is_claimed, charge }) = self.charge.take() else { return };
        let standing = self.standing.unwrap_or(Standing::UNLIMITED);
        let would_refuse = self.extra.as_ref().and_then(|extra| extra.would_refuse);
        if let Some(outer) = extensions.get_mut::<RateLimit>() {
            outer.narrow(tenant, is_claimed, standing);
            outer.add_charge(charge, would_refuse);
            return;
        }
        extensions.insert(RateLimit::new(tenant, is_claimed, standing, charge, would_refuse));
    }

    #[inline]
    fn finish(mut self, status: StatusCode, headers: &mut HeaderMap) {
        let policy = self.extra.take().and_then(|extra| extra.finish(self.style, &mut self.standing, status, headers));
        if let Some(standing) = &self.standing {
            self.style.write(standing, policy.as_ref(), status, headers);
        }
    }
}

impl Extra {
    /// Settles the charge, which may change the standing, and returns the policies for the headers.
    #[cold]
    fn finish(
        self,
        style: HeaderStyle,
        standing: &mut Option<Standing>,
        status: StatusCode,
        headers: &mut HeaderMap,
    ) -> Option<HeaderValue> {
        if let Some(settle) = self.settle
            && !(settle.rule)(status, headers)
            && let Some(after) = settle.refund(*standing)
        {
            *standing = Some(after);
        }
        if let Some(policy) = self.would_refuse {
            style.mark_would_refuse(policy, headers);
        }
        self.policy
    }
}

impl fmt::Debug for RateLimitPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitPass").field("standing", &self.standing).finish_non_exhaustive()
    }
}
