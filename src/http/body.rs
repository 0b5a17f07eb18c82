//! Response bodies of the services in this crate.

use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body::{Frame, SizeHint};

/// The response body of this crate's services: either complete or a stream.
///
/// It works with hyper as is, with axum through `axum::body::Body::new` (and so with
/// `nest_service`), and with tonic through `tonic::body::Body::new`. It never fails.
#[derive(Default)]
pub struct Body(Repr);

type Stream = dyn http_body::Body<Data = Bytes, Error = Infallible> + Send + Sync;

enum Repr {
    Whole(Bytes),
    Stream(Pin<Box<Stream>>),
}

impl Default for Repr {
    fn default() -> Self {
        Self::Whole(Bytes::new())
    }
}

impl Body {
    /// Creates an empty body.
    pub fn empty() -> Self {
        Self::default()
    }

    pub(crate) fn stream(
        stream: impl http_body::Body<Data = Bytes, Error = Infallible> + Send + Sync + 'static,
    ) -> Self {
        Self(Repr::Stream(Box::pin(stream)))
    }
}

/// Turns a response into the response to HEAD: it keeps the length and drops the bytes.
pub(crate) fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    if let Some(len) = http_body::Body::size_hint(&body).exact() {
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(len));
    }
    Response::from_parts(parts, Body::empty())
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Repr::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Repr::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Repr::Stream(stream) => stream.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Repr::Whole(bytes) => bytes.is_empty(),
            Repr::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Repr::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Repr::Stream(stream) => stream.size_hint(),
        }
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(whole: T) -> Self {
        Self(Repr::Whole(whole.into()))
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Whole(bytes) => f.debug_tuple("Body").field(&format_args!("{} bytes", bytes.len())).finish(),
            Repr::Stream(_) => f.debug_tuple("Body").field(&format_args!("a stream")).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_complete_body_yields_its_bytes_once_and_knows_its_length() {
        let body = Body::from(String::from("hello"));
        assert_eq!(body.size_hint().exact(), Some(5));
        assert!(!body.is_end_stream());
        assert_eq!(body.collect().await.unwrap().to_bytes(), "hello");
    }

    #[tokio::test]
    async fn the_default_body_is_empty() {
        assert!(Body::default().is_end_stream());
        assert_eq!(Body::default().collect().await.unwrap().to_bytes(), "");
    }

    #[tokio::test]
    async fn a_stream_is_passed_on() {
        let body = Body::stream(Body::from("within"));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "within");
    }
}
