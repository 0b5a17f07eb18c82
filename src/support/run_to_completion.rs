//! A future that runs to completion even if its caller is dropped.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use tokio::runtime::Handle;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Runs where it is awaited. If the caller is dropped first, for example because the client
/// disconnected, the rest moves to a background task. This keeps updates that belong together from
/// being left half done.
pub(crate) struct RunToCompletion<T: Send + 'static> {
    work: Option<Work<T>>,
    /// Until the work has passed it, the work ends with its caller.
    point: Option<PointOfNoReturn>,
}

/// The point from which work must run to completion. The work passes it itself. Clones are the same point.
#[derive(Clone, Debug, Default)]
pub(crate) struct PointOfNoReturn(Arc<AtomicBool>);

impl PointOfNoReturn {
    pub(crate) fn pass(&self) {
        self.0.store(true, Relaxed);
    }

    fn is_passed(&self) -> bool {
        self.0.load(Relaxed)
    }
}

impl<T: Send + 'static> RunToCompletion<T> {
    pub(crate) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self { work: Some(Box::pin(work)), point: None }
    }

    /// Runs to completion only from this point on: before it, a caller who is dropped cancels the work.
    pub(crate) fn from_point(point: PointOfNoReturn, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self { work: Some(Box::pin(work)), point: Some(point) }
    }
}

impl<T: Send + 'static> Future for RunToCompletion<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for RunToCompletion<T> {
    fn drop(&mut self) {
        let is_cancelled = self.point.as_ref().is_some_and(|point| !point.is_passed());
        // without a runtime, the process is exiting
        if let (Some(work), false, Ok(runtime)) = (self.work.take(), is_cancelled, Handle::try_current()) {
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

    #[tokio::test]
    async fn before_its_point_of_no_return_it_ends_with_its_caller() {
        for polls in 0..4 {
            let (point, steps) = (PointOfNoReturn::default(), Arc::new(AtomicUsize::new(0)));
            let (passed, counted) = (point.clone(), Arc::clone(&steps));
            let mut work = RunToCompletion::from_point(point, async move {
                for step in 0..4 {
                    if step == 2 {
                        passed.pass();
                    }
                    counted.fetch_add(1, SeqCst);
                    yield_now().await;
                }
            });
            for _ in 0..polls {
                let polled = poll_fn(|context| Poll::Ready(Pin::new(&mut work).poll(context))).await;
                assert!(polled.is_pending());
            }
            drop(work);
            for _ in 0..10 {
                yield_now().await;
            }
            assert_eq!(steps.load(SeqCst), if polls > 2 { 4 } else { polls });
        }
    }
}
