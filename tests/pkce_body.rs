//! `PkceBodyLayer` as a tower service: what it admits, what it replays, and how it cooperates with
//! other layers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests may panic")]

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use tollgate::{
    body::ReplayedBody,
    pkce::{CodeChallenge, PkceBodyLayer},
    reject::{OAuthJson, Rejection},
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, limit::ConcurrencyLimit, service_fn};
use tower_test::mock::{self, Mock};

const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
const FORM: &str = "code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256";
const JSON: &str = r#"{"code_challenge":"E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM","code_challenge_method":"S256"}"#;
const FORM_TYPE: &str = "application/x-www-form-urlencoded";

/// A body with scripted frames.
#[derive(Debug, Default)]
struct Steps {
    steps: VecDeque<Step>,
    /// Repeats the last step forever.
    endless: bool,
    hint: u64,
    polls: Arc<AtomicUsize>,
}

#[derive(Clone, Debug)]
enum Step {
    Wait,
    Data(Bytes),
    Trailers(HeaderMap),
    Break,
}

impl Steps {
    fn of(steps: impl IntoIterator<Item = Step>) -> Self {
        Self { steps: steps.into_iter().collect(), ..Self::default() }
    }

    fn data(data: impl Into<Bytes>) -> Self {
        Self::of([Step::Data(data.into())])
    }
}

impl Body for Steps {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        self.polls.fetch_add(1, SeqCst);
        let step = if self.endless { self.steps.front().cloned() } else { self.steps.pop_front() };
        match step {
            Some(Step::Wait) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Step::Data(data)) => Poll::Ready(Some(Ok(Frame::data(data)))),
            Some(Step::Trailers(trailers)) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            Some(Step::Break) => Poll::Ready(Some(Err("broken"))),
            None => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        hint.set_lower(self.hint);
        hint
    }
}

/// The request that the inner service received.
type Seen = (Option<CodeChallenge>, Bytes, Option<HeaderMap>);

fn post(content_type: &str, body: Steps) -> Request<Steps> {
    Request::post("/authorize").header("content-type", content_type).body(body).unwrap()
}

fn layer() -> PkceBodyLayer {
    PkceBodyLayer::new("/authorize").unwrap()
}

/// Returns the response, and what the inner service received if it was called.
async fn send<R>(layer: PkceBodyLayer<R>, request: Request<Steps>) -> (Response<Full<Bytes>>, Option<Seen>)
where
    R: tollgate::reject::Respond<Full<Bytes>>,
{
    let (sender, receiver) = std::sync::mpsc::channel();
    let inner = service_fn(move |request: Request<ReplayedBody<Steps>>| {
        let sender = sender.clone();
        async move {
            let challenge = CodeChallenge::from_extensions(request.extensions()).copied();
            let replayed = challenge.is_some();
            let mut body = request.into_body();
            let promised = body.size_hint().exact();
            let (mut bytes, mut trailers) = (Vec::new(), None);
            loop {
                let ended = body.is_end_stream();
                let Some(frame) = body.frame().await else { break };
                // servers stop reading at the declared end, and would miss the trailers
                assert!(!replayed || !ended);
                match frame.unwrap().into_data() {
                    Ok(data) => bytes.extend_from_slice(&data),
                    Err(frame) => trailers = frame.into_trailers().ok(),
                }
            }
            if replayed {
                assert_eq!(promised, Some(bytes.len() as u64));
                assert!(body.is_end_stream());
            }
            let bytes = Bytes::from(bytes);
            sender.send((challenge, bytes, trailers)).unwrap();
            Ok::<_, Infallible>(Response::new(Full::default()))
        }
    });
    let response = layer.layer(inner).oneshot(request).await.unwrap();
    (response, receiver.try_recv().ok())
}

async fn refused(request: Request<Steps>) -> (u16, String) {
    let (response, seen) = send(layer().respond_with(OAuthJson), request).await;
    assert!(seen.is_none(), "the inner service was called");
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.into()).unwrap())
}

#[tokio::test]
async fn a_rejection_releases_its_concurrency_permit() {
    let inner = service_fn(async |_: Request<ReplayedBody<Steps>>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let one_at_a_time = ConcurrencyLimit::new(inner, 1);
    let mut first = layer().layer(one_at_a_time.clone());
    let mut second = layer().layer(one_at_a_time);
    let too_long = vec![b'a'; 64 * 1024 + 1];
    for (content_type, body, status) in [
        ("text/plain", Steps::data(FORM), 415),
        (FORM_TYPE, Steps::data("x=1"), 400),
        (FORM_TYPE, Steps::of([Step::Wait, Step::Break]), 400),
        (FORM_TYPE, Steps::data(too_long), 413),
    ] {
        let refused = first.ready().await.unwrap().call(post(content_type, body)).await.unwrap();
        assert_eq!(refused.status().as_u16(), status);
        // the first service still exists and is idle
        let is_free = pin!(second.ready()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(is_free, "after a {status}");
        assert_eq!(second.call(post(FORM_TYPE, Steps::data(FORM))).await.unwrap().status(), StatusCode::OK);
    }
}

fn invalid(detail: &str) -> (u16, String) {
    (400, format!(r#"{{"error":"invalid_request","error_description":"{detail}"}}"#))
}

#[tokio::test]
async fn forms_and_json_are_admitted_with_their_challenge() {
    for content_type in [
        FORM_TYPE,
        "Application/X-WWW-Form-Urlencoded",
        "application/x-www-form-urlencoded; charset=UTF-8",
        "application/x-www-form-urlencoded;charset=\"utf-8\"",
        "application/x-www-form-urlencoded; charset = utf-8",
    ] {
        let (response, seen) = send(layer(), post(content_type, Steps::data(FORM))).await;
        assert_eq!(response.status(), StatusCode::OK, "{content_type}");
        assert_eq!(seen, Some((CHALLENGE.parse().ok(), FORM.into(), None)));
    }
    for content_type in ["application/json", "application/json; charset=utf-8; v=1"] {
        let (_, seen) = send(layer(), post(content_type, Steps::data(JSON))).await;
        assert_eq!(seen, Some((CHALLENGE.parse().ok(), JSON.into(), None)), "{content_type}");
    }
}

#[tokio::test]
async fn c012_c013_c014_a_body_without_an_s256_challenge_gets_a_400() {
    let required = invalid("code challenge required");
    let unsupported = invalid("transform algorithm not supported");
    let malformed = invalid("the code challenge is malformed");
    for (form, expected) in [
        (String::new(), &required),
        (String::from("code_challenge_method=S256"), &required),
        (String::from("code_challenge=&code_challenge_method=S256"), &required),
        (format!("code_challenge={CHALLENGE}"), &unsupported),
        (format!("code_challenge={CHALLENGE}&code_challenge_method="), &unsupported),
        (format!("code_challenge={CHALLENGE}&code_challenge_method=plain"), &unsupported),
        (format!("code_challenge={CHALLENGE}&code_challenge_method=s256"), &unsupported),
        (format!("code_challenge={CHALLENGE}A&code_challenge_method=S256"), &malformed),
    ] {
        assert_eq!(refused(post(FORM_TYPE, Steps::data(form.clone()))).await, *expected, "{form}");
    }
    for (json, expected) in [
        (String::from("{}"), &required),
        (String::from(r#"{"code_challenge":null}"#), &required),
        (format!(r#"{{"code_challenge":"{CHALLENGE}"}}"#), &unsupported),
        (format!(r#"{{"code_challenge":"{CHALLENGE}","code_challenge_method":"plain"}}"#), &unsupported),
        (format!(r#"{{"code_challenge":"{CHALLENGE}=","code_challenge_method":"S256"}}"#), &malformed),
    ] {
        assert_eq!(refused(post("application/json", Steps::data(json.clone()))).await, *expected, "{json}");
    }
}

#[tokio::test]
async fn c010_c028_duplicate_names_get_a_400() {
    let twice = invalid("a parameter appears more than once");
    assert_eq!(refused(post(FORM_TYPE, Steps::data(format!("{FORM}&code_challenge=x")))).await, twice);
    assert_eq!(refused(post(FORM_TYPE, Steps::data(format!("a=1&{FORM}&a=2")))).await, twice);
    let json = JSON.replace('}', r#","code_challenge":"x"}"#);
    assert_eq!(refused(post("application/json", Steps::data(json))).await, twice);
}

#[tokio::test]
async fn malformed_and_incomplete_bodies_get_a_400() {
    let malformed = invalid("the parameters are malformed");
    assert_eq!(refused(post(FORM_TYPE, Steps::data(format!("{FORM}&a=%")))).await, malformed);
    for json in ["", "[]", "{", "\"a\"", FORM] {
        assert_eq!(refused(post("application/json", Steps::data(json))).await, malformed, "{json}");
    }
    let broken = Steps::of([Step::Data(FORM.into()), Step::Wait, Step::Break]);
    assert_eq!(refused(post(FORM_TYPE, broken)).await, invalid("the body is incomplete"));
}

#[tokio::test]
async fn c028_ambiguous_bodies_get_a_415() {
    let mut requests = vec![Request::post("/authorize").body(Steps::data(FORM)).unwrap()];
    for content_type in [
        "",
        "text/plain",
        "multipart/form-data; boundary=x",
        "application/jsonx",
        "application/problem+json",
        "application/json, text/plain",
        "application/json; charset=utf-16",
        "application/json; charset =utf-16",
        "application/json; charset\t= utf-16",
        "application/json; charset*=utf-16",
        "application/json; charset*=utf-8''utf-16",
        "application/x-www-form-urlencoded; Charset *0=\"utf-\"; charset*1=16",
        "application/x-www-form-urlencoded; CHARSET=latin1",
        "x",
    ] {
        requests.push(post(content_type, Steps::data(FORM)));
    }
    let mut two_types = post(FORM_TYPE, Steps::data(FORM));
    two_types.headers_mut().append(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut coded = post(FORM_TYPE, Steps::data(FORM));
    coded.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    requests.extend([two_types, coded]);
    for request in requests {
        let headers = request.headers().clone();
        let polls = Arc::clone(&request.body().polls);
        let (status, body) = refused(request).await;
        assert_eq!(status, 415, "{headers:?}");
        assert_eq!(body, r#"{"error":"invalid_request","error_description":"the body must be form-encoded or JSON"}"#);
        assert_eq!(polls.load(SeqCst), 0, "the body was read");
    }
    let mut plain = post(FORM_TYPE, Steps::data(FORM));
    plain.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("identity"));
    assert!(send(layer(), plain).await.1.is_some());
}

#[tokio::test]
async fn c028_a_body_over_64_kib_gets_a_413() {
    let padded = |len: usize| format!("{FORM}&x={}", "x".repeat(len - FORM.len() - 3));
    let (response, seen) = send(layer(), post(FORM_TYPE, Steps::data(padded(64 * 1024)))).await;
    assert_eq!((response.status(), seen.unwrap().1.len()), (StatusCode::OK, 64 * 1024));
    let too_large = (413, String::from(r#"{"error":"invalid_request","error_description":"the body is too long"}"#));
    assert_eq!(refused(post(FORM_TYPE, Steps::data(padded(64 * 1024 + 1)))).await, too_large);

    let limited = |bytes| layer().body_limit(bytes).unwrap();
    assert_eq!(send(limited(FORM.len()), post(FORM_TYPE, Steps::data(FORM))).await.0.status(), 200);
    assert_eq!(send(limited(FORM.len() - 1), post(FORM_TYPE, Steps::data(FORM))).await.0.status(), 413);
    assert!(layer().body_limit(0).is_err());
}

#[tokio::test]
async fn a_body_that_declares_too_much_is_not_read() {
    let body = Steps { hint: 64 * 1024 + 1, ..Steps::data(FORM) };
    let polls = Arc::clone(&body.polls);
    assert_eq!(refused(post(FORM_TYPE, body)).await.0, 413);
    assert_eq!(polls.load(SeqCst), 0);
}

#[tokio::test]
async fn a_body_with_a_wrong_length_is_read_up_to_the_limit() {
    for frame in ["", "x", "some more bytes"] {
        let body = Steps { endless: true, ..Steps::data(frame) };
        let polls = Arc::clone(&body.polls);
        let mut request = post(FORM_TYPE, body);
        request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("5"));
        assert_eq!(refused(request).await.0, 413, "{frame:?}");
        assert_eq!(polls.load(SeqCst), 64 * 1024 / frame.len().max(1) + 1);
    }
}

#[tokio::test]
async fn other_requests_are_admitted_with_their_body_unread() {
    let body = Steps::of([Step::Data("any".into()), Step::Wait, Step::Data("thing".into())]);
    let polls = Arc::clone(&body.polls);
    let request = Request::post("/other").body(body).unwrap();
    let inner = service_fn(async |request: Request<ReplayedBody<Steps>>| {
        Ok::<_, Infallible>(Response::new(request.into_body()))
    });
    let response = layer()
        .respond_with(|_: &Rejection, _: tollgate::Head<'_>| -> Response<ReplayedBody<Steps>> { unreachable!() });
    let response = response.layer(inner).oneshot(request).await.unwrap();
    assert_eq!(polls.load(SeqCst), 0);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "anything");

    let get = Request::get("/authorize").body(Steps::default()).unwrap();
    let posts = layer().protect_if(|head| head.method() == http::Method::POST);
    assert_eq!(send(posts, get).await.1, Some((None, Bytes::new(), None)));
}

#[tokio::test]
async fn a_grpc_client_gets_trailers_only() {
    let grpc = send(layer().respond_with(OAuthJson), post("application/grpc", Steps::default())).await.0;
    assert_eq!((grpc.status().as_u16(), &grpc.headers()["grpc-status"]), (200, &HeaderValue::from_static("3")));
}

// -- the contract of tower

type Inner = Mock<Request<ReplayedBody<Steps>>, Response<Full<Bytes>>>;

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn readiness_is_that_of_the_inner_service() {
    let (inner, mut handle) = mock::pair::<Request<ReplayedBody<Steps>>, Response<Full<Bytes>>>();
    let mut service = layer().layer(inner);
    let mut cx = Context::from_waker(Waker::noop());
    let mut ready = || Service::<Request<Steps>>::poll_ready(&mut service, &mut cx);
    handle.allow(0);
    assert!(ready().is_pending());
    handle.allow(1);
    assert!(matches!(ready(), Poll::Ready(Ok(()))));
    handle.send_error("down");
    assert!(matches!(ready(), Poll::Ready(Err(_))));
}

#[tokio::test]
async fn the_ready_service_is_the_one_that_is_called() {
    let (inner, mut handle): (Inner, _) = mock::pair();
    let mut service = layer().layer(inner);
    handle.allow(1);
    // a mock panics if it is called without being polled ready
    Service::<Request<Steps>>::poll_ready(&mut service, &mut Context::from_waker(Waker::noop())).is_ready();
    let body = Steps::of([Step::Wait, Step::Data(FORM.into()), Step::Wait]);
    let mut response = pin!(service.call(post(FORM_TYPE, body)));
    assert!(poll(response.as_mut()).is_pending());
    assert!(poll(response.as_mut()).is_pending());
    assert!(poll(response.as_mut()).is_pending());
    let (_, respond) = handle.next_request().await.unwrap();
    respond.send_response(Response::new(Full::from("done")));
    assert_eq!(response.await.unwrap().into_body().collect().await.unwrap().to_bytes(), "done");
}

#[tokio::test]
async fn errors_of_the_inner_service_are_passed_on() {
    let inner = service_fn(async |_: Request<ReplayedBody<Steps>>| Err::<Response<Full<Bytes>>, _>("inner"));
    let service = layer().layer(inner);
    assert_eq!(service.clone().oneshot(post(FORM_TYPE, Steps::data(FORM))).await.unwrap_err(), "inner");
    let other = Request::get("/other").body(Steps::default()).unwrap();
    assert_eq!(service.oneshot(other).await.unwrap_err(), "inner");
}

#[tokio::test]
async fn a_dropped_future_releases_its_permit() {
    let inner = service_fn(async |_: Request<ReplayedBody<Steps>>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let mut service = ServiceBuilder::new().layer(layer()).concurrency_limit(1).service(inner);
    for _ in 0..3 {
        let stuck = Steps { endless: true, ..Steps::of([Step::Wait]) };
        let mut response = Box::pin(service.ready().await.unwrap().call(post(FORM_TYPE, stuck)));
        assert!(poll(response.as_mut()).is_pending());
        drop(response);
    }
    let response = service.ready().await.unwrap().call(post(FORM_TYPE, Steps::data(FORM))).await;
    assert_eq!(response.unwrap().status(), 200);
}

#[test]
fn services_are_clone_and_futures_are_send() {
    fn is_send_and_sync<T: Send + Sync>(_: &T) {}
    fn is_a_service<T: Clone + Send + Sync + 'static>(_: &T) {}
    let inner = tower::util::BoxCloneSyncService::new(service_fn(async |_: Request<ReplayedBody<Steps>>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    }));
    let mut service = layer().layer(inner);
    is_a_service(&layer());
    is_a_service(&service);
    fn is_send<T: Send>(_: &T) {}
    is_send(&service.call(post(FORM_TYPE, Steps::data(FORM))));
    let inner = service_fn(|_: Request<ReplayedBody<Steps>>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
    });
    is_send_and_sync(&layer().layer(inner).call(post(FORM_TYPE, Steps::data(FORM))));
}

// -- the replayed body equals the original

/// This text as a body in random pieces, with empty frames, pauses and optional trailers.
fn pieces(text: String) -> impl Strategy<Value = (String, Option<HeaderMap>, Vec<Step>)> {
    let cuts = prop::collection::vec((0..=text.len(), any::<bool>()), 0..12);
    let trailers = prop::option::of(prop::collection::vec(("[a-z]{1,8}", "[ -~]{0,20}"), 0..4));
    (cuts, trailers).prop_map(move |(mut cuts, trailers)| {
        cuts.sort_unstable();
        cuts.push((text.len(), false));
        let mut steps = Vec::new();
        let mut from = 0;
        for (to, wait) in cuts {
            steps.push(Step::Data(Bytes::copy_from_slice(&text.as_bytes()[from..to])));
            if wait {
                steps.push(Step::Wait);
            }
            from = to;
        }
        let trailers: Option<HeaderMap> = trailers.map(|pairs| {
            let pairs = pairs.into_iter();
            pairs.map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(&value).unwrap())).collect()
        });
        steps.extend(trailers.clone().map(Step::Trailers));
        (text.clone(), trailers, steps)
    })
}

fn bodies() -> impl Strategy<Value = (bool, String)> {
    let form = "[a-z+]{0,300}".prop_map(|more| (true, format!("{FORM}&more={more}")));
    let json = any::<String>().prop_map(|more| {
        let more = serde_json::to_string(&more).unwrap();
        (false, JSON.replace('}', &format!(",\"more\":{more}}}")))
    });
    prop_oneof![form, json]
}

proptest! {
    #[test]
    fn the_body_is_replayed_byte_for_byte_with_its_trailers(
        (is_form, (text, trailers, steps)) in bodies().prop_flat_map(|(is_form, text)| (Just(is_form), pieces(text)))
    ) {
        let content_type = if is_form { FORM_TYPE } else { "application/json" };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (response, seen) = runtime.block_on(send(layer(), post(content_type, Steps::of(steps))));
        prop_assert_eq!(response.status(), StatusCode::OK);
        prop_assert_eq!(seen, Some((CHALLENGE.parse().ok(), Bytes::from(text), trailers)));
    }

    #[test]
    fn nothing_panics_on_arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300), is_form: bool) {
        let content_type = if is_form { FORM_TYPE } else { "application/json" };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (response, seen) = runtime.block_on(send(layer(), post(content_type, Steps::data(bytes))));
        prop_assert_eq!((response.status(), seen), (StatusCode::BAD_REQUEST, None));
    }
}
