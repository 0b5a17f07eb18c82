//! The requirements of tower on a middleware, tested on the gate that all layers share.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::{
    convert::Infallible,
    future::{Future, pending, ready},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full, combinators};
use tokio::sync::oneshot;
use tollgate::{
    EventLog, EventService, Head, Limiter, Plans, ProblemJson, Quota, RateLimitLayer, Tenant,
    gate::{Gate, GateLayer, Gated, MaybeReady, Pass, ResponseFuture},
    limit::{RateLimitGate, RateLimited},
    reject::{Rejection, RejectionKind, Respond, StatusOnly},
    tenant::HeaderTenant,
};
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, limit::ConcurrencyLimit, service_fn};
use tower_test::mock;

// ---- a scripted gate that records what happens to its passes

type Decision = Result<Noted, Rejection>;
type Notes = Arc<Mutex<Vec<String>>>;

#[derive(Clone, Default)]
struct Scripted {
    notes: Notes,
    later: Arc<Mutex<Option<oneshot::Receiver<bool>>>>,
}

/// A pass that records what happens to it.
struct Noted(Notes);

impl Scripted {
    /// Delays the next decision until the sender sends it.
    fn decides_later(&self) -> oneshot::Sender<bool> {
        let (sender, receiver) = oneshot::channel();
        *self.later.lock().unwrap() = Some(receiver);
        sender
    }

    fn notes(&self) -> String {
        self.notes.lock().unwrap().join(", ")
    }
}

impl Gate for Scripted {
    type Pass = Noted;
    type Future = Pin<Box<dyn Future<Output = Decision> + Send + Sync>>;

    fn inspect(&self, head: Head<'_>) -> MaybeReady<Self::Future> {
        let notes = Arc::clone(&self.notes);
        if let Some(later) = self.later.lock().unwrap().take() {
            return MaybeReady::Pending(Box::pin(async move {
                if later.await.unwrap() { Ok(Noted(notes)) } else { Err(refusal()) }
            }));
        }
        MaybeReady::Ready(if head.uri().path() == "/refused" { Err(refusal()) } else { Ok(Noted(notes)) })
    }
}

fn refusal() -> Rejection {
    let mark = (HeaderName::from_static("x-mark"), HeaderValue::from_static("1"));
    Rejection::new(RejectionKind::Forbidden, "not today").header(mark.0, mark.1)
}

impl Pass for Noted {
    fn admit(&mut self, extensions: &mut Extensions) {
        self.0.lock().unwrap().push("admitted".into());
        extensions.insert("marked");
    }

    fn finish(self, status: StatusCode, headers: &mut HeaderMap) {
        self.0.lock().unwrap().push(format!("finished with {}", status.as_u16()));
        headers.insert("x-finished", HeaderValue::from_static("1"));
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.lock().unwrap().push("dropped".into());
    }
}

fn get(path: &str) -> Request<String> {
    Request::get(path).body(String::from("the body")).unwrap()
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

type Mocked = mock::Handle<Request<String>, Response<String>>;

fn mocked(gate: &Scripted) -> (mock::Spawn<Gated<Mock, Scripted, StatusOnly>>, Mocked) {
    mock::spawn_layer(GateLayer::new(gate.clone()))
}

type Mock = mock::Mock<Request<String>, Response<String>>;

// ---- readiness

#[test]
fn the_layer_is_ready_when_the_inner_service_is() {
    let (mut service, mut handle) = mocked(&Scripted::default());
    handle.allow(0);
    assert!(service.poll_ready().is_pending());
    handle.allow(1);
    assert!(matches!(service.poll_ready(), Poll::Ready(Ok(()))));
    handle.send_error("broken");
    let mut service = service.clone();
    match service.poll_ready() {
        Poll::Ready(Err(error)) => assert_eq!(error.to_string(), "broken"),
        other => assert!(matches!(other, Poll::Ready(Err(_))), "{other:?}"),
    }
}

/// Panics if it is called without being polled ready. Clones are not ready.
struct Picky {
    ready: bool,
}

impl Clone for Picky {
    fn clone(&self) -> Self {
        Self { ready: false }
    }
}

impl Service<Request<String>> for Picky {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without having been polled ready");
        ready(Ok(Response::new(String::from("served"))))
    }
}

#[tokio::test]
async fn the_ready_service_is_the_one_that_is_called() {
    let gate = Scripted::default();
    let mut service = GateLayer::new(gate.clone()).layer(Picky { ready: false });
    for _ in 0..3 {
        let now = service.ready().await.unwrap().call(get("/")).await.unwrap();
        assert_eq!(now.body(), "served");

        let decide = gate.decides_later();
        let later = service.ready().await.unwrap().call(get("/"));
        // meanwhile, another request uses the clone that stayed behind
        assert_eq!(service.ready().await.unwrap().call(get("/")).await.unwrap().body(), "served");
        decide.send(true).unwrap();
        assert_eq!(later.await.unwrap().body(), "served");

        let refused = service.ready().await.unwrap().call(get("/refused")).await.unwrap();
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    }
}

// ---- one request, from the decision to the response

#[tokio::test]
async fn an_admitted_request_is_marked_served_and_its_response_marked() {
    let gate = Scripted::default();
    for is_later in [false, true] {
        let (mut service, mut handle) = mocked(&gate);
        assert!(service.poll_ready().is_ready());
        let decide = is_later.then(|| gate.decides_later());
        let mut response = service.call(get("/"));
        if let Some(decide) = decide {
            assert!(poll(&mut response).is_pending());
            assert!(handle.poll_request().is_pending(), "the request was served before the decision");
            decide.send(true).unwrap();
        }
        assert!(poll(&mut response).is_pending());

        let (request, respond) = handle.next_request().await.unwrap();
        assert_eq!(request.extensions().get(), Some(&"marked"));
        assert_eq!(request.body(), "the body");
        let answer = Response::builder().status(201).header("x-inner", "1").body(String::from("made"));
        respond.send_response(answer.unwrap());

        let response = response.await.unwrap();
        assert_eq!((response.status().as_u16(), response.body().as_str()), (201, "made"));
        assert_eq!(response.headers().keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-inner", "x-finished"]);
        assert_eq!(gate.notes(), "admitted, finished with 201, dropped");
        gate.notes.lock().unwrap().clear();
    }
}

#[tokio::test]
async fn a_refused_request_never_reaches_the_inner_service() {
    let gate = Scripted::default();
    for is_later in [false, true] {
        let (mut service, mut handle) = mocked(&gate);
        assert!(service.poll_ready().is_ready());
        let decide = is_later.then(|| gate.decides_later());
        let response = service.call(get("/refused"));
        if let Some(decide) = decide {
            decide.send(false).unwrap();
        }
        let response = response.await.unwrap();
        assert_eq!((response.status(), response.body().as_str()), (StatusCode::FORBIDDEN, ""));
        assert_eq!(response.headers().get("x-mark").unwrap(), "1");
        assert!(!response.headers().contains_key("x-finished"));
        assert!(handle.poll_request().is_pending());
        assert_eq!(gate.notes(), "");
    }
}

#[tokio::test]
async fn errors_of_the_inner_service_are_passed_on_without_finishing() {
    let gate = Scripted::default();
    let (mut service, mut handle) = mocked(&gate);
    assert!(service.poll_ready().is_ready());
    let response = service.call(get("/"));
    handle.next_request().await.unwrap().1.send_error("broken");
    assert_eq!(response.await.unwrap_err().to_string(), "broken");
    assert_eq!(gate.notes(), "admitted, dropped");
}

#[tokio::test]
async fn a_slow_decision_wakes_its_caller() {
    let gate = Scripted::default();
    let decide = gate.decides_later();
    let inner = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::from("served"))));
    let call = tokio::spawn(GateLayer::new(gate).layer(inner).oneshot(get("/")));
    tokio::task::yield_now().await;
    decide.send(true).unwrap();
    assert_eq!(call.await.unwrap().unwrap().body(), "served");
}

// ---- callers that disconnect

#[tokio::test]
async fn a_call_dropped_before_the_decision_has_no_effect() {
    let gate = Scripted::default();
    let (mut service, mut handle) = mocked(&gate);
    assert!(service.poll_ready().is_ready());
    let decide = gate.decides_later();
    let mut response = service.call(get("/"));
    assert!(poll(&mut response).is_pending());
    drop(response);
    assert!(decide.is_closed(), "the decision is dropped with the call");
    assert!(handle.poll_request().is_pending());
    assert_eq!(gate.notes(), "");
}

#[tokio::test]
async fn a_call_dropped_while_it_is_served_is_never_finished() {
    let gate = Scripted::default();
    let alive = Arc::new(());
    let witness = Arc::clone(&alive);
    let inner = service_fn(move |_: Request<String>| {
        let witness = Arc::clone(&witness);
        Box::pin(async move {
            let _witness = witness;
            pending::<Result<Response<String>, Infallible>>().await
        })
    });
    let mut service = GateLayer::new(gate.clone()).layer(inner);
    let mut response = service.ready().await.unwrap().call(get("/"));
    assert!(poll(&mut response).is_pending());
    assert_eq!(Arc::strong_count(&alive), 3);
    drop(response);
    assert_eq!(Arc::strong_count(&alive), 2, "the call of the inner service is dropped too");
    assert_eq!(gate.notes(), "admitted, dropped");
}

#[tokio::test]
async fn a_gate_can_mark_requests_without_its_pass() {
    struct Marks;

    impl Gate for Marks {
        type Pass = ();
        type Future = std::future::Ready<Result<(), Rejection>>;

        fn inspect(&self, _: Head<'_>) -> MaybeReady<Self::Future> {
            MaybeReady::Ready(Ok(()))
        }

        fn enter<B>(&self, request: &mut Request<B>) -> MaybeReady<Self::Future> {
            let decision = self.inspect(Head::of_request(request));
            request.extensions_mut().insert("marked");
            decision
        }
    }

    let inner = service_fn(async |request: Request<String>| {
        Ok::<_, Infallible>(Response::new(request.extensions().get::<&str>().unwrap().to_string()))
    });
    let response = GateLayer::new(Marks).layer(inner).oneshot(get("/")).await.unwrap();
    assert_eq!(response.body(), "marked");
}

#[tokio::test]
async fn a_request_that_never_gets_a_response_stays_charged() {
    let limiter = Limiter::memory(Plans::new(Quota::per_minute(2).unwrap()));
    let layer = RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter.clone()).charge_if(|_, _| false);
    let inner =
        service_fn(|_: Request<String>| Box::pin(async { pending::<Result<Response<String>, Infallible>>().await }));
    let acme = Tenant::parse("acme").unwrap();
    let request = Request::get("/").header("x-tenant", "acme").body(String::new()).unwrap();
    let mut response = Box::pin(layer.layer(inner).oneshot(request));
    assert!(poll(&mut response).is_pending());
    drop(response);
    assert_eq!(limiter.peek(&acme).unwrap().remaining(), 1);
}

// ---- among other layers, and with any body

#[tokio::test]
async fn a_refusal_holds_no_permit_of_a_concurrency_limit() {
    let gate = Scripted::default();
    let inner = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::from("served"))));
    let one_at_a_time = ConcurrencyLimit::new(inner, 1);
    let mut first = GateLayer::new(gate.clone()).layer(one_at_a_time.clone());
    let mut second = GateLayer::new(gate.clone()).layer(one_at_a_time);
    for is_later in [false, true, false, true] {
        let decide = is_later.then(|| gate.decides_later());
        let refused = first.ready().await.unwrap().call(get("/refused"));
        if let Some(decide) = decide {
            decide.send(false).unwrap();
        }
        assert_eq!(refused.await.unwrap().status(), StatusCode::FORBIDDEN);
        // the first service still exists and is idle
        assert!(poll(&mut second.ready()).is_ready(), "the permit is free, later: {is_later}");
        assert_eq!(second.call(get("/")).await.unwrap().body(), "served");
    }
}

#[tokio::test]
async fn a_gate_works_anywhere_in_a_stack() {
    let limiter = Limiter::memory(Plans::new(Quota::per_minute(1).unwrap()));
    let service = ServiceBuilder::new()
        .map_err(BoxError::from)
        .concurrency_limit(8)
        .map_response(|response: Response<Full<Bytes>>| response.map(BodyExt::boxed))
        .layer(GateLayer::new(Scripted::default()))
        .map_request(|request: Request<String>| request.map(|body| Full::from(Bytes::from(body))))
        .layer(RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter).respond_with(ProblemJson))
        .concurrency_limit(1)
        .service(service_fn(async |request: Request<Full<Bytes>>| {
            Ok::<_, Infallible>(Response::new(request.into_body()))
        }));
    for (status, text) in [(200, "the body"), (429, "quota-exceeded"), (429, "quota-exceeded")] {
        let mut request = get("/");
        request.headers_mut().insert("x-tenant", HeaderValue::from_static("acme"));
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), status);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(std::str::from_utf8(&body).unwrap().contains(text));
    }
}

/// Returns the status of a rejection with the body `B` by a service for requests with the body `A`.
async fn refused<A: Default, B: Default>() -> StatusCode {
    let inner = service_fn(async |_: Request<A>| Ok::<_, Infallible>(Response::new(B::default())));
    let limiter = Limiter::memory(Plans::new(Quota::per_minute(1).unwrap()));
    let service = RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter).layer(inner);
    service.oneshot(Request::new(A::default())).await.unwrap().status()
}

/// Returns the problem document of a rejected request.
async fn refused_in_words<B: Default + From<Bytes> + http_body::Body<Data = Bytes>>() -> String {
    let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(B::default())));
    let service = GateLayer::new(Scripted::default()).respond_with(ProblemJson).layer(inner);
    let response = service.oneshot(Request::get("/refused").body(()).unwrap()).await.unwrap();
    let bytes = response.into_body().collect().await.ok().unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn any_body_type_is_supported() {
    type BoxBody = combinators::BoxBody<Bytes, BoxError>;
    type UnsyncBoxBody = combinators::UnsyncBoxBody<Bytes, BoxError>;
    for status in [
        refused::<Full<Bytes>, Full<Bytes>>().await,
        refused::<Empty<Bytes>, Empty<Bytes>>().await,
        refused::<axum::body::Body, axum::body::Body>().await,
        refused::<tonic::body::Body, tonic::body::Body>().await,
        refused::<BoxBody, BoxBody>().await,
        refused::<UnsyncBoxBody, UnsyncBoxBody>().await,
        refused::<tollgate::body::Body, tollgate::body::Body>().await,
        refused::<String, Vec<u8>>().await,
        refused::<(), ()>().await,
    ] {
        assert_eq!(status, StatusCode::BAD_REQUEST);
    }
    let problem = refused_in_words::<Full<Bytes>>().await;
    assert!(problem.contains(r#""detail":"not today""#), "{problem}");
    assert_eq!(refused_in_words::<axum::body::Body>().await, problem);
    assert_eq!(refused_in_words::<tollgate::body::Body>().await, problem);
}

#[tokio::test]
async fn a_closure_can_respond_with_a_body_without_a_default() {
    struct Page(String);
    let inner = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(Page("served".into()))));
    let sorry = |rejection: &Rejection, head: Head<'_>| {
        let response = Response::builder().header("x-own", "1").header("x-mark", "another");
        response.body(Page(format!("{} at {}", rejection.detail(), head.uri().path()))).unwrap()
    };
    let service = GateLayer::new(Scripted::default()).respond_with(sorry).layer(inner);
    let response = service.oneshot(get("/refused")).await.unwrap();
    assert_eq!(response.body().0, "not today at /refused");
    assert_eq!(response.headers().get("x-own").unwrap(), "1");
    let marks: Vec<_> = response.headers().get_all("x-mark").iter().collect();
    assert_eq!(marks, ["1"], "a closure can neither forget nor change the headers of a rejection");
}

/// gRPC clients understand only gRPC statuses.
#[tokio::test]
async fn a12_a_grpc_client_gets_a_grpc_status_from_every_responder() {
    #[derive(Clone)]
    struct Own;

    impl Respond<Full<Bytes>> for Own {
        fn respond(&self, _: &Rejection, _: Head<'_>) -> Response<Full<Bytes>> {
            Response::builder().status(403).header("content-type", "text/html").body(Full::default()).unwrap()
        }
    }

    async fn check(respond: impl Respond<Full<Bytes>>) {
        let inner = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(Full::default())));
        let service = GateLayer::new(Scripted::default()).respond_with(respond).layer(inner);
        let mut request = get("/refused");
        request.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc+proto"));
        let response = service.oneshot(request).await.unwrap();
        let header = |name| response.headers().get(name).map(|value: &HeaderValue| value.to_str().unwrap());
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(header("content-type"), Some("application/grpc"));
        assert_eq!(header("grpc-status"), Some("7"));
        assert_eq!(header("grpc-message"), Some("not today"));
        assert_eq!(header("x-mark"), Some("1"));
        assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
    }
    check(StatusOnly).await;
    check(ProblemJson).await;
    check(Own).await;
    check(|rejection: &Rejection, head: Head<'_>| {
        assert!(rejection.is_grpc() && head.is_grpc());
        Response::new(Full::default())
    })
    .await;
}

#[tokio::test]
async fn a_detail_can_be_an_owned_string_and_is_escaped_for_grpc() {
    struct Refuses;

    impl Gate for Refuses {
        type Pass = ();
        type Future = std::future::Ready<Result<(), Rejection>>;

        fn inspect(&self, head: Head<'_>) -> MaybeReady<Self::Future> {
            let detail = format!("100% of {} is closed – sorry", head.uri().path());
            MaybeReady::Ready(Err(Rejection::new(RejectionKind::Forbidden, detail)))
        }
    }

    let inner = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::new())));
    let in_words = |rejection: &Rejection, _: Head<'_>| Response::new(rejection.detail().to_owned());
    let service = GateLayer::new(Refuses).respond_with(in_words).layer(inner);
    let response = service.clone().oneshot(get("/shop")).await.unwrap();
    assert_eq!(response.body(), "100% of /shop is closed – sorry");
    let mut request = get("/shop");
    request.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(response.headers()["grpc-message"], "100%25 of /shop is closed %E2%80%93 sorry");
}

// ---- properties that the compiler must prove

#[test]
fn layers_services_and_futures_have_the_traits_that_servers_need() {
    fn everywhere<T: Send + Sync + 'static>() {}
    fn cloned_everywhere<T: Clone + Send + Sync + 'static>() {}
    type Inner = tower::util::ServiceFn<fn(Request<()>) -> std::future::Ready<Result<Response<()>, Infallible>>>;
    cloned_everywhere::<GateLayer<Scripted>>();
    cloned_everywhere::<GateLayer<Scripted, ProblemJson>>();
    cloned_everywhere::<Gated<Inner, Scripted, ProblemJson>>();
    cloned_everywhere::<RateLimitLayer>();
    cloned_everywhere::<RateLimitLayer<ProblemJson>>();
    cloned_everywhere::<RateLimited<Inner>>();
    cloned_everywhere::<Limiter>();
    cloned_everywhere::<EventLog>();
    cloned_everywhere::<EventService>();
    everywhere::<ResponseFuture<Inner, RateLimitGate, ProblemJson, ()>>();
    everywhere::<ResponseFuture<Inner, Scripted, ProblemJson, ()>>();
}

/// A responder with a cookie and headers of its own.
#[derive(Clone)]
struct SetsCookie;

impl Respond<String> for SetsCookie {
    fn respond(&self, rejection: &Rejection, _: Head<'_>) -> Response<String> {
        let response = Response::builder().status(rejection.status()).header("set-cookie", "seen=1");
        response.header("vary", "accept").header("vary", "cookie").body(String::new()).unwrap()
    }
}

#[tokio::test]
async fn b30_a_rejection_sets_two_cookies_and_replaces_other_headers_of_the_responder() {
    struct Closed;
    impl Gate for Closed {
        type Pass = ();
        type Future = std::future::Ready<Result<(), Rejection>>;
        fn inspect(&self, _: Head<'_>) -> MaybeReady<Self::Future> {
            let rejection = Rejection::new(RejectionKind::Forbidden, "closed")
                .header(http::header::SET_COOKIE, HeaderValue::from_static("a=1"))
                .header(http::header::SET_COOKIE, HeaderValue::from_static("b=2"))
                .header(http::header::VARY, HeaderValue::from_static("origin"))
                .header(http::header::VARY, HeaderValue::from_static("x-tenant"));
            MaybeReady::Ready(Err(rejection))
        }
    }
    let answered = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::new())));
    let all = |response: &Response<String>, name: &str| {
        let values = response.headers().get_all(name).iter();
        values.map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let plain = GateLayer::new(Closed).respond_with(StatusOnly).layer(answered);
    let response = plain.oneshot(Request::new(String::new())).await.unwrap();
    assert_eq!(all(&response, "set-cookie"), ["a=1", "b=2"]);
    let own = GateLayer::new(Closed).respond_with(SetsCookie).layer(answered);
    let response = own.oneshot(Request::new(String::new())).await.unwrap();
    assert_eq!(all(&response, "set-cookie"), ["seen=1", "a=1", "b=2"]);
    assert_eq!(all(&response, "vary"), ["origin", "x-tenant"]);
}
