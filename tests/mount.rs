//! The rate limiter in real servers, seen from a client's socket.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod support;

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use axum::{Router, extract::ConnectInfo, http::StatusCode, routing::get};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use support::wire::{Wire, body, header, sorted, status};
use tokio::{net::TcpListener, task::JoinHandle};
use tollgate::{
    ApiKeys, ClientIp, Head, LimitKey, Limiter, Plan, Plans, ProblemJson, Quota, RateLimit, RateLimitLayer, Tenant,
    limit::HeaderStyle,
    reject::StatusOnly,
    tenant::{HeaderTenant, ProvedTenant},
    testing::ManualClock,
};
use tonic::{
    Code,
    metadata::AsciiMetadataValue,
    transport::{
        Endpoint, Server,
        server::{TcpConnectInfo, TcpIncoming},
    },
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower::{Layer, service_fn};

// ---- servers

/// A server on its own port, which stops when this is dropped.
struct Running {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn hyper(limit: RateLimitLayer<ProblemJson>) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = limit.layer(service_fn(async |_: Request<Incoming>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
    }));
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Running { address, task }
}

async fn axum(app: Router) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    Running { address, task: tokio::spawn(async move { axum::serve(listener, app).await.unwrap() }) }
}

async fn tonic(limit: RateLimitLayer) -> Running {
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(limit).add_service(health).serve_with_incoming(incoming);
    Running { address, task: tokio::spawn(async move { server.await.unwrap() }) }
}

fn router() -> Router {
    Router::new().route("/", get(async || "hello").post(async |body: String| body))
}

// ---- limits

fn limiter(plan: impl Into<Plan>) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (Limiter::builder(Plans::new(plan)).clock(clock.clone()).build().unwrap(), clock)
}

fn per_minute(limit: u32) -> Quota {
    Quota::per_minute(limit).unwrap().with_name("per-minute").unwrap()
}

fn by_header(limiter: &Limiter) -> RateLimitLayer {
    RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter.clone())
}

/// Parses an expected response that is written with indentation.
fn whole(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().map(str::trim).collect();
    let text = lines.join("\n");
    sorted(&if text.contains("\n\n") { text } else { format!("{text}\n\n") })
}

const ACME: &str = "GET / HTTP/1.1\nx-tenant: acme";

async fn the_601st_in_a_minute_is_refused(server: &Running, clock: &ManualClock, content_type: &str) {
    // so that no reset falls on a full second
    clock.advance(Duration::from_millis(250));
    let mut wire = Wire::to(server.address).await;
    let first = wire.ask(ACME).await;
    let content_type = format!("content-type: {content_type}\n");
    let content_type = if content_type.contains("none") { "" } else { &content_type };
    assert_eq!(
        first,
        whole(&format!(
            "HTTP/1.1 200 OK
            {content_type}x-ratelimit-remaining: 599
            x-ratelimit: 600
            x-ratelimit-limit: 600
            x-ratelimit-reset: 1000000061
            content-length: 5

            hello"
        ))
    );
    for left in (300..599).rev() {
        assert_eq!(header(&wire.ask(ACME).await, "x-ratelimit-remaining").unwrap(), left.to_string());
    }
    clock.advance(Duration::from_millis(30_500));
    for _ in 0..300 {
        assert_eq!(status(&wire.ask(ACME).await), 200);
    }

    let refused = whole(
        r#"HTTP/1.1 429 Too Many Requests
        content-type: application/problem+json
        x-ratelimit-remaining: 0
        x-ratelimit: 600
        x-ratelimit-limit: 600
        x-ratelimit-reset: 1000000061
        retry-after: 30
        content-length: 199

        {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"rate limit exceeded","kind":"rate_limited","violated-policies":["per-minute"]}"#,
    );
    for _ in 0..3 {
        assert_eq!(wire.ask(ACME).await, refused);
    }

    // another tenant on the same connection is not affected
    let other = wire.ask("GET / HTTP/1.1\nx-tenant: globex").await;
    assert_eq!((status(&other), header(&other, "x-ratelimit-remaining")), (200, Some("599")));

    // HEAD gets the same response without the body
    let head = wire.ask("HEAD / HTTP/1.1\nx-tenant: acme").await;
    assert_eq!(head, refused.split_inclusive("\n\n").next().unwrap());

    // one millisecond before the reset, and at the reset
    clock.advance(Duration::from_millis(29_499));
    let before = wire.ask(ACME).await;
    assert_eq!((status(&before), header(&before, "retry-after")), (429, Some("1")));
    clock.advance(Duration::from_millis(1));
    let after = wire.ask(ACME).await;
    assert_eq!((status(&after), header(&after, "x-ratelimit-remaining")), (200, Some("299")));
}

#[tokio::test]
async fn hyper_rejects_the_601st_request_in_a_minute() {
    let (limiter, clock) = limiter(per_minute(600));
    let server = hyper(by_header(&limiter).respond_with(ProblemJson)).await;
    the_601st_in_a_minute_is_refused(&server, &clock, "none").await;
}

#[tokio::test]
async fn axum_rejects_the_601st_request_in_a_minute() {
    let (limiter, clock) = limiter(per_minute(600));
    let server = axum(router().layer(by_header(&limiter).respond_with(ProblemJson))).await;
    the_601st_in_a_minute_is_refused(&server, &clock, "text/plain; charset=utf-8").await;
}

#[tokio::test]
async fn a_grpc_client_sees_resource_exhausted_and_the_retry_time() {
    let (limiter, clock) = limiter(per_minute(600));
    let server = tonic(by_header(&limiter)).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let call = |tenant| {
        let mut request = tonic::Request::new(HealthCheckRequest::default());
        request.metadata_mut().insert("x-tenant", AsciiMetadataValue::from_static(tenant));
        request
    };
    for left in (0..600).rev() {
        let reply = client.check(call("acme")).await.unwrap();
        assert_eq!(reply.metadata().get("x-ratelimit-remaining").unwrap(), &left.to_string());
    }
    clock.advance(Duration::from_micros(29_999_500));
    for _ in 0..3 {
        let refused = client.check(call("acme")).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::ResourceExhausted, "rate limit exceeded"));
        for (name, value) in [
            ("grpc-retry-pushback-ms", "30001"),
            ("retry-after", "31"),
            ("x-ratelimit", "600"),
            ("x-ratelimit-limit", "600"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1000000060"),
        ] {
            assert_eq!(refused.metadata().get(name).unwrap(), value, "{name}");
        }
    }
    assert!(client.check(call("globex")).await.is_ok());
    assert_eq!(client.check(call("no good name")).await.unwrap_err().code(), Code::InvalidArgument);
    clock.advance(Duration::from_micros(30_000_500));
    assert!(client.check(call("acme")).await.is_ok());
}

#[tokio::test]
async fn a_grpc_rejection_is_trailers_only() {
    let (limiter, _clock) = limiter(per_minute(1));
    let server = tonic(by_header(&limiter)).await;
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http::<Empty<Bytes>>();
    let call = || {
        Request::post(format!("http://{}/grpc.health.v1.Health/Check", server.address))
            .header("content-type", "application/grpc")
            .header("x-tenant", "acme")
            .body(Empty::new())
            .unwrap()
    };
    client.request(call()).await.unwrap();
    let refused = client.request(call()).await.unwrap();
    let fields = refused.headers().iter().map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()));
    assert_eq!(
        sorted(&format!("{}\n{}\n", refused.status().as_u16(), fields.collect::<String>())),
        whole(
            "200
            content-type: application/grpc
            grpc-status: 8
            grpc-message: rate limit exceeded
            x-ratelimit-remaining: 0
            x-ratelimit: 1
            x-ratelimit-limit: 1
            x-ratelimit-reset: 1000000060
            retry-after: 60
            grpc-retry-pushback-ms: 60000"
        )
    );
    assert!(refused.body().is_end_stream(), "nothing follows the headers");
    let rest = refused.into_body().collect().await.unwrap();
    assert!(rest.trailers().is_none(), "everything is in the headers");
    assert_eq!(rest.to_bytes(), "");
}

// ---- one budget

#[tokio::test]
async fn layers_on_two_routes_share_the_budget_of_a_limiter() {
    let (limiter, _clock) = limiter(per_minute(600));
    let app = Router::new()
        .route("/a", get(async || "a").layer(by_header(&limiter)))
        .route("/b", get(async || "b").layer(by_header(&limiter)));
    let server = axum(app).await;
    let mut wire = Wire::to(server.address).await;
    let (a, b) = ("GET /a HTTP/1.1\nx-tenant: acme", "GET /b HTTP/1.1\nx-tenant: acme");
    for pair in 0..300 {
        assert_eq!(header(&wire.ask(a).await, "x-ratelimit-remaining").unwrap(), (599 - 2 * pair).to_string());
        assert_eq!(header(&wire.ask(b).await, "x-ratelimit-remaining").unwrap(), (598 - 2 * pair).to_string());
    }
    assert_eq!(status(&wire.ask(a).await), 429);
    assert_eq!(status(&wire.ask(b).await), 429);
}

#[tokio::test]
async fn a_request_through_two_layers_of_one_limiter_is_charged_once() {
    let (limiter, _clock) = limiter(per_minute(600));
    let app = router().layer(by_header(&limiter)).layer(by_header(&limiter));
    let server = axum(app).await;
    let mut wire = Wire::to(server.address).await;
    assert_eq!(header(&wire.ask(ACME).await, "x-ratelimit-remaining"), Some("599"));
    assert_eq!(header(&wire.ask(ACME).await, "x-ratelimit-remaining"), Some("598"));
    assert_eq!(limiter.peek(&Tenant::parse("acme").unwrap()).unwrap().remaining(), 598);
}

#[tokio::test]
async fn concurrent_connections_get_no_more_than_the_budget() {
    let (limiter, _clock) = limiter(per_minute(100));
    let server = axum(router().layer(by_header(&limiter))).await;
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let address = server.address;
            tokio::spawn(async move {
                let mut wire = Wire::to(address).await;
                let mut admitted = 0;
                for _ in 0..40 {
                    admitted += u32::from(status(&wire.ask(ACME).await) == 200);
                }
                admitted
            })
        })
        .collect();
    let mut admitted = 0;
    for client in clients {
        admitted += client.await.unwrap();
    }
    assert_eq!(admitted, 100);
}

// ---- tenants

#[tokio::test]
async fn an_invalid_tenant_gets_a_400_and_takes_no_memory() {
    let (limiter, _clock) = limiter(per_minute(600));
    let server = axum(router().layer(by_header(&limiter).respond_with(ProblemJson))).await;
    let mut wire = Wire::to(server.address).await;
    assert_eq!(
        wire.ask("GET / HTTP/1.1").await,
        whole(
            r#"HTTP/1.1 400 Bad Request
            content-type: application/problem+json
            content-length: 140

            {"type":"about:blank","title":"Bad Request","status":400,"detail":"no tenant could be determined for this request","kind":"invalid_request"}"#
        )
    );
    let huge = "x".repeat(10_000);
    for spoofed in ["ip:192.0.2.1", "~anonymous", "~bucket-1", "acme, globex", "a b", "<script>", "", &huge] {
        let answer = wire.ask(&format!("GET / HTTP/1.1\nx-tenant: {spoofed}")).await;
        assert_eq!(status(&answer), 400, "{spoofed}");
        assert!(spoofed.is_empty() || !answer.contains(spoofed), "nothing of the request is echoed");
    }
    let twice = wire.ask("GET / HTTP/1.1\nx-tenant: acme\nx-tenant: globex").await;
    assert_eq!(status(&twice), 400);
    assert_eq!(limiter.tenants(), 0);
    assert_eq!(status(&wire.ask(ACME).await), 200);
    assert_eq!(limiter.tenants(), 1);
}

#[tokio::test]
async fn an_unknown_api_key_gets_a_401_and_takes_no_memory() {
    let (limiter, _clock) = limiter(per_minute(600));
    let keys = ApiKeys::new("x-api-key").unwrap().key("demo-acme-key", "acme").unwrap();
    let limit = RateLimitLayer::new(keys, limiter.clone());
    let server = axum(router().layer(limit.respond_with(ProblemJson))).await;
    let mut wire = Wire::to(server.address).await;
    for guess in 0..50 {
        assert_eq!(
            wire.ask(&format!("GET / HTTP/1.1\nx-api-key: guess-{guess}")).await,
            whole(
                r#"HTTP/1.1 401 Unauthorized
                content-type: application/problem+json
                www-authenticate: ApiKey
                content-length: 141

                {"type":"about:blank","title":"Unauthorized","status":401,"detail":"the API key in the header x-api-key is unknown","kind":"unauthenticated"}"#
            )
        );
    }
    assert_eq!(limiter.tenants(), 0);
    assert_eq!(status(&wire.ask("GET / HTTP/1.1\nx-api-key: demo-acme-key").await), 200);
}

#[tokio::test]
async fn axum_provides_the_peer_address() {
    let peer = |head: Head<'_>| head.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
    for (source, forwarded, answer) in [
        (ClientIp::peer().peer_by(peer), "203.0.113.9", (200, "ip:127.0.0.1")),
        (ClientIp::behind(["127.0.0.1"]).unwrap().peer_by(peer), "203.0.113.9", (200, "ip:203.0.113.9")),
        (ClientIp::behind(["10.0.0.0/8"]).unwrap().peer_by(peer), "203.0.113.9", (200, "ip:127.0.0.1")),
        // axum's own extension is found without a closure
        (ClientIp::behind(["127.0.0.1"]).unwrap(), "203.0.113.9", (200, "ip:203.0.113.9")),
        // without a known peer, the header is never believed
        (ClientIp::behind(["127.0.0.1"]).unwrap().peer_by(|_| None), "203.0.113.9", (500, "")),
    ] {
        let (limiter, _clock) = limiter(per_minute(600));
        let app = Router::new()
            .route("/", get(async |limit: RateLimit| limit.key().to_string()))
            .layer(RateLimitLayer::new(source, limiter))
            .into_make_service_with_connect_info::<SocketAddr>();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Running { address, task: tokio::spawn(async move { axum::serve(listener, app).await.unwrap() }) };
        let mut wire = Wire::to(server.address).await;
        let found = wire.ask(&format!("GET / HTTP/1.1\nx-forwarded-for: {forwarded}")).await;
        assert_eq!((status(&found), body(&found)), answer);
    }
}

#[tokio::test]
async fn tonic_provides_the_peer_address() {
    let (limiter, _clock) = limiter(per_minute(600));
    let peer = |head: Head<'_>| head.extensions().get::<TcpConnectInfo>()?.remote_addr();
    let server = tonic(RateLimitLayer::new(ClientIp::peer().peer_by(peer), limiter.clone())).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    client.check(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(limiter.peek(&LimitKey::address([127, 0, 0, 1].into())).unwrap().remaining(), 599);
}

#[tokio::test]
async fn handlers_without_a_layer_get_a_500_or_none() {
    let ask = async |app: Router| {
        let server = axum(app).await;
        Wire::to(server.address).await.ask(ACME).await
    };
    let proved = || {
        let (limiter, _clock) = limiter(per_minute(600));
        RateLimitLayer::new(ProvedTenant::new(HeaderTenant::new("x-tenant").unwrap()), limiter)
    };
    for (app, missing) in [
        (
            Router::new().route("/", get(async |tenant: Tenant| tenant.to_string())),
            "no layer of this route proves the tenant, or its extensions are disabled",
        ),
        (
            Router::new().route("/", get(async |limit: RateLimit| limit.remaining().to_string())),
            "no RateLimitLayer covers this route, or its extensions are disabled",
        ),
    ] {
        let answer = ask(app.clone()).await;
        assert_eq!((status(&answer), body(&answer)), (500, missing));
        assert_eq!(status(&ask(app.layer(proved())).await), 200);
    }
    let optional = async |tenant: Option<Tenant>, limit: Option<RateLimit>| {
        format!("{:?} {:?}", tenant.map(|it| it.to_string()), limit.map(|it| it.remaining()))
    };
    let app = Router::new().route("/", get(optional));
    assert_eq!(body(&ask(app.clone()).await), "None None");
    assert_eq!(body(&ask(app.clone().layer(proved())).await), r#"Some("acme") Some(599)"#);
    // a header only claims
    let (limiter, _clock) = limiter(per_minute(600));
    assert_eq!(body(&ask(app.layer(by_header(&limiter))).await), "None Some(599)");
}

#[tokio::test]
async fn a_denied_tenant_gets_a_403() {
    let quotas = Plans::new(per_minute(600));
    quotas.set(Tenant::parse("acme").unwrap(), Plan::denied());
    let layer = by_header(&Limiter::memory(quotas));
    let server = axum(router().layer(layer)).await;
    let mut wire = Wire::to(server.address).await;
    assert_eq!(wire.ask(ACME).await, "HTTP/1.1 403 Forbidden\ncontent-length: 0\n\n");
}

// ---- methods, bodies, headers

#[tokio::test]
async fn preflights_are_free_if_configured_and_other_options_requests_are_not() {
    let (limiter, _clock) = limiter(per_minute(1));
    let app = router().fallback(async || StatusCode::NO_CONTENT).layer(by_header(&limiter).exempt_preflight());
    let server = axum(app).await;
    let mut wire = Wire::to(server.address).await;
    let preflight = "OPTIONS /x HTTP/1.1\norigin: https://app.example\naccess-control-request-method: PUT";
    for _ in 0..3 {
        let answer = wire.ask(preflight).await;
        assert_eq!((status(&answer), header(&answer, "x-ratelimit")), (204, None));
    }
    assert_eq!(limiter.tenants(), 0);
    for status_then in [204, 429] {
        assert_eq!(status(&wire.ask("OPTIONS /x HTTP/1.1\nx-tenant: acme").await), status_then);
    }
    assert_eq!(status(&wire.ask(preflight).await), 204, "even if the budget is used up");

    let server = axum(router().layer(by_header(&limiter))).await;
    let mut wire = Wire::to(server.address).await;
    assert_eq!(status(&wire.ask(&format!("{preflight}\nx-tenant: acme")).await), 429);
}

#[tokio::test]
async fn a_rejected_upload_leaves_the_connection_usable() {
    let (limiter, clock) = limiter(per_minute(1));
    let server = axum(router().layer(by_header(&limiter))).await;
    let mut wire = Wire::to(server.address).await;
    let upload = "POST / HTTP/1.1\r\nhost: localhost\r\nx-tenant: acme\r\ncontent-length: 5\r\n\r\nhello";
    for status_then in [200, 429, 429] {
        wire.send(upload).await;
        assert_eq!(status(&wire.answer(false).await), status_then);
    }
    clock.advance(Duration::from_secs(60));
    wire.send(upload).await;
    assert_eq!(body(&wire.answer(false).await), "hello");
}

#[tokio::test]
async fn all_header_families_show_the_tightest_quota() {
    let plan = Plan::new([
        Quota::per_second(2).unwrap().with_name("burst").unwrap(),
        Quota::per_minute(3).unwrap().with_name("per-minute").unwrap(),
    ])
    .unwrap();
    let (limiter, clock) = limiter(plan);
    let layer = by_header(&limiter).headers(HeaderStyle::new().delta_seconds().ietf_draft_10());
    let server = axum(router().layer(layer.respond_with(StatusOnly))).await;
    let mut wire = Wire::to(server.address).await;
    let partition = ";pk=:giszrYfBSKCi:";
    let policies = [r#""burst";q=2;qu="requests";w=1"#, r#""per-minute";q=3;qu="requests";w=60"#]
        .map(|policy| format!("{policy}{partition}"))
        .join(", ");
    let mut seen = Vec::new();
    for step in [0, 0, 0, 1_000, 0] {
        clock.advance(Duration::from_millis(step));
        let answer = wire.ask(ACME).await;
        let fields = ["x-ratelimit", "x-ratelimit-reset", "retry-after", "ratelimit"];
        let fields = fields.map(|name| header(&answer, name).unwrap_or("-").to_owned());
        assert_eq!(header(&answer, "ratelimit-policy"), Some(policies.as_str()));
        assert!(fields[3].ends_with(partition));
        seen.push(format!("{} {}", status(&answer), fields.join(" ").replace(partition, "")));
    }
    assert_eq!(
        seen,
        [
            r#"200 2 1 - "burst";r=1;t=1"#,
            r#"200 2 1 - "burst";r=0;t=1"#,
            r#"429 2 1 1 "burst";r=0;t=1"#,
            r#"200 3 59 - "per-minute";r=0;t=59"#,
            r#"429 3 59 59 "per-minute";r=0;t=59"#,
        ]
    );
}
