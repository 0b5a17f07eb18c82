//! Sessions over real sockets, in axum, plain hyper and tonic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests may panic")]

use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tollgate::{
    EventLog, ProblemJson, Session, SessionLayer, Sessions, Tenant, UserId,
    cookie::SetCookie,
    event::{EventKind, Query},
    gate::MaybeReady,
    session::NewSession,
    store::{Entry, Key, Memory, Record, Store, StoreError, StoreErrorKind, Version, WriteOutcome},
    tenant::HostTenant,
    testing::ManualClock,
};
use tower::{ServiceBuilder, service_fn};

/// A store whose failure a test controls.
#[derive(Clone, Default)]
struct Shaky {
    memory: Arc<Memory>,
    down: Arc<AtomicBool>,
    /// Whether reads take a while.
    slow: bool,
}

impl Shaky {
    fn check(&self) -> Result<(), StoreError> {
        match self.down.load(SeqCst) {
            true => Err(StoreError::new(StoreErrorKind::Unavailable, "the secret name of a host")),
            false => Ok(()),
        }
    }
}

impl Store for Shaky {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        let (store, key, slow) = (self.clone(), key.clone(), self.slow);
        let read = async move {
            if slow {
                tokio::task::yield_now().await;
            }
            store.check()?;
            store.memory.get(&key).wait().await
        };
        MaybeReady::Pending(read)
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        self.check()?;
        self.memory.insert(key, record).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        self.check()?;
        self.memory.swap(key, expected, record).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.check()?;
        self.memory.take(key).await
    }
}

/// A server with sessions. It serves `/` to users with a session and `/open` to everyone, and responds with the name of
/// the user.
struct Site {
    address: SocketAddr,
    sessions: Sessions,
    clock: ManualClock,
    down: Arc<AtomicBool>,
}

fn new(tenant: &str) -> NewSession {
    NewSession::new(Tenant::parse(tenant).unwrap(), UserId::parse("ada").unwrap())
}

/// Returns `name=value`, as a browser sends it back.
fn pair(cookie: &SetCookie) -> String {
    cookie.header_value().to_str().unwrap().split(';').next().unwrap().to_owned()
}

fn sessions() -> (Sessions, ManualClock, Arc<AtomicBool>) {
    let (store, clock) = (Shaky { slow: true, ..Shaky::default() }, ManualClock::new());
    let down = Arc::clone(&store.down);
    (Sessions::builder(store).clock(clock.clone()).build().unwrap(), clock, down)
}

fn optional(sessions: &Sessions) -> SessionLayer<ProblemJson> {
    let layer = SessionLayer::new(sessions.clone()).tenant(HostTenant::subdomain_of("example").unwrap());
    layer.trusted_origin("https://admin.test").unwrap().respond_with(ProblemJson)
}

fn required(sessions: &Sessions) -> SessionLayer<ProblemJson> {
    optional(sessions).required().login_url("/login").unwrap().return_parameter("return_to").unwrap()
}

fn name(session: Option<&Session>) -> String {
    session.map_or_else(|| String::from("nobody"), |session| format!("{} of {}", session.user(), session.tenant()))
}

async fn hyper_site() -> Site {
    let (sessions, clock, down) = sessions();
    let say = service_fn(async |request: Request<Incoming>| {
        let name = name(Session::from_extensions(request.extensions()));
        Ok::<_, hyper::Error>(Response::new(Full::<Bytes>::from(name)))
    });
    let open = ServiceBuilder::new().layer(optional(&sessions)).service(say);
    let closed = ServiceBuilder::new().layer(required(&sessions)).service(say);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (open, closed) = (open.clone(), closed.clone());
            let route = service_fn(move |request: Request<Incoming>| {
                use tower::ServiceExt;
                let (open, closed) = (open.clone(), closed.clone());
                async move {
                    match request.uri().path() {
                        "/open" => open.oneshot(request).await,
                        _ => closed.oneshot(request).await,
                    }
                }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(route));
            tokio::spawn(connection);
        }
    });
    Site { address, sessions, clock, down }
}

#[cfg(feature = "axum")]
async fn axum_site() -> Site {
    use axum::{Router, routing::any};
    let (sessions, clock, down) = sessions();
    let open = any(async |session: Option<Session>| name(session.as_ref()));
    let router = Router::new()
        .route("/", any(async |session: Session| name(Some(&session))).layer(required(&sessions)))
        .route("/open", open.layer(optional(&sessions)))
        .route("/optional", any(async |session: Session| name(Some(&session))).layer(optional(&sessions)))
        .route("/bare", any(async |session: Session| name(Some(&session))))
        .route("/bare/optional", any(async |session: Option<Session>| name(session.as_ref())));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Site { address, sessions, clock, down }
}

async fn sites() -> Vec<Site> {
    vec![
        hyper_site().await,
        #[cfg(feature = "axum")]
        axum_site().await,
    ]
}

impl Site {
    /// Returns the complete response without its date, with sorted headers.
    async fn send(&self, line: &str, headers: &[&str]) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let mut request = format!("{line} HTTP/1.1\r\nconnection: close\r\ncontent-length: 0\r\n");
        let hosts = headers.iter().any(|header| header.starts_with("host:"));
        for header in headers.iter().chain((!hosts).then_some(&"host: acme.example")) {
            request.push_str(header);
            request.push_str("\r\n");
        }
        stream.write_all(format!("{request}\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let (status, headers) = head.split_once("\r\n").unwrap();
        let passed_over = ["date: ", "connection: ", "content-length: "];
        let kept = |line: &&str| !passed_over.iter().any(|name| line.starts_with(name));
        let mut headers: Vec<_> = headers.split("\r\n").filter(kept).collect();
        headers.sort_unstable();
        format!("{status}\r\n{}\r\n\r\n{body}", headers.join("\r\n"))
    }

    /// Returns only the status and the body.
    async fn brief(&self, line: &str, headers: &[&str]) -> String {
        let answer = self.send(line, headers).await;
        let body = answer.rsplit_once("\r\n\r\n").unwrap().1;
        format!("{} {}", &answer[9..12], if body.starts_with('{') { "" } else { body })
    }

    /// Creates a session and returns its `Cookie` header.
    async fn sign_in(&self, tenant: &str) -> (String, Session) {
        let (cookie, session) = self.sessions.create(new(tenant)).await.unwrap();
        (format!("cookie: {}", pair(&cookie)), session)
    }
}

const UNAUTHENTICATED: &str = concat!(
    "HTTP/1.1 401 Unauthorized\r\ncache-control: no-store\r\ncontent-type: application/problem+json\r\n",
    "www-authenticate: Session realm=\"app\"\r\n\r\n",
    r#"{"type":"about:blank","title":"Unauthorized","status":401,"detail":"please sign in first","kind":"unauthenticated"}"#
);

#[tokio::test]
async fn c113_only_a_valid_session_is_admitted_and_everything_else_gets_the_same_401() {
    for site in sites().await {
        let (ada, session) = site.sign_in("acme").await;
        assert_eq!(site.brief("GET /", &[&ada]).await, "200 ada of acme");
        assert_eq!(site.brief("GET /open", &[&ada]).await, "200 ada of acme");

        let (globex, _) = site.sign_in("globex").await;
        let (revoked, gone) = site.sign_in("acme").await;
        site.sessions.revoke(&gone).await.unwrap();
        let (rotated, old) = site.sign_in("acme").await;
        let (renewed, _) = site.sessions.rotate(&old).await.unwrap().unwrap();
        assert_eq!(site.brief("GET /", &[&format!("cookie: {}", pair(&renewed))]).await, "200 ada of acme");
        let name = ada.strip_prefix("cookie: ").unwrap().split('=').next().unwrap();
        let stranger = format!("{}.{}", "A".repeat(22), "A".repeat(43));
        let wrong = format!("cookie: {name}={stranger}");
        // c118: the id of a session with another secret
        let wrong_secret = format!("cookie: {name}={}.{}", session.sid(), "A".repeat(43));
        let prefix = ada.replace("__Host-", "");
        let case = ada.replace("__Host-", "__host-");
        let unnamed = ada.replace(name, "__Host-session");
        let huge = format!("cookie: {name}={}", "A".repeat(20_000));
        let other = |number: u8| format!("{name}={}.{number}{}", "A".repeat(22), "A".repeat(42));
        let others: Vec<_> = (0..4).map(other).collect();
        let many = format!("{ada}; {}", others.join("; "));
        let malformed = format!("cookie: ;;;=;{name};\"{name}\"=x");
        let empty = format!("cookie: {name}=");
        // the session of one tenant under the cookie name of another
        let renamed = format!("cookie: {name}={}", globex.split_once('=').unwrap().1);
        let nobodies: [&[&str]; 16] = [
            &[],
            &[&wrong],
            &[&wrong_secret],
            &[&empty],
            &[&malformed],
            &[&unnamed],
            &[&renamed],
            &[&huge],
            &[&many],
            &[&prefix],
            &[&case],
            &[&globex],
            &[&revoked],
            &[&rotated],
            // the right cookie at the host of another tenant, or without a tenant
            &[&ada, "host: globex.example"],
            &[&ada, "host: elsewhere.test"],
        ];
        for headers in nobodies {
            assert_eq!(site.send("GET /", headers).await, UNAUTHENTICATED, "{headers:?}");
            assert_eq!(site.brief("GET /open", headers).await, "200 nobody", "{headers:?}");
        }

        // c105: at the last moment, and at the first one that is too late
        site.clock.advance(Duration::from_secs(3600) - Duration::from_nanos(1));
        assert_eq!(site.brief("GET /", &[&ada]).await, "200 ada of acme");
        site.clock.advance(Duration::from_secs(3600));
        assert_eq!(site.send("GET /", &[&ada]).await, UNAUTHENTICATED);
        assert_eq!(site.brief("GET /open", &[&ada]).await, "200 nobody");
        assert!(
            site.sessions.rotate(&session).await.unwrap().is_none(),
            "c106: a rotated session can't be rotated again"
        );
    }
}

#[tokio::test]
async fn c107_of_two_cookies_the_valid_one_counts_and_two_valid_ones_are_rejected() {
    for site in sites().await {
        let (ada, _) = site.sign_in("acme").await;
        let (other, second) = site.sign_in("acme").await;
        let (foreign, _) = site.sign_in("globex").await;
        let value = |cookie: &str| cookie.strip_prefix("cookie: ").unwrap().to_owned();
        let name = value(&ada).split('=').next().unwrap().to_owned();
        let wrong = format!("{name}={}.{}", "A".repeat(22), "A".repeat(43));
        for line in [
            format!("cookie: {wrong}; {}", value(&ada)),
            format!("cookie: {}; {wrong}", value(&ada)),
            format!("cookie: {}; {}", value(&ada), value(&ada)),
            format!("cookie: {name}=; a=b; {}", value(&ada)),
            format!("cookie: {}; {}", value(&foreign), value(&ada)),
            format!("{ada}\r\ncookie: {wrong}"),
        ] {
            assert_eq!(site.brief("GET /", &[&line]).await, "200 ada of acme", "{line}");
        }
        let both = format!("cookie: {}; {}", value(&ada), value(&other));
        assert_eq!(site.send("GET /", &[&both]).await, UNAUTHENTICATED);
        assert_eq!(site.brief("GET /open", &[&both]).await, "200 nobody");
        site.sessions.revoke(&second).await.unwrap();
        assert_eq!(site.brief("GET /", &[&both]).await, "200 ada of acme");
    }
}

#[tokio::test]
async fn people_are_redirected_to_the_login_page_and_programs_get_a_401() {
    for site in sites().await {
        let redirect =
            "HTTP/1.1 303 See Other\r\ncache-control: no-store\r\nlocation: /login?return_to=%2F%3Fa%3Db\r\n\r\n";
        let browser = "accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        assert_eq!(site.send("GET /?a=b", &["sec-fetch-mode: navigate"]).await, redirect);
        assert_eq!(site.send("GET /?a=b", &[browser]).await, redirect);
        assert_eq!(site.send("GET /?a=b", &["accept: */*"]).await, UNAUTHENTICATED);
        assert_eq!(site.send("GET /?a=b", &["accept: application/json"]).await, UNAUTHENTICATED);
        assert_eq!(site.send("GET /?a=b", &["sec-fetch-mode: cors", browser]).await, UNAUTHENTICATED);
        let form = site.send("POST /?a=b", &["sec-fetch-mode: navigate"]).await;
        assert!(form.contains("\r\nlocation: /login\r\n"), "{form}");
        // if a session is optional, a request without one is served
        assert_eq!(site.brief("GET /open", &["sec-fetch-mode: navigate"]).await, "200 nobody");
    }
}

#[tokio::test]
async fn another_site_cannot_send_unsafe_requests_with_a_session() {
    let forbidden = |detail| {
        format!(
            "HTTP/1.1 403 Forbidden\r\ncontent-type: application/problem+json\r\n\r\n\
             {{\"type\":\"about:blank\",\"title\":\"Forbidden\",\"status\":403,\"detail\":\"{detail}\",\"kind\":\"forbidden\"}}"
        )
    };
    let foreign = forbidden("the request comes from another site");
    let unknown = forbidden("the request has neither Origin nor Sec-Fetch-Site, so its site is unknown");
    for site in sites().await {
        let (ada, _) = site.sign_in("acme").await;
        // the request is refused before the store is called
        site.down.store(true, SeqCst);
        for target in ["/", "/open"] {
            for sent in [
                &["sec-fetch-site: cross-site"][..],
                &["sec-fetch-site: same-site"],
                &["origin: https://evil.test"],
                &["origin: null"],
                &["origin: http://acme.example"],
            ] {
                let headers = [&[ada.as_str()], sent].concat();
                assert_eq!(site.send(&format!("POST {target}"), &headers).await, foreign, "{sent:?}");
            }
            assert_eq!(site.send(&format!("POST {target}"), &[&ada]).await, unknown);
        }
        site.down.store(false, SeqCst);
        for sent in [
            &["sec-fetch-site: same-origin"][..],
            &["sec-fetch-site: none"],
            &["origin: https://acme.example"],
            &["sec-fetch-site: cross-site", "origin: https://admin.test"],
        ] {
            let headers = [&[ada.as_str()], sent].concat();
            assert_eq!(site.brief("POST /", &headers).await, "200 ada of acme", "{sent:?}");
        }
        assert_eq!(site.brief("GET /", &[&ada, "sec-fetch-site: cross-site"]).await, "200 ada of acme");
        // without a cookie there is nothing to protect
        assert_eq!(site.brief("POST /open", &["sec-fetch-site: cross-site"]).await, "200 nobody");
    }
}

#[tokio::test]
async fn c114_while_the_store_is_down_sessions_get_a_503_without_details() {
    let unavailable = concat!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\n\r\n",
        r#"{"type":"about:blank","title":"Service Unavailable","status":503,"#,
        r#""detail":"sessions cannot be read at the moment","kind":"unavailable"}"#
    );
    for site in sites().await {
        let (ada, _) = site.sign_in("acme").await;
        site.down.store(true, SeqCst);
        assert_eq!(site.send("GET /", &[&ada]).await, unavailable);
        assert_eq!(site.send("GET /open", &[&ada]).await, unavailable);
        assert_eq!(site.send("GET /", &["sec-fetch-mode: navigate", &ada]).await, unavailable);
        // requests without a cookie do not need the store
        assert_eq!(site.brief("GET /open", &[]).await, "200 nobody");
        assert_eq!(site.send("GET /", &[]).await, UNAUTHENTICATED);
        site.down.store(false, SeqCst);
        assert_eq!(site.brief("GET /", &[&ada]).await, "200 ada of acme");
    }
}

#[tokio::test]
async fn requests_of_other_sites_and_failures_of_the_store_are_events() {
    use tower::ServiceExt;
    let (store, log) = (Shaky::default(), EventLog::new());
    let sessions = Sessions::builder(store.clone()).events(log.clone()).build().unwrap();
    let service = ServiceBuilder::new().layer(SessionLayer::new(sessions.clone())).service(service_fn(
        async |_: Request<String>| Ok::<_, std::convert::Infallible>(Response::new(String::new())),
    ));
    let (cookie, _) = sessions.create(new("acme")).await.unwrap();
    store.down.store(true, SeqCst);
    for (method, status) in [("POST", 403), ("GET", 503)] {
        let request = Request::builder().method(method).header("cookie", pair(&cookie)).body(String::new()).unwrap();
        assert_eq!(service.clone().oneshot(request).await.unwrap().status(), status);
    }
    let seen: Vec<_> = log.read_events(&Query::new()).events.iter().map(|event| (event.kind, event.count)).collect();
    assert_eq!(seen, [(EventKind::SessionCreated, 1), (EventKind::ForeignOrigin, 1), (EventKind::StoreFailed, 1)]);
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_missing_layer_differs_from_a_missing_session() {
    let site = axum_site().await;
    let (ada, _) = site.sign_in("acme").await;
    let missing = concat!(
        "HTTP/1.1 500 Internal Server Error\r\ncontent-type: text/plain; charset=utf-8\r\n\r\n",
        "no SessionLayer covers this route"
    );
    for cookies in [&[][..], &[ada.as_str()]] {
        assert_eq!(site.send("GET /bare", cookies).await, missing);
        assert_eq!(site.send("GET /bare/optional", cookies).await, missing);
    }
    let nobody = "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Session realm=\"app\"\r\n\r\n";
    assert_eq!(site.send("GET /optional", &[]).await, nobody);
    assert_eq!(site.brief("GET /optional", &[&ada]).await, "200 ada of acme");
}

#[tokio::test]
async fn c113_in_tonic_only_a_valid_session_is_admitted() {
    use tonic::{
        Code, Request, Status,
        metadata::AsciiMetadataValue,
        service::interceptor::InterceptedService,
        transport::{Endpoint, Server, server::TcpIncoming},
    };
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

    let clock = ManualClock::new();
    let sessions = Sessions::builder(Memory::new()).clock(clock.clone()).build().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let writer = Arc::clone(&seen);
    let see = move |request: Request<()>| {
        writer.lock().unwrap().push(name(Session::from_extensions(request.extensions())));
        Ok::<_, Status>(request)
    };
    let layer = SessionLayer::new(sessions.clone()).required().login_url("/login").unwrap();
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let (_reporter, health) = tonic_health::server::health_reporter();
    let health = InterceptedService::new(health, see);
    tokio::spawn(Server::builder().layer(layer).add_service(health).serve_with_incoming(incoming));
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();

    let call = async |metadata: &[(&'static str, &str)]| {
        let mut request = Request::new(HealthCheckRequest::default());
        for (name, value) in metadata {
            request.metadata_mut().insert(*name, AsciiMetadataValue::try_from(*value).unwrap());
        }
        HealthClient::new(channel.clone()).check(request).await.map(drop)
    };
    let (cookie, session) = sessions.create(new("acme")).await.unwrap();
    let cookie = pair(&cookie);
    let name = cookie.split('=').next().unwrap();
    let wrong = format!("{name}={}.{}", session.sid(), "A".repeat(43));

    call(&[("cookie", &cookie)]).await.unwrap();
    call(&[("cookie", &format!("{wrong}; {cookie}"))]).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["ada of acme", "ada of acme"]);
    // a gRPC call that another site sends from a browser
    let forbidden = call(&[("cookie", &cookie), ("origin", "https://evil.test")]).await.unwrap_err();
    assert_eq!(forbidden.code(), Code::PermissionDenied);

    let refused = async |metadata: &[(&'static str, &str)]| {
        let status = call(metadata).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unauthenticated, "please sign in first"));
        assert_eq!(status.metadata().get("www-authenticate").unwrap(), "Session realm=\"app\"");
    };
    refused(&[]).await;
    refused(&[("accept", "text/html"), ("sec-fetch-mode", "navigate")]).await;
    refused(&[("cookie", &wrong)]).await;
    let (second, _) = sessions.create(new("acme")).await.unwrap();
    refused(&[("cookie", &format!("{cookie}; {}", pair(&second)))]).await;
    clock.advance(Duration::from_secs(3600));
    refused(&[("cookie", &pair(&second))]).await;
    sessions.revoke(&session).await.unwrap();
    refused(&[("cookie", &cookie)]).await;
    assert_eq!(seen.lock().unwrap().len(), 2, "no other request came through");
}

#[tokio::test]
async fn c103_the_cookie_is_bound_to_the_host_and_the_tenant() {
    let sessions = Sessions::new(Memory::new());
    let (one, session) = sessions.create(new("acme")).await.unwrap();
    let (two, _) = sessions.create(new("acme")).await.unwrap();
    let (elsewhere, _) = sessions.create(new("globex")).await.unwrap();
    let text = one.header_value().to_str().unwrap().to_owned();
    let (name, rest) = text.split_once('=').unwrap();
    assert_eq!(name, "__Host-session_giszrYfB");
    let (value, rest) = rest.split_at(22 + 1 + 43);
    assert_eq!(rest, "; Path=/; Secure; HttpOnly; SameSite=Lax");
    // c104: base64url of 256 bits, different each time, and not contained in the session
    let (sid, secret) = value.split_once('.').unwrap();
    assert_eq!(sid, session.sid().to_string());
    assert!(secret.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')));
    let other = pair(&two);
    assert!(other.starts_with(name) && !other.contains(sid) && !other.contains(secret));
    assert!(!pair(&elsewhere).starts_with(name));
    assert!(!format!("{session:?}{one:?}{sessions:?}").contains(secret));
    let removed = format!("{name}=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Lax");
    assert_eq!(sessions.removal(session.tenant()).header_value(), removed);
    let month = new("acme").remember(Duration::from_secs(30 * 86400)).unwrap();
    let text = sessions.create(month).await.unwrap().0.header_value().to_str().unwrap().to_owned();
    assert!(text.ends_with("; Path=/; Max-Age=2592000; Secure; HttpOnly; SameSite=Lax"), "{text}");

    let own = || Sessions::builder(Memory::new()).cookie_name("app");
    let (cookie, _) = own().build().unwrap().create(new("acme")).await.unwrap();
    assert!(pair(&cookie).starts_with("__Host-app_giszrYfB="));
    let (loopback, _) = own().insecure_loopback().build().unwrap().create(new("acme")).await.unwrap();
    let text = loopback.header_value().to_str().unwrap().to_owned();
    assert!(text.starts_with("app_giszrYfB=") && text.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{text}");
    for bad in ["", "a b", "a;b", "__Host-app", "__Secure-app", &"a".repeat(5000)] {
        assert!(Sessions::builder(Memory::new()).cookie_name(bad).build().is_err(), "{bad:?}");
    }
}

#[tokio::test]
async fn c121_a_layer_without_a_tenant_never_picks_one_of_several_sessions() {
    use tower::ServiceExt;
    let sessions = Sessions::new(Memory::new());
    let ask = async |layer: SessionLayer, cookies: &[&str]| {
        let service = service_fn(async |request: Request<String>| {
            Ok::<_, std::convert::Infallible>(Response::new(name(Session::from_extensions(request.extensions()))))
        });
        let request = Request::get("/").header("cookie", cookies.join("; ")).body(String::new()).unwrap();
        ServiceBuilder::new().layer(layer).service(service).oneshot(request).await.unwrap().into_body()
    };
    let any = || SessionLayer::new(sessions.clone());
    let of = |tenant: &str| SessionLayer::new(sessions.clone()).tenant(Tenant::parse(tenant).unwrap());
    let (acme, first) = sessions.create(new("acme")).await.unwrap();
    let (globex, second) = sessions.create(new("globex")).await.unwrap();
    let (acme, globex) = (pair(&acme), pair(&globex));
    assert_eq!(ask(any(), &[&acme]).await, "ada of acme");
    assert_eq!(ask(any(), &[&globex]).await, "ada of globex");
    assert_eq!(ask(any(), &[&acme, &globex]).await, "nobody");
    for cookies in [[acme.as_str(), &globex], [&globex, &acme]] {
        assert_eq!(ask(of("acme"), &cookies).await, "ada of acme");
        assert_eq!(ask(of("globex"), &cookies).await, "ada of globex");
        assert_eq!(ask(of("initech"), &cookies).await, "nobody");
    }
    // a session that has ended does not count
    sessions.revoke(&second).await.unwrap();
    assert_eq!(ask(any(), &[&acme, &globex]).await, "ada of acme");
    // the sign-in at the second tenant has kept the first session
    assert!(sessions.get(&first.sid()).await.unwrap().is_some());
    // more cookies than are looked up
    let stranger = |number: usize| format!("__Host-session_{number:08}={number:021}A.{}", "A".repeat(43));
    let strangers: Vec<_> = (0..16).map(stranger).collect();
    let mut cookies: Vec<&str> = strangers.iter().map(String::as_str).collect();
    cookies.push(&acme);
    assert_eq!(ask(any(), &cookies).await, "nobody");
    assert_eq!(ask(any(), &cookies[1..]).await, "ada of acme");
    assert_eq!(ask(of("acme"), &cookies).await, "ada of acme");
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_nested_route_redirects_back_to_the_full_path() {
    use axum::{Router, body::Body, routing::get};
    use tower::ServiceExt;
    let layer = SessionLayer::new(Sessions::new(Memory::new())).required().login_url("/login").unwrap();
    let layer = layer.return_parameter("return_to").unwrap();
    let nested = Router::new().route("/page", get(async || "page")).layer(layer);
    let request = Request::get("/app/page?a=b").header("sec-fetch-mode", "navigate").body(Body::empty()).unwrap();
    let response = Router::new().nest("/app", nested).oneshot(request).await.unwrap();
    assert_eq!(response.headers()["location"], "/login?return_to=%2Fapp%2Fpage%3Fa%3Db");
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn the_tenant_of_a_handler_is_that_of_the_session() {
    use axum::{Router, body::Body, routing::get};
    use tower::ServiceExt;
    let sessions = Sessions::new(Memory::new());
    let (cookie, _) = sessions.create(new("acme")).await.unwrap();
    let cookie = cookie.header_value().to_str().unwrap().split(';').next().unwrap().to_owned();
    let routes = Router::new().route("/", get(async |tenant: Tenant| tenant.to_string()));
    let request = Request::get("/").header("cookie", cookie).header("sec-fetch-site", "same-origin");
    let request = request.body(Body::empty()).unwrap();
    let response = routes.layer(SessionLayer::new(sessions)).oneshot(request).await.unwrap();
    assert_eq!(axum::body::to_bytes(response.into_body(), 64).await.unwrap(), "acme");
}

#[test]
fn c105_contradictory_lifetimes_are_refused() {
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let idle = |idle| Sessions::builder(Memory::new()).idle(idle).build();
    let absolute = |absolute| Sessions::builder(Memory::new()).absolute(absolute).build();
    for wrong in [Duration::ZERO, Duration::from_secs(119), hours(25), Duration::MAX] {
        assert_eq!(idle(wrong).unwrap_err().setting(), "session idle lifetime");
    }
    for wrong in [hours(24 * 401), Duration::MAX] {
        assert_eq!(absolute(wrong).unwrap_err().setting(), "session absolute lifetime");
    }
    for shorter_than_idle in [Duration::ZERO, Duration::from_secs(3599)] {
        assert_eq!(absolute(shorter_than_idle).unwrap_err().setting(), "session idle lifetime");
    }
    assert!(idle(hours(24)).is_ok() && idle(Duration::from_secs(120)).is_ok());
    // in any order
    let month = hours(24 * 30);
    assert!(Sessions::builder(Memory::new()).idle(month).absolute(month).build().is_ok());
}

#[tokio::test]
async fn c105_a_shorter_lifetime_applies_to_existing_sessions() {
    let (store, clock) = (Shaky::default(), ManualClock::new());
    let before = Sessions::builder(store.clone()).clock(clock.clone()).build().unwrap();
    let (_, session) = before.create(new("acme")).await.unwrap();
    let after = Sessions::builder(store).clock(clock.clone()).idle(Duration::from_secs(600)).build().unwrap();
    let alive = async |sessions: &Sessions| !sessions.list(session.tenant(), session.user()).await.unwrap().is_empty();
    clock.advance(Duration::from_secs(599));
    assert!(alive(&after).await);
    clock.advance(Duration::from_secs(1));
    assert!(!alive(&after).await && alive(&before).await);
}

#[tokio::test]
async fn c106_c108_the_log_records_what_happens_by_sid() {
    use tower::ServiceExt;
    let (clock, log) = (ManualClock::new(), EventLog::new());
    let sessions = Sessions::builder(Memory::new()).clock(clock.clone()).events(log.clone()).build().unwrap();
    let service = ServiceBuilder::new().layer(SessionLayer::new(sessions.clone()).required()).service(service_fn(
        async |_: Request<String>| Ok::<_, std::convert::Infallible>(Response::new(String::new())),
    ));
    let knock = async |cookie: &SetCookie| {
        let request = Request::get("/").header("cookie", pair(cookie)).body(String::new()).unwrap();
        service.clone().oneshot(request).await.unwrap().status().as_u16()
    };
    let (old, first) = sessions.create(new("acme")).await.unwrap();
    let (cookie, second) = sessions.rotate(&first).await.unwrap().unwrap();
    assert_eq!((knock(&cookie).await, knock(&old).await), (200, 401));
    sessions.revoke(&second).await.unwrap();
    clock.advance(Duration::from_secs(1));
    assert_eq!(knock(&cookie).await, 401);
    let (idle, third) = sessions.create(new("acme")).await.unwrap();
    clock.advance(Duration::from_secs(3600));
    assert_eq!(knock(&idle).await, 401);
    let guessed = SetCookie::new("__Host-session_giszrYfB", &format!("{}.{}", "A".repeat(22), "A".repeat(43))).unwrap();
    assert_eq!(knock(&guessed).await, 401);

    let mut page = log.read_events(&Query::new());
    // each 401 is an event of its own, without a session
    let refused = page.events.extract_if(.., |event| event.kind == EventKind::SessionRefused);
    assert_eq!(refused.map(|event| event.count).sum::<u64>(), 4);
    let told: Vec<_> = page.events.iter().map(|event| (event.kind, event.session)).collect();
    let expected = [
        (EventKind::SessionCreated, &first),
        (EventKind::SessionRenewed, &second),
        (EventKind::SessionWrongSecret, &first),
        (EventKind::SessionRevoked, &second),
        (EventKind::SessionUseAfterExpire, &second),
        (EventKind::SessionCreated, &third),
        (EventKind::SessionUseAfterExpire, &third),
    ];
    assert_eq!(told, expected.map(|(kind, session)| (kind, Some(session.sid()))));
    assert!(page.events.iter().all(|event| event.tenant == Some(first.tenant().clone().into())));
    let json: String = page.events.iter().map(tollgate::event::Event::to_json).collect();
    assert!(json.contains(&format!(r#""session":"{}""#, first.sid())), "{json}");
    for cookie in [old, cookie, idle] {
        assert!(!json.contains(pair(&cookie).split('.').nth(1).unwrap()), "{json}");
    }
}
