use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use crate::{
    store::error::{StoreError, StoreErrorKind},
    util::lock::lock,
};

/// A one-shot channel from the writer's thread to a future.
pub(super) fn reply<T>() -> (Sender<T>, Reply<T>) {
    let shared = Arc::new(Mutex::new(ReplyState { answer: None, waker: None }));
    (Sender(Arc::clone(&shared)), Reply(shared))
}

/// The sending half. Sends an error if it is dropped unused.
pub(super) struct Sender<T>(Arc<Mutex<ReplyState<T>>>);

/// The receiving half, a future.
pub(super) struct Reply<T>(Arc<Mutex<ReplyState<T>>>);

struct ReplyState<T> {
    answer: Option<Result<T, StoreError>>,
    waker: Option<Waker>,
}

impl<T> Sender<T> {
    pub(super) fn send(self, answer: Result<T, StoreError>) {
        self.settle(answer);
    }

    fn settle(&self, answer: Result<T, StoreError>) {
        let waker = {
            let mut shared = lock(&self.0);
            shared.answer.get_or_insert(answer);
            shared.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // skipped if the receiver is gone; after a reply this has no effect
        if Arc::strong_count(&self.0) > 1 {
            self.settle(Err(StoreError::new(StoreErrorKind::Unavailable, "the writer thread has stopped")));
        }
    }
}

impl<T> Future for Reply<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut shared = lock(&self.0);
        match shared.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                shared.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::testing::block_on;

    #[test]
    fn a_reply_arrives_before_and_after_the_first_poll() {
        let (sender, answer) = reply();
        sender.send(Ok(1));
        assert_eq!(block_on(answer).unwrap(), 1);
        for _ in 0..100 {
            let (sender, answer) = reply();
            let thread = thread::spawn(move || sender.send(Ok(2)));
            assert_eq!(block_on(answer).unwrap(), 2);
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_dropped_sender_wakes_the_receiver() {
        let (sender, answer) = reply::<()>();
        drop(sender);
        assert_eq!(block_on(answer).unwrap_err().kind(), StoreErrorKind::Unavailable);
    }
}
