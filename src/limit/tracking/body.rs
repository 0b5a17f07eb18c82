use std::{
    io::IoSlice,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::usage::CallGuard;

/// How many parts of a chunk are looked for at first. Bodies of `Bytes` have one.
const FEW_PARTS: usize = 64;

pin_project! {
    /// A response body that ends its call when it ends, fails or is dropped. Frames pass through unchanged.
    #[derive(Debug, Default)]
    pub struct Tracked<B> {
        #[pin]
        body: B,
        call: Option<CallGuard>,
    }
}

impl<B> Tracked<B> {
    pub(super) fn without_call(body: B) -> Self {
        Self { body, call: None }
    }

    /// Ends the call and returns the inner body.
    pub fn into_inner(self) -> B {
        self.body
    }
}

/// As a [`Respond`](crate::reject::Respond) of a layer around the tracking one needs it.
impl<B: From<Bytes>> From<Bytes> for Tracked<B> {
    fn from(bytes: Bytes) -> Self {
        Self::without_call(bytes.into())
    }
}

impl<B: Body> Tracked<B> {
    pub(super) fn new(body: B, call: Option<CallGuard>) -> Self {
        // a server may never poll a body that has ended
        let call = call.filter(|_| !body.is_end_stream());
        Self { body, call }
    }
}

impl<B: Body> Body for Tracked<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut own = self.project();
        let frame = ready!(own.body.as_mut().poll_frame(cx));
        match (&frame, &own.call) {
            (Some(Ok(frame)), Some(call)) => {
                if let Some(data) = frame.data_ref() {
                    read_parts(data, |part| call.read_usage(part));
                }
                if own.body.is_end_stream() {
                    *own.call = None;
                }
            }
            _ => *own.call = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Reads a chunk without consuming it.
fn read_parts(data: &impl Buf, read: impl Fn(&[u8])) {
    let bytes = data.remaining();
    if data.chunk().len() == bytes {
        return read(data.chunk());
    }
    let mut most = FEW_PARTS;
    loop {
        let mut parts = vec![IoSlice::new(&[]); most];
        let count = data.chunks_vectored(&mut parts);
        // a part has at least one byte
        if count < most || most >= bytes {
            return parts.iter().take(count).for_each(|part| read(part));
        }
        most = most.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A buffer of parts of two bytes.
    struct Pairs(usize);

    impl Buf for Pairs {
        fn remaining(&self) -> usize {
            self.0 * 2
        }

        fn chunk(&self) -> &[u8] {
            if self.0 == 0 { &[] } else { b"ab" }
        }

        fn advance(&mut self, _: usize) {}

        fn chunks_vectored<'a>(&'a self, parts: &mut [IoSlice<'a>]) -> usize {
            let count = self.0.min(parts.len());
            parts[..count].fill(IoSlice::new(b"ab"));
            count
        }
    }

    #[test]
    fn all_parts_of_a_chunk_are_read() {
        for parts in [0, 1, 2, 63, 64, 65, 127, 128, 129, 1_000] {
            let bytes = Cell::new(0);
            read_parts(&Pairs(parts), |part| bytes.set(bytes.get() + part.len()));
            assert_eq!(bytes.get(), parts * 2);
        }
    }
}
