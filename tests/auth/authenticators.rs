//! Authenticator apps and recovery codes as steps of a login.

use serde_json::json;
use tollgate::{
    Client, ClientTable, Secret, Tenant, Tokens, UserId,
    auth::{AuthServiceBuilder, Totp},
    event::{EventKind, Query},
    policy::Policy,
    store::Memory,
};

use crate::{
    controlled_store::{ControlledStore, FAULTS},
    enrolled::{CODES, app, enrol, recovery, stored, world, world_on},
    own_account::{acme, call, sign_in, totp},
    world::{ADA, ADA_PASSWORD, Answer, Browser, CALLBACK, GRACE, GRACE_PASSWORD, NOBODY, World, clients, join},
};

fn ada() -> (Tenant, UserId) {
    ("acme".parse().unwrap(), "u-ada".parse().unwrap())
}

async fn code(browser: &mut Browser, id: &str, code: &str) -> Answer {
    browser.call("authenticate", "mfa", id, &[("method", "totp"), ("code", code)]).await
}

/// Begins a login of two steps and proves the password.
async fn half(world: &World, who: &str) -> (Browser, String) {
    let mut browser = world.browser();
    let id = browser.start("mfa", who).await;
    let password = if who == GRACE { GRACE_PASSWORD } else { ADA_PASSWORD };
    assert_eq!(browser.password("mfa", &id, who, password).await.status, 200);
    (browser, id)
}

#[tokio::test]
async fn c124_a_code_of_an_app_is_the_second_step_and_each_code_is_accepted_once() {
    let world = world(|service| service).await;
    enrol(&world, "u-ada", json!({ "totp": app(2) })).await;
    let (mut browser, id) = half(&world, ADA).await;
    let (mut other, other_id) = half(&world, ADA).await;
    // the codes of the steps around this one are 0, 1 and 2
    for wrong in ["000000", CODES[3], "28708", "2870821"] {
        let answer = code(&mut browser, &id, wrong).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "invalid_otp"), "{wrong}");
    }
    let answer = code(&mut browser, &id, CODES[1]).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["remaining_steps"]), (200, &json!(0)), "{answer:?}");
    // the same code, and one from before it
    for used in [CODES[1], CODES[0]] {
        let answer = code(&mut other, &other_id, used).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "invalid_otp"), "{used}");
    }
    // the clock of the device is one step ahead
    assert_eq!(code(&mut other, &other_id, CODES[2]).await.status, 200);
    for (browser, id) in [(&mut browser, &id), (&mut other, &other_id)] {
        assert_eq!(browser.complete("mfa", id).await.status, 200);
        assert!(browser.authorize("mfa").await.redirected("code").is_some());
    }
    let (acme, ada) = ada();
    let sessions = world.sessions.list(&acme, &ada).await.unwrap();
    assert!(sessions.iter().all(|session| session.amr().eq(["pwd", "otp", "mfa"])), "{sessions:?}");
}

#[tokio::test]
async fn c124_of_concurrent_logins_with_the_same_code_one_succeeds() {
    let store = ControlledStore::default();
    let world = world_on(store.clone().into(), |service| service.totp(Totp::new().seal(&Secret::generate()))).await;
    enrol(&world, "u-ada", json!({ "totp": app(2) })).await;
    for shown in &CODES[1..8] {
        let mut logins = Vec::new();
        for _ in 0..4 {
            logins.push(half(&world, ADA).await);
        }
        store.yields();
        let attempts = logins.iter_mut().map(|(browser, id)| code(browser, id, shown));
        let answers = join(attempts).await;
        assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1, "{answers:?}");
        world.advance(30);
        // lifts the locks that the refused attempts have caused
        let (acme, _) = ada();
        world.service.unlock(&acme, &ADA.parse().unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn c124_recovery_codes_are_stored_as_digests_and_only_one_of_concurrent_logins_can_use_one() {
    let store = ControlledStore::default();
    let site = |service: AuthServiceBuilder| service.first_party(acme()).totp(Totp::new().seal(&Secret::generate()));
    let world = world_on(store.clone().into(), site).await;
    let mut owner = sign_in(&world, ADA, &["password", "email"]).await;
    let made = call(&mut owner, "recovery-codes", json!({})).await.json();
    let row = stored(&world, "u-ada").await.unwrap();
    let mut weak = row.clone();
    weak["recovery"]["strength"] = json!(1);
    for code in made["codes"].as_array().unwrap().iter().take(4).map(|code| code.as_str().unwrap()) {
        assert!(!row.to_string().contains(code) && !row.to_string().contains(&code.replace('-', "")));
        let more = [("method", "recovery_code"), ("code", code)];
        let before = stored(&world, "u-ada").await.unwrap();
        enrol(&world, "u-ada", weak.clone()).await;
        let (mut browser, id) = half(&world, ADA).await;
        assert_eq!(browser.call("authenticate", "mfa", &id, &more).await.error(), "invalid_otp", "too weak");
        enrol(&world, "u-ada", before).await;
        let mut logins = Vec::new();
        for _ in 0..4 {
            logins.push(half(&world, ADA).await);
        }
        store.yields();
        let attempts = logins.iter_mut().map(|(browser, id)| browser.call("authenticate", "mfa", id, &more));
        let answers = join(attempts).await;
        assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1, "{answers:?}");
        // lifts the locks that the refused attempts have caused
        world.service.unlock(&acme(), &ADA.parse().unwrap()).await.unwrap();
    }
    let left = stored(&world, "u-ada").await.unwrap();
    assert_eq!(left["recovery"]["unused"].as_array().unwrap().len(), 6);
}

#[tokio::test]
async fn c124_a_code_is_never_the_first_step_and_in_no_list_of_available_methods() {
    let world = world(|service| service).await;
    enrol(&world, "u-ada", json!({ "totp": app(2) })).await;
    for client in ["web", "mfa"] {
        let mut answers = Vec::new();
        for who in [ADA, GRACE, NOBODY] {
            let mut browser = world.browser();
            let body = crate::world::with(crate::world::parameters(client), &[("identifier", who)]);
            let started = browser.post("/authentication/start", &body).await.json();
            assert_eq!(started["available_methods"], json!(["password", "sms", "email", "whatsapp"]));
            let id = started["session_id"].as_str().unwrap();
            for (method, code) in [("totp", CODES[1]), ("recovery_code", "abcd-efgh-jkmn")] {
                let answer = browser.call("authenticate", client, id, &[("method", method), ("code", code)]).await;
                assert_eq!((answer.status.as_u16(), &*answer.error()), (409, "method_not_allowed"), "{who}");
                answers.push(answer.own());
            }
        }
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    }
    let mut browser = world.browser();
    let page = browser.send(
        http::Request::get(format!("/authentication/start?{}", crate::world::query("mfa")))
            .header("accept", "application/json"),
        "",
    );
    assert_eq!(page.await.json()["available_methods"], json!(["password", "sms", "email", "whatsapp"]));
}

#[tokio::test]
async fn c124_guesses_are_slowed_down_and_end_the_login() {
    let world = world(|service| service).await;
    enrol(&world, "u-ada", json!({ "totp": app(2), "recovery": recovery(2) })).await;
    let (mut browser, id) = half(&world, ADA).await;
    for _ in 0..5 {
        assert_eq!(code(&mut browser, &id, "000000").await.error(), "invalid_otp");
    }
    let answer = code(&mut browser, &id, CODES[1]).await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (429, "too_many_attempts"));
    // another login has to wait too, but not with its recovery codes
    let (mut other, other_id) = half(&world, ADA).await;
    assert_eq!(code(&mut other, &other_id, CODES[1]).await.error(), "too_many_attempts");
    let more = [("method", "recovery_code"), ("code", "abcd-efgh-jkmn")];
    assert_eq!(other.call("authenticate", "mfa", &other_id, &more).await.error(), "invalid_otp");
    world.advance(31);
    assert_eq!(code(&mut browser, &id, CODES[2]).await.status, 200);
}

#[tokio::test]
async fn c124_an_account_at_its_ceiling_refuses_the_right_code_like_a_wrong_one() {
    let world = world(|service| service).await;
    enrol(&world, "u-ada", json!({ "totp": app(2) })).await;
    // strangers have eighty of the hundred failures
    for _ in 0..80 {
        world.advance(3600);
        let (mut stranger, id) = half(&world, ADA).await;
        assert_eq!(code(&mut stranger, &id, "wrong").await.error(), "invalid_otp");
    }
    for (seconds, expected) in [(3600, 401), (86_400, 200)] {
        world.advance(seconds);
        let (mut browser, id) = half(&world, ADA).await;
        // the secret of the app in base32
        let right = totp("GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", world.time());
        assert_eq!(code(&mut browser, &id, &right).await.status.as_u16(), expected);
    }
}

#[tokio::test]
async fn c124_a_missing_or_empty_code_is_not_an_attempt() {
    let world = world(|service| service).await;
    let (mut browser, id) = half(&world, ADA).await;
    for more in [&[("method", "totp")][..], &[("method", "totp"), ("code", "")], &[("method", "recovery_code")]] {
        let answer = browser.call("authenticate", "mfa", &id, more).await;
        assert_eq!(answer.json()["error_description"], "code is missing");
    }
    // without an app, every code is wrong
    assert_eq!(code(&mut browser, &id, CODES[1]).await.error(), "invalid_otp");
    let answer = browser.call("authenticate", "mfa", &id, &[("method", "recovery_code"), ("code", "x")]).await;
    assert_eq!(answer.error(), "invalid_otp");
}

#[tokio::test]
async fn c116_a_code_of_another_user_proves_nothing() {
    let world = world(|service| service).await;
    enrol(&world, "u-grace", json!({ "totp": app(2) })).await;
    let (mut browser, id) = half(&world, ADA).await;
    assert_eq!(code(&mut browser, &id, CODES[1]).await.error(), "invalid_otp");
    let (mut graces, id) = half(&world, GRACE).await;
    assert_eq!(code(&mut graces, &id, CODES[1]).await.status, 200);
}

#[tokio::test]
async fn c117_a_credential_never_counts_in_a_login_of_more_steps_than_it_was_enrolled_with() {
    let three = Client::new("three", "acme".parse().unwrap()).unwrap().scopes("openid").unwrap();
    let three = three.redirect_uri(CALLBACK).unwrap().policy(Policy::any(3).unwrap()).single_sign_on();
    let all = clients().iter().map(|client| Client::clone(client)).collect::<Vec<_>>();
    let clients = ClientTable::new(all.into_iter().chain([three])).unwrap();
    let world = world(|service| service.clients(clients)).await;
    // enrolled after a password alone: a stolen password must not become two steps
    enrol(&world, "u-ada", json!({ "totp": app(1) })).await;
    let (mut thief, id) = half(&world, ADA).await;
    let choices = thief.get(&format!("/authentication/choices?session_id={id}")).await;
    assert!(!choices.text.contains("totp"), "{choices:?}");
    assert_eq!(code(&mut thief, &id, CODES[1]).await.error(), "invalid_otp");
    // enrolled with two steps: it counts in a login of two, but is not carried into one of three
    enrol(&world, "u-ada", json!({ "totp": app(2) })).await;
    let (mut browser, id) = half(&world, ADA).await;
    assert_eq!(code(&mut browser, &id, CODES[1]).await.status, 200);
    assert_eq!(browser.complete("mfa", &id).await.status, 200);
    assert!(browser.authorize("mfa").await.redirected("code").is_some());
    let id = browser.start("three", ADA).await;
    assert_eq!(browser.status(&id).await.json()["completed_steps"], 1);
    enrol(&world, "u-ada", json!({ "totp": app(3) })).await;
    let id = browser.start("three", ADA).await;
    assert_eq!(browser.status(&id).await.json()["completed_steps"], 2);
}

#[tokio::test]
async fn c120_removing_an_app_ends_what_its_code_carried() {
    let world = world(|service| service).await;
    enrol(&world, "u-ada", json!({ "totp": app(2) })).await;
    let (mut browser, id) = half(&world, ADA).await;
    assert_eq!(code(&mut browser, &id, CODES[1]).await.status, 200);
    // in a login that is complete
    assert_eq!(browser.complete("mfa", &id).await.status, 200);
    enrol(&world, "u-ada", json!({})).await;
    assert_eq!(browser.authorize("mfa").await.redirected("error").as_deref(), Some("access_denied"));
    // in a session, which keeps the password
    enrol(&world, "u-ada", json!({ "totp": app(2) })).await;
    let (mut browser, id) = half(&world, ADA).await;
    assert_eq!(code(&mut browser, &id, CODES[2]).await.status, 200);
    assert_eq!(browser.complete("mfa", &id).await.status, 200);
    assert!(browser.authorize("mfa").await.redirected("code").is_some());
    enrol(&world, "u-ada", json!({})).await;
    let (acme, ada) = ada();
    assert_eq!(world.service.credential_changed(&acme, &ada).await.unwrap(), 0);
    let sessions = world.sessions.list(&acme, &ada).await.unwrap();
    assert_eq!(sessions.len(), 1);
    assert!(sessions[0].amr().eq(["pwd"]), "{sessions:?}");
}

#[tokio::test]
async fn c120_a_session_with_codes_of_an_app_alone_ends() {
    let world = world(|service| service).await;
    enrol(&world, "u-ada", json!({ "totp": app(2) })).await;
    let (mut browser, id) = half(&world, ADA).await;
    assert_eq!(code(&mut browser, &id, CODES[1]).await.status, 200);
    assert_eq!(browser.complete("mfa", &id).await.status, 200);
    assert!(browser.authorize("mfa").await.redirected("code").is_some());
    let (acme, ada) = ada();
    world.users.set_password(&acme, &ada, None).await.unwrap();
    assert_eq!(world.service.credential_changed(&acme, &ada).await.unwrap(), 1);
    assert!(world.sessions.list(&acme, &ada).await.unwrap().is_empty());
}

#[tokio::test]
async fn c124_a_persistent_store_needs_a_seal() {
    let build = |totp: Totp, tokens: Tokens| {
        let store = ControlledStore::default();
        let users = tollgate::StoredUsers::new(Memory::new());
        let service = tollgate::AuthService::builder("https://auth.example", store).users(users);
        service.client_ip(tollgate::ClientIp::peer()).totp(totp).tokens(tokens).build()
    };
    let seal = Secret::generate();
    assert!(build(Totp::new(), Tokens::new()).unwrap_err().to_string().starts_with("totp seal"));
    assert!(build(Totp::new().seal(&seal), Tokens::new()).is_ok());
    assert!(build(Totp::new(), Tokens::new().seal(&seal)).is_ok());
}

#[tokio::test]
async fn forget_user_deletes_everything_even_if_it_is_interrupted_anywhere() {
    let whole = json!({
        "totp": app(2),
        "links": [{ "issuer": "https://idp.example", "subject": "1", "provider": "idp", "name": "", "created_at": 0,
            "strength": 2 }],
    });
    let (acme, ada) = ada();
    for fault in FAULTS {
        for at in 0.. {
            let store = ControlledStore::default();
            let seal = Secret::generate();
            let world = world_on(store.clone().into(), |service| service.totp(Totp::new().seal(&seal))).await;
            world.browser().sign_in("web").await;
            enrol(&world, "u-ada", whole.clone()).await;
            store.fail(at, fault);
            let answer = world.service.forget_user(&acme, &ada).await;
            let failed = store.heal();
            assert_eq!(answer.is_err(), failed && answer.is_err());
            world.service.forget_user(&acme, &ada).await.unwrap();
            assert_eq!(stored(&world, "u-ada").await, None, "{at} {fault:?}");
            assert!(world.sessions.list(&acme, &ada).await.unwrap().is_empty(), "{at} {fault:?}");
            let events = world.log.read_events(&Query::new().kind(EventKind::UserForgotten)).events;
            assert_eq!(events.len(), if answer.is_ok() { 2 } else { 1 }, "{at} {fault:?}");
            assert!(events.iter().all(|event| event.tenant == Some(acme.clone().into()) && event.subject.is_some()));
            if !failed {
                break;
            }
        }
    }
}
