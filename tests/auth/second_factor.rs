//! A second factor that a user has enrolled is asked for by each login, and nothing shows it before a proved step.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate::{
    Client, ClientTable, Policies,
    auth::Passkeys,
    policy::{Method, MethodSet, Policy},
};

use crate::{
    enrolled::{CODES, app, enrol, optional, recovery, world},
    own_account::{self, LONE, acme, call, credentials, enrol_totp, prove, sessions, sign_in, sign_in_at, totp},
    soft_passkey::{self, Begun, RP_ID, SoftPasskey, begin, text},
    world::{
        ADA, ADA_PASSWORD, ADA_PHONE, Answer, Browser, CALLBACK, GRACE, GRACE_PASSWORD, NOBODY, World, clients, join,
        parameters, query, with,
    },
};

/// The secret of `enrolled::app` as an app shows it.
const SECRET: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";

async fn choices(browser: &mut Browser, id: &str) -> Value {
    browser.get(&format!("/authentication/choices?session_id={id}")).await.json()
}

async fn code(browser: &mut Browser, client: &str, id: &str, code: &str) -> Answer {
    browser.call("authenticate", client, id, &[("method", "totp"), ("code", code)]).await
}

/// Returns the numbers of completed and remaining steps.
fn steps(answer: &Answer) -> (u64, u64) {
    let shown = answer.json();
    let [completed, remaining] = ["completed_steps", "remaining_steps"].map(|name| shown[name].as_u64().unwrap());
    (completed, remaining)
}

/// Begins a login and proves the password of ada.
async fn half(world: &World, client: &str) -> (Browser, String, Answer) {
    let mut browser = world.browser();
    let id = browser.start(client, ADA).await;
    let answer = browser.password(client, &id, ADA, ADA_PASSWORD).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    (browser, id, answer)
}

async fn ends_with_a_code(browser: &mut Browser, client: &str, id: &str) {
    assert_eq!(browser.complete(client, id).await.status, 200);
    assert!(browser.authorize(client).await.redirected("code").is_some());
}

#[tokio::test]
async fn b08_c131_a_password_alone_does_not_sign_in_a_user_who_has_an_app() {
    let world = world(|service| service).await;
    let (mut before, id, answer) = half(&world, "web").await;
    assert_eq!(steps(&answer), (1, 0), "nothing is enrolled yet");
    ends_with_a_code(&mut before, "web", &id).await;

    enrol(&world, "u-ada", json!({ "totp": app(1) })).await;
    let (mut browser, id, answer) = half(&world, "web").await;
    assert_eq!((steps(&answer), &answer.json()["next_step"]), ((1, 1), &json!(2)));
    assert_eq!(browser.complete("web", &id).await.error(), "steps_remaining");
    assert_eq!(browser.authorize("web").await.redirected("code"), None);
    assert_eq!(choices(&mut browser, &id).await["methods"], json!(["totp"]));
    for (method, field, value) in [
        ("password", "password", ADA_PASSWORD),
        ("sms", "phone_number", ADA_PHONE),
        ("email", "email", ADA),
        ("passkey", "x", ""),
    ] {
        let more = [("method", method), ("username", ADA), (field, value)];
        let answer = browser.call("authenticate", "web", &id, &more).await;
        assert!(["method_not_allowed", "unsupported_method"].contains(&&*answer.error()), "{method}: {answer:?}");
    }
    assert_eq!(code(&mut browser, "web", &id, "000000").await.error(), "invalid_otp");
    assert_eq!(steps(&code(&mut browser, "web", &id, CODES[1]).await), (2, 0));
    ends_with_a_code(&mut browser, "web", &id).await;
    let all = sessions(&world, "u-ada").await;
    let amr: Vec<_> = all.iter().map(|session| session.amr().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(amr, ["pwd", "pwd otp mfa"]);
}

#[tokio::test]
async fn b08_c131_every_first_step_but_a_passkey_needs_the_factor() {
    let world = world(|service| service.passkeys(Passkeys::new(RP_ID))).await;
    let passkey = SoftPasskey::new();
    let row = json!({ "handle": text(&passkey.handle), "passkeys": [passkey.stored(1)], "totp": app(1) });
    enrol(&world, "u-ada", row).await;
    for (method, address) in [("sms", ADA_PHONE), ("whatsapp", ADA_PHONE), ("email", ADA)] {
        world.advance(31);
        let mut browser = world.browser();
        let id = browser.start("web", ADA).await;
        assert_eq!(browser.ask("web", &id, method, address).await.status, 200);
        let sent = world.code(address).await;
        assert_eq!(steps(&browser.verify("web", &id, &sent).await), (1, 1), "{method}");
        assert_eq!(choices(&mut browser, &id).await["methods"], json!(["passkey", "totp"]));
        assert_eq!(browser.complete("web", &id).await.error(), "steps_remaining");
    }
    let mut browser = world.browser();
    let begun = begin(&mut browser, "web", None).await;
    assert_eq!(steps(&soft_passkey::prove(&mut browser, &begun, &passkey).await), (1, 0));
    ends_with_a_code(&mut browser, "web", &begun.id).await;
}

#[tokio::test]
async fn b08_c131_a_passkey_or_a_recovery_code_proves_the_factor_too() {
    let world = own_account::site(|service| service.passkeys(Passkeys::new(RP_ID))).await;
    let passkey = SoftPasskey::new();
    let only_passkey = json!({ "handle": text(&passkey.handle), "passkeys": [passkey.stored(1)] });
    enrol(&world, "u-ada", only_passkey.clone()).await;
    let (mut browser, id, answer) = half(&world, "web").await;
    assert_eq!(steps(&answer), (1, 1));
    assert_eq!(choices(&mut browser, &id).await["methods"], json!(["passkey"]));
    let mut begun = Begun { client: "web", id: id.clone(), options: Value::Null };
    assert_eq!(begun.renew(&mut browser).await.status, 200);
    assert_eq!(steps(&soft_passkey::prove(&mut browser, &begun, &passkey).await), (2, 0));
    ends_with_a_code(&mut browser, "web", &id).await;

    // codes that the user has made before
    enrol(&world, "u-ada", json!({})).await;
    let mut owner = sign_in(&world, ADA, &["password", "email"]).await;
    let made = call(&mut owner, "recovery-codes", json!({})).await.json();
    let (mut browser, id, answer) = half(&world, "web").await;
    assert_eq!(steps(&answer), (1, 0), "codes alone are no second factor");
    ends_with_a_code(&mut browser, "web", &id).await;
    let mut row = crate::enrolled::stored(&world, "u-ada").await.unwrap();
    (row["passkeys"], row["handle"]) = (only_passkey["passkeys"].clone(), only_passkey["handle"].clone());
    enrol(&world, "u-ada", row).await;
    let (mut browser, id, _) = half(&world, "web").await;
    assert_eq!(choices(&mut browser, &id).await["methods"], json!(["passkey", "recovery_code"]));
    let more = [("method", "recovery_code"), ("code", made["codes"][0].as_str().unwrap())];
    assert_eq!(steps(&browser.call("authenticate", "web", &id, &more).await), (2, 0));
    ends_with_a_code(&mut browser, "web", &id).await;
    // each works once, and none is a first step
    let (mut browser, id, _) = half(&world, "web").await;
    assert_eq!(browser.call("authenticate", "web", &id, &more).await.error(), "invalid_otp");
    let id = browser.start("web", ADA).await;
    assert_eq!(browser.call("authenticate", "web", &id, &more).await.error(), "method_not_allowed");
}

#[tokio::test]
async fn b08_c115_c131_nothing_shows_the_factor_before_a_proved_step() {
    let world = world(|service| service.passkeys(Passkeys::new(RP_ID))).await;
    enrol(&world, "u-ada", json!({ "totp": app(2), "recovery": recovery(2) })).await;
    for client in ["web", "mfa"] {
        let mut seen = Vec::new();
        for (who, phone) in [(ADA, ADA_PHONE), (GRACE, crate::world::GRACE_PHONE), (NOBODY, "+15555550199")] {
            let mut browser = world.browser();
            let started =
                browser.post("/authentication/start", &with(parameters(client), &[("identifier", who)])).await;
            let mut shown = started.json();
            let id = shown["session_id"].take().as_str().unwrap().to_owned();
            shown["challenges"]["passkey"]["challenge"].take();
            let mut all = vec![shown.to_string()];
            let answers = [
                browser.password(client, &id, who, "wrong").await,
                browser.ask(client, &id, "sms", phone).await,
                browser.verify(client, &id, "000000").await,
                code(&mut browser, client, &id, CODES[1]).await,
                browser.call("authenticate", client, &id, &[("method", "recovery_code"), ("code", "x")]).await,
                browser.complete(client, &id).await,
                browser.get(&format!("/authentication/choices?session_id={id}")).await,
                browser.status(&id).await,
            ];
            all.extend(answers.iter().map(|answer| format!("{} {}", answer.status, answer.text.replace(&id, "ID"))));
            seen.push(all);
        }
        assert!(seen.iter().all(|all| *all == seen[0]), "{client}: {seen:?}");
    }
    // a wrong step of a login that is bound to the name shows nothing either
    let (mut browser, id, answer) = {
        let mut browser = world.browser();
        let id = browser.start("web", GRACE).await;
        let answer = browser.password("web", &id, GRACE, GRACE_PASSWORD).await;
        (browser, id, answer)
    };
    assert_eq!(steps(&answer), (1, 0), "grace has no factor");
    ends_with_a_code(&mut browser, "web", &id).await;
}

#[tokio::test]
async fn b08_c131_the_rule_is_off_where_every_policy_switches_it_off() {
    let lax = || Policy::default().without_enrolled_second_factor();
    let client = |id: &str, policy: Policy| {
        let client = Client::new(id, acme()).unwrap().scopes("openid").unwrap();
        client.redirect_uri(CALLBACK).unwrap().policy(policy)
    };
    let all = clients().iter().map(|client| Client::clone(client)).collect::<Vec<_>>();
    let all = all.into_iter().chain([client("lax", lax()), client("strict", Policy::default())]);
    let table = ClientTable::new(all).unwrap();
    for (of_tenant, asked_at) in [(lax(), &["strict"][..]), (Policy::default(), &["web", "lax", "strict"])] {
        let policies = Policies::default().tenant(acme(), of_tenant);
        let world = world(|service| service.clients(table.clone()).policies(policies)).await;
        enrol(&world, "u-ada", json!({ "totp": app(1) })).await;
        for client in ["web", "lax", "strict"] {
            let (_, _, answer) = half(&world, client).await;
            assert_eq!(steps(&answer), (1, u64::from(asked_at.contains(&client))), "{client}");
        }
    }
    let world = world(optional).await;
    enrol(&world, "u-ada", json!({ "totp": app(2) })).await;
    let (mut browser, id, answer) = half(&world, "mfa").await;
    assert_eq!(steps(&answer), (1, 1));
    assert_eq!(choices(&mut browser, &id).await["methods"], json!(["sms", "email", "whatsapp", "totp"]));
}

#[tokio::test]
async fn b08_c131_a_login_of_two_steps_uses_its_open_step() {
    let world = world(|service| service).await;
    enrol(&world, "u-ada", json!({ "totp": app(2) })).await;
    let (mut browser, id, answer) = half(&world, "mfa").await;
    assert_eq!(steps(&answer), (1, 1));
    assert_eq!(choices(&mut browser, &id).await["methods"], json!(["totp"]));
    // a stolen mailbox is no way around the app, whichever step comes first
    assert_eq!(browser.ask("mfa", &id, "email", ADA).await.error(), "method_not_allowed");
    let mut thief = world.browser();
    let by_mail = thief.start("mfa", ADA).await;
    assert_eq!(thief.ask("mfa", &by_mail, "email", ADA).await.status, 200);
    let sent = world.code(ADA).await;
    assert_eq!(steps(&thief.verify("mfa", &by_mail, &sent).await), (1, 1));
    assert_eq!(thief.password("mfa", &by_mail, ADA, ADA_PASSWORD).await.error(), "method_not_allowed");
    assert_eq!(steps(&code(&mut browser, "mfa", &id, CODES[1]).await), (2, 0));
    ends_with_a_code(&mut browser, "mfa", &id).await;
}

#[tokio::test]
async fn b08_c131_named_methods_get_one_step_more() {
    let slots = |slots: &[MethodSet]| Policy::slots(slots.iter().copied()).unwrap();
    let both = slots(&[Method::Password.into(), Method::Email.into()]);
    let world = world(|service| service.policies(Policies::new(both))).await;
    // the app was enrolled with a password and a code by e-mail, or with the password alone
    for (strength, left) in [(2, 2), (1, 1)] {
        enrol(&world, "u-ada", json!({ "totp": app(strength) })).await;
        world.advance(31);
        let (mut browser, id, answer) = half(&world, "web").await;
        assert_eq!(steps(&answer), (1, left), "one that counts in no login of two steps is no second factor");
        assert_eq!(browser.ask("web", &id, "email", ADA).await.status, 200);
        let sent = world.code(ADA).await;
        assert_eq!(steps(&browser.verify("web", &id, &sent).await), (2, left - 1));
    }
    // the names of a policy don't matter for the step that was added
    let by_mail = slots(&[Method::Email.into()]);
    let world = crate::enrolled::world(|service| service.policies(Policies::new(by_mail))).await;
    enrol(&world, "u-ada", json!({ "totp": app(1) })).await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    assert_eq!(browser.ask("web", &id, "email", ADA).await.status, 200);
    let sent = world.code(ADA).await;
    assert_eq!(steps(&browser.verify("web", &id, &sent).await), (1, 1));
    assert_eq!(choices(&mut browser, &id).await["methods"], json!(["totp"]));
    assert_eq!(steps(&code(&mut browser, "web", &id, CODES[1]).await), (2, 0));
    ends_with_a_code(&mut browser, "web", &id).await;
}

#[tokio::test]
async fn b08_c131_an_added_step_does_not_answer_a_request_for_more_steps() {
    let policies = || Policies::default().acr("two", Policy::any(2).unwrap()).unwrap();
    let world = world(|service| service.policies(policies())).await;
    enrol(&world, "u-ada", json!({ "totp": app(1) })).await;
    let (mut browser, id, _) = half(&world, "web").await;
    assert_eq!(steps(&code(&mut browser, "web", &id, CODES[1]).await), (2, 0));
    assert_eq!(browser.complete("web", &id).await.status, 200);
    // the app was enrolled with one proof, so password and app are no login of two steps
    let two = browser.get(&format!("/authorize?{}&acr_values=two", query("web"))).await;
    assert_eq!(two.redirected("code"), None, "{two:?}");
    // neither before nor after the session has begun
    assert!(browser.authorize("web").await.redirected("code").is_some());
    let silent = browser.get(&format!("/authorize?{}&acr_values=two&prompt=none", query("web"))).await;
    assert_eq!(silent.redirected("error").as_deref(), Some("login_required"));
}

#[tokio::test]
async fn b08_c131_steps_at_the_same_time_leave_nothing_out() {
    let world = world(|service| service).await;
    enrol(&world, "u-ada", json!({ "totp": app(2) })).await;
    for client in ["web", "mfa"] {
        world.advance(31);
        let mut browser = world.browser();
        let id = browser.start(client, ADA).await;
        assert_eq!(browser.ask(client, &id, "email", ADA).await.status, 200);
        let sent = world.code(ADA).await;
        let calls = (0..4).map(|at| {
            let (mut browser, id, sent) = (browser.clone(), id.clone(), sent.clone());
            async move {
                match at % 2 {
                    0 => browser.password(client, &id, ADA, ADA_PASSWORD).await,
                    _ => browser.verify(client, &id, &sent).await,
                }
            }
        });
        let answers = join(calls).await;
        assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1, "{answers:?}");
        assert_eq!(steps(&browser.status(&id).await), (1, 1));
        assert_eq!(browser.complete(client, &id).await.error(), "steps_remaining");
    }
}

#[tokio::test]
async fn b08_c131_a_code_that_was_sent_before_the_first_step_is_worth_nothing_after_it() {
    let world = world(|service| service).await;
    enrol(&world, "u-ada", json!({ "totp": app(2) })).await;
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    assert_eq!(browser.ask("mfa", &id, "sms", ADA_PHONE).await.status, 200);
    let sent = world.code(ADA_PHONE).await;
    assert_eq!(browser.password("mfa", &id, ADA, ADA_PASSWORD).await.status, 200);
    assert_eq!(browser.verify("mfa", &id, &sent).await.error(), "no_pending_challenge");
    // the code of another login, and the same one twice
    let (mut other, other_id, _) = half(&world, "mfa").await;
    assert_eq!(steps(&code(&mut other, "mfa", &other_id, CODES[1]).await), (2, 0));
    assert_eq!(code(&mut browser, "mfa", &id, CODES[1]).await.error(), "invalid_otp");
    ends_with_a_code(&mut other, "mfa", &other_id).await;
    // another tab of the browser that is signed in takes over what its session has proved, not more
    assert_eq!(browser.complete("mfa", &id).await.error(), "steps_remaining");
    assert_eq!(browser.authorize("mfa").await.redirected("code"), None);
}

#[tokio::test]
async fn b08_c131_c132_an_enrolment_ends_no_session_and_the_next_login_asks_for_it() {
    let world = own_account::site(|service| service).await;
    let mut other = sign_in(&world, ADA, &["password"]).await;
    let mut owner = own_account::ada(&world).await;
    let secret = enrol_totp(&world, &mut owner).await;
    for browser in [&mut other, &mut owner] {
        assert_eq!(browser.get("/sign-in").await.header("location"), "/", "still signed in");
        assert!(credentials(browser).await["totp"].is_object());
    }
    assert_eq!(world.service.credential_changed(&acme(), &"u-ada".parse().unwrap()).await.unwrap(), 0);
    assert_eq!(sessions(&world, "u-ada").await.len(), 2);
    world.advance(30);
    let app = format!("totp:{}", totp(&secret, world.time()));
    let mut third = world.browser();
    let finished = sign_in_at(&world, &mut third, "/sign-in", ADA, &["password", &app]).await;
    assert_eq!((finished.status.as_u16(), finished.header("location")), (303, "/"));
}

/// Signs in to the site at this URL as the signed-in user. Returns the members of its calls, and the answer to `start`.
async fn step_up(browser: &mut Browser, target: &str) -> (Value, Value) {
    let fields = own_account::begin(browser, target).await;
    let started = browser.post("/authentication/start", &fields).await.json();
    (with(fields, &[("session_id", started["session_id"].as_str().unwrap())]), started)
}

#[tokio::test]
async fn b08_b10_c131_a_step_up_of_an_older_session_asks_for_the_factor() {
    let world = own_account::site(|service| service).await;
    let mut thief = sign_in(&world, ADA, &["password"]).await;
    let secret = enrol_totp(&world, &mut own_account::ada(&world).await).await;
    world.advance(30);
    // the password still counts, and nothing else than the app will do
    let (own, started) = step_up(&mut thief, "/sign-in?max_age=299&steps=2").await;
    assert_eq!((&started["required_steps"], &started["next_step"]), (&json!(2), &json!(2)));
    assert_eq!(started["available_methods"], json!([]));
    let id = own["session_id"].as_str().unwrap().to_owned();
    assert_eq!(choices(&mut thief, &id).await["methods"], json!(["totp"]));
    let refused = prove((&world, &mut thief), &own, (ADA, "password"), "").await;
    assert_eq!(refused.error(), "method_not_allowed");
    assert_eq!(prove((&world, &mut thief), &own, (ADA, "totp"), "000000").await.error(), "invalid_otp");
    let right = totp(&secret, world.time());
    assert_eq!(steps(&prove((&world, &mut thief), &own, (ADA, "totp"), &right).await), (2, 0));
    // a session that is old enough begins again, and `start` is the same for everybody
    world.advance(400);
    let (own, started) = step_up(&mut thief, "/sign-in?max_age=0&steps=1").await;
    assert_eq!((&started["required_steps"], &started["next_step"]), (&json!(1), &json!(1)));
    assert_eq!(steps(&prove((&world, &mut thief), &own, (ADA, "password"), "").await), (1, 1));
}

#[tokio::test]
async fn b08_b09_c131_an_added_step_is_not_proved_by_setting_up_another_factor() {
    let world = own_account::site(|service| service.passkeys(Passkeys::new(RP_ID))).await;
    // one that does not count in two steps, so that the account could still set up its first second factor
    enrol(&world, "u-lone", json!({ "totp": app(1) })).await;
    let mut thief = world.browser();
    let id = thief.start("web", LONE).await;
    assert_eq!(steps(&thief.password("web", &id, LONE, ADA_PASSWORD).await), (1, 1));
    let shown = choices(&mut thief, &id).await;
    assert_eq!((&shown["methods"], &shown["enrol"]), (&json!(["totp"]), &Value::Null));
    for method in ["totp", "passkey"] {
        let answer = thief.call("enrol", "web", &id, &[("method", method)]).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (409, "method_not_allowed"), "{method}");
    }
    assert_eq!(thief.complete("web", &id).await.error(), "steps_remaining");
}

#[tokio::test]
async fn b08_b09_c131_an_app_that_was_set_up_with_the_password_alone_is_asked_for() {
    let world = own_account::site(|service| service).await;
    let mut owner = sign_in(&world, LONE, &["password"]).await;
    let secret = enrol_totp(&world, &mut owner).await;
    for client in ["web", "mfa"] {
        world.advance(30);
        let mut browser = world.browser();
        let id = browser.start(client, LONE).await;
        assert_eq!(steps(&browser.password(client, &id, LONE, ADA_PASSWORD).await), (1, 1), "{client}");
        let shown = choices(&mut browser, &id).await;
        assert_eq!((&shown["methods"], &shown["enrol"]), (&json!(["totp"]), &Value::Null), "{client}");
        let right = totp(&secret, world.time());
        assert_eq!(steps(&code(&mut browser, client, &id, &right).await), (2, 0));
        ends_with_a_code(&mut browser, client, &id).await;
    }
}

#[tokio::test]
async fn b08_a_step_that_was_added_does_not_shorten_a_remembered_session() {
    let month = Duration::from_secs(30 * 24 * 3600);
    let world = own_account::site(|service| service.remember_me(month)).await;
    enrol(&world, "u-ada", json!({ "totp": app(1) })).await;
    for (target, methods, lifetime) in [
        ("/sign-in", &["password", "totp"][..], month),
        ("/sign-in?steps=2", &["password", "email"], Duration::from_secs(24 * 3600)),
    ] {
        let mut browser = world.browser();
        let fields = own_account::begin(&mut browser, target).await;
        let mut body = with(fields.clone(), &[("identifier", ADA)]);
        body["remember"] = json!(true);
        let started = browser.post("/authentication/start", &body).await.json();
        let own = with(fields, &[("session_id", started["session_id"].as_str().unwrap())]);
        for method in methods {
            let code = totp(SECRET, world.time());
            assert_eq!(prove((&world, &mut browser), &own, (ADA, method), &code).await.status, 200, "{method}");
        }
        assert_eq!(browser.post("/authentication/complete", &own).await.status, 200);
        assert_eq!(browser.get("/sign-in/finish").await.header("location"), "/");
        let newest = sessions(&world, "u-ada").await.pop().unwrap();
        assert_eq!(newest.expires(), world.time() + lifetime, "{methods:?}");
    }
}
