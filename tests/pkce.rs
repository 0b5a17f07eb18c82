//! PKCE over real sockets, in axum and hyper.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests may panic")]

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tollgate::{PkceLayer, ProblemJson, pkce::CodeChallenge};
use tower::{ServiceBuilder, service_fn};

const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
const QUERY: &str = "code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256";
const REQUIRED: &str = "code challenge required";
const UNSUPPORTED: &str = "transform algorithm not supported";

/// Sends these bytes. Returns the response without its date and with sorted headers.
async fn exchange(server: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(server).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let (status, headers) = head.split_once("\r\n").unwrap();
    let mut headers: Vec<_> = headers.split("\r\n").filter(|line| !line.starts_with("date: ")).collect();
    headers.sort_unstable();
    format!("{status}\r\n{}\r\n\r\n{body}", headers.join("\r\n"))
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
}

fn post(target: &str, content_type: &str, body: &str) -> String {
    let len = body.len();
    format!(
        "POST {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: {content_type}\r\ncontent-length: {len}\r\n\r\n{body}"
    )
}

/// The complete response to a request that the layer refuses for this reason.
fn refusal(reason: &str) -> String {
    let body = format!(
        r#"{{"type":"about:blank","title":"Bad Request","status":400,"detail":"{reason}","kind":"invalid_request"}}"#
    );
    let len = body.len();
    format!(
        "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: {len}\r\ncontent-type: application/problem+json\r\n\r\n{body}"
    )
}

async fn hyper_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let echo = service_fn(async |request: Request<Incoming>| {
        let challenge = CodeChallenge::from_extensions(request.extensions()).map(CodeChallenge::to_string);
        let answer = format!("{challenge:?} {:?}", request.into_body().collect().await?.to_bytes());
        Ok::<_, hyper::Error>(Response::new(Full::<Bytes>::from(answer)))
    });
    let service =
        ServiceBuilder::new().layer(PkceLayer::new("/authorize").unwrap().respond_with(ProblemJson)).service(echo);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(service.clone());
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    address
}

#[tokio::test]
async fn c012_c013_complete_responses_to_bad_queries_in_hyper() {
    let server = hyper_server().await;
    assert_eq!(exchange(server, &get("/authorize")).await, refusal(REQUIRED));
    assert_eq!(exchange(server, &get("/authorize?state=x")).await, refusal(REQUIRED));
    for method in ["", "&code_challenge_method=plain", "&code_challenge_method=s256"] {
        let target = format!("/authorize?code_challenge={CHALLENGE}{method}");
        assert_eq!(exchange(server, &get(&target)).await, refusal(UNSUPPORTED), "{method}");
    }
    let twice = "a parameter appears more than once";
    assert_eq!(exchange(server, &get(&format!("/authorize?{QUERY}&code_challenge=x"))).await, refusal(twice));
    // the challenge must be in the query, even if the body has one
    let form = "application/x-www-form-urlencoded";
    assert_eq!(exchange(server, &post("/authorize", form, QUERY)).await, refusal(REQUIRED));
}

#[tokio::test]
async fn good_queries_are_admitted_in_hyper() {
    let server = hyper_server().await;
    let answer = exchange(server, &get(&format!("/authorize?state=a%20b&{QUERY}"))).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with(&format!("Some(\"{CHALLENGE}\") b\"\"")), "{answer}");
    let answer = exchange(server, &get("/elsewhere")).await;
    assert!(answer.ends_with("\r\n\r\nNone b\"\""), "{answer}");
}

#[tokio::test]
async fn in_tonic_only_the_protected_path_is_rejected_with_trailers_only() {
    use tonic::{
        Code,
        transport::{Server, server::TcpIncoming},
    };

    const GUARDED: &str = "/grpc.health.v1.Health/Check";
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let (_reporter, health) = tonic_health::server::health_reporter();
    let layer = PkceLayer::new(GUARDED).unwrap();
    tokio::spawn(Server::builder().layer(layer).add_service(health).serve_with_incoming(incoming));
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) =
        hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);

    // an empty message
    let message = Bytes::from_static(&[0; 5]);
    let call = async |target: &str| {
        let request = Request::post(format!("http://{address}{target}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(message.clone()));
        let (head, body) = client.clone().send_request(request.unwrap()).await.unwrap().into_parts();
        assert_eq!((head.status.as_u16(), &head.headers["content-type"]), (200, &"application/grpc".parse().unwrap()));
        let code = |headers: &http::HeaderMap| headers.get("grpc-status").map(|code| Code::from_bytes(code.as_bytes()));
        let whole = body.collect().await.unwrap();
        (code(&head.headers), whole.trailers().and_then(code), whole.to_bytes().is_empty())
    };
    // the status is in the header block, and no body follows
    assert_eq!(call(GUARDED).await, (Some(Code::InvalidArgument), None, true));
    assert_eq!(call(&format!("{GUARDED}?{QUERY}")).await, (None, Some(Code::Ok), false));
    let unimplemented = call("/grpc.health.v1.Health/Other").await;
    assert_eq!(unimplemented.0.or(unimplemented.1), Some(Code::Unimplemented), "another path reaches the service");
}

#[cfg(feature = "axum")]
mod axum_server {
    use axum::{Router, routing};

    use super::*;

    async fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/authorize", routing::get(async |challenge: CodeChallenge| challenge.to_string()))
            .layer(PkceLayer::new("/authorize").unwrap().respond_with(ProblemJson))
            .route("/bare", routing::get(async |challenge: CodeChallenge| challenge.to_string()))
            .route("/maybe", routing::get(async |challenge: Option<CodeChallenge>| format!("{challenge:?}")))
            .nest_service(
                "/mounted",
                Router::new()
                    .route("/", routing::get(async |challenge: CodeChallenge| challenge.to_string()))
                    .layer(PkceLayer::everywhere()),
            );
        tokio::spawn(async { axum::serve(listener, router).await });
        address
    }

    #[tokio::test]
    async fn the_extractor_returns_the_checked_challenge() {
        let server = server().await;
        let answer = exchange(server, &get(&format!("/authorize?{QUERY}"))).await;
        assert!(answer.ends_with(&format!("\r\n\r\n{CHALLENGE}")), "{answer}");
        let answer = exchange(server, &get(&format!("/mounted?{QUERY}"))).await;
        assert!(answer.ends_with(&format!("\r\n\r\n{CHALLENGE}")), "{answer}");
    }

    #[tokio::test]
    async fn c012_complete_responses_without_a_challenge() {
        let server = server().await;
        assert_eq!(exchange(server, &get("/authorize")).await, refusal(REQUIRED));
        assert_eq!(
            exchange(server, &get("/mounted")).await,
            "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
    }

    #[tokio::test]
    async fn the_extractor_reports_a_missing_layer() {
        let server = server().await;
        let answer = exchange(server, &get("/bare")).await;
        assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
        assert!(answer.ends_with("\r\n\r\nno PkceLayer protects this route"), "{answer}");
        assert!(exchange(server, &get("/maybe")).await.ends_with("\r\n\r\nNone"));
    }
}
