//! How many store calls an exchange takes. Each exchange reads each row once.

use crate::{controlled_store::ControlledStore, world::World};

#[tokio::test]
async fn an_exchange_takes_few_store_calls() {
    let store = ControlledStore::default();
    let world = World::with(store.clone(), |service| service).await;
    let mut browser = world.browser();
    // the keys of the service are made
    browser.tokens("web", "openid").await;
    let code = browser.sign_in("web").await;
    store.done();
    let issued = crate::issued_tokens::IssuedTokens::of(&browser.redeem("web", &code).await);
    let by_code = store.done();
    assert_eq!(browser.refresh("web", issued.refresh()).await.status, 200);
    let by_refresh = store.done();
    assert_eq!(
        by_refresh,
        ["get token_families", "get users", "get generations", "get sessions", "swap token_families"]
    );
    assert_eq!(
        by_code,
        [
            "get codes",
            "get users",
            "get generations",
            "get sessions",
            "insert redeemed_challenges",
            "get family_lists",
            "swap family_lists",
            "insert token_families",
            "get revoked_tokens",
            "take codes",
        ]
    );
}
