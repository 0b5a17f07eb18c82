//! A new password on the account page.

use http::Request;
use serde_json::{Value, json};
use tollgate::{
    NewUser, Password,
    auth::AuthServiceBuilder,
    delivery::NoticeKind,
    event::EventKind,
    password::{BreachedPasswords, PasswordRules},
    policy::{Policies, Policy},
    store::{AnyStore, Memory},
    testing::ManualClock,
    user::{EmailAddress, StoredUsers},
};

use crate::{
    first_party::WithRoles,
    own_account::{LONE, acme, ada, begin, call, credentials, events, prove, sessions, sign_in, site, told},
    world::{ADA, ADA_PASSWORD, ADA_PHONE, Answer, Browser, World, join, with},
};

const NEW: &str = "gravel under moonlight";

async fn change(browser: &mut Browser, password: &str) -> Answer {
    call(browser, "password", json!({ "new_password": password })).await
}

/// Tries a password in a new browser.
async fn is_right(world: &World, who: &str, password: &str) -> bool {
    let mut browser = world.browser();
    let id = browser.start("web", who).await;
    browser.password("web", &id, who, password).await.status == 200
}

#[tokio::test]
async fn c132_a_new_password_ends_all_other_sessions_and_renews_its_own() {
    let world = site(|service| service).await;
    let mut elsewhere = sign_in(&world, ADA, &["password"]).await;
    let mut browser = ada(&world).await;
    let own = sessions(&world, "u-ada").await.iter().map(tollgate::Session::sid).collect::<Vec<_>>();
    let before = credentials(&mut browser).await;
    let sid = before["sessions"].as_array().unwrap().iter().find(|it| it["current"] == true).unwrap()["sid"].clone();
    assert_eq!(own.len(), 2);

    let changed = change(&mut browser, NEW).await;
    assert_eq!((changed.status.as_u16(), &*changed.text), (204, ""), "{changed:?}");
    let after = credentials(&mut browser).await;
    assert_eq!(after["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(after["sessions"][0]["sid"], sid);
    assert_eq!(after["fresh_until"], before["fresh_until"], "the proof by password counts for the new one");
    assert!(sessions(&world, "u-ada").await[0].amr().eq(["pwd", "otp", "mfa"]));
    let refused = elsewhere.get("/account/credentials").await;
    assert_eq!((refused.status.as_u16(), &*refused.error()), (401, "login_required"));

    assert!(is_right(&world, ADA, NEW).await);
    assert!(!is_right(&world, ADA, ADA_PASSWORD).await);
    let all = [(ADA.to_owned(), NoticeKind::PasswordChanged), (ADA_PHONE.to_owned(), NoticeKind::PasswordChanged)];
    assert_eq!(told(&world).await, all);
    assert_eq!(events(&world, EventKind::PasswordChanged), ["password"]);
}

#[tokio::test]
async fn c132_a_login_with_the_old_password_ends_when_the_password_changes() {
    let world = site(|service| service).await;
    let (mut thief, mut browser) = (world.browser(), ada(&world).await);
    let fields = begin(&mut thief, "/sign-in").await;
    let started = thief.post("/authentication/start", &with(fields.clone(), &[("identifier", ADA)])).await;
    let own = with(fields, &[("session_id", started.json()["session_id"].as_str().unwrap())]);
    assert_eq!(prove((&world, &mut thief), &own, (ADA, "password"), "").await.status, 200);
    assert_eq!(thief.post("/authentication/complete", &own).await.status, 200);
    assert_eq!(change(&mut browser, NEW).await.status, 204);
    assert_eq!(thief.get("/sign-in/finish").await.error(), "access_denied");
    assert_eq!(sessions(&world, "u-ada").await.len(), 1);
}

#[tokio::test]
async fn c132_changes_and_logins_at_the_same_time_leave_one_password_and_no_old_session() {
    for round in 0..8 {
        let world = site(|service| service).await;
        let (mut one, mut other) = (ada(&world).await, world.browser());
        world.advance(31);
        let mut two = ada(&world).await;
        let fields = begin(&mut other, "/sign-in").await;
        let started = other.post("/authentication/start", &with(fields.clone(), &[("identifier", ADA)])).await;
        let own = with(fields, &[("session_id", started.json()["session_id"].as_str().unwrap())]);
        let password = |number: u8| format!("{NEW} number {number}");
        let login = async {
            let proved = prove((&world, &mut other), &own, (ADA, "password"), "").await;
            if proved.status == 200 && other.post("/authentication/complete", &own).await.status == 200 {
                other.get("/sign-in/finish").await;
            }
            None
        };
        let changes: [std::pin::Pin<Box<dyn Future<Output = Option<u16>>>>; 3] = [
            Box::pin(async { Some(change(&mut one, &password(1)).await.status.as_u16()) }),
            Box::pin(async { Some(change(&mut two, &password(2)).await.status.as_u16()) }),
            Box::pin(login),
        ];
        let outcomes = join(changes).await;
        let done: Vec<_> = (0..2).filter(|place| outcomes[*place] == Some(204)).collect();
        assert_eq!(done.len(), 1, "{round}: {outcomes:?}");
        let refused = outcomes[1 - done[0]].unwrap();
        assert!([409, 401].contains(&refused), "{refused}");
        assert!(is_right(&world, ADA, &password(u8::try_from(done[0] + 1).unwrap())).await);
        // a session that the old password has begun is gone as soon as its account is read
        let mut winner = if done[0] == 0 { one } else { two };
        let asked = Request::get("/account/credentials").header("sec-fetch-site", "same-origin");
        let late = other.send(asked, "").await;
        assert_eq!((late.status.as_u16(), &*late.error()), (401, "login_required"));
        assert_eq!(credentials(&mut winner).await["sessions"].as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_new_password_needs_fresh_proofs_and_a_page_of_the_site() {
    let world = site(|service| service).await;
    let mut browser = ada(&world).await;
    let body = json!({ "new_password": NEW }).to_string();
    let foreign = Request::post("/account/password").header("sec-fetch-site", "cross-site");
    let refused = browser.send(foreign.header("content-type", "application/json"), body).await;
    assert_eq!((refused.status.as_u16(), &*refused.error()), (403, "origin_not_allowed"));
    assert_eq!(call(&mut browser, "password", json!({})).await.error(), "invalid_request");
    world.advance(300);
    let refused = change(&mut browser, NEW).await;
    assert_eq!((refused.status.as_u16(), &*refused.error()), (403, "fresh_login_required"));
    let url = "/sign-in?return_to=%2Faccount%2Fsecurity&max_age=299&steps=2";
    assert_eq!(refused.json()["login_url"], url);
    assert_eq!(credentials(&mut browser).await["fresh_login_url"], url);
    assert_eq!(change(&mut world.browser(), NEW).await.error(), "login_required");
    assert!(is_right(&world, ADA, ADA_PASSWORD).await);
    // an account with one factor needs that one
    let mut lone = sign_in(&world, LONE, &["password"]).await;
    assert_eq!(change(&mut lone, NEW).await.status, 204);
    assert!(is_right(&world, LONE, NEW).await);
}

/// Knows one password.
struct Published;

impl BreachedPasswords for Published {
    type Error = std::convert::Infallible;

    async fn is_breached(&self, password: &Password) -> Result<bool, Self::Error> {
        Ok(password.expose() == "moonlight over gravel")
    }
}

#[tokio::test]
async fn a_new_password_meets_the_rules_of_the_site() {
    let two = Policies::new(Policy::any(2).unwrap());
    for (policies, least, fourteen) in [(Policies::default(), 15, "password_too_short"), (two, 8, "")] {
        let world =
            site(|service| service.policies(policies).password_rules(PasswordRules::new().breached(Published))).await;
        let mut browser = ada(&world).await;
        assert_eq!(credentials(&mut browser).await["least_password"], least);
        for (password, error) in [
            ("gravel7", "password_too_short"),
            ("passwordpassword", "password_common"),
            ("ada@example.com-1", "password_own_name"),
            ("acme auth.example", "password_own_name"),
            ("moonlight over gravel", "password_breached"),
            (&"moon over gravel ".repeat(16), "password_too_long"),
        ] {
            let refused = change(&mut browser, password).await;
            assert_eq!((refused.status.as_u16(), &*refused.error()), (400, error), "{password}");
        }
        assert!(is_right(&world, ADA, ADA_PASSWORD).await);
        let answer = change(&mut browser, "gravel and moo").await;
        match fourteen {
            "" => assert_eq!(answer.status, 204, "{answer:?}"),
            error => assert_eq!(answer.error(), error),
        }
    }
}

#[tokio::test]
async fn the_first_password_needs_two_other_factors() {
    let world = site(|service| service).await;
    let mailbox = EmailAddress::parse("mail@example.com").unwrap();
    let user = NewUser::new("u-mail".parse().unwrap(), "mail@example.com".parse().unwrap()).contact(mailbox);
    world.users.create(&acme(), user).await.unwrap();
    let mut browser = sign_in(&world, "mail@example.com", &["email"]).await;
    assert_eq!(credentials(&mut browser).await["has_password"], false);
    let refused = change(&mut browser, NEW).await;
    assert_eq!((refused.status.as_u16(), &*refused.error()), (403, "second_factor_required"));
}

#[tokio::test]
async fn what_the_accounts_do_not_offer_is_not_there() {
    let (store, clock) = (AnyStore::from(Memory::new()), ManualClock::new());
    let users = WithRoles(StoredUsers::with_clock(store.clone(), clock.clone()));
    let own = |service: AuthServiceBuilder| service.users(users).first_party(acme());
    let world = World::on(store, clock, own).await;
    let mut browser = ada(&world).await;
    let shown = credentials(&mut browser).await;
    let none = json!({ "password": false, "name": false, "email": false, "phone": false, "delete": false });
    assert_eq!(shown["changes"], none);
    let unknown = call(&mut browser, "nothing", json!({})).await;
    for path in ["password", "name", "contacts/begin", "contacts", "delete"] {
        let answer = call(&mut browser, path, json!({})).await;
        assert_eq!((answer.status.as_u16(), answer.own()), (404, unknown.own()), "{path}");
    }
    assert_eq!(browser.get("/.well-known/change-password").await.status, 404);
    assert_eq!(browser.get("/.well-known/passkey-endpoints").await.status, 404);
}

#[tokio::test]
async fn password_managers_and_browsers_find_the_account_page() {
    let world = site(|service| service.passkeys(tollgate::Passkeys::new("auth.example"))).await;
    let mut browser = world.browser();
    let found = browser.get("/.well-known/change-password").await;
    assert_eq!((found.status.as_u16(), found.header("location")), (303, "/account/security"));
    let found = browser.get("/.well-known/passkey-endpoints").await;
    let page = "https://auth.example/account/security";
    assert_eq!(found.json(), json!({ "enroll": page, "manage": page }));
    // a random path is the control that password managers use
    assert_eq!(
        browser.get("/.well-known/resource-that-should-not-exist-whose-status-code-should-not-be-200").await.status,
        404
    );
}

#[tokio::test]
async fn a_name_is_set_trimmed_and_removed() {
    let world = site(|service| service).await;
    let mut browser = sign_in(&world, ADA, &["password"]).await;
    world.advance(301);
    let name = async |browser: &mut Browser| credentials(browser).await["name"].clone();
    assert_eq!(name(&mut browser).await, Value::Null);
    let set = async |browser: &mut Browser, name: Value| call(browser, "name", json!({ "name": name })).await;
    assert_eq!(set(&mut browser, json!(" Ada Lovelace ")).await.status, 204);
    assert_eq!(name(&mut browser).await, "Ada Lovelace");
    for bad in [json!("x".repeat(321)), json!("a\nb")] {
        assert_eq!(set(&mut browser, bad).await.error(), "invalid_request");
    }
    assert_eq!(call(&mut browser, "name", json!({})).await.error(), "invalid_request");
    assert_eq!(set(&mut browser, json!("  ")).await.status, 204);
    assert_eq!(name(&mut browser).await, Value::Null);
    assert_eq!(events(&world, EventKind::AccountUpdated).len(), 2);
    assert_eq!(told(&world).await, []);
}
