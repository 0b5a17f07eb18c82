//! A rate limit with responders of its own, as a gRPC client meets it.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use http::{Response, StatusCode};
use tollgate::{
    AccessToken, BearerLayer, Head, Limiter, Plans, Quota, RateLimitLayer,
    reject::{Rejection, Respond, StatusOnly},
    tenant::HeaderTenant,
    testing::TestIssuer,
};
use tonic::{
    Code, Status,
    body::Body,
    metadata::AsciiMetadataValue,
    service::{
        InterceptorLayer,
        interceptor::{InterceptedService, ResponseBody},
    },
    transport::{Endpoint, Server, server::TcpIncoming},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower::ServiceBuilder;

/// A page for browsers. It forgets that callers can speak gRPC.
#[derive(Clone)]
struct Page;

impl Respond<Body> for Page {
    fn respond(&self, rejection: &Rejection, _: Head<'_>) -> Response<Body> {
        page(rejection)
    }
}

fn page(rejection: &Rejection) -> Response<Body> {
    let body = Body::new(http_body_util::Full::from(format!("<h1>{}</h1>", rejection.detail())));
    let response = Response::builder().status(StatusCode::FORBIDDEN).header("content-type", "text/html");
    response.header("content-length", "28").body(body).unwrap()
}

async fn is_refused_with_a_grpc_status(respond: impl Respond<Body> + Send + Sync + 'static) {
    let limiter = Limiter::memory(Plans::new(Quota::per_hour(1).unwrap()));
    let layer = RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter).respond_with(respond);
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer).add_service(health).serve_with_incoming(incoming);
    let server = tokio::spawn(async move { server.await.unwrap() });
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let call = |tenant| {
        let mut request = tonic::Request::new(HealthCheckRequest::default());
        request.metadata_mut().insert("x-tenant", AsciiMetadataValue::from_static(tenant));
        request
    };
    assert!(client.check(call("acme")).await.is_ok());
    let refused = client.check(call("acme")).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::ResourceExhausted, "rate limit exceeded"));
    assert!(refused.metadata().contains_key("grpc-retry-pushback-ms"));
    assert_eq!(client.check(call("a b")).await.unwrap_err().code(), Code::InvalidArgument);
    server.abort();
}

#[tokio::test]
async fn a12_every_responder_answers_a_grpc_client_with_its_status() {
    is_refused_with_a_grpc_status(StatusOnly).await;
    is_refused_with_a_grpc_status(Page).await;
    is_refused_with_a_grpc_status(|rejection: &Rejection, _: Head<'_>| page(rejection)).await;
    is_refused_with_a_grpc_status(|_: &Rejection, _: Head<'_>| Response::new(Body::empty())).await;
}

/// Calls a server without and with a token.
async fn needs_a_token(address: std::net::SocketAddr, issuer: &TestIssuer) {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let refused = client.check(HealthCheckRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let mut call = tonic::Request::new(HealthCheckRequest::default());
    let token = format!("Bearer {}", issuer.token(|claims| claims));
    call.metadata_mut().insert("authorization", AsciiMetadataValue::try_from(token).unwrap());
    assert!(client.check(call).await.is_ok());
}

/// As the documentation of `StatusOnly` shows it.
#[tokio::test]
async fn b31_an_interceptor_of_tonic_sees_the_token_that_a_layer_around_it_has_verified() {
    let issuer = TestIssuer::new("https://auth.example", "https://api.example");
    let seen = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&seen);
    let see = move |request: tonic::Request<()>| match AccessToken::from_extensions(request.extensions()) {
        Some(_) => {
            counter.fetch_add(1, SeqCst);
            Ok(request)
        }
        None => Err(Status::internal("no token")),
    };
    let bearer = || BearerLayer::new(issuer.verifier());
    let listen = || {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        (incoming.local_addr().unwrap(), incoming)
    };
    // an interceptor of all services
    let stack = ServiceBuilder::new()
        .layer(bearer())
        .map_response(|response: Response<ResponseBody<Body>>| response.map(Body::new))
        .layer(InterceptorLayer::new(see.clone()));
    let (_, health) = tonic_health::server::health_reporter();
    let (address, incoming) = listen();
    let server = tokio::spawn(Server::builder().layer(stack).add_service(health).serve_with_incoming(incoming));
    needs_a_token(address, &issuer).await;
    server.abort();
    // and of one
    let (_, health) = tonic_health::server::health_reporter();
    let (address, incoming) = listen();
    let router = Server::builder().layer(bearer()).add_service(InterceptedService::new(health, see));
    let server = tokio::spawn(router.serve_with_incoming(incoming));
    needs_a_token(address, &issuer).await;
    server.abort();
    assert_eq!(seen.load(SeqCst), 2);
}
