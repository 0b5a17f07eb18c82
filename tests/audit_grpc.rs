//! A rate limit with responders of its own, as a gRPC client meets it.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

use http::{Response, StatusCode};
use tollgate::{Head, Limiter, Quota, Quotas, RateLimitLayer, Rejection, Respond, StatusOnly, tenant::HeaderTenant};
use tonic::{
    Code,
    body::Body,
    metadata::AsciiMetadataValue,
    transport::{Endpoint, Server, server::TcpIncoming},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

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
    let limiter = Limiter::memory(Quotas::new(Quota::per_hour(1).unwrap()));
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
