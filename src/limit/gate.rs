//! The rate limit as a [`Gate`].

use std::{fmt, future::Ready, sync::Arc};

use http::{Extensions, HeaderMap, HeaderValue, StatusCode, header};

use super::{
    decision::{Admission, Decision, RateLimit, Refusal, RefusalReason, Spend},
    headers::{HeaderStyle, mark_would_refuse},
    limiter::Limiter,
};
use crate::{
    gate::{Gate, MaybeReady, Pass},
    head::Head,
    reject::{Kind, Rejection},
    tenant::{Tenant, TenantError, TenantSource},
};

type Cost = dyn Fn(Head<'_>) -> u32 + Send + Sync;
type Keep = dyn Fn(StatusCode, &HeaderMap) -> bool + Send + Sync;

/// What happens to a request that names no tenant. There is no way past: each
/// of them is limited or refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoTenant {
    /// It is refused with a 400.
    #[default]
    Reject,
    /// All of them share the budget of one tenant, [`Tenant::anonymous`].
    Shared,
}

#[derive(Clone)]
/// The gate of a [`RateLimitLayer`](super::RateLimitLayer).
pub struct RateLimitGate {
    pub(super) source: Arc<dyn TenantSource>,
    pub(super) limiter: Limiter,
    pub(super) no_tenant: NoTenant,
    pub(super) style: HeaderStyle,
    pub(super) cost: Option<Arc<Cost>>,
    pub(super) keep: Option<Arc<Keep>>,
    pub(super) exempt_preflight: bool,
    pub(super) extensions: bool,
}

impl Gate for RateLimitGate {
    type Pass = RateLimitPass;
    type Future = Ready<Result<RateLimitPass, Rejection>>;

    fn inspect(&self, head: Head<'_>) -> MaybeReady<Self::Future> {
        MaybeReady::Ready(self.decide(head))
    }
}

impl RateLimitGate {
    fn decide(&self, head: Head<'_>) -> Result<RateLimitPass, Rejection> {
        if self.exempt_preflight && head.is_preflight() {
            return Ok(RateLimitPass::through());
        }
        let tenant = self.tenant(head)?;
        let mark = self.extensions.then(|| self.limiter.mark(&tenant));
        if let Some(mark) = mark
            && head.extensions().get::<RateLimit>().is_some_and(|outer| outer.charged().contains(mark))
        {
            return Ok(RateLimitPass::through());
        }
        let units = self.cost.as_ref().map_or(1, |cost| cost(head));
        match self.limiter.decide(&tenant, units, self.keep.is_some()) {
            Decision::Admitted(Admission { rate_limit, would_refuse, spend }) => Ok(RateLimitPass {
                policy: self.policy(&tenant),
                style: self.style,
                settle: self.settle(spend),
                marks: mark.map(|mark| (tenant, mark)),
                rate_limit,
                would_refuse,
            }),
            Decision::Refused(refusal) => Err(self.rejection(&tenant, refusal)),
        }
    }

    fn tenant(&self, head: Head<'_>) -> Result<Tenant, Rejection> {
        match (self.source.find(head), self.no_tenant) {
            (Ok(Some(tenant)), _) => Ok(tenant),
            (Ok(None), NoTenant::Shared) => Ok(Tenant::anonymous()),
            (Ok(None), NoTenant::Reject) => {
                Err(Rejection::new(Kind::InvalidRequest, "the request does not say whose it is"))
            }
            (Err(error), _) => Err(no_such_tenant(error)),
        }
    }

    fn rejection(&self, tenant: &Tenant, refusal: Refusal) -> Rejection {
        let Refusal { reason, rate_limit } = refusal;
        let rejection = match reason {
            RefusalReason::Spent => Rejection::new(Kind::RateLimited, "the quota is spent for now"),
            RefusalReason::Impossible => {
                Rejection::new(Kind::QuotaImpossible, "the request costs more than the whole quota")
            }
            RefusalReason::Denied => Rejection::new(Kind::Forbidden, "this tenant is denied"),
        };
        match &rate_limit {
            Some(rate_limit) => {
                let headers = self.style.refusal(rate_limit, self.policy(tenant).as_deref());
                let wait = (reason == RefusalReason::Spent).then(|| rate_limit.wait());
                rejection.violated(rate_limit.policy()).with_headers(headers, wait)
            }
            None => rejection,
        }
    }

    fn policy(&self, tenant: &Tenant) -> Option<Box<HeaderValue>> {
        if !self.style.wants_policy() {
            return None;
        }
        self.limiter.quotas().plan(tenant).policy_header().cloned().map(Box::new)
    }

    fn settle(&self, spend: Spend) -> Option<Box<Settle>> {
        let keep = Arc::clone(self.keep.as_ref()?);
        Some(Box::new(Settle { keep, limiter: self.limiter.clone(), spend }))
    }
}

impl fmt::Debug for RateLimitGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitGate").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}

fn no_such_tenant(error: TenantError) -> Rejection {
    let kind = if error.is_unknown() { Kind::Unauthenticated } else { Kind::InvalidRequest };
    let rejection = Rejection::new(kind, error.detail());
    match error.asks_for() {
        Some(challenge) => rejection.header(header::WWW_AUTHENTICATE, challenge),
        None => rejection,
    }
}

/// A request that was charged, or that this layer does not charge.
/// The pass of a [`RateLimitGate`].
pub struct RateLimitPass {
    rate_limit: Option<RateLimit>,
    would_refuse: Option<&'static str>,
    policy: Option<Box<HeaderValue>>,
    style: HeaderStyle,
    marks: Option<(Tenant, u64)>,
    settle: Option<Box<Settle>>,
}

/// The charge of a request, which depends on the response.
struct Settle {
    keep: Arc<Keep>,
    limiter: Limiter,
    spend: Spend,
}

impl RateLimitPass {
    fn through() -> Self {
        Self {
            rate_limit: None,
            would_refuse: None,
            policy: None,
            style: HeaderStyle::none(),
            marks: None,
            settle: None,
        }
    }
}

impl fmt::Debug for RateLimitPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitPass").field("rate_limit", &self.rate_limit).finish_non_exhaustive()
    }
}

impl Pass for RateLimitPass {
    fn admit(&mut self, extensions: &mut Extensions) {
        let Some((tenant, mark)) = self.marks.take() else { return };
        extensions.insert(tenant);
        if let Some(mut rate_limit) = self.rate_limit {
            let mut charged = extensions.get::<RateLimit>().map(RateLimit::charged).unwrap_or_default();
            charged.add(mark);
            rate_limit.set_charged(charged);
            extensions.insert(rate_limit);
        }
    }

    fn finish(mut self, status: StatusCode, headers: &mut HeaderMap) {
        if let Some(settle) = self.settle.take()
            && !(settle.keep)(status, headers)
            && let Some(after) = settle.limiter.refund(settle.spend)
        {
            self.rate_limit = self.rate_limit.map(|before| after.with_shadow(before.would_refuse()));
        }
        if let Some(policy) = self.would_refuse {
            mark_would_refuse(policy, headers);
        }
        if let Some(rate_limit) = &self.rate_limit {
            self.style.write(rate_limit, self.policy.as_deref(), status, headers);
        }
    }
}
