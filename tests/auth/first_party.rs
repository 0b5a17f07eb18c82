//! Sign-in and sign-out of the site itself, and the layer that protects its routes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{Router, routing::get};
use http::{Request, header};
use serde_json::{Value, json};
use tokio::task::yield_now;
use tollgate::{
    Client, Head, Identifier, NewUser, Session, Tenant, UserId, Users,
    auth::AuthServiceBuilder,
    client::Clients,
    store::{Memory, StoreError},
    tenant::{TenantError, TenantSource},
    user::{Account, Claims, ClaimsRequest, PasswordAttempt, PasswordCheck, StoredUsers},
};
use tower::ServiceExt;

use crate::{
    controlled_store::ControlledStore,
    world::{ADA, ADA_PASSWORD, Answer, Browser, GRACE, GRACE_PASSWORD, World, encode, form_of, join, with},
};

const BUILT_IN: &str = "this site";

fn tenant(name: &str) -> Tenant {
    name.parse().unwrap()
}

async fn world() -> World {
    World::with(Memory::new(), |service| service.first_party(tenant("acme"))).await
}

/// Returns the query of a redirect.
fn query(answer: &Answer) -> BTreeMap<String, String> {
    let (_, query) = answer.header("location").split_once('?').unwrap();
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
    query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap())
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

/// Opens `/sign-in` and returns the parameters that the login page must post.
async fn begin(browser: &mut Browser, return_to: &str) -> Value {
    let answer = browser.get(&format!("/sign-in?return_to={}", encode(return_to))).await;
    assert_eq!(answer.status, 303, "{answer:?}");
    assert!(answer.header("location").starts_with("/authentication/start?"), "{answer:?}");
    json!(query(&answer))
}

/// Signs in by password up to `complete`, as the login page does. Returns the login id.
async fn complete(browser: &mut Browser, fields: &Value, who: &str, password: &str) -> String {
    let started = browser.post("/authentication/start", &with(fields.clone(), &[("identifier", who)])).await;
    assert_eq!(started.status, 200, "{started:?}");
    let id = started.json()["session_id"].as_str().unwrap().to_owned();
    let own =
        with(fields.clone(), &[("session_id", &id), ("method", "password"), ("username", who), ("password", password)]);
    assert_eq!(browser.post("/authentication/authenticate", &own).await.status, 200);
    let own = with(fields.clone(), &[("session_id", &id)]);
    assert_eq!(browser.post("/authentication/complete", &own).await.status, 200);
    id
}

async fn sign_in(browser: &mut Browser, return_to: &str) -> Answer {
    let fields = begin(browser, return_to).await;
    complete(browser, &fields, ADA, ADA_PASSWORD).await;
    browser.get("/sign-in/finish").await
}

/// Posts to `/sign-out` like a page of this site.
async fn sign_out(browser: &mut Browser, fields: &[(&str, &str)]) -> Answer {
    let request = crate::world::posted("/sign-out").header("sec-fetch-site", "same-origin");
    browser.send(request, form_of(fields)).await
}

async fn sessions(world: &World, user: &str) -> Vec<Session> {
    world.sessions.list(&tenant("acme"), &UserId::parse(user).unwrap()).await.unwrap()
}

fn has_session(browser: &Browser) -> bool {
    browser.cookies.keys().any(|name| name.starts_with("__Host-session_"))
}

#[tokio::test]
async fn a_user_signs_in_to_the_site_and_returns_to_the_page_without_a_code() {
    let world = world().await;
    let mut browser = world.browser();
    let fields = begin(&mut browser, "/account?tab=1&x=%2F#top").await;
    assert_eq!(fields["client_id"], BUILT_IN);
    assert_eq!(fields["redirect_uri"], "https://auth.example/sign-in/finish");
    assert_eq!((&fields["response_type"], &fields["code_challenge_method"]), (&json!("code"), &json!("S256")));
    assert_ne!(fields["code_challenge"], begin(&mut browser, "/").await["code_challenge"], "each challenge is new");
    assert!(browser.cookies.is_empty());

    let page = Request::get(format!("/authentication/start?{}", crate::world::query_of(&fields)));
    let described = browser.send(page.header("accept", "application/json"), "").await.json();
    assert_eq!(described["continue_to"], "/sign-in/finish");
    assert_eq!(described["redirect"], json!({ "kind": "site", "host": "auth.example" }));

    complete(&mut browser, &fields, ADA, ADA_PASSWORD).await;
    assert!(!has_session(&browser), "the session begins when the login is used up");
    let finished = browser.get("/sign-in/finish").await;
    assert_eq!((finished.status.as_u16(), finished.header("location")), (303, "/account?tab=1&x=%2F#top"));
    assert_eq!(browser.cookies.len(), 2, "the cookie of the login was removed: {:?}", browser.cookies);
    assert!(has_session(&browser));
    let live = sessions(&world, "u-ada").await;
    assert_eq!(live.len(), 1);
    assert_eq!(live[0].amr().collect::<Vec<_>>(), ["pwd"]);

    // a reload has no login to finish, and continues as the signed-in user
    let again = browser.get("/sign-in/finish").await;
    assert_eq!((again.status.as_u16(), again.header("location")), (303, "/sign-in"));
    let straight = browser.get("/sign-in?return_to=%2Faccount").await;
    assert_eq!((straight.status.as_u16(), straight.header("location")), (303, "/account"));
    assert_eq!(browser.get("/sign-in").await.header("location"), "/");
    assert_eq!(sessions(&world, "u-ada").await[0].sid(), live[0].sid());
}

#[tokio::test]
async fn a_login_begins_one_session_even_if_many_requests_finish_it() {
    let world = world().await;
    let mut browser = world.browser();
    let fields = begin(&mut browser, "/").await;
    complete(&mut browser, &fields, ADA, ADA_PASSWORD).await;
    let head = browser.send(Request::head("/sign-in/finish"), "").await;
    assert_eq!(head.header("location"), "/sign-in");
    let ahead = browser.send(Request::get("/sign-in/finish").header("sec-purpose", "prefetch"), "").await;
    assert_eq!(ahead.status, 503);
    assert_eq!(sessions(&world, "u-ada").await.len(), 0);

    let tabs = (0..8).map(|_| {
        let mut tab = browser.clone();
        async move { tab.get("/sign-in/finish").await }
    });
    let answers = join(tabs).await;
    let finished = answers.iter().filter(|answer| answer.header("location") == "/");
    assert_eq!(finished.count(), 1, "{answers:?}");
    assert_eq!(sessions(&world, "u-ada").await.len(), 1);
}

#[tokio::test]
async fn another_browser_cannot_finish_a_login() {
    let world = world().await;
    let (mut browser, mut other) = (world.browser(), world.browser());
    let fields = begin(&mut browser, "/").await;
    complete(&mut browser, &fields, ADA, ADA_PASSWORD).await;
    assert_eq!(other.get("/sign-in/finish").await.header("location"), "/sign-in");
    assert!(!has_session(&other));
    assert_eq!(browser.get("/sign-in/finish").await.header("location"), "/");
}

#[tokio::test]
async fn an_account_disabled_during_the_login_gets_no_session() {
    let world = world().await;
    let mut browser = world.browser();
    let fields = begin(&mut browser, "/").await;
    complete(&mut browser, &fields, ADA, ADA_PASSWORD).await;
    world.users.disable(&tenant("acme"), &UserId::parse("u-ada").unwrap()).await.unwrap();
    let refused = browser.get("/sign-in/finish").await;
    assert_eq!((refused.status.as_u16(), refused.error().as_str()), (403, "access_denied"));
    assert!(!has_session(&browser));
}

const ELSEWHERE: [&str; 11] = [
    "//evil.example",
    "/\\evil.example",
    "https://evil.example",
    "https://auth.example/",
    "user@evil.example",
    "javascript:alert(1)",
    "/%2Fevil.example",
    "/%5cevil.example",
    "/%252fevil.example",
    "/a%0d%0aset-cookie:x",
    "/\tevil.example",
];

#[tokio::test]
async fn c122_return_to_never_leaves_the_site_and_never_leads_back_to_the_sign_in() {
    let world = world().await;
    let mut browser = world.browser();
    let fields = begin(&mut browser, "/").await;
    let own = ["/sign-in", "/sign-in?return_to=/", "/sign-in/finish", "/sign-out", "/a/../sign%2Dout/"];
    for bad in ELSEWHERE.iter().chain(&own) {
        let answer = browser.get(&format!("/sign-in?return_to={}", encode(bad))).await;
        assert_eq!((answer.status.as_u16(), answer.error().as_str()), (400, "invalid_request"), "{bad}");
        let body = with(fields.clone(), &[("identifier", ADA), ("return_to", bad)]);
        let answer = browser.post("/authentication/start", &body).await;
        assert_eq!((answer.status.as_u16(), answer.error().as_str()), (400, "invalid_request"), "{bad}");
        assert!(answer.header("set-cookie").is_empty());
    }
    assert_eq!(browser.get("/sign-in?return_to=/a&return_to=/b").await.status, 400);

    sign_in(&mut browser, "/").await;
    for bad in ELSEWHERE.iter().chain(&own) {
        let answer = sign_out(&mut browser, &[("return_to", bad)]).await;
        assert_eq!((answer.status.as_u16(), answer.error().as_str()), (400, "invalid_request"), "{bad}");
    }
    assert_eq!(sessions(&world, "u-ada").await.len(), 1);
}

/// A client store that claims to know every id.
struct ClaimsEveryId(Arc<Client>);

impl Clients for ClaimsEveryId {
    async fn find(&self, _: &str) -> Result<Option<Arc<Client>>, StoreError> {
        Ok(Some(Arc::clone(&self.0)))
    }

    async fn allows_origin(&self, _: &str) -> Result<bool, StoreError> {
        Ok(false)
    }
}

#[tokio::test]
async fn c123_the_built_in_client_gets_no_codes_or_tokens_even_if_its_id_is_registered() {
    assert!(Client::new(BUILT_IN, tenant("acme")).is_err());
    let careless = |service: AuthServiceBuilder| {
        let client = Client::new("any", tenant("acme")).unwrap().scopes("openid").unwrap();
        let client = client.redirect_uri("https://auth.example/sign-in/finish").unwrap();
        service.first_party(tenant("acme")).clients(ClaimsEveryId(Arc::new(client)))
    };
    for world in [world().await, World::with(Memory::new(), careless).await] {
        let mut browser = world.browser();
        let fields = begin(&mut browser, "/").await;
        complete(&mut browser, &fields, ADA, ADA_PASSWORD).await;
        let query = crate::world::query_of(&fields);
        let refused = |answer: Answer| {
            assert_eq!((answer.status.as_u16(), answer.error().as_str()), (400, "invalid_client"), "{answer:?}");
            assert!(answer.header("location").is_empty());
        };
        refused(browser.get(&format!("/authorize?{query}&state=xyz")).await);
        refused(browser.send(crate::world::posted("/par"), query.clone()).await);
        for grant in [
            [("grant_type", "authorization_code"), ("code", "x")],
            [("grant_type", "refresh_token"), ("refresh_token", "x")],
        ] {
            let fields = [("client_id", BUILT_IN), ("code_verifier", crate::world::VERIFIER)];
            refused(browser.form("/token", &[&grant[..], &fields[..]].concat()).await);
        }
        // the login still works at `/sign-in/finish`
        assert_eq!(browser.get("/sign-in/finish").await.header("location"), "/");
        let codes = tollgate::event::Query::new().kind(tollgate::event::EventKind::CodeIssued);
        assert!(world.log.read_events(&codes).events.is_empty());
    }
}

#[tokio::test]
async fn the_endpoints_do_not_exist_unless_first_party_sign_in_is_enabled() {
    let world = World::new().await;
    let mut browser = world.browser();
    for path in ["/sign-in", "/sign-in/finish"] {
        assert_eq!(browser.get(path).await.status, 404, "{path}");
    }
    assert_eq!(sign_out(&mut browser, &[]).await.status, 404);
    let fields = with(crate::world::parameters("web"), &[("client_id", BUILT_IN), ("identifier", ADA)]);
    assert_eq!(browser.post("/authentication/start", &fields).await.error(), "invalid_client");
}

#[tokio::test]
async fn only_a_page_of_this_site_can_sign_out_and_tokens_end_with_the_session() {
    let world = world().await;
    let mut browser = world.browser();
    sign_in(&mut browser, "/").await;
    browser.log_in("web", ADA).await;
    let code = browser.authorize("web").await.redirected("code").unwrap();
    let form = |grant: &[(&'static str, String)]| {
        let mut fields = vec![("client_id", "web".to_owned()), ("redirect_uri", crate::world::CALLBACK.to_owned())];
        fields.extend_from_slice(grant);
        fields
    };
    let exchange = form(&[
        ("grant_type", "authorization_code".into()),
        ("code", code),
        ("code_verifier", crate::world::VERIFIER.into()),
    ]);
    let borrowed = |fields: &[(&'static str, String)]| {
        form_of(&fields.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>())
    };
    let tokens = browser.send(crate::world::posted("/token"), borrowed(&exchange)).await.json();
    let refresh = form(&[
        ("grant_type", "refresh_token".into()),
        ("refresh_token", tokens["refresh_token"].as_str().unwrap().into()),
    ]);

    for foreign in [
        crate::world::posted("/sign-out"),
        crate::world::posted("/sign-out").header("sec-fetch-site", "cross-site"),
        crate::world::posted("/sign-out").header("sec-fetch-site", "same-site"),
        crate::world::posted("/sign-out").header("origin", "https://evil.example"),
    ] {
        let answer = browser.send(foreign, "").await;
        assert_eq!((answer.status.as_u16(), answer.error().as_str()), (403, "origin_not_allowed"));
    }
    assert_eq!(sessions(&world, "u-ada").await.len(), 1);
    // a link only asks
    let question = browser.get("/sign-out?return_to=/bye%3Fa%3D%22b").await;
    assert_eq!((question.status.as_u16(), question.header("content-type")), (200, "text/html; charset=utf-8"));
    for part in [r#"<form method="post" action="sign-out">"#, r#"name="return_to" value="/bye?a=&quot;b""#] {
        assert!(question.text.contains(part), "{part}: {question:?}");
    }
    for foreign in ["https://evil.example/", "/sign-out", "/a&return_to=/b"] {
        let page = Request::get(format!("/sign-out?return_to={foreign}")).header("accept", "text/html");
        let refused = browser.send(page, "").await;
        assert!(refused.status == 400 && refused.text.contains("<h1>Log out</h1>"), "{foreign}: {refused:?}");
    }
    assert_eq!(sessions(&world, "u-ada").await.len(), 1);
    assert!(has_session(&browser));

    let out = sign_out(&mut browser, &[("return_to", "/bye?a=b")]).await;
    assert_eq!((out.status.as_u16(), out.header("location")), (303, "/bye?a=b"));
    assert!(!has_session(&browser));
    assert_eq!(sessions(&world, "u-ada").await.len(), 0);
    let refused = browser.send(crate::world::posted("/token"), borrowed(&refresh)).await;
    assert_eq!((refused.status.as_u16(), refused.error().as_str()), (400, "invalid_grant"));
    // again, from a browser that sends only `Origin`
    let again = browser.send(crate::world::posted("/sign-out").header("origin", "https://auth.example"), "").await;
    assert_eq!((again.status.as_u16(), again.header("location")), (303, "/"));
}

#[tokio::test]
async fn another_user_in_the_same_browser_ends_the_previous_session() {
    let world = world().await;
    let mut browser = world.browser();
    let mut tab = browser.clone();
    sign_in(&mut browser, "/").await;
    // the sign-in of this tab began before the session
    let fields = begin(&mut tab, "/").await;
    tab.cookies.clone_from(&browser.cookies);
    complete(&mut tab, &fields, GRACE, GRACE_PASSWORD).await;
    assert_eq!(tab.get("/sign-in/finish").await.header("location"), "/");
    assert_eq!(sessions(&world, "u-ada").await.len(), 0);
    assert_eq!(sessions(&world, "u-grace").await.len(), 1);
}

/// Reads the tenant from a header, as a trusted proxy would set it.
fn by_header(head: Head<'_>) -> Result<Option<Tenant>, TenantError> {
    head.headers().get("x-tenant").map(|name| Tenant::parse(name.as_bytes())).transpose()
}

/// Sends a browser's request to the site of one tenant.
pub(crate) async fn ask(
    app: &Router,
    browser: &mut Browser,
    name: &str,
    request: http::request::Builder,
    body: &str,
) -> Answer {
    let cookies: Vec<_> = browser.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let request = request.header("x-tenant", name).header(header::COOKIE, cookies.join("; "));
    let response = app.clone().oneshot(request.body(axum::body::Body::from(body.to_owned())).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    for set in parts.headers.get_all(header::SET_COOKIE) {
        let (pair, attributes) = set.to_str().unwrap().split_once(';').unwrap();
        let (name, value) = pair.split_once('=').unwrap();
        match attributes.contains("Max-Age=0") {
            true => drop(browser.cookies.remove(name)),
            false => drop(browser.cookies.insert(name.to_owned(), value.to_owned())),
        }
    }
    let text = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
    Answer { status: parts.status, headers: parts.headers, text: String::from_utf8(text.to_vec()).unwrap() }
}

async fn sign_in_at(app: &Router, browser: &mut Browser, name: &str, who: &str) {
    let begun = ask(app, browser, name, Request::get("/sign-in"), "").await;
    let fields = with(json!(query(&begun)), &[("identifier", who)]);
    let post = |path: &str| Request::post(path).header("content-type", "application/json");
    let started = ask(app, browser, name, post("/authentication/start"), &fields.to_string()).await;
    let id = started.json()["session_id"].as_str().unwrap().to_owned();
    let fields =
        with(fields, &[("session_id", &id), ("method", "password"), ("username", who), ("password", ADA_PASSWORD)]);
    for call in ["authenticate", "complete"] {
        let answer = ask(app, browser, name, post(&format!("/authentication/{call}")), &fields.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    // the login does not count at another tenant
    let other = if name == "acme" { "globex" } else { "acme" };
    let elsewhere = ask(app, browser, other, Request::get("/sign-in/finish"), "").await;
    assert_eq!(elsewhere.header("location"), "/sign-in");
    let finished = ask(app, browser, name, Request::get("/sign-in/finish"), "").await;
    assert_eq!((finished.status.as_u16(), finished.header("location")), (303, "/"));
}

/// Ada has an account at both tenants, with different ids.
async fn two_tenants(more: impl FnOnce(AuthServiceBuilder) -> AuthServiceBuilder) -> World {
    let world = World::with(Memory::new(), more).await;
    let hash = tollgate::Passwords::insecure_fast().hash(tollgate::Password::new(ADA_PASSWORD)).await.unwrap();
    let user = NewUser::new(UserId::parse("u-ada-2").unwrap(), Identifier::parse(ADA).unwrap()).password(hash);
    world.users.create(&tenant("globex"), user).await.unwrap();
    world
}

async fn who(session: Option<Session>) -> String {
    session.map_or_else(|| String::from("nobody"), |session| session.user().to_string())
}

#[tokio::test]
async fn c121_signing_in_at_a_second_tenant_keeps_the_session_at_the_first() {
    let world = two_tenants(|service| service.first_party(by_header)).await;
    let app = Router::new()
        .route("/who", get(who))
        .layer(world.service.session_layer())
        .fallback_service(world.service.clone());
    let mut browser = world.browser();
    sign_in_at(&app, &mut browser, "acme", ADA).await;
    sign_in_at(&app, &mut browser, "globex", ADA).await;
    for (name, user) in [("acme", "u-ada"), ("globex", "u-ada-2"), ("other", "nobody"), ("", "nobody")] {
        assert_eq!(ask(&app, &mut browser, name, Request::get("/who"), "").await.text, user, "{name}");
    }
    let out = Request::post("/sign-out").header("origin", "https://auth.example");
    let out = out.header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(ask(&app, &mut browser, "globex", out, "").await.status, 303);
    for (name, user) in [("acme", "u-ada"), ("globex", "nobody")] {
        assert_eq!(ask(&app, &mut browser, name, Request::get("/who"), "").await.text, user, "{name}");
    }
    // without a tenant there is no site to sign in to
    let nowhere = ask(&app, &mut browser, "not a tenant", Request::get("/sign-in"), "").await;
    assert_eq!((nowhere.status.as_u16(), nowhere.error().as_str()), (400, "invalid_request"));
}

#[tokio::test]
async fn c121_a_layer_without_a_tenant_never_picks_one_of_several_sessions() {
    let world = two_tenants(|service| service.first_party(by_header)).await;
    let plain = tollgate::SessionLayer::new(world.sessions.clone());
    let app = Router::new().route("/who", get(who)).layer(plain).fallback_service(world.service.clone());
    let mut browser = world.browser();
    sign_in_at(&app, &mut browser, "acme", ADA).await;
    assert_eq!(ask(&app, &mut browser, "acme", Request::get("/who"), "").await.text, "u-ada");
    sign_in_at(&app, &mut browser, "globex", ADA).await;
    assert_eq!(ask(&app, &mut browser, "acme", Request::get("/who"), "").await.text, "nobody");
}

#[tokio::test]
async fn a_protected_page_redirects_to_the_sign_in_and_back_even_in_a_nested_router() {
    let world = world().await;
    let required = world.service.session_layer().required();
    let inner = Router::new().route("/page", get(who)).layer(required.clone());
    let app = Router::new()
        .route("/top", get(who).layer(required))
        .nest("/app", Router::new().nest("/v1", inner))
        .fallback_service(world.service.clone());
    let mut browser = world.browser();
    let open = |path: &str| Request::get(path).header("sec-fetch-mode", "navigate");
    for path in ["/top", "/app/v1/page?x=1&y=%2F"] {
        let sent = ask(&app, &mut browser, "", open(path), "").await;
        assert_eq!(sent.status, 303, "{sent:?}");
        assert!(sent.header("location").starts_with("/sign-in?"), "{sent:?}");
        assert_eq!(sent.redirected("return_to").as_deref(), Some(path));
        // a program gets an error instead
        let refused = ask(&app, &mut browser, "", Request::get(path), "").await;
        assert_eq!((refused.status.as_u16(), refused.header("location")), (401, ""));
    }
    let back = sign_in(&mut browser, "/app/v1/page?x=1&y=%2F").await;
    let shown = ask(&app, &mut browser, "", open(back.header("location")), "").await;
    assert_eq!((shown.status.as_u16(), shown.text.as_str()), (200, "u-ada"));
}

#[tokio::test]
async fn the_layer_redirects_correctly_below_the_path_of_the_issuer() {
    let (store, clock) = (Memory::new().into(), tollgate::testing::ManualClock::new());
    let (clients, tokens) = (crate::world::clients(), tollgate::Tokens::new());
    let first_party = |service: AuthServiceBuilder| service.first_party(tenant("acme"));
    let world = World::under("https://site.example/auth", (store, clock), clients, tokens, first_party).await;
    let app = Router::new()
        .route("/page", get(who).layer(world.service.session_layer().required()))
        .nest_service("/auth", world.service.clone());
    let mut browser = world.browser();
    let sent = ask(&app, &mut browser, "", Request::get("/page").header("accept", "text/html"), "").await;
    assert_eq!(sent.header("location"), "/auth/sign-in?return_to=%2Fpage");
    let begun = ask(&app, &mut browser, "", Request::get(sent.header("location")), "").await;
    assert!(begun.header("location").starts_with("/auth/authentication/start?"), "{begun:?}");
    assert_eq!(query(&begun)["redirect_uri"], "https://site.example/auth/sign-in/finish");
    let page = Request::get(begun.header("location")).header("accept", "application/json");
    assert_eq!(ask(&app, &mut browser, "", page, "").await.json()["continue_to"], "/auth/sign-in/finish");
    let looping = ask(&app, &mut browser, "", Request::get("/auth/sign-in?return_to=/auth/sign-in"), "").await;
    assert_eq!(looping.status, 400);
}

/// Adds roles to the accounts.
pub(crate) struct WithRoles(pub(crate) StoredUsers);

impl Users for WithRoles {
    type Error = StoreError;

    async fn find(&self, tenant: &Tenant, identifier: &Identifier) -> Result<Option<Account>, StoreError> {
        self.0.find(tenant, identifier).await
    }

    async fn by_id(&self, tenant: &Tenant, id: &UserId) -> Result<Option<Account>, StoreError> {
        self.0.by_id(tenant, id).await
    }

    async fn verify_password(&self, attempt: PasswordAttempt<'_>) -> Result<PasswordCheck, StoreError> {
        Users::verify_password(&self.0, attempt).await
    }

    async fn claims(&self, _: &Tenant, account: &Account, request: &ClaimsRequest) -> Result<Claims, StoreError> {
        let mut claims = Claims::new();
        if request.has_scope("roles") {
            claims.insert("roles", [account.id().as_str(), "editor"]).unwrap();
        }
        claims.insert_for([tollgate::user::ClaimTarget::UserInfo], "locale", "en").unwrap();
        Ok(claims)
    }
}

#[tokio::test]
async fn a_session_caches_the_claims_of_its_user_for_a_minute() {
    let store = tollgate::store::AnyStore::from(Memory::new());
    let clock = tollgate::testing::ManualClock::new();
    let users = WithRoles(StoredUsers::with_clock(store.clone(), clock.clone()));
    let roles = |service: AuthServiceBuilder| service.users(users).first_party(tenant("acme"));
    let world = World::on(store, clock, roles).await;
    async fn claims(session: Session) -> String {
        let roles: Option<Vec<String>> = session.claim("roles");
        format!("{roles:?} {:?} {:?}", session.claim::<String>("locale"), session.claim::<String>("other"))
    }
    let app = Router::new().route("/", get(claims)).layer(world.service.session_layer().required());
    let mut browser = world.browser();
    sign_in(&mut browser, "/").await;
    let shown = r#"Some(["u-ada", "editor"]) Some("en") None"#;
    assert_eq!(ask(&app, &mut browser, "", Request::get("/"), "").await.text, shown);
    // a disabled account has no roles as soon as they are read again
    world.users.disable(&tenant("acme"), &UserId::parse("u-ada").unwrap()).await.unwrap();
    world.clock.advance(Duration::from_secs(59));
    assert_eq!(ask(&app, &mut browser, "", Request::get("/"), "").await.text, shown);
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(ask(&app, &mut browser, "", Request::get("/"), "").await.text, "None None None");
}

#[tokio::test]
async fn users_stay_signed_in_only_if_they_choose_to_and_the_service_offers_it() {
    let day = Duration::from_secs(24 * 3600);
    for offered in [false, true] {
        let world = World::with(Memory::new(), |service| {
            let service = service.first_party(tenant("acme"));
            if offered { service.remember_me(30 * day) } else { service }
        })
        .await;
        for chosen in [json!(true), json!(false), Value::Null] {
            let mut browser = world.browser();
            let mut fields = begin(&mut browser, "/").await;
            let page = Request::get(format!("/authentication/start?{}", crate::world::query_of(&fields)));
            let described = browser.send(page.header("accept", "application/json"), "").await.json();
            assert_eq!(described["remember_available"], if offered { json!(true) } else { Value::Null });
            fields["remember"] = chosen.clone();
            complete(&mut browser, &fields, ADA, ADA_PASSWORD).await;
            let finished = browser.get("/sign-in/finish").await;
            let mut cookies = finished.headers.get_all("set-cookie").iter().map(|cookie| cookie.to_str().unwrap());
            let session = cookies.find(|cookie| cookie.starts_with("__Host-session_")).unwrap();
            let remembered = offered && chosen == json!(true);
            assert_eq!(session.contains("Max-Age=2592000"), remembered, "{session}");
            assert_eq!(session.contains("Max-Age"), remembered, "{session}");
        }
        let mut browser = world.browser();
        let malformed = with(crate::world::parameters("web"), &[("identifier", ADA), ("remember", "yes")]);
        assert_eq!(browser.post("/authentication/start", &malformed).await.error(), "invalid_request");
    }
}

/// Accepts any `TenantSource`, even one chosen at run time.
#[test]
fn a_source_can_be_a_tenant_a_closure_or_an_arc() {
    let source: Arc<dyn TenantSource> = Arc::new(tenant("acme"));
    let builder = || tollgate::AuthService::builder("https://auth.example", Memory::new());
    let _ = (builder().first_party(source), builder().first_party(by_header), builder().first_party(tenant("acme")));
}

#[tokio::test]
async fn own_pages_replace_the_built_in_ones() {
    let pages = tollgate::auth::Pages::new()
        .login_html("<h1>Mine</h1>")
        .error_html("<p>{advice}</p>{detail}|{code}")
        .sign_out_question_html("<form method=post action=logout>{fields}<button name=confirmed></form>")
        .signed_out_html("<p>Bye. {next}</p>");
    let world = World::with(Memory::new(), |service| service.first_party(tenant("acme")).pages(pages.clone())).await;
    let mut browser = world.browser();
    let open = |path: &str| Request::get(path).header("accept", "text/html");
    let login = format!("/authentication/start?{}", crate::world::query("web"));
    let shown = browser.send(open(&login), "").await;
    assert_eq!(shown.text, "<h1>Mine</h1>");
    let strict = shown.header("content-security-policy").to_owned();
    assert!(strict.contains("default-src 'none'") && strict.contains("script-src 'self'"), "{strict}");
    let wrong = browser.send(open("/sign-in?return_to=//evil.example"), "").await;
    assert!(wrong.text.ends_with("</p>return_to is not a path of this site|invalid_request"), "{wrong:?}");
    sign_in(&mut browser, "/").await;
    let question = browser.send(open("/logout?client_id=web"), "").await;
    assert!(question.text.contains(r#"<input type="hidden" name="client_id" value="web">"#), "{question:?}");
    let form = crate::world::posted("/logout").header("sec-fetch-site", "same-origin");
    assert_eq!(browser.send(form, "client_id=web&confirmed=yes").await.text, "<p>Bye. You can close this page.</p>");

    let moved = |service: AuthServiceBuilder| service.pages(pages.clone().login_url("https://login.example/start"));
    let world = World::with(Memory::new(), moved).await;
    let sent = world.browser().send(open(&format!("/authorize?{}", crate::world::query("web"))), "").await;
    assert!(sent.header("location").starts_with("https://login.example/start?"), "{sent:?}");
    let wider = |service: AuthServiceBuilder| service.pages(pages.content_security_policy("img-src 'self'"));
    let world = World::with(Memory::new(), wider).await;
    assert_eq!(world.browser().send(open(&login), "").await.header("content-security-policy"), "img-src 'self'");
}

#[tokio::test]
async fn a_sign_out_ends_the_login_that_another_tab_is_finishing() {
    let mut finished_first = Vec::new();
    for delay in 0..40 {
        let store = ControlledStore::default();
        let world = World::with(store.clone(), |service| service.first_party(tenant("acme"))).await;
        let mut browser = world.browser();
        let fields = begin(&mut browser, "/").await;
        complete(&mut browser, &fields, ADA, ADA_PASSWORD).await;
        let mut other_tab = world.browser();
        other_tab.cookies = browser.cookies.clone();
        store.yields();
        let wait = async |rounds| {
            for _ in 0..rounds {
                yield_now().await;
            }
        };
        let (_, ()) = tokio::join!(
            async {
                wait(15).await;
                sign_out(&mut browser, &[]).await
            },
            async {
                wait(delay).await;
                other_tab.get("/sign-in/finish").await;
            }
        );
        assert!(sessions(&world, "u-ada").await.is_empty(), "{delay}");
        let is_session = |name: &String| name.contains("session_") && !name.contains("auth_session_");
        finished_first.push(other_tab.cookies.keys().any(is_session));
    }
    assert!(finished_first.contains(&true) && finished_first.contains(&false), "{finished_first:?}");
}
