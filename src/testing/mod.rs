//! Helpers for tests (feature `test-util`): a [`ManualClock`], the conformance suite for stores
//! and, with the feature `login`, a `TestIssuer` of access tokens and the `DpopKey` of a client.
//!
//! A service whose clock is an argument can be tested without a server and without sleeping:
//!
//! ```
//! use std::time::Duration;
//! use axum::{Router, body::Body, routing::get};
//! use http::{Request, StatusCode};
//! use tollgate::{
//!     ClientIp, ConfigError, Limiter, PeerAddr, Plans, Quota, RateLimitLayer, clock::Clock, testing::ManualClock,
//! };
//! use tower::ServiceExt;
//!
//! fn app(clock: impl Clock) -> Result<Router, ConfigError> {
//!     let limiter = Limiter::builder(Plans::new(Quota::per_minute(1)?)).clock(clock).build()?;
//!     Ok(Router::new().route("/", get(async || "hello")).layer(RateLimitLayer::new(ClientIp::peer(), limiter)))
//! }
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let clock = ManualClock::new();
//! let app = app(clock.clone())?;
//! for (passed, status) in [(0, StatusCode::OK), (59, StatusCode::TOO_MANY_REQUESTS), (1, StatusCode::OK)] {
//!     clock.advance(Duration::from_secs(passed));
//!     // in production, the server inserts the address
//!     let request = Request::get("/").extension(PeerAddr(([192, 0, 2, 1], 49152).into())).body(Body::empty())?;
//!     assert_eq!(app.clone().oneshot(request).await?.status(), status);
//! }
//! # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
//! ```

mod clock;
#[cfg(feature = "login")]
mod dpop;
#[cfg(feature = "login")]
mod issuer;
mod scan;
mod store;

/// The node side of leases without I/O, for simulations.
#[cfg(feature = "redis")]
#[doc(hidden)]
pub mod lease {
    pub use crate::limit::shared::lease::{
        Admission, CallEnd, ClockReading, LeaseCall, LeaseReply, LeaseRequest, LeaseReturn, LeaseSlots, LeaseStep,
    };
}
pub use self::{
    clock::ManualClock,
    store::{block_on, store_conformance},
};
#[cfg(feature = "login")]
pub use self::{
    dpop::{DpopKey, DpopProof},
    issuer::{TestClaims, TestIssuer},
};
