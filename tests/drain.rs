//! HTTP/1.1 connections behind layers and handlers that do not read a body.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may panic")]

#[path = "support/late_bodies.rs"]
mod late_bodies;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{Router, body::Bytes, extract::Request, routing::post};
use http_body::Frame;
use http_body_util::BodyExt;
use late_bodies::{LateCall, Outcome};
use tokio::net::TcpListener;
use tollgate::{
    ApiKeys, DrainLayer, EventLog, EventService, Head, Limiter, Plans, ProblemJson, Quota, RateLimitLayer,
    SessionLayer, Sessions, Tenant, event::TenantsAndOperator, store::Memory, tenant::TenantError,
};
use tower::{Layer, ServiceExt, limit::ConcurrencyLimitLayer, service_fn};

/// An app in which the limit of one tenant is spent, with a route for each way to leave a body unread.
fn app() -> Router {
    let limiter = Limiter::memory(Plans::new(Quota::per_minute(1).unwrap()));
    let acme: Tenant = "acme".parse().unwrap();
    assert!(limiter.check(&acme, 1).is_admitted());
    let tenant = move |_: Head<'_>| Ok::<_, TenantError>(Some(acme.clone()));
    let limit = RateLimitLayer::new(tenant, limiter).respond_with(ProblemJson);
    let session = SessionLayer::new(Sessions::new(Memory::new())).required().respond_with(ProblemJson);
    let keys = ApiKeys::new("x-api-key").unwrap().key("a-key-of-acme", "acme").unwrap();
    let events = EventService::builder(EventLog::new(), TenantsAndOperator::new(keys)).base_path("/events").unwrap();
    Router::new()
        .route("/limited", post(async || "").layer(limit))
        .route("/session", post(async || "").layer(session))
        .route("/ignored", post(async || "done"))
        .route("/read", post(async |body: Bytes| body))
        .route(
            "/half-read",
            post(async |request: Request| {
                let mut body = request.into_body();
                let _first = body.frame().await;
            }),
        )
        .route_service("/events/{*rest}", events.build())
}

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

fn calls() -> Vec<(LateCall, u16)> {
    [
        ("POST /limited", 429),
        ("POST /session", 401),
        ("POST /ignored", 200),
        ("POST /read", 200),
        ("POST /half-read", 200),
        ("POST /nowhere", 404),
        ("PUT /ignored", 405),
    ]
    .map(|(line, status)| (LateCall::new(&format!("{line}\nx: y"), "a=b"), status))
    .into_iter()
    .chain([
        (LateCall::chunked("POST /limited?in-chunks\nx: y", "a=b"), 429),
        (LateCall::chunked("POST /half-read?in-chunks\nx: y", "a=b"), 200),
    ])
    .collect()
}

fn lost(all: &BTreeMap<String, Outcome>) -> usize {
    all.values().map(|outcome| outcome.lost).sum()
}

#[tokio::test]
async fn b20_no_call_is_lost_behind_the_layer_and_every_connection_stays_open() {
    let calls = calls();
    let sent = calls.iter().map(|(call, _)| call.clone()).collect();
    let all = late_bodies::make(serve(app().layer(DrainLayer::new())).await, sent, 3_000).await;
    assert_eq!(lost(&all), 0, "{all:#?}");
    for (call, status) in calls {
        let outcome = all[call.name()];
        assert_eq!((outcome.status, outcome.closing), (status, 0), "{}", call.name());
    }
}

#[tokio::test]
async fn b20_the_end_of_a_connection_is_announced_if_too_much_is_left_on_it() {
    let large = || " ".repeat(64 * 1024 + 1);
    let calls = vec![
        LateCall::new("POST /limited\nx: y", large()),
        LateCall::chunked("POST /session\nx: y", &large()),
        LateCall::new("POST /nowhere\nexpect: 100-continue", "a=b"),
        LateCall::new("POST /events/log\nx: y", "a=b"),
    ];
    let all = late_bodies::make(serve(app().layer(DrainLayer::new())).await, calls.clone(), 500).await;
    assert_eq!(lost(&all), 0, "{all:#?}");
    assert!(all.values().all(|outcome| outcome.closing == outcome.answered), "{all:#?}");
    // the last one knows it without the layer
    let alone = calls.last().cloned().into_iter().collect();
    let all = late_bodies::make(serve(app()).await, alone, 500).await;
    assert_eq!(lost(&all), 0, "{all:#?}");
    assert!(all.values().all(|outcome| outcome.closing == outcome.answered), "{all:#?}");
}

/// The reason for the layer: hyper reads what has arrived, and no more.
#[tokio::test]
async fn b20_without_the_layer_calls_are_lost_unless_their_body_comes_with_the_head() {
    let refused = LateCall::new("POST /limited\nx: y", "a=b");
    let address = serve(app()).await;
    let late = late_bodies::make(address, vec![refused.clone()], 100).await;
    assert!(lost(&late) >= 40 && late["POST /limited"].closing == 0, "{late:#?}");
    let at_once = late_bodies::make(address, vec![refused.at_once()], 100).await;
    assert_eq!((lost(&at_once), at_once["POST /limited"].closing), (0, 0), "{at_once:#?}");
}

/// A body that never comes.
struct Never;

impl http_body::Body for Never {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn b20_a_body_that_never_comes_delays_its_answer_by_thirty_seconds_at_most() {
    let service =
        DrainLayer::new().layer(service_fn(async |_: http::Request<_>| Ok::<_, Infallible>(http::Response::new(()))));
    let body = || axum::body::Body::new(Never);
    let begun = tokio::time::Instant::now();
    let response = service.clone().oneshot(http::Request::post("/").body(body()).unwrap()).await.unwrap();
    assert_eq!((response.headers()["connection"].as_bytes(), begun.elapsed().as_secs()), (&b"close"[..], 30));
    // HTTP/2 has other means
    let request = http::Request::post("/").version(http::Version::HTTP_2).body(body()).unwrap();
    let response = service.oneshot(request).await.unwrap();
    assert!(response.headers().is_empty() && begun.elapsed().as_secs() == 30);
}

#[tokio::test(start_paused = true)]
async fn a_call_frees_what_it_holds_before_its_body_comes() {
    let answer = service_fn(async |_: http::Request<_>| Ok::<_, Infallible>(http::Response::new(())));
    let service = DrainLayer::new().layer(ConcurrencyLimitLayer::new(1).layer(answer));
    let begun = tokio::time::Instant::now();
    let send = async |body| {
        service.clone().oneshot(http::Request::post("/").body(body).unwrap()).await.unwrap();
        begun.elapsed().as_secs()
    };
    let (stalled, other) = tokio::join!(send(axum::body::Body::new(Never)), send(axum::body::Body::empty()));
    assert_eq!((stalled, other), (30, 0));
}
