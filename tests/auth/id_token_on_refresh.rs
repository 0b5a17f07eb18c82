//! `Client::without_id_token_on_refresh`.

use tollgate::Client;

use crate::{issued_tokens::IssuedTokens, special_worlds::world_with};

#[tokio::test]
async fn a_client_can_do_without_id_tokens_on_refresh() {
    let world = world_with(Client::without_id_token_on_refresh).await;
    let mut browser = world.browser();
    for (client, has_id) in [("special", false), ("web", true)] {
        let issued = browser.tokens(client, "openid email").await;
        assert!(issued.id.is_some(), "{client}: the code returns one");
        let next = IssuedTokens::of(&browser.refresh(client, issued.refresh()).await);
        // also if the answer was lost and the client asks again
        let again = IssuedTokens::of(&browser.refresh(client, issued.refresh()).await);
        for next in [&next, &again] {
            assert_eq!(next.id.is_some(), has_id, "{client}");
            assert_eq!(next.scope, issued.scope);
            assert_eq!(browser.opens(&world, client, &next.access).await, [true; 3], "{client}");
        }
        assert_eq!(again.refresh(), next.refresh());
    }
    let metadata = browser.get("/.well-known/openid-configuration").await.json();
    assert!(metadata["id_token_signing_alg_values_supported"].is_array());
}
