//! The login service in real servers: the same login over sockets, wherever it is mounted.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;

use axum::Router;
use http::Request;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use serde_json::json;
use support::browser::Browser;
use support::login_server::{LoginServer, PASSWORD, WEB, axum, listen, service};
use support::wire::{Wire, body, header, status};
use tokio::task::JoinSet;
use tollgate::{PeerAddr, auth::AuthServiceBuilder};
use tonic::service::Routes;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower::{ServiceBuilder, ServiceExt, util::BoxCloneSyncServiceLayer};

// ---- servers

/// Performs complete logins over HTTP/1.1 and HTTP/2.
async fn logs_in(server: &LoginServer, base: &'static str) {
    for mut browser in [Browser::new(&server.origin(), base), Browser::http2(&server.origin(), base)] {
        let code = browser.log_in(&WEB, "ada", PASSWORD).await;
        assert_eq!(code.len(), 43);
        assert_eq!(browser.cookies.keys().collect::<Vec<_>>(), ["auth_device", "session_giszrYfB"]);
    }
}

async fn hyper(base: &str) -> LoginServer {
    let (listener, address) = listen().await;
    let auth = service(&format!("http://{address}{base}"), []).await.build().unwrap();
    let task = tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let auth = auth.clone().map_request(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(PeerAddr(peer));
                request
            });
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(auth)).await;
            });
        }
    });
    LoginServer { address, task }
}

// ---- the same login everywhere

#[tokio::test]
async fn axum_with_the_issuer_path_stripped() {
    logs_in(
        &axum("/auth", [], |auth: AuthServiceBuilder| Router::new().nest_service("/auth", auth.build().unwrap())).await,
        "/auth",
    )
    .await;
}

#[tokio::test]
async fn axum_with_the_issuer_path_kept() {
    let mount = |auth: AuthServiceBuilder| Router::new().route_service("/a/b/{*rest}", auth.build().unwrap());
    logs_in(&axum("/a/b", [], mount).await, "/a/b").await;
}

#[tokio::test]
async fn axum_at_the_root_with_other_routes() {
    let mount = |auth: AuthServiceBuilder| {
        let auth = auth.build().unwrap();
        Router::new()
            .route("/", axum::routing::get(async || "home"))
            .route_service("/authorize", auth.clone())
            .route_service("/authentication/{*rest}", auth)
    };
    logs_in(&axum("", [], mount).await, "").await;
}

#[tokio::test]
async fn axum_as_the_fallback() {
    logs_in(&axum("", [], |auth| Router::new().fallback_service(auth.build().unwrap())).await, "").await;
}

#[tokio::test]
async fn hyper_with_and_without_an_issuer_path() {
    logs_in(&hyper("").await, "").await;
    logs_in(&hyper("/auth").await, "/auth").await;
}

#[tokio::test]
async fn tonic_with_a_grpc_service() {
    let (listener, address) = listen().await;
    let auth = service(&format!("http://{address}/auth"), []).await.build().unwrap();
    let (_reporter, health) = tonic_health::server::health_reporter();
    let routes = Routes::from(Routes::new(health).into_axum_router().nest_service("/auth", auth));
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server = tonic::transport::Server::builder().accept_http1(true).add_routes(routes);
    let server = server.serve_with_incoming(incoming);
    let running = LoginServer { address, task: tokio::spawn(async move { server.await.unwrap() }) };

    logs_in(&running, "/auth").await;
    let endpoint = tonic::transport::Endpoint::from_shared(running.origin()).unwrap();
    let mut health = HealthClient::new(endpoint.connect().await.unwrap());
    assert!(health.check(HealthCheckRequest::default()).await.is_ok());
}

#[tokio::test]
async fn behind_layers_that_box_bodies() {
    let mount = |auth: AuthServiceBuilder| {
        let auth = auth.build().unwrap();
        let stack = ServiceBuilder::new()
            .layer(BoxCloneSyncServiceLayer::new(ServiceBuilder::new().concurrency_limit(2).into_inner()))
            .map_request(|request: Request<axum::body::Body>| {
                request.map(|body| Limited::new(body, 1 << 20).boxed_unsync())
            })
            .service(auth);
        Router::new().nest_service("/auth", stack)
    };
    logs_in(&axum("/auth", [], mount).await, "/auth").await;
}

// ---- on the wire

#[tokio::test]
async fn methods_and_paths_follow_http_semantics() {
    let server = hyper("/auth").await;
    let mut wire = Wire::to(server.address).await;

    let get = wire.ask("GET /auth/openapi.json HTTP/1.1").await;
    let head = wire.ask("HEAD /auth/openapi.json HTTP/1.1").await;
    assert_eq!(status(&get), 200);
    assert!(!body(&get).is_empty() && body(&head).is_empty());
    assert_eq!(header(&head, "content-length"), header(&get, "content-length"));

    // with and without an issuer path
    for base in ["/auth", ""] {
        let lost = wire.ask(&format!("GET {base}/nothing HTTP/1.1")).await;
        assert_eq!((status(&lost), header(&lost, "content-type")), (404, Some("application/json")));
        assert_eq!(body(&lost), r#"{"error":"not_found","error_description":"there is no such endpoint"}"#);
        for (method, path, allow) in [
            ("GET", "/authentication/complete", "POST, OPTIONS"),
            ("DELETE", "/authentication/start", "GET, HEAD, POST, OPTIONS"),
            ("PUT", "/authorize", "GET, HEAD, POST, OPTIONS"),
        ] {
            let wrong = wire.ask(&format!("{method} {base}{path} HTTP/1.1\ncontent-length: 0")).await;
            assert_eq!((status(&wrong), header(&wrong, "allow")), (405, Some(allow)), "{method} {path}");
            let options = wire.ask(&format!("OPTIONS {base}{path} HTTP/1.1")).await;
            assert_eq!((status(&options), header(&options, "allow"), body(&options)), (204, Some(allow), ""));
        }
    }
    let head = wire.ask("HEAD /auth/authorize?client_id=nobody HTTP/1.1").await;
    assert_eq!((status(&head), body(&head)), (400, ""));
    let post = "authorize HTTP/1.1\ncontent-type: application/x-www-form-urlencoded\ncontent-length: 0";
    for base in ["/auth/", "/"] {
        let post = wire.ask(&format!("POST {base}{post}")).await;
        assert_eq!((status(&post), header(&post, "location"), body(&post)), (303, Some("/auth/authorize?"), ""));
    }
    // the connection is still usable
    assert_eq!(status(&wire.ask("GET /auth/openapi.json HTTP/1.1").await), 200);
}

#[tokio::test]
async fn an_overlong_body_gets_a_413_and_other_connections_continue() {
    let server = hyper("").await;
    let mut browser = Browser::new(&server.origin(), "");
    let json = [("content-type", "application/json")];
    let long = format!(r#"{{"identifier":"{}"}}"#, "a".repeat(70_000));
    assert_eq!(browser.send("POST", "/authentication/start", &json, &long).await.status, 413);
    browser.log_in(&WEB, "ada", PASSWORD).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_concurrent_logins_end_with_fifty_codes() {
    let server = axum("/auth", (1..50).map(|number| format!("user{number}")), |auth: AuthServiceBuilder| {
        Router::new().nest_service("/auth", auth.build().unwrap())
    })
    .await;
    let mut logins = JoinSet::new();
    for number in 0..50 {
        let origin = server.origin();
        logins.spawn(async move {
            let name = if number == 0 { "ada".to_owned() } else { format!("user{number}") };
            Browser::new(&origin, "/auth").log_in(&WEB, &name, PASSWORD).await
        });
    }
    let mut codes = logins.join_all().await;
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), 50);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn sixty_failures_in_a_minute_lock_only_their_own_address() {
    let server = hyper("").await;
    let mut stranger = Browser::new(&server.origin(), "");
    for round in 0..4 {
        let id = stranger.start(&WEB, "ada").await;
        for number in 0..15 {
            let name = format!("guess{}", round * 15 + number);
            let guess = json!({ "session_id": id, "method": "password", "username": name, "password": "a guess" });
            let answer = stranger.call("authenticate", &WEB, guess).await;
            assert_eq!(answer.status, if number == 14 { 409 } else { 401 }, "{round} {number}: {answer:?}");
        }
    }
    let refused = stranger.call("start", &WEB, json!({ "identifier": "ada" })).await;
    assert_eq!((refused.status, refused.error().as_str()), (429, "too_many_attempts"));
    assert!(!refused.header("retry-after").is_empty());
    let mut other = Browser::from_address(&server.origin(), "", [127, 0, 0, 2].into());
    other.log_in(&WEB, "ada", PASSWORD).await;
}
