//! New addresses and phone numbers on the account page.

use http::StatusCode;
use serde_json::{Value, json};
use tollgate::{
    NewUser, Users,
    delivery::NoticeKind,
    event::{EventKind, Query},
    policy::{Method, Policies, Policy},
    user::{Contact, EmailAddress, PhoneNumber},
};

use crate::{
    controlled_store::ControlledStore,
    own_account::{
        LONE, acme, ada, call, credentials, enrol_totp, events, sessions, sign_in, sign_in_at, site, told, totp,
    },
    world::{ADA, ADA_PHONE, Answer, Browser, GRACE, World},
};

const NEW: &str = "lovelace@example.com";

/// Returns the id of the contact of this kind.
async fn id(browser: &mut Browser, kind: &str) -> Value {
    let shown = credentials(browser).await;
    shown["contacts"].as_array().unwrap().iter().find(|contact| contact["kind"] == kind).unwrap()["id"].clone()
}

/// Asks for a code to a new address in place of the old one.
async fn replace(browser: &mut Browser, email: &str) -> Answer {
    let id = id(browser, "email").await;
    call(browser, "contacts/begin", json!({ "email": email, "contact_id": id })).await
}

/// Ada proves what is no mailbox.
async fn by_phone(world: &World) -> Browser {
    sign_in(world, ADA, &["password", "sms"]).await
}

async fn confirm(browser: &mut Browser, code: &str) -> Answer {
    call(browser, "contacts", json!({ "code": code })).await
}

fn email(address: &str) -> Contact {
    EmailAddress::parse(address).unwrap().into()
}

async fn contacts(world: &World, user: &str) -> Vec<String> {
    let account = world.users.by_id(&acme(), &user.parse().unwrap()).await.unwrap().unwrap();
    account.contacts().map(|(contact, verified)| format!("{} {verified}", contact.as_str())).collect()
}

#[tokio::test]
async fn c130_a_new_address_counts_only_after_its_proof_and_the_old_ones_are_told() {
    let world = site(|service| service).await;
    sign_in(&world, ADA, &["password", "email"]).await;
    let mut browser = by_phone(&world).await;
    let own = credentials(&mut browser).await["contacts"].clone();
    assert_eq!((&own[0]["masked"], &own[0]["verified"]), (&json!("a•••@example.com"), &json!(true)));
    assert_eq!((&own[1]["masked"], &own[1]["kind"]), (&json!("+•••••••••00"), &json!("phone")));

    let sent = replace(&mut browser, NEW).await;
    assert_eq!(sent.status, 200, "{sent:?}");
    assert_eq!(sent.json(), json!({ "channel": "email", "digits": 6, "expires_in": 600, "resend_in": 30 }));
    let code = world.code(NEW).await;
    assert_eq!(contacts(&world, "u-ada").await, [format!("{ADA} true"), format!("{ADA_PHONE} true")]);
    assert!(world.users.find(&acme(), &NEW.parse().unwrap()).await.unwrap().is_none());
    let wrong = confirm(&mut browser, if code == "000000" { "000001" } else { "000000" }).await;
    assert_eq!((wrong.status.as_u16(), &*wrong.error()), (401, "invalid_otp"));

    assert_eq!(confirm(&mut browser, &code).await.status, 204);
    assert_eq!(contacts(&world, "u-ada").await, [format!("{NEW} true"), format!("{ADA_PHONE} true")]);
    let changed = |to: &str| (to.to_owned(), NoticeKind::EmailChanged);
    assert_eq!(told(&world).await, [changed(ADA), changed(ADA_PHONE)]);
    assert_eq!(events(&world, EventKind::ContactChanged), ["email"]);
    // what the old address has proved is gone
    let all = sessions(&world, "u-ada").await;
    let amr = |place: usize| all[place].amr().collect::<Vec<_>>();
    assert_eq!((amr(0), amr(1)), (vec!["pwd"], vec!["pwd", "otp", "sms", "mfa"]));
    let again = confirm(&mut browser, &code).await;
    assert_eq!((again.status.as_u16(), &*again.error()), (409, "no_pending_challenge"));
    sign_in(&world, NEW, &["password", "email"]).await;
    let mut old = world.browser();
    let id = old.start("web", ADA).await;
    assert_eq!(old.password("web", &id, ADA, crate::world::ADA_PASSWORD).await.error(), "invalid_credentials");
}

#[tokio::test]
async fn c130_a_contact_that_is_a_factor_never_vouches_for_its_own_replacement() {
    let world = site(|service| service).await;
    let mail =
        NewUser::new("u-mail".parse().unwrap(), "mail@example.com".parse().unwrap()).contact(email("mail@example.com"));
    world.users.create(&acme(), mail).await.unwrap();
    // a mailbox that is the only factor
    let mut browser = sign_in(&world, "mail@example.com", &["email"]).await;
    for body in [json!({ "email": NEW, "contact_id": id(&mut browser, "email").await }), json!({ "email": NEW })] {
        let refused = call(&mut browser, "contacts/begin", body).await;
        assert_eq!((refused.status.as_u16(), &*refused.error()), (403, "second_factor_required"));
    }
    // a phone and a mailbox: each vouches for the other
    let phone = json!({ "phone_number": "+15555550177" });
    assert_eq!(call(&mut browser, "contacts/begin", phone).await.status, 200);
    let code = world.code("+15555550177").await;
    assert_eq!(confirm(&mut browser, &code).await.status, 204);
    let refused = replace(&mut browser, NEW).await;
    assert_eq!((refused.status.as_u16(), &*refused.error()), (403, "fresh_login_required"));

    // with more factors, the mailbox counts for nothing: the sign-in asks for one step more
    let mut browser = ada(&world).await;
    let url = refused_url(&replace(&mut browser, NEW).await);
    assert_eq!(url, "/sign-in?return_to=%2Faccount%2Fsecurity&max_age=299&steps=3");
    let finished = sign_in_at(&world, &mut browser, &url, ADA, &["sms"]).await;
    assert_eq!(finished.header("location"), "/account/security", "{finished:?}");
    assert_eq!(replace(&mut browser, NEW).await.status, 200);
    // an app that may be too weak for three steps is asked for by a whole login
    let mut browser = ada(&world).await;
    let secret = enrol_totp(&world, &mut browser).await;
    world.advance(31);
    let url = refused_url(&replace(&mut browser, NEW).await);
    assert_eq!(url, "/sign-in?return_to=%2Faccount%2Fsecurity&max_age=0&steps=2");
    let code = format!("totp:{}", totp(&secret, world.time()));
    let finished = sign_in_at(&world, &mut browser, &url, ADA, &["password", &code]).await;
    assert_eq!(finished.header("location"), "/account/security", "{finished:?}");
    assert_eq!(replace(&mut browser, NEW).await.status, 200);
    world.settle().await;
    assert_eq!(contacts(&world, "u-ada").await[0], format!("{ADA} true"));
}

#[tokio::test]
async fn c130_a_first_address_needs_two_factors_where_a_policy_would_not_take_any() {
    let named = || Policy::slots([Method::Password, Method::Email]).unwrap();
    let refuses = || Policy::any(2).unwrap().without_self_enrolment();
    for (policy, status) in [(named(), 403), (refuses(), 403), (Policy::any(2).unwrap(), 200)] {
        let policies = Policies::default().acr("strong", policy).unwrap();
        let world = site(|service| service.policies(policies)).await;
        let mut lone = sign_in(&world, LONE, &["password"]).await;
        let answer = call(&mut lone, "contacts/begin", json!({ "email": NEW })).await;
        assert_eq!(answer.status, status, "{answer:?}");
        if status == 403 {
            assert_eq!(answer.error(), "second_factor_required");
        }
    }
}

fn refused_url(refused: &Answer) -> String {
    assert_eq!((refused.status.as_u16(), &*refused.error()), (403, "fresh_login_required"));
    refused.json()["login_url"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn c130_an_account_with_the_maximum_number_of_names_gets_no_further_contact() {
    let world = site(|service| service).await;
    let mut browser = by_phone(&world).await;
    for number in 0..16 {
        let name = format!("ada-{number}").parse().unwrap();
        let _full = world.users.add_identifier(&acme(), &"u-ada".parse().unwrap(), &name).await;
    }
    assert_eq!(call(&mut browser, "contacts/begin", json!({ "email": NEW })).await.status, 200);
    let code = world.code(NEW).await;
    let refused = confirm(&mut browser, &code).await;
    assert_eq!((refused.status.as_u16(), &*refused.error()), (400, "invalid_request"));
    assert_eq!(contacts(&world, "u-ada").await, [format!("{ADA} true"), format!("{ADA_PHONE} true")]);
    world.advance(31);
    assert_eq!(replace(&mut browser, NEW).await.status, 200);
    let code = world.code(NEW).await;
    assert_eq!(confirm(&mut browser, &code).await.status, 204);
}

#[tokio::test]
async fn c130_the_address_of_another_account_is_answered_alike_until_it_is_proved() {
    let world = site(|service| service).await;
    let (mut browser, mut other) = (by_phone(&world).await, world.browser());
    let known = replace(&mut browser, GRACE).await;
    world.advance(31);
    let unknown = replace(&mut browser, NEW).await;
    assert_eq!(known.own(), unknown.own());
    world.advance(31);
    assert_eq!(replace(&mut browser, GRACE).await.status, 200);
    let code = world.code(GRACE).await;
    assert_eq!(confirm(&mut other, &code).await.error(), "login_required");
    let taken = confirm(&mut browser, &code).await;
    assert_eq!((taken.status.as_u16(), &*taken.error()), (409, "contact_taken"));
    assert_eq!(contacts(&world, "u-ada").await[0], format!("{ADA} true"));
    assert_eq!(told(&world).await, []);
}

#[tokio::test]
async fn c130_the_address_of_another_account_takes_the_same_work_rows_and_events() {
    let mut seen = Vec::new();
    // of the same length
    for address in [GRACE, "laura@example.com"] {
        let store = ControlledStore::default();
        let world = World::with(store.clone(), |service| service.first_party(acme())).await;
        let mut browser = by_phone(&world).await;
        let mut own = vec![id(&mut browser, "email").await];
        own.push(json!(null));
        store.done();
        store.written();
        for contact in own {
            let asked = call(&mut browser, "contacts/begin", json!({ "email": address, "contact_id": contact })).await;
            seen.push((asked.status, asked.own()));
            for _ in 0..6 {
                seen.push((StatusCode::OK, confirm(&mut browser, "1234567").await.own()));
            }
            world.settle().await;
            world.advance(31);
        }
        seen.push((StatusCode::OK, store.done().join("\n")));
        seen.push((StatusCode::OK, store.written().iter().map(|row| row.shape() + "\n").collect()));
        world.log.flush();
        let events = world.log.read_events(&Query::default()).events;
        seen.push((
            StatusCode::OK,
            events.iter().map(|it| format!("{:?} {:?} {}\n", it.kind, it.method, it.count)).collect(),
        ));
    }
    let (known, unknown) = seen.split_at(seen.len() / 2);
    assert!(known[0].0 == 200 && known[7].0 == 200, "{known:?}");
    for (known, unknown) in known.iter().zip(unknown) {
        assert_eq!(known.1, unknown.1);
    }
}

#[tokio::test]
async fn c130_a_code_counts_in_its_session_once_and_for_ten_minutes() {
    let world = site(|service| service).await;
    let mut browser = by_phone(&world).await;
    world.advance(31);
    let mut elsewhere = by_phone(&world).await;
    assert_eq!(replace(&mut browser, NEW).await.status, 200);
    let code = world.code(NEW).await;
    assert_eq!(confirm(&mut elsewhere, &code).await.error(), "no_pending_challenge");
    let soon = replace(&mut browser, NEW).await;
    assert_eq!((soon.status.as_u16(), &*soon.error(), soon.header("retry-after")), (429, "slow_down", "30"));
    // a newer code for another address replaces it
    assert_eq!(replace(&mut browser, "other@example.com").await.status, 200);
    assert_eq!(confirm(&mut browser, &code).await.error(), "invalid_otp");
    let code = world.code("other@example.com").await;
    world.advance(600);
    assert_eq!(confirm(&mut browser, &code).await.error(), "no_pending_challenge");
    assert_eq!(contacts(&world, "u-ada").await[0], format!("{ADA} true"));
    // five wrong guesses end it
    let mut browser = by_phone(&world).await;
    assert_eq!(replace(&mut browser, NEW).await.status, 200);
    let code = world.code(NEW).await;
    for _ in 0..5 {
        assert!(["invalid_otp", "too_many_attempts"].contains(&&*confirm(&mut browser, "1234567").await.error()));
    }
    assert_ne!(confirm(&mut browser, &code).await.status, 204);
}

#[tokio::test]
async fn c130_a_code_for_a_new_contact_is_worth_nothing_once_what_vouched_for_it_is_gone() {
    let world = site(|service| service).await;
    let mut browser = by_phone(&world).await;
    let before = contacts(&world, "u-ada").await;
    assert_eq!(call(&mut browser, "contacts/begin", json!({ "email": NEW })).await.status, 200);
    let (ada, phone) = ("u-ada".parse().unwrap(), PhoneNumber::parse(ADA_PHONE).unwrap());
    let other = PhoneNumber::parse("+15555550199").unwrap();
    world.users.verify_contact(&acme(), &ada, other.into()).await.unwrap();
    world.users.remove_contact(&acme(), &ada, &phone.into()).await.unwrap();
    let code = world.code(NEW).await;
    let refused = confirm(&mut browser, &code).await;
    assert_eq!((refused.status.as_u16(), &*refused.error()), (403, "fresh_login_required"));
    assert_eq!(contacts(&world, "u-ada").await, [before[0].clone(), "+15555550199 true".to_owned()]);
}

#[tokio::test]
async fn a_contact_is_well_formed_new_and_has_a_sender() {
    let world = site(|service| service).await;
    let mut browser = by_phone(&world).await;
    let phone = id(&mut browser, "phone").await;
    for (body, status, error) in [
        (json!({}), 400, "invalid_request"),
        (json!({ "email": "ada" }), 400, "invalid_request"),
        (json!({ "phone_number": "5555550100" }), 400, "invalid_request"),
        (json!({ "email": NEW, "phone_number": "+15555550109" }), 400, "invalid_request"),
        (json!({ "email": ADA }), 400, "invalid_request"),
        (json!({ "email": NEW, "contact_id": "AAAAAAAAAAAAAAAAAAAAAA" }), 404, "not_found"),
        (json!({ "email": NEW, "contact_id": phone }), 404, "not_found"),
    ] {
        let refused = call(&mut browser, "contacts/begin", body.clone()).await;
        assert_eq!((refused.status.as_u16(), &*refused.error()), (status, error), "{body}");
    }
    assert_eq!(call(&mut browser, "contacts", json!({})).await.error(), "invalid_request");
    assert_eq!(confirm(&mut browser, "123456").await.error(), "no_pending_challenge");
    // a user with a password alone adds the first address
    let mut lone = sign_in(&world, LONE, &["password"]).await;
    assert_eq!(call(&mut lone, "contacts/begin", json!({ "email": NEW })).await.status, 200);
    let code = world.code(NEW).await;
    assert_eq!(confirm(&mut lone, &code).await.status, 204);
    assert_eq!(contacts(&world, "u-lone").await, [format!("{NEW} true")]);
}

#[tokio::test]
async fn c130_a_user_asks_for_three_codes_a_day_to_one_mailbox_and_leaves_the_rest_to_others() {
    let world = site(|service| service).await;
    let mut browser = by_phone(&world).await;
    for (number, status) in [200, 200, 200, 429].into_iter().enumerate() {
        let asked = replace(&mut browser, &format!("new+{number}@example.com")).await;
        assert_eq!(asked.status, status);
        if status == 429 {
            assert_eq!((&*asked.error(), asked.header("retry-after")), ("too_many_attempts", "86400"));
        }
    }
    // another mailbox, and another user
    assert_eq!(replace(&mut browser, "newer@example.com").await.status, 200);
    let mut lone = sign_in(&world, LONE, &["password"]).await;
    assert_eq!(call(&mut lone, "contacts/begin", json!({ "email": "new+9@example.com" })).await.status, 200);
}

#[tokio::test]
async fn c130_a_user_asks_for_ten_codes_an_hour_in_all_sessions() {
    let world = site(|service| service).await;
    let mut browser = by_phone(&world).await;
    for number in 0..10 {
        let asked = replace(&mut browser, &format!("new{number}@example.com")).await;
        assert_eq!(asked.status, 200, "{asked:?}");
    }
    world.advance(31);
    let mut elsewhere = by_phone(&world).await;
    let refused = replace(&mut elsewhere, NEW).await;
    assert_eq!((refused.status.as_u16(), &*refused.error()), (429, "too_many_attempts"));
    world.advance(3600);
    assert_eq!(replace(&mut by_phone(&world).await, NEW).await.status, 200);
}

#[tokio::test]
async fn c130_a_user_has_texts_sent_to_three_numbers_an_hour_and_a_client_address_to_five() {
    let world = site(|service| service).await;
    let begin = async |browser: &mut Browser, number: u8| {
        let phone = json!({ "phone_number": format!("+155555502{number:02}") });
        let answer = call(browser, "contacts/begin", phone).await;
        (answer.status.as_u16(), answer.error())
    };
    let refused = (429, "too_many_attempts".to_owned());
    let mut ada = sign_in(&world, ADA, &["password", "email"]).await;
    for number in 0..3 {
        assert_eq!(begin(&mut ada, number).await.0, 200);
    }
    assert_eq!(begin(&mut ada, 3).await, refused);
    let mut grace = sign_in(&world, GRACE, &["password", "email"]).await;
    for number in 4..6 {
        assert_eq!(begin(&mut grace, number).await.0, 200);
    }
    assert_eq!(begin(&mut grace, 6).await, refused);
    // messages by e-mail are counted apart
    let mut by_sms = sign_in(&world, ADA, &["password", "sms"]).await;
    assert_eq!(call(&mut by_sms, "contacts/begin", json!({ "email": NEW })).await.status, 200);
}
