//! Reads request and response bodies of limited length.

use std::{
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http_body::Body;

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
    ) -> Poll<Result<Bytes, ReadError>> {
        if body.size_hint().lower() > (limit - self.seen.min(limit)) as u64 {
            return Poll::Ready(Err(ReadError::TooLarge));
        }
        loop {
            match ready!(body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => {
                    // trailers end the body
                    let Ok(data) = frame.into_data() else { break };
                    self.seen = self.seen.saturating_add(data.len().max(1));
                    if self.seen > limit {
                        return Poll::Ready(Err(ReadError::TooLarge));
                    }
                    self.push(data);
                }
                Some(Err(_)) => return Poll::Ready(Err(ReadError::Broken)),
                None => break,
            }
        }
        Poll::Ready(Ok(self.take_joined_bytes()))
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
