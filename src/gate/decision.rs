use std::future::Future;

use http::{Extensions, HeaderMap, Request, StatusCode};

use crate::{http::head::Head, reject::Rejection};

/// Decides whether a request may pass.
///
/// Data flows one way: [`inspect`](Gate::inspect) → [`Pass::admit`] → the inner service →
/// [`Pass::finish`]. A rejected request never reaches the inner service.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a gate",
    note = "implement `tollgate::gate::Gate` for it; the documentation of `tollgate::gate` shows an example"
)]
pub trait Gate: Send + Sync + 'static {
    /// The value that an admitted request carries.
    type Pass: Pass;
    /// The decision, if it takes time. Use `std::future::Ready` if it never does.
    type Future: Future<Output = Result<Self::Pass, Rejection>>;

    /// Looks at a request and decides.
    fn inspect(&self, head: Head<'_>) -> MaybeReady<Self::Future>;

    /// Decides like [`inspect`](Self::inspect), and marks the request if it is admitted at once.
    ///
    /// By default this calls [`Pass::admit`]. Override it if what it puts into the request would make the pass large:
    /// the pass is moved several times. An override must decide as `inspect` does, and mark the request only if the
    /// decision is `Ready(Ok(_))`. The layer calls [`Pass::admit`] itself for a decision that is pending.
    #[inline]
    fn enter<B>(&self, request: &mut Request<B>) -> MaybeReady<Self::Future> {
        let mut decision = self.inspect(Head::of_request(request));
        if let MaybeReady::Ready(Ok(pass)) = &mut decision {
            pass.admit(request.extensions_mut());
        }
        decision
    }
}

/// The value that an admitted request carries from the decision to the response.
///
/// If the inner service fails or the caller disconnects, the pass is dropped without a
/// call of [`finish`](Pass::finish).
pub trait Pass {
    /// Marks the request before the inner service sees it.
    fn admit(&mut self, extensions: &mut Extensions) {
        let _ = extensions;
    }

    /// Marks the response of the inner service.
    fn finish(self, status: StatusCode, headers: &mut HeaderMap)
    where
        Self: Sized,
    {
        let _ = (status, headers);
    }
}

/// A pass that marks nothing.
impl Pass for () {}

/// A value, or a future that returns it later.
///
/// Decisions in memory therefore need neither a box nor a poll.
#[derive(Clone, Copy, Debug)]
pub enum MaybeReady<F: Future> {
    /// The value.
    Ready(F::Output),
    /// A future that returns the value.
    Pending(F),
}

impl<F: Future> MaybeReady<F> {
    /// Returns the value, after waiting for it if necessary.
    pub async fn wait(self) -> F::Output {
        match self {
            Self::Ready(value) => value,
            Self::Pending(future) => future.await,
        }
    }
}

#[cfg(feature = "session")]
impl<T: 'static> MaybeReady<std::pin::Pin<Box<dyn Future<Output = T> + Send>>> {
    /// Applies a function to the value.
    pub(crate) fn map<R>(
        self,
        change: impl FnOnce(T) -> R + Send + 'static,
    ) -> MaybeReady<std::pin::Pin<Box<dyn Future<Output = R> + Send>>> {
        match self {
            Self::Ready(value) => MaybeReady::Ready(change(value)),
            Self::Pending(future) => MaybeReady::Pending(Box::pin(async move { change(future.await) })),
        }
    }
}
