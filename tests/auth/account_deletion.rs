//! A user deletes the account.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::Semaphore;
use tollgate::{
    NewUser, Password, Passwords, Users,
    delivery::{Message, NoticeKind, OtpSender, Outbox, SendError},
    event::EventKind,
    user::EmailAddress,
};

use crate::{
    controlled_store::{ControlledStore, Fault},
    own_account::{acme, ada, call, credentials, enrol_totp, events, sessions, sign_in, site, told},
    world::{ADA, ADA_PASSWORD, ADA_PHONE, GRACE, GRACE_PHONE, NOBODY, World},
};

#[tokio::test]
async fn an_account_is_deleted_with_all_that_it_has() {
    let world = site(|service| service).await;
    let mut browser = ada(&world).await;
    enrol_totp(&world, &mut browser).await;
    world.advance(31);
    let mut elsewhere = world.browser();
    let id = elsewhere.start("web", ADA).await;
    assert_eq!(elsewhere.password("web", &id, ADA, ADA_PASSWORD).await.status, 200);
    let before = told(&world).await.len();

    let refused = call(&mut browser, "delete", json!({})).await;
    assert_eq!((refused.status.as_u16(), &*refused.error()), (400, "invalid_request"));
    let deleted = call(&mut browser, "delete", json!({ "confirmed": true })).await;
    assert_eq!(deleted.status, 204, "{deleted:?}");
    assert!(!browser.cookies.keys().any(|name| name.starts_with("__Host-session_")));
    assert!(sessions(&world, "u-ada").await.is_empty());
    assert!(world.users.by_id(&acme(), &"u-ada".parse().unwrap()).await.unwrap().is_none());
    assert!(crate::enrolled::stored(&world, "u-ada").await.is_none_or(|row| row["totp"].is_null()));
    let all = [(ADA.to_owned(), NoticeKind::AccountDeleted), (ADA_PHONE.to_owned(), NoticeKind::AccountDeleted)];
    assert_eq!(told(&world).await[before..], all);
    assert_eq!(events(&world, EventKind::AccountDeleted).len(), 1);
    assert_eq!(events(&world, EventKind::UserForgotten).len(), 1);

    // a login in progress ends, and the name is as unknown as any other
    assert_ne!(elsewhere.complete("web", &id).await.status, 200);
    let mut answers = Vec::new();
    for name in [ADA, NOBODY] {
        let mut browser = world.browser();
        let id = browser.start("web", name).await;
        answers.push(browser.password("web", &id, name, ADA_PASSWORD).await.own());
    }
    assert_eq!(answers[0], answers[1]);
    let user = NewUser::new("u-ada-2".parse().unwrap(), ADA.parse().unwrap());
    world.users.create(&acme(), user).await.unwrap();
}

#[tokio::test]
async fn a_deletion_needs_fresh_proofs_and_ends_other_sessions() {
    let world = site(|service| service).await;
    let mut other = sign_in(&world, ADA, &["password"]).await;
    let refused = call(&mut other, "delete", json!({ "confirmed": true })).await;
    assert_eq!((refused.status.as_u16(), &*refused.error()), (403, "fresh_login_required"));
    let mut browser = ada(&world).await;
    world.advance(300);
    let refused = call(&mut browser, "delete", json!({ "confirmed": true })).await;
    assert_eq!(refused.error(), "fresh_login_required");
    assert_eq!(credentials(&mut browser).await["user"], "u-ada");
    let mut browser = ada(&world).await;
    assert_eq!(call(&mut browser, "delete", json!({ "confirmed": true })).await.status, 204);
    assert_eq!(call(&mut other, "name", json!({ "name": "x" })).await.error(), "login_required");
    assert_eq!(call(&mut browser, "delete", json!({ "confirmed": true })).await.error(), "login_required");
}

#[tokio::test]
async fn c130_a_deletion_that_can_not_end_the_sessions_deletes_nothing() {
    let mut failing = None;
    for _ in 0..2 {
        let store = ControlledStore::default();
        let world = World::with(store.clone(), |service| service.first_party(acme())).await;
        let mut browser = ada(&world).await;
        store.done();
        if let Some(at) = failing {
            store.fail(at, Fault::Before);
        }
        let deleted = call(&mut browser, "delete", json!({ "confirmed": true })).await;
        let done = store.done();
        assert_eq!((store.heal(), deleted.status == 204), (failing.is_some(), failing.is_none()), "{deleted:?}");
        let account = world.users.by_id(&acme(), &"u-ada".parse().unwrap()).await.unwrap();
        assert_eq!(account.is_some(), failing.is_some());
        failing = done.iter().position(|call| call.ends_with(" generations") && !call.starts_with("get"));
        assert!(failing.is_some(), "{done:?}");
    }
}

#[tokio::test]
async fn c130_a_deletion_takes_no_message_from_the_owner_of_an_address_that_was_not_proved() {
    let world = site(|service| service).await;
    let hash = Passwords::insecure_fast().hash(Password::new(ADA_PASSWORD)).await.unwrap();
    let user = NewUser::new("u-eve".parse().unwrap(), "eve".parse().unwrap()).password(hash);
    world.users.create(&acme(), user.unverified_contact(EmailAddress::parse(GRACE).unwrap())).await.unwrap();
    let mut browser = sign_in(&world, "eve", &["password"]).await;
    let mut owner = world.browser();
    let id = owner.start("web", GRACE).await;
    assert_eq!(owner.ask("web", &id, "email", GRACE).await.status, 200);
    assert_eq!(call(&mut browser, "delete", json!({ "confirmed": true })).await.status, 204);
    assert_eq!(world.code(GRACE).await.len(), 6);
}

/// Sends its messages when the test allows it.
#[derive(Clone)]
struct Held {
    allowed: Arc<Semaphore>,
    sent: Outbox,
}

impl OtpSender for Held {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        self.allowed.acquire().await.unwrap().forget();
        self.sent.send(message).await
    }
}

#[tokio::test]
async fn a_deletion_takes_the_messages_that_wait_for_the_user_and_those_of_nobody_else() {
    let held = Held { allowed: Arc::new(Semaphore::new(0)), sent: Outbox::new() };
    let sender = held.clone();
    let world = site(|service| service.sms(sender)).await;
    // four are being sent, and two wait for them
    for at in 0..6 {
        let (who, number) = if at == 4 { (ADA, ADA_PHONE) } else { ("grace", GRACE_PHONE) };
        let mut stranger = world.browser();
        let id = stranger.start("web", who).await;
        assert_eq!(stranger.ask("web", &id, "sms", number).await.status, 200);
        world.settle().await;
        world.advance(31);
    }
    let mut browser = ada(&world).await;
    assert_eq!(call(&mut browser, "delete", json!({ "confirmed": true })).await.status, 204);
    held.allowed.add_permits(10);
    world.settle().await;
    let sent = held.sent.messages().into_iter().filter(|message| message.notice().is_none());
    let sent: Vec<_> = sent.map(|message| message.to().to_owned()).collect();
    assert_eq!(sent, [GRACE_PHONE; 5]);
}
