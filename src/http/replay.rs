//! A request body that was read by a middleware and is passed on byte for byte.

use std::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The request body behind a middleware that reads bodies. It is the original body if the
    /// middleware did not read it; otherwise it yields the same bytes and trailers again.
    pub struct ReplayedBody<B> {
        #[pin]
        state: State<B>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<B> {
        Untouched { #[pin] body: B },
        Read { whole: Whole },
    }
}

/// Everything that a body contained.
#[derive(Default)]
pub(crate) struct Whole {
    pub(crate) data: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl<B> ReplayedBody<B> {
    /// Wraps a body that was not read.
    pub(crate) fn untouched(body: B) -> Self {
        Self { state: State::Untouched { body } }
    }

    /// Wraps the content of a body that was read.
    pub(crate) fn from_whole_body(whole: Whole) -> Self {
        Self { state: State::Read { whole } }
    }
}

impl<B: Body<Data = Bytes>> Body for ReplayedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().state.project() {
            StateProjection::Untouched { body } => body.poll_frame(cx),
            StateProjection::Read { whole } => Poll::Ready(if whole.data.is_empty() {
                whole.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)))
            } else {
                Some(Ok(Frame::data(mem::take(&mut whole.data))))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Untouched { body } => body.is_end_stream(),
            State::Read { whole } => whole.data.is_empty() && whole.trailers.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.state {
            State::Untouched { body } => body.size_hint(),
            State::Read { whole } => SizeHint::with_exact(whole.data.len() as u64),
        }
    }
}

impl<B> fmt::Debug for ReplayedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Untouched { .. } => "untouched",
            State::Read { .. } => "read",
        };
        f.debug_tuple("ReplayedBody").field(&state).finish()
    }
}

/// Why a body could not be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// It is longer than allowed, or declares a longer length.
    TooLarge,
    /// It ended early.
    Broken,
}

/// Reads a body of limited length over several polls.
///
/// Frames are joined so that many small frames take no more memory than a few large ones. A frame
/// without data counts as one byte, so that a body of empty frames reaches the limit.
#[derive(Default)]
pub(crate) struct Reader {
    seen: usize,
    first: Bytes,
    joined: BytesMut,
}

impl Reader {
    pub(crate) fn poll<B: Body<Data = Bytes>>(
        &mut self,
        mut body: Pin<&mut B>,
        limit: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Whole, ReadError>> {
        if body.size_hint().lower() > (limit - self.seen.min(limit)) as u64 {
            return Poll::Ready(Err(ReadError::TooLarge));
        }
        loop {
            let trailers = match ready!(body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        self.seen = self.seen.saturating_add(data.len().max(1));
                        if self.seen > limit {
                            return Poll::Ready(Err(ReadError::TooLarge));
                        }
                        self.push(data);
                        continue;
                    }
                    // trailers end the body
                    Err(frame) => frame.into_trailers().ok(),
                },
                Some(Err(_)) => return Poll::Ready(Err(ReadError::Broken)),
                None => None,
            };
            return Poll::Ready(Ok(Whole { data: self.take_joined_bytes(), trailers }));
        }
    }

    fn push(&mut self, data: Bytes) {
        if self.first.is_empty() && self.joined.is_empty() {
            self.first = data;
            return;
        }
        self.joined.extend_from_slice(&mem::take(&mut self.first));
        self.joined.extend_from_slice(&data);
    }

    fn take_joined_bytes(&mut self) -> Bytes {
        if self.joined.is_empty() { mem::take(&mut self.first) } else { mem::take(&mut self.joined).freeze() }
    }
}
