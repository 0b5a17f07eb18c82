//! Audit: work for requests before anybody is charged for them.

use std::{
    convert::Infallible,
    net::IpAddr,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use http::{Request, Response};
use tokio::sync::Semaphore;
use tollgate::{
    BearerLayer, Client, ClientIp, ClientTable, Limiter, Plans, Quota, RateLimit, RateLimitLayer,
    auth::AbuseLimits,
    bearer::AccessTokenTenant,
    body::Body,
    client::Clients,
    store::{Memory, StoreError},
    testing::{DpopKey, ManualClock},
};
use tower::{Layer, ServiceExt, service_fn};

use crate::{
    issued_tokens::IssuedTokens,
    token_requests::redemption,
    world::{Answer, Browser, ISSUER, World, clients, form_of, join, posted},
};

const ELSEWHERE: [u8; 4] = [192, 0, 2, 2];

/// A database of clients that counts lookups. They wait for a permit.
#[derive(Clone)]
struct Database {
    table: ClientTable,
    lookups: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

impl Database {
    fn new() -> Self {
        Self { table: clients(), lookups: Arc::default(), gate: Arc::new(Semaphore::new(1_000_000)) }
    }

    fn lookups(&self) -> usize {
        self.lookups.swap(0, SeqCst)
    }
}

impl Clients for Database {
    async fn find(&self, client_id: &str) -> Result<Option<Arc<Client>>, StoreError> {
        self.lookups.fetch_add(1, SeqCst);
        let _permit = self.gate.acquire().await.unwrap();
        self.table.find(client_id).await
    }

    async fn allows_origin(&self, origin: &str) -> Result<bool, StoreError> {
        self.lookups.fetch_add(1, SeqCst);
        self.table.allows_origin(origin).await
    }
}

fn limiter(clock: &ManualClock, units: u32, seconds: u64) -> Limiter {
    let quota = Quota::new(units, Duration::from_secs(seconds)).unwrap();
    Limiter::builder(Plans::new(quota)).clock(clock.clone()).build().unwrap()
}

/// A world in which each address may send five bad requests a minute.
async fn world() -> World {
    World::with(Memory::new(), |service| {
        service.abuse_limits(AbuseLimits::new().unverified_per_address(Quota::per_minute(5).unwrap()))
    })
    .await
}

fn is_refused(answer: &Answer) -> bool {
    answer.status == 429 && answer.error() == "rate_limit_exceeded" && !answer.header("retry-after").is_empty()
}

#[tokio::test]
async fn a02_an_address_that_sends_bad_tokens_and_hints_is_refused_before_they_are_checked() {
    let world = world().await;
    let mut browser = world.browser();
    let given = browser.tokens("web", "openid").await;
    let bad = format!("{}.AAAA", given.access.rsplit_once('.').unwrap().0);
    let hint = format!("/logout?id_token_hint={}.AAAA", given.id().rsplit_once('.').unwrap().0);
    for round in 0..2 {
        for n in 0..5 {
            let answer = match round {
                0 => browser.with_token("/userinfo", &bad).await,
                _ => browser.get(&hint).await,
            };
            assert!(answer.status != 429, "{round} {n}: {answer:?}");
        }
        assert!(is_refused(&browser.with_token("/userinfo", &bad).await), "{round}");
        assert!(is_refused(&browser.with_token("/userinfo", &given.access).await), "a good one is not told apart");
        assert!(is_refused(&browser.get(&hint).await), "{round}");
        assert!(is_refused(&browser.refresh("web", given.refresh()).await), "{round}");
        let mut elsewhere = Browser { address: IpAddr::from(ELSEWHERE), ..browser.clone() };
        assert_eq!(
            elsewhere.with_token("/userinfo", &given.access).await.status,
            200,
            "other addresses are not concerned"
        );
        world.advance(60);
    }
    assert_eq!(browser.with_token("/userinfo", &given.access).await.status, 200);
}

#[tokio::test]
async fn a02_good_requests_count_against_no_address() {
    let world = world().await;
    let mut browser = world.browser();
    for _ in 0..3 {
        let given = browser.tokens("web", "openid").await;
        let next = IssuedTokens::of(&browser.refresh("web", given.refresh()).await);
        for _ in 0..3 {
            assert_eq!(browser.with_token("/userinfo", &next.access).await.status, 200);
            assert_eq!(browser.introspect("web", &next.access).await["active"], true);
        }
        assert_eq!(browser.log_out("web", next.id()).await.status, 200);
    }
}

#[tokio::test]
async fn a02_by_default_an_address_can_send_600_bad_requests_a_minute() {
    let database = Database::new();
    let own = database.clone();
    let world = World::with(Memory::new(), |service| service.clients(own)).await;
    let mut browser = world.browser();
    for n in 0..605 {
        let answer = browser.revoke(&format!("made-up-{n}"), "x").await;
        assert_eq!(is_refused(&answer), n >= 600, "{n}: {answer:?}");
    }
    assert_eq!(database.lookups(), 600);
}

#[tokio::test]
async fn a02_requests_beyond_the_budget_of_a_tenant_look_up_clients_within_the_budget_of_their_address() {
    let (clock, database) = (ManualClock::new(), Database::new());
    let (own, tenants) = (database.clone(), limiter(&clock, 2, 60));
    let world = World::on(Memory::new().into(), clock, |service| {
        service
            .clients(own)
            .limiter(tenants)
            .abuse_limits(AbuseLimits::new().unverified_per_address(Quota::per_minute(5).unwrap()))
    })
    .await;
    let mut browser = world.browser();
    for n in 0..50 {
        assert_eq!(browser.revoke("web", "x").await.status == 200, n < 2, "{n}");
    }
    assert_eq!(database.lookups(), 2 + 5);
    // nor does a page learn that it may read the answer
    for _ in 0..50 {
        let request = posted("/revoke").header("origin", "https://app.example");
        assert_eq!(browser.send(request, form_of(&[("client_id", "web"), ("token", "x")])).await.status, 429);
    }
    assert_eq!(database.lookups(), 0);
}

#[tokio::test]
async fn a02_where_addresses_are_unknown_so_much_unverified_work_is_done_at_once() {
    let database = Database::new();
    let own = database.clone();
    let world = World::with(Memory::new(), |service| {
        service
            .clients(own)
            .client_ip(ClientIp::unknown())
            .abuse_limits(AbuseLimits::new().unverified_at_once(NonZeroU32::new(3).unwrap()))
    })
    .await;
    let (browser, gate) = (world.browser(), Arc::clone(&database.gate));
    gate.forget_permits(1_000_000);
    // the last one opens the gate, once all others wait at it or were refused
    let calls = (0..11).map(|n| {
        let (mut browser, gate) = (browser.clone(), Arc::clone(&gate));
        async move {
            if n == 10 {
                gate.add_permits(1_000_000);
                return 0;
            }
            browser.revoke("web", "x").await.status.as_u16()
        }
    });
    let mut answers = join(calls).await;
    answers.sort_unstable();
    assert_eq!(answers, [0, 200, 200, 200, 503, 503, 503, 503, 503, 503, 503]);
    assert_eq!(database.lookups(), 3);
    // their places are free again
    for _ in 0..10 {
        assert_eq!(browser.clone().revoke("web", "x").await.status, 200);
    }
}

/// Tokens of ada that are bound to this key.
async fn bound(world: &World, key: &DpopKey) -> IssuedTokens {
    let mut browser = world.browser();
    let code = browser.sign_in("web").await;
    let proof = key.proof("POST", &format!("{ISSUER}/token")).issued_at(world.time()).sign();
    IssuedTokens::of(&browser.send(posted("/token").header("dpop", proof), form_of(&redemption("web", &code))).await)
}

async fn info(browser: &mut Browser, access: &str, proof: &str) -> Answer {
    let request = Request::get("/userinfo").header("authorization", format!("DPoP {access}")).header("dpop", proof);
    browser.send(request, "").await
}

#[tokio::test]
async fn a02_what_is_cheap_to_check_in_a_proof_comes_before_its_signature() {
    let world = World::new().await;
    let (mut browser, key, other) = (world.browser(), DpopKey::generate(), DpopKey::generate());
    let access = bound(&world, &key).await.access;
    let proof = |key: &DpopKey, method: &str, path: &str| {
        let signed = key.proof(method, &format!("{ISSUER}{path}")).issued_at(world.time()).token(&access).sign();
        format!("{}.AAAA", signed.rsplit_once('.').unwrap().0)
    };
    let early = tollgate::clock::UnixTime::from_secs(world.time().as_secs() - 61);
    let old = key.proof("GET", &format!("{ISSUER}/userinfo")).issued_at(early).token(&access).sign();
    for (proof, detail) in [
        (proof(&key, "POST", "/userinfo"), "the proof is for another method"),
        (proof(&key, "GET", "/token"), "the proof is for another URL"),
        (format!("{}.AAAA", old.rsplit_once('.').unwrap().0), "the proof is too old"),
        (proof(&other, "GET", "/userinfo"), "the access token is not valid"),
        (proof(&key, "GET", "/userinfo"), "the proof is not signed by the key that it contains"),
    ] {
        assert_eq!(info(&mut browser, &access, &proof).await.json()["error_description"], detail);
    }
}

#[tokio::test]
async fn a02_a_proof_is_not_stored_for_a_request_beyond_the_budget_of_its_tenant() {
    let clock = ManualClock::new();
    let tenants = limiter(&clock, 20, 10);
    let own = tenants.clone();
    let world = World::on(Memory::new().into(), clock, |service| service.limiter(own)).await;
    let (mut browser, key) = (world.browser(), DpopKey::generate());
    let access = bound(&world, &key).await.access;
    let acme = "acme".parse().unwrap();
    while tenants.check(&acme, 1).is_admitted() {}
    let proof = key.proof("GET", &format!("{ISSUER}/userinfo")).issued_at(world.time()).token(&access).sign();
    assert!(is_refused(&info(&mut browser, &access, &proof).await));
    world.advance(10);
    assert_eq!(info(&mut browser, &access, &proof).await.status, 200, "it was not used up");
    assert_eq!(info(&mut browser, &access, &proof).await.error(), "invalid_dpop_proof");
}

/// Returns the response of an API behind these layers.
async fn at_api<L, S>(layer: L, access: &str, proof: Option<&str>) -> Response<Body>
where
    L: Layer<tower::util::BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>, Service = S>,
    S: tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let inner = service_fn(async |request: Request<Body>| {
        let mut response = Response::new(Body::empty());
        if let Some(limit) = RateLimit::from_extensions(request.extensions()) {
            response.headers_mut().insert("charged", limit.key().as_str().parse().unwrap());
        }
        Ok::<_, Infallible>(response)
    });
    let scheme = if proof.is_some() { "DPoP" } else { "Bearer" };
    let mut request = Request::get("/orders").header("authorization", format!("{scheme} {access}"));
    if let Some(proof) = proof {
        request = request.header("dpop", proof);
    }
    let service = layer.layer(tower::util::BoxCloneSyncService::new(inner));
    service.oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn a02_a_bearer_layer_charges_the_tenant_before_it_remembers_a_proof() {
    let world = World::new().await;
    let (key, other) = (DpopKey::generate(), DpopKey::generate());
    let access = bound(&world, &key).await.access;
    for in_store in [false, true] {
        let verifier = world.service.verifier().to_builder().dpop("https://api.example").unwrap();
        let verifier = if in_store { verifier.dpop_store(world.store.clone()).build() } else { verifier.build() };
        let layer = || BearerLayer::new(verifier.clone()).limit(limiter(&world.clock, 2, 10));
        let layer = layer();
        let proof = |key: &DpopKey| {
            key.proof("GET", "https://api.example/orders").issued_at(world.time()).token(&access).sign()
        };
        for left in ["1", "0"] {
            let answer = at_api(layer.clone(), &access, Some(&proof(&key))).await;
            assert_eq!(answer.status(), 200);
            assert_eq!(
                (&answer.headers()["x-ratelimit-remaining"], &answer.headers()["charged"]),
                (&left.parse().unwrap(), &"acme".parse().unwrap())
            );
        }
        let refused = proof(&key);
        let answer = at_api(layer.clone(), &access, Some(&refused)).await;
        assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (429, &"10".parse().unwrap()));
        world.advance(10);
        // strangers and thieves spend nothing
        assert_eq!(at_api(layer.clone(), &access, Some(&proof(&other))).await.status(), 401);
        assert_eq!(at_api(layer.clone(), &access, None).await.status(), 401);
        assert_eq!(at_api(layer.clone(), "x", None).await.status(), 401);
        let answer = at_api(layer.clone(), &access, Some(&refused)).await;
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["x-ratelimit-remaining"]),
            (200, &"1".parse().unwrap())
        );
        assert_eq!(at_api(layer.clone(), &access, Some(&refused)).await.status(), 401, "now it is used up");
        world.advance(10);
    }
}

#[tokio::test]
async fn a02_layers_with_the_same_limiter_charge_a_token_once() {
    let world = World::new().await;
    let access = world.browser().tokens("web", "openid").await.access;
    let (limiter, verifier) = (limiter(&world.clock, 10, 60), world.service.verifier());
    let bearer = || BearerLayer::new(verifier.clone()).limit(limiter.clone());
    let inner = RateLimitLayer::new(AccessTokenTenant, limiter.clone());
    let answer = at_api((bearer(), bearer(), inner), &access, None).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(limiter.peek(&"acme".parse().unwrap()).unwrap().remaining(), 9);
    // a valid token that lacks a scope is charged too
    let narrow = bearer().require_scope("admin").unwrap();
    assert_eq!(at_api(narrow, &access, None).await.status(), 403);
    assert_eq!(limiter.peek(&"acme".parse().unwrap()).unwrap().remaining(), 8);
}
