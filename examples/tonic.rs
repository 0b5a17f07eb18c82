//! Rate limits for gRPC. This process serves the standard health service with tonic and calls it:
//! as acme, which has 5 calls per minute, until it gets RESOURCE_EXHAUSTED, then once as globex.
//!
//!     cargo run --example tonic
//!
//! With an address it only serves, so that you can call it:
//!
//!     cargo run --example tonic 127.0.0.1:50051
//!     grpc_health_probe -addr 127.0.0.1:50051 -rpc-header 'x-api-key: demo-acme-key'

#![expect(clippy::print_stdout, reason = "prints the calls")]

use std::error::Error;

use tollgate::{ApiKeys, Limiter, Plans, Quota, RateLimitLayer};
use tonic::{
    Code, Request, Status,
    metadata::{AsciiMetadataValue, MetadataMap},
    transport::{Channel, Endpoint, Server, server::TcpIncoming},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let keys = ApiKeys::new("x-api-key")?.key("demo-acme-key", "acme")?.key("demo-globex-key", "globex")?;
    let limit = RateLimitLayer::new(keys, Limiter::memory(Plans::new(Quota::const_per_minute::<5>())));

    let (_reporter, health) = tonic_health::server::health_reporter();
    let address = std::env::args().nth(1);
    let incoming = TcpIncoming::bind(address.as_deref().unwrap_or("127.0.0.1:0").parse()?)?;
    let listening = incoming.local_addr()?;
    println!("listening on http://{listening}");

    // the layer wraps all services of this server
    let server = Server::builder().layer(limit).add_service(health).serve_with_incoming(incoming);
    if address.is_some() {
        return Ok(server.await?);
    }
    tokio::spawn(server);

    let channel = Endpoint::from_shared(format!("http://{listening}"))?.connect().await?;
    let mut client = HealthClient::new(channel);
    for call in 1.. {
        match check(&mut client, "demo-acme-key").await {
            Ok(metadata) => println!("acme, call {call}: OK, {} left", text(&metadata, "x-ratelimit-remaining")),
            Err(status) if status.code() == Code::ResourceExhausted => {
                let pushback = text(status.metadata(), "grpc-retry-pushback-ms");
                println!("acme, call {call}: RESOURCE_EXHAUSTED, {}; retry in {pushback} ms", status.message());
                break;
            }
            Err(status) => return Err(status.into()),
        }
    }
    let metadata = check(&mut client, "demo-globex-key").await?;
    println!("globex, call 1: OK, {} left", text(&metadata, "x-ratelimit-remaining"));
    Ok(())
}

/// Checks the health of the server and returns the metadata of the response.
async fn check(client: &mut HealthClient<Channel>, key: &'static str) -> Result<MetadataMap, Status> {
    let mut request = Request::new(HealthCheckRequest::default());
    request.metadata_mut().insert("x-api-key", AsciiMetadataValue::from_static(key));
    Ok(client.check(request).await?.metadata().clone())
}

fn text<'a>(metadata: &'a MetadataMap, name: &str) -> &'a str {
    metadata.get(name).and_then(|value| value.to_str().ok()).unwrap_or("?")
}
