//! The whole flow, from the first request to the code.

use std::collections::BTreeSet;

use crate::world::{ADA, ADA_PASSWORD, ADA_PHONE, CALLBACK, ISSUER, World, query};

#[tokio::test]
async fn a_login_by_password_ends_with_a_code() {
    let world = World::new().await;
    let mut browser = world.browser();
    let first = browser.authorize("web").await;
    assert_eq!(first.status, 302);
    assert_eq!(first.header("location"), format!("/authentication/start?{}&state=xyz", query("web")));

    let id = browser.start("web", ADA).await;
    let shown = browser.status(&id).await.json();
    assert_eq!(
        shown.to_string(),
        format!(r#"{{"completed_steps":0,"next_step":1,"remaining_steps":1,"session_id":"{id}","status":"pending"}}"#)
    );

    let step = browser.password("web", &id, "ada", ADA_PASSWORD).await;
    assert_eq!(step.status, 200, "{step:?}");
    assert_eq!(step.json()["status"], "success");
    assert_eq!(step.json()["next_step"], serde_json::Value::Null);
    assert_eq!(browser.complete("web", &id).await.json()["status"], "completed");

    let last = browser.authorize("web").await;
    assert_eq!(last.status, 302);
    assert!(last.header("location").starts_with(&format!("{CALLBACK}?code=")), "{last:?}");
    assert_eq!(last.redirected("state").as_deref(), Some("xyz"));
    assert_eq!(last.redirected("iss").as_deref(), Some(ISSUER));
    assert_eq!(last.redirected("code").unwrap().len(), 43);
    assert_eq!(browser.cookies.keys().collect::<Vec<_>>(), ["__Host-auth_device", "__Host-session_giszrYfB"]);
}

#[tokio::test]
async fn two_steps_require_two_kinds_of_proof() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    let step = browser.password("mfa", &id, ADA, ADA_PASSWORD).await;
    assert_eq!((step.json()["remaining_steps"].as_u64(), step.json()["next_step"].as_u64()), (Some(1), Some(2)));
    assert_eq!(browser.complete("mfa", &id).await.error(), "steps_remaining");
    let again = browser.password("mfa", &id, ADA, ADA_PASSWORD).await;
    assert_eq!((again.status.as_u16(), again.error().as_str()), (409, "method_not_allowed"));

    let opened = browser.ask("mfa", &id, "sms", ADA_PHONE).await;
    assert_eq!(opened.status, 200, "{opened:?}");
    assert_eq!(opened.json()["status"], "pending");
    assert_eq!(opened.json()["challenge"]["digits"], 6);
    let code = world.code(ADA_PHONE).await;
    let step = browser.verify("mfa", &id, &code).await;
    assert_eq!((step.status.as_u16(), step.json()["remaining_steps"].as_u64()), (200, Some(0)));
    browser.complete("mfa", &id).await;
    assert!(browser.authorize("mfa").await.redirected("code").is_some());
}

#[tokio::test]
async fn a_new_sign_in_renews_the_session_of_the_browser_and_keeps_others() {
    let world = World::new().await;
    let (mut browser, mut other) = (world.browser(), world.browser());
    for browser in [&mut other, &mut browser] {
        browser.sign_in("web").await;
    }
    let (acme, ada) = ("acme".parse().unwrap(), "u-ada".parse().unwrap());
    let before = world.sessions.list(&acme, &ada).await.unwrap();
    assert_eq!(before.len(), 2);
    let old = browser.cookies.clone();
    world.advance(1);
    browser.sign_in("web").await;
    let after = world.sessions.list(&acme, &ada).await.unwrap();
    // the ids stay, but this session has a new secret and a new lifetime
    let ids =
        |sessions: &[tollgate::Session]| sessions.iter().map(|one| one.sid().to_string()).collect::<BTreeSet<_>>();
    assert_eq!(ids(&before), ids(&after));
    let [_, (name, secret)] = old.iter().collect::<Vec<_>>()[..] else { panic!("{old:?}") };
    let now = &browser.cookies[name];
    assert_eq!(secret.split_once('.').unwrap().0, now.split_once('.').unwrap().0);
    assert_ne!(secret, now);
    let renewed = after.iter().filter(|session| now.starts_with(&session.sid().to_string())).collect::<Vec<_>>();
    assert_eq!(renewed.len(), 1);
    assert_eq!(renewed[0].created(), world.time());
    assert!(after.iter().any(|session| session.created() < world.time()));
}
