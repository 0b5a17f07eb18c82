//! Section D of the checklist: rules that all steps share.

use serde_json::{Value, json};

use crate::{
    failing_store::FailingStore,
    world::{
        ADA, ADA_PASSWORD, ADA_PHONE, Answer, Browser, GRACE, GRACE_PASSWORD, GRACE_PHONE, World, join, parameters,
        with,
    },
};

const STEPS: &[(&str, &[(&str, &str)])] = &[
    ("authenticate", &[("method", "password"), ("username", "ada"), ("password", ADA_PASSWORD)]),
    ("authenticate", &[("method", "sms"), ("phone_number", ADA_PHONE)]),
    ("authenticate", &[("method", "email"), ("email", ADA)]),
    ("verify-otp", &[("otp", "123456")]),
    ("complete", &[]),
];

async fn post(browser: &mut Browser, endpoint: &str, body: &Value) -> Answer {
    browser.post(&format!("/authentication/{endpoint}"), body).await
}

#[tokio::test]
async fn c041_every_call_must_repeat_the_parameters_of_the_start() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    let before = browser.status(&id).await.text;
    for (endpoint, fields) in STEPS {
        let good = with(with(parameters("mfa"), &[("session_id", &id)]), fields);
        for (name, others) in [
            ("client_id", &["web", "other", "nobody", "MFA", "mfa "][..]),
            ("redirect_uri", &["https://app.example/callback/", crate::world::WITH_QUERY, "https://evil.example"]),
            ("response_type", &["token", "Code", "code "]),
            ("scope", &["openid email", "email", "OPENID", "openid ", "openid  openid", "admin"]),
            ("code_challenge", &["", "x", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cN"]),
            ("code_challenge_method", &["plain", "s256", ""]),
        ] {
            let left_out = std::iter::once(Value::Null);
            for other in left_out.chain(others.iter().map(|other| json!(other))) {
                let mut wrong = good.clone();
                wrong[name] = other;
                let answer = post(&mut browser, endpoint, &wrong).await;
                let (shown, description) =
                    (answer.json(), format!("{name} is missing or differs from the start of the login"));
                assert_eq!((answer.status.as_u16(), &*answer.error()), (400, "invalid_request"), "{wrong}");
                assert_eq!(shown["error_description"], description.as_str(), "{wrong}");
                assert_eq!(browser.status(&id).await.text, before);
            }
            let mut without = good.clone();
            without.as_object_mut().unwrap().remove(name);
            assert_eq!(post(&mut browser, endpoint, &without).await.status, 400);
        }
        for id in [Value::Null, json!("")] {
            let mut without = good.clone();
            without["session_id"] = id;
            let answer = post(&mut browser, endpoint, &without).await;
            assert_eq!(answer.json()["error_description"], "session_id is missing");
        }
    }
    assert!(world.outbox.messages().is_empty());
    // the same scopes in another order and spacing are equal
    let scope = with(with(parameters("mfa"), &[("session_id", &id), ("scope", "openid openid")]), STEPS[0].1);
    assert_eq!(post(&mut browser, "authenticate", &scope).await.status, 200);
}

#[tokio::test]
async fn c041_missing_fields_of_a_method_are_named_in_the_error() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    for (fields, description) in [
        (&[][..], "method is missing"),
        (&[("method", "")], "method is missing"),
        (&[("method", "password")], "username is missing"),
        (&[("method", "password"), ("password", "x")], "username is missing"),
        (&[("method", "password"), ("username", ""), ("password", "x")], "username is missing"),
        (&[("method", "password"), ("username", "ada")], "password is missing"),
        (&[("method", "password"), ("username", "ada"), ("password", "")], "password is missing"),
        (&[("method", "password"), ("username", "a\u{0}"), ("password", "x")], "username is malformed"),
        (&[("method", "sms")], "phone_number is missing"),
        (&[("method", "sms"), ("email", ADA)], "phone_number is missing"),
        (&[("method", "sms"), ("phone_number", "5550100")], "phone_number is not in international format"),
        (&[("method", "whatsapp")], "phone_number is missing"),
        (&[("method", "email")], "email is missing"),
        (&[("method", "email"), ("phone_number", ADA_PHONE)], "email is missing"),
        (&[("method", "email"), ("email", "ada")], "email is malformed"),
    ] {
        let answer = browser.call("authenticate", "mfa", &id, fields).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (400, "invalid_request"), "{fields:?}");
        assert_eq!(answer.json()["error_description"], description, "{fields:?}");
    }
    let otp = browser.call("verify-otp", "mfa", &id, &[("otp", "")]).await;
    assert_eq!(otp.json()["error_description"], "otp is missing");
    assert_eq!(browser.status(&id).await.json()["status"], "pending");
    assert!(world.outbox.messages().is_empty());
}

#[tokio::test]
async fn c042_a_method_must_be_known_and_enabled_and_can_be_used_once() {
    let world =
        World::with(tollgate::store::Memory::new(), tollgate::auth::AuthServiceBuilder::without_passwords).await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    // unknown methods, and methods that are not supported yet
    for method in ["pigeon", "Password", "password ", "otp", "SMS", "passkey", "sso"] {
        let answer = browser.call("authenticate", "web", &id, &[("method", method)]).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (400, "unsupported_method"), "{method}");
    }
    let answer = browser.call("authenticate", "web", &id, &[("method", "password")]).await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (409, "method_not_allowed"));
    // one phone can't prove two steps
    let id = browser.start("mfa", ADA).await;
    browser.ask("mfa", &id, "sms", ADA_PHONE).await;
    let code = world.code(ADA_PHONE).await;
    assert_eq!(browser.verify("mfa", &id, &code).await.status, 200);
    for method in ["sms", "whatsapp"] {
        let answer = browser.ask("mfa", &id, method, ADA_PHONE).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (409, "method_not_allowed"), "{method}");
    }
    assert_eq!(browser.ask("mfa", &id, "email", ADA).await.status, 200);
}

#[tokio::test]
async fn c043_a_completed_or_ended_login_accepts_no_steps() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    browser.password("web", &id, "ada", ADA_PASSWORD).await;
    let password = |mut browser: Browser, id: String| async move {
        let answer = browser.password("web", &id, "ada", ADA_PASSWORD).await;
        (answer.status.as_u16(), answer.error())
    };
    assert_eq!(password(browser.clone(), id.clone()).await, (409, "no_step_remaining".into()));
    browser.complete("web", &id).await;
    assert_eq!(password(browser.clone(), id.clone()).await, (409, "no_step_remaining".into()));
    let copy = browser.clone();
    browser.authorize("web").await;
    assert_eq!(password(copy, id).await, (401, "session_expired".into()));
    let id = browser.start("web", ADA).await;
    world.advance(600);
    assert_eq!(password(browser.clone(), id).await, (401, "session_expired".into()));
    // the fifteenth failure ends it
    let id = browser.start("web", ADA).await;
    for failure in 1..=15 {
        let answer = browser.password("web", &id, &format!("user{failure}"), "wrong").await;
        let expected = if failure < 15 { (401, "invalid_credentials") } else { (409, "session_failed") };
        assert_eq!((answer.status.as_u16(), &*answer.error()), expected, "{failure}");
        assert_eq!(answer.json()["status"], if failure < 15 { "pending" } else { "failed" });
    }
    assert_eq!(password(browser.clone(), id.clone()).await, (409, "session_failed".into()));
    assert_eq!(browser.status(&id).await.json()["status"], "failed");
}

#[tokio::test]
async fn c044_the_step_counters_of_every_response_add_up() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    let mut answers = vec![
        browser.status(&id).await,
        browser.password("mfa", &id, "ada", "wrong").await,
        browser.verify("mfa", &id, "000000").await,
        browser.complete("mfa", &id).await,
        browser.call("authenticate", "web", &id, &[]).await,
        browser.call("authenticate", "mfa", &id, &[("method", "pigeon")]).await,
        browser.ask("mfa", &id, "sms", ADA_PHONE).await,
        browser.ask("mfa", &id, "sms", ADA_PHONE).await,
        browser.verify("mfa", &id, "x").await,
    ];
    let code = world.code(ADA_PHONE).await;
    answers.push(browser.verify("mfa", &id, &code).await);
    answers.push(browser.ask("mfa", &id, "whatsapp", ADA_PHONE).await);
    answers.push(browser.password("mfa", &id, "grace", GRACE_PASSWORD).await);
    answers.push(browser.password("mfa", &id, "ada", ADA_PASSWORD).await);
    answers.push(browser.password("mfa", &id, "ada", ADA_PASSWORD).await);
    answers.push(browser.verify("mfa", &id, &code).await);
    browser.complete("mfa", &id).await;
    answers.push(browser.status(&id).await);
    let mut done = 0;
    for answer in answers {
        let shown = answer.json();
        let (completed, remaining) = (&shown["completed_steps"], &shown["remaining_steps"]);
        let (completed, remaining) = (completed.as_u64().unwrap(), remaining.as_u64().unwrap());
        assert_eq!(completed + remaining, 2, "{shown}");
        assert_eq!(shown["next_step"], if remaining == 0 { Value::Null } else { json!(completed + 1) });
        assert_eq!(shown["session_id"], id.as_str());
        assert!(completed >= done && completed <= done + 1, "{shown}");
        done = completed;
    }
    assert_eq!(done, 2);
}

#[tokio::test]
async fn c045_a_right_secret_sent_twice_at_once_counts_once() {
    for client in ["web", "mfa"] {
        let world = World::with(FailingStore::new(), |service| service).await;
        let mut browser = world.browser();
        let id = browser.start(client, ADA).await;
        let mut tabs: Vec<_> = (0..3).map(|_| browser.clone()).collect();
        let answers = join(tabs.iter_mut().map(|tab| tab.password(client, &id, "ada", ADA_PASSWORD))).await;
        assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1, "{answers:?}");
        assert_eq!(browser.status(&id).await.json()["completed_steps"], 1);
    }
    let world = World::with(FailingStore::new(), |service| service).await;
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    browser.ask("mfa", &id, "sms", ADA_PHONE).await;
    let code = world.code(ADA_PHONE).await;
    let mut tabs: Vec<_> = (0..3).map(|_| browser.clone()).collect();
    let answers = join(tabs.iter_mut().map(|tab| tab.verify("mfa", &id, &code))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1, "{answers:?}");
    assert_eq!(browser.status(&id).await.json()["completed_steps"], 1);
}

#[tokio::test]
async fn c046_a_failed_step_keeps_the_steps_before_it() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    browser.password("mfa", &id, "ada", ADA_PASSWORD).await;
    browser.ask("mfa", &id, "email", ADA).await;
    for wrong in ["000000", "x", "1234567"] {
        let answer = browser.verify("mfa", &id, wrong).await;
        assert_eq!((answer.status.as_u16(), answer.json()["completed_steps"].as_u64()), (401, Some(1)));
    }
    browser.ask("mfa", &id, "sms", GRACE_PHONE).await;
    browser.verify("mfa", &id, "000000").await;
    assert_eq!(browser.status(&id).await.json()["completed_steps"], 1);
    world.advance(31);
    browser.ask("mfa", &id, "sms", ADA_PHONE).await;
    let code = world.code(ADA_PHONE).await;
    assert_eq!(browser.verify("mfa", &id, &code).await.json()["completed_steps"], 2);
    browser.complete("mfa", &id).await;
    assert!(browser.authorize("mfa").await.redirected("code").is_some());
}

#[tokio::test]
async fn c047_all_steps_must_be_for_the_user_that_the_login_began_with() {
    let world = World::new().await;
    let mut browser = world.browser();
    // before the first proof: the login is ada's, so the right password of grace does not count
    let id = browser.start("mfa", ADA).await;
    let own = browser.password("mfa", &id, "ada", "wrong").await;
    let other = browser.password("mfa", &id, "grace", GRACE_PASSWORD).await;
    assert_eq!(other.whole(), own.whole());
    // after the first proof
    browser.password("mfa", &id, "ada", ADA_PASSWORD).await;
    let sent = browser.ask("mfa", &id, "email", GRACE).await;
    assert_eq!(sent.status, 200);
    assert_eq!(browser.verify("mfa", &id, "000000").await.error(), "invalid_otp");
    assert!(world.outbox.messages().is_empty(), "no code is sent to grace");
    // every name of the account leads to the same account
    for (identifier, username) in [(ADA, "ada"), ("ada", ADA), (" ADA ", "Ada@Example.com")] {
        let id = browser.start("web", identifier).await;
        assert_eq!(browser.password("web", &id, username, ADA_PASSWORD).await.status, 200, "{identifier} {username}");
    }
}
