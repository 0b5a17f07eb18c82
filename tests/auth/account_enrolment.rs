//! How users change the ways they sign in, and how thieves fail to.

use http::Request;
use serde_json::{Value, json};
use tollgate::{
    Client, ClientTable, Policies, Tokens,
    auth::Totp,
    delivery::{Channel, NoticeKind, Outbox},
    event::EventKind,
    policy::{Method, Policy},
    store::Memory,
    testing::ManualClock,
};

use crate::{
    controlled_store::ControlledStore,
    enrolled::{enrol, stored},
    own_account::{
        LONE, acme, ada, begin, call, credentials, enrol_totp, events, prove, sessions, sign_in, sign_in_at, site, totp,
    },
    world::{ADA, ADA_PASSWORD, ADA_PHONE, Browser, CALLBACK, GRACE, World, clients, join, with},
};

/// The calls that change how a user signs in.
const CHANGES: [&str; 5] = ["totp/begin", "totp", "totp/delete", "recovery-codes", "links/delete"];

/// The secret of `enrolled::app` as an app shows it.
const SECRET: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";

async fn refused(browser: &mut Browser, path: &str, steps: usize) {
    let answer = call(browser, path, json!({ "id": "x", "code": "123456" })).await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (403, "fresh_login_required"), "{path}");
    let url = format!("/sign-in?return_to=%2Faccount%2Fsecurity&max_age=299&steps={steps}");
    assert_eq!(answer.json()["login_url"], url, "{path}");
}

/// Returns the notices that were sent to this address.
async fn notices(world: &World, to: &str) -> Vec<NoticeKind> {
    world.settle().await;
    let messages = world.outbox.messages();
    let own = messages.iter().filter(|message| message.to() == to);
    own.filter_map(|message| Some(message.notice()?.kind())).collect()
}

/// Writes a link of this strength into the row of a user.
fn link(subject: &str, strength: u8) -> Value {
    json!({ "issuer": "https://idp.example", "subject": subject, "provider": "idp", "name": "ada at idp",
        "created_at": 7, "strength": strength })
}

fn passkey(strength: u8) -> Value {
    json!({ "id": "AQID", "public_key": "", "algorithm": -7, "sign_count": 0, "backup_eligible": false,
        "backed_up": true, "user_verified": true, "transports": [], "name": "Phone", "created_at": 5,
        "last_used_at": null, "strength": strength })
}

#[tokio::test]
async fn c117_a_stolen_password_alone_enrols_and_deletes_nothing_where_the_account_has_two_methods() {
    let world = site(|service| service).await;
    // from then on, the password alone would not sign in
    let mut thief = sign_in(&world, ADA, &["password"]).await;
    let mut owner = ada(&world).await;
    enrol_totp(&world, &mut owner).await;
    let before = stored(&world, "u-ada").await;
    assert_eq!(credentials(&mut thief).await["fresh_until"], Value::Null);
    for path in CHANGES {
        refused(&mut thief, path, 2).await;
    }
    // the sign-in that the error names needs a second factor: the password counts already
    let fields = begin(&mut thief, "/sign-in?return_to=%2Faccount%2Fsecurity&max_age=299&steps=2").await;
    let started = thief.post("/authentication/start", &with(fields.clone(), &[("identifier", ADA)])).await.json();
    let own = with(fields, &[("session_id", started["session_id"].as_str().unwrap())]);
    assert_eq!(started["next_step"], 2);
    assert_eq!(prove((&world, &mut thief), &own, (ADA, "password"), "").await.error(), "method_not_allowed");
    assert_eq!(thief.post("/authentication/complete", &own).await.error(), "steps_remaining");
    for path in CHANGES {
        refused(&mut thief, path, 2).await;
    }
    assert_eq!(stored(&world, "u-ada").await, before);
}

#[tokio::test]
async fn c117_proofs_are_fresh_for_five_minutes() {
    let world = site(|service| service).await;
    let mut browser = sign_in(&world, ADA, &["email", "password"]).await;
    let until = credentials(&mut browser).await["fresh_until"].as_u64().unwrap();
    assert_eq!(until, world.time().as_secs() + 300);
    world.advance(299);
    assert_eq!(call(&mut browser, "totp/begin", json!({})).await.status, 200);
    world.advance(1);
    assert_eq!(credentials(&mut browser).await["fresh_until"], Value::Null);
    for path in CHANGES {
        refused(&mut browser, path, 2).await;
    }
    // two proofs of one kind, and an old one of another, are not enough
    sign_in_at(&world, &mut browser, "/sign-in?max_age=0", ADA, &["email"]).await;
    refused(&mut browser, "totp/begin", 2).await;
    // ending sessions needs no fresh proofs
    assert_eq!(call(&mut browser, "sessions/end-others", json!({})).await.status, 204);
}

#[tokio::test]
async fn c117_an_app_is_set_up_shown_used_and_removed() {
    let world = site(|service| service).await;
    let mut browser = ada(&world).await;
    let begun = call(&mut browser, "totp/begin", json!({})).await.json();
    let secret = begun["secret"].as_str().unwrap();
    let uri = format!("otpauth://totp/Acme:ada?secret={secret}&issuer=Acme&algorithm=SHA1&digits=6&period=30");
    assert_eq!(begun["uri"], uri);
    assert!(begun["qr_svg"].as_str().unwrap().starts_with("<svg "));
    assert_eq!(credentials(&mut browser).await["totp"], Value::Null, "it is not confirmed yet");
    for wrong in [json!({}), json!({ "code": null })] {
        assert_eq!(call(&mut browser, "totp", wrong).await.error(), "invalid_request");
    }
    let code = totp(secret, world.time());
    let wrong = if code == "000000" { "000001" } else { "000000" };
    for typed in [wrong, "", "12345"] {
        let answer = call(&mut browser, "totp", json!({ "code": typed })).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "invalid_otp"), "{typed}");
    }
    let confirmed = call(&mut browser, "totp", json!({ "code": code })).await;
    let now = world.time().as_secs();
    assert_eq!((confirmed.status.as_u16(), confirmed.json()), (201, json!({ "created_at": now })));
    assert_eq!(call(&mut browser, "totp", json!({ "code": code })).await.error(), "no_pending_challenge");
    assert_eq!(credentials(&mut browser).await["totp"], json!({ "created_at": now }));
    assert_eq!(stored(&world, "u-ada").await.unwrap()["totp"]["strength"]["steps"], 2);
    assert_eq!(notices(&world, ADA).await, [NoticeKind::TotpAdded]);
    assert_eq!(events(&world, EventKind::CredentialAdded), ["totp"]);
    assert_eq!(events(&world, EventKind::NoticeSent), ["totp"]);

    world.advance(30);
    let method = format!("totp:{}", totp(secret, world.time()));
    let mut other = sign_in(&world, ADA, &["password", &method]).await;
    assert_eq!(call(&mut other, "totp/delete", json!({})).await.status, 204);
    assert_eq!(call(&mut browser, "totp/delete", json!({})).await.error(), "not_found");
    assert_eq!(credentials(&mut browser).await["totp"], Value::Null);
    assert_eq!(notices(&world, ADA).await, [NoticeKind::TotpAdded, NoticeKind::TotpRemoved]);
    assert_eq!(events(&world, EventKind::CredentialRemoved), ["totp"]);
}

#[tokio::test]
async fn c117_a_key_is_confirmed_in_its_own_session_within_five_minutes() {
    let world = site(|service| service).await;
    let (mut browser, mut other, mut grace) =
        (ada(&world).await, ada(&world).await, sign_in(&world, GRACE, &["password", "email"]).await);
    let begin = async |browser: &mut Browser| {
        call(browser, "totp/begin", json!({})).await.json()["secret"].as_str().unwrap().to_owned()
    };
    let first = begin(&mut browser).await;
    // neither another session of the user nor another user knows this key
    for stranger in [&mut other, &mut grace] {
        let answer = call(stranger, "totp", json!({ "code": totp(&first, world.time()) })).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (409, "no_pending_challenge"));
    }
    begin(&mut grace).await;
    let code = json!({ "code": totp(&first, world.time()) });
    assert_eq!(call(&mut grace, "totp", code).await.error(), "invalid_otp");
    // a new key replaces the one before
    let second = begin(&mut browser).await;
    let code = json!({ "code": totp(&first, world.time()) });
    assert_eq!(call(&mut browser, "totp", code).await.error(), "invalid_otp");
    // the sign-in in between keeps the session and thereby the key
    world.advance(200);
    sign_in_at(&world, &mut browser, "/sign-in?max_age=0&steps=2", ADA, &["password", "email"]).await;
    world.advance(68);
    let wrong = call(&mut browser, "totp", json!({ "code": "" })).await;
    assert_eq!(wrong.error(), "invalid_otp", "299 seconds later");
    world.advance(1);
    let code = json!({ "code": totp(&second, world.time()) });
    assert_eq!(call(&mut browser, "totp", code).await.error(), "no_pending_challenge");
    assert!(stored(&world, "u-ada").await.is_none_or(|row| row["totp"].is_null()));
}

#[tokio::test]
async fn c117_of_racing_confirmations_one_succeeds() {
    let store = ControlledStore::default();
    let world = World::with(store.clone(), |service| {
        service.first_party(acme()).totp(Totp::new().seal(&tollgate::Secret::generate()))
    })
    .await;
    for _ in 0..5 {
        let mut browser = ada(&world).await;
        let begun = call(&mut browser, "totp/begin", json!({})).await.json();
        let code = totp(begun["secret"].as_str().unwrap(), world.time());
        let mut tabs: Vec<Browser> = (0..4).map(|_| browser.clone()).collect();
        store.yields();
        let answers = join(tabs.iter_mut().map(|tab| call(tab, "totp", json!({ "code": code })))).await;
        let confirmed = answers.iter().filter(|answer| answer.status == 201).count();
        assert_eq!(confirmed, 1, "{answers:?}");
        let rest = answers.iter().filter(|answer| answer.status != 201);
        assert!(rest.into_iter().all(|answer| answer.error() == "no_pending_challenge"), "{answers:?}");
        enrol(&world, "u-ada", json!({})).await;
    }
}

#[tokio::test]
async fn c117_a_credential_enrolled_with_one_factor_never_satisfies_a_policy_of_two() {
    let two = Client::new("strict", acme()).unwrap().scopes("openid").unwrap().redirect_uri(CALLBACK).unwrap();
    let two = two.policy(Policy::any(2).unwrap()).single_sign_on();
    let all = clients().iter().map(|client| Client::clone(client)).chain([two]).collect::<Vec<_>>();
    let (parts, tokens) = ((Memory::new().into(), ManualClock::new()), Tokens::new());
    let world = World::under("https://auth.example", parts, ClientTable::new(all).unwrap(), tokens, |service| {
        service.first_party(acme()).totp(Totp::new())
    })
    .await;
    let hash = tollgate::Passwords::insecure_fast().hash(tollgate::Password::new(ADA_PASSWORD)).await.unwrap();
    let lone = tollgate::NewUser::new("u-lone".parse().unwrap(), LONE.parse().unwrap()).password(hash);
    world.users.create(&acme(), lone).await.unwrap();
    // somebody has the only factor of this account, the password
    let mut thief = sign_in(&world, LONE, &["password"]).await;
    assert_eq!(credentials(&mut thief).await["required_proofs"], 1);
    assert_eq!(call(&mut thief, "recovery-codes", json!({})).await.error(), "second_factor_required");
    // an app that counts for one step is no second one
    enrol(&world, "u-lone", json!({ "totp": crate::enrolled::app(1) })).await;
    world.advance(30);
    let mut browser = world.browser();
    let id = browser.start("strict", LONE).await;
    assert_eq!(browser.password("strict", &id, LONE, ADA_PASSWORD).await.status, 200);
    let code = totp(SECRET, world.time());
    let answer = browser.call("authenticate", "strict", &id, &[("method", "totp"), ("code", &code)]).await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "invalid_otp"));
    let choices = browser.get(&format!("/authentication/choices?session_id={id}")).await.json();
    assert_eq!(choices["methods"], json!([]));
    // but it is needed for a change, because somebody with the password alone does not have it
    assert_eq!(credentials(&mut thief).await["required_proofs"], 2);
    // and the session of one proof opens no client that asks for two
    let silent = thief.get(&format!("/authorize?{}&prompt=none", crate::world::query("strict"))).await;
    assert_eq!(silent.redirected("error").as_deref(), Some("login_required"));
}

#[tokio::test]
async fn c117_as_many_proofs_are_needed_as_the_strictest_login_that_the_account_can_complete() {
    let required = async |who: &str, methods: &[&str], policies: Policies, row: Value| {
        let world = site(|service| service.policies(policies)).await;
        let user = if who == LONE { "u-lone" } else { "u-ada" };
        let mut browser = sign_in(&world, who, methods).await;
        enrol(&world, user, row).await;
        credentials(&mut browser).await["required_proofs"].as_u64().unwrap()
    };
    let any = |steps| Policy::any(steps).unwrap();
    let slots = |methods: &[Method]| Policy::slots(methods.iter().copied()).unwrap();
    let one = Policies::default();
    let app = |strength| json!({ "totp": crate::enrolled::app(strength) });
    // the client `mfa` asks for two steps, which a password alone cannot provide
    assert_eq!(required(LONE, &["password"], one.clone(), json!({})).await, 1);
    assert_eq!(required(ADA, &["password"], one.clone(), json!({})).await, 2);
    // a login of one step asks for the weak app, too
    assert_eq!(required(LONE, &["password"], one.clone(), app(1)).await, 2);
    assert_eq!(required(LONE, &["password"], one.clone(), app(2)).await, 2);
    let three = one.clone().acr("urn:three", any(3)).unwrap();
    assert_eq!(required(ADA, &["password"], three.clone(), json!({})).await, 3);
    assert_eq!(required(LONE, &["password"], three.clone(), app(2)).await, 2);
    let four = one.clone().acr("urn:four", any(4)).unwrap();
    assert_eq!(required(ADA, &["password"], four.clone(), app(3)).await, 2);
    assert_eq!(required(ADA, &["password"], four, app(4)).await, 4);
    // another tenant's policy does not matter
    let globex = one.clone().tenant("globex".parse().unwrap(), any(3));
    assert_eq!(required(ADA, &["password"], globex, json!({})).await, 2);
    let strict = one.tenant(acme(), slots(&[Method::Password, Method::Email, Method::Sms]));
    let world = site(|service| service.policies(strict)).await;
    let mut browser = world.browser();
    let fields = begin(&mut browser, "/sign-in").await;
    assert_eq!(crate::own_account::described(&mut browser, &fields).await["required_steps"], 3);
}

#[tokio::test]
async fn c117_an_enrolled_credential_records_how_much_was_proved() {
    let world = site(|service| service).await;
    let mut browser = sign_in(&world, ADA, &["password", "email"]).await;
    assert_eq!(call(&mut browser, "recovery-codes", json!({})).await.status, 201);
    assert_eq!(stored(&world, "u-ada").await.unwrap()["recovery"]["strength"]["steps"], 2);
    // codes that no login would accept are not enrolled
    let mut lone = sign_in(&world, LONE, &["password"]).await;
    let refused = call(&mut lone, "recovery-codes", json!({})).await;
    assert_eq!((refused.status.as_u16(), &*refused.error()), (403, "second_factor_required"));
    assert_eq!(stored(&world, "u-lone").await, None);
}

#[tokio::test]
async fn c120_a_removed_or_replaced_credential_ends_what_it_alone_carried() {
    let world = site(|service| service).await;
    let mut owner = ada(&world).await;
    let old = call(&mut owner, "recovery-codes", json!({})).await.json();
    let code = |at: usize| format!("recovery_code:{}", old["codes"][at].as_str().unwrap());
    let with_codes = sign_in(&world, ADA, &["password", &code(0)]).await;
    let secret = enrol_totp(&world, &mut owner).await;
    world.advance(30);
    let with_app = sign_in(&world, ADA, &["password", &format!("totp:{}", totp(&secret, world.time()))]).await;
    let amr = async || {
        let all = sessions(&world, "u-ada").await;
        all.iter().map(|session| session.amr().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(amr().await, ["pwd otp mfa", "pwd otp mfa", "pwd otp mfa"]);
    let new = call(&mut owner, "recovery-codes", json!({})).await.json();
    assert_eq!(amr().await, ["pwd otp mfa", "pwd", "pwd otp mfa"]);
    assert_eq!(call(&mut owner, "totp/delete", json!({})).await.status, 204);
    assert_eq!(amr().await, ["pwd otp mfa", "pwd", "pwd"]);
    for mut browser in [with_codes, with_app] {
        refused(&mut browser, "totp/begin", 2).await;
    }
    // the replaced codes are worth nothing
    assert_eq!(new["codes"].as_array().unwrap().len(), 10);
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    browser.password("mfa", &id, ADA, ADA_PASSWORD).await;
    let recovery =
        |code: &Value| [("method", "recovery_code"), ("code", code.as_str().unwrap())].map(|(a, b)| (a, b.to_owned()));
    for (code, status) in [(&old["codes"][1], 401), (&new["codes"][1], 200)] {
        let fields = recovery(code);
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(browser.call("authenticate", "mfa", &id, &fields).await.status, status);
    }
    assert_eq!(credentials(&mut owner).await["recovery_codes"]["remaining"], 9);
}

#[tokio::test]
async fn c117_links_are_listed_and_removed_by_ids_that_belong_to_one_user() {
    let world = site(|service| service).await;
    enrol(&world, "u-ada", json!({ "links": [link("a", 2), link("b", 2)], "passkeys": [passkey(2)] })).await;
    enrol(&world, "u-grace", json!({ "links": [link("c", 2)] })).await;
    let (mut browser, mut grace) = (ada(&world).await, sign_in(&world, GRACE, &["password", "email"]).await);
    let shown = credentials(&mut browser).await;
    let expected = json!({ "id": "AQID", "name": "Phone", "created_at": 5, "last_used_at": null, "backed_up": true });
    assert_eq!(shown["passkeys"], json!([expected]));
    let mut links = shown["links"].as_array().unwrap().clone();
    let id = links[0]["id"].take();
    assert_eq!(
        links[0],
        json!({ "id": null, "provider": "idp", "label": "idp", "name": "ada at idp", "created_at": 7, "ends_session": false })
    );
    assert!(!id.as_str().unwrap().contains("idp") && id != links[1]["id"]);
    let graces = credentials(&mut grace).await["links"][0]["id"].clone();
    for unknown in [&graces, &json!("x"), &json!("")] {
        let answer = call(&mut browser, "links/delete", json!({ "id": unknown })).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (404, "not_found"), "{unknown}");
    }
    assert_eq!(call(&mut browser, "links/delete", json!({ "id": id })).await.status, 204);
    assert_eq!(call(&mut browser, "links/delete", json!({ "id": id })).await.status, 404);
    assert_eq!(credentials(&mut browser).await["links"].as_array().unwrap().len(), 1);
    assert_eq!(credentials(&mut grace).await["links"].as_array().unwrap().len(), 1);
    assert_eq!(notices(&world, ADA).await, [NoticeKind::LinkRemoved]);
}

#[tokio::test]
async fn c117_users_are_told_by_phone_if_there_is_no_mail_and_a_service_without_senders_records_the_change() {
    let outbox = Outbox::new();
    let world = site(|service| service.queue_for_tests(4).sms(outbox.clone())).await;
    let mut browser = world.browser();
    let fields = begin(&mut browser, "/sign-in?steps=2").await;
    let started = browser.post("/authentication/start", &with(fields.clone(), &[("identifier", ADA)])).await.json();
    let own = with(fields, &[("session_id", started["session_id"].as_str().unwrap())]);
    prove((&world, &mut browser), &own, (ADA, "password"), "").await;
    let sms = with(own.clone(), &[("method", "sms"), ("phone_number", ADA_PHONE)]);
    assert_eq!(browser.post("/authentication/authenticate", &sms).await.status, 200);
    world.settle().await;
    let code = outbox.messages()[0].code().to_owned();
    assert_eq!(browser.post("/authentication/verify-otp", &with(own.clone(), &[("otp", &code)])).await.status, 200);
    assert_eq!(browser.post("/authentication/complete", &own).await.status, 200);
    browser.get("/sign-in/finish").await;
    assert_eq!(call(&mut browser, "recovery-codes", json!({})).await.status, 201);
    world.settle().await;
    let notice = outbox.messages().pop().unwrap();
    assert_eq!((notice.to(), notice.channel(), notice.code()), (ADA_PHONE, Channel::Sms, ""));
    assert_eq!(notice.notice().unwrap().kind(), NoticeKind::RecoveryCodesRenewed);
    assert_eq!(notice.notice().unwrap().changed_at(), world.time());

    let world = site(|service| service.queue_for_tests(4)).await;
    enrol(&world, "u-lone", json!({ "totp": crate::enrolled::app(2) })).await;
    let app = format!("totp:{}", totp(SECRET, world.time()));
    let mut browser = sign_in(&world, LONE, &["password", &app]).await;
    assert_eq!(call(&mut browser, "recovery-codes", json!({})).await.status, 201);
    assert_eq!(events(&world, EventKind::CredentialAdded), ["recovery_code"]);
    assert!(events(&world, EventKind::NoticeSent).is_empty());
}

#[tokio::test]
async fn authenticator_apps_are_not_found_where_they_are_not_enabled() {
    let world = World::with(Memory::new(), |service| service.first_party(acme())).await;
    let mut browser = ada(&world).await;
    assert_eq!(
        credentials(&mut browser).await["available"],
        json!({ "passkey": false, "totp": false, "providers": [] })
    );
    for path in ["totp/begin", "totp", "recovery-codes"] {
        assert_eq!(call(&mut browser, path, json!({ "code": "123456" })).await.error(), "not_found", "{path}");
    }
    let head = Request::head("/account/credentials").header("sec-fetch-site", "same-origin");
    assert_eq!(browser.send(head, "").await.status, 200);
}
