//! Credentials that were enrolled with fewer proofs than a policy asks for.

use serde_json::{Value, json};
use tollgate::{NewUser, auth::Passkeys};

use crate::{
    enrolled::{app, enrol, stored},
    own_account::{LONE, acme, begin, call, credentials, prove, sign_in, sign_in_at, site, totp},
    soft_passkey::{RP_ID, SoftPasskey},
    world::{ADA, Answer, Browser, World, with},
};

/// The secret of `enrolled::app` as an app shows it.
const SECRET: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";

fn soft() -> SoftPasskey {
    let mut passkey = SoftPasskey::new();
    passkey.handle = vec![0; 32];
    passkey
}

fn required(answer: &Answer, steps: usize) {
    assert_eq!((answer.status.as_u16(), &*answer.error()), (403, "fresh_login_required"));
    assert!(answer.json()["login_url"].as_str().unwrap().ends_with(&format!("&steps={steps}")), "{answer:?}");
}

/// Checks that a user can't enrol codes, which would never be accepted.
async fn second_factor_required(browser: &mut Browser) {
    for path in ["totp/begin", "totp", "recovery-codes"] {
        let answer = call(browser, path, json!({ "code": "123456" })).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (403, "second_factor_required"), "{path}");
    }
}

/// Begins a sign-in, and proves its first step by a passkey.
async fn by_passkey(browser: &mut Browser, target: &str, passkey: &SoftPasskey) -> (Value, Answer) {
    let fields = begin(browser, target).await;
    let started = browser.post("/authentication/start", &fields).await.json();
    let own = with(fields, &[("session_id", started["session_id"].as_str().unwrap())]);
    let (options, mut step) = (&started["challenges"]["passkey"], with(own.clone(), &[("method", "passkey")]));
    (step["challenge"], step["response"]) = (options["challenge"].clone(), passkey.get(options));
    let answer = browser.post("/authentication/authenticate", &step).await;
    (own, answer)
}

async fn with_passkeys() -> World {
    let world = site(|service| service.passkeys(Passkeys::new(RP_ID))).await;
    let only = NewUser::new("u-only".parse().unwrap(), "only".parse().unwrap());
    world.users.create(&acme(), only).await.unwrap();
    world
}

#[tokio::test]
async fn b09_c117_weak_credentials_are_no_second_factor_but_nothing_is_changed_without_them() {
    let world = with_passkeys().await;
    let mut owner = sign_in(&world, LONE, &["password"]).await;
    let row = json!({ "passkeys": [soft().stored(1)], "totp": app(1) });
    enrol(&world, "u-lone", row).await;
    assert_eq!(credentials(&mut owner).await["required_proofs"], 2);
    required(&call(&mut owner, "totp/begin", json!({})).await, 1);
    // a login of one step asks for one of them, and then an app in place of the weak one is the first second factor
    let code = format!("totp:{}", totp(SECRET, world.time()));
    sign_in_at(&world, &mut owner, "/sign-in?max_age=0&steps=1", LONE, &["password", &code]).await;
    assert_eq!(call(&mut owner, "totp/begin", json!({})).await.status, 200);
    // codes are second steps, and a weak passkey can't be the first one before them
    let passkey = soft();
    enrol(&world, "u-only", json!({ "passkeys": [passkey.stored(1)] })).await;
    let mut only = world.browser();
    let (own, proved) = by_passkey(&mut only, "/sign-in?max_age=0&steps=1", &passkey).await;
    assert_eq!(proved.status, 200, "{proved:?}");
    assert_eq!(only.post("/authentication/complete", &own).await.status, 200);
    only.get("/sign-in/finish").await;
    assert_eq!(credentials(&mut only).await["required_proofs"], 1);
    second_factor_required(&mut only).await;
    // another passkey can be added, because a passkey can be the first step
    assert_eq!(call(&mut only, "passkeys/options", json!({})).await.status, 200);
}

#[tokio::test]
async fn c117_a_weak_credential_does_not_stand_in_for_the_second_factor_of_an_account_that_has_two() {
    let world = with_passkeys().await;
    let passkey = soft();
    enrol(&world, "u-ada", json!({ "passkeys": [passkey.stored(1)], "totp": app(1) })).await;
    let before = stored(&world, "u-ada").await;
    // alone it signs in, but changes nothing
    let mut thief = world.browser();
    let (own, proved) = by_passkey(&mut thief, "/sign-in?max_age=0&steps=1", &passkey).await;
    assert_eq!(proved.status, 200, "{proved:?}");
    assert_eq!(thief.post("/authentication/complete", &own).await.status, 200);
    thief.get("/sign-in/finish").await;
    required(&call(&mut thief, "recovery-codes", json!({})).await, 2);
    // in the login of two steps that the error names, it proves no step
    let (_, answer) = by_passkey(&mut thief, "/sign-in?max_age=0&steps=2", &passkey).await;
    assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "invalid_assertion"));
    let fields = begin(&mut thief, "/sign-in?max_age=0&steps=2").await;
    let started = thief.post("/authentication/start", &with(fields.clone(), &[("identifier", ADA)])).await.json();
    let own = with(fields, &[("session_id", started["session_id"].as_str().unwrap())]);
    assert_eq!(prove((&world, &mut thief), &own, (ADA, "password"), "").await.status, 200);
    let code = totp(SECRET, world.time());
    assert_eq!(prove((&world, &mut thief), &own, (ADA, "totp"), &code).await.error(), "invalid_otp");
    // nor does a session to which both were added one after the other
    let code = format!("totp:{code}");
    sign_in_at(&world, &mut thief, "/sign-in?max_age=0", ADA, &["password", &code]).await;
    required(&call(&mut thief, "recovery-codes", json!({})).await, 2);
    assert_eq!(stored(&world, "u-ada").await.unwrap()["recovery"], Value::Null);
    let after = stored(&world, "u-ada").await.unwrap();
    assert_eq!(before.unwrap()["totp"]["strength"], after["totp"]["strength"]);
}
