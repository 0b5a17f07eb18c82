//! tollgate
// Each module uses only modules that stand above it; tests/architecture.rs checks it.
mod error;
mod clock;
mod head;
mod trace;
pub mod tenant;
pub mod event;
pub mod reject;
pub mod gate;
pub mod store;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;

pub use crate::{
    clock::{Clock, Moment, SystemClock, UnixTime},
    error::ConfigError,
    gate::{Gate, GateLayer, MaybeReady, Pass},
    head::Head,
    reject::{Kind, ProblemJson, Rejection, Respond, StatusOnly},
    tenant::{Tenant, TenantError, TenantSource},
};
