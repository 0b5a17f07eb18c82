use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;

pin_project! {
    /// Converts a panic of a future to `None`.
    pub(super) struct NoPanic<F> {
        #[pin]
        inner: F,
    }
}

impl<F> NoPanic<F> {
    pub(super) fn new(inner: F) -> Self {
        Self { inner }
    }
}

impl<F: Future> Future for NoPanic<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let inner = self.project().inner;
        // the sender is responsible for its own state, and the future is not polled again
        match catch_unwind(AssertUnwindSafe(|| inner.poll(cx))) {
            Ok(polled) => polled.map(Some),
            Err(_panic) => Poll::Ready(None),
        }
    }
}
