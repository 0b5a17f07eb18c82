//! Access tokens in tower services and in axum.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests may panic")]

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{Router, body::Body, routing::get};
use http::{Method, Request, Response, StatusCode, request::Builder};
use tollgate::{
    AccessToken, BearerLayer, ClientIp, Limiter, PeerAddr, Plan, Plans, ProblemJson, Quota, RateLimitLayer, Secret,
    SessionLayer, Sessions, Tenant, UserId, Verifier,
    bearer::AccessTokenTenant,
    clock::{Clock, Moment, UnixTime},
    session::NewSession,
    store::{AnyStore, Memory},
    tenant::HeaderTenant,
    testing::{DpopKey, ManualClock, TestClaims, TestIssuer},
};
use tower::{Layer, Service, ServiceExt, service_fn};

const API: &str = "https://api.example";

fn issuer() -> (TestIssuer, ManualClock) {
    let clock = ManualClock::new();
    (TestIssuer::new("https://auth.example", API).clock(clock.clone()), clock)
}

/// Describes the caller, as a service sees it.
fn say(token: Option<&AccessToken>) -> String {
    let Some(token) = token else { return "nobody".to_owned() };
    let tenant = token.tenant().map_or("none", Tenant::as_str);
    format!("{} of {tenant} with {}", token.subject(), token.scopes().collect::<Vec<_>>().join("+"))
}

async fn answer<L, S>(layer: &L, request: Request<String>) -> Response<String>
where
    L: Layer<Plain, Service = S>,
    S: Service<Request<String>, Response = Response<String>, Error = Infallible>,
{
    layer.layer(plain()).oneshot(request).await.unwrap()
}

type Plain = tower::util::ServiceFn<fn(Request<String>) -> std::future::Ready<Result<Response<String>, Infallible>>>;

fn plain() -> Plain {
    service_fn(|request| std::future::ready(Ok(Response::new(say(AccessToken::from_extensions(request.extensions()))))))
}

fn bearer(token: &str) -> Request<String> {
    with(Request::get("/"), &format!("Bearer {token}"))
}

fn with(request: Builder, authorization: &str) -> Request<String> {
    request.header("authorization", authorization).body(String::new()).unwrap()
}

/// Returns status, challenge and body.
fn seen(response: &Response<String>) -> (u16, &str, &str) {
    let challenge = response.headers().get("www-authenticate").map_or("", |value| value.to_str().unwrap());
    (response.status().as_u16(), challenge, response.body())
}

#[tokio::test]
async fn c099_each_rejection_has_its_status_and_challenge() {
    let (issuer, clock) = issuer();
    let layer = BearerLayer::new(issuer.verifier()).require_scope("a:read").unwrap().require_scope("b").unwrap();
    let layer = layer.realm("orders").unwrap();
    let good = issuer.token(|claims| claims.subject("ada").scope("b c a:read"));
    assert_eq!(seen(&answer(&layer, bearer(&good)).await), (200, "", "ada of none with b+c+a:read"));

    let nobody = r#"Bearer realm="orders""#;
    let malformed = r#"Bearer realm="orders", error="invalid_request""#;
    let invalid = r#"Bearer realm="orders", error="invalid_token""#;
    let narrow = r#"Bearer realm="orders", error="insufficient_scope", scope="a:read b""#;
    let refuse = async |request: Request<String>, status: u16, challenge: &str| {
        let response = answer(&layer, request).await;
        assert_eq!(seen(&response), (status, challenge, ""));
        assert_eq!(response.headers()["cache-control"], "no-store");
    };
    refuse(Request::new(String::new()), 401, nobody).await;
    refuse(with(Request::get("/"), "Basic YTpi"), 401, nobody).await;
    // tokens in a query or a form are ignored
    refuse(Request::get(format!("/?access_token={good}")).body(String::new()).unwrap(), 401, nobody).await;
    let form = Request::post("/").header("content-type", "application/x-www-form-urlencoded");
    refuse(form.body(format!("access_token={good}")).unwrap(), 401, nobody).await;

    refuse(bearer(""), 400, malformed).await;
    refuse(bearer(&format!("{good},{good}")), 400, malformed).await;
    refuse(with(Request::get("/").header("authorization", "Basic YTpi"), &format!("Bearer {good}")), 400, malformed)
        .await;

    refuse(bearer("not-a-token"), 401, invalid).await;
    refuse(bearer(&issuer.token(|claims| claims.scope("a:read b").audience("https://other.example"))), 401, invalid)
        .await;
    refuse(bearer(&issuer.token(|claims| claims.scope("a:read b").issuer("https://other.example"))), 401, invalid)
        .await;
    // bound to a key, but without a proof
    refuse(bearer(&issuer.token(|claims| claims.scope("a:read b").bound_to("thumbprint"))), 401, invalid).await;
    refuse(with(Request::get("/"), &format!("DPoP {good}")), 401, invalid).await;

    for scope in ["", "a:read", "b", "A:READ B", "a:read:b b2", "a:readb"] {
        refuse(bearer(&issuer.token(|claims| claims.scope(scope))), 403, narrow).await;
    }
    refuse(bearer(&issuer.token(|claims| claims)), 403, narrow).await;

    let revoked = issuer.token(|claims| claims.scope("a:read b"));
    assert_eq!(answer(&layer, bearer(&revoked)).await.status(), 200);
    issuer.revoke(&revoked);
    refuse(bearer(&revoked), 401, invalid).await;

    issuer.down(true);
    let response = answer(&layer, bearer(&good)).await;
    assert_eq!(seen(&response), (503, "", ""));
    // requests without a token don't need keys
    refuse(Request::new(String::new()), 401, nobody).await;
    issuer.down(false);

    clock.advance(Duration::from_secs(605));
    refuse(bearer(&good), 401, invalid).await;
}

#[tokio::test]
async fn rejected_requests_never_reach_the_service() {
    let (issuer, _) = issuer();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let service =
        BearerLayer::new(issuer.verifier()).require_scope("a").unwrap().layer(service_fn(move |_: Request<String>| {
            counted.fetch_add(1, SeqCst);
            async { Ok::<_, Infallible>(Response::new(String::new())) }
        }));
    for token in ["", "x", &issuer.token(|claims| claims), &issuer.token(|claims| claims.scope("a").expired())] {
        assert!(service.clone().oneshot(bearer(token)).await.unwrap().status().is_client_error());
    }
    assert_eq!(calls.load(SeqCst), 0);
    service.oneshot(bearer(&issuer.token(|claims| claims.scope("a")))).await.unwrap();
    assert_eq!(calls.load(SeqCst), 1);
}

#[tokio::test]
async fn an_optional_token_may_be_missing_but_not_invalid() {
    let (issuer, _) = issuer();
    let layer = BearerLayer::new(issuer.verifier()).optional();
    assert_eq!(seen(&answer(&layer, Request::new(String::new())).await), (200, "", "nobody"));
    assert_eq!(seen(&answer(&layer, with(Request::get("/"), "Basic YTpi")).await), (200, "", "nobody"));
    let token = issuer.token(|claims| claims.subject("ada"));
    assert_eq!(seen(&answer(&layer, bearer(&token)).await), (200, "", "ada of none with "));
    assert_eq!(answer(&layer, bearer("x")).await.status(), 401);
    assert_eq!(answer(&layer, bearer("")).await.status(), 400);
    assert_eq!(answer(&layer, bearer(&issuer.token(TestClaims::expired))).await.status(), 401);
    issuer.down(true);
    assert_eq!(answer(&layer, bearer(&token)).await.status(), 503);
}

#[tokio::test]
async fn a_token_identifies_the_caller_and_hides_secrets() {
    let (issuer, clock) = issuer();
    let now = clock.unix(clock.now());
    let text = issuer.token(|claims| {
        claims
            .subject("ada")
            .client_id("web")
            .tenant(&Tenant::parse("acme").unwrap())
            .scope("openid  orders:read")
            .auth_time(now)
            .acr("2")
            .amr(["pwd", "otp"])
            .id("name-of-the-token")
            .session("session")
    });
    let checked = service_fn(|request: Request<String>| {
        let token = AccessToken::from_extensions(request.extensions()).unwrap().clone();
        async move { Ok::<_, Infallible>(Response::new(token)) }
    });
    // a custom responder can return anything
    let layer = BearerLayer::new(issuer.verifier()).respond_with(
        |_: &tollgate::reject::Rejection, _: tollgate::Head<'_>| -> Response<AccessToken> { panic!("refused") },
    );
    let token = layer.layer(checked).oneshot(bearer(&text)).await.unwrap().into_body();
    assert_eq!((token.subject(), token.client_id(), token.issuer()), ("ada", "web", "https://auth.example"));
    assert_eq!(token.tenant().unwrap().as_str(), "acme");
    assert!(
        token.scopes().eq(["openid", "orders:read"]) && token.audience().eq([API]) && token.amr().eq(["pwd", "otp"])
    );
    assert!(token.has_scope("openid") && !token.has_scope("orders") && !token.has_scope(""));
    assert_eq!((token.id(), token.acr(), token.session()), ("name-of-the-token", Some("2"), Some("session")));
    assert_eq!((token.issued_at(), token.auth_time()), (now, Some(now)));
    assert_eq!(token.expires_at(), now + Duration::from_secs(600));
    let shown = format!("{token:?} {:?} {issuer:?}", issuer.verifier());
    for part in text.split('.') {
        assert!(!shown.contains(part), "{shown}");
    }
}

#[tokio::test]
async fn rejections_use_the_format_of_the_service() {
    let (issuer, _) = issuer();
    let layer = BearerLayer::new(issuer.verifier()).require_scope("a").unwrap();
    let bytes = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(Vec::new())));
    let response = layer.clone().respond_with(ProblemJson).layer(bytes).oneshot(bearer("x")).await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert!(response.headers().contains_key("www-authenticate"));
}

#[tokio::test]
async fn a_grpc_client_gets_trailers_and_the_same_challenge() {
    let (issuer, _) = issuer();
    let layer = BearerLayer::new(issuer.verifier()).require_scope("a").unwrap();
    let grpc =
        |authorization: &str| with(Request::post("/a.B/C").header("content-type", "application/grpc"), authorization);
    let narrow = format!("Bearer {}", issuer.token(|claims| claims));
    for (authorization, code, error) in [
        ("Basic YTpi", "16", "realm"),
        ("Bearer x", "16", "invalid_token"),
        ("Bearer", "3", "invalid_request"),
        (&narrow, "7", "insufficient_scope"),
    ] {
        let response = answer(&layer, grpc(authorization)).await;
        assert_eq!((response.status(), &response.headers()["grpc-status"]), (StatusCode::OK, &code.parse().unwrap()));
        assert!(seen(&response).1.contains(error), "{response:?}");
    }
    issuer.down(true);
    assert_eq!(answer(&layer, grpc(&narrow)).await.headers()["grpc-status"], "14");
}

#[tokio::test]
async fn layers_with_one_verifier_verify_once_and_check_their_own_scopes() {
    let (issuer, _) = issuer();
    let verifier = issuer.verifier().to_builder().cache(0).build();
    let stack = |inner: Verifier| {
        let scoped = BearerLayer::new(inner).require_scope("write").unwrap();
        BearerLayer::new(verifier.clone()).require_scope("read").unwrap().layer(scoped.layer(plain()))
    };
    let narrow = r#"Bearer realm="api", error="insufficient_scope", scope="write""#;
    let answer = async |inner: &Verifier, token: &str| stack(inner.clone()).oneshot(bearer(token)).await.unwrap();
    for inner in [verifier.clone(), issuer.verifier()] {
        let both = issuer.token(|claims| claims.scope("read write"));
        assert_eq!(answer(&inner, &both).await.status(), 200);
        assert_eq!(seen(&answer(&inner, &issuer.token(|claims| claims.scope("read"))).await), (403, narrow, ""));
        assert_eq!(answer(&inner, &issuer.token(|claims| claims.scope("write"))).await.status(), 403);
    }
    // a verifier with other rules does not trust the outer one
    let other = TestIssuer::new("https://auth.example", "https://other.example");
    assert_eq!(answer(&other.verifier(), &issuer.token(|claims| claims.scope("read write"))).await.status(), 401);
    // an unchecked request has no token, no matter what it contains
    let optional = BearerLayer::new(verifier.clone()).optional();
    let inner = optional.layer(BearerLayer::new(verifier.clone()).layer(plain()));
    assert_eq!(inner.oneshot(Request::new(String::new())).await.unwrap().status(), 401);
}

#[tokio::test]
async fn the_tenant_of_the_token_has_its_own_limit() {
    let (issuer, _) = issuer();
    let limiter = Limiter::memory(Plans::new(Quota::per_minute(2).unwrap()));
    let limit: RateLimitLayer = RateLimitLayer::new(AccessTokenTenant, limiter);
    let service = BearerLayer::new(issuer.verifier()).layer(limit.layer(plain()));
    let token = |tenant| issuer.token(|claims| claims.tenant(&Tenant::parse(tenant).unwrap()));
    let call = async |token: &str| service.clone().oneshot(bearer(token)).await.unwrap();
    // tokens of one tenant share a budget
    for expected in [200, 200, 429] {
        assert_eq!(call(&token("acme")).await.status(), expected);
    }
    let other = call(&token("globex")).await;
    assert_eq!((other.status().as_u16(), &other.headers()["x-ratelimit-remaining"]), (200, &"1".parse().unwrap()));
    // without a tenant, there is no budget
    assert!(call(&issuer.token(|claims| claims)).await.status().is_client_error());
}

#[tokio::test]
async fn a_limit_by_token_charges_rates_and_leaves_the_slots_to_a_layer_that_tracks_calls() {
    let (issuer, _) = issuer();
    let plan = Plan::new([Quota::per_minute(4).unwrap(), Quota::concurrent(1).unwrap()]).unwrap();
    let limiter = Limiter::memory(Plans::new(plan));
    let layer = BearerLayer::new(issuer.verifier()).limit(limiter.clone());
    let acme = || bearer(&issuer.token(|claims| claims.tenant(&Tenant::parse("acme").unwrap())));
    let statuses = |response: &Response<_>| (response.status().as_u16(), response.headers().clone());
    let first = layer.layer(plain()).oneshot(acme()).await.unwrap();
    assert_eq!((first.status().as_u16(), &first.headers()["x-ratelimit-remaining"]), (200, &"3".parse().unwrap()));
    let tracking = RateLimitLayer::new(AccessTokenTenant, limiter).tracking_bodies();
    let service = layer.layer(tracking.layer(plain()));
    let (status, headers) = statuses(&service.clone().oneshot(acme()).await.unwrap());
    assert_eq!((status, &headers["x-ratelimit-remaining"]), (200, &"2".parse().unwrap()), "it is charged once");
    let open = service.clone().oneshot(acme()).await.unwrap();
    let (status, headers) = statuses(&service.clone().oneshot(acme()).await.unwrap());
    assert_eq!((status, &headers["x-ratelimit-limit"]), (429, &"1".parse().unwrap()), "the slot is taken");
    drop(open);
    assert_eq!(service.clone().oneshot(acme()).await.unwrap().status(), 429, "no units are left");
}

// ---- axum

async fn page(router: &Router, request: Request<String>) -> (u16, String, String) {
    let response = router.clone().oneshot(request.map(Body::from)).await.unwrap();
    let challenge = response.headers().get("www-authenticate").map_or("", |value| value.to_str().unwrap()).to_owned();
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 4096).await.unwrap();
    (status, challenge, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn axum_handlers_extract_the_token() {
    let (issuer, _) = issuer();
    let routes = Router::new()
        .route("/me", get(async |token: AccessToken| say(Some(&token))))
        .route("/open", get(async |token: Option<AccessToken>| say(token.as_ref())));
    let router = routes
        .clone()
        .layer(BearerLayer::new(issuer.verifier()).optional().realm("site").unwrap())
        .nest("/bare", routes.clone())
        .nest("/closed", routes.layer(BearerLayer::new(issuer.verifier())));
    let token = format!("Bearer {}", issuer.token(|claims| claims.subject("ada").scope("x")));
    let said = "ada of none with x";
    let ask = async |path: &str, token: Option<&str>| {
        let request = Request::get(path);
        let request = match token {
            Some(token) => request.header("authorization", token),
            None => request,
        };
        page(&router, request.body(String::new()).unwrap()).await
    };
    let is = |status: u16, challenge: &str, body: &str| (status, challenge.to_owned(), body.to_owned());
    for path in ["/me", "/open", "/closed/me", "/closed/open"] {
        assert_eq!(ask(path, Some(&token)).await, is(200, "", said), "{path}");
    }
    assert_eq!(ask("/me", None).await, is(401, r#"Bearer realm="site""#, ""));
    assert_eq!(ask("/open", None).await, is(200, "", "nobody"));
    assert_eq!(ask("/closed/open", None).await, is(401, r#"Bearer realm="api""#, ""));
    // a missing layer does not make callers anonymous
    for path in ["/bare/me", "/bare/open"] {
        assert_eq!(ask(path, Some(&token)).await, is(500, "", "no BearerLayer covers this route"), "{path}");
    }
}

#[tokio::test]
async fn the_tenant_of_a_handler_is_that_of_the_token_and_not_the_address_that_was_charged() {
    let (issuer, _) = issuer();
    let limit = RateLimitLayer::new(ClientIp::peer(), Limiter::memory(Plans::new(Quota::per_minute(60).unwrap())));
    let routes = Router::new()
        .route("/", get(async |tenant: Tenant| tenant.to_string()))
        .route("/open", get(async |tenant: Option<Tenant>| tenant.map_or_else(String::new, |it| it.to_string())));
    let bearer = BearerLayer::new(issuer.verifier()).optional();
    let token = issuer.token(|claims| claims.tenant(&Tenant::parse("acme").unwrap()));
    let ask = async |router: Router, path: &str, request: Request<String>| {
        let (mut parts, body) = request.into_parts();
        parts.uri = path.parse().unwrap();
        parts.extensions.insert(PeerAddr(([192, 0, 2, 1], 1234).into()));
        page(&router, Request::from_parts(parts, body)).await.2
    };
    for path in ["/", "/open"] {
        let limited = routes.clone().layer(bearer.clone()).layer(limit.clone());
        assert_eq!(ask(limited.clone(), path, self::bearer(&token)).await, "acme");
        assert_eq!(ask(routes.clone().layer(bearer.clone()), path, self::bearer(&token)).await, "acme");
    }
    // the limit has charged an address, which is no tenant
    let limited = routes.layer(bearer).layer(limit);
    let missing = "no layer of this route proves the tenant, or its extensions are disabled";
    for (path, answer) in [("/", missing), ("/open", "")] {
        assert_eq!(ask(limited.clone(), path, Request::new(String::new())).await, answer);
    }
}

#[tokio::test]
async fn a_caller_who_has_proved_something_cannot_choose_the_tenant_of_a_handler() {
    let (issuer, _) = issuer();
    let sessions = Sessions::new(Memory::new());
    let own = NewSession::new(Tenant::parse("own").unwrap(), UserId::parse("1").unwrap());
    let (cookie, _) = sessions.create(own).await.unwrap();
    let cookie = cookie.header_value().to_str().unwrap().split(';').next().unwrap().to_owned();
    let limiter = Limiter::memory(Plans::new(Quota::per_minute(60).unwrap()));
    let limit = RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap(), limiter);
    let router = Router::new()
        .route("/", get(async |tenant: Option<Tenant>| tenant.map_or_else(String::new, |it| it.to_string())))
        .layer(BearerLayer::new(issuer.verifier()).optional())
        .layer(SessionLayer::new(sessions))
        .layer(limit);
    let of = |tenant: &str| issuer.token(|claims| claims.tenant(&Tenant::parse(tenant).unwrap()));
    let without = issuer.token(|claims| claims.subject("eve"));
    for (token, has_session, expected) in [
        (None, false, ""),
        (None, true, "own"),
        (Some(of("own")), false, "own"),
        (Some(of("own")), true, "own"),
        (Some(of("other")), true, ""),
        (Some(without.clone()), false, ""),
        (Some(without), true, ""),
    ] {
        let mut request = Request::get("/").header("x-tenant", "claimed").header("sec-fetch-site", "same-origin");
        if let Some(token) = &token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if has_session {
            request = request.header("cookie", &cookie);
        }
        let answer = page(&router, request.body(String::new()).unwrap()).await;
        assert_eq!((answer.0, &*answer.2), (200, expected), "{} {has_session}", token.is_some());
    }
}

// ---- tokens bound to a key

const ALGS: &str = r#"algs="ES256 EdDSA Ed25519 RS256""#;

struct Bound {
    issuer: TestIssuer,
    clock: ManualClock,
    key: DpopKey,
    token: String,
}

impl Bound {
    fn new() -> Self {
        let ((issuer, clock), key) = (issuer(), DpopKey::generate());
        let token = issuer.token(|claims| claims.subject("ada").bound_to(key.thumbprint()));
        Self { issuer, clock, key, token }
    }

    fn verifier(&self) -> Verifier {
        self.issuer.verifier().to_builder().dpop(API).unwrap().build()
    }

    fn proof(&self) -> String {
        self.proof_of(&self.key, &self.token)
    }

    fn proof_of(&self, key: &DpopKey, token: &str) -> String {
        key.proof("GET", &format!("{API}/me")).token(token).issued_at(self.clock.unix(self.clock.now())).sign()
    }

    fn request(&self, scheme: &str, proofs: &[&str]) -> Request<String> {
        let request = proofs.iter().fold(Request::get("/me?x=1"), |request, proof| request.header("dpop", *proof));
        with(request, &format!("{scheme} {}", self.token))
    }
}

#[tokio::test]
async fn c100_a_bound_token_needs_a_new_proof_of_its_key_each_time() {
    let bound = Bound::new();
    let layer = BearerLayer::new(bound.verifier());
    for _ in 0..3 {
        let response = answer(&layer, bound.request("DPoP", &[&bound.proof()])).await;
        assert_eq!(seen(&response), (200, "", "ada of none with "));
    }
    let error = |scheme: &str, error: &str| match scheme {
        "Bearer" => format!(r#"Bearer realm="api", error="{error}", DPoP realm="api", {ALGS}"#),
        _ => format!(r#"Bearer realm="api", DPoP realm="api", error="{error}", {ALGS}"#),
    };
    let refuse = async |request: Request<String>, expected: String| {
        assert_eq!(seen(&answer(&layer, request).await), (401, expected.as_str(), ""));
    };
    let once = bound.proof();
    assert_eq!(answer(&layer, bound.request("dpop", &[&once])).await.status(), 200);
    refuse(bound.request("DPoP", &[&once]), error("DPoP", "invalid_dpop_proof")).await;
    refuse(bound.request("DPoP", &[]), error("DPoP", "invalid_dpop_proof")).await;
    refuse(bound.request("DPoP", &[&bound.proof(), &bound.proof()]), error("DPoP", "invalid_dpop_proof")).await;
    refuse(bound.request("DPoP", &["x"]), error("DPoP", "invalid_dpop_proof")).await;
    // the proof of a thief
    let thief = DpopKey::generate();
    refuse(bound.request("DPoP", &[&bound.proof_of(&thief, &bound.token)]), error("DPoP", "invalid_token")).await;
    refuse(bound.request("Bearer", &[]), error("Bearer", "invalid_token")).await;
    refuse(bound.request("Bearer", &[&bound.proof()]), error("Bearer", "invalid_token")).await;
    // for another token, another path, another method
    let other = bound.issuer.token(|claims| claims.bound_to(bound.key.thumbprint()));
    refuse(bound.request("DPoP", &[&bound.proof_of(&bound.key, &other)]), error("DPoP", "invalid_dpop_proof")).await;
    let proof = |method: &str, url: &str| {
        let now = bound.clock.unix(bound.clock.now());
        bound.key.proof(method, url).token(&bound.token).issued_at(now).sign()
    };
    for (method, url) in [
        ("GET", "https://api.example/other"),
        ("GET", "https://api.example"),
        ("GET", "http://api.example/me"),
        ("GET", "https://attacker.example/me"),
        ("POST", "https://api.example/me"),
    ] {
        refuse(bound.request("DPoP", &[&proof(method, url)]), error("DPoP", "invalid_dpop_proof")).await;
    }
    // and the other way round
    for (method, status) in [("GET", 401), ("POST", 200)] {
        let request = Request::post("/me").header("dpop", proof(method, "https://api.example/me"));
        let response = answer(&layer, with(request, &format!("DPoP {}", bound.token))).await;
        assert_eq!(response.status(), status, "{method}");
    }
    // an invalid token with any proof
    let request = Request::get("/me").header("dpop", bound.proof_of(&bound.key, "x"));
    refuse(with(request, "DPoP x"), error("DPoP", "invalid_token")).await;
    // a proof grants no additional scope
    let scoped = layer.clone().require_scope("a").unwrap();
    let narrow = format!(r#"Bearer realm="api", DPoP realm="api", error="insufficient_scope", scope="a", {ALGS}"#);
    let response = answer(&scoped, bound.request("DPoP", &[&bound.proof()])).await;
    assert_eq!(seen(&response), (403, narrow.as_str(), ""));
    // an unbound token needs no proof, and gains nothing by one
    let free = bound.issuer.token(|claims| claims.subject("grace"));
    assert_eq!(answer(&layer, bearer(&free)).await.body(), "grace of none with ");
    let request = Request::get("/me").header("dpop", bound.proof_of(&bound.key, &free));
    refuse(with(request, &format!("DPoP {free}")), error("DPoP", "invalid_token")).await;
    let request = Request::get("/").body(String::new()).unwrap();
    refuse(request, format!(r#"Bearer realm="api", DPoP realm="api", {ALGS}"#)).await;
    assert_eq!(answer(&layer, with(Request::get("/"), "DPoP")).await.status(), 400);
    // and the first service still accepts the next proof
    assert_eq!(answer(&layer, bound.request("DPoP", &[&bound.proof()])).await.status(), 200);
}

/// A clock that counts its readings: verifying a proof needs one.
#[derive(Debug)]
struct Counting(ManualClock, Arc<AtomicUsize>);

impl Clock for Counting {
    fn now(&self) -> Moment {
        self.1.fetch_add(1, SeqCst);
        self.0.now()
    }

    fn unix(&self, moment: Moment) -> UnixTime {
        self.0.unix(moment)
    }
}

#[tokio::test]
async fn c100_proofs_are_verified_only_with_valid_tokens() {
    let (_, clock) = issuer();
    let asked = Arc::new(AtomicUsize::new(0));
    let issuer = TestIssuer::new("https://auth.example", API).clock(Counting(clock.clone(), Arc::clone(&asked)));
    let key = DpopKey::generate();
    let layer = BearerLayer::new(issuer.verifier().to_builder().dpop(API).unwrap().build());
    let request = |token: &str| {
        let proof = key.proof("GET", &format!("{API}/")).token(token).issued_at(clock.unix(clock.now())).sign();
        with(Request::get("/").header("dpop", proof), &format!("DPoP {token}"))
    };
    let good = issuer.token(|claims| claims.bound_to(key.thumbprint()));
    let (signed, _) = good.rsplit_once('.').unwrap();
    // of an impostor with the same name: its key has to be fetched
    let other = TestIssuer::new("https://auth.example", API).token(|claims| claims.bound_to(key.thumbprint()));
    for bad in ["x", &format!("{signed}.AAAA"), &other] {
        asked.store(0, SeqCst);
        assert_eq!(answer(&layer, request(bad)).await.status(), 401);
        assert_eq!(asked.load(SeqCst), 0, "{bad}");
    }
    assert_eq!(answer(&layer, request(&good)).await.status(), 200);
    assert!(asked.load(SeqCst) > 1);
}

#[tokio::test]
async fn c100_stacked_layers_and_services_with_one_store_accept_a_proof_once() {
    let bound = Bound::new();
    let verifier = bound.verifier();
    let inner = BearerLayer::new(verifier.clone()).layer(plain());
    let service = BearerLayer::new(verifier).layer(inner);
    assert_eq!(service.oneshot(bound.request("DPoP", &[&bound.proof()])).await.unwrap().status(), 200);

    let store = AnyStore::from(Memory::new());
    let node = || BearerLayer::new(bound.verifier().to_builder().dpop_store(store.clone()).build());
    let (one, other, proof) = (node(), node(), bound.proof());
    assert_eq!(answer(&one, bound.request("DPoP", &[&proof])).await.status(), 200);
    assert_eq!(answer(&other, bound.request("DPoP", &[&proof])).await.status(), 401);
}

#[tokio::test]
async fn c100_a_required_nonce_is_sent_with_each_response_to_a_proof() {
    let bound = Bound::new();
    let layer = BearerLayer::new(bound.verifier().to_builder().dpop_nonces(&Secret::generate()).build())
        .require_scope("a")
        .unwrap();
    let bound =
        Bound { token: bound.issuer.token(|claims| claims.scope("a").bound_to(bound.key.thumbprint())), ..bound };
    let response = answer(&layer, bound.request("DPoP", &[&bound.proof()])).await;
    let expected = format!(r#"Bearer realm="api", DPoP realm="api", error="use_dpop_nonce", {ALGS}"#);
    assert_eq!(seen(&response), (401, expected.as_str(), ""));
    let nonce = response.headers()["dpop-nonce"].to_str().unwrap();
    let proof = |nonce: &str| {
        let proof = bound.key.proof("GET", &format!("{API}/me")).token(&bound.token);
        proof.issued_at(bound.clock.unix(bound.clock.now())).nonce(nonce).sign()
    };
    let response = answer(&layer, bound.request("DPoP", &[&proof(nonce)])).await;
    assert_eq!((response.status().as_u16(), response.headers()["dpop-nonce"].to_str().unwrap()), (200, nonce));
    assert_eq!(answer(&layer, bound.request("DPoP", &[&proof("x")])).await.status(), 401);
    // in whichever place proofs are remembered
    let stored = bound
        .verifier()
        .to_builder()
        .dpop_nonces(&Secret::generate())
        .dpop_store(AnyStore::from(Memory::new()))
        .build();
    let response = answer(&BearerLayer::new(stored), bound.request("DPoP", &[&bound.proof()])).await;
    assert!(response.status() == 401 && response.headers().contains_key("dpop-nonce"));
    // requests without a proof get no nonce
    let free = bound.issuer.token(|claims| claims.scope("a"));
    let response = answer(&layer, bearer(&free)).await;
    assert!(response.status() == 200 && !response.headers().contains_key("dpop-nonce"));
}

#[tokio::test]
async fn c100_the_base_url_is_prepended_to_the_path() {
    let bound = Bound::new();
    let url = "https://api.example/v1/me";
    let service = Router::new()
        .route("/me", get(async |token: AccessToken| say(Some(&token))))
        .layer(BearerLayer::new(bound.issuer.verifier().to_builder().dpop("https://api.example/v1").unwrap().build()));
    let router = Router::new().nest("/v1", service);
    let proof = bound.key.proof("GET", url).token(&bound.token).issued_at(bound.clock.unix(bound.clock.now())).sign();
    let request = Request::builder().method(Method::GET).uri("/v1/me").header("dpop", proof);
    let (status, _, body) = page(&router, with(request, &format!("DPoP {}", bound.token))).await;
    assert_eq!((status, body.as_str()), (200, "ada of none with "));
    for bad in ["", "api.example", "http://api.example", "https://api.example/", "https://api.example?x"] {
        assert!(bound.issuer.verifier().to_builder().dpop(bad).is_err(), "{bad}");
    }
}

#[test]
fn invalid_settings_are_rejected() {
    let layer = BearerLayer::new(issuer().0.verifier());
    for bad in ["", "a b", "a\"", "a\\", "é", "a\n"] {
        assert_eq!(layer.clone().require_scope(bad).unwrap_err().setting(), "required scope", "{bad:?}");
    }
    for bad in ["a\"", "\\", "é", "a\n"] {
        assert_eq!(layer.clone().realm(bad).unwrap_err().setting(), "bearer realm", "{bad:?}");
    }
}
