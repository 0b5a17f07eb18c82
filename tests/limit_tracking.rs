//! Layers that track bodies: when a call ends, and what a metered call pays.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::{pending, ready},
    pin::{Pin, pin},
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::{Router, routing::get};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tollgate::{
    EventLog, Head, LimitKey, Limiter, Plan, Plans, ProblemJson, Quota, RateLimitLayer, Tenant, TenantSource,
    event::{EventKind, Query},
    limit::{HeaderStyle, Tracked, TrackingLayer, Usage},
    tenant::{ExtensionTenant, HeaderTenant},
    testing::ManualClock,
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

fn acme() -> Tenant {
    Tenant::parse("acme").unwrap()
}

fn limiter(quotas: impl IntoIterator<Item = Quota>) -> Limiter {
    Limiter::builder(Plans::new(Plan::new(quotas).unwrap())).clock(ManualClock::new()).build().unwrap()
}

fn concurrent(limit: u32) -> Quota {
    Quota::concurrent(limit).unwrap()
}

fn per_minute(limit: u32) -> Quota {
    Quota::per_minute(limit).unwrap()
}

fn by_header(limiter: &Limiter) -> RateLimitLayer {
    RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter.clone())
}

fn tracking(limiter: &Limiter) -> TrackingLayer {
    by_header(limiter).tracking_bodies()
}

fn left(limiter: &Limiter) -> u32 {
    limiter.peek(&acme()).unwrap().remaining()
}

fn request() -> Request<()> {
    Request::get("/").header("x-tenant", "acme").body(()).unwrap()
}

// ---- a service whose responses a test composes

type Item = Result<Frame<Bytes>, &'static str>;

/// A body with scripted frames. After the last, it ends or stays open.
#[derive(Debug, Default)]
struct Scripted {
    frames: VecDeque<Item>,
    ends: bool,
}

impl Scripted {
    fn ending(frames: impl IntoIterator<Item = Item>) -> Self {
        Self { frames: frames.into_iter().collect(), ends: true }
    }

    fn open(frames: impl IntoIterator<Item = Item>) -> Self {
        Self { ends: false, ..Self::ending(frames) }
    }
}

impl From<Bytes> for Scripted {
    fn from(bytes: Bytes) -> Self {
        Self::ending([Ok(Frame::data(bytes))])
    }
}

impl Body for Scripted {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Item>> {
        match self.frames.pop_front() {
            Some(item) => Poll::Ready(Some(item)),
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ends && self.frames.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(77)
    }
}

fn data(text: &'static str) -> Item {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

/// A service that answers with what the function makes of the request.
fn answering<B>(
    respond: impl Fn(Request<()>) -> Response<B> + Clone,
) -> impl Service<
    Request<()>,
    Response = Response<B>,
    Error = Infallible,
    Future = std::future::Ready<Result<Response<B>, Infallible>>,
> + Clone {
    service_fn(move |request| ready(Ok(respond(request))))
}

fn streaming() -> impl Fn(Request<()>) -> Response<Scripted> + Clone {
    |_| Response::new(Scripted::open([data("one"), data("two")]))
}

async fn call<L, B>(
    layer: &L,
    respond: impl Fn(Request<()>) -> Response<Scripted> + Clone + Send + 'static,
) -> Response<B>
where
    L: Layer<Boxed, Service: Service<Request<()>, Response = Response<B>, Error = Infallible>>,
{
    layer.layer(Boxed::new(answering(respond))).oneshot(request()).await.unwrap()
}

type Boxed = tower::util::BoxCloneService<Request<()>, Response<Scripted>, Infallible>;

async fn next<B: Body<Data = Bytes> + Unpin>(body: &mut B) -> Option<Result<Frame<Bytes>, B::Error>> {
    body.frame().await
}

fn is_refused<B>(response: &Response<B>) -> bool {
    response.status() == StatusCode::TOO_MANY_REQUESTS
}

// ---- when a call ends

#[tokio::test]
async fn c138_a_call_is_open_until_its_body_has_ended() {
    let limiter = limiter([concurrent(1)]);
    let layer = tracking(&limiter);
    let respond = |_| Response::new(Scripted::ending([data("one"), data("two")]));
    let response: Response<Tracked<Scripted>> = call(&layer, respond).await;
    assert_eq!(response.headers()["x-ratelimit-limit"], "1");
    assert_eq!(response.headers()["x-ratelimit-remaining"], "0");
    assert_eq!(response.body().size_hint().exact(), Some(77));
    let mut body = response.into_body();
    assert_eq!(next(&mut body).await.unwrap().unwrap().into_data().unwrap(), "one");
    assert!(is_refused(&call(&layer, respond).await));
    assert_eq!(next(&mut body).await.unwrap().unwrap().into_data().unwrap(), "two");
    assert!(body.is_end_stream());
    assert_eq!(left(&limiter), 1, "a server may not poll it again");
    assert!(next(&mut body).await.is_none());
    assert!(!is_refused(&call(&layer, respond).await));
}

#[tokio::test]
async fn trailers_pass_and_a_body_without_an_end_sign_ends_at_none() {
    /// Does not know that it ends before it has ended.
    struct Silent(Scripted);

    impl Body for Silent {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
            pin!(&mut self.0).poll_frame(cx)
        }
    }

    let limiter = limiter([concurrent(1)]);
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
    let sent = trailers.clone();
    let service =
        answering(move |_| Response::new(Silent(Scripted::ending([data("one"), Ok(Frame::trailers(sent.clone()))]))));
    let layer = by_header(&limiter).respond_with(|_: &_, _: Head<'_>| panic!("it is admitted"));
    let mut body = layer.tracking_bodies().layer(service).oneshot(request()).await.unwrap().into_body();
    assert!(next(&mut body).await.unwrap().unwrap().is_data());
    assert_eq!(next(&mut body).await.unwrap().unwrap().into_trailers().unwrap(), trailers);
    assert_eq!(left(&limiter), 0);
    assert!(next(&mut body).await.is_none());
    assert_eq!(left(&limiter), 1);
}

#[tokio::test]
async fn a_call_ends_when_its_body_is_dropped_fails_or_is_empty() {
    let limiter = limiter([concurrent(1)]);
    let layer = tracking(&limiter);
    let mut response = call(&layer, streaming()).await;
    assert!(next(response.body_mut()).await.unwrap().is_ok());
    assert_eq!(left(&limiter), 0);
    drop(response);
    assert_eq!(left(&limiter), 1);

    let failing = |_| Response::new(Scripted::open([data("one"), Err("broken")]));
    let mut response: Response<Tracked<Scripted>> = call(&layer, failing).await;
    assert!(next(response.body_mut()).await.unwrap().is_ok());
    assert_eq!(left(&limiter), 0);
    assert_eq!(next(response.body_mut()).await.unwrap().unwrap_err(), "broken");
    assert_eq!(left(&limiter), 1);

    let _empty: Response<Tracked<Scripted>> = call(&layer, |_| Response::new(Scripted::ending([]))).await;
    assert_eq!(left(&limiter), 1, "a server may never poll it");
}

#[tokio::test]
async fn a_call_ends_when_its_future_is_dropped_or_the_service_fails() {
    let limiter = limiter([concurrent(1)]);
    let hanging = service_fn(async |_: Request<()>| pending::<Result<Response<Scripted>, Infallible>>().await);
    let mut future = Box::pin(tracking(&limiter).layer(hanging).oneshot(request()));
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(left(&limiter), 0);
    drop(future);
    assert_eq!(left(&limiter), 1);

    let failing = service_fn(async |_: Request<()>| Err::<Response<Scripted>, _>("down"));
    assert_eq!(tracking(&limiter).layer(failing).oneshot(request()).await.unwrap_err(), "down");
    assert_eq!(left(&limiter), 1);
}

#[tokio::test]
async fn c138_an_upgraded_connection_is_a_call_until_its_handle_is_dropped() {
    for (method, status) in [(Method::GET, StatusCode::SWITCHING_PROTOCOLS), (Method::CONNECT, StatusCode::OK)] {
        let [limiter, outer] = [(); 2].map(|()| limiter([concurrent(1)]));
        let kept = Arc::new(Mutex::new(None));
        let keep = Arc::clone(&kept);
        let service = answering(move |request: Request<()>| {
            *keep.lock().unwrap() = Usage::from_extensions(request.extensions()).cloned();
            Response::builder().status(status).body(Scripted::default()).unwrap()
        });
        let mut request = request();
        *request.method_mut() = method;
        drop(tracking(&outer).layer(tracking(&limiter).layer(service)).oneshot(request).await.unwrap());
        assert_eq!((left(&limiter), left(&outer)), (0, 0), "{status}");
        *kept.lock().unwrap() = None;
        assert_eq!((left(&limiter), left(&outer)), (1, 1), "{status}");
    }
}

#[tokio::test]
async fn c138_an_upgrade_that_nothing_tracks_is_refused_where_calls_are_counted() {
    let switching = |_| {
        let response = Response::builder().status(101).header("upgrade", "echo").header("connection", "upgrade");
        response.body(Scripted::ending([])).unwrap()
    };
    for method in [Method::GET, Method::CONNECT] {
        let log = EventLog::new();
        let plans = Plans::new(Plan::new([per_minute(9), concurrent(1)]).unwrap());
        let limiter = Limiter::builder(plans).clock(ManualClock::new()).events(log.clone()).build().unwrap();
        let mut request = request();
        *request.method_mut() = method.clone();
        let accepting = move |request| match method == Method::CONNECT {
            true => Response::new(Scripted::ending([])),
            false => switching(request),
        };
        let only_errors = by_header(&limiter).charge_if(|status, _| status.is_server_error());
        let response = only_errors.tracking_bodies().layer(answering(accepting)).oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()["x-ratelimit-remaining"], "8", "the rule sees what is sent");
        assert!(!response.headers().contains_key("upgrade") && !response.headers().contains_key("connection"));
        let events = log.read_events(&Query::new().kind(EventKind::CallUntracked)).events;
        assert_eq!(events.iter().map(|event| event.tenant.clone()).collect::<Vec<_>>(), [Some(acme().into())]);
        drop(response);
        assert!(!is_refused(&call::<_, Tracked<Scripted>>(&tracking(&limiter), streaming()).await), "its slot is free");
    }
    // nothing counts the call, or only a shadow does
    for quotas in [vec![per_minute(9)], vec![per_minute(9), concurrent(1).shadow()]] {
        let limiter = limiter(quotas);
        for layer in [tracking(&limiter), by_header(&limiter).without_extensions().tracking_bodies()] {
            let response: Response<Tracked<Scripted>> = call(&layer, switching).await;
            assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        }
    }
    // a metered call without a slot is charged its estimate
    let limiter = limiter([per_minute(9)]);
    let response: Response<Tracked<Scripted>> = call(&tracking(&limiter).metered(4, 9), switching).await;
    assert_eq!((response.status(), left(&limiter)), (StatusCode::SWITCHING_PROTOCOLS, 5));
}

#[tokio::test]
async fn a_handle_that_outlives_its_body_keeps_nothing_open() {
    let limiter = limiter([concurrent(1)]);
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let service = answering(move |request: Request<()>| {
        *keep.lock().unwrap() = Usage::from_extensions(request.extensions()).cloned();
        Response::new(Scripted::open([]))
    });
    drop(tracking(&limiter).layer(service).oneshot(request()).await.unwrap());
    assert!(kept.lock().unwrap().is_some());
    assert_eq!(left(&limiter), 1);
}

// ---- requests that are refused

#[tokio::test]
async fn a_request_that_costs_nothing_is_a_call_as_well() {
    let limiter = limiter([per_minute(9), concurrent(1)]);
    let plain = by_header(&limiter).cost(|_| 0).layer(answering(streaming()));
    assert_eq!(plain.oneshot(request()).await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(limiter.check(&acme(), 0).is_admitted(), "it only looks");
    limiter.plans().set(acme(), per_minute(9));
    let plain = by_header(&limiter).cost(|_| 0).layer(answering(streaming()));
    assert_eq!(plain.oneshot(request()).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_refusal_names_the_quota_and_says_that_its_reset_is_an_estimate() {
    let log = EventLog::new();
    let plans = Plans::new(Plan::new([per_minute(9), concurrent(1)]).unwrap());
    let limiter = Limiter::builder(plans).clock(ManualClock::new()).events(log.clone()).build().unwrap();
    let style = HeaderStyle::new().ietf_draft_10();
    let layer = by_header(&limiter).headers(style).respond_with(ProblemJson).tracking_bodies();
    let open: Response<Tracked<Scripted>> = call(&layer, streaming()).await;
    let policies = open.headers()["ratelimit-policy"].to_str().unwrap().to_owned();
    assert!(policies.starts_with(r#""default";q=9;qu="requests";w=60;pk="#), "{policies}");
    assert!(policies.contains(r#", "concurrent";q=1;qu="concurrent-requests";pk="#), "{policies}");

    let refused = call(&layer, streaming()).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let shown = |name: &str| refused.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(["retry-after", "x-ratelimit-limit", "x-ratelimit-remaining"].map(shown), ["1", "1", "0"]);
    assert!(shown("ratelimit").starts_with(r#""concurrent";r=0;pk="#), "{}", shown("ratelimit"));
    let document = refused.into_body().collect().await.unwrap().to_bytes();
    let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
    assert_eq!(document["violated-policies"], serde_json::json!(["concurrent"]));
    assert_eq!(document["reset-is-estimate"], true);
    assert_eq!(document["detail"], "rate limit exceeded while other calls are open");
    let logged = log.read_events(&Query::new().kind(EventKind::RateLimited)).events;
    assert_eq!(logged.iter().map(|event| event.policy).collect::<Vec<_>>(), [Some("concurrent")]);
    drop(open);
    assert!(!is_refused(&call(&layer, streaming()).await));
}

#[tokio::test]
async fn the_unit_of_a_quota_is_what_its_requests_cost() {
    let style = HeaderStyle::none().ietf_draft_10();
    let plan = |text: &str| -> Plan { text.parse().unwrap() };
    let policies = async |plan: Plan, is_metered: bool, is_weighted: bool| {
        let limiter = Limiter::builder(Plans::new(plan)).clock(ManualClock::new()).build().unwrap();
        let layer = by_header(&limiter).headers(style);
        let layer = if is_weighted { layer.cost(|_| 2) } else { layer }.tracking_bodies();
        let response: Response<Tracked<Scripted>> = match is_metered {
            true => call(&layer.metered(2, 3), streaming()).await,
            false => call(&layer, streaming()).await,
        };
        let policies = response.headers()["ratelimit-policy"].to_str().unwrap().to_owned();
        let units = policies.split("qu=\"").skip(1).map(|rest| rest.split_once('"').unwrap().0.to_owned());
        units.collect::<Vec<_>>()
    };
    let named = || plan("9/minute unit=tokens; 7/hour name=other; 5 concurrent");
    assert_eq!(policies(named(), false, false).await, ["tokens", "requests", "concurrent-requests"]);
    for (is_metered, is_weighted) in [(true, false), (false, true)] {
        let units = policies(named(), is_metered, is_weighted).await;
        assert_eq!(units, ["tokens", "units", "concurrent-requests"], "the unit of the second is not known");
    }
}

#[tokio::test]
async fn a_layer_that_tracks_nothing_admits_nothing_where_calls_are_counted() {
    let log = EventLog::new();
    let plans = Plans::new(Plan::new([per_minute(9), concurrent(1)]).unwrap());
    let limiter = Limiter::builder(plans).clock(ManualClock::new()).events(log.clone()).build().unwrap();
    let refused: Response<Scripted> = call(&by_header(&limiter).respond_with(ProblemJson), streaming()).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(log.read_events(&Query::new().kind(EventKind::CallUntracked)).events.len(), 1);
    let admitted: Response<Tracked<Scripted>> = call(&tracking(&limiter), streaming()).await;
    assert_eq!(admitted.status(), StatusCode::OK);
    assert_eq!(left(&limiter), 8);
}

#[tokio::test]
async fn requests_without_a_tenant_are_treated_as_by_any_layer() {
    let limiter = limiter([per_minute(9), concurrent(1)]);
    let nameless = || Request::new(());
    let send = |layer: TrackingLayer| layer.layer(answering(streaming())).oneshot(nameless());
    assert_eq!(send(tracking(&limiter)).await.unwrap().status(), StatusCode::BAD_REQUEST);
    let anonymous = |_: Head<'_>| Ok(Some(LimitKey::anonymous()));
    let source = || HeaderTenant::new("x-tenant").unwrap().or(anonymous);
    let shared = || RateLimitLayer::new(source(), limiter.clone()).tracking_bodies();
    let open = send(shared()).await.unwrap();
    assert!(is_refused(&send(shared()).await.unwrap()));
    assert_eq!(left(&limiter), 9, "acme has slots of its own");
    drop(open);
    assert!(!is_refused(&send(shared()).await.unwrap()));
}

// ---- layers around each other

fn stack<A, B>(inner: A, outer: B) -> tower::layer::util::Stack<A, B> {
    tower::layer::util::Stack::new(inner, outer)
}

#[tokio::test]
async fn a_request_through_two_layers_of_one_limiter_is_one_call() {
    let limiter = limiter([per_minute(10), concurrent(1)]);
    let costly = || by_header(&limiter).cost(|_| 3);
    let twice = stack(tracking(&limiter), tracking(&limiter));
    let response = twice.layer(answering(streaming())).oneshot(request()).await.unwrap();
    assert_eq!((response.status(), left(&limiter)), (StatusCode::OK, 9));
    drop(response);
    // an inner layer that does not track relies on the outer one, and charges the difference
    let mixed = stack(costly(), tracking(&limiter));
    let response = mixed.layer(answering(streaming())).oneshot(request()).await.unwrap();
    assert_eq!((response.status(), left(&limiter)), (StatusCode::OK, 6));
    drop(response);
    // an outer layer that does not track leaves that to the inner one
    limiter.plans().set(acme(), per_minute(10));
    let mixed = stack(tracking(&limiter), costly());
    let response = mixed.layer(answering(streaming())).oneshot(request()).await.unwrap();
    limiter.plans().set(acme(), Plan::new([per_minute(10), concurrent(1)]).unwrap());
    assert_eq!((response.status(), left(&limiter)), (StatusCode::OK, 3));
    // a quota counts the calls that are admitted under it
    assert!(!is_refused(&call::<_, Tracked<Scripted>>(&tracking(&limiter), streaming()).await));
}

#[tokio::test]
async fn a_handler_counts_for_all_limiters_around_it_and_a_reader_for_its_own() {
    let [outer, inner] = [(); 2].map(|()| limiter([per_minute(100)]));
    let metered =
        |limiter: &Limiter| tracking(limiter).metered(10, 50).read_usage(|chunk, usage| usage.add(chunk.len() as u32));
    let layers = stack(metered(&inner), metered(&outer));
    let service = answering(|request: Request<()>| {
        Usage::from_extensions(request.extensions()).unwrap().add(5);
        Response::new(Scripted::ending([data("one"), data("two")]))
    });
    let response = layers.layer(service).oneshot(request()).await.unwrap();
    assert_eq!((left(&outer), left(&inner)), (90, 90));
    response.into_body().collect().await.unwrap();
    assert_eq!((left(&outer), left(&inner)), (89, 89));
}

#[tokio::test]
async fn without_extensions_calls_are_tracked_but_the_handler_has_no_handle() {
    let limiter = limiter([concurrent(1)]);
    let layer = by_header(&limiter).without_extensions().tracking_bodies();
    let respond = |request: Request<()>| {
        assert!(Usage::from_extensions(request.extensions()).is_none());
        assert_eq!(request.extensions().len(), 0);
        Response::new(Scripted::open([]))
    };
    let response: Response<Tracked<Scripted>> = call(&layer, respond).await;
    assert!(is_refused(&call(&layer, respond).await));
    drop(response);
    assert_eq!(left(&limiter), 1);
}

#[tokio::test]
async fn a_rule_on_the_response_refunds_units_and_the_slot_stays() {
    let limiter = limiter([per_minute(10), concurrent(1)]);
    let only_failures = by_header(&limiter).charge_if(|status, _| status.is_client_error());
    let layer = only_failures.clone().tracking_bodies();
    let response: Response<Tracked<Scripted>> = call(&layer, streaming()).await;
    assert!(is_refused(&call(&layer, streaming()).await), "its slot is taken");
    drop(response);
    assert_eq!(left(&limiter), 10);
    let not_found = |_| Response::builder().status(404).body(Scripted::ending([data("no")])).unwrap();
    drop(call::<_, Tracked<Scripted>>(&layer, not_found).await);
    assert_eq!(left(&limiter), 9);
    // a metered call is free, or pays what it has counted
    let metered =
        only_failures.tracking_bodies().metered(4, 9).read_usage(|chunk, usage| usage.add(chunk.len() as u32));
    for (status, ends) in [(200, 9), (404, 6)] {
        let respond = move |_| Response::builder().status(status).body(Scripted::ending([data("two")])).unwrap();
        let response: Response<Tracked<Scripted>> = call(&metered, respond).await;
        assert_eq!(left(&limiter), 5);
        response.into_body().collect().await.unwrap();
        assert_eq!(left(&limiter), ends, "{status}");
    }
    // even if the body has ended before
    let empty = |_| Response::new(Scripted::ending([]));
    drop(call::<_, Tracked<Scripted>>(&metered, empty).await);
    assert_eq!(left(&limiter), 6);
}

// ---- metered calls

#[tokio::test]
async fn a_metered_call_pays_what_its_handler_counts_or_else_the_estimate() {
    let limiter = limiter([per_minute(100)]);
    let layer = tracking(&limiter).metered(10, 30);
    for (counts, used, paid) in
        [(vec![], None, 10), (vec![3, 4], Some(7), 7), (vec![0], Some(0), 0), (vec![25, 25], Some(50), 30)]
    {
        limiter.reset(&acme());
        let respond = move |request: Request<()>| {
            let usage = Usage::from_extensions(request.extensions()).unwrap();
            counts.iter().for_each(|units| usage.add(*units));
            assert_eq!(usage.used(), used);
            Response::new(Scripted::open([data("one")]))
        };
        let response: Response<Tracked<Scripted>> = call(&layer, respond).await;
        assert_eq!(left(&limiter), 90);
        assert_eq!(response.headers()["x-ratelimit-remaining"], "90");
        drop(response);
        assert_eq!(left(&limiter), 100 - paid);
    }
    limiter.reset(&acme());
    let set = |request: Request<()>| {
        let usage = Usage::from_extensions(request.extensions()).unwrap();
        usage.add(9);
        usage.set(2);
        Response::new(Scripted::ending([]))
    };
    drop(call::<_, Tracked<Scripted>>(&layer, set).await);
    assert_eq!(left(&limiter), 98);
}

#[tokio::test]
async fn a_client_that_hangs_up_pays_for_what_was_sent() {
    let limiter = limiter([per_minute(100)]);
    let layer = tracking(&limiter).metered(10, 50).read_usage(|chunk, usage| usage.add(chunk.len() as u32));
    let respond = |_| Response::new(Scripted::open([data("four"), data("five-"), data("never sent")]));
    let mut response: Response<Tracked<Scripted>> = call(&layer, respond).await;
    for _ in 0..2 {
        assert!(next(response.body_mut()).await.unwrap().is_ok());
    }
    assert_eq!(left(&limiter), 90);
    drop(response);
    assert_eq!(left(&limiter), 91);
}

#[tokio::test]
async fn estimates_can_depend_on_the_request_and_expire() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder(Plans::new(per_minute(100))).clock(clock.clone()).build().unwrap();
    let of_request = |head: Head<'_>| head.headers().get("max").map_or(0, |max| max.to_str().unwrap().parse().unwrap());
    let layer = tracking(&limiter).metered(10, 50).estimate(of_request).lifetime(Duration::from_secs(5));
    let mut service = layer.layer(answering(streaming()));
    let mut large = request();
    large.headers_mut().insert("max", "70".parse().unwrap());
    let open = service.ready().await.unwrap().call(large).await.unwrap();
    assert_eq!(left(&limiter), 30);
    let small = service.ready().await.unwrap().call(request()).await.unwrap();
    assert_eq!(left(&limiter), 29, "at least 1");
    clock.advance(Duration::from_secs(64));
    assert_eq!(left(&limiter), 29);
    clock.advance(Duration::from_secs(1));
    assert_eq!(left(&limiter), 100, "charged after 5 seconds, even if the calls go on");
    drop((open, small));
    assert_eq!(left(&limiter), 100);
}

#[tokio::test]
async fn anonymous_calls_leave_what_is_reserved() {
    let limiter = limiter([per_minute(100).reserve(0.4).unwrap()]);
    let metered = || tracking(&limiter).metered(25, 25);
    let open: Vec<Response<Tracked<Scripted>>> =
        vec![call(&metered(), streaming()).await, call(&metered(), streaming()).await];
    assert!(is_refused(&call::<_, Tracked<Scripted>>(&metered(), streaming()).await), "10 of 60 are left");
    assert_eq!(left(&limiter), 50);
    let proved = RateLimitLayer::new(ExtensionTenant, limiter.clone()).tracking_bodies().metered(45, 45);
    let mut by_acme = Request::new(());
    by_acme.extensions_mut().insert(acme());
    let response = proved.layer(answering(streaming())).oneshot(by_acme).await.unwrap();
    assert_eq!((response.status(), left(&limiter)), (StatusCode::OK, 5));
    drop(open);
    assert!(is_refused(&call::<_, Tracked<Scripted>>(&metered(), streaming()).await), "the estimates were charged");
}

#[tokio::test]
async fn anonymous_calls_leave_the_slots_that_are_reserved() {
    let limiter = limiter([concurrent(3).reserve(0.5).unwrap()]);
    let first: Response<Tracked<Scripted>> = call(&tracking(&limiter), streaming()).await;
    let shown = |response: &Response<Tracked<Scripted>>| {
        ["x-ratelimit-limit", "x-ratelimit-remaining"].map(|name| response.headers()[name].to_str().unwrap().to_owned())
    };
    assert_eq!((first.status(), shown(&first)), (StatusCode::OK, ["3", "0"].map(String::from)));
    let second: Response<Tracked<Scripted>> = call(&tracking(&limiter), streaming()).await;
    assert_eq!((second.status(), left(&limiter)), (StatusCode::TOO_MANY_REQUESTS, 2));
    let by_acme = async || {
        let proved = RateLimitLayer::new(ExtensionTenant, limiter.clone()).tracking_bodies();
        let mut request = Request::new(());
        request.extensions_mut().insert(acme());
        proved.layer(answering(streaming())).oneshot(request).await.unwrap()
    };
    let own = [by_acme().await, by_acme().await];
    assert_eq!((own[0].status(), own[1].status(), left(&limiter)), (StatusCode::OK, StatusCode::OK, 0));
    assert_eq!(by_acme().await.status(), StatusCode::TOO_MANY_REQUESTS);
    let hold = |is_anonymous: bool| match is_anonymous {
        true => limiter.hold_anonymous(&acme(), 1, 1, Duration::from_secs(1)).is_ok(),
        false => limiter.hold(&acme(), 1, 1, Duration::from_secs(1)).is_ok(),
    };
    assert!(!hold(false));
    // a free slot of the reserve is not for anonymous calls
    drop(own);
    assert!(hold(false) && !hold(true));
    assert!(is_refused(&call::<_, Tracked<Scripted>>(&tracking(&limiter), streaming()).await));
    drop(first);
    assert!(!is_refused(&call::<_, Tracked<Scripted>>(&tracking(&limiter), streaming()).await));
}

#[tokio::test]
async fn a_shadow_of_concurrent_calls_is_marked() {
    let limiter = limiter([per_minute(10), concurrent(1).shadow()]);
    let layer = tracking(&limiter);
    let first: Response<Tracked<Scripted>> = call(&layer, streaming()).await;
    assert!(!first.headers().contains_key("x-ratelimit-would-refuse"));
    let second: Response<Tracked<Scripted>> = call(&layer, streaming()).await;
    assert_eq!(second.headers()["x-ratelimit-would-refuse"], "concurrent");
    assert_eq!(second.headers()["x-ratelimit-remaining"], "8");
    drop(first);
    let third: Response<Tracked<Scripted>> = call(&layer, streaming()).await;
    assert!(!third.headers().contains_key("x-ratelimit-would-refuse"), "the second is not counted there");
}

#[tokio::test]
async fn an_unlimited_tenant_has_a_handle_too() {
    let limiter = limiter([per_minute(10), concurrent(1)]);
    limiter.plans().set(acme(), Plan::unlimited());
    let respond = |request: Request<()>| {
        Usage::from_extensions(request.extensions()).unwrap().add(5);
        Response::new(Scripted::open([]))
    };
    let layer = tracking(&limiter).metered(3, 4);
    let open: [Response<Tracked<Scripted>>; 2] = [call(&layer, respond).await, call(&layer, respond).await];
    assert!(open.iter().all(|response| response.status() == StatusCode::OK));
}

// ---- servers

async fn listen() -> (TcpListener, std::net::SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Sends a request and reads until this text has come.
async fn ask(address: std::net::SocketAddr, headers: &str, until: &str) -> TcpStream {
    ask_at(address, "/", headers, until).await
}

async fn ask_at(address: std::net::SocketAddr, path: &str, headers: &str, until: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-tenant: acme\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains(until) {
        let read = tokio::time::timeout(Duration::from_secs(20), stream.read_buf(&mut received)).await;
        assert!(read.is_ok_and(|read| read.unwrap() > 0), "{}", String::from_utf8_lossy(&received));
    }
    stream
}

/// Waits until this much is left.
async fn wait_until_left(limiter: &Limiter, expected: u32) {
    let is_left = async {
        while left(limiter) != expected {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), is_left).await;
    assert!(waited.is_ok(), "{} instead of {expected} are left", left(limiter));
}

#[tokio::test]
async fn a_call_through_axum_ends_when_its_client_hangs_up() {
    let limiter = limiter([per_minute(100), concurrent(1)]);
    let layer = tracking(&limiter).metered(10, 50).read_usage(|chunk, usage| usage.add(chunk.len() as u32));
    let stream = |usage: Usage| async move {
        assert_eq!(usage.used(), None);
        axum::body::Body::new(Scripted::open([data("eight by")]).map_err(std::io::Error::other))
    };
    let app = Router::new().route("/", get(stream)).layer(layer);
    let (listener, address) = listen().await;
    let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let client = ask(address, "", "eight by").await;
    ask(address, "", "429 Too Many Requests").await;
    assert_eq!(left(&limiter), 90);
    drop(client);
    wait_until_left(&limiter, 92).await;
    server.abort();
}

#[tokio::test]
async fn a_bare_hyper_server_keeps_an_upgraded_connection_as_a_call() {
    let limiter = limiter([concurrent(1)]);
    let (listener, address) = listen().await;
    let upgrade = service_fn(async |mut request: Request<hyper::body::Incoming>| {
        // as a web socket of axum does, unless its handler asks for the handle, too
        let usage = Usage::from_extensions(request.extensions()).cloned().filter(|_| request.uri() == "/");
        // as a layer does that may send the request again
        let copied = (request.uri() == "/copies").then(|| request.extensions().clone());
        let upgraded = hyper::upgrade::on(&mut request);
        let kept = (request.uri() == "/keeps").then_some(request);
        tokio::spawn(async move {
            let Ok(upgraded) = upgraded.await else { return };
            drop((kept, copied));
            let mut io = hyper_util::rt::TokioIo::new(upgraded);
            io.write_all(b"upgraded").await.unwrap();
            _ = io.read(&mut [0]).await;
            drop(usage);
        });
        let response = Response::builder().status(101).header("connection", "upgrade").header("upgrade", "echo");
        Ok::<_, Infallible>(response.body(http_body_util::Full::<Bytes>::default()).unwrap())
    });
    let service = ServiceBuilder::new().layer(tracking(&limiter)).service(upgrade);
    let server = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = hyper_util::service::TowerToHyperService::new(service.clone());
            let io = hyper_util::rt::TokioIo::new(stream);
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, service).with_upgrades());
        }
    });
    let upgrade = "connection: upgrade\r\nupgrade: echo\r\n";
    for path in ["/forgets", "/keeps", "/copies"] {
        ask_at(address, path, upgrade, "503 Service Unavailable").await;
        wait_until_left(&limiter, 1).await;
    }
    let client = ask(address, upgrade, "upgraded").await;
    assert_eq!(left(&limiter), 0);
    ask(address, "", "429 Too Many Requests").await;
    drop(client);
    wait_until_left(&limiter, 1).await;
    server.abort();
}

#[tokio::test]
async fn an_upgrade_through_axum_needs_the_handle() {
    async fn upgrade(
        usage: Option<Usage>,
        request: axum::extract::Request,
    ) -> (StatusCode, [(&'static str, &'static str); 2]) {
        tokio::spawn(async move {
            // drops the request
            let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
            let mut io = hyper_util::rt::TokioIo::new(upgraded);
            io.write_all(b"upgraded").await.unwrap();
            _ = io.read(&mut [0]).await;
            drop(usage);
        });
        (StatusCode::SWITCHING_PROTOCOLS, [("connection", "upgrade"), ("upgrade", "echo")])
    }

    let limiter = limiter([concurrent(1)]);
    let app = Router::new()
        .route("/", get(async |usage: Usage, request: axum::extract::Request| upgrade(Some(usage), request).await))
        .route(
            "/forgets",
            get(async |request: axum::extract::Request| {
                let (parts, _) = request.into_parts();
                let mut alone = axum::extract::Request::default();
                alone.extensions_mut().insert(parts.extensions.get::<hyper::upgrade::OnUpgrade>().cloned().unwrap());
                upgrade(None, alone).await
            }),
        )
        .layer(tracking(&limiter));
    let (listener, address) = listen().await;
    let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let headers = "connection: upgrade\r\nupgrade: echo\r\n";
    ask_at(address, "/forgets", headers, "503 Service Unavailable").await;
    wait_until_left(&limiter, 1).await;
    let client = ask(address, headers, "upgraded").await;
    assert_eq!(left(&limiter), 0);
    drop(client);
    wait_until_left(&limiter, 1).await;
    server.abort();
}

#[tokio::test]
async fn a_stream_of_tonic_is_a_call() {
    use tonic::{
        Code,
        transport::{Endpoint, Server, server::TcpIncoming},
    };
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

    let limiter = limiter([concurrent(1)]);
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(tracking(&limiter)).add_service(health).serve_with_incoming(incoming);
    let server = tokio::spawn(server);
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let call = || {
        let mut request = tonic::Request::new(HealthCheckRequest::default());
        request.metadata_mut().insert("x-tenant", "acme".parse().unwrap());
        request
    };
    let mut watch = client.watch(call()).await.unwrap().into_inner();
    assert!(watch.message().await.unwrap().is_some());
    assert_eq!(left(&limiter), 0);
    assert_eq!(client.check(call()).await.unwrap_err().code(), Code::ResourceExhausted);
    drop(watch);
    wait_until_left(&limiter, 1).await;
    assert!(client.check(call()).await.is_ok());
    wait_until_left(&limiter, 1).await;
    server.abort();
}
