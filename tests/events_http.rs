//! The event service over real sockets: in hyper, and mounted in axum.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
    service::TowerToHyperService,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::timeout};
use tollgate::{
    EventLog, EventService, Head, Limiter, Plans, Quota, Tenant,
    clock::UnixTime,
    event::{Event, EventKind, EventServiceBuilder, Query, TenantsAndOperator},
    tenant::{ProvedTenant, TenantError},
};
use tower::ServiceExt;

const OPERATOR: (&str, &str) = ("x-operator-key", "an-operator-s-secret");
const ACME: (&str, &str) = ("x-api-key", "key-of-acme");

/// Keys are `key-of-<tenant>`.
fn keys(head: Head<'_>) -> Result<Option<Tenant>, TenantError> {
    let Some(key) = head.headers().get("x-api-key") else { return Ok(None) };
    let name = key.as_bytes().strip_prefix(b"key-of-").ok_or(TenantError::unknown("unknown API key"))?;
    Tenant::parse(name).map(Some)
}

fn service(log: &EventLog) -> EventService {
    builder(log).build()
}

fn builder(log: &EventLog) -> EventServiceBuilder {
    EventService::builder(
        log.clone(),
        TenantsAndOperator::new(ProvedTenant::new(keys)).operator_key(OPERATOR.1).unwrap(),
    )
}

fn refusal(tenant: &str, second: u64) -> Event {
    let mut event = Event::new(EventKind::RateLimited, UnixTime::from_secs(second)).tenant(tenant.parse().unwrap());
    (event.policy, event.limit) = (Some("per-minute"), 600);
    event.reset = Some(UnixTime::from_secs(second + 60));
    event
}

async fn serve(service: EventService) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        }
    });
    address
}

async fn send(method: Method, address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> http::Response<Incoming> {
    let mut request = Request::builder().method(method).uri(format!("http://{address}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let client = Client::builder(TokioExecutor::new()).build_http();
    client.request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap()
}

async fn get(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> (StatusCode, HeaderMap, String) {
    let (parts, body) = send(Method::GET, address, path, headers).await.into_parts();
    let body = timeout(Duration::from_secs(30), body.collect()).await.expect("an endless response");
    let body = body.unwrap().to_bytes();
    (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
}

async fn log_of(address: SocketAddr, path: &str, key: (&str, &str)) -> Value {
    let (status, _, body) = get(address, path, &[key]).await;
    assert_eq!(status, StatusCode::OK, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

fn ids(page: &Value) -> Vec<u64> {
    page["events"].as_array().unwrap().iter().map(|event| event["id"].as_u64().unwrap()).collect()
}

/// A stream that is read until it has shown the expected text.
struct Stream {
    body: Incoming,
    text: String,
}

impl Stream {
    async fn open(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Self {
        let (parts, body) = send(Method::GET, address, path, headers).await.into_parts();
        assert_eq!(parts.status, StatusCode::OK);
        assert_eq!(parts.headers[header::CONTENT_TYPE], "text/event-stream");
        let mut stream = Self { body, text: String::new() };
        stream.until("retry: ").await;
        stream
    }

    async fn until(&mut self, wanted: &str) -> &str {
        while !self.text.contains(wanted) {
            let frame = timeout(Duration::from_secs(30), self.body.frame()).await;
            let frame = frame.unwrap_or_else(|_| panic!("no {wanted:?} in {:?}", self.text));
            let data = frame.expect("the stream has ended").unwrap().into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&data).unwrap());
        }
        &self.text
    }
}

async fn wait_for_streams(log: &EventLog, streams: usize) {
    let waiting = async {
        while log.stats().streams != streams {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(30), waiting).await.expect("the place is never released");
}

#[tokio::test]
async fn rejections_are_returned_with_all_fields() {
    let log = EventLog::new();
    log.tally(&refusal("acme", 1_700_000_000));
    let address = serve(builder(&log).base_path("/events").unwrap().build()).await;
    let (status, headers, body) = get(address, "/events/log", &[ACME]).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(headers[header::CONTENT_TYPE], "application/json");
    assert_eq!(headers[header::CACHE_CONTROL], "no-store");
    assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    let expected = json!({
        "events": [{
            "id": 1, "at": 1_700_000_000_000_u64, "kind": "rate_limited", "tenant": "acme", "policy": "per-minute",
            "mode": "enforced", "x-ratelimit": 600, "x-ratelimit-remaining": 0,
            "x-ratelimit-reset": 1_700_000_060, "count": 1,
        }],
        "next": 1, "lost": 0,
    });
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), expected);
}

#[tokio::test]
async fn tenants_see_their_own_events_and_operators_all() {
    let log = EventLog::new();
    log.record(refusal("acme", 1));
    log.record(refusal("globex", 2));
    log.record(Event::new(EventKind::OverflowBegan, UnixTime::from_secs(3)));
    let address = serve(service(&log)).await;
    assert_eq!(ids(&log_of(address, "/log", ACME).await), [1]);
    assert_eq!(ids(&log_of(address, "/log?tenant=acme", ACME).await), [1]);
    assert_eq!(ids(&log_of(address, "/log?kind=overflow_began", ACME).await), [0; 0]);
    assert_eq!(ids(&log_of(address, "/log", OPERATOR).await), [1, 2, 3]);
    assert_eq!(ids(&log_of(address, "/log?tenant=globex", OPERATOR).await), [2]);
    assert_eq!(ids(&log_of(address, "/log?since=1&limit=1", OPERATOR).await), [2]);

    let nobody: [&[(&str, &str)]; 5] = [
        &[],
        &[("x-api-key", "nonsense")],
        &[("x-operator-key", "an-operator-s-secreT")],
        &[("x-operator-key", "wrong"), ACME],
        &[OPERATOR, OPERATOR],
    ];
    for path in ["/log", "/stream", "/log?since=x"] {
        for headers in nobody {
            let (status, headers, body) = get(address, path, headers).await;
            assert_eq!((status, body.as_str()), (StatusCode::UNAUTHORIZED, r#"{"error":"unauthenticated"}"#));
            assert_eq!(headers[header::WWW_AUTHENTICATE], "ApiKey");
        }
        let path = path.replace("?since=x", "");
        let (status, _, body) = get(address, &format!("{path}?tenant=globex"), &[ACME]).await;
        assert_eq!((status, body.as_str()), (StatusCode::FORBIDDEN, r#"{"error":"forbidden"}"#));
    }
    // requests without a valid key are events themselves
    let unknown = log.read_events(&Query::new().kind(EventKind::CredentialUnknown)).events;
    assert!(!unknown.is_empty() && unknown.iter().all(|event| event.reason == Some("event_log")), "{unknown:?}");
}

#[tokio::test]
async fn bad_requests_are_rejected_and_not_echoed() {
    let address = serve(service(&EventLog::new())).await;
    for query in ["since=zzz", "limit=0", "limit=5000", "kind=zzz", "tenant=%3Czzz", "since=1&since=2"] {
        for path in ["/log", "/stream"] {
            let (status, _, body) = get(address, &format!("{path}?{query}"), &[OPERATOR]).await;
            assert_eq!((status, body.as_str()), (StatusCode::BAD_REQUEST, r#"{"error":"invalid_request"}"#), "{query}");
        }
    }
    let (status, _, _) = get(address, "/stream", &[OPERATOR, ("last-event-id", "zzz")]).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    for path in ["/zzz", "/log/", "/log/zzz", "//log", "/page.js/.."] {
        let (status, _, body) = get(address, path, &[OPERATOR]).await;
        assert_eq!((status, body.as_str()), (StatusCode::NOT_FOUND, r#"{"error":"not_found"}"#), "{path}");
    }
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
        let response = send(method, address, "/log", &[OPERATOR]).await;
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(response.headers()[header::ALLOW], "GET, HEAD, OPTIONS");
    }
    let response = send(Method::OPTIONS, address, "/log", &[]).await;
    assert_eq!(
        (response.status(), &response.headers()[header::ALLOW]),
        (StatusCode::NO_CONTENT, &"GET, HEAD, OPTIONS".parse().unwrap())
    );
}

#[tokio::test]
async fn head_responds_like_get_without_a_body_or_a_stream() {
    let log = EventLog::new();
    log.record(refusal("acme", 1));
    let address = serve(service(&log)).await;
    let (_, headers, body) = get(address, "/log", &[ACME]).await;
    let response = send(Method::HEAD, address, "/log", &[ACME]).await;
    assert_eq!(response.headers()[header::CONTENT_LENGTH], headers[header::CONTENT_LENGTH]);
    assert_eq!(response.headers()[header::CONTENT_LENGTH].to_str().unwrap(), body.len().to_string());
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "");
    assert_eq!(send(Method::HEAD, address, "/stream", &[ACME]).await.status(), StatusCode::OK);
    assert_eq!(log.stats().streams, 0);
}

#[tokio::test]
async fn it_can_be_mounted_in_axum_and_under_a_base_path() {
    let log = EventLog::new();
    log.record(refusal("acme", 1));
    let app = axum::Router::new().nest_service("/events", service(&log));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let in_axum = listener.local_addr().unwrap();
    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let (server, app) = (server.clone(), TowerToHyperService::new(app.clone()));
            tokio::spawn(async move { server.serve_connection(TokioIo::new(socket), app).await.map_err(|_| ()) });
        }
    });
    let in_hyper = serve(builder(&log).base_path("/events/").unwrap().build()).await;
    for address in [in_axum, in_hyper] {
        assert_eq!(ids(&log_of(address, "/events/log", ACME).await), [1]);
        let mut stream = Stream::open(address, "/events/stream?since=0", &[ACME]).await;
        stream.until("id: 1\n").await;
        for (path, content_type) in [
            ("", "text/html"),
            ("page.js", "text/javascript"),
            ("chart.js", "text/javascript"),
            ("page.css", "text/css"),
        ] {
            let (status, headers, body) = get(address, &format!("/events/{path}"), &[]).await;
            assert_eq!(status, StatusCode::OK, "{path}");
            assert!(headers[header::CONTENT_TYPE].to_str().unwrap().starts_with(content_type));
            let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
            assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"));
            assert!(!body.contains("innerHTML") && !body.contains("style=") && !body.contains("onclick"));
        }
    }
    let (status, headers, _) = get(in_hyper, "/events", &[]).await;
    assert_eq!((status, headers[header::LOCATION].to_str().unwrap()), (StatusCode::PERMANENT_REDIRECT, "/events/"));
    for path in ["/log", "/eventslog", "/"] {
        assert_eq!(get(in_hyper, path, &[ACME]).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    for base in ["events", "//evil", "/a b", "/a?b", "/a#b"] {
        assert!(builder(&log).base_path(base).is_err(), "{base}");
    }
}

#[tokio::test]
async fn the_page_links_to_the_home_of_the_application() {
    let log = EventLog::new();
    let at_home = serve(builder(&log).home_url("https://app.example/?a=1&b='").unwrap().build()).await;
    let (_, _, page) = get(at_home, "/", &[]).await;
    assert!(page.contains(r#"<a href="https://app.example/?a=1&amp;b=&#39;">Home</a>"#), "{page}");
    let (_, _, page) = get(serve(builder(&log).build()).await, "/", &[]).await;
    assert!(!page.contains("<a "), "{page}");
    for url in ["app", "//evil.example", "http://app.example", "javascript:alert(1)"] {
        assert!(builder(&log).home_url(url).is_err(), "{url}");
    }
}

#[tokio::test]
async fn only_events_after_connecting_arrive() {
    let log = EventLog::new();
    log.record(refusal("acme", 1));
    let address = serve(service(&log)).await;
    let mut tenant = Stream::open(address, "/stream", &[ACME]).await;
    let mut operator = Stream::open(address, "/stream?kind=rate_limited", &[OPERATOR]).await;
    log.record(refusal("globex", 2));
    log.record(Event::new(EventKind::OverflowBegan, UnixTime::from_secs(3)));
    let last = log.record(refusal("acme", 4));
    let mut event = refusal("acme", 4);
    event.id = last;
    let message = format!("id: 4\nevent: rate_limited\ndata: {}\n\n", event.to_json());
    assert_eq!(tenant.until("id: 4\n").await, format!("retry: 2000\n\n{message}"));
    let text = operator.until("id: 4\n").await;
    assert!(text.contains("id: 2\n") && !text.contains("id: 1\n") && !text.contains("id: 3\n"), "{text}");
}

#[tokio::test]
async fn counts_of_a_flood_reach_a_stream() {
    let log = EventLog::new();
    let address = serve(service(&log)).await;
    let mut stream = Stream::open(address, "/stream", &[ACME]).await;
    (0..100).for_each(|_| log.tally(&refusal("acme", 5)));
    let mut seen = 0;
    let mut shown = 0;
    while seen < 100 {
        let wanted = format!("id: {}\n", shown + 1);
        let text = stream.until(&wanted).await;
        let counts = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let counts: Vec<Value> = counts.map(|data| serde_json::from_str(data).unwrap()).collect();
        seen = counts.iter().map(|event| event["count"].as_u64().unwrap()).sum();
        shown = counts.len();
    }
    assert_eq!(seen, 100);
}

#[tokio::test]
async fn a_stream_resumes_after_the_last_seen_event() {
    let log = EventLog::new();
    for second in 1..=200 {
        log.record(refusal("acme", second));
    }
    let address = serve(service(&log)).await;
    let mut stream = Stream::open(address, "/stream?since=3", &[ACME, ("last-event-id", "50")]).await;
    let text = stream.until("id: 200\n").await;
    let seen: Vec<u64> = text.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect();
    assert_eq!(seen, (51..=200).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_slow_reader_learns_what_it_missed() {
    let log = EventLog::builder().capacity(4).unwrap().build();
    let request = Request::get("/stream").header(ACME.0, ACME.1).body(()).unwrap();
    let mut body = service(&log).oneshot(request).await.unwrap().into_body();
    let mut next = async || body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(next().await, "retry: 2000\n\n");
    for second in 1..=10 {
        log.record(refusal("acme", second));
    }
    let text = String::from_utf8(next().await.to_vec()).unwrap();
    assert!(text.starts_with("id: 6\nevent: lost\ndata: {\"lost\":6}\n\nid: 7\n"), "{text}");
    assert!(text.contains("id: 10\n"));
}

#[tokio::test]
async fn a_disconnected_client_releases_its_place() {
    let log = EventLog::new();
    let address = serve(service(&log)).await;
    let stream = Stream::open(address, "/stream", &[ACME]).await;
    assert_eq!(log.stats().streams, 1);
    drop(stream);
    wait_for_streams(&log, 0).await;
}

#[tokio::test]
async fn streams_are_limited_in_total_and_per_tenant() {
    let log = EventLog::new();
    let address = serve(builder(&log).max_streams(4).unwrap().build()).await;
    let first = Stream::open(address, "/stream", &[ACME]).await;
    let (status, headers, body) = get(address, "/stream", &[ACME]).await;
    assert_eq!((status, body.as_str()), (StatusCode::SERVICE_UNAVAILABLE, r#"{"error":"unavailable"}"#));
    assert_eq!(headers[header::RETRY_AFTER], "5");
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(Stream::open(address, "/stream", &[OPERATOR]).await);
    }
    assert_eq!(get(address, "/stream", &[OPERATOR]).await.0, StatusCode::SERVICE_UNAVAILABLE);
    drop(first);
    wait_for_streams(&log, 3).await;
    Stream::open(address, "/stream", &[ACME]).await;
}

#[tokio::test]
async fn one_stream_is_reserved_for_operators() {
    let log = EventLog::new();
    let address = serve(builder(&log).max_streams(3).unwrap().build()).await;
    let first = Stream::open(address, "/stream", &[ACME]).await;
    let second = Stream::open(address, "/stream", &[("x-api-key", "key-of-globex")]).await;
    let third = [("x-api-key", "key-of-initech")];
    assert_eq!(get(address, "/stream", &third).await.0, StatusCode::SERVICE_UNAVAILABLE);
    // an operator watching a tenant does not use a place of that tenant
    let operator = Stream::open(address, "/stream?tenant=acme", &[OPERATOR]).await;
    drop((first, second, operator));
    wait_for_streams(&log, 0).await;

    let alone = serve(builder(&log).max_streams(1).unwrap().build()).await;
    Stream::open(alone, "/stream", &third).await;
}

#[tokio::test]
async fn a_stream_ends_with_its_log_after_the_last_event() {
    let log = EventLog::new();
    let request = Request::get("/stream").header(ACME.0, ACME.1).body(()).unwrap();
    let mut body = service(&log).oneshot(request).await.unwrap().into_body();
    body.frame().await;
    let reader = tokio::spawn(async move { body.collect().await.unwrap().to_bytes() });
    tokio::task::yield_now().await;
    (0..10).for_each(|_| log.tally(&refusal("acme", 5)));
    drop(log);
    let text = timeout(Duration::from_secs(30), reader).await.expect("it does not end").unwrap();
    let text = String::from_utf8(text.to_vec()).unwrap();
    assert!(text.contains("\"count\":1}") && text.contains("\"count\":9}"), "{text}");
}

#[tokio::test]
async fn budgets_are_shown_to_their_tenants_and_to_operators() {
    let log = EventLog::new();
    let plans = Plans::new(Quota::per_hour(5).unwrap().with_name("hourly").unwrap());
    plans.set(Tenant::parse("globex").unwrap(), Quota::per_hour(2).unwrap());
    let limiter = Limiter::memory(plans);
    let acme = Tenant::parse("acme").unwrap();
    let address = serve(builder(&log).limiter(limiter.clone()).build()).await;
    let usage = async |path: &str, key| log_of(address, path, key).await;
    let names = |answer: &Value| {
        let tenants = answer["tenants"].as_array().unwrap();
        tenants.iter().map(|one| one["tenant"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };

    // acme has spent nothing, and no plan of its own
    let all = usage("/usage?tenant=acme", OPERATOR).await;
    assert_eq!((names(&all), &all["admitted"]), (vec!["globex".to_owned()], &json!(0)));
    for _ in 0..7 {
        _ = limiter.check(&acme, 1);
    }
    let all = usage("/usage?tenant=acme", OPERATOR).await;
    assert_eq!((names(&all), &all["admitted"]), (vec!["acme".to_owned(), "globex".to_owned()], &json!(5)));
    limiter.reset(&acme);
    for units in [1, 0, 2] {
        _ = limiter.check(&acme, units);
    }
    // it is counted from the first look on
    let own = usage("/usage", ACME).await;
    assert_eq!((names(&own), &own["admitted"]), (vec!["acme".to_owned()], &Value::Null));
    let own = &own["tenants"][0];
    assert_eq!((&own["policy"], &own["x-ratelimit"]), (&json!("hourly"), &json!(5)));
    assert_eq!((&own["x-ratelimit-remaining"], &own["admitted"]), (&json!(2), &json!(2)));
    assert!(own["x-ratelimit-reset"].is_u64());
    let many = (0..100).map(|number| format!("tenant=t{number}")).collect::<Vec<_>>().join("&");
    assert_eq!(names(&usage(&format!("/usage?tenant=acme&{many}"), OPERATOR).await), ["acme"]);

    for (path, key, status) in [
        ("/usage?tenant=globex", ACME, StatusCode::FORBIDDEN),
        ("/usage?tenant=acme&tenant=globex", ACME, StatusCode::FORBIDDEN),
        ("/usage", ("x-api-key", "guessed"), StatusCode::UNAUTHORIZED),
        ("/usage?tenant=a%20b", OPERATOR, StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(get(address, path, &[key]).await.0, status, "{path}");
    }
    let without_limiter = serve(service(&log)).await;
    assert_eq!(get(without_limiter, "/usage", &[OPERATOR]).await.0, StatusCode::NOT_FOUND);
}
