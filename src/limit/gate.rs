//! The rate limit as a [`Gate`].

use std::{fmt, future::Ready, sync::Arc};

use http::{Extensions, HeaderMap, HeaderValue, StatusCode, header};

use super::{
    decision::{Charge, Facts, Outcome, RateLimit, RefusalReason, Spend},
    headers::{HeaderStyle, mark_would_refuse},
    limiter::Limiter,
};
use crate::{
    gate::{Gate, MaybeReady, Pass},
    http::head::Head,
    reject::{Kind, Rejection},
    tenant::{ClientIp, Tenant, TenantError, TenantSource},
};

type Cost = dyn Fn(Head<'_>) -> u32 + Send + Sync;
type Keep = dyn Fn(StatusCode, &HeaderMap) -> bool + Send + Sync;

/// What happens to a request that names no tenant. There is no way past: each
/// of them is limited or refused.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum NoTenant {
    /// It is refused with a 400.
    #[default]
    Reject,
    /// All of them share the budget of one tenant, [`Tenant::anonymous`].
    Shared,
    /// Each client address has a budget, [`Tenant::address`]; a request without one is refused with a 400.
    ByIp(ClientIp),
}

/// The gate of a [`RateLimitLayer`](super::RateLimitLayer).
#[derive(Clone)]
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
    pub(crate) fn new(source: impl TenantSource, limiter: Limiter) -> Self {
        Self {
            source: Arc::new(source),
            limiter,
            no_tenant: NoTenant::default(),
            style: HeaderStyle::new(),
            cost: None,
            keep: None,
            exempt_preflight: false,
            extensions: true,
        }
    }

    fn decide(&self, head: Head<'_>) -> Result<RateLimitPass, Rejection> {
        if self.exempt_preflight && head.is_preflight() {
            return Ok(RateLimitPass::through());
        }
        self.charge(self.tenant(head)?, head)
    }

    /// Charges a request to this tenant, once: not again where an outer layer of the same limiter has done so.
    pub(crate) fn charge(&self, tenant: Tenant, head: Head<'_>) -> Result<RateLimitPass, Rejection> {
        let mark = self.extensions.then(|| self.limiter.mark(&tenant));
        if let Some(mark) = mark
            && head.extensions().get::<RateLimit>().is_some_and(|outer| outer.charged().contains(mark))
        {
            return Ok(RateLimitPass::through());
        }
        let units = self.cost.as_ref().map_or(1, |cost| cost(head));
        match self.limiter.decide(&tenant, units, self.keep.is_some()) {
            Outcome::Admitted { facts, would_refuse, charge } => Ok(RateLimitPass {
                facts,
                style: self.style,
                rare: self.rare(&tenant, would_refuse, charge),
                marks: mark.map(|mark| (tenant, mark)),
            }),
            Outcome::Refused { reason, facts } => Err(self.rejection(&tenant, reason, facts.as_ref())),
        }
    }

    fn tenant(&self, head: Head<'_>) -> Result<Tenant, Rejection> {
        let found = match (self.source.find(head), &self.no_tenant) {
            (Ok(None), NoTenant::Reject) => Ok(None),
            (Ok(None), NoTenant::Shared) => Ok(Some(Tenant::anonymous())),
            (Ok(None), NoTenant::ByIp(address)) => address.find(head),
            (found, _) => found,
        };
        match found {
            Ok(Some(tenant)) => Ok(tenant),
            Ok(None) => Err(Rejection::new(Kind::InvalidRequest, "the request does not say whose it is")),
            Err(error) => Err(no_such_tenant(error)),
        }
    }

    fn rejection(&self, tenant: &Tenant, reason: RefusalReason, facts: Option<&Facts>) -> Rejection {
        let rejection = match reason {
            RefusalReason::Spent => Rejection::new(Kind::RateLimited, "the quota is spent for now"),
            RefusalReason::Impossible => {
                Rejection::new(Kind::QuotaImpossible, "the request costs more than the whole quota")
            }
            RefusalReason::Denied => Rejection::new(Kind::Forbidden, "this tenant is denied"),
        };
        match facts {
            Some(facts) => {
                let headers = self.style.refusal(facts, self.policy(tenant).as_ref());
                let wait = (reason == RefusalReason::Spent).then(|| facts.wait());
                rejection.violated(facts.policy).with_headers(headers, wait)
            }
            None => rejection,
        }
    }

    fn policy(&self, tenant: &Tenant) -> Option<HeaderValue> {
        if !self.style.wants_policy() {
            return None;
        }
        self.limiter.quotas().plan(tenant).policy_header().cloned()
    }

    fn rare(
        &self,
        tenant: &Tenant,
        would_refuse: Option<&'static str>,
        charge: Option<Box<Charge>>,
    ) -> Option<Box<Rare>> {
        if would_refuse.is_none() && self.keep.is_none() && !self.style.wants_policy() {
            return None;
        }
        let settle = self.keep.as_ref().map(|keep| Settle {
            keep: Arc::clone(keep),
            limiter: self.limiter.clone(),
            spend: Spend(charge),
        });
        Some(Box::new(Rare { would_refuse, policy: self.policy(tenant), settle }))
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

/// The pass of a [`RateLimitGate`]: of a request that was charged, or that the layer does not charge.
pub struct RateLimitPass {
    facts: Option<Facts>,
    style: HeaderStyle,
    marks: Option<(Tenant, u64)>,
    /// Boxed, so that a pass is small: it is moved several times.
    rare: Option<Box<Rare>>,
}

/// What few requests carry.
struct Rare {
    would_refuse: Option<&'static str>,
    policy: Option<HeaderValue>,
    settle: Option<Settle>,
}

/// The charge of a request, which depends on the response.
struct Settle {
    keep: Arc<Keep>,
    limiter: Limiter,
    spend: Spend,
}

impl RateLimitPass {
    fn through() -> Self {
        Self { facts: None, style: HeaderStyle::none(), marks: None, rare: None }
    }
}

impl Pass for RateLimitPass {
    fn admit(&mut self, extensions: &mut Extensions) {
        let Some((tenant, mark)) = self.marks.take() else { return };
        let facts = self.facts.unwrap_or(Facts::UNLIMITED);
        let would_refuse = self.rare.as_ref().and_then(|rare| rare.would_refuse);
        let outer = extensions.get::<RateLimit>().copied();
        // a tenant that is there before any limit was proved by somebody else, and is not ours to replace
        if outer.is_some() || extensions.get::<Tenant>().is_none() {
            extensions.insert(tenant);
        }
        let outer = outer.unwrap_or(RateLimit::from(Facts::UNLIMITED));
        extensions.insert(outer.narrowed(facts, would_refuse, mark));
    }

    fn finish(mut self, status: StatusCode, headers: &mut HeaderMap) {
        let policy = self.rare.take().and_then(|rare| rare.finish(&mut self.facts, status, headers));
        if let Some(facts) = &self.facts {
            self.style.write(facts, policy.as_ref(), status, headers);
        }
    }
}

impl Rare {
    /// Settles the charge, which may change the facts, and hands out the policies for the headers.
    fn finish(self, facts: &mut Option<Facts>, status: StatusCode, headers: &mut HeaderMap) -> Option<HeaderValue> {
        if let Some(settle) = self.settle
            && !(settle.keep)(status, headers)
            && let Some(after) = settle.limiter.take_back(settle.spend)
        {
            *facts = Some(after);
        }
        if let Some(policy) = self.would_refuse {
            mark_would_refuse(policy, headers);
        }
        self.policy
    }
}

impl fmt::Debug for RateLimitPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitPass").field("facts", &self.facts).finish_non_exhaustive()
    }
}
