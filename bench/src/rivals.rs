//! The other limiters, configured as their manuals recommend. All of them read the same header.

use std::{
    convert::Infallible,
    future::Future,
    num::{NonZeroU32, NonZeroU64},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::Body;
use governor::{DefaultKeyedRateLimiter, RateLimiter};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, request::Parts};
use http_body_util::BodyExt;
use pin_project_lite::pin_project;
use tower_governor::{
    GovernorError, GovernorLayer,
    governor::{GovernorConfig, GovernorConfigBuilder},
    key_extractor::KeyExtractor,
};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    service::{Limited, Req, Res, TENANT, finish},
    subject::BudgetState,
};

/// Returns the time in which a unit comes back, and the burst.
fn pace(budget: BudgetState) -> (Duration, u32) {
    match budget {
        BudgetState::Ample => (Duration::from_nanos(1), 9_999),
        BudgetState::Spent => (Duration::from_secs(3_600), 1),
    }
}

#[derive(Clone)]
pub struct FromHeader;

impl KeyExtractor for FromHeader {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> Result<String, GovernorError> {
        let value = request.headers().get(TENANT).ok_or(GovernorError::UnableToExtractKey)?;
        value.to_str().map(str::to_owned).map_err(|_| GovernorError::UnableToExtractKey)
    }
}

type Config<M> = Arc<GovernorConfig<FromHeader, M>>;

pub fn tower_governor_config(budget: BudgetState) -> Config<governor::middleware::StateInformationMiddleware> {
    let (period, burst) = pace(budget);
    let mut builder = GovernorConfigBuilder::default().key_extractor(FromHeader).use_headers();
    let config = builder.period(period).burst_size(burst).finish();
    Arc::new(config.expect("the period is not zero"))
}

pub fn tower_governor_with_headers<S: Limited>(inner: S, budget: BudgetState) -> impl Limited {
    GovernorLayer::new(tower_governor_config(budget)).layer(inner)
}

pub fn tower_governor_plain<S: Limited>(inner: S, budget: BudgetState) -> impl Limited {
    let (period, burst) = pace(budget);
    let mut builder = GovernorConfigBuilder::default().key_extractor(FromHeader);
    let config: Config<governor::middleware::NoOpMiddleware> =
        Arc::new(builder.period(period).burst_size(burst).finish().expect("the period is not zero"));
    GovernorLayer::new(config).layer(inner)
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct GcraKey(String);

#[async_trait::async_trait]
impl<S> axum07::extract::FromRequestParts<S> for GcraKey {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        let value = parts.headers.get(TENANT).ok_or(StatusCode::BAD_REQUEST)?;
        value.to_str().map(|key| Self(key.to_owned())).map_err(|_| StatusCode::BAD_REQUEST)
    }
}

/// axum_gcra with or without the collection of idle keys. It writes no headers.
pub fn axum_gcra<S: Limited + Sync>(inner: S, budget: BudgetState, collects: bool) -> impl Limited {
    let (period, burst) = pace(budget);
    let burst = NonZeroU64::from(NonZeroU32::new(burst).expect("the burst is not zero"));
    let mut builder =
        axum_gcra::RateLimitLayer::<GcraKey>::builder().with_default_quota(axum_gcra::gcra::Quota::new(period, burst));
    if !collects {
        builder = builder.with_gc_interval(u64::MAX);
    }
    Answered(builder.build().layer(inner))
}

/// Turns errors into an empty 429, which costs less than axum's own error handling.
#[derive(Clone)]
struct Answered<S>(S);

pin_project! {
    struct Answering<F> { #[pin] future: F }
}

impl<S, E> Service<Req> for Answered<S>
where
    S: Service<Req, Response = Res, Error = E>,
{
    type Response = Res;
    type Error = Infallible;
    type Future = Answering<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx).map(|_| Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        Answering { future: self.0.call(request) }
    }
}

impl<F: Future<Output = Result<Res, E>>, E> Future for Answering<F> {
    type Output = Result<Res, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(ready!(self.project().future.poll(cx)).unwrap_or_else(|_| too_many())))
    }
}

fn too_many() -> Res {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    response
}

/// A minimal middleware around the crate governor, written by hand: no headers, and an empty 429.
#[derive(Clone)]
struct ByHand<S> {
    limiter: Arc<DefaultKeyedRateLimiter<String>>,
    inner: S,
}

pub fn governor_by_hand<S: Limited>(inner: S, budget: BudgetState) -> impl Limited {
    let (period, burst) = pace(budget);
    let quota = governor::Quota::with_period(period).expect("the period is not zero");
    let quota = quota.allow_burst(NonZeroU32::new(burst).expect("the burst is not zero"));
    ByHand { limiter: Arc::new(RateLimiter::keyed(quota)), inner }
}

impl<S: Limited> Service<Req> for ByHand<S> {
    type Response = Res;
    type Error = Infallible;
    type Future = Passed<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let key = FromHeader.extract(&request).unwrap_or_default();
        match self.limiter.check_key(&key) {
            Ok(()) => Passed { future: Some(self.inner.call(request)) },
            Err(_) => Passed { future: None },
        }
    }
}

pin_project! {
    /// The call of the inner service, or nothing if the request was refused.
    struct Passed<F> { #[pin] future: Option<F> }
}

impl<F: Future<Output = Result<Res, Infallible>>> Future for Passed<F> {
    type Output = Result<Res, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().future.as_pin_mut() {
            Some(future) => future.poll(cx),
            None => Poll::Ready(Ok(too_many())),
        }
    }
}

/// Writes constant headers, or refuses all requests with a constant response. It decides nothing, so it shows what the
/// bytes of a response cost.
#[derive(Clone)]
struct Constant<S> {
    answer: ConstantAnswer,
    inner: S,
}

#[derive(Clone, Copy)]
struct ConstantAnswer {
    status: StatusCode,
    headers: &'static [(HeaderName, HeaderValue)],
    body: &'static [u8],
}

/// Creates a service that writes the headers of `sample`, or refuses with `sample` if that is a refusal.
pub fn constant<S: Limited>(inner: S, sample: Res) -> impl Limited {
    let (parts, body) = sample.into_parts();
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let fixed = |value: &HeaderValue| HeaderValue::from_static(text(value).leak());
    let headers: Vec<_> = parts.headers.iter().map(|(name, value)| (name.clone(), fixed(value))).collect();
    let body = finish(body.collect()).expect("the body is in memory").to_bytes().to_vec();
    let answer = ConstantAnswer { status: parts.status, headers: headers.leak(), body: body.leak() };
    Constant { answer, inner }
}

impl ConstantAnswer {
    fn write(&self, response: &mut Res) {
        response.headers_mut().reserve(self.headers.len());
        for (name, value) in self.headers {
            response.headers_mut().insert(name, value.clone());
        }
    }
}

impl<S: Limited> Service<Req> for Constant<S> {
    type Response = Res;
    type Error = Infallible;
    type Future = Constants<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let answer = self.answer;
        Constants { future: answer.status.is_success().then(|| self.inner.call(request)), answer }
    }
}

pin_project! {
    /// The call of the inner service, or nothing if the request is refused.
    struct Constants<F> {
        #[pin] future: Option<F>,
        answer: ConstantAnswer,
    }
}

impl<F: Future<Output = Result<Res, Infallible>>> Future for Constants<F> {
    type Output = Result<Res, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = match this.future.as_pin_mut() {
            Some(future) => {
                let Ok(response) = ready!(future.poll(cx));
                response
            }
            None => {
                let mut response = Response::new(Body::from(this.answer.body));
                *response.status_mut() = this.answer.status;
                response
            }
        };
        this.answer.write(&mut response);
        Poll::Ready(Ok(response))
    }
}
