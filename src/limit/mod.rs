//! Rate limits per tenant: at most N units in **every** window.
//!
//! ```
//! use std::convert::Infallible;
//! use http::{Request, Response, StatusCode};
//! use tollgate::{Limiter, Quota, Quotas, RateLimitLayer, tenant::HeaderTenant};
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let limiter = Limiter::memory(Quotas::new(Quota::per_minute(2)?));
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
//! # The promise, and what bends it
//!
//! For [`Quota::new`] and its like, never more than the limit is admitted of a tenant in any half-open window, over all
//! services that share the [`Limiter`], for as long as the process lives. A refused request spends nothing.
//!
//! | what happens | rule |
//! |---|---|
//! | a quota is lowered live | nothing is admitted until what was spent fits; nothing is forgiven |
//! | a refund | takes from the spend's own entry or an older one, never a newer; gone already: nothing; once per spend |
//! | a charge by the response ([`charge_if`](RateLimitLayer::charge_if)) | reserved first, settled with the response; a dropped future stays spent |
//! | [`Limiter::reset`] | voids the past of that tenant, and is logged |
//! | a [shadow](Quota::shadow) quota | what it would refuse is logged and marked (`x-ratelimit-would-refuse`), spends nothing there, is charged to the others, and shows in no standard header |
//! | more tenants than [`max_tenants`](Limiter::max_tenants) | tenants that [`Quotas`] names have room; others share 4096 buckets per plan; when there is room again, or one is named, it takes along what its bucket counts |
//! | more bytes than [`max_bytes`](Limiter::max_bytes) | the same, and the logs of busy tenants get coarser: units come back late, never early |
//! | a request that costs more than the quota | refused, without `retry-after` |
//! | one request through two layers of one limiter | charged once (the marks of four limiters are kept) |
//! | the process ends | everything is forgotten |
//!
//! # Three rules
//!
//! [`Quota::per_minute`] and its like slide. [`Quota::smooth`] spreads the load (GCRA) and lets a window see
//! `burst + rate`. [`Quota::fixed`] follows the calendar and lets a window see twice the limit across a boundary.
//!
//! # Several limits
//!
//! Several quotas in one [`Plan`] are charged all or nothing; the headers speak of the one that refused, else of the one
//! with the least left. Two layers with limiters of their own are charged one after the other, so the outer one stays
//! charged when the inner one refuses; the headers speak of the refusing one there too.

mod budget;
mod decision;
mod fixed;
mod gate;
mod headers;
mod journal;
mod key;
mod layer;
mod limiter;
mod memory;
mod meter;
mod overflow;
mod plan;
mod quota;
mod quotas;
mod row;
mod smooth;
mod window;

pub use self::{
    decision::{Admission, Decision, RateLimit, Refusal, RefusalReason, Spend},
    gate::{NoTenant, RateLimitGate, RateLimitPass},
    headers::HeaderStyle,
    layer::{RateLimitLayer, RateLimited},
    limiter::Limiter,
    plan::Plan,
    quota::Quota,
    quotas::Quotas,
};
