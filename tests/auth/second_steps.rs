//! Second steps: failures end the login, and the choices show only what counts.

use serde_json::{Value, json};
use tollgate::{
    Tenant, UserId,
    user::{Contact, EmailAddress, PhoneNumber},
};

use crate::{
    enrolled::{CODES, app, enrol, world},
    world::{ADA, ADA_PASSWORD, Answer, Browser, World},
};

fn ada() -> (Tenant, UserId) {
    ("acme".parse().unwrap(), "u-ada".parse().unwrap())
}

/// Begins a login of two steps and proves the password of ada.
async fn half(world: &World) -> (Browser, String) {
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    assert_eq!(browser.password("mfa", &id, ADA, ADA_PASSWORD).await.status, 200);
    (browser, id)
}

async fn choices(browser: &mut Browser, id: &str) -> Answer {
    browser.get(&format!("/authentication/choices?session_id={id}")).await
}

#[tokio::test]
async fn c124_wrong_codes_end_the_login_however_slowly_they_come() {
    let world = world(|service| service).await;
    enrol(&world, "u-ada", json!({ "totp": app(2) })).await;
    let (acme, _) = ada();
    for (method, wrong) in [("totp", "000000"), ("recovery_code", "abcd-efgh-jkmn")] {
        let (mut browser, id) = half(&world).await;
        for failure in 1..=15 {
            let answer = browser.call("authenticate", "mfa", &id, &[("method", method), ("code", wrong)]).await;
            let expected = if failure < 15 { "invalid_otp" } else { "session_failed" };
            assert_eq!(answer.error(), expected, "{method} {failure}");
            // a wait for each name would come first
            world.service.unlock(&acme, &ADA.parse().unwrap()).await.unwrap();
        }
        assert_eq!(browser.status(&id).await.json()["status"], "failed");
        let answer = browser.call("authenticate", "mfa", &id, &[("method", "totp"), ("code", CODES[1])]).await;
        assert_eq!(answer.error(), "session_failed");
        // a login that has failed shows nothing of the account
        let answer = choices(&mut browser, &id).await;
        assert_eq!(answer.error(), "session_failed");
        assert_eq!((&answer.json()["contacts"], &answer.json()["methods"]), (&Value::Null, &Value::Null));
    }
}

#[tokio::test]
async fn c115_choices_show_only_contacts_that_the_user_has_verified() {
    let world = world(|service| service).await;
    let (acme, ada) = ada();
    let new = [
        (Contact::Email(EmailAddress::parse("new@other.example").unwrap()), "n•••@other.example"),
        (Contact::Phone(PhoneNumber::parse("+15555550177").unwrap()), "+•••••••••77"),
    ];
    for (contact, _) in &new {
        world.users.add_contact(&acme, &ada, contact.clone()).await.unwrap();
    }
    let masked = async |browser: &mut Browser, id: &str| {
        let shown = choices(browser, id).await.json();
        shown["contacts"].as_array().unwrap().iter().map(|contact| contact["masked"].clone()).collect::<Vec<_>>()
    };
    let (mut browser, id) = half(&world).await;
    let before = masked(&mut browser, &id).await;
    assert_eq!(before.len(), 3, "{before:?}");
    for (contact, shown) in new {
        assert!(!before.contains(&json!(shown)), "{before:?}");
        world.users.verify_contact(&acme, &ada, contact).await.unwrap();
        assert!(masked(&mut browser, &id).await.contains(&json!(shown)), "{shown}");
    }
}
