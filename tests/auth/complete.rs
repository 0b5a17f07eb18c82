//! Section I of the checklist: `POST /authentication/complete`.

use crate::world::{ADA, ADA_PASSWORD, ADA_PHONE, World};

#[tokio::test]
async fn c086_a_login_can_be_completed_repeatedly_once_its_steps_are_done() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    for (done, left) in [(0, 2), (1, 1)] {
        let early = browser.complete("mfa", &id).await;
        assert_eq!((early.status.as_u16(), &*early.error()), (409, "steps_remaining"));
        let shown = early.json();
        assert_eq!((shown["completed_steps"].as_u64(), shown["remaining_steps"].as_u64()), (Some(done), Some(left)));
        assert_eq!(browser.authorize("mfa").await.redirected("code"), None);
        if done == 0 {
            browser.password("mfa", &id, "ada", ADA_PASSWORD).await;
        }
    }
    browser.ask("mfa", &id, "sms", ADA_PHONE).await;
    let code = world.code(ADA_PHONE).await;
    browser.verify("mfa", &id, &code).await;
    // completed steps alone yield no code
    assert_eq!(browser.authorize("mfa").await.redirected("code"), None);
    assert_eq!(
        browser.complete("web", &id).await.json()["error_description"],
        "client_id is missing or differs from the start of the login"
    );
    let completed = browser.complete("mfa", &id).await;
    assert_eq!(
        completed.own(),
        "200\ncontent-type: application/json\nset-cookie: __Host-auth_device=<device>; Path=/; Max-Age=7776000; Secure; \
            HttpOnly; SameSite=Lax\n\n{\"session_id\":\"<id>\",\"status\":\"completed\"}\n"
    );
    assert_eq!(browser.complete("mfa", &id).await.own(), completed.own());
    let mut copy = browser.clone();
    assert!(browser.authorize("mfa").await.redirected("code").is_some());
    let spent = copy.complete("mfa", &id).await;
    assert_eq!((spent.status.as_u16(), &*spent.error()), (401, "session_expired"));
}

#[tokio::test]
async fn c087_the_code_must_be_fetched_within_five_minutes_of_the_first_complete() {
    for (seconds, is_had) in [(5 * 60 - 1, true), (5 * 60, false)] {
        let world = World::new().await;
        let mut browser = world.browser();
        let id = browser.start("web", ADA).await;
        browser.password("web", &id, "ada", ADA_PASSWORD).await;
        browser.complete("web", &id).await;
        world.advance(200);
        // completing again does not extend the time
        browser.complete("web", &id).await;
        world.advance(seconds - 200);
        assert_eq!(browser.authorize("web").await.redirected("code").is_some(), is_had, "{seconds}");
    }
    // nor the lifetime of the login
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    for _ in 0..3 {
        world.advance(9 * 60);
        browser.ask("web", &id, "email", ADA).await;
    }
    browser.password("web", &id, "ada", ADA_PASSWORD).await;
    world.advance(2 * 60);
    assert_eq!(browser.complete("web", &id).await.status, 200);
    world.advance(60);
    assert_eq!(browser.authorize("web").await.redirected("code"), None);
    assert_eq!(browser.status(&id).await.json()["status"], "expired");
}
