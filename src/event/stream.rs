//! LiveStream streams of events (server-sent events).

use std::{
    convert::Infallible,
    fmt::Write,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::Frame;

use super::{query::Query, shared::Shared};
use crate::tenant::Tenant;

/// The body of a stream. It buffers no events: a reader that falls behind finds them overwritten,
/// and is sent the number of events that it missed.
pub(super) struct LiveStream {
    stream: OpenStream,
    query: Query,
    next: u64,
    beats: u64,
    began: bool,
}

/// The number of events in one body frame.
const BATCH: usize = 64;

impl LiveStream {
    /// Creates an endless stream of the events that match the query.
    pub(super) fn new(stream: OpenStream, mut query: Query) -> Self {
        let newest = stream.shared.state().ring.newest();
        let next = query.since.map_or(newest, |since| if since > newest { 0 } else { since });
        query.limit = BATCH;
        let beats = stream.shared.streams.beats();
        Self { stream, query, next, beats, began: false }
    }

    fn news(&mut self) -> Option<String> {
        let mut text = String::new();
        if !self.began {
            self.began = true;
            // send a first frame right away, so that the response headers go out
            text.push_str("retry: 2000\n\n");
        }
        self.query.since = Some(self.next);
        let page = self.stream.shared.page(&self.query);
        if page.lost > 0 {
            let _ = write!(text, "id: {}\nevent: lost\ndata: {{\"lost\":{}}}\n\n", self.next + page.lost, page.lost);
        }
        self.next = page.next;
        for event in &page.events {
            let _ = write!(text, "id: {}\nevent: {}\ndata: {}\n\n", event.id, event.kind.as_str(), event.to_json());
        }
        let beats = self.stream.shared.streams.beats();
        if text.is_empty() && beats != self.beats {
            text.push_str(": alive\n\n");
        }
        self.beats = beats;
        (!text.is_empty()).then_some(text)
    }
}

impl http_body::Body for LiveStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let live = self.get_mut();
        // register before reading, so that events that arrive meanwhile wake us
        let OpenStream { shared, number } = &live.stream;
        shared.streams.register_waker(*number, cx.waker());
        let is_over = shared.streams.is_ended() || shared.state().is_over();
        match live.news() {
            Some(text) => Poll::Ready(Some(Ok(Frame::data(text.into())))),
            None if is_over => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// The place of an open stream, released when this is dropped.
pub(super) struct OpenStream {
    shared: Arc<Shared>,
    number: u64,
}

impl OpenStream {
    /// Reserves a place for a stream of this tenant, or of an operator. Returns `None` if there is
    /// none left.
    pub(super) fn reserve_stream(shared: &Arc<Shared>, tenant: Option<Tenant>, max: usize) -> Option<Self> {
        let number = shared.streams.register_stream(tenant, max)?;
        Some(Self { shared: Arc::clone(shared), number })
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.shared.streams.leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use http_body::Body;

    use super::*;
    use crate::{
        event::{kind::EventKind, log::EventLog, record::Event},
        util::clock::{SystemClock, UnixTime},
    };

    fn poll(live: &mut LiveStream) -> Option<Bytes> {
        match Pin::new(live).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(frame) => Some(frame.unwrap().unwrap().into_data().unwrap()),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_stream_of_a_closed_log_ends_after_the_last_counts() {
        let shared = Arc::new(Shared::new(10, 1_000, Arc::new(SystemClock::new())));
        let mut live = LiveStream::new(OpenStream::reserve_stream(&shared, None, 1).unwrap(), Query::new());
        let event = Event::new(EventKind::RateLimited, UnixTime::from_secs(5));
        (0..10).for_each(|_| shared.tally(&event));
        // the pump is running and has not noticed yet that the log is closed
        shared.state().pump = Some(std::thread::current().id());
        shared.close();
        assert!(poll(&mut live).unwrap().ends_with(b"\"count\":1}\n\n"));
        assert_eq!(poll(&mut live), None);
        shared.drain();
        shared.state().complete = true;
        assert!(poll(&mut live).unwrap().ends_with(b"\"count\":9}\n\n"));
        let ended = Pin::new(&mut live).poll_frame(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(ended, Poll::Ready(None)));
    }

    #[test]
    fn a19_closing_the_log_ends_its_streams_after_the_last_counts_and_opens_no_more() {
        let log = EventLog::new();
        let shared = log.shared();
        let mut live = LiveStream::new(OpenStream::reserve_stream(shared, None, 2).unwrap(), Query::new());
        let event = Event::new(EventKind::RateLimited, UnixTime::from_secs(5));
        (0..10).for_each(|_| log.tally(&event));
        assert!(poll(&mut live).unwrap().ends_with(b"\"count\":1}\n\n"));
        log.close();
        assert!(poll(&mut live).unwrap().ends_with(b"\"count\":9}\n\n"));
        let ended = Pin::new(&mut live).poll_frame(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(ended, Poll::Ready(None)));
        assert!(OpenStream::reserve_stream(shared, None, 2).is_none());
        assert_eq!(log.record(event), 3, "the log goes on");
    }

    #[test]
    fn an_idle_stream_sends_one_comment_per_heartbeat() {
        let shared = Arc::new(Shared::new(10, 1_000, Arc::new(SystemClock::new())));
        let mut live = LiveStream::new(OpenStream::reserve_stream(&shared, None, 1).unwrap(), Query::new());
        assert_eq!(poll(&mut live).unwrap(), "retry: 2000\n\n");
        assert_eq!(poll(&mut live), None);
        shared.streams.beat();
        assert_eq!(poll(&mut live).unwrap(), ": alive\n\n");
        assert_eq!(poll(&mut live), None);
    }
}
