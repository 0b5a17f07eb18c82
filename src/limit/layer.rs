//! The rate limit as a tower layer.

use std::{any::type_name, sync::Arc, time::Duration};

use http::{HeaderMap, StatusCode};
use tokio::sync::Semaphore;
use tower_layer::Layer;

use super::{
    any_limiter::AnyLimiter, gate::RateLimitGate, headers::HeaderStyle, line::Waiting, tracking::TrackingLayer,
};
use crate::{
    gate::Gated,
    http::head::Head,
    reject::{StatusOnly, grpc},
    tenant::TenantSource,
    util::builder::setters,
};

/// Limits the requests of each tenant.
///
/// See the [module documentation](super) for an example.
#[derive(Clone)]
#[must_use]
pub struct RateLimitLayer<R = StatusOnly> {
    gate: RateLimitGate,
    respond: R,
}

/// A service behind a [`RateLimitLayer`].
pub type RateLimited<S, R = StatusOnly> = Gated<S, RateLimitGate, R>;

impl RateLimitLayer {
    /// Creates a layer that charges each request one unit of the budget of the tenant that `source` finds.
    ///
    /// A request without a tenant is rejected: with a 401 if the source asks for a credential, or else with a 400. To
    /// serve it, [chain](TenantSource::or) another source behind the first one, which limits it by its address, or lets
    /// all such requests share one budget:
    ///
    /// ```
    /// use tollgate::{ApiKeys, ClientIp, Head, LimitKey, Limiter, Plans, Quota, RateLimitLayer, TenantSource};
    ///
    /// # let limiter = Limiter::memory(Plans::new(Quota::per_minute(5)?));
    /// let keys = ApiKeys::new("x-api-key")?;
    /// let by_address = RateLimitLayer::new(keys.clone().or(ClientIp::peer()), limiter.clone());
    /// let shared = RateLimitLayer::new(keys.or(|_: Head<'_>| Ok(Some(LimitKey::anonymous()))), limiter);
    /// # let _ = (by_address, shared);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn new(source: impl TenantSource, limiter: impl Into<AnyLimiter>) -> Self {
        Self { gate: RateLimitGate::new(source, limiter), respond: StatusOnly }
    }
}

impl<R> RateLimitLayer<R> {
    /// Sets how rejected requests are answered: [`StatusOnly`] (the default),
    /// [`ProblemJson`](crate::ProblemJson), or a closure with both arguments annotated; see
    /// [`Respond`](crate::reject::Respond).
    ///
    /// ```
    /// use http::Response;
    /// use tollgate::{ClientIp, Head, LimitKey, Limiter, Plans, Quota, RateLimitLayer, reject::Rejection};
    ///
    /// # let limiter = Limiter::memory(Plans::new(Quota::per_minute(5)?));
    /// let limit = RateLimitLayer::new(ClientIp::peer(), limiter).respond_with(|rejection: &Rejection, _: Head<'_>| {
    ///     let who = rejection.limit_key().map_or("unknown", LimitKey::as_str);
    ///     // a request without a tenant has no standing
    ///     let left = rejection.standing().map(|standing| standing.remaining());
    ///     let mut response = Response::new(format!("{}: {who} has {left:?} left", rejection.detail()));
    ///     *response.status_mut() = rejection.status();
    ///     response
    /// });
    /// # let _ = limit;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn respond_with<R2>(self, respond: R2) -> RateLimitLayer<R2> {
        RateLimitLayer { gate: self.gate, respond }
    }

    setters! {
        /// Sets which headers responses carry.
        pub fn headers(style: HeaderStyle) { gate.style: style }

        /// Sets how many units a request costs. Defaults to 1. A cost of zero is free.
        ///
        /// ```
        /// # use tollgate::{ApiKeys, Limiter, Quota, Plans, RateLimitLayer};
        /// # let limiter = Limiter::memory(Plans::new(Quota::per_minute(5)?));
        /// let limit = RateLimitLayer::new(ApiKeys::new("x-api-key")?, limiter)
        ///     .cost(|head| if head.uri().path() == "/export" { 10 } else { 1 });
        /// # let _ = limit;
        /// # Ok::<(), tollgate::ConfigError>(())
        /// ```
        ///
        /// To set the cost of a single route of a router, add a clone of the layer with its own cost to that route. A
        /// request that passes both layers is charged the larger cost, once.
        pub fn cost(cost: impl Fn(Head<'_>) -> u32 + Send + Sync + 'static) { gate.cost: Some(Arc::new(cost)) }
    }

    /// Lets refused requests wait up to `at_most` for units to come back. At most `most_waiting` requests wait at the same
    /// time, in all clones of the layer together. By default, no request waits.
    ///
    /// A request gets its 429 at once if its reset is too late, or if too many others are waiting. Only the
    /// last decision is reported as an event. If the client disconnects, the wait ends and nothing is charged, unless a
    /// shared server is deciding at that moment. See also [`Limiter::until_ready`](super::Limiter::until_ready).
    ///
    /// While a request waits, it keeps what the inner service has reserved for it, such as a permit of tower's
    /// `ConcurrencyLimit`. Needs a tokio runtime with timers.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ApiKeys, Limiter, Quota, Plans, RateLimitLayer};
    /// # let limiter = Limiter::memory(Plans::new(Quota::per_minute(5)?));
    /// let limit = RateLimitLayer::new(ApiKeys::new("x-api-key")?, limiter).waiting(Duration::from_secs(2), 1_000);
    /// # let _ = limit;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn waiting(mut self, at_most: Duration, most_waiting: usize) -> Self {
        let places = Semaphore::new(most_waiting.min(Semaphore::MAX_PERMITS));
        self.gate.waiting = Some(Arc::new(Waiting { at_most, places }));
        self
    }

    /// Charges only responses for which the function returns `true`.
    ///
    /// The units are reserved before the request is served, so that no flood can pass while responses are pending, and
    /// refunded if the response is not charged. A request that never gets a response stays charged.
    ///
    /// If a gRPC call fails at once, its gRPC status is among the headers, and the function gets the corresponding HTTP
    /// status, such as 401 for `UNAUTHENTICATED`. For a call that fails later, it gets 200.
    ///
    /// Rules combine: with several calls, a response is charged only if all rules agree.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Plans, RateLimitLayer, tenant::HeaderTenant};
    /// # let limiter = Limiter::memory(Plans::new(Quota::per_minute(5)?));
    /// // limits failures instead of requests
    /// let failures = RateLimitLayer::new(HeaderTenant::new("x-tenant")?, limiter)
    ///     .charge_if(|status, _headers| status.is_client_error());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn charge_if(mut self, rule: impl Fn(StatusCode, &HeaderMap) -> bool + Send + Sync + 'static) -> Self {
        let rule = move |status, headers: &HeaderMap| rule(grpc::http_status(status, headers), headers);
        self.gate.charge_rule = Some(match self.gate.charge_rule.take() {
            None => Arc::new(rule),
            Some(earlier) => Arc::new(move |status, headers| earlier(status, headers) && rule(status, headers)),
        });
        self
    }

    setters! {
        /// Lets CORS preflight requests through without a charge.
        pub fn exempt_preflight() { gate.exempt_preflight: true }

        /// Puts nothing into the extensions of requests, which saves time.
        ///
        /// Handlers can't read [`RateLimit`](crate::RateLimit) then, and a second layer of the
        /// same limiter charges the request again.
        pub fn without_extensions() { gate.extensions: false }
    }

    /// Tracks when calls end, as quotas of [concurrent](crate::Quota::concurrent) calls and metered requests require. The
    /// response bodies get another type, [`Tracked`](super::Tracked), so call it after the other methods.
    pub fn tracking_bodies(self) -> TrackingLayer<R> {
        TrackingLayer::new(self.gate, self.respond)
    }
}

impl<S, R: Clone> Layer<S> for RateLimitLayer<R> {
    type Service = RateLimited<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Gated::new(inner, Arc::new(self.gate.clone()), self.respond.clone())
    }
}

crate::util::fmt::debug_fields!(RateLimitLayer<R>, |own| limiter: own.gate.limiter.local, respond: type_name::<R>());
