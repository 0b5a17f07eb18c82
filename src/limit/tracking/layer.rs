use std::{any::type_name, sync::Arc, time::Duration};

use tower_layer::Layer;

use super::{
    service::{TrackedCalls, WithoutCall},
    settings::{Metering, TrackingSettings},
    usage::Usage,
};
use crate::{gate::Gated, http::head::Head, limit::gate::RateLimitGate, reject::StatusOnly, util::builder::setters};

const DEFAULT_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// A service behind a [`TrackingLayer`]. Its responses have the body [`Tracked`](super::Tracked).
pub type Tracking<S, R = StatusOnly> = Gated<TrackedCalls<S>, RateLimitGate, WithoutCall<R>>;

/// Limits requests like a [`RateLimitLayer`](crate::RateLimitLayer), and knows when their calls end, as quotas of
/// [concurrent](crate::Quota::concurrent) calls require. Returned by
/// [`tracking_bodies`](crate::RateLimitLayer::tracking_bodies).
///
/// A call is open until its response body ends, fails or is dropped. If the response is an upgrade, it is open until
/// the last clone of its [`Usage`] is dropped. An upgrade whose handler keeps no clone is refused with a 503 if a quota
/// of concurrent calls counts it.
///
/// ```
/// use tollgate::{ApiKeys, Limiter, Plan, Plans, Quota, RateLimitLayer};
///
/// // 600 requests a minute, and at most 5 at the same time
/// let plan = Plan::new([Quota::per_minute(600)?, Quota::concurrent(5)?])?;
/// let limit = RateLimitLayer::new(ApiKeys::new("x-api-key")?, Limiter::memory(Plans::new(plan))).tracking_bodies();
/// # let _ = limit;
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct TrackingLayer<R = StatusOnly> {
    gate: RateLimitGate,
    settings: TrackingSettings,
    respond: R,
}

impl<R> TrackingLayer<R> {
    pub(in crate::limit) fn new(gate: RateLimitGate, respond: R) -> Self {
        Self { gate, settings: TrackingSettings::new(), respond }
    }

    /// Charges each request for what it has used, when its call ends.
    ///
    /// The request is admitted with an estimate instead of its [`cost`](crate::RateLimitLayer::cost). The estimate
    /// counts while the call is open. The handler counts what it uses with the [`Usage`] in the extensions of the
    /// request, or [`read_usage`](MeteredLayer::read_usage) reads it from the body. If nothing is counted, the estimate
    /// is charged. A call that uses more than its estimate is charged up to `at_most`; see
    /// [`Limiter::hold`](crate::Limiter::hold).
    ///
    /// If the client disconnects, what was counted until then is charged.
    ///
    /// If several layers of one limiter surround a handler, meter in the outermost one that tracks bodies. An inner one
    /// finds the call open, charges its estimate, and logs a warning.
    ///
    /// With [`charge_if`](crate::RateLimitLayer::charge_if), the estimate counts until the end of a response that is
    /// not charged, and is then refunded.
    pub fn metered(self, estimate: u32, at_most: u32) -> MeteredLayer<R> {
        let metering = Metering { estimate, at_most, lifetime: DEFAULT_LIFETIME, estimate_of: None, read: None };
        MeteredLayer { tracking: self, metering }
    }
}

/// A [`TrackingLayer`] that charges what requests use. Returned by [`TrackingLayer::metered`].
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ApiKeys, Limiter, Plans, Quota, RateLimitLayer};
///
/// // 100,000 words of a language model a minute
/// let limiter = Limiter::memory(Plans::new(Quota::per_minute(100_000)?));
/// let limit = RateLimitLayer::new(ApiKeys::new("x-api-key")?, limiter)
///     .tracking_bodies()
///     .metered(800, 4_000)
///     .lifetime(Duration::from_secs(120))
///     .read_usage(|chunk, usage| usage.add(chunk.split(|byte| *byte == b' ').count() as u32));
/// # let _ = limit;
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct MeteredLayer<R = StatusOnly> {
    tracking: TrackingLayer<R>,
    metering: Metering,
}

impl<R> MeteredLayer<R> {
    setters! {
        /// Sets how long an estimate counts, at most a day. Defaults to ten minutes. After that, the estimate is
        /// charged, and what the call uses beyond it is charged at the end.
        pub fn lifetime(lifetime: Duration) { metering.lifetime: lifetime }

        /// Sets a function that estimates each request, instead of one estimate for all.
        pub fn estimate(estimate: impl Fn(Head<'_>) -> u32 + Send + Sync + 'static) {
            metering.estimate_of: Some(Arc::new(estimate))
        }

        /// Reads each chunk of a response body before it is sent, to count what the call uses. Chunks can end anywhere.
        ///
        /// If the chunks of a body consist of parts, their type must implement
        /// [`Buf::chunks_vectored`](bytes::Buf::chunks_vectored). Otherwise, only the first part is read, or the first
        /// 16 parts of a [`Take`](bytes::buf::Take). Bodies of `Bytes` have one part.
        pub fn read_usage(read: impl Fn(&[u8], &Usage) + Send + Sync + 'static) { metering.read: Some(Arc::new(read)) }
    }
}

impl<S, R: Clone> Layer<S> for TrackingLayer<R> {
    type Service = Tracking<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        let gate = RateLimitGate { tracking: Some(Arc::new(self.settings.clone())), ..self.gate.clone() };
        Gated::new(TrackedCalls::new(inner), Arc::new(gate), WithoutCall(self.respond.clone()))
    }
}

impl<S, R: Clone> Layer<S> for MeteredLayer<R> {
    type Service = Tracking<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        let mut tracking = self.tracking.clone();
        tracking.settings.metering = Some(self.metering.clone());
        tracking.layer(inner)
    }
}

crate::util::fmt::debug_fields!(TrackingLayer<R>, |own| gate: own.gate, respond: type_name::<R>());

crate::util::fmt::debug_fields!(MeteredLayer<R> { tracking, metering });
