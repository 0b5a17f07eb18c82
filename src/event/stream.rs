//! A live stream: server-sent events, read from the ring by number.

use std::{
    convert::Infallible,
    fmt::Write,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::Frame;

use super::{Query, streams::StreamSeat};

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
        let newest = seat.core().state().ring.newest();
        let next = query.since.map_or(newest, |since| if since > newest { 0 } else { since });
        query.limit = BATCH;
        let beats = seat.core().streams.beats();
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
        let page = self.seat.core().page(&self.query);
        if page.lost > 0 {
            let _ = write!(text, "id: {}\nevent: lost\ndata: {{\"lost\":{}}}\n\n", self.next + page.lost, page.lost);
        }
        self.next = page.next;
        for event in &page.events {
            let _ = write!(text, "id: {}\nevent: {}\ndata: {}\n\n", event.id, event.kind.as_str(), event.to_json());
        }
        let beats = self.seat.core().streams.beats();
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
        let closed = live.seat.core().state().closed;
        match live.news() {
            Some(text) => Poll::Ready(Some(Ok(Frame::data(text.into())))),
            None if closed => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, task::Waker};

    use http_body::Body;

    use super::*;
    use crate::event::core::Core;

    fn poll(live: &mut Live) -> Option<Bytes> {
        match Pin::new(live).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(frame) => Some(frame.unwrap().unwrap().into_data().unwrap()),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_silent_stream_shows_that_it_lives_once_for_each_heartbeat() {
        let core = Arc::new(Core::new(10));
        let mut live = Live::new(StreamSeat::take(&core, None, 1).unwrap(), Query::new());
        assert_eq!(poll(&mut live).unwrap(), "retry: 2000\n\n");
        assert_eq!(poll(&mut live), None);
        core.streams.beat();
        assert_eq!(poll(&mut live).unwrap(), ": alive\n\n");
        assert_eq!(poll(&mut live), None);
    }
}
