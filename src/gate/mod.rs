//! The middleware engine: a [`Gate`] decides whether a request may pass, and a [`Pass`]
//! marks the requests and responses of those that may.
//!
//! Rate limits, session checks and PKCE checks are gates without any `poll` code, and so are
//! your own. A check that must read the body first is a service of its own.
//!
//! ```
//! use std::{convert::Infallible, future::Ready};
//! use http::{Request, Response, StatusCode};
//! use tollgate::{Head, gate::{Gate, GateLayer, MaybeReady}, reject::{Rejection, RejectionKind}};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! /// Admits requests that name a version of the API.
//! struct Versioned;
//!
//! impl Gate for Versioned {
//!     type Pass = ();
//!     type Future = Ready<Result<(), Rejection>>;
//!
//!     fn inspect(&self, head: Head<'_>) -> MaybeReady<Self::Future> {
//!         MaybeReady::Ready(match head.headers().contains_key("api-version") {
//!             true => Ok(()),
//!             false => Err(Rejection::new(RejectionKind::InvalidRequest, "the header api-version is missing")),
//!         })
//!     }
//! }
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let service = ServiceBuilder::new()
//!     .layer(GateLayer::new(Versioned))
//!     .service(service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::from("hello")))));
//! let response = service.oneshot(Request::new(String::new())).await.unwrap();
//! assert_eq!(response.status(), StatusCode::BAD_REQUEST);
//! # });
//! ```

mod decision;
mod future;
mod layer;
mod service;

pub use self::{
    decision::{Gate, MaybeReady, Pass},
    future::ResponseFuture,
    layer::GateLayer,
    service::Gated,
};
