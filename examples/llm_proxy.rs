//! A proxy in front of a language model: 1,000 tokens a minute for each API key, charged as they stream, and at most
//! two open responses.
//!
//!     cargo run --example llm_proxy
//!
//!     curl -iN 'http://127.0.0.1:3000/generate?tokens=50' -H 'x-api-key: demo-key'   # then press Ctrl-C
//!     curl -i 'http://127.0.0.1:3000/generate?model=broken' -H 'x-api-key: demo-key'   # costs nothing
//!     curl http://127.0.0.1:3000/left
//!
//! The model is a task of this process. It sends a line with one token every 50 milliseconds, and its answers have 40.

#![expect(clippy::print_stdout, reason = "prints its address")]

use std::{
    convert::Infallible,
    error::Error,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{StatusCode, Uri},
    response::Response,
    routing::get,
};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use tokio::{
    net::TcpListener,
    time::{Interval, interval},
};
use tollgate::{ApiKeys, Limiter, Plan, Plans, ProblemJson, Quota, RateLimitLayer, Tenant};
use tower::ServiceExt;

/// The most tokens of an answer.
const AT_MOST: u32 = 500;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".into())).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app()?).await?;
    Ok(())
}

fn app() -> Result<Router, Box<dyn Error>> {
    let plan = Plan::new([Quota::per_minute(1_000)?.with_name("tokens")?.with_unit("tokens")?, Quota::concurrent(2)?])?;
    let limiter = Limiter::memory(Plans::new(plan));
    let keys = ApiKeys::new("x-api-key")?.key("demo-key", "demo")?;
    // a request is admitted if the tokens that it asks for are left. It pays for those that were sent
    let limit = RateLimitLayer::new(keys, limiter.clone())
        .respond_with(ProblemJson)
        // a model that fails before its first token costs nothing. Without this, it would cost the estimate
        .charge_if(|status, _| status.is_success())
        .tracking_bodies()
        .metered(100, AT_MOST)
        .estimate(|head| tokens(head.uri()))
        .read_usage(|chunk, usage| {
            let lines = chunk.iter().filter(|byte| **byte == b'\n').count();
            usage.add(u32::try_from(lines).unwrap_or(u32::MAX));
        });

    let model = Router::new().route("/generate", get(generate));
    Ok(Router::new()
        .route("/generate", get(proxy).with_state(model))
        .layer(limit)
        // not limited
        .route("/left", get(left).with_state(limiter)))
}

/// Forwards the request to the model. For a model elsewhere, use an HTTP client here.
async fn proxy(State(model): State<Router>, request: Request) -> Result<Response, StatusCode> {
    model.oneshot(request).await.map_err(|_| StatusCode::BAD_GATEWAY)
}

async fn left(State(limiter): State<Limiter>) -> String {
    let standing = Tenant::parse("demo").ok().and_then(|demo| limiter.peek(&demo));
    standing.map_or_else(String::new, |standing| format!("{}: {}\n", standing.policy(), standing.remaining()))
}

fn tokens(uri: &Uri) -> u32 {
    parameter(uri, "tokens=").and_then(|asked| asked.parse().ok()).map_or(100, |tokens: u32| tokens.clamp(1, AT_MOST))
}

fn parameter<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    uri.query()?.split('&').find_map(|parameter| parameter.strip_prefix(name))
}

// ---- the model

/// The tokens of each answer.
const ANSWER: u32 = 40;

async fn generate(uri: Uri) -> Result<Body, StatusCode> {
    if parameter(&uri, "model=") == Some("broken") {
        return Err(StatusCode::BAD_GATEWAY);
    }
    Ok(Body::new(Answer { left: tokens(&uri).min(ANSWER), pace: interval(Duration::from_millis(50)) }))
}

struct Answer {
    left: u32,
    pace: Interval,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(left) = self.left.checked_sub(1) else { return Poll::Ready(None) };
        ready!(self.pace.poll_tick(cx));
        self.left = left;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"{\"token\":\"and\"}\n")))))
    }
}
