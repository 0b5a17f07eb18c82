//! Failed logins and refused challenges in the event log.

use std::collections::BTreeSet;

use serde_json::json;
use tollgate::{
    Client, ClientTable, EventLog, Passkeys, Tokens,
    auth::Totp,
    event::{Event, EventKind, Query},
    store::Memory,
    testing::ManualClock,
};

use crate::{
    soft_passkey::{RP_ID, SoftPasskey, account, add, sign_in_fresh, text, world_with},
    world::{ADA, CALLBACK, World, parameters, with},
};

fn of_kind(world: &World, kind: EventKind) -> Vec<Event> {
    world.log.read_events(&Query::new().kind(kind).limit(1_000).unwrap()).events
}

#[tokio::test]
async fn a09_failures_of_several_names_in_one_second_keep_their_subjects() {
    let world = World::new().await;
    for round in 0..2 {
        for name in 0..30 {
            let mut browser = world.browser();
            browser.address = [192, 0, 2, 1 + round].into();
            let name = format!("user{name}");
            // the name comes with the password alone, or with the login too
            let body = parameters("web");
            let body = if round == 0 { body } else { with(body, &[("identifier", &name)]) };
            let started = browser.post("/authentication/start", &body).await.json();
            let id = started["session_id"].as_str().unwrap();
            assert_eq!(browser.password("web", id, &name, "wrong").await.status, 401);
        }
    }
    let failures = of_kind(&world, EventKind::LoginFailed);
    assert_eq!(failures.iter().map(|event| event.count).sum::<u64>(), 60);
    let subjects: BTreeSet<String> =
        failures.iter().filter_map(|event| event.subject.map(|subject| subject.to_string())).collect();
    let without: u64 = failures.iter().filter(|event| event.subject.is_none()).map(|event| event.count).sum();
    assert_eq!((subjects.len(), without), (16, 28), "{failures:?}");
    assert!(failures.len() <= 33);
}

#[tokio::test]
async fn a09_a_refused_challenge_and_a_wrong_verifier_are_events() {
    let world = World::new().await;
    let mut browser = world.browser();
    let bad = with(parameters("web"), &[("code_challenge_method", "plain")]);
    assert_eq!(browser.post("/authentication/start", &bad).await.status, 400);

    browser.log_in("web", ADA).await;
    let code = browser.authorize("web").await.redirected("code").unwrap();
    let verifier = "x".repeat(43);
    let fields = [
        ("grant_type", "authorization_code"),
        ("client_id", "web"),
        ("code", code.as_str()),
        ("redirect_uri", CALLBACK),
        ("code_verifier", &verifier),
    ];
    assert_eq!(browser.form("/token", &fields).await.error(), "invalid_grant");
    let refused = of_kind(&world, EventKind::PkceRefused);
    assert_eq!(refused.iter().map(|event| event.count).sum::<u64>(), 2);
    assert!(refused.iter().all(|event| event.tenant.as_ref().is_some_and(|tenant| tenant.as_str() == "acme")));
}

#[tokio::test]
async fn b07_a_user_cannot_push_the_events_of_others_out_of_the_log() {
    let log = EventLog::builder().capacity(200).unwrap().build();
    let world = world_with(Passkeys::new(RP_ID), |service| service.totp(Totp::new()).events(log.clone())).await;
    let of_kind = |kind| log.read_events(&Query::new().kind(kind).limit(1_000).unwrap()).events;
    let (mut browser, mut passkey) = (world.browser(), SoftPasskey::new());
    world.browser().sign_in("web").await;
    let earlier = of_kind(EventKind::LoginSucceeded);
    assert_eq!(earlier.len(), 1);

    sign_in_fresh(&world, &mut browser, ADA).await;
    add(&mut browser, &mut passkey).await;
    for number in 0..300 {
        let id = text(&passkey.id);
        let renamed = json!({ "id": id, "name": format!("phone {number}") });
        assert_eq!(account(&mut browser, "/account/passkeys/rename", &renamed).await.status, 204);
        assert_eq!(account(&mut browser, "/account/recovery-codes", &json!({})).await.status, 201);
        assert_eq!(account(&mut browser, "/account/passkeys/delete", &json!({ "id": id })).await.status, 204);
        add(&mut browser, &mut passkey).await;
    }
    assert_eq!(of_kind(EventKind::LoginSucceeded)[0], earlier[0]);
    // each is counted, for its user, with its method
    let count = |kind, method| -> u64 {
        let of_method: Vec<_> = of_kind(kind).into_iter().filter(|event| event.method == Some(method)).collect();
        assert!(of_method.len() <= 2 && of_method.iter().all(|event| event.subject.is_some()), "{}", of_method.len());
        of_method.iter().map(|event| event.count).sum()
    };
    assert_eq!(count(EventKind::CredentialRenamed, "passkey"), 300);
    assert_eq!(count(EventKind::CredentialRemoved, "passkey"), 300);
    assert_eq!(count(EventKind::CredentialAdded, "passkey"), 301);
    assert_eq!(count(EventKind::CredentialAdded, "recovery_code"), 300);
}

#[tokio::test]
async fn b07_a_signed_in_user_who_asks_for_codes_in_a_loop_is_counted() {
    let site = Client::new("web", "acme".parse().unwrap()).unwrap().redirect_uri(CALLBACK).unwrap();
    let clients = ClientTable::new([site.scopes("openid").unwrap().single_sign_on()]).unwrap();
    let world = World::made(Memory::new().into(), ManualClock::new(), clients, Tokens::new(), |service| service).await;
    let mut browser = world.browser();
    browser.sign_in("web").await;
    for _ in 0..300 {
        assert!(browser.authorize("web").await.redirected("code").is_some());
    }
    let issued = of_kind(&world, EventKind::CodeIssued);
    assert_eq!(issued.iter().map(|event| event.count).sum::<u64>(), 301);
    assert!(issued.len() <= 3, "{}", issued.len());
}

/// The first event of a user in a second is shown whole, no matter how many strangers are counted.
#[tokio::test]
async fn b07_a_flood_of_strangers_hides_no_change_of_a_user() {
    let log = EventLog::builder().max_per_second(5).unwrap().build();
    let world = world_with(Passkeys::new(RP_ID), |service| service.events(log.clone())).await;
    let mut browser = world.browser();
    sign_in_fresh(&world, &mut browser, ADA).await;
    for stranger in 0..200 {
        let event = Event::new(EventKind::RateLimited, world.time());
        log.tally(&event.tenant(format!("made-up-{stranger}").parse().unwrap()));
    }
    add(&mut browser, &mut SoftPasskey::new()).await;
    let added = log.read_events(&Query::new().kind(EventKind::CredentialAdded)).events;
    assert!(added.len() == 1 && added[0].subject.is_some() && added[0].method == Some("passkey"), "{added:?}");
}
