//! Second steps: failures end the login, and the choices show only what counts.

use serde_json::{Value, json};
use tollgate::{
    Client, ClientTable, Tenant, Tokens, UserId,
    auth::{Passkeys, Totp},
    store::Memory,
    testing::ManualClock,
    user::{Contact, EmailAddress, PhoneNumber},
};

use crate::{
    enrolled::{CODES, app, enrol, recovery, world},
    own_account::{LONE, call, credentials, enrol_totp, sessions, sign_in, sign_in_at, site, totp},
    soft_passkey::{self, RP_ID, SoftPasskey, begin},
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
    enrol(&world, "u-ada", json!({ "totp": app(2), "recovery": recovery(2) })).await;
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

#[tokio::test]
async fn c116_credentials_of_a_disabled_account_prove_nothing() {
    let world = world(|service| service.passkeys(Passkeys::new(RP_ID))).await;
    let passkey = SoftPasskey::new();
    let handle = soft_passkey::text(&passkey.handle);
    enrol(&world, "u-ada", json!({ "handle": handle, "passkeys": [passkey.stored(2)], "totp": app(2) })).await;
    let (mut browser, id) = half(&world).await;
    let mut other = world.browser();
    let begun = begin(&mut other, "web", None).await;
    let (acme, ada) = ada();
    world.users.disable(&acme, &ada).await.unwrap();
    let answer = browser.call("authenticate", "mfa", &id, &[("method", "totp"), ("code", CODES[1])]).await;
    assert_eq!(answer.error(), "invalid_otp");
    assert_eq!(soft_passkey::prove(&mut other, &begun, &passkey).await.error(), "invalid_assertion");
    assert_eq!(other.status(&begun.id).await.json()["completed_steps"], 0);
}

#[tokio::test]
async fn c117_an_account_with_two_methods_needs_two_even_if_every_client_needs_one() {
    let acme: Tenant = "acme".parse().unwrap();
    let client = Client::new("web", acme.clone()).unwrap().scopes("openid").unwrap();
    let client = client.redirect_uri(crate::world::CALLBACK).unwrap();
    let more = |service: tollgate::auth::AuthServiceBuilder| service.first_party(acme).totp(Totp::new());
    let clients = ClientTable::new([client]).unwrap();
    let world = World::made(Memory::new().into(), ManualClock::new(), clients, Tokens::new(), more).await;
    for (methods, status) in [(&["password"][..], 403), (&["password", "email"], 200)] {
        let mut browser = sign_in(&world, ADA, methods).await;
        assert_eq!(credentials(&mut browser).await["required_proofs"], 2);
        assert_eq!(call(&mut browser, "totp/begin", json!({})).await.status, status, "{methods:?}");
    }
}

#[tokio::test]
async fn c120_another_app_ends_what_the_one_before_has_proved() {
    let world = site(|service| service).await;
    let mut owner = sign_in(&world, ADA, &["password", "email"]).await;
    let secret = enrol_totp(&world, &mut owner).await;
    world.advance(30);
    sign_in(&world, ADA, &["password", &format!("totp:{}", totp(&secret, world.time()))]).await;
    let amr = async || {
        let all = sessions(&world, "u-ada").await;
        all.iter().map(|session| session.amr().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(amr().await, ["pwd otp mfa", "pwd otp mfa"]);
    enrol_totp(&world, &mut owner).await;
    assert_eq!(amr().await, ["pwd otp mfa", "pwd"]);
}

#[tokio::test]
async fn c117_no_notice_goes_to_a_contact_that_was_never_verified() {
    let world = site(|service| service).await;
    let (acme, lone) = ("acme".parse().unwrap(), UserId::parse("u-lone").unwrap());
    let mailbox = Contact::Email(EmailAddress::parse("stranger@example.com").unwrap());
    world.users.add_contact(&acme, &lone, mailbox).await.unwrap();
    // an app that does not count as a second factor can be removed with it and the password
    enrol(&world, "u-lone", json!({ "totp": app(1) })).await;
    let (mut browser, code) =
        (world.browser(), format!("totp:{}", totp(crate::weak_second_factor::SECRET, world.time())));
    sign_in_at(&world, &mut browser, "/sign-in", LONE, &["password", &code]).await;
    assert_eq!(call(&mut browser, "totp/delete", json!({})).await.status, 204);
    world.settle().await;
    assert!(world.outbox.messages().is_empty());
}
