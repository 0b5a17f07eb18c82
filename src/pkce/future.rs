use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response, request::Parts};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::Format;
use crate::{
    http::{
        head::Head,
        replay::{ReadError, Reader, Replay},
    },
    reject::{Rejection, RejectionKind, Respond},
};

pin_project! {
    /// The response of a [`PkceBody`](super::PkceBody) service.
    pub struct PkceBodyFuture<S, R, B>
    where
        S: Service<Request<Replay<B>>>,
    {
        #[pin]
        state: State<S, S::Future, S::Response, R, B>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, F, T, R, B> {
        /// The body is not all there yet; the ready service waits with the head.
        Reading { #[pin] body: B, reader: Reader, parked: Option<Parked<S, R>> },
        /// The inner service has the request.
        Calling { #[pin] future: F },
        /// The body was refused.
        Rejected { response: Option<T> },
    }
}

struct Parked<S, R> {
    service: S,
    head: Parts,
    format: Format,
    limit: usize,
    respond: R,
}

impl<S, R, B> PkceBodyFuture<S, R, B>
where
    S: Service<Request<Replay<B>>>,
{
    pub(super) fn calling(future: S::Future) -> Self {
        Self { state: State::Calling { future } }
    }

    pub(super) fn rejected(response: S::Response) -> Self {
        Self { state: State::Rejected { response: Some(response) } }
    }

    pub(super) fn reading(request: Request<B>, format: Format, limit: usize, service: S, respond: R) -> Self {
        let (head, body) = request.into_parts();
        let parked = Some(Parked { service, head, format, limit, respond });
        Self { state: State::Reading { body, reader: Reader::default(), parked } }
    }
}

impl<S, R, B, ResBody> Future for PkceBodyFuture<S, R, B>
where
    S: Service<Request<Replay<B>>, Response = Response<ResBody>>,
    B: Body<Data = Bytes>,
    R: Respond<ResBody>,
{
    type Output = Result<Response<ResBody>, S::Error>;

    #[expect(clippy::expect_used, reason = "polling a finished future is the caller's bug")]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const POLLED_AGAIN: &str = "polled after it was ready";
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Reading { body, reader, parked } => {
                    let limit = parked.as_ref().expect(POLLED_AGAIN).limit;
                    let whole = ready!(reader.poll(body, limit, cx));
                    let Parked { mut service, mut head, format, respond, .. } = parked.take().expect(POLLED_AGAIN);
                    let checked = match whole {
                        Ok(whole) => format.challenge(&whole.data).map(|it| (it, whole)).map_err(Rejection::from),
                        Err(error) => Err(refusal(&error)),
                    };
                    match checked {
                        Ok((challenge, whole)) => {
                            head.extensions.insert(challenge);
                            State::Calling { future: service.call(Request::from_parts(head, Replay::read(whole))) }
                        }
                        Err(rejection) => {
                            State::Rejected { response: Some(rejection.into_response(Head::from(&head), &respond)) }
                        }
                    }
                }
                StateProjection::Calling { future } => return future.poll(cx),
                StateProjection::Rejected { response } => {
                    return Poll::Ready(Ok(response.take().expect(POLLED_AGAIN)));
                }
            };
            state.set(next);
        }
    }
}

fn refusal(error: &ReadError) -> Rejection {
    match error {
        ReadError::TooLarge => Rejection::new(RejectionKind::TooLarge, "the body is too long"),
        ReadError::Broken => Rejection::new(RejectionKind::InvalidRequest, "the body can't be read"),
    }
}

impl<S, R, B> fmt::Debug for PkceBodyFuture<S, R, B>
where
    S: Service<Request<Replay<B>>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Reading { .. } => "reading",
            State::Calling { .. } => "calling",
            State::Rejected { .. } => "rejected",
        };
        f.debug_tuple("PkceBodyFuture").field(&state).finish()
    }
}
