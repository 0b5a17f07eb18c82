//! Accounts at other identity providers that their owner has unlinked.

use serde_json::{Value, json};
use tollgate::{
    sso::{ProviderUser, SsoCallback, SsoConnection, SsoError, SsoProvider, SsoRequest},
    store::Memory,
    testing::ManualClock,
};

use crate::{
    enrolled::stored,
    own_account::{acme, ada, call, credentials},
    sso_provider::{Accounts, asked, begun, outcome},
    world::{ADA, ADA_PASSWORD, Browser, World},
};

/// A provider that signs in ada's user.
struct Fixed;

impl SsoProvider for Fixed {
    async fn authorization_url(&self, request: &SsoRequest<'_>) -> Result<String, SsoError> {
        Ok(format!("https://idp.example/authorize?state={}", request.state()))
    }

    async fn user(&self, callback: &SsoCallback<'_>) -> Result<ProviderUser, SsoError> {
        callback.code()?;
        Ok(ProviderUser::new("https://idp.example", "ada-there").with_email(ADA, true))
    }
}

/// A site whose hook names ada's account for her user at the provider, always.
async fn site() -> World {
    let connection = SsoConnection::new(Fixed).create_account(Accounts(&[("ada-there", "u-ada")]));
    let connection = connection.trust_email_domain("example.com").unwrap();
    World::on(Memory::new().into(), ManualClock::new(), |service| service.sso("idp", connection).first_party(acme()))
        .await
}

/// Goes to the provider and back.
async fn visit(browser: &mut Browser, client: &str, id: &str) -> String {
    let answer = browser.call("authenticate", client, id, &[("method", "sso"), ("provider", "idp")]).await;
    let state = asked(answer.json()["redirect_url"].as_str().unwrap())["state"].clone();
    outcome(&browser.get(&format!("/authentication/sso/idp/callback?code=x&state={state}")).await).to_owned()
}

/// Signs in at the provider in a login without a name.
async fn by_provider(world: &World) -> (String, Browser, String) {
    let mut browser = world.browser();
    let id = begun(&mut browser, "web").await;
    let found = visit(&mut browser, "web", &id).await;
    (found, browser, id)
}

async fn unlink(world: &World) {
    let mut owner = ada(world).await;
    let id = credentials(&mut owner).await["links"][0]["id"].clone();
    assert_eq!(call(&mut owner, "links/delete", json!({ "id": id })).await.status, 204);
}

/// Proves the password and signs in at the provider, which links its user anew.
async fn link_again(world: &World) {
    let mut browser = world.browser();
    let id = browser.start("mfa", ADA).await;
    assert_eq!(browser.password("mfa", &id, ADA, ADA_PASSWORD).await.status, 200);
    assert_eq!(visit(&mut browser, "mfa", &id).await, "ok");
}

#[tokio::test]
async fn c084_an_unlinked_account_stays_unlinked_although_the_hook_names_it_again() {
    let world = site().await;
    assert_eq!(by_provider(&world).await.0, "ok");
    unlink(&world).await;
    for _ in 0..2 {
        assert_eq!(by_provider(&world).await.0, "failed");
    }
    let row = stored(&world, "u-ada").await.unwrap();
    assert_eq!(row["links"], Value::Null);
    assert!(!row.to_string().contains("ada-there"), "what is kept does not tell whom: {row}");
    // a user who proves another factor can link it again, and the hook's answer counts from then on
    link_again(&world).await;
    assert_eq!(by_provider(&world).await.0, "ok");
    unlink(&world).await;
    assert_eq!(by_provider(&world).await.0, "failed");
}

#[tokio::test]
async fn c120_a_proof_by_a_link_that_was_removed_does_not_count_again_after_linking_anew() {
    let world = site().await;
    // somebody who has the account at the provider waits with a proved login
    let (found, mut thief, id) = by_provider(&world).await;
    assert_eq!(found, "ok");
    assert_eq!(thief.complete("web", &id).await.status, 200);
    unlink(&world).await;
    link_again(&world).await;
    let answer = thief.authorize("web").await;
    assert_eq!(answer.redirected("code"), None, "{answer:?}");
    // a new sign-in counts
    let (found, mut browser, id) = by_provider(&world).await;
    assert_eq!((&*found, browser.complete("web", &id).await.status.as_u16()), ("ok", 200));
    assert!(browser.authorize("web").await.redirected("code").is_some());
}
