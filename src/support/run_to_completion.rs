//! A future that runs to completion even if its caller is dropped.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use tokio::runtime::Handle;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Runs where it is awaited. If the caller is dropped first, for example because the client
/// disconnected, the rest moves to a background task. This keeps updates that belong together from
/// being left half done.
pub(crate) struct RunToCompletion<T: Send + 'static>(Option<Work<T>>);

impl<T: Send + 'static> RunToCompletion<T> {
    pub(crate) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl<T: Send + 'static> Future for RunToCompletion<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(work) = &mut self.0 else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for RunToCompletion<T> {
    fn drop(&mut self) {
        // without a runtime, the process is exiting
        if let (Some(work), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            drop(runtime.spawn(work));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::SeqCst},
        },
    };

    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn it_continues_in_the_background_only_if_its_caller_is_dropped() {
        let steps = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&steps);
        let work = async move {
            for _ in 0..3 {
                counted.fetch_add(1, SeqCst);
                yield_now().await;
            }
        };
        let mut work = RunToCompletion::new(work);
        let polled = poll_fn(|context| Poll::Ready(Pin::new(&mut work).poll(context))).await;
        assert!(polled.is_pending());
        for _ in 0..10 {
            yield_now().await;
        }
        assert_eq!(steps.load(SeqCst), 1, "nothing else drives it");
        drop(work);
        for _ in 0..10 {
            yield_now().await;
        }
        assert_eq!(steps.load(SeqCst), 3);
        // a future that was never polled runs too, and one that has finished does not run again
        let counted = Arc::clone(&steps);
        let once = RunToCompletion::new(async move { counted.fetch_add(1, SeqCst) });
        assert_eq!(once.await, 3);
        yield_now().await;
        assert_eq!(steps.load(SeqCst), 4);
    }
}
