//! limits
mod budget;
mod decision;
mod fixed;
mod gate;
mod headers;
mod journal;
mod layer;
mod limiter;
mod memory;
mod meter;
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
