//! The number of notices that one user receives.

use serde_json::json;
use tollgate::{
    delivery::Outbox,
    event::{EventKind, Query},
};

use crate::{
    own_account::{begin, call, site},
    world::{ADA, ADA_PASSWORD, ADA_PHONE, Browser, World, with},
};

/// Signs in to the site by a password and a code by SMS.
async fn signed_in(world: &World, outbox: &Outbox) -> Browser {
    let mut browser = world.browser();
    let fields = begin(&mut browser, "/sign-in?steps=2").await;
    let started = browser.post("/authentication/start", &with(fields.clone(), &[("identifier", ADA)])).await.json();
    let own = with(fields, &[("session_id", started["session_id"].as_str().unwrap())]);
    let authenticate = "/authentication/authenticate";
    let password = with(own.clone(), &[("method", "password"), ("username", ADA), ("password", ADA_PASSWORD)]);
    assert_eq!(browser.post(authenticate, &password).await.status, 200);
    let sms = with(own.clone(), &[("method", "sms"), ("phone_number", ADA_PHONE)]);
    assert_eq!(browser.post(authenticate, &sms).await.status, 200);
    world.settle().await;
    let code = outbox.messages().pop().unwrap().code().to_owned();
    assert_eq!(browser.post("/authentication/verify-otp", &with(own.clone(), &[("otp", &code)])).await.status, 200);
    assert_eq!(browser.post("/authentication/complete", &own).await.status, 200);
    assert_eq!(browser.get("/sign-in/finish").await.status, 303);
    browser
}

fn count(world: &World, kind: EventKind) -> u64 {
    let found = world.log.read_events(&Query::new().kind(kind).limit(1_000).unwrap()).events;
    found.iter().map(|event| event.count).sum()
}

/// Changes a credential 30 times.
async fn change(browser: &mut Browser) {
    for _ in 0..30 {
        assert_eq!(call(browser, "recovery-codes", json!({})).await.status, 201);
    }
}

#[tokio::test]
async fn c059_a_user_who_changes_credentials_in_a_loop_causes_no_more_notices_than_codes() {
    let outbox = Outbox::new();
    let world = site(|service| service.queue_for_tests(4).sms(outbox.clone())).await;
    let mut browser = signed_in(&world, &outbox).await;
    let notices = || outbox.messages().iter().filter(|message| message.notice().is_some()).count();
    change(&mut browser).await;
    world.settle().await;
    assert_eq!(notices(), 10);
    assert_eq!(count(&world, EventKind::CredentialAdded), 30);
    assert_eq!((count(&world, EventKind::NoticeSent), count(&world, EventKind::NoticeUndelivered)), (10, 20));
    // codes have a limit of their own, so the user can sign in
    world.advance(31);
    signed_in(&world, &outbox).await;
    // an hour after the first notice, there are notices again
    world.advance(3600);
    let mut browser = signed_in(&world, &outbox).await;
    change(&mut browser).await;
    world.settle().await;
    assert_eq!(notices(), 20);
}
