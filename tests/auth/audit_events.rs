//! Failed logins and refused challenges in the event log.

use std::collections::BTreeSet;

use tollgate::event::{Event, EventKind, Query};

use crate::world::{World, parameters, with};

fn of_kind(world: &World, kind: EventKind) -> Vec<Event> {
    world.log.read(&Query::new().kind(kind).limit(1_000).unwrap()).events
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

    browser.log_in("web", crate::world::ADA).await;
    let code = browser.authorize("web").await.redirected("code").unwrap();
    let verifier = "x".repeat(43);
    let fields = [
        ("grant_type", "authorization_code"),
        ("client_id", "web"),
        ("code", code.as_str()),
        ("redirect_uri", crate::world::CALLBACK),
        ("code_verifier", &verifier),
    ];
    assert_eq!(browser.form("/token", &fields).await.error(), "invalid_grant");
    let refused = of_kind(&world, EventKind::PkceRefused);
    assert_eq!(refused.iter().map(|event| event.count).sum::<u64>(), 2);
    assert!(refused.iter().all(|event| event.tenant.as_ref().is_some_and(|tenant| tenant.as_str() == "acme")));
}
