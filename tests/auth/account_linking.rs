//! A signed-in user connects an account at another identity provider on the account page.

use http::{Method, Request};
use serde_json::{Value, json};
use tollgate::{
    auth::Totp,
    delivery::NoticeKind,
    event::EventKind,
    sso::SsoConnection,
    store::{AnyStore, Memory},
    testing::ManualClock,
};

use crate::{
    controlled_store::ControlledStore,
    own_account::{acme, ada, call, credentials, enrol_totp, events, sessions, sign_in, sign_in_at, totp},
    sso_accounts::first_step,
    sso_provider::{Provider, SsoWorld, asked, begun, oidc, outcome, sent, with_parameter},
    world::{ADA, ADA_PASSWORD, Browser, GRACE, World, join},
};

/// A site whose users can connect the providers `idp` and `other`, which are the same one.
async fn site() -> SsoWorld {
    site_on(Memory::new().into()).await
}

async fn site_on(store: AnyStore) -> SsoWorld {
    let clock = ManualClock::new();
    let provider = Provider::start(&clock).await;
    let connection = || SsoConnection::new(oidc(&provider)).label("Example ID");
    let more = |service: tollgate::auth::AuthServiceBuilder| {
        service
            .sso("idp", connection())
            .sso("other", connection().label("Other ID"))
            .first_party(acme())
            .totp(Totp::new().seal(&tollgate::Secret::generate()))
    };
    let world = World::on(store, clock, more).await;
    SsoWorld { world, provider }
}

/// Leaves the account page for the provider, and returns the URL there.
async fn leave(browser: &mut Browser) -> String {
    let answer = call(browser, "links/begin", json!({ "provider": "idp" })).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["redirect_url"].as_str().unwrap().to_owned()
}

/// Comes back from the provider, and returns what the account page learns.
async fn come_back(browser: &mut Browser, target: &str) -> String {
    let answer = browser.get(target).await;
    assert_eq!(answer.status, 303, "{answer:?}");
    answer.header("location").strip_prefix("/account/security#link=").unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

async fn connect(world: &SsoWorld, browser: &mut Browser) -> String {
    let url = leave(browser).await;
    come_back(browser, &world.provider.signs_in(&url)).await
}

async fn links(browser: &mut Browser) -> usize {
    credentials(browser).await["links"].as_array().unwrap().len()
}

#[tokio::test]
async fn b17_a_user_connects_a_provider_and_signs_in_with_it_from_then_on() {
    let world = site().await;
    let mut browser = ada(&world.world).await;
    let both = json!([{ "name": "idp", "label": "Example ID" }, { "name": "other", "label": "Other ID" }]);
    assert_eq!(credentials(&mut browser).await["available"]["providers"], both);
    let url = leave(&mut browser).await;
    // somebody else could be signed in there
    let parameters = asked(&url);
    assert_eq!((parameters["prompt"].as_str(), parameters["max_age"].as_str()), ("login", "0"));
    assert_eq!(come_back(&mut browser, &world.provider.signs_in(&url)).await, "ok");

    let shown = credentials(&mut browser).await;
    let link = &shown["links"][0];
    assert_eq!((&link["provider"], &link["label"], &link["name"]), (&json!("idp"), &json!("Example ID"), &json!(ADA)));
    assert_eq!(shown["available"]["providers"], json!([both[1]]));
    assert_eq!(events(&world.world, EventKind::SsoLinked), ["sso"]);
    world.world.settle().await;
    let notices: Vec<_> = world.world.outbox.messages().iter().filter_map(|it| Some(it.notice()?.kind())).collect();
    assert_eq!(notices, [NoticeKind::LinkAdded]);
    // two factors vouched for it, so it counts in logins of two steps
    assert_eq!(first_step(&world, None).await, "ok");
    let mut fresh = world.world.browser();
    let id = begun(&mut fresh, "mfa").await;
    assert_eq!(outcome(&world.dance(&mut fresh, "mfa", &id).await), "ok");
    assert_eq!(fresh.password("mfa", &id, ADA, ADA_PASSWORD).await.status, 200);
    // once more
    assert_eq!(connect(&world, &mut browser).await, "known");
    assert_eq!(links(&mut browser).await, 1);
}

#[tokio::test]
async fn b17_c117_connecting_needs_proofs_that_were_fresh_when_the_user_left() {
    let world = site().await;
    let mut browser = ada(&world.world).await;
    // proofs may lapse while the user is at the provider
    world.world.advance(200);
    let url = leave(&mut browser).await;
    world.world.advance(200);
    assert_eq!(come_back(&mut browser, &world.provider.signs_in(&url)).await, "ok");
    // a thief with a session of before
    let answer = call(&mut browser, "links/begin", json!({ "provider": "other" })).await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (403, "fresh_login_required"));
    assert_eq!(answer.json()["login_url"], "/sign-in?return_to=%2Faccount%2Fsecurity&max_age=299&steps=2");
    // one who knows the password, where the account has two methods
    let target = "/sign-in?max_age=0&steps=1";
    sign_in_at(&world.world, &mut browser, target, ADA, &["password"]).await;
    let answer = call(&mut browser, "links/begin", json!({ "provider": "other" })).await;
    assert_eq!(&*answer.error(), "fresh_login_required");

    let mut late = ada(&world.world).await;
    let url = leave(&mut late).await;
    world.world.advance(300);
    assert_eq!(come_back(&mut late, &world.provider.signs_in(&url)).await, "expired");
    let calls = world.provider.calls("/token").len();
    assert_eq!(calls, 1, "the late answer was redeemed");
}

#[tokio::test]
async fn b17_c082_the_return_belongs_to_one_session_and_one_provider_and_counts_once() {
    let world = site().await;
    let (mut owner, mut grace) = (ada(&world.world).await, sign_in(&world.world, GRACE, &["password", "email"]).await);
    let old = world.provider.signs_in(&leave(&mut owner).await);
    let target = world.provider.signs_in(&leave(&mut owner).await);
    // forced linking: a thief sends their own return to another user
    assert_eq!(come_back(&mut grace, &target).await, "expired");
    leave(&mut grace).await;
    assert_eq!(come_back(&mut grace, &target).await, "expired");
    assert_eq!(come_back(&mut world.world.browser(), &target).await, "expired");
    // the same user in another browser
    let mut elsewhere = ada(&world.world).await;
    assert_eq!(come_back(&mut elsewhere, &target).await, "expired");
    // a newer one, another provider, and made-up states
    assert_eq!(come_back(&mut owner, &old).await, "expired");
    assert_eq!(come_back(&mut owner, &target.replace("/idp/", "/other/")).await, "expired");
    assert_eq!(come_back(&mut owner, &target.replace("/idp/", "/unknown/")).await, "expired");
    let made_up = with_parameter(&target, "state", &format!("link.{}", "A".repeat(43)));
    assert_eq!(come_back(&mut owner, &made_up).await, "expired");
    let head = owner.send(Request::builder().method(Method::HEAD).uri(&target), "").await;
    assert_eq!(head.header("location"), "/account/security#link=expired");
    let prefetch = owner.send(Request::get(&target).header("sec-purpose", "prefetch"), "").await;
    assert_eq!(prefetch.status, 503);
    assert_eq!(owner.get(&format!("{target}&code=x")).await.error(), "invalid_request");
    assert_eq!(world.provider.calls("/token").len(), 0, "a code was redeemed");
    assert_eq!((links(&mut owner).await, links(&mut grace).await), (0, 0));

    assert_eq!(come_back(&mut owner, &target).await, "ok");
    assert_eq!(come_back(&mut owner, &target).await, "expired");
    assert_eq!((links(&mut owner).await, links(&mut grace).await), (1, 0));
}

#[tokio::test]
async fn b17_c082_a_return_to_a_login_links_nothing_and_one_to_the_account_page_signs_nobody_in() {
    let world = site().await;
    let mut browser = ada(&world.world).await;
    let linking = world.provider.signs_in(&leave(&mut browser).await);
    let id = begun(&mut browser, "web").await;
    let logging_in = world.provider.signs_in(&sent(&mut browser, "web", &id).await);
    let secret = |target: &str| {
        crate::sso_provider::pairs(target.split_once('?').unwrap().1)["state"].split_once('.').unwrap().1.to_owned()
    };
    let as_login = with_parameter(&linking, "state", &format!("{id}.{}", secret(&linking)));
    assert_eq!(browser.get(&as_login).await.error(), "sso_failed");
    let as_link = with_parameter(&logging_in, "state", &format!("link.{}", secret(&logging_in)));
    assert_eq!(come_back(&mut browser, &as_link).await, "expired");
    // the code of one, with the state of the other: the nonce and the verifier differ
    let codes = [&linking, &logging_in]
        .map(|target| crate::sso_provider::pairs(target.split_once('?').unwrap().1)["code"].clone());
    assert_eq!(come_back(&mut browser, &with_parameter(&linking, "code", &codes[1])).await, "failed");
    assert_eq!(outcome(&browser.get(&with_parameter(&logging_in, "code", &codes[0])).await), "failed");
    assert_eq!(links(&mut browser).await, 0);
}

#[tokio::test]
async fn b17_c084_an_account_of_another_user_is_refused_and_stays_theirs() {
    let world = site().await;
    let (mut owner, mut grace) = (ada(&world.world).await, sign_in(&world.world, GRACE, &["password", "email"]).await);
    assert_eq!(connect(&world, &mut grace).await, "ok");
    assert_eq!(connect(&world, &mut owner).await, "taken");
    assert_eq!((links(&mut owner).await, links(&mut grace).await), (0, 1));
    assert_eq!(events(&world.world, EventKind::SsoLinked), ["sso"], "only that of grace");
    // of two users who connect it at the same time, one has it
    for _ in 0..5 {
        let store = ControlledStore::default();
        let world = site_on(store.clone().into()).await;
        let mut browsers = [ada(&world.world).await, sign_in(&world.world, GRACE, &["password", "email"]).await];
        let mut targets = Vec::new();
        for browser in &mut browsers {
            targets.push(world.provider.signs_in(&leave(browser).await));
        }
        store.yields();
        let found = join(browsers.iter_mut().zip(&targets).map(|(browser, target)| come_back(browser, target))).await;
        assert_eq!(found.iter().filter(|outcome| *outcome == "ok").count(), 1, "{found:?}");
        let [one, other] = &mut browsers;
        assert_eq!(links(one).await + links(other).await, 1, "{found:?}");
    }
}

#[tokio::test]
async fn b17_c082_of_several_returns_at_the_same_time_one_counts() {
    let world = site().await;
    let mut browser = ada(&world.world).await;
    let target = world.provider.signs_in(&leave(&mut browser).await);
    let mut tabs: Vec<Browser> = (0..4).map(|_| browser.clone()).collect();
    let mut found = join(tabs.iter_mut().map(|tab| come_back(tab, &target))).await;
    found.sort_unstable();
    assert_eq!(found, ["expired", "expired", "expired", "ok"]);
    assert_eq!((world.provider.calls("/token").len(), links(&mut browser).await), (1, 1));
}

#[tokio::test]
async fn b17_what_ends_the_session_or_its_proofs_ends_the_return() {
    for change in ["sign-out", "end", "password", "disable"] {
        let world = site().await;
        let mut browser = ada(&world.world).await;
        let target = world.provider.signs_in(&leave(&mut browser).await);
        let user = "u-ada".parse().unwrap();
        match change {
            "sign-out" => {
                let before = browser.cookies.clone();
                let request = Request::post("/sign-out").header("sec-fetch-site", "same-origin");
                browser.send(request.header("content-type", "application/x-www-form-urlencoded"), "").await;
                browser.cookies = before;
            }
            "end" => drop(world.world.service.end_user(&acme(), &user).await.unwrap()),
            "password" => world.world.change_password(&acme(), "u-ada", "another password for ada").await,
            _ => world.world.users.disable(&acme(), &user).await.unwrap(),
        }
        assert_eq!(come_back(&mut browser, &target).await, "expired", "{change}");
        assert_eq!(events(&world.world, EventKind::SsoLinked), [""; 0], "{change}");
    }
}

#[tokio::test]
async fn b17_answers_of_the_provider_are_told_apart_and_link_nothing() {
    let world = site().await;
    let mut browser = ada(&world.world).await;
    for (claims, callback, times, expected) in [
        (json!({}), json!({ "code": null, "error": "access_denied" }), vec![], "denied"),
        (json!({}), json!({ "code": null, "error": "server_error" }), vec![], "unavailable"),
        (json!({}), json!({ "code": "guessed" }), vec![], "failed"),
        (json!({ "nonce": "x" }), json!({}), vec![], "failed"),
        (json!({}), json!({ "iss": "https://other.example" }), vec![], "failed"),
        // from a session at the provider, perhaps of somebody else
        (json!({}), json!({}), vec![("auth_time", -120.0)], "stale"),
    ] {
        world.provider.set(|provider| (provider.claims, provider.callback, provider.times) = (claims, callback, times));
        assert_eq!(connect(&world, &mut browser).await, expected);
    }
    assert_eq!(links(&mut browser).await, 0);
    world.provider.set(|provider| {
        (provider.claims, provider.callback, provider.times) = (json!({}), json!({}), vec![("auth_time", 0.0)]);
    });
    assert_eq!(connect(&world, &mut browser).await, "ok");
    for body in [json!({}), json!({ "provider": "unknown" }), json!({ "provider": "IDP" })] {
        assert_eq!(call(&mut browser, "links/begin", body).await.error(), "invalid_request");
    }
    world.provider.set(|provider| provider.trouble = Default::default());
}

#[tokio::test]
async fn b17_c084_a_user_can_connect_again_what_they_have_unlinked() {
    let world = site().await;
    let mut browser = ada(&world.world).await;
    for _ in 0..2 {
        assert_eq!(connect(&world, &mut browser).await, "ok");
        let id = credentials(&mut browser).await["links"][0]["id"].clone();
        assert_eq!(call(&mut browser, "links/delete", json!({ "id": id })).await.status, 204);
    }
    assert_eq!(connect(&world, &mut browser).await, "ok");
}

#[tokio::test]
async fn b17_the_account_page_knows_whether_unlinking_ends_its_own_session() {
    let world = site().await;
    let mut owner = ada(&world.world).await;
    assert_eq!(connect(&world, &mut owner).await, "ok");
    assert_eq!(credentials(&mut owner).await["links"][0]["ends_session"], false);
    // a session by the provider alone
    let mut browser = world.world.browser();
    let fields = crate::own_account::begin(&mut browser, "/sign-in").await;
    let started = browser.post("/authentication/start", &fields).await.json();
    let own = crate::world::with(fields, &[("session_id", started["session_id"].as_str().unwrap())]);
    let more = [("method", "sso"), ("provider", "idp")];
    let away = browser.post("/authentication/authenticate", &crate::world::with(own.clone(), &more)).await.json();
    let back = world.provider.signs_in(away["redirect_url"].as_str().unwrap());
    assert_eq!(outcome(&browser.get(&back).await), "ok");
    assert_eq!(browser.post("/authentication/complete", &own).await.status, 200);
    browser.get("/sign-in/finish").await;
    let link = credentials(&mut browser).await["links"][0].clone();
    assert_eq!(link["ends_session"], true);
    assert_eq!(sessions(&world.world, "u-ada").await.len(), 2);
    // and it does
    assert_eq!(call(&mut owner, "links/delete", json!({ "id": link["id"] })).await.status, 204);
    assert_eq!(sessions(&world.world, "u-ada").await.len(), 1);
    let request = Request::get("/account/credentials").header("sec-fetch-site", "same-origin");
    assert_eq!(browser.send(request, "").await.status, 401);
    assert_eq!(credentials(&mut owner).await["links"], Value::Array(Vec::new()));
}

#[tokio::test]
async fn b03_the_account_page_knows_that_a_code_alone_does_not_keep_its_session() {
    let world = site().await;
    let mut owner = ada(&world.world).await;
    assert_eq!(connect(&world, &mut owner).await, "ok");
    let secret = enrol_totp(&world.world, &mut owner).await;
    world.world.advance(30);
    // a session by the provider and the app
    let mut browser = world.world.browser();
    let fields = crate::own_account::begin(&mut browser, "/sign-in?steps=2").await;
    let started = browser.post("/authentication/start", &fields).await.json();
    let own = crate::world::with(fields, &[("session_id", started["session_id"].as_str().unwrap())]);
    let more = [("method", "sso"), ("provider", "idp")];
    let away = browser.post("/authentication/authenticate", &crate::world::with(own.clone(), &more)).await.json();
    let back = world.provider.signs_in(away["redirect_url"].as_str().unwrap());
    assert_eq!(outcome(&browser.get(&back).await), "ok");
    let code = totp(&secret, world.world.time());
    let step = crate::world::with(own.clone(), &[("method", "totp"), ("code", &code)]);
    assert_eq!(browser.post("/authentication/authenticate", &step).await.status, 200);
    assert_eq!(browser.post("/authentication/complete", &own).await.status, 200);
    browser.get("/sign-in/finish").await;
    let link = credentials(&mut browser).await["links"][0].clone();
    assert_eq!(link["ends_session"], true);
    assert_eq!(credentials(&mut owner).await["links"][0]["ends_session"], false);
    // and so it does
    world.world.advance(1);
    assert_eq!(call(&mut browser, "links/delete", json!({ "id": link["id"] })).await.status, 204);
    let request = Request::get("/account/credentials").header("sec-fetch-site", "same-origin");
    assert_eq!(browser.send(request, "").await.status, 401);
}
