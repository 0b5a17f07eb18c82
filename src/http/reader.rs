//! Reads request and response bodies of limited length.

use std::{future::poll_fn, pin::pin};

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

/// Reads a whole body of limited length.
pub(crate) async fn read_body<B: Body<Data = Bytes>>(body: B, limit: usize) -> Result<Bytes, ReadError> {
    // joined, so that many small frames take no more memory than a few large ones
    let mut joined = BytesMut::new();
    read_frames(body, limit, |data| joined.extend_from_slice(&data)).await?;
    Ok(joined.freeze())
}

/// Reads a body of limited length to its end, and shows its data. A frame without data counts as one byte, so that a body of
/// empty frames reaches the limit.
pub(crate) async fn read_frames<B: Body<Data = Bytes>>(
    body: B,
    limit: usize,
    mut see: impl FnMut(Bytes),
) -> Result<(), ReadError> {
    let (mut body, mut left) = (pin!(body), limit);
    while body.size_hint().lower() <= left as u64 {
        let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await else { return Ok(()) };
        // trailers end the body
        let Ok(data) = frame.map_err(|_| ReadError::Broken)?.into_data() else { return Ok(()) };
        let Some(rest) = left.checked_sub(data.len().max(1)) else { break };
        left = rest;
        see(data);
    }
    Err(ReadError::TooLarge)
}
