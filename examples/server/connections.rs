//! The bounds of open connections, in total and per address.

use std::{
    collections::{HashMap, hash_map::Entry},
    future::poll_fn,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};

/// Connections at the same time. Further ones wait until one ends.
const CONNECTIONS: usize = 1_000;
/// Connections of one address, or of one IPv6 network of 64 bits. Further ones are closed.
const PER_ADDRESS: usize = 100;

/// Open connections of each address that has one.
type Counts = Mutex<HashMap<IpAddr, usize>>;

/// Counts the open connections.
pub(crate) struct Connections {
    total: Arc<Semaphore>,
    /// Behind proxies, their addresses are those of all clients, so they have no bound of their own.
    by_address: Option<Arc<Counts>>,
}

/// The place of a connection, released on drop.
pub(crate) struct Place {
    _total: OwnedSemaphorePermit,
    own: Option<(Arc<Counts>, IpAddr)>,
}

impl Connections {
    pub(crate) fn new(is_behind_proxies: bool) -> Self {
        let by_address = (!is_behind_proxies).then(Arc::default);
        Self { total: Arc::new(Semaphore::new(CONNECTIONS)), by_address }
    }

    /// Accepts the next connection that has a place.
    pub(crate) async fn accept(&self, listeners: &[TcpListener]) -> (TcpStream, SocketAddr, Place) {
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
