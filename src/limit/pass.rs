//! The pass of an admitted request: its charges, and how they are settled with the response.

use std::sync::Arc;

use http::{Extensions, HeaderMap, StatusCode};

use super::{
    any_limiter::AnyLimiter,
    decision::{ChargeRule, Spend},
    headers::{HeaderStyle, IetfPolicy, Values},
    tracking::usage::OpenedUsage,
};
use crate::{
    gate::Pass,
    tenant::{RateLimit, Standing},
};

/// The pass of a [`RateLimitGate`](super::RateLimitGate). It is small, because it is moved several times.
pub struct RateLimitPass {
    /// The values of the headers.
    pub(super) values: Option<Values>,
    /// Few requests have it.
    pub(super) extra: Option<Box<Extra>>,
}

#[derive(Default)]
pub(super) struct Extra {
    /// The extension that [`Pass::admit`] inserts.
    pub(super) extension: Option<RateLimit>,
    /// The open call, which [`Pass::admit`] hands to the service that ends it.
    pub(super) usage: Option<OpenedUsage>,
    pub(super) style: HeaderStyle,
    pub(super) standing: Option<Standing>,
    pub(super) would_refuse: Option<&'static str>,
    pub(super) policy: Option<IetfPolicy>,
    pub(super) settle: Option<Settle>,
}

/// A charge that depends on the response.
pub(super) struct Settle {
    pub(super) rule: Arc<ChargeRule>,
    pub(super) limiter: AnyLimiter,
    pub(super) spend: Spend,
}

impl Settle {
    /// Refunds the charge and returns the standing after it.
    fn refund(self, before: Option<Standing>) -> Option<Standing> {
        #[cfg(feature = "redis")]
        if let Some(shared) = &self.limiter.shared {
            let after = before.map(|standing| standing.with_more(self.spend.units()));
            shared.refund_later(self.spend);
            return after;
        }
        let _ = before;
        self.limiter.local.refund(self.spend)
    }
}

impl RateLimitPass {
    /// The pass of a request that this layer does not charge.
    pub(super) const UNCHARGED: Self = Self { values: None, extra: None };

    /// Keeps the extension until [`Pass::admit`].
    pub(super) fn keep(&mut self, extension: Option<RateLimit>) {
        if extension.is_some() {
            self.extra.get_or_insert_default().extension = extension;
        }
    }
}

impl Pass for RateLimitPass {
    fn admit(&mut self, extensions: &mut Extensions) {
        let Some(extra) = &mut self.extra else { return };
        if let Some(extension) = extra.extension.take() {
            extension.put_into(extensions);
        }
        if let Some(usage) = extra.usage.take() {
            extensions.insert(usage);
        }
    }

    #[inline]
    fn finish(mut self, status: StatusCode, headers: &mut HeaderMap) {
        if let Some(extra) = self.extra {
            extra.finish(&mut self.values, status, headers);
        }
        if let Some(values) = self.values {
            values.write_limit_headers(status, headers);
        }
    }
}

impl Extra {
    /// Settles the charge, which may change the values of the headers, and writes the other headers.
    #[cold]
    fn finish(mut self, values: &mut Option<Values>, status: StatusCode, headers: &mut HeaderMap) {
        if let Some(settle) = self.settle
            && !(settle.rule)(status, headers)
            && let Some(after) = settle.refund(self.standing)
        {
            self.standing = Some(after);
            *values = self.style.values(&after);
        }
        if let Some(policy) = self.would_refuse {
            self.style.mark_would_refuse(policy, headers);
        }
        if let Some(standing) = &self.standing {
            self.style.write_ietf(standing, self.policy.as_ref(), headers);
        }
    }
}

crate::util::fmt::debug_fields!(RateLimitPass { values });
