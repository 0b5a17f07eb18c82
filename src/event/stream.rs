//! A live stream: server-sent events, read from the ring by number.

use std::{
    convert::Infallible,
    fmt::Write,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::Frame;

use super::{Query, stream_seat::StreamSeat};

/// The body of a stream. It holds no events: a reader that does not keep up
/// finds them gone from the ring, and is told how many.
pub(super) struct Live {
    seat: StreamSeat,
    query: Query,
    next: u64,
    beats: u64,
    began: bool,
}

/// Events in one piece of the body.
const BATCH: usize = 64;

impl Live {
    /// What the query asks for and follows its `since`, without an end.
    pub(super) fn new(seat: StreamSeat, mut query: Query) -> Self {
        let newest = seat.shared().state().ring.newest();
        let next = query.since.map_or(newest, |since| if since > newest { 0 } else { since });
        query.limit = BATCH;
        let beats = seat.shared().streams.beats();
        Self { seat, query, next, beats, began: false }
    }

    fn news(&mut self) -> Option<String> {
        let mut text = String::new();
        if !self.began {
            self.began = true;
            // a first piece at once, so that the head of the response leaves
            text.push_str("retry: 2000\n\n");
        }
        self.query.since = Some(self.next);
        let page = self.seat.shared().page(&self.query);
        if page.lost > 0 {
            let _ = write!(text, "id: {}\nevent: lost\ndata: {{\"lost\":{}}}\n\n", self.next + page.lost, page.lost);
        }
        self.next = page.next;
        for event in &page.events {
            let _ = write!(text, "id: {}\nevent: {}\ndata: {}\n\n", event.id, event.kind.as_str(), event.to_json());
        }
        let beats = self.seat.shared().streams.beats();
        if text.is_empty() && beats != self.beats {
            text.push_str(": alive\n\n");
        }
        self.beats = beats;
        (!text.is_empty()).then_some(text)
    }
}

impl http_body::Body for Live {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let live = self.get_mut();
        // before looking, so that what comes while looking wakes us
        live.seat.wake_me(cx.waker());
        let is_over = live.seat.shared().state().is_over();
        match live.news() {
            Some(text) => Poll::Ready(Some(Ok(Frame::data(text.into())))),
            None if is_over => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, task::Waker};

    use http_body::Body;

    use super::*;
    use crate::{
        event::{Event, EventKind, shared::Shared},
        util::clock::UnixTime,
    };

    fn poll(live: &mut Live) -> Option<Bytes> {
        match Pin::new(live).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(frame) => Some(frame.unwrap().unwrap().into_data().unwrap()),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_stream_of_a_closed_log_ends_only_when_the_last_counts_are_in_it() {
        let shared = Arc::new(Shared::new(10));
        let mut live = Live::new(StreamSeat::take(&shared, None, 1).unwrap(), Query::new());
        let event = Event::new(EventKind::RateLimited, UnixTime::from_secs(5));
        (0..10).for_each(|_| shared.tally(&event));
        // the pump runs, and has not seen yet that the log is closed
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
    fn a_silent_stream_shows_that_it_lives_once_for_each_heartbeat() {
        let shared = Arc::new(Shared::new(10));
        let mut live = Live::new(StreamSeat::take(&shared, None, 1).unwrap(), Query::new());
        assert_eq!(poll(&mut live).unwrap(), "retry: 2000\n\n");
        assert_eq!(poll(&mut live), None);
        shared.streams.beat();
        assert_eq!(poll(&mut live).unwrap(), ": alive\n\n");
        assert_eq!(poll(&mut live), None);
    }
}
