//! How a signed-in user proves what is missing for a change of the account, and who else cannot.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    enrolled::stored,
    own_account::{LONE, acme, ada, begin, call, credentials, described, prove, sessions, sign_in, site},
    world::{ADA, ADA_PASSWORD, Answer, Browser, GRACE, GRACE_PASSWORD, NOBODY, World, parameters, with},
};

/// The URL that `fresh_login_required` names.
const STEP_UP: &str = "/sign-in?return_to=%2Faccount%2Fsecurity&max_age=299&steps=2";
const PAGE: &str = "/account/security";

/// Begins a step-up without a name, as the page does. Returns the members of its calls, and the answer.
async fn open(browser: &mut Browser, target: &str) -> (Value, Value) {
    let fields = begin(browser, target).await;
    let started = browser.post("/authentication/start", &fields).await;
    assert_eq!(started.status, 200, "{started:?}");
    let id = started.json()["session_id"].as_str().unwrap().to_owned();
    (with(fields, &[("session_id", &id)]), started.json())
}

async fn choices(browser: &mut Browser, own: &Value) -> Answer {
    browser.get(&format!("/authentication/choices?session_id={}", own["session_id"].as_str().unwrap())).await
}

/// Sends a code to a masked mailbox, and proves it.
async fn prove_mailbox(world: &World, browser: &mut Browser, own: &Value) -> Answer {
    let shown = choices(browser, own).await.json();
    let mut contacts = shown["contacts"].as_array().unwrap().iter();
    let contact = contacts.find(|contact| contact["method"] == "email").unwrap()["contact_id"].as_str().unwrap();
    // codes to one address are sent 30 seconds apart
    world.advance(31);
    let send = with(own.clone(), &[("method", "email"), ("contact_id", contact)]);
    let sent = browser.post("/authentication/authenticate", &send).await;
    assert_eq!(sent.status, 200, "{sent:?}");
    let code = world.code(ADA).await;
    browser.post("/authentication/verify-otp", &with(own.clone(), &[("otp", &code)])).await
}

async fn prove_password(browser: &mut Browser, own: &Value, password: &str) -> Answer {
    let fields = with(own.clone(), &[("method", "password"), ("password", password)]);
    browser.post("/authentication/authenticate", &fields).await
}

async fn finish(browser: &mut Browser, own: &Value) -> Answer {
    assert_eq!(browser.post("/authentication/complete", own).await.status, 200);
    browser.get("/sign-in/finish").await
}

#[tokio::test]
async fn b10_c117_after_a_password_a_change_asks_for_one_more_proof() {
    let world = site(|service| service).await;
    let mut browser = sign_in(&world, ADA, &["password"]).await;
    let before = sessions(&world, "u-ada").await[0].clone();
    let refused = call(&mut browser, "recovery-codes", json!({})).await;
    assert_eq!((refused.status.as_u16(), &*refused.error()), (403, "fresh_login_required"));
    assert_eq!(refused.json()["login_url"], STEP_UP);

    let fields = begin(&mut browser, STEP_UP).await;
    let page = described(&mut browser, &fields).await;
    assert_eq!((&page["signed_in"], &page["confirmation_required"]), (&json!("ada"), &json!(false)));
    let (own, started) = open(&mut browser, STEP_UP).await;
    assert_eq!((&started["required_steps"], &started["next_step"]), (&json!(2), &json!(2)));
    let shown = choices(&mut browser, &own).await;
    let methods = shown.json()["methods"].clone();
    assert_eq!(methods, json!(["sms", "email", "whatsapp"]), "the password was proved");
    assert!(shown.text.contains("a•••@example.com") && !shown.text.contains(ADA));
    assert_eq!(prove_mailbox(&world, &mut browser, &own).await.json()["remaining_steps"], 0);
    assert_eq!(finish(&mut browser, &own).await.header("location"), PAGE);
    assert_eq!(call(&mut browser, "recovery-codes", json!({})).await.status, 201);
    let after = sessions(&world, "u-ada").await;
    assert_eq!((after.len(), after[0].sid()), (1, before.sid()));
    assert!(after[0].amr().eq(["pwd", "otp", "mfa"]));
}

#[tokio::test]
async fn b10_c117_nothing_is_asked_for_if_the_fresh_proofs_suffice() {
    let world = site(|service| service).await;
    let mut browser = ada(&world).await;
    // the password is 31 seconds older than the code
    world.advance(268);
    assert_eq!(browser.get(STEP_UP).await.header("location"), PAGE);
    assert_eq!(call(&mut browser, "totp/begin", json!({})).await.status, 200);
    world.advance(1);
    let (_, started) = open(&mut browser, STEP_UP).await;
    assert_eq!(started["next_step"], 2, "the code still counts, the password does not");
    assert_eq!(call(&mut browser, "totp/begin", json!({})).await.error(), "fresh_login_required");
    world.advance(31);
    let (_, started) = open(&mut browser, STEP_UP).await;
    assert_eq!(started["next_step"], 1);
    // an account with one factor needs no more than that
    let mut lone = sign_in(&world, LONE, &["password"]).await;
    assert!(credentials(&mut lone).await["fresh_until"].is_u64());
}

#[tokio::test]
async fn b10_c115_c116_old_proofs_still_tell_whose_step_up_it_is() {
    let world = site(|service| service).await;
    let mut browser = sign_in(&world, ADA, &["password"]).await;
    let before = sessions(&world, "u-ada").await[0].clone();
    world.advance(400);
    let fields = begin(&mut browser, STEP_UP).await;
    assert_eq!(described(&mut browser, &fields).await["signed_in"], "ada");
    let (own, started) = open(&mut browser, STEP_UP).await;
    assert_eq!((&started["required_steps"], &started["next_step"]), (&json!(2), &json!(1)));
    let id = own["session_id"].as_str().unwrap();
    assert_eq!(browser.status(id).await.json()["status"], "pending");
    let shown = choices(&mut browser, &own).await.json();
    assert_eq!(shown["methods"], json!(["password", "sms", "email", "whatsapp"]));
    assert_eq!(shown["contacts"][1]["masked"], "a•••@example.com");
    // no other user can prove a step of it, by name or by password
    let grace = with(own.clone(), &[("method", "password"), ("username", GRACE), ("password", GRACE_PASSWORD)]);
    assert_eq!(browser.post("/authentication/authenticate", &grace).await.error(), "invalid_credentials");
    assert_eq!(prove_password(&mut browser, &own, GRACE_PASSWORD).await.error(), "invalid_credentials");
    assert_eq!(prove_password(&mut browser, &own, ADA_PASSWORD).await.json()["completed_steps"], 1);
    assert_eq!(prove_mailbox(&world, &mut browser, &own).await.json()["remaining_steps"], 0);
    assert_eq!(finish(&mut browser, &own).await.header("location"), PAGE);
    assert_eq!(sessions(&world, "u-ada").await[0].sid(), before.sid());
    assert_eq!(call(&mut browser, "recovery-codes", json!({})).await.status, 201);
}

#[tokio::test]
async fn b10_c115_only_the_browser_of_the_session_learns_anything() {
    let world = site(|service| service).await;
    let mut browser = sign_in(&world, ADA, &["password"]).await;
    world.advance(400);
    let (own, _) = open(&mut browser, STEP_UP).await;
    assert_eq!(choices(&mut browser, &own).await.status, 200);
    let has_session = |name: &str| name.starts_with("__Host-session_");
    // the cookie of the login alone shows nothing
    let mut thief = browser.clone();
    thief.cookies.retain(|name, _| !has_session(name));
    let answer = choices(&mut thief, &own).await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "session_expired"));
    // neither does that of another session, of the same user or of another
    for who in [ADA, GRACE] {
        let other = sign_in(&world, who, &["password"]).await;
        thief.cookies.retain(|name, _| !has_session(name));
        thief.cookies.extend(other.cookies.into_iter().filter(|(name, _)| has_session(name)));
        assert_eq!(choices(&mut thief, &own).await.own(), answer.own(), "{who}");
    }
    // without a session, a step-up is a sign-in like any other
    let mut answers = Vec::new();
    for who in [None, Some(ADA), Some(NOBODY)] {
        let mut stranger = world.browser();
        let mut fields = begin(&mut stranger, STEP_UP).await;
        assert!(described(&mut stranger, &fields).await.get("signed_in").is_none());
        if let Some(who) = who {
            fields["identifier"] = json!(who);
        }
        let started = stranger.post("/authentication/start", &fields).await;
        assert_eq!(started.json()["next_step"], 1);
        let own = with(fields, &[("session_id", started.json()["session_id"].as_str().unwrap())]);
        answers.push((started.own(), choices(&mut stranger, &own).await.own()));
    }
    assert!(answers[0].1.contains("step_required"), "{answers:?}");
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    // a contact needs a session or a proof
    let mut stranger = world.browser();
    let (own, _) = open(&mut stranger, STEP_UP).await;
    let send = with(own, &[("method", "email"), ("contact_id", "AAAAAAAAAAAAAAAAAAAAAA")]);
    assert_eq!(stranger.post("/authentication/authenticate", &send).await.error(), "step_required");
}

#[tokio::test]
async fn b10_a_step_up_ends_with_its_session() {
    let world = site(|service| service).await;
    let mut browser = sign_in(&world, ADA, &["password"]).await;
    world.advance(400);
    let (own, _) = open(&mut browser, STEP_UP).await;
    assert_eq!(prove_password(&mut browser, &own, ADA_PASSWORD).await.status, 200);
    assert_eq!(prove_mailbox(&world, &mut browser, &own).await.status, 200);
    world.service.end_session(&sessions(&world, "u-ada").await[0].sid()).await.unwrap();
    assert_eq!(finish(&mut browser, &own).await.header("location"), "/sign-in");
    assert!(sessions(&world, "u-ada").await.is_empty());

    // another user has signed in meanwhile
    let mut browser = sign_in(&world, ADA, &["password"]).await;
    world.advance(400);
    let (own, _) = open(&mut browser, STEP_UP).await;
    crate::own_account::sign_in_at(&world, &mut browser, "/sign-in?max_age=0", GRACE, &["password"]).await;
    assert_eq!(choices(&mut browser, &own).await.error(), "session_expired");
    assert_eq!(prove_password(&mut browser, &own, ADA_PASSWORD).await.status, 200);
    assert_eq!(credentials(&mut browser).await["user"], "u-grace");
}

#[tokio::test]
async fn b10_a_proof_that_stopped_counting_is_asked_for_again() {
    let world = site(|service| service).await;
    let mut browser = sign_in(&world, ADA, &["email", "password"]).await;
    let ada = "u-ada".parse().unwrap();
    world.users.set_password(&acme(), &ada, None).await.unwrap();
    assert_eq!(call(&mut browser, "totp/begin", json!({})).await.status, 403);
    let (own, started) = open(&mut browser, STEP_UP).await;
    assert_eq!(started["next_step"], 2);
    let methods = choices(&mut browser, &own).await.json()["methods"].clone();
    assert!(!methods.as_array().unwrap().contains(&json!("email")), "{methods}");
    assert_eq!(prove_password(&mut browser, &own, ADA_PASSWORD).await.error(), "invalid_credentials");
    assert_eq!(stored(&world, "u-ada").await, None);
}

#[tokio::test]
async fn b10_a_login_of_a_client_is_bound_to_no_session_without_a_proof_from_it() {
    let world = site(|service| service).await;
    let mut browser = sign_in(&world, ADA, &["password"]).await;
    world.advance(61);
    let body = with(parameters("web"), &[("max_age", "60")]);
    let started = browser.post("/authentication/start", &body).await.json();
    let own = with(parameters("web"), &[("session_id", started["session_id"].as_str().unwrap())]);
    assert_eq!(choices(&mut browser, &own).await.error(), "step_required");
    // nor is a sign-in that asks for no fresh proofs, or for a new login
    let ways = [("/sign-in?max_age=0", "steps", "2"), ("/sign-in?steps=2", "continue_session", "")];
    for (target, name, value) in ways {
        let mut fields = begin(&mut browser, target).await;
        fields[name] = if name == "steps" { json!(value) } else { json!(false) };
        let started = browser.post("/authentication/start", &fields).await.json();
        let own = with(fields, &[("session_id", started["session_id"].as_str().unwrap())]);
        assert_eq!(choices(&mut browser, &own).await.error(), "step_required", "{target}");
    }
    // and another user can sign in instead
    let fields = with(begin(&mut browser, "/sign-in?steps=2").await, &[("identifier", GRACE)]);
    let started = browser.post("/authentication/start", &fields).await.json();
    assert_eq!(started["next_step"], 1);
    let own = with(fields, &[("session_id", started["session_id"].as_str().unwrap())]);
    assert_eq!(prove((&world, &mut browser), &own, (GRACE, "password"), "").await.status, 200);
}

#[tokio::test]
async fn b10_a_remembered_session_of_one_step_stays_remembered() {
    let world = site(|service| service.remember_me(Duration::from_secs(30 * 86_400))).await;
    let mut browser = world.browser();
    let mut fields = with(begin(&mut browser, "/sign-in").await, &[("identifier", LONE)]);
    fields["remember"] = json!(true);
    let started = browser.post("/authentication/start", &fields).await.json();
    let own = with(fields, &[("session_id", started["session_id"].as_str().unwrap())]);
    assert_eq!(prove((&world, &mut browser), &own, (LONE, "password"), "").await.status, 200);
    finish(&mut browser, &own).await;
    let before = sessions(&world, "u-lone").await[0].expires();
    world.advance(400);
    assert!(credentials(&mut browser).await["fresh_until"].is_null());
    let (own, _) = open(&mut browser, "/sign-in?max_age=299&steps=1").await;
    assert_eq!(prove_password(&mut browser, &own, ADA_PASSWORD).await.status, 200);
    finish(&mut browser, &own).await;
    assert_eq!(sessions(&world, "u-lone").await[0].expires(), before);
    assert!(credentials(&mut browser).await["fresh_until"].is_u64());
}
