//! How old a sign-in at another identity provider is, and what needs a fresh one.

use std::time::Duration;

use http::Request;
use serde_json::{Value, json};
use tollgate::{
    NewUser, Tenant, Users,
    auth::Totp,
    clock::UnixTime,
    sso::{ProviderUser, SsoCallback, SsoConnection, SsoError, SsoProvider, SsoRequest},
    store::Memory,
    testing::ManualClock,
};

use crate::{
    own_account::{acme, begin, call, credentials, prove, sessions},
    sso_provider::{Accounts, Provider, SsoWorld, asked, begun, oidc, outcome, sent},
    world::{ADA, Browser, World, parameters, query, with},
};

const CHANGE: &str = "/sign-in?return_to=%2Faccount%2Fsecurity&max_age=299";

/// A user with an account at the provider and nothing else.
const ONLY: &str = "only-there";

fn accounts() -> Accounts {
    Accounts(&[("ada-there", "u-ada"), (ONLY, "u-only")])
}

/// Creates a site whose users can sign in with this connection.
async fn site(clock: ManualClock, connection: SsoConnection) -> World {
    let connection = connection.create_account(accounts());
    let world = World::on(Memory::new().into(), clock, |service| {
        service.sso("idp", connection).first_party(acme()).totp(Totp::new())
    })
    .await;
    let user = NewUser::new("u-only".parse().unwrap(), "only".parse().unwrap());
    world.users.create(&acme(), user).await.unwrap();
    world
}

/// Creates a site at which `only-there` signs in at an OpenID Connect provider.
async fn with_oidc() -> SsoWorld {
    let clock = ManualClock::new();
    let provider = Provider::start(&clock).await;
    let connection = SsoConnection::new(oidc(&provider).parameter("prompt", "select_account").unwrap());
    let world = site(clock, connection).await;
    provider.set(|provider| provider.claims = json!({ "sub": ONLY }));
    SsoWorld { world, provider }
}

/// Begins a sign-in of the site without a name, and returns the members of its calls.
async fn open(browser: &mut Browser, target: &str, identifier: Option<&str>) -> Value {
    let mut fields = begin(browser, target).await;
    if let Some(identifier) = identifier {
        fields["identifier"] = json!(identifier);
    }
    let started = browser.post("/authentication/start", &fields).await;
    assert_eq!(started.status, 200, "{started:?}");
    with(fields, &[("session_id", started.json()["session_id"].as_str().unwrap())])
}

/// Asks to be sent to the provider, and returns its URL.
async fn leave(browser: &mut Browser, own: &Value) -> String {
    let body = with(own.clone(), &[("method", "sso"), ("provider", "idp")]);
    let answer = browser.post("/authentication/authenticate", &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["redirect_url"].as_str().unwrap().to_owned()
}

async fn end(browser: &mut Browser, own: &Value) {
    assert_eq!(browser.post("/authentication/complete", own).await.status, 200);
    assert_eq!(browser.get("/sign-in/finish").await.status, 303);
}

impl SsoWorld {
    /// Goes to the provider, which signed its user in this many seconds ago if it tells.
    async fn visit(&self, browser: &mut Browser, own: &Value, ago: Option<f64>) -> String {
        let url = leave(browser, own).await;
        self.back(browser, &url, ago).await
    }

    async fn back(&self, browser: &mut Browser, url: &str, ago: Option<f64>) -> String {
        self.provider.set(|provider| provider.times = ago.map(|ago| ("auth_time", -ago)).into_iter().collect());
        outcome(&browser.get(&self.provider.signs_in(url)).await).to_owned()
    }

    /// Signs in to the site at the provider.
    async fn signed_in(&self, ago: Option<f64>) -> Browser {
        let mut browser = self.world.browser();
        let own = open(&mut browser, "/sign-in", None).await;
        assert_eq!(self.visit(&mut browser, &own, ago).await, "ok");
        end(&mut browser, &own).await;
        browser
    }

    fn now(&self) -> u64 {
        self.world.time().as_secs()
    }
}

async fn fresh_until(browser: &mut Browser) -> Value {
    credentials(browser).await["fresh_until"].clone()
}

async fn completed(browser: &mut Browser, own: &Value) -> Value {
    browser.status(own["session_id"].as_str().unwrap()).await.json()["completed_steps"].clone()
}

#[tokio::test]
async fn c117_a_user_of_a_provider_alone_changes_credentials_after_the_provider_asked_again() {
    let world = with_oidc().await;
    for ago in [None, Some(300.0), Some(86_400.0)] {
        let mut browser = world.signed_in(ago).await;
        assert_eq!(fresh_until(&mut browser).await, Value::Null, "{ago:?}");
        let refused = call(&mut browser, "totp/begin", json!({})).await;
        assert_eq!((refused.status.as_u16(), &*refused.error()), (403, "fresh_login_required"));
        assert_eq!(refused.json()["login_url"], format!("{CHANGE}&steps=1"));
    }
    let mut browser = world.signed_in(None).await;
    let own = open(&mut browser, &format!("{CHANGE}&steps=1"), None).await;
    let url = leave(&mut browser, &own).await;
    assert_eq!((&*asked(&url)["prompt"], &*asked(&url)["max_age"]), ("login", "0"));
    assert_eq!(url.matches("prompt=").count(), 1, "{url}");
    for ago in [None, Some(61.0), Some(86_400.0)] {
        assert_eq!(world.visit(&mut browser, &own, ago).await, "stale", "{ago:?}");
        assert_eq!(completed(&mut browser, &own).await, 0, "{ago:?}");
    }
    // the time that the user spends there does not count
    let url = leave(&mut browser, &own).await;
    world.world.advance(120);
    assert_eq!(world.back(&mut browser, &url, Some(100.0)).await, "ok");
    end(&mut browser, &own).await;
    assert_eq!(fresh_until(&mut browser).await, world.now() + 200);
    // fresh enough for the first second factor; recovery codes need two
    assert_eq!(call(&mut browser, "totp/begin", json!({})).await.status, 200);
    assert_eq!(call(&mut browser, "recovery-codes", json!({})).await.error(), "second_factor_required");
    // a clock that differs by less than the skew leaves the whole time
    let own = open(&mut browser, "/sign-in?max_age=0&steps=1", None).await;
    assert_eq!(world.visit(&mut browser, &own, Some(60.0)).await, "ok");
    end(&mut browser, &own).await;
    assert_eq!(fresh_until(&mut browser).await, world.now() + 300);
}

#[tokio::test]
async fn a_proof_is_as_old_as_the_sign_in_at_the_provider() {
    let world = with_oidc().await;
    for (ago, until) in [(200.0, 100), (0.0, 300), (-30.0, 300)] {
        let mut browser = world.signed_in(Some(ago)).await;
        assert_eq!(fresh_until(&mut browser).await, world.now() + until, "{ago}");
    }
    let newest = async || {
        let all = sessions(&world.world, "u-only").await;
        all.iter().max_by_key(|session| session.created()).unwrap().auth_time()
    };
    world.world.advance(1);
    world.signed_in(Some(200.0)).await;
    assert_eq!(newest().await.as_secs(), world.now() - 200);
    world.world.advance(1);
    world.signed_in(None).await;
    assert_eq!(newest().await, UnixTime::default(), "the time is unknown");
}

/// Begins a login of a client with more parameters.
async fn login(browser: &mut Browser, more: &[(&str, &str)]) -> Value {
    let answer = browser.post("/authentication/start", &with(parameters("web"), more)).await;
    with(parameters("web"), &[("session_id", answer.json()["session_id"].as_str().unwrap())])
}

async fn has_code(browser: &mut Browser, more: &str) -> bool {
    let answer = browser.get(&format!("/authorize?{}&{more}", query("web"))).await;
    let is_page = answer.header("location").starts_with("/authentication/start?");
    assert_ne!(is_page, answer.redirected("code").is_some(), "{answer:?}");
    !is_page
}

#[tokio::test]
async fn c025_a_client_that_asks_for_a_fresh_login_gets_no_old_session_of_a_provider() {
    let world = with_oidc().await;
    for (more, max_age, prompt, ages) in [
        (("prompt", "login"), "0", Some("login"), [(None, "stale"), (Some(61.0), "stale"), (Some(60.0), "ok")]),
        (("max_age", "0"), "0", Some("login"), [(None, "stale"), (Some(61.0), "stale"), (Some(0.0), "ok")]),
        (
            ("max_age", "300"),
            "300",
            Some("select_account"),
            [(None, "stale"), (Some(361.0), "stale"), (Some(360.0), "ok")],
        ),
    ] {
        let mut browser = world.world.browser();
        let own = login(&mut browser, &[more]).await;
        let url = leave(&mut browser, &own).await;
        let parameters = asked(&url);
        assert_eq!(parameters.get("max_age").map(String::as_str), Some(max_age), "{more:?}");
        assert_eq!(parameters.get("prompt").map(String::as_str), prompt, "{more:?}");
        for (ago, expected) in ages {
            assert_eq!(world.visit(&mut browser, &own, ago).await, expected, "{more:?} {ago:?}");
        }
        assert_eq!(browser.post("/authentication/complete", &own).await.status, 200);
        assert!(has_code(&mut browser, &format!("{}={}", more.0, more.1)).await, "{more:?}");
    }
    // the request for the code can ask for more than the login did
    for (ago, more, expected) in [
        (None, "prompt=login", false),
        (Some(10.0), "prompt=login", false),
        (Some(10.0), "max_age=9", false),
        (Some(10.0), "max_age=10", true),
        (Some(0.0), "prompt=login", true),
        (None, "max_age=100000", false),
        (None, "", true),
    ] {
        let mut browser = world.world.browser();
        let own = login(&mut browser, &[]).await;
        assert_eq!(asked(&leave(&mut browser, &own).await).get("max_age"), None);
        assert_eq!(world.visit(&mut browser, &own, ago).await, "ok", "{ago:?}");
        assert_eq!(browser.post("/authentication/complete", &own).await.status, 200);
        assert_eq!(has_code(&mut browser, more).await, expected, "{ago:?} {more}");
    }
}

#[tokio::test]
async fn c081_the_shorter_of_the_two_ages_is_asked_for() {
    let clock = ManualClock::new();
    let provider = Provider::start(&clock).await;
    let connection = SsoConnection::new(oidc(&provider).max_age(Duration::from_secs(100)));
    let world = site(clock, connection).await;
    for (more, expected) in [(None, "100"), (Some("101"), "100"), (Some("99"), "99"), (Some("0"), "0")] {
        let mut browser = world.browser();
        let own = login(&mut browser, &more.map(|age| ("max_age", age)).into_iter().collect::<Vec<_>>()).await;
        let parameters = asked(&leave(&mut browser, &own).await);
        assert_eq!(parameters["max_age"], expected, "{more:?}");
        assert_eq!(parameters.contains_key("prompt"), expected == "0", "{more:?}");
    }
}

#[tokio::test]
async fn c117_a_login_page_can_begin_anew_without_asking_the_provider_for_more() {
    let world = with_oidc().await;
    let mut browser = world.signed_in(Some(0.0)).await;
    let fields = begin(&mut browser, "/sign-in?steps=2").await;
    let continued = browser.post("/authentication/start", &fields).await.json();
    assert_eq!((&continued["required_steps"], &continued["next_step"]), (&json!(2), &json!(2)));
    let mut anew = fields.clone();
    anew["continue_session"] = json!(false);
    let started = browser.post("/authentication/start", &anew).await.json();
    assert_eq!((&started["required_steps"], &started["next_step"]), (&json!(2), &json!(1)));
    let own = with(fields, &[("session_id", started["session_id"].as_str().unwrap())]);
    let url = leave(&mut browser, &own).await;
    assert_eq!((asked(&url).get("max_age"), &*asked(&url)["prompt"]), (None, "select_account"));
}

#[tokio::test]
async fn c117_a_second_step_at_a_provider_is_refused_if_it_is_known_to_be_old() {
    let world = with_oidc().await;
    world.provider.set(|provider| provider.claims = json!({}));
    // links the account
    world.signed_in(None).await;
    let after_password = async |target: &str| {
        let mut browser = world.world.browser();
        let own = open(&mut browser, target, Some(ADA)).await;
        assert_eq!(prove((&world.world, &mut browser), &own, (ADA, "password"), "").await.status, 200);
        (browser, own)
    };
    let (mut browser, own) = after_password(&format!("{CHANGE}&steps=2")).await;
    assert_eq!(world.visit(&mut browser, &own, Some(61.0)).await, "stale");
    assert_eq!(completed(&mut browser, &own).await, 1);
    assert_eq!(world.visit(&mut browser, &own, None).await, "ok");
    end(&mut browser, &own).await;
    assert_eq!(fresh_until(&mut browser).await, world.now() + 300);
    // in a login that may take an old one, it is as old as the provider says
    for (ago, until) in [(None, Some(300)), (Some(200.0), Some(100)), (Some(300.0), None)] {
        let (mut browser, own) = after_password("/sign-in?steps=2").await;
        assert_eq!(world.visit(&mut browser, &own, ago).await, "ok");
        end(&mut browser, &own).await;
        assert_eq!(fresh_until(&mut browser).await, json!(until.map(|until| world.now() + until)), "{ago:?}");
    }
    // and does not answer a request for a fresh login
    for (ago, more, expected) in [
        (None, "prompt=login", true),
        (Some(10.0), "prompt=login", false),
        (Some(10.0), "max_age=9", false),
        (Some(10.0), "max_age=10", true),
    ] {
        let mut browser = world.world.browser();
        let two = with(parameters("mfa"), &[("identifier", ADA)]);
        let id = browser.post("/authentication/start", &two).await.json()["session_id"].as_str().unwrap().to_owned();
        let own = with(parameters("mfa"), &[("session_id", &id)]);
        assert_eq!(prove((&world.world, &mut browser), &own, (ADA, "password"), "").await.status, 200);
        assert_eq!(world.visit(&mut browser, &own, ago).await, "ok");
        assert_eq!(browser.post("/authentication/complete", &own).await.status, 200);
        let answer = browser.get(&format!("/authorize?{}&{more}", query("mfa"))).await;
        assert_eq!(answer.redirected("code").is_some(), expected, "{ago:?} {more}");
    }
}

// ---- providers that can't tell

/// A provider of plain OAuth 2: it tells who the user is and nothing else.
struct Plain(&'static str);

impl SsoProvider for Plain {
    async fn authorization_url(&self, request: &SsoRequest<'_>) -> Result<String, SsoError> {
        Ok(format!("https://plain.example/authorize?state={}", request.state()))
    }

    async fn user(&self, callback: &SsoCallback<'_>) -> Result<ProviderUser, SsoError> {
        callback.code()?;
        Ok(ProviderUser::new("https://plain.example", self.0))
    }
}

async fn back(browser: &mut Browser, own: &Value) -> String {
    let state = asked(&leave(browser, own).await)["state"].clone();
    let answer = browser.get(&format!("/authentication/sso/idp/callback?code=x&state={state}")).await;
    outcome(&answer).to_owned()
}

#[tokio::test]
async fn c117_a_provider_that_cannot_tell_proves_nothing_fresh_alone() {
    let world = site(ManualClock::new(), SsoConnection::new(Plain(ONLY))).await;
    let mut browser = world.browser();
    let own = open(&mut browser, "/sign-in", None).await;
    assert_eq!(back(&mut browser, &own).await, "ok");
    end(&mut browser, &own).await;
    assert_eq!(call(&mut browser, "recovery-codes", json!({})).await.error(), "fresh_login_required");
    let own = open(&mut browser, &format!("{CHANGE}&steps=1"), None).await;
    assert_eq!(back(&mut browser, &own).await, "stale");
    // the operator can accept what that means
    let world = site(ManualClock::new(), SsoConnection::new(Plain(ONLY)).insecure_assume_fresh()).await;
    let mut browser = world.browser();
    let own = open(&mut browser, &format!("{CHANGE}&steps=1"), None).await;
    assert_eq!(back(&mut browser, &own).await, "ok");
    end(&mut browser, &own).await;
    assert_eq!(fresh_until(&mut browser).await, world.time().as_secs() + 300);
    assert_eq!(call(&mut browser, "recovery-codes", json!({})).await.error(), "second_factor_required");
}

#[tokio::test]
async fn c117_a_provider_that_cannot_tell_is_a_second_factor_next_to_a_fresh_one() {
    // ada has a password and the provider: two factors
    let world = site(ManualClock::new(), SsoConnection::new(Plain("ada-there"))).await;
    let tenant: Tenant = acme();
    for contact in world.users.by_id(&tenant, &"u-ada".parse().unwrap()).await.unwrap().unwrap().contacts() {
        world.users.remove_contact(&tenant, &"u-ada".parse().unwrap(), contact.0).await.unwrap();
    }
    let mut browser = world.browser();
    let own = open(&mut browser, "/sign-in", None).await;
    assert_eq!(back(&mut browser, &own).await, "ok");
    end(&mut browser, &own).await;
    assert_eq!(credentials(&mut browser).await["required_proofs"], 2);
    // a step for which nothing was asked does not get fresh by a password, however long ago it was
    world.advance(301);
    let own = open(&mut browser, "/sign-in?steps=2", None).await;
    assert_eq!(prove((&world, &mut browser), &own, (ADA, "password"), "").await.status, 200);
    end(&mut browser, &own).await;
    assert_eq!(call(&mut browser, "recovery-codes", json!({})).await.error(), "fresh_login_required");
    // the sign-in that the error names, once the password is no longer fresh
    world.advance(301);
    let own = open(&mut browser, &format!("{CHANGE}&steps=2"), Some(ADA)).await;
    assert_eq!(back(&mut browser, &own).await, "stale", "it can't be the first step");
    assert_eq!(prove((&world, &mut browser), &own, (ADA, "password"), "").await.status, 200);
    assert_eq!(back(&mut browser, &own).await, "ok");
    end(&mut browser, &own).await;
    assert_eq!(fresh_until(&mut browser).await, world.time().as_secs() + 300);
    assert_eq!(call(&mut browser, "recovery-codes", json!({})).await.status, 201);
    assert_eq!(crate::enrolled::stored(&world, "u-ada").await.unwrap()["recovery"]["strength"]["steps"], 2);
    // the password alone is not enough
    let mut thief = world.browser();
    let own = open(&mut thief, &format!("{CHANGE}&steps=1"), Some(ADA)).await;
    assert_eq!(prove((&world, &mut thief), &own, (ADA, "password"), "").await.status, 200);
    end(&mut thief, &own).await;
    assert_eq!(call(&mut thief, "recovery-codes", json!({})).await.error(), "fresh_login_required");
}

#[tokio::test]
async fn c025_a_stale_sign_in_is_refused_before_an_account_is_looked_up() {
    // the hook would create a link
    let world = with_oidc().await;
    let mut browser = world.world.browser();
    let id = begun(&mut browser, "web").await;
    sent(&mut browser, "web", &id).await;
    for sub in [ONLY, "unknown-there"] {
        world.provider.set(|provider| provider.claims = json!({ "sub": sub }));
        let own = login(&mut browser, &[("prompt", "login")]).await;
        assert_eq!(world.visit(&mut browser, &own, None).await, "stale", "{sub}");
    }
    assert_eq!(crate::enrolled::stored(&world.world, "u-only").await, None);
    let page = Request::get("/authentication/page.js");
    assert!(browser.send(page, "").await.text.contains("stale: \""));
}
