//! A second factor that counts in fewer logins than others still protects its account: nothing is set up, removed or asked for less
//! than it without a proof of it.

use std::task::{Context, Poll, Waker};

use serde_json::{Value, json};
use tollgate::{
    Client, ClientTable, Policies,
    delivery::NoticeKind,
    event::EventKind,
    policy::Policy,
    store::{AnyStore, Memory},
    user::{Contact, EmailAddress},
};

use crate::{
    controlled_store::ControlledStore,
    enrolled::{app, enrol as enrolled, stored},
    first_second_factor::{Half, MAILBOX, refused, strength, world, world_on},
    own_account::{LONE, acme, begin, call, credentials, enrol_totp, events, prove, sign_in, sign_in_at, totp},
    soft_passkey::{SoftPasskey, text},
    world::{Answer, Browser, CALLBACK, World, join, parameters, query, with},
};

/// The secret of `enrolled::app` as an app shows it.
pub(crate) const SECRET: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
/// A sign-in of one step with nothing but new proofs.
const ANEW: &str = "/sign-in?max_age=0&steps=1";

/// A user with a password, and a passkey that one proof has enrolled.
pub(crate) async fn with_weak_passkey(world: &World) -> SoftPasskey {
    let mut passkey = SoftPasskey::new();
    passkey.handle = vec![0; 32];
    enrolled(world, "u-lone", json!({ "passkeys": [passkey.stored(1)] })).await;
    passkey
}

async fn by_passkey(browser: &mut Browser, own: &Value, passkey: &SoftPasskey) -> Answer {
    let step = with(own.clone(), &[("method", "passkey")]);
    let options = browser.post("/authentication/authenticate", &step).await.json();
    let options = &options["challenges"]["passkey"];
    let mut step = with(step, &[]);
    (step["challenge"], step["response"]) = (options["challenge"].clone(), passkey.get(options));
    browser.post("/authentication/authenticate", &step).await
}

/// Signs in by the password, if it is used, and the passkey.
pub(crate) async fn signed_in(world: &World, with_password: bool, passkey: &SoftPasskey) -> Browser {
    let mut browser = world.browser();
    let fields = begin(&mut browser, ANEW).await;
    let started = browser.post("/authentication/start", &with(fields.clone(), &[("identifier", LONE)])).await.json();
    let own = with(fields, &[("session_id", started["session_id"].as_str().unwrap())]);
    if with_password {
        let proved = prove((world, &mut browser), &own, (LONE, "password"), "").await;
        assert_eq!(proved.json()["remaining_steps"], 1, "a login of one step asks for the passkey");
    }
    let proved = by_passkey(&mut browser, &own, passkey).await;
    assert_eq!(proved.status, 200, "{proved:?}");
    assert_eq!(browser.post("/authentication/complete", &own).await.status, 200);
    assert_eq!(browser.get("/sign-in/finish").await.status, 303);
    browser
}

const CHANGES: [&str; 6] = ["totp/begin", "totp", "passkeys/options", "passkeys", "passkeys/delete", "recovery-codes"];

async fn changes_nothing(browser: &mut Browser, passkey: Option<&SoftPasskey>) {
    let id = passkey.map(|passkey| text(&passkey.id));
    for path in CHANGES {
        let answer = call(browser, path, json!({ "code": "123456", "response": {}, "id": id })).await;
        refused(&answer, 403, "fresh_login_required");
        let url = answer.json()["login_url"].as_str().unwrap().to_owned();
        assert!(url.ends_with("&max_age=0&steps=1"), "{path}: {url}");
    }
}

#[tokio::test]
async fn b09_a_thief_of_the_password_sets_nothing_up_next_to_a_passkey_that_one_proof_has_enrolled() {
    let world = world().await;
    let mut before = sign_in(&world, LONE, &["password"]).await;
    for row in [json!({ "passkeys": [SoftPasskey::new().stored(1)] }), json!({ "totp": app(1) })] {
        enrolled(&world, "u-lone", row).await;
        let row = stored(&world, "u-lone").await;
        let mut half = Half::of(&world, "mfa", LONE).await;
        half.is_not_offered().await;
        let choices = half.choices().await;
        assert_eq!((&choices["methods"], &choices["weak_factor"]), (&json!([]), &json!(true)));
        // nor on the account page, in a session of the password that is older than the passkey
        assert_eq!(credentials(&mut before).await["required_proofs"], 2);
        changes_nothing(&mut before, None).await;
        assert_eq!(stored(&world, "u-lone").await, row);
    }
    // a policy that would accept nothing from the user does not send them to the account page
    for client in ["named", "in-person"] {
        assert_eq!(Half::of(&world, client, LONE).await.choices().await["weak_factor"], Value::Null, "{client}");
    }
}

#[tokio::test]
async fn b09_a_user_who_proves_the_weak_passkey_too_sets_up_a_second_factor() {
    let world = world().await;
    let passkey = with_weak_passkey(&world).await;
    // the passkey alone is one proof, by whoever has enrolled it
    let mut alone = signed_in(&world, false, &passkey).await;
    assert_eq!(credentials(&mut alone).await["fresh_until"], Value::Null);
    changes_nothing(&mut alone, Some(&passkey)).await;

    let mut owner = signed_in(&world, true, &passkey).await;
    let shown = credentials(&mut owner).await;
    assert_eq!(shown["fresh_until"], world.time().as_secs() + 300);
    assert_eq!((&shown["required_proofs"], &shown["has_two_factors"]), (&json!(2), &json!(false)));
    refused(&call(&mut owner, "recovery-codes", json!({})).await, 403, "second_factor_required");
    let secret = enrol_totp(&world, &mut owner).await;
    assert_eq!(strength(&world, "u-lone", "totp").await, json!({ "steps": 2, "proved": [["password"]] }));
    assert_eq!(call(&mut owner, "recovery-codes", json!({})).await.status, 201);
    // the thief of the passkey changes nothing any more
    refused(&call(&mut alone, "totp/delete", json!({})).await, 403, "fresh_login_required");
    world.advance(30);
    let mut half = Half::of(&world, "mfa", LONE).await;
    let code = totp(&secret, world.time());
    let proved = half.browser.call("authenticate", "mfa", &half.id, &[("method", "totp"), ("code", &code)]).await;
    assert_eq!(proved.status, 200, "{proved:?}");
    assert!(half.code().await.is_some());
}

#[tokio::test]
async fn b09_both_proofs_must_be_fresh() {
    let world = world().await;
    let passkey = with_weak_passkey(&world).await;
    let mut owner = signed_in(&world, true, &passkey).await;
    world.advance(299);
    assert_eq!(call(&mut owner, "passkeys/options", json!({})).await.status, 200);
    world.advance(1);
    changes_nothing(&mut owner, Some(&passkey)).await;
}

#[tokio::test]
async fn b09_an_enrolment_that_began_before_the_weak_passkey_was_there_ends() {
    let world = world().await;
    let mut half = Half::of(&world, "mfa", LONE).await;
    let secret = half.begin().await;
    let mut session = sign_in(&world, LONE, &["password"]).await;
    let begun = call(&mut session, "totp/begin", json!({})).await.json();
    with_weak_passkey(&world).await;
    refused(&half.confirm(&world, &secret).await, 409, "method_not_allowed");
    let code = totp(begun["secret"].as_str().unwrap(), world.time());
    refused(&call(&mut session, "totp", json!({ "code": code })).await, 403, "fresh_login_required");
    assert_eq!(stored(&world, "u-lone").await.unwrap()["totp"], Value::Null);
}

#[tokio::test]
async fn b09_of_two_sessions_with_the_weak_passkey_one_sets_up_the_second_factor() {
    let store = ControlledStore::default();
    let world = world_on(store.clone().into(), |service| service).await;
    for _ in 0..6 {
        let passkey = with_weak_passkey(&world).await;
        let mut tabs = Vec::new();
        for _ in 0..2 {
            let mut browser = signed_in(&world, true, &passkey).await;
            let begun = call(&mut browser, "totp/begin", json!({})).await.json();
            let code = totp(begun["secret"].as_str().unwrap(), world.time());
            tabs.push((browser, json!({ "code": code })));
        }
        store.yields();
        let answers = join(tabs.iter_mut().map(|(browser, code)| call(browser, "totp", code.clone()))).await;
        assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1, "{answers:?}");
        let lost = answers.iter().find(|answer| answer.status != 201).unwrap();
        refused(lost, 403, "fresh_login_required");
        assert!(lost.json()["login_url"].as_str().unwrap().ends_with("&max_age=299&steps=2"), "{lost:?}");
    }
}

#[tokio::test]
async fn b09_where_users_may_not_enrol_themselves_a_change_still_needs_the_app_that_a_login_asks_for() {
    let policies = Policies::default().tenant(acme(), Policy::default().without_self_enrolment());
    let world = world_on(Memory::new().into(), |service| service.policies(policies)).await;
    let mut thief = sign_in(&world, LONE, &["password"]).await;
    let secret = enrol_totp(&world, &mut sign_in(&world, LONE, &["password"]).await).await;
    assert_eq!(credentials(&mut thief).await["required_proofs"], 2);
    changes_nothing(&mut thief, None).await;
    refused(&call(&mut thief, "totp/delete", json!({})).await, 403, "fresh_login_required");
    // the login that the error names asks for the app
    world.advance(30);
    let mut owner = world.browser();
    let app = format!("totp:{}", totp(&secret, world.time()));
    assert_eq!(sign_in_at(&world, &mut owner, ANEW, LONE, &["password", &app]).await.status, 303);
    assert_eq!(call(&mut owner, "passkeys/options", json!({})).await.status, 200);
    assert_eq!(call(&mut owner, "totp/delete", json!({})).await.status, 204);
}

#[tokio::test]
async fn b09_where_users_may_not_enrol_themselves_their_own_app_is_no_second_proof_of_a_change() {
    let policies = Policies::default().tenant(acme(), Policy::default().without_self_enrolment());
    let world = world_on(Memory::new().into(), |service| service.policies(policies)).await;
    let secret = enrol_totp(&world, &mut sign_in(&world, LONE, &["password"]).await).await;
    // the account gets a mailbox, so from now on its longest login is that of the password and a code by e-mail
    let (lone, address) = ("u-lone".parse().unwrap(), "lone@example.com");
    let mailbox = Contact::Email(EmailAddress::parse(address).unwrap());
    world.users.add_contact(&acme(), &lone, mailbox.clone()).await.unwrap();
    world.users.verify_contact(&acme(), &lone, mailbox).await.unwrap();
    world.advance(30);
    let (mut thief, app) = (world.browser(), format!("totp:{}", totp(&secret, world.time())));
    assert_eq!(sign_in_at(&world, &mut thief, ANEW, LONE, &["password", &app]).await.status, 303);
    let answer = call(&mut thief, "totp/delete", json!({})).await;
    refused(&answer, 403, "fresh_login_required");
    assert!(answer.json()["login_url"].as_str().unwrap().ends_with("&max_age=299&steps=2"), "{answer:?}");
    // the owner adds the mailbox to the same proofs
    let fields = begin(&mut thief, "/sign-in?max_age=299&steps=2").await;
    let started = thief.post("/authentication/start", &fields).await.json();
    let own = with(fields, &[("session_id", started["session_id"].as_str().unwrap())]);
    assert_eq!(started["next_step"], 2, "the password is fresh");
    let sent = thief
        .post("/authentication/authenticate", &with(own.clone(), &[("method", "email"), ("email", address)]))
        .await;
    assert_eq!(sent.status, 200, "{sent:?}");
    let code = world.code(address).await;
    assert_eq!(thief.post("/authentication/verify-otp", &with(own.clone(), &[("otp", &code)])).await.status, 200);
    assert_eq!(thief.post("/authentication/complete", &own).await.status, 200);
    assert_eq!(thief.get("/sign-in/finish").await.status, 303);
    assert_eq!(call(&mut thief, "totp/delete", json!({})).await.status, 204);
}

// ---- a request that names a level

/// Policies that don't ask for enrolled factors, and a level that does.
async fn with_level() -> World {
    let lax = || Policy::default().without_enrolled_second_factor();
    let client = |id: &str| {
        let client = Client::new(id, acme()).unwrap().scopes("openid").unwrap().redirect_uri(CALLBACK).unwrap();
        client.policy(lax()).single_sign_on()
    };
    let policies = Policies::new(lax()).acr("asked", Policy::default()).unwrap().acr("lax", lax()).unwrap();
    let clients = ClientTable::new([client("web"), client("other")]).unwrap();
    world_on(Memory::new().into(), |service| service.clients(clients).policies(policies)).await
}

#[tokio::test]
async fn b08_a_login_that_did_not_ask_for_the_factor_does_not_reach_a_level_that_does() {
    let world = with_level().await;
    enrolled(&world, "u-lone", json!({ "totp": app(2) })).await;
    let mut half = Half::of(&world, "web", LONE).await;
    assert_eq!(half.browser.complete("web", &half.id).await.status, 200, "it needs one step");
    let asked = format!("/authorize?{}&acr_values=asked", query("web"));
    let answer = half.browser.get(&asked).await;
    assert_eq!(answer.redirected("code"), None, "{answer:?}");
    // for what it was made for, and for a level that asks for no more, it is enough
    assert!(
        half.browser.get(&format!("/authorize?{}&acr_values=lax", query("web"))).await.redirected("code").is_some()
    );
    // nor does its session reach the level
    for client in ["web", "other"] {
        let asked = format!("/authorize?{}&acr_values=asked", query(client));
        let silent = half.browser.get(&format!("{asked}&prompt=none")).await;
        assert_eq!(silent.redirected("error").as_deref(), Some("login_required"), "{client}");
        assert_eq!(half.browser.get(&asked).await.redirected("code"), None, "{client}");
        let silent = half.browser.get(&format!("/authorize?{}&prompt=none", query(client))).await;
        assert!(silent.redirected("code").is_some(), "{client}");
    }
    // a login that takes over its proof asks for the factor
    let fields = with(parameters("other"), &[("acr_values", "asked")]);
    let started = half.browser.post("/authentication/start", &fields).await.json();
    assert_eq!((&started["required_steps"], &started["next_step"]), (&json!(2), &json!(2)));
    let id = started["session_id"].as_str().unwrap().to_owned();
    assert_eq!(half.browser.complete("other", &id).await.error(), "steps_remaining");
    let code = totp(SECRET, world.time());
    let proved = half.browser.call("authenticate", "other", &id, &[("method", "totp"), ("code", &code)]).await;
    assert_eq!(proved.status, 200, "{proved:?}");
    assert_eq!(half.browser.complete("other", &id).await.status, 200);
    let asked = format!("/authorize?{}&acr_values=asked", query("other"));
    assert!(half.browser.get(&asked).await.redirected("code").is_some());
    // and from now on the session does
    let asked = format!("/authorize?{}&acr_values=asked&prompt=none", query("web"));
    assert!(half.browser.get(&asked).await.redirected("code").is_some());
}

#[tokio::test]
async fn b09_the_sign_in_before_a_change_asks_for_the_factor_even_where_others_do_not() {
    let world = with_level().await;
    let passkey = with_weak_passkey(&world).await;
    let mut thief = world.browser();
    assert_eq!(sign_in_at(&world, &mut thief, "/sign-in", LONE, &["password"]).await.status, 303);
    changes_nothing(&mut thief, Some(&passkey)).await;
    let mut owner = signed_in(&world, true, &passkey).await;
    enrol_totp(&world, &mut owner).await;
}

#[tokio::test]
async fn b08_a_user_without_a_factor_reaches_the_level_silently() {
    let world = with_level().await;
    let mut half = Half::of(&world, "web", LONE).await;
    assert!(half.code().await.is_some());
    let asked = format!("/authorize?{}&acr_values=asked&prompt=none", query("other"));
    assert!(half.browser.get(&asked).await.redirected("code").is_some());
}

// ---- a connection that breaks

/// Polls an enrolment this many times and then drops it, as a server does whose caller disconnects. Returns whether it was done
/// before.
async fn dropped(polls: usize, in_login: bool) -> bool {
    let store = ControlledStore::default();
    let world = world_on(AnyStore::from(store.clone()), |service| service).await;
    let mut browser = world.browser();
    let enrolment: std::pin::Pin<Box<dyn Future<Output = Answer> + Send>> = if in_login {
        let id = browser.start("mfa", MAILBOX).await;
        assert_eq!(browser.ask("mfa", &id, "email", MAILBOX).await.status, 200);
        let code = world.code(MAILBOX).await;
        assert_eq!(browser.verify("mfa", &id, &code).await.status, 200);
        let begun = browser.call("enrol", "mfa", &id, &[("method", "totp")]).await.json();
        let code = totp(begun["secret"].as_str().unwrap(), world.time());
        Box::pin(async move { browser.call("enrol", "mfa", &id, &[("method", "totp"), ("code", &code)]).await })
    } else {
        sign_in_at(&world, &mut browser, "/sign-in", MAILBOX, &["email"]).await;
        let begun = call(&mut browser, "totp/begin", json!({})).await.json();
        let code = totp(begun["secret"].as_str().unwrap(), world.time());
        Box::pin(async move { call(&mut browser, "totp", json!({ "code": code })).await })
    };
    store.yields();
    let mut enrolment = enrolment;
    let mut is_done = false;
    for _ in 0..polls {
        if let Poll::Ready(answer) = enrolment.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            assert!(answer.status.is_success(), "{answer:?}");
            is_done = true;
            break;
        }
    }
    drop(enrolment);
    for _ in 0..10 {
        world.settle().await;
    }
    let is_stored = stored(&world, "u-mailbox").await.is_some_and(|row| row["totp"].is_object());
    let messages = world.outbox.messages();
    let notices: Vec<_> = messages.iter().filter_map(|message| Some(message.notice()?.kind())).collect();
    let expected = if is_stored { &[NoticeKind::TotpAdded][..] } else { &[] };
    assert_eq!(notices, expected, "after {polls} polls");
    assert_eq!(events(&world, EventKind::CredentialAdded).len(), usize::from(is_stored), "after {polls} polls");
    is_done
}

#[tokio::test]
async fn b09_an_enrolment_whose_connection_breaks_is_announced() {
    for in_login in [true, false] {
        let mut polls = 0;
        while !dropped(polls, in_login).await {
            polls += 1;
        }
        assert!(polls > 10, "{polls}");
    }
}
