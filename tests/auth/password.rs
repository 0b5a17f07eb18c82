//! Section E of the checklist: the method `password` over HTTP.

use tollgate::{Identifier, UserId, event::Query, user::NewUser};

use crate::world::{ADA, ADA_PASSWORD, GRACE_PASSWORD, NOBODY, World};

#[tokio::test]
async fn c048_every_wrong_password_gets_the_same_response() {
    let world = World::new().await;
    let acme = "acme".parse().unwrap();
    let bare = NewUser::new(UserId::parse("u-bare").unwrap(), Identifier::parse("bare").unwrap());
    world.users.create(&acme, bare).await.unwrap();
    world.users.disable(&acme, &UserId::parse("u-grace").unwrap()).await.unwrap();
    let long = "x".repeat(2000);
    let mut answers = Vec::new();
    for (identifier, username, password) in [
        (ADA, "ada", "wrong"),
        (ADA, "ada", "correct horse battery staple "),
        (ADA, "ada", "Correct horse battery staple"),
        (ADA, "ada", &*long),
        (ADA, "grace", GRACE_PASSWORD),
        (ADA, NOBODY, ADA_PASSWORD),
        ("grace", "grace", GRACE_PASSWORD),
        ("bare", "bare", ADA_PASSWORD),
        (NOBODY, NOBODY, ADA_PASSWORD),
        (NOBODY, "ada", ADA_PASSWORD),
    ] {
        let mut browser = world.browser();
        let id = browser.start("mfa", identifier).await;
        answers.push(browser.password("mfa", &id, username, password).await.whole());
        // and so is the status afterwards
        answers.push(browser.status(&id).await.whole());
    }
    for answer in answers.chunks(2) {
        assert_eq!(answer, &answers[..2]);
    }
    let expected = "\n\n{\"error\":\"invalid_credentials\",\"error_description\":\"the credentials are wrong\",\
        \"session_id\":\"<id>\",\"status\":\"pending\",\"completed_steps\":0,\"remaining_steps\":2,\"next_step\":1}";
    assert!(answers[0].ends_with(expected), "{}", answers[0]);
}

#[tokio::test]
async fn c052_passwords_never_appear_in_logs_or_debug_output() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    browser.password("web", &id, "ada", "my wrong password").await;
    browser.password("web", &id, "my wrong password", "my wrong password").await;
    browser.password("web", &id, "ada", ADA_PASSWORD).await;
    browser.complete("web", &id).await;
    browser.authorize("web").await;
    world.log.flush();
    let page = world.log.read_events(&Query::new());
    assert!(page.events.len() > 4, "{page:?}");
    let text = format!("{page:?} {:?} {:?}", world.service, world.log);
    for secret in ["my wrong password", ADA_PASSWORD, ADA, "argon2"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}
