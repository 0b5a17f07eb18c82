//! A custom gate. While the service is read-only, it rejects writes with a 503 and marks reads.
//!
//! It shows everything a gate can do: decide immediately or later, mark the request, mark the
//! response. The engine does the rest: it keeps the type of the body, calls the service that was
//! polled ready, and never calls it for rejected requests.
//!
//!     cargo run --example own_gate
//!
//!     curl -i http://127.0.0.1:3000/
//!     curl -i http://127.0.0.1:3000/ -d 'a write'                  # rejected
//!     curl -i http://127.0.0.1:3000/ -d 'a write' -H 'x-force: 1'  # admitted

#![expect(clippy::print_stdout, reason = "prints its address")]

use std::{error::Error, future::Future, pin::Pin, time::Duration};

use axum::{Extension, Router, routing::get};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::net::TcpListener;
use tollgate::{
    Head, ProblemJson,
    gate::{Gate, GateLayer, MaybeReady, Pass},
    reject::{Rejection, RejectionKind},
};

struct ReadOnly;

/// The kind of an admitted request. The handler and the response use it.
#[derive(Clone, Copy, Debug)]
enum Access {
    Read,
    ForcedWrite,
}

impl Gate for ReadOnly {
    type Pass = Access;
    type Future = Pin<Box<dyn Future<Output = Result<Access, Rejection>> + Send>>;

    fn inspect(&self, head: Head<'_>) -> MaybeReady<Self::Future> {
        if head.method().is_safe() {
            // an immediate decision needs neither a box nor a poll
            return MaybeReady::Ready(Ok(Access::Read));
        }
        // the future outlives the head, so it copies what it needs
        let force = head.headers().get("x-force").cloned();
        MaybeReady::Pending(Box::pin(async move {
            match force {
                Some(force) if may_force(&force).await => Ok(Access::ForcedWrite),
                _ => Err(Rejection::new(RejectionKind::Unavailable, "the service is currently read-only")
                    .retry_in(Duration::from_secs(60))),
            }
        }))
    }
}

impl Pass for Access {
    fn admit(&mut self, extensions: &mut Extensions) {
        extensions.insert(*self);
    }

    fn finish(self, status: StatusCode, headers: &mut HeaderMap) {
        if status.is_success() {
            headers.insert(HeaderName::from_static("x-read-only"), HeaderValue::from_static("true"));
        }
    }
}

/// Stands in for a request to another service.
async fn may_force(value: &HeaderValue) -> bool {
    tokio::task::yield_now().await;
    value == "1"
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let handler = async |Extension(access): Extension<Access>| format!("{access:?}\n");
    let app =
        Router::new().route("/", get(handler).post(handler)).layer(GateLayer::new(ReadOnly).respond_with(ProblemJson));

    let listener = TcpListener::bind(std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".into())).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
