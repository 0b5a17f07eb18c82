use std::{
    any::type_name,
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use super::{
    decision::{Gate, MaybeReady},
    future::ResponseFuture,
};
use crate::{http::head::Head, reject::Respond};

/// A service behind a [`Gate`].
pub struct Gated<S, G, R> {
    inner: S,
    gate: Arc<G>,
    respond: R,
}

impl<S, G, R> Gated<S, G, R> {
    pub(crate) fn new(inner: S, gate: Arc<G>, respond: R) -> Self {
        Self { inner, gate, respond }
    }
}

impl<S, G, R, ReqBody, ResBody> Service<Request<ReqBody>> for Gated<S, G, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    G: Gate,
    R: Respond<ResBody>,
{
    type Response = Response<ResBody>;
    type Error = S::Error;
    type Future = ResponseFuture<S, G, R, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<ReqBody>) -> Self::Future {
        match self.gate.enter(&mut request) {
            MaybeReady::Ready(Ok(pass)) => ResponseFuture::calling(self.inner.call(request), pass),
            MaybeReady::Ready(Err(rejection)) => {
                // release what the ready service has reserved, such as a permit
                self.inner = self.inner.clone();
                ResponseFuture::rejected(rejection.into_response(Head::of_request(&request), &self.respond))
            }
            MaybeReady::Pending(decision) => {
                // the service that was polled ready must be called, because its clone may not be ready
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                ResponseFuture::deciding(decision, ready, request, self.respond.clone())
            }
        }
    }
}

impl<S: Clone, G, R: Clone> Clone for Gated<S, G, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), gate: Arc::clone(&self.gate), respond: self.respond.clone() }
    }
}

impl<S: fmt::Debug, G, R> fmt::Debug for Gated<S, G, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gated").field("inner", &self.inner).field("gate", &type_name::<G>()).finish_non_exhaustive()
    }
}
