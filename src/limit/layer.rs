//! [`RateLimitLayer`]: the limit as a tower layer.

use std::{any::type_name, fmt, sync::Arc};

use http::{HeaderMap, StatusCode};
use tower_layer::Layer;

use super::{
    gate::{NoTenant, RateLimitGate},
    headers::HeaderStyle,
    limiter::Limiter,
};
use crate::{gate::Gated, http::head::Head, reject::StatusOnly, tenant::TenantSource};

/// Limits the requests of each tenant.
///
/// See the [module docs](super) for an example and for where it goes among
/// other layers.
#[derive(Clone)]
#[must_use]
pub struct RateLimitLayer<R = StatusOnly> {
    gate: RateLimitGate,
    respond: R,
}

/// A service behind a [`RateLimitLayer`].
pub type RateLimited<S, R = StatusOnly> = Gated<S, RateLimitGate, R>;

impl RateLimitLayer {
    /// Charges each request one unit of the budget of the tenant that `source` finds.
    pub fn new(source: impl TenantSource, limiter: Limiter) -> Self {
        Self { gate: RateLimitGate::new(source, limiter), respond: StatusOnly }
    }
}

impl<R> RateLimitLayer<R> {
    /// Chooses how refusals are answered: [`StatusOnly`] (the default),
    /// [`ProblemJson`](crate::ProblemJson), or a closure.
    pub fn respond_with<R2>(self, respond: R2) -> RateLimitLayer<R2> {
        RateLimitLayer { gate: self.gate, respond }
    }

    /// Says what happens to a request that names no tenant; otherwise it is refused.
    pub fn no_tenant(mut self, policy: NoTenant) -> Self {
        self.gate.no_tenant = policy;
        self
    }

    /// Chooses the headers.
    pub fn headers(mut self, style: HeaderStyle) -> Self {
        self.gate.style = style;
        self
    }

    /// Weighs requests: the function says how many units one costs. Zero is free.
    pub fn cost(mut self, cost: impl Fn(Head<'_>) -> u32 + Send + Sync + 'static) -> Self {
        self.gate.cost = Some(Arc::new(cost));
        self
    }

    /// Charges only responses for which the function says so.
    ///
    /// The units are reserved before the request is served, so that no flood
    /// can pass while responses are awaited, and given back when the response
    /// is not to be charged. A request that never gets a response stays
    /// charged. A gRPC status is among the headers only where a call failed at
    /// once.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Quotas, RateLimitLayer, tenant::HeaderTenant};
    /// # let limiter = Limiter::memory(Quotas::new(Quota::per_minute(5)?));
    /// // a budget of failures
    /// let failures = RateLimitLayer::new(HeaderTenant::new("x-tenant")?, limiter)
    ///     .charge_if(|status, _headers| status.is_client_error());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn charge_if(mut self, keep: impl Fn(StatusCode, &HeaderMap) -> bool + Send + Sync + 'static) -> Self {
        self.gate.keep = Some(Arc::new(keep));
        self
    }

    /// Gives back what was charged for responses for which the function says
    /// so: [`charge_if`](Self::charge_if), the other way round.
    pub fn refund_if(self, refund: impl Fn(StatusCode, &HeaderMap) -> bool + Send + Sync + 'static) -> Self {
        self.charge_if(move |status, headers| !refund(status, headers))
    }

    /// Lets CORS preflights through uncharged.
    pub fn exempt_preflight(mut self) -> Self {
        self.gate.exempt_preflight = true;
        self
    }

    /// Puts nothing in the extensions of requests, which saves four
    /// allocations each. Handlers can't read the tenant then, and a second
    /// layer of the same limiter charges the request again.
    pub fn without_extensions(mut self) -> Self {
        self.gate.extensions = false;
        self
    }
}

impl<S, R: Clone> Layer<S> for RateLimitLayer<R> {
    type Service = RateLimited<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Gated::new(inner, Arc::new(self.gate.clone()), self.respond.clone())
    }
}

impl<R> fmt::Debug for RateLimitLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("limiter", &self.gate.limiter)
            .field("respond", &type_name::<R>())
            .finish_non_exhaustive()
    }
}
