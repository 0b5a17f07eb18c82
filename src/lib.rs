//! tollgate
// Each module uses only modules that stand above it; tests/architecture.rs checks it.
mod error;
mod clock;
mod trace;
mod number;
mod head;
pub mod body;
pub mod tenant;
pub mod event;
pub mod reject;
pub mod gate;
pub mod limit;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;

pub use crate::{
    clock::{Clock, Moment, SystemClock, UnixTime},
    error::ConfigError,
    event::{EventLog, EventService},
    gate::{Gate, GateLayer, MaybeReady, Pass},
    head::Head,
    limit::{HeaderStyle, Limiter, Plan, Quota, Quotas, RateLimit, RateLimitLayer},
    reject::{Kind, ProblemJson, Rejection, Respond, StatusOnly},
    tenant::{ApiKeys, ClientIp, PeerAddr, Tenant, TenantError, TenantSource},
};
