//! tollgate
// Each module uses only modules that stand above it; tests/architecture.rs checks it.
mod clock;
mod error;
pub mod event;
pub mod gate;
mod head;
pub mod reject;
pub mod store;
pub mod tenant;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
mod trace;

pub use crate::{
    clock::{Clock, Moment, SystemClock, UnixTime},
    error::ConfigError,
    gate::{Gate, GateLayer, MaybeReady, Pass},
    head::Head,
    reject::{Kind, ProblemJson, Rejection, Respond, StatusOnly},
    tenant::{Tenant, TenantError, TenantSource},
};
