//! [`Outlasting`]: what is done to its end, also where nobody waits for it any more.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use tokio::runtime::Handle;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Runs where it is awaited. If its caller goes away first, as a request does whose client hangs up, the runtime carries it
/// on: of steps that belong together none is left out by who leaves in time.
pub(crate) struct Outlasting<T: Send + 'static>(Option<Work<T>>);

impl<T: Send + 'static> Outlasting<T> {
    pub(crate) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl<T: Send + 'static> Future for Outlasting<T> {
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

impl<T: Send + 'static> Drop for Outlasting<T> {
    fn drop(&mut self) {
        // without a runtime the process ends
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
    async fn it_goes_on_without_its_caller_and_only_then() {
        let steps = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&steps);
        let work = async move {
            for _ in 0..3 {
                counted.fetch_add(1, SeqCst);
                yield_now().await;
            }
        };
        let mut work = Outlasting::new(work);
        let polled = poll_fn(|context| Poll::Ready(Pin::new(&mut work).poll(context))).await;
        assert!(polled.is_pending());
        for _ in 0..10 {
            yield_now().await;
        }
        assert_eq!(steps.load(SeqCst), 1, "nobody else does it");
        drop(work);
        for _ in 0..10 {
            yield_now().await;
        }
        assert_eq!(steps.load(SeqCst), 3);
        // what was begun by nobody is done as well, and what has ended is not done twice
        let counted = Arc::clone(&steps);
        let once = Outlasting::new(async move { counted.fetch_add(1, SeqCst) });
        assert_eq!(once.await, 3);
        yield_now().await;
        assert_eq!(steps.load(SeqCst), 4);
    }
}
