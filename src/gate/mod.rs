//! The one middleware engine: a [`Gate`] decides about a request, a [`Pass`]
//! marks what it let through.
//!
//! A rate limit, a session check and a PKCE check of the query are each a gate of
//! their own on top, and have no `poll` code; so is yours. What must read a body
//! first, as PKCE in forms does, is a service of its own.
//!
//! ```
//! use std::{convert::Infallible, future::Ready};
//! use http::{Request, Response, StatusCode};
//! use tollgate::{Gate, GateLayer, Head, Kind, MaybeReady, Rejection};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! /// Lets requests through that name a version of the API.
//! struct Versioned;
//!
//! impl Gate for Versioned {
//!     type Pass = ();
//!     type Future = Ready<Result<(), Rejection>>;
//!
//!     fn inspect(&self, head: Head<'_>) -> MaybeReady<Self::Future> {
//!         MaybeReady::Ready(match head.headers().contains_key("api-version") {
//!             true => Ok(()),
//!             false => Err(Rejection::new(Kind::InvalidRequest, "the header api-version is missing")),
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

mod future;
mod layer;
mod service;

use std::future::Future;

use http::{Extensions, HeaderMap, StatusCode};

pub use self::{future::ResponseFuture, layer::GateLayer, service::Gated};
use crate::{http::head::Head, reject::Rejection};

/// Decides whether a request may come through.
///
/// Data flows one way: [`inspect`](Gate::inspect) → [`Pass::admit`] → the inner
/// service → [`Pass::finish`]. A rejected request never reaches the inner
/// service.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not decide about requests",
    note = "implement `tollgate::Gate` for it; the module docs of `tollgate::gate` show one in full"
)]
pub trait Gate: Send + Sync + 'static {
    /// What a request that may come through carries.
    type Pass: Pass;
    /// The decision, where it takes time; `std::future::Ready` where it never does.
    type Future: Future<Output = Result<Self::Pass, Rejection>>;

    /// Looks at a request and decides.
    fn inspect(&self, head: Head<'_>) -> MaybeReady<Self::Future>;
}

/// What an admitted request carries from the decision to the response.
///
/// It is dropped, and [`finish`](Pass::finish) not called, when the inner
/// service fails or the caller goes away.
pub trait Pass {
    /// Marks the request before the inner service sees it.
    fn admit(&mut self, extensions: &mut Extensions) {
        let _ = extensions;
    }

    /// Marks the response of the inner service.
    fn finish(self, status: StatusCode, headers: &mut HeaderMap)
    where
        Self: Sized,
    {
        let _ = (status, headers);
    }
}

/// The pass that marks nothing.
impl Pass for () {}

/// A value that is there already, or a future that will bring it.
///
/// So a decision in memory costs neither a box nor a poll.
#[derive(Clone, Copy, Debug)]
pub enum MaybeReady<F: Future> {
    /// It is there.
    Ready(F::Output),
    /// It takes time.
    Pending(F),
}

impl<F: Future> MaybeReady<F> {
    /// Waits for the value, if it is not there already.
    pub async fn wait(self) -> F::Output {
        match self {
            Self::Ready(value) => value,
            Self::Pending(future) => future.await,
        }
    }
}
