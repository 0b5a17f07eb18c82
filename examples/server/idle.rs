//! Finds connections that hold a place without a request.

use std::{
    future::pending,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use tokio::{sync::watch, time::timeout};

/// The time for a complete request head. A connection without an open request is closed after it.
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(10);

/// Waits until a connection has no open request for too long.
pub(crate) async fn idle(mut opened: watch::Receiver<usize>) {
    while opened.wait_for(|open| *open == 0).await.is_ok() {
        if timeout(HEAD_TIME, opened.changed()).await.is_err() {
            return;
        }
    }
    // the connection has ended
    pending::<()>().await;
}

/// A request on its way, counted until its response is sent.
pub(crate) struct OpenRequest(Arc<watch::Sender<usize>>);

impl OpenRequest {
    pub(crate) fn count(open: &Arc<watch::Sender<usize>>) -> Self {
        open.send_modify(|open| *open += 1);
        Self(Arc::clone(open))
    }

    pub(crate) fn until_sent(self, body: Body) -> CountedBody {
        CountedBody { body, _open: self }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
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
