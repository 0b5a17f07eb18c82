//! Finds connections that hold a place without a request.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, sleep};

/// The time for a complete request head. A connection without an open request is closed after it.
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(10);

/// The open requests of a connection.
#[derive(Clone)]
pub(crate) struct OpenRequests(Arc<Mutex<Count>>);

struct Count {
    open: usize,
    /// When the last request ended, or the connection began.
    quiet_since: Instant,
}

impl OpenRequests {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Count { open: 0, quiet_since: Instant::now() })))
    }

    /// Waits until the connection has no open request for too long. Requests do not wake it: it looks again when the
    /// connection could be idle at the earliest.
    pub(crate) async fn idle(self) {
        while let Some(time) = self.time_left() {
            sleep(time).await;
        }
    }

    fn time_left(&self) -> Option<Duration> {
        let left = self.with(|count| match count.open {
            0 => (count.quiet_since + HEAD_TIME).saturating_duration_since(Instant::now()),
            _ => HEAD_TIME,
        });
        (!left.is_zero()).then_some(left)
    }

    /// Counts a request until its response is sent.
    pub(crate) fn begin(&self) -> OpenRequest {
        self.with(|count| count.open += 1);
        OpenRequest(self.clone())
    }

    fn with<T>(&self, act: impl FnOnce(&mut Count) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A request on its way.
pub(crate) struct OpenRequest(OpenRequests);

impl OpenRequest {
    pub(crate) fn until_sent(self, body: Body) -> CountedBody {
        CountedBody { body, _open: self }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.with(|count| {
            count.open -= 1;
            count.quiet_since = Instant::now();
        });
    }
}

/// The body of a response whose request is open.
pub(crate) struct CountedBody {
    body: Body,
    _open: OpenRequest,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
