//! Starts and stops the server. It accepts connections itself, because slow or many clients must not hold it up.

use std::{
    collections::{HashMap, hash_map::Entry},
    future::poll_fn,
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};

use axum::{Router, extract::Request};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};
use tollgate::{EventLog, PeerAddr};
use tower::ServiceExt;

use crate::config::Listen;

/// How long open requests may take after the signal to stop.
const GRACE: Duration = Duration::from_secs(5);
/// The time for a complete request head: the first of a connection, and each further one over HTTP/1.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// The interval of HTTP/2 pings, and the time for their answers.
const PING: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));
/// Connections at the same time. Further ones wait until one ends.
const CONNECTIONS: usize = 1_000;
/// Connections of one address, or of one IPv6 network of 64 bits. Further ones are closed.
const PER_ADDRESS: usize = 100;

/// Listens, or explains why that is not possible.
pub(crate) async fn bind(listen: Listen) -> Result<Vec<TcpListener>, String> {
    let port = match listen {
        Listen::At(address) => return Ok(vec![bind_to(address).await.map_err(|error| explained(address, &error))?]),
        Listen::Localhost(port) => port,
    };
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let first = bind_to(v4).await.map_err(|error| explained(v4, &error))?;
    let port = first.local_addr().map_err(|error| explained(v4, &error))?.port();
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    match bind_to(v6).await {
        Ok(second) => Ok(vec![first, second]),
        // a browser that resolves `localhost` to IPv6 would reach the other program
        Err(error) if error.kind() == ErrorKind::AddrInUse => Err(explained(v6, &error)),
        // this machine has no IPv6
        Err(_) => Ok(vec![first]),
    }
}

async fn bind_to(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

fn explained(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => {
            format!("{address} is in use by another program. Stop it, or choose another port with --listen.")
        }
        _ => format!("can't listen on {address}: {error}"),
    }
}

/// Serves until Ctrl-C or SIGTERM, and then waits for open requests.
pub(crate) async fn until_stopped(listeners: Vec<TcpListener>, app: Router, is_behind_proxies: bool, log: &EventLog) {
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
    server.http2().timer(TokioTimer::new()).keep_alive_interval(PING.0).keep_alive_timeout(PING.1);
    let connections = Connections::new(is_behind_proxies);
    let graceful = GracefulShutdown::new();
    let mut stop = pin!(signal());
    loop {
        let (stream, peer, place) = tokio::select! {
            accepted = connections.accept(&listeners) => accepted,
            () = &mut stop => break,
        };
        let has_begun = Arc::new(AtomicBool::new(false));
        let begun = Arc::clone(&has_begun);
        let service = app.clone().map_request(move |mut request: Request<Incoming>| {
            begun.store(true, Relaxed);
            request.extensions_mut().insert(PeerAddr(peer));
            request
        });
        let connection = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        let connection = graceful.watch(connection.into_owned());
        tokio::spawn(async move {
            let (_place, mut connection) = (place, pin!(connection));
            // the builder's timeout starts when the version of HTTP is known, and not at all for HTTP/2
            tokio::select! {
                _ = &mut connection => return,
                () = sleep(HEAD_TIME) => {}
            }
            if has_begun.load(Relaxed) {
                let _ = connection.await;
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

/// Counts the open connections.
struct Connections {
    total: Arc<Semaphore>,
    /// Behind proxies, their addresses are those of all clients, so they have no bound of their own.
    by_address: Option<Arc<Mutex<HashMap<IpAddr, usize>>>>,
}

/// The place of a connection, released on drop.
struct Place {
    _total: OwnedSemaphorePermit,
    own: Option<(Arc<Mutex<HashMap<IpAddr, usize>>>, IpAddr)>,
}

impl Connections {
    fn new(is_behind_proxies: bool) -> Self {
        let by_address = (!is_behind_proxies).then(Arc::default);
        Self { total: Arc::new(Semaphore::new(CONNECTIONS)), by_address }
    }

    /// Accepts the next connection that has a place.
    async fn accept(&self, listeners: &[TcpListener]) -> (TcpStream, SocketAddr, Place) {
        loop {
            let Ok(total) = Arc::clone(&self.total).acquire_owned().await else { continue };
            let accepted = poll_fn(|cx| {
                let ready = listeners.iter().map(|listener| listener.poll_accept(cx)).find(Poll::is_ready);
                ready.unwrap_or(Poll::Pending)
            });
            match accepted.await {
                Ok((stream, peer)) => {
                    if let Some(place) = self.place(total, peer.ip()) {
                        return (stream, peer, place);
                    }
                }
                // too many open files, for example
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn place(&self, total: OwnedSemaphorePermit, ip: IpAddr) -> Option<Place> {
        let Some(by_address) = &self.by_address else { return Some(Place { _total: total, own: None }) };
        let network = match ip.to_canonical() {
            IpAddr::V6(v6) => IpAddr::from((v6.to_bits() >> 64 << 64).to_be_bytes()),
            v4 => v4,
        };
        let mut counts = by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let own = counts.entry(network).or_default();
        if *own >= PER_ADDRESS {
            return None;
        }
        *own += 1;
        Some(Place { _total: total, own: Some((Arc::clone(by_address), network)) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((counts, network)) = self.own.take() else { return };
        if let Entry::Occupied(mut own) = counts.lock().unwrap_or_else(PoisonError::into_inner).entry(network) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

async fn signal() {
    #[cfg(unix)]
    if let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        return;
    }
    let _ = tokio::signal::ctrl_c().await;
}
