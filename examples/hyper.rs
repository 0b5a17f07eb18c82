//! A plain hyper server (HTTP/1 and HTTP/2) with a limit per client address, which works behind proxies, and a graceful
//! shutdown.
//!
//!     cargo run --example hyper
//!
//!     curl -i http://127.0.0.1:3000/
//!
//! This machine is configured as a trusted proxy, so that you can play the proxy. Each of these requests is from a
//! different client, with 5 requests in any 10 seconds.
//!
//!     curl -i http://127.0.0.1:3000/ -H 'x-forwarded-for: 198.51.100.7'
//!     curl -i http://127.0.0.1:3000/ -H 'x-forwarded-for: 203.0.113.9, 198.51.100.8'   # the rightmost counts

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "prints what it does")]

use std::{convert::Infallible, error::Error, pin::pin, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::{net::TcpListener, signal::ctrl_c, time::sleep};
use tollgate::{ClientIp, LimitKey, Limiter, PeerAddr, Plans, Quota, RateLimit, RateLimitLayer};
use tower::{ServiceBuilder, ServiceExt, service_fn};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".into())).await?;
    println!("listening on http://{}", listener.local_addr()?);

    let source = ClientIp::behind(["127.0.0.0/8", "::1"])?;
    let limiter = Limiter::memory(Plans::new(Quota::new(5, Duration::from_secs(10))?));
    let service = ServiceBuilder::new().layer(RateLimitLayer::new(source, limiter)).service(service_fn(hello));

    let server = auto::Builder::new(TokioExecutor::new());
    let graceful = GracefulShutdown::new();
    let mut stop = pin!(ctrl_c());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut stop => break,
        };
        let (stream, peer) = match accepted {
            Ok(connection) => connection,
            Err(error) => {
                // temporary errors, such as too many open files
                eprintln!("accept: {error}");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // only this loop knows the peer address
        let service = service.clone().map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(PeerAddr(peer));
            request
        });
        let connection = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        let connection = graceful.watch(connection.into_owned());
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                eprintln!("{peer}: {error}");
            }
        });
    }

    drop(listener);
    println!("finishing open requests");
    tokio::select! {
        () = graceful.shutdown() => {}
        () = sleep(Duration::from_secs(10)) => eprintln!("closing the remaining connections"),
    }
    Ok(())
}

async fn hello(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    // an address is not a tenant, but the key of the limit
    let key = RateLimit::from_extensions(request.extensions()).map(RateLimit::key).map(LimitKey::as_str);
    Ok(Response::new(Full::from(format!("hello {}\n", key.unwrap_or_default()))))
}
