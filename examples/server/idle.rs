//! Finds connections that hold a place without a request, or without reading their responses.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};

/// The time for a complete request head. A connection without an open request is closed after it.
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(10);

/// A connection whose client takes nothing of its responses for so long is closed.
pub(crate) const READ_TIME: Duration = Duration::from_secs(60);

/// The open requests of a connection.
#[derive(Clone)]
pub(crate) struct OpenRequests(Arc<Mutex<Count>>);

struct Count {
    open: usize,
    /// The open requests that wait for this server: for a response, or for the next part of its body.
    served: usize,
    /// Whether the client has taken too little of the responses to write more. Their requests may have ended.
    is_full: bool,
    /// When the client was last waited for: since it took a part of a response, a request ended, or the connection began.
    quiet_since: Instant,
}

impl OpenRequests {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Count { open: 0, served: 0, is_full: false, quiet_since: Instant::now() })))
    }

    /// Waits until the connection has no open request for too long, or takes none of its responses. Requests do not wake it: it
    /// looks again when the connection could be idle at the earliest.
    pub(crate) async fn idle(self) {
        while let Some(time) = self.time_left() {
            sleep(time).await;
        }
    }

    fn time_left(&self) -> Option<Duration> {
        let left = self.with(|count| match (count.open, count.served) {
            (0, _) if !count.is_full => (count.quiet_since + HEAD_TIME).saturating_duration_since(Instant::now()),
            (_, 1..) if !count.is_full => HEAD_TIME,
            _ => (count.quiet_since + READ_TIME).saturating_duration_since(Instant::now()).min(HEAD_TIME),
        });
        (!left.is_zero()).then_some(left)
    }

    /// Counts a request until its response is sent.
    pub(crate) fn begin(&self) -> OpenRequest {
        self.with(|count| (count.open, count.served) = (count.open + 1, count.served + 1));
        OpenRequest { requests: self.clone(), is_served: true }
    }

    /// Notes that something could be written, or that the client must take something first. While it need not, writing is no sign of
    /// life: the answer to a ping always fits.
    pub(crate) fn note_write(&self, has_fitted: bool) {
        self.with(|count| {
            if count.is_full == has_fitted {
                (count.is_full, count.quiet_since) = (!has_fitted, Instant::now());
            }
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut Count) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A request on its way.
pub(crate) struct OpenRequest {
    requests: OpenRequests,
    /// Whether it waits for this server, not for its client.
    is_served: bool,
}

impl OpenRequest {
    /// Sets whether the request waits for this server.
    pub(crate) fn set_served(&mut self, is_served: bool) {
        let was_served = std::mem::replace(&mut self.is_served, is_served);
        self.requests.with(|count| {
            count.served = count.served + usize::from(is_served) - usize::from(was_served);
            if !is_served {
                count.quiet_since = Instant::now();
            }
        });
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.set_served(false);
        self.requests.with(|count| count.open -= 1);
    }
}
