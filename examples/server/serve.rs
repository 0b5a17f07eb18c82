//! Starts and stops the server. It accepts connections itself, because slow or many clients must not hold it up.

use std::{convert::Infallible, pin::pin, time::Duration};

use axum::http::Request;
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
#[cfg(unix)]
use tokio::signal::unix::SignalKind;
use tokio::{net::TcpListener, time::sleep};
use tollgate::{DrainLayer, EventLog, PeerAddr, body::Drained};
use tower::{Layer, ServiceExt, service_fn};

use crate::{
    api::App,
    connections::Connections,
    idle::{HEAD_TIME, OpenRequests},
    localhost,
    watched::{CountedBody, Watched},
};

/// How long open requests may take after the signal to stop.
const GRACE: Duration = Duration::from_secs(5);
/// The interval of HTTP/2 pings, and the time for their answers.
const PING: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));

/// Serves until Ctrl-C or SIGTERM, and then waits for open requests.
pub(crate) async fn until_stopped(listeners: Vec<TcpListener>, app: App, is_behind_proxies: bool, log: &EventLog) {
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
    server.http2().timer(TokioTimer::new()).keep_alive_interval(PING.0).keep_alive_timeout(PING.1);
    let connections = Connections::new(is_behind_proxies);
    let graceful = GracefulShutdown::new();
    // caught before anything is served, so that a signal never cuts off a request
    let mut stop = pin!(signal());
    loop {
        let (stream, peer, place) = tokio::select! {
            accepted = connections.accept(&listeners) => accepted,
            () = &mut stop => break,
        };
        let (requests, App { routes, own_origin }) = (OpenRequests::new(), app.clone());
        let idle = requests.clone().idle();
        let io = TokioIo::new(Watched { io: stream, requests: requests.clone() });
        // reads what routes leave of a body, so that the connection can go on
        let service = DrainLayer::new().layer(service_fn(move |mut request: Request<Drained<Incoming>>| {
            request.extensions_mut().insert(PeerAddr(peer));
            let elsewhere = own_origin.as_deref().and_then(|origin| localhost::redirect(origin, &request));
            let (answer, open) = (routes.clone().oneshot(request), requests.begin());
            async move {
                let response = match elsewhere {
                    Some(redirect) => redirect,
                    None => answer.await?,
                };
                Ok::<_, Infallible>(response.map(|body| CountedBody::new(body, open)))
            }
        }));
        let connection = server.serve_connection(io, TowerToHyperService::new(service));
        let connection = graceful.watch(connection.into_owned());
        tokio::spawn(async move {
            let _place = place;
            tokio::select! {
                _ = connection => {}
                // the timeouts of HTTP/1 begin when its version is known, and HTTP/2 has none; neither has one for responses
                () = idle => {}
            }
        });
    }
    println!("Stopping. Once more to cut off what is under way.");
    drop(listeners);
    // live streams never end on their own
    log.close();
    tokio::select! {
        () = graceful.shutdown() => {}
        () = sleep(GRACE) => {}
        () = signal() => {}
    }
}

/// Catches Ctrl-C and SIGTERM from now on. Returns at the next of them.
fn signal() -> impl Future<Output = ()> {
    #[cfg(unix)]
    let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(tokio::signal::unix::signal);
    async move {
        #[cfg(unix)]
        if let [Ok(mut interrupt), Ok(mut terminate)] = signals {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
        let _ = tokio::signal::ctrl_c().await;
    }
}
