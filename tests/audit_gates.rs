//! The layers as an attacker and as an operator meet them: what is refused, with which status, and what the event log shows.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

use std::{collections::BTreeSet, convert::Infallible, net::SocketAddr, sync::Arc};

use axum::extract::ConnectInfo;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use tollgate::{
    ApiKeys, BearerLayer, ClientIp, EventLog, EventService, Head, Limiter, PkceLayer, Plans, ProblemJson, Quota,
    RateLimitLayer, SessionLayer, Sessions, Tenant, TenantSource,
    bearer::AccessTokenTenant,
    clock::UnixTime,
    event::{Event, EventKind, Query, TenantsAndOperator},
    reject::Rejection,
    session::SessionTenant,
    store::Memory,
    tenant::{HeaderTenant, ProvedTenant, TenantError, TenantName},
    testing::{ManualClock, TestIssuer},
};
use tower::layer::util::Stack;
use tower::{Layer, Service, ServiceExt, service_fn, util::BoxCloneSyncService};

type Bytes = Full<bytes::Bytes>;
type Inner = BoxCloneSyncService<Request<Bytes>, Response<Bytes>, Infallible>;

/// Sends a request through a layer, and returns the status and the challenge.
async fn ask<L>(layer: &L, request: Request<Bytes>) -> (StatusCode, String)
where
    L: Layer<Inner>,
    L::Service: Service<Request<Bytes>, Response = Response<Bytes>, Error = Infallible>,
{
    let inner = service_fn(async |_: Request<Bytes>| Ok::<_, Infallible>(Response::new(Full::default())));
    let response = layer.layer(Inner::new(inner)).oneshot(request).await.unwrap();
    let challenge = response.headers().get("www-authenticate").map(|value| value.to_str().unwrap().to_owned());
    (response.status(), challenge.unwrap_or_default())
}

fn get(path: &str, headers: &[(&'static str, &str)]) -> Request<Bytes> {
    let mut request = Request::get(path).body(Full::default()).unwrap();
    for (name, value) in headers {
        request.headers_mut().append(*name, HeaderValue::from_str(value).unwrap());
    }
    request
}

fn limiter(log: &EventLog) -> Limiter {
    Limiter::builder(Plans::new(Quota::per_minute(600).unwrap())).events(log.clone()).build().unwrap()
}

fn keys() -> ApiKeys {
    ApiKeys::new("x-api-key").unwrap().key("a-key-of-acme", "acme").unwrap()
}

/// Returns the different reasons of the events of this kind.
fn reasons(log: &EventLog, kind: EventKind) -> BTreeSet<&'static str> {
    let events = log.read_events(&Query::new().kind(kind)).events;
    events.iter().map(|event| event.reason.unwrap_or("none")).collect()
}

/// The kinds in a log with their counts, in the order of their first events.
fn kinds(log: &EventLog) -> Vec<(EventKind, u64)> {
    let mut kinds: Vec<(EventKind, u64)> = Vec::new();
    for Event { kind, count, .. } in log.read_events(&Query::new()).events {
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, sum)) => *sum += count,
            None => kinds.push((kind, count)),
        }
    }
    kinds
}

#[tokio::test]
async fn a07_a_missing_and_an_unknown_key_are_401_and_an_unusable_name_is_400() {
    let log = EventLog::new();
    let key = RateLimitLayer::new(keys(), limiter(&log)).respond_with(ProblemJson);
    let either = RateLimitLayer::new(AccessTokenTenant.or(keys()), limiter(&log)).respond_with(ProblemJson);
    let issuer = TestIssuer::new("https://auth.example", "https://api.example");
    let bearer = BearerLayer::new(issuer.verifier()).optional().respond_with(ProblemJson);
    for layer in [&key, &either] {
        let layer = &Stack::new(layer.clone(), bearer.clone());
        assert_eq!(ask(layer, get("/", &[("x-api-key", "a-key-of-acme")])).await.0, StatusCode::OK);
        for headers in [&[][..], &[("x-api-key", "guessed")]] {
            let (status, challenge) = ask(layer, get("/", headers)).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{headers:?}");
            assert!(["ApiKey", "Bearer realm=\"api\""].contains(&&*challenge), "{challenge}");
        }
    }
    let token = RateLimitLayer::new(AccessTokenTenant, limiter(&log)).respond_with(ProblemJson);
    let behind = Stack::new(token.clone(), bearer);
    assert_eq!(ask(&behind, get("/", &[])).await, (StatusCode::UNAUTHORIZED, String::from("Bearer realm=\"api\"")));
    // a missing layer is the server's mistake, and not the caller's
    let session = RateLimitLayer::new(SessionTenant, limiter(&log)).respond_with(ProblemJson);
    for alone in [&token, &session] {
        assert_eq!(ask(alone, get("/", &[])).await, (StatusCode::INTERNAL_SERVER_ERROR, String::new()));
    }
    // nor does it make the caller of an open page anonymous
    let closure = |_: Head<'_>| -> Result<Option<Tenant>, TenantError> { Err(TenantError::internal("no directory")) };
    let sessions = Sessions::new(Memory::new());
    let cookie = format!("{}=a", sessions.removal(&"acme".parse::<Tenant>().unwrap()).name());
    let open = SessionLayer::new(sessions).tenant(closure).respond_with(ProblemJson);
    assert_eq!(ask(&open, get("/", &[("cookie", &cookie)])).await.0, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(ask(&open, get("/", &[])).await.0, StatusCode::OK);
    let behind = Stack::new(session, SessionLayer::new(Sessions::new(Memory::new())).respond_with(ProblemJson));
    let (status, challenge) = ask(&behind, get("/", &[])).await;
    assert_eq!((status, &*challenge), (StatusCode::UNAUTHORIZED, r#"Session realm="app""#));
    let name = RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter(&log)).respond_with(ProblemJson);
    for headers in [&[][..], &[("x-tenant", "a b")], &[("x-tenant", "ip:192.0.2.1")]] {
        assert_eq!(ask(&name, get("/", headers)).await, (StatusCode::BAD_REQUEST, String::new()), "{headers:?}");
    }
}

#[tokio::test]
async fn a09_unknown_keys_missing_tenants_sessions_and_challenges_are_events() {
    let log = EventLog::new();
    let limit = RateLimitLayer::new(keys(), limiter(&log)).respond_with(ProblemJson);
    ask(&limit, get("/", &[("x-api-key", "a-key-of-acme")])).await;
    ask(&limit, get("/", &[("x-api-key", "guessed")])).await;
    ask(&limit, get("/", &[])).await;

    let sessions = Sessions::builder(Memory::new()).events(log.clone()).build().unwrap();
    let optional = SessionLayer::new(sessions.clone()).respond_with(ProblemJson);
    let required = SessionLayer::new(sessions.clone()).required().respond_with(ProblemJson);
    let cookie = format!("{}=guessed", sessions.removal(&"acme".parse::<Tenant>().unwrap()).name());
    for headers in [&[][..], &[("cookie", &*cookie)]] {
        assert_eq!(ask(&optional, get("/", headers)).await.0, StatusCode::OK);
        assert_eq!(ask(&required, get("/", headers)).await.0, StatusCode::UNAUTHORIZED);
    }

    let pkce = PkceLayer::everywhere().events(log.clone()).respond_with(ProblemJson);
    assert_eq!(ask(&pkce, get("/authorize?code_challenge=x", &[])).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(
        kinds(&log),
        [
            (EventKind::CredentialUnknown, 1),
            (EventKind::TenantMissing, 1),
            (EventKind::SessionRefused, 2),
            (EventKind::PkceRefused, 1),
        ]
    );
    assert_eq!(reasons(&log, EventKind::TenantMissing), BTreeSet::from(["missing"]));
    assert_eq!(reasons(&log, EventKind::SessionRefused), BTreeSet::from(["no_session"]));
    let log = EventLog::new();
    let by_name = RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter(&log)).respond_with(ProblemJson);
    assert_eq!(ask(&by_name, get("/", &[("x-tenant", "a b")])).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(reasons(&log, EventKind::TenantMissing), BTreeSet::from(["invalid"]));
}

#[tokio::test]
async fn a09_repeated_refusals_are_counted_and_do_not_fill_the_log() {
    let log = EventLog::new();
    let limit = RateLimitLayer::new(keys(), limiter(&log)).respond_with(ProblemJson);
    for number in 0..2_000 {
        ask(&limit, get("/", &[("x-api-key", &format!("guess-{number}"))])).await;
    }
    assert_eq!(kinds(&log), [(EventKind::CredentialUnknown, 2_000)]);
    assert!(log.stats().recorded < 200, "{:?}", log.stats());
}

#[tokio::test]
async fn a09_a_guessed_key_at_the_event_log_is_an_event() {
    let log = EventLog::new();
    let access = TenantsAndOperator::new(keys()).operator_key("an-operators-own-key").unwrap();
    let service = EventService::new(log.clone(), access);
    for key in ["x-api-key", "x-operator-key"] {
        let request = Request::get("/log").header(key, "guessed").body(Empty::<bytes::Bytes>::new()).unwrap();
        let refused = service.clone().oneshot(request).await.unwrap();
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
        assert!(refused.headers().contains_key("www-authenticate"));
    }
    assert_eq!(kinds(&log), [(EventKind::CredentialUnknown, 2)]);
}

#[tokio::test]
async fn a18_the_address_of_axum_is_found_without_a_closure() {
    let log = EventLog::new();
    let plans = Plans::new(Quota::per_hour(1).unwrap());
    let layer = RateLimitLayer::new(ClientIp::peer(), Limiter::memory(plans)).respond_with(ProblemJson);
    let from = |last: u8| {
        let mut request = get("/", &[]);
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([192, 0, 2, last], 1))));
        request
    };
    assert_eq!(ask(&layer, from(1)).await.0, StatusCode::OK);
    assert_eq!(ask(&layer, from(1)).await.0, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(ask(&layer, from(2)).await.0, StatusCode::OK);
    let behind = ClientIp::behind(["192.0.2.1"]).unwrap();
    let mut request = from(1);
    request.headers_mut().insert("x-forwarded-for", HeaderValue::from_static("203.0.113.9"));
    assert_eq!(behind.address(Head::of_request(&request)), Some([203, 0, 113, 9].into()));
    assert_eq!(kinds(&log), []);
}

#[tokio::test]
async fn a18_a_missing_peer_address_is_the_fault_of_the_server() {
    let log = EventLog::new();
    let by_address = RateLimitLayer::new(ClientIp::peer(), limiter(&log)).respond_with(ProblemJson);
    let name = HeaderTenant::new("x-tenant").unwrap();
    let chain = RateLimitLayer::new(name.or(ClientIp::peer()), limiter(&log)).respond_with(ProblemJson);
    for layer in [by_address, chain] {
        assert_eq!(ask(&layer, get("/", &[])).await, (StatusCode::INTERNAL_SERVER_ERROR, String::new()));
    }
    assert_eq!(kinds(&log), [(EventKind::TenantMissing, 2)]);
    assert_eq!(reasons(&log, EventKind::TenantMissing), BTreeSet::from(["internal"]));
}

#[tokio::test]
async fn a19_preflights_pass_the_pkce_layer() {
    let preflight = |path: &str, method: &str| {
        let mut request = get(path, &[("origin", "https://app.example"), ("access-control-request-method", "POST")]);
        *request.method_mut() = method.parse().unwrap();
        request
    };
    let query = PkceLayer::new("/authorize").unwrap().respond_with(ProblemJson);
    assert_eq!(ask(&query, preflight("/authorize", "OPTIONS")).await.0, StatusCode::OK);
    assert_eq!(ask(&query, preflight("/authorize", "GET")).await.0, StatusCode::BAD_REQUEST);
    let mut plain = get("/authorize", &[]);
    *plain.method_mut() = http::Method::OPTIONS;
    assert_eq!(ask(&query, plain).await.0, StatusCode::BAD_REQUEST, "not a preflight");
}

#[tokio::test]
async fn a07_a_source_of_your_own_can_ask_for_its_credential() {
    struct Tokens;
    impl TenantSource for Tokens {
        fn find<'a>(&self, _: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
            Ok(None)
        }
        fn missing(&self, _: Head<'_>) -> TenantError {
            TenantError::missing("the token is missing").challenge("Token").unwrap()
        }
    }
    let layer =
        RateLimitLayer::new(Tokens, limiter(&EventLog::new())).respond_with(|rejection: &Rejection, _: Head<'_>| {
            let mut response = Response::new(Bytes::from(rejection.detail().to_owned()));
            *response.status_mut() = rejection.status();
            response
        });
    assert_eq!(ask(&layer, get("/", &[])).await, (StatusCode::UNAUTHORIZED, String::from("Token")));
}

#[tokio::test]
async fn b27_a_limit_by_session_or_token_asks_in_the_realm_of_the_layer() {
    let log = EventLog::new();
    let sessions = || SessionLayer::new(Sessions::new(Memory::new())).respond_with(ProblemJson);
    let limit = RateLimitLayer::new(SessionTenant, limiter(&log)).respond_with(ProblemJson);
    for (layer, realm) in [(sessions(), "app"), (sessions().realm("back office").unwrap(), "back office")] {
        let (status, challenge) = ask(&Stack::new(limit.clone(), layer), get("/", &[])).await;
        assert_eq!((status, challenge), (StatusCode::UNAUTHORIZED, format!("Session realm=\"{realm}\"")));
    }
    let issuer = TestIssuer::new("https://auth.example", "https://api.example");
    let bearer = BearerLayer::new(issuer.verifier()).realm("orders").unwrap().optional().respond_with(ProblemJson);
    let limit = RateLimitLayer::new(AccessTokenTenant, limiter(&log)).respond_with(ProblemJson);
    let (status, challenge) = ask(&Stack::new(limit, bearer), get("/", &[])).await;
    assert_eq!((status, &*challenge), (StatusCode::UNAUTHORIZED, "Bearer realm=\"orders\""));
}

#[tokio::test]
async fn b04_a_tenant_that_is_only_claimed_reads_no_events() {
    let closure = |head: Head<'_>| head.headers().get("x-tenant").map(Tenant::parse).transpose();
    let status = async |access: TenantsAndOperator<Arc<dyn TenantSource>>| {
        let request = Request::get("/log").header("x-tenant", "acme").body(Empty::<bytes::Bytes>::new()).unwrap();
        EventService::new(EventLog::new(), access).oneshot(request).await.unwrap().status()
    };
    for claims in [Arc::new(closure) as Arc<dyn TenantSource>, Arc::new(HeaderTenant::new("x-tenant").unwrap())] {
        assert_eq!(status(TenantsAndOperator::new(Arc::clone(&claims))).await, StatusCode::UNAUTHORIZED);
        let proved: Arc<dyn TenantSource> = Arc::new(ProvedTenant::new(claims));
        assert_eq!(status(TenantsAndOperator::new(proved)).await, StatusCode::OK);
    }
}

#[tokio::test]
async fn b29_the_event_log_counts_by_the_clock_that_it_was_given() {
    let clock = ManualClock::new();
    let log = EventLog::builder().clock(clock.clone()).build();
    let pkce = PkceLayer::everywhere().events(log.clone()).respond_with(ProblemJson);
    let service = EventService::new(log.clone(), TenantsAndOperator::new(keys()));
    for second in [1_500_000_000, 1_700_000_000] {
        clock.set_wall(UnixTime::from_secs(second));
        assert_eq!(ask(&pkce, get("/authorize?code_challenge=x", &[])).await.0, StatusCode::BAD_REQUEST);
        let guess = Request::get("/log").header("x-api-key", "guessed").body(Empty::<bytes::Bytes>::new()).unwrap();
        assert_eq!(service.clone().oneshot(guess).await.unwrap().status(), StatusCode::UNAUTHORIZED);
        let events = log.read_events(&Query::new()).events;
        let newest: Vec<_> = events.iter().rev().take(2).map(|event| (event.kind, event.at.as_secs())).collect();
        assert_eq!(newest, [(EventKind::CredentialUnknown, second), (EventKind::PkceRefused, second)]);
    }
}
