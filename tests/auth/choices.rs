//! `GET /authentication/choices`, and the ids of contacts that it hands out.

use http::Request;
use serde_json::{Value, json};
use tollgate::{Tenant, UserId};

use crate::{
    enrolled::{app, enrol, recovery, world},
    world::{ADA, ADA_PASSWORD, ADA_PHONE, Answer, Browser, GRACE, NOBODY, World, challenge, parameters, with},
};

async fn choices(browser: &mut Browser, id: &str) -> Answer {
    browser.get(&format!("/authentication/choices?session_id={id}")).await
}

/// Begins a login of two steps and proves the password of ada.
async fn half(world: &World) -> (Browser, String) {
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    assert_eq!(browser.password("mfa", &id, ADA, ADA_PASSWORD).await.status, 200);
    (browser, id)
}

/// Returns the ids of the contacts by method.
fn contact_id(choices: &Value, method: &str) -> String {
    let contacts = choices["contacts"].as_array().unwrap();
    let found = contacts.iter().find(|contact| contact["method"] == method).unwrap();
    found["contact_id"].as_str().unwrap().to_owned()
}

fn everything(strength: u8) -> Value {
    json!({ "totp": app(strength), "recovery": recovery(strength) })
}

#[tokio::test]
async fn c115_choices_list_what_the_user_has_for_the_next_step() {
    let world = world(|service| service).await;
    let (mut browser, id) = half(&world).await;
    enrol(&world, "u-ada", everything(2)).await;
    let answer = choices(&mut browser, &id).await;
    let mut shown = answer.json();
    for contact in shown["contacts"].as_array_mut().unwrap() {
        assert_eq!(contact["contact_id"].take().as_str().unwrap().len(), 22);
    }
    let contact = |method: &str, masked: &str| json!({ "contact_id": null, "method": method, "masked": masked });
    assert_eq!(
        shown,
        json!({
            "session_id": id, "status": "success", "completed_steps": 1, "remaining_steps": 1, "next_step": 2,
            "methods": ["sms", "email", "whatsapp", "totp", "recovery_code"],
            "contacts": [
                contact("sms", "+•••••••••00"),
                contact("email", "a•••@example.com"),
                contact("whatsapp", "+•••••••••00"),
            ],
            "providers": [],
        })
    );
    assert!(!answer.text.contains(ADA) && !answer.text.contains(ADA_PHONE));
    // used codes and credentials that are too weak are not offered
    for nothing in [json!({}), everything(1)] {
        enrol(&world, "u-ada", nothing).await;
        assert_eq!(choices(&mut browser, &id).await.json()["methods"], json!(["sms", "email", "whatsapp"]));
    }
    enrol(
        &world,
        "u-ada",
        json!({ "recovery": { "enrolment": "AAAAAAAAAAAAAAAAAAAAAQ", "unused": [], "created_at": 0,
        "strength": 2 } }),
    )
    .await;
    assert_eq!(choices(&mut browser, &id).await.json()["methods"], json!(["sms", "email", "whatsapp"]));
    // a login that begins with a second factor enrolled offers nothing but this factor
    enrol(&world, "u-ada", everything(2)).await;
    let (mut browser, id) = half(&world).await;
    let shown = choices(&mut browser, &id).await.json();
    assert_eq!((&shown["methods"], &shown["contacts"]), (&json!(["totp", "recovery_code"]), &json!([])));
}

#[tokio::test]
async fn c115_choices_need_a_proved_step_and_the_cookie() {
    let world = world(|service| service).await;
    for who in [ADA, GRACE, NOBODY] {
        let mut browser = world.browser();
        let id = browser.start("mfa", who).await;
        let answer = choices(&mut browser, &id).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (409, "step_required"), "{who}");
        assert_eq!(answer.json()["completed_steps"], 0);
    }
    let (mut browser, id) = half(&world).await;
    let stranger = choices(&mut world.browser(), &id).await;
    assert_eq!((stranger.status.as_u16(), &*stranger.error()), (401, "invalid_session"));
    let (name, _) = browser.cookies.first_key_value().unwrap();
    let request = Request::get(format!("/authentication/choices?session_id={id}"));
    let wrong = world.browser().send(request.header("cookie", format!("{name}={}", challenge())), "").await;
    assert_eq!(wrong.own(), stranger.own());
    for query in ["", "?session_id=", "?session_id=x&session_id=y"] {
        let answer = browser.get(&format!("/authentication/choices{query}")).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (400, "invalid_request"), "{query}");
    }
    // nothing was changed by asking
    assert_eq!(choices(&mut browser, &id).await.status, 200);
    assert_eq!(browser.ask("mfa", &id, "sms", ADA_PHONE).await.status, 200);
    let code = world.code(ADA_PHONE).await;
    assert_eq!(browser.verify("mfa", &id, &code).await.status, 200);
    assert_eq!(choices(&mut browser, &id).await.error(), "no_step_remaining");
    world.advance(3600);
    assert_eq!(choices(&mut browser, &id).await.error(), "session_expired");
}

#[tokio::test]
async fn c115_choices_show_nothing_of_an_account_whose_proof_stopped_counting() {
    let world = world(|service| service).await;
    let (mut browser, id) = half(&world).await;
    let (acme, ada): (Tenant, UserId) = ("acme".parse().unwrap(), "u-ada".parse().unwrap());
    world.users.set_password(&acme, &ada, None).await.unwrap();
    let answer = choices(&mut browser, &id).await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "session_expired"));
    let (mut browser, id) = {
        let mut browser = world.browser();
        let id = browser.start("mfa", ADA).await;
        assert_eq!(browser.ask("mfa", &id, "sms", ADA_PHONE).await.status, 200);
        let code = world.code(ADA_PHONE).await;
        assert_eq!(browser.verify("mfa", &id, &code).await.status, 200);
        (browser, id)
    };
    assert_eq!(choices(&mut browser, &id).await.status, 200);
    world.service.end_user(&acme, &ada).await.unwrap();
    assert_eq!(choices(&mut browser, &id).await.error(), "session_expired");
}

#[tokio::test]
async fn c115_a_contact_id_sends_a_code_and_is_worth_nothing_in_another_login() {
    let world = world(|service| service).await;
    let (mut browser, id) = half(&world).await;
    let shown = choices(&mut browser, &id).await.json();
    let (mailbox, phone) = (contact_id(&shown, "email"), contact_id(&shown, "sms"));
    assert_ne!(mailbox, phone);
    let (mut other, other_id) = half(&world).await;
    assert_ne!(contact_id(&choices(&mut other, &other_id).await.json(), "email"), mailbox);
    // an id of another login, of another method, and none
    for (method, contact) in [("email", &*mailbox), ("email", "AAAAAAAAAAAAAAAAAAAAAA"), ("sms", &phone)] {
        let more = [("method", method), ("contact_id", contact)];
        let answer = other.call("authenticate", "mfa", &other_id, &more).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (400, "invalid_request"), "{method}");
    }
    let answer = browser.call("authenticate", "mfa", &id, &[("method", "sms"), ("contact_id", &*mailbox)]).await;
    assert_eq!(answer.error(), "invalid_request");
    // before a proved step there are no ids
    let mut fresh = world.browser();
    for who in [ADA, NOBODY] {
        let id = fresh.start("mfa", who).await;
        let answer = fresh.call("authenticate", "mfa", &id, &[("method", "email"), ("contact_id", &*mailbox)]).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (409, "step_required"), "{who}");
    }
    assert!(world.outbox.messages().is_empty());
    let answer = browser.call("authenticate", "mfa", &id, &[("method", "email"), ("contact_id", &*mailbox)]).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let code = world.code(ADA).await;
    assert_eq!(browser.verify("mfa", &id, &code).await.json()["remaining_steps"], 0);
}

#[tokio::test]
async fn c115_answers_before_a_proved_step_do_not_depend_on_what_is_enrolled() {
    let world = world(|service| service).await;
    enrol(&world, "u-ada", everything(2)).await;
    let mut all = Vec::new();
    for who in [ADA, GRACE] {
        let mut browser = world.browser();
        let mut answers = Vec::new();
        let started = browser.post("/authentication/start", &with(parameters("mfa"), &[("identifier", who)])).await;
        let id = started.json()["session_id"].as_str().unwrap().to_owned();
        answers.push(started.own());
        answers.push(browser.status(&id).await.own());
        answers.push(choices(&mut browser, &id).await.own());
        for (method, field) in
            [("totp", ("code", "287082")), ("recovery_code", ("code", "x")), ("password", ("password", "wrong"))]
        {
            let more = [("method", method), field, ("username", who)];
            answers.push(browser.call("authenticate", "mfa", &id, &more).await.own());
        }
        answers.push(browser.ask("mfa", &id, "email", who).await.own());
        all.push(answers);
    }
    assert_eq!(all[0], all[1]);
}

#[cfg(feature = "external-providers")]
#[tokio::test]
async fn c115_choices_list_the_providers_that_the_user_can_use() {
    use tollgate::sso::{OidcProvider, SsoConnection};

    let connection = || SsoConnection::new(OidcProvider::new("https://idp.example", "tollgate").unwrap());
    let world = world(|service| {
        service
            .sso("linked", connection().label("Linked"))
            .sso("weak", connection())
            .sso("none", connection())
            .sso("mail", connection().trust_email_domain("example.com").unwrap())
    })
    .await;
    let link = |provider: &str, strength: u8| {
        json!({ "issuer": "https://idp.example", "subject": provider, "provider": provider, "name": "", "created_at": 0,
            "strength": strength })
    };
    let links = [link("linked", 2), link("weak", 1), link("former", 2)];
    enrol(&world, "u-ada", json!({ "links": links })).await;
    let (mut browser, id) = half(&world).await;
    let shown = choices(&mut browser, &id).await.json();
    assert_eq!(shown["methods"], json!(["sms", "email", "whatsapp", "sso"]));
    assert_eq!(
        shown["providers"],
        json!([{ "name": "linked", "label": "Linked" }, { "name": "mail", "label": "mail" }])
    );
}
