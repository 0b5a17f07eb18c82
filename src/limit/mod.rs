//! Rate limits per tenant: at most N units in **every** window.
//!
//! ```
//! use std::convert::Infallible;
//! use http::{Request, Response, StatusCode};
//! use tollgate::{Limiter, Quota, Plans, RateLimitLayer, tenant::HeaderTenant};
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let limiter = Limiter::memory(Plans::new(Quota::per_minute(2)?));
//! let mut service = ServiceBuilder::new()
//!     .layer(RateLimitLayer::new(HeaderTenant::new("x-tenant")?, limiter))
//!     .service(service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::from("hello")))));
//!
//! for (remaining, status) in [("1", StatusCode::OK), ("0", StatusCode::OK), ("0", StatusCode::TOO_MANY_REQUESTS)] {
//!     let request = Request::get("/").header("x-tenant", "acme").body(String::new()).unwrap();
//!     let response = service.ready().await.unwrap().call(request).await.unwrap();
//!     assert_eq!(response.status(), status);
//!     assert_eq!(response.headers()["x-ratelimit-limit"], "2");
//!     assert_eq!(response.headers()["x-ratelimit-remaining"], remaining);
//! }
//! # Ok::<(), tollgate::ConfigError>(())
//! # }).unwrap();
//! ```
//!
//! # The guarantee
//!
//! With [`Quota::new`], [`Quota::per_minute`] and similar quotas, a tenant never spends more than the limit in any
//! half-open window. This holds across all services that share the [`Limiter`], as long as the process lives. A refused
//! request spends nothing.
//!
//! | event | rule |
//! |---|---|
//! | a quota is lowered live | nothing is admitted until the spent units fit; no spent unit is forgotten |
//! | a refund | gives back units of that spend or of older ones, never of newer ones, and only once; nothing if those units have come back already, or if the tenant was reset or got another plan |
//! | a charge by the response ([`charge_if`](RateLimitLayer::charge_if)) | the units are reserved first and settled with the response; a dropped future stays charged |
//! | a [hold](Limiter::hold) | its estimate counts while it is open; at its end, what it has used is charged, or else the estimate |
//! | a hold uses more than its estimate | the excess, up to the hold's maximum, is a debt that is paid before anything else is admitted; a quota counts at most twice its limit |
//! | an open call ([`Quota::concurrent`]) | counts until its hold is dropped or its [body](RateLimitLayer::tracking_bodies) has ended; requests that nothing tracks are refused, and so are upgrades whose handler keeps no [`Usage`] |
//! | [`Limiter::reset`] | clears what the tenant has spent and holds, and is logged; calls stay open |
//! | a call that waits ([`Limiter::until_ready`], [`RateLimitLayer::waiting`]) | is charged when it is admitted, and nothing while it waits or if it is dropped |
//! | a [shadow](Quota::shadow) quota | what it would refuse is logged, marked with `x-ratelimit-would-refuse`, and charged to the other quotas; it never appears in the standard headers |
//! | more tenants than [`max_tenants`](LimiterBuilder::max_tenants) | tenants that [`Plans`] names always have room; others share 4096 buckets per plan; a tenant that later gets a budget of its own takes along what its bucket counts |
//! | more bytes than [`max_bytes`](LimiterBuilder::max_bytes) | the same, and the logs of busy tenants get coarser: units come back late, never early |
//! | a request that costs more than the quota | refused without `retry-after` |
//! | a request that passes two layers of one limiter | the larger cost is charged, once; give both layers the same [`charge_if`](RateLimitLayer::charge_if), because the inner one relies on what the outer one charges, even if that is refunded later |
//! | the same with [`without_extensions`](RateLimitLayer::without_extensions) | both layers charge |
//! | the process ends | everything is forgotten |
//!
//! # Rules
//!
//! [`Quota::per_minute`] and similar quotas slide. `Quota::smooth` (feature `smooth`) spreads
//! the load with GCRA, and a window can see `burst + units`. [`Quota::fixed`] follows the
//! calendar, and a window can see twice the limit across a boundary.
//!
//! [`Quota::concurrent`] counts calls that are open instead of units.
//!
//! # Calls that last
//!
//! [`RateLimitLayer::tracking_bodies`] returns a layer that knows when a call ends, and can charge then what it has used.
//! [`Limiter::hold`] does the same without a layer.
//!
//! # Several limits
//!
//! The quotas of one [`Plan`] are charged all or nothing. The headers describe the quota that refused, or else the rate
//! with the least left. If two layers have different limiters, a request is charged to one after the other, so the
//! outer one stays charged if the inner one refuses. Then, too, the headers describe the quota that refused. On Redis, limiters
//! with different plans need different names.
//!
//! # Plans from a database
//!
//! [`Plans`] can be changed live. A [`PlanSource`] looks plans up in a database instead, and
//! [`CachedPlans`] caches them. `examples/plans_from_database.rs` shows it. With the feature `redis`, `RedisPlans`
//! looks them up on Redis or Valkey.
//!
//! # Many processes
//!
//! With the feature `redis`, a `SharedLimiter` keeps the budgets on Redis or Valkey, and all processes that use it
//! share them. Everything that takes a [`Limiter`] also takes it. `docs/scale.md` describes how to run it.
//!
//! # Metrics
//!
//! With the feature `metrics`, all limiters of the process add to these counters, which have no labels. A request that
//! passes two limiters counts twice.
//!
//! | counter | counts |
//! |---|---|
//! | `tollgate_units_admitted_total` | units of admitted requests; refunds are not subtracted |
//! | `tollgate_requests_refused_total` | refused requests |
//! | `tollgate_requests_shadow_refused_total` | admitted requests that a shadow quota would have refused |
//! | `tollgate_limiter_fallback_total` | requests that the fallback of a `SharedLimiter` decided |
//! | `tollgate_limiter_fallback_changes_total` | how often a fallback began or ended |
//!
//! An [`EventLog`](crate::EventLog) counts in `tollgate_events_lost_total` the events that were overwritten before a sink
//! received them.
//!
//! Other parts of the crate have counters, too:
//!
//! | counter | counts |
//! |---|---|
//! | `tollgate_events_total`, label `kind` | all events that an event log records, by [kind](crate::event::EventKind); needs a `MetricsSink` on the log |
//! | `tollgate_store_calls_total`, label `operation` | calls of a store: `get`, `insert`, `swap`, `take`, `run` |
//! | `tollgate_store_errors_total` | calls of a store that failed |
//!
//! For counts per tenant or policy, add a [`Sink`](crate::event::Sink) to the event log of the limiter.
//!
//! # The tenant of a request
//!
//! The layer puts a [`RateLimit`] into the request, with the tenant that it has charged. That
//! tenant may be a mere claim of the caller, for example in a header, so it never replaces a
//! tenant that an outer layer has proved.

mod any_limiter;
mod decision;
mod engine;
mod error;
mod gate;
mod headers;
mod hold;
mod layer;
mod limiter;
mod line;
mod pass;
mod plan;
mod plans;
mod quota;
mod report;
#[cfg(feature = "redis")]
pub(crate) mod shared;
mod tracking;
mod waiting;

pub use self::plans::source::{CachedPlans, PlanFailure, PlanSource, PlanUnavailable};
pub(crate) use self::report::EVENT_KINDS;
#[cfg(feature = "redis")]
pub use self::shared::RedisPlans;
#[cfg(feature = "redis")]
pub use self::shared::{Fallback, SharedLimiter, SharedLimiterBuilder};
pub use self::{
    any_limiter::AnyLimiter,
    decision::{Decision, RefusalReason, Spend},
    error::{LimiterError, LimiterErrorKind},
    gate::{RateLimitFuture, RateLimitGate},
    headers::HeaderStyle,
    hold::Hold,
    layer::{RateLimitLayer, RateLimited},
    limiter::{Limiter, LimiterBuilder},
    pass::RateLimitPass,
    plan::Plan,
    plans::table::Plans,
    quota::Quota,
    tracking::{MeteredLayer, Tracked, TrackedCalls, TrackedFuture, Tracking, TrackingLayer, Usage, WithoutCall},
};
pub use crate::tenant::{RateLimit, Standing};
