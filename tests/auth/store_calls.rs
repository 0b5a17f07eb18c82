//! How many store calls a login by code takes. Each call of the service reads each row once.

use crate::{
    controlled_store::ControlledStore,
    world::{ADA, ADA_PHONE, World},
};

#[tokio::test]
async fn a_login_by_code_takes_few_store_calls() {
    let store = ControlledStore::default();
    let world = World::with(store.clone(), |service| service).await;
    // the key of the service is made
    world.browser().log_in("web", ADA).await;
    let mut browser = world.browser();
    store.done();
    let mut calls = Vec::new();
    let id = browser.start("web", ADA).await;
    calls.push(("start", store.done()));
    browser.ask("web", &id, "sms", ADA_PHONE).await;
    calls.push(("authenticate", store.done()));
    let code = world.code(ADA_PHONE).await;
    store.done();
    assert_eq!(browser.verify("web", &id, &code).await.status, 200);
    calls.push(("verify-otp", store.done()));
    browser.complete("web", &id).await;
    calls.push(("complete", store.done()));
    assert!(browser.authorize("web").await.redirected("code").is_some());
    calls.push(("authorize", store.done()));
    let counts: Vec<_> = calls.iter().map(|(call, done)| (*call, done.len())).collect();
    let expected = [("start", 5), ("authenticate", 8), ("verify-otp", 10), ("complete", 4), ("authorize", 10)];
    assert_eq!(counts, expected, "{calls:#?}");
    // no call reads a login again that it has read
    for (call, done) in &calls {
        assert!(done.iter().filter(|it| *it == "get logins").count() <= 1, "{call} {done:?}");
    }
}
