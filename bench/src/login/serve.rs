//! A login service in its own process.

use std::{convert::Infallible, future::Future, io};

use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task};
use tollgate::{AuthService, PeerAddr};
use tower_service::Service;

use crate::{machine, wire::end_with_parent};

/// Serves on a free loopback port, and prints its address.
pub fn serve(service: impl Future<Output = AuthService>) {
    end_with_parent();
    // threads for hashing start on the core of the thread that spawns them
    machine::pin(0);
    let local = task::LocalSet::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("the runtime starts");
    let served = local.block_on(&runtime, async { accept(service.await).await });
    served.expect("the port opens");
}

async fn accept(service: AuthService) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, from) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = service.clone();
        let answer = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(PeerAddr(from));
            let call = service.clone().call(request);
            async move { Ok::<_, Infallible>(call.await.unwrap_or_else(|never| match never {})) }
        });
        task::spawn_local(async move {
            // a client that disconnects is not an error
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}
