use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::decision::{Gate, Pass};
use crate::{http::head::Head, reject::Respond};

const POLLED_AGAIN: &str = "polled after completion";

pin_project! {
    /// The response of a [`Gated`](super::Gated) service.
    pub struct ResponseFuture<S, G, R, ReqBody>
    where
        S: Service<Request<ReqBody>>,
        G: Gate,
    {
        #[pin]
        state: State<S, S::Future, S::Response, G::Future, G::Pass, R, ReqBody>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, F, T, D, P, R, ReqBody> {
        /// The gate has not decided yet. The ready service waits with the request.
        Deciding { #[pin] decision: D, parked: Option<Parked<S, R, ReqBody>> },
        /// The inner service has the request.
        Calling { #[pin] future: F, pass: Option<P> },
        /// The gate has rejected the request.
        Rejected { response: Option<T> },
    }
}

struct Parked<S, R, ReqBody> {
    service: S,
    request: Request<ReqBody>,
    respond: R,
}

impl<S, G, R, ReqBody> ResponseFuture<S, G, R, ReqBody>
where
    S: Service<Request<ReqBody>>,
    G: Gate,
{
    pub(super) fn calling(future: S::Future, pass: G::Pass) -> Self {
        Self { state: State::Calling { future, pass: Some(pass) } }
    }

    pub(super) fn rejected(response: S::Response) -> Self {
        Self { state: State::Rejected { response: Some(response) } }
    }

    pub(super) fn deciding(decision: G::Future, service: S, request: Request<ReqBody>, respond: R) -> Self {
        Self { state: State::Deciding { decision, parked: Some(Parked { service, request, respond }) } }
    }
}

impl<S, G, R, ReqBody, ResBody> Future for ResponseFuture<S, G, R, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    G: Gate,
    R: Respond<ResBody>,
{
    type Output = Result<Response<ResBody>, S::Error>;

    #[expect(clippy::expect_used, reason = "polling a finished future is a bug of the caller")]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Deciding { decision, parked } => {
                    let decision = ready!(decision.poll(cx));
                    let Parked { mut service, mut request, respond } = parked.take().expect(POLLED_AGAIN);
                    match decision {
                        Ok(mut pass) => {
                            pass.admit(request.extensions_mut());
                            State::Calling { future: service.call(request), pass: Some(pass) }
                        }
                        Err(rejection) => State::Rejected {
                            response: Some(rejection.into_response(Head::of_request(&request), &respond)),
                        },
                    }
                }
                StateProjection::Calling { future, pass } => return poll_calling(future, pass, cx),
                StateProjection::Rejected { response } => {
                    return Poll::Ready(Ok(response.take().expect(POLLED_AGAIN)));
                }
            };
            state.set(next);
        }
    }
}

/// Polls the inner service, and marks its response in place.
#[expect(clippy::expect_used, reason = "polling a finished future is a bug of the caller")]
fn poll_calling<F, B, E>(future: Pin<&mut F>, pass: &mut Option<impl Pass>, cx: &mut Context<'_>) -> Poll<F::Output>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    let mut result = future.poll(cx);
    if let Poll::Ready(result) = &mut result {
        let pass = pass.take().expect(POLLED_AGAIN);
        if let Ok(response) = result {
            pass.finish(response.status(), response.headers_mut());
        }
    }
    result
}

impl<S, G, R, ReqBody> fmt::Debug for ResponseFuture<S, G, R, ReqBody>
where
    S: Service<Request<ReqBody>>,
    G: Gate,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Deciding { .. } => "deciding",
            State::Calling { .. } => "calling",
            State::Rejected { .. } => "rejected",
        };
        f.debug_tuple("ResponseFuture").field(&state).finish()
    }
}
