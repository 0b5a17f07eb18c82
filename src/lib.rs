//! tollgate
// Each module uses only modules that stand above it; tests/architecture.rs checks it.
mod error;
mod clock;
mod encoding;
mod secret;
mod form;
mod json;
pub mod cookie;
mod replay;
mod head;
mod trace;
pub mod tenant;
pub mod event;
pub mod reject;
pub mod gate;
pub mod pkce;
#[cfg(feature = "axum")]
mod extract;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;

#[cfg(feature = "axum")]
pub use crate::extract::MissingLayer;
pub use crate::{
    clock::{Clock, Moment, SystemClock, UnixTime},
    error::ConfigError,
    gate::{Gate, GateLayer, MaybeReady, Pass},
    head::Head,
    pkce::{CodeChallenge, CodeVerifier, PkceBodyLayer, PkceError, PkceLayer},
    reject::{Kind, OAuthJson, ProblemJson, Rejection, Respond, StatusOnly},
    replay::Replay,
    secret::{Digest, Secret},
    tenant::{Tenant, TenantError, TenantSource},
};
