//! Two connections of one tenant whose providers claim the same issuer.

use serde_json::json;
use tollgate::{
    sso::{ProviderUser, SsoCallback, SsoConnection, SsoError, SsoProvider, SsoRequest},
    store::Memory,
    testing::ManualClock,
};

use crate::{
    enrolled::stored,
    sso_provider::{Accounts, asked, begun, outcome},
    world::{Browser, World},
};

const ISSUER: &str = "https://idp.example";

/// A provider that signs in one user. Its operator chose the issuer freely.
struct Fixed(&'static str);

impl SsoProvider for Fixed {
    async fn authorization_url(&self, request: &SsoRequest<'_>) -> Result<String, SsoError> {
        Ok(format!("https://other.example/authorize?state={}", request.state()))
    }

    async fn user(&self, callback: &SsoCallback<'_>) -> Result<ProviderUser, SsoError> {
        callback.code()?;
        Ok(ProviderUser::new(ISSUER, self.0))
    }
}

/// Signs in by this connection. Returns the outcome and the browser.
async fn by(world: &World, provider: &str) -> (String, Browser, String) {
    let mut browser = world.browser();
    let id = begun(&mut browser, "web").await;
    let answer = browser.call("authenticate", "web", &id, &[("method", "sso"), ("provider", provider)]).await;
    let state = asked(answer.json()["redirect_url"].as_str().unwrap())["state"].clone();
    let answer = browser.get(&format!("/authentication/sso/{provider}/callback?code=x&state={state}")).await;
    (outcome(&answer).to_owned(), browser, id)
}

#[tokio::test]
async fn c084_a_connection_signs_in_no_user_of_another_one_with_the_same_issuer() {
    for order in [["trusted", "other"], ["other", "trusted"]] {
        let trusted = SsoConnection::new(Fixed("ada-there")).create_account(Accounts(&[("ada-there", "u-ada")]));
        // its operator lets anyone in, under any name
        let other = SsoConnection::new(Fixed("ada-there")).create_account(Accounts(&[("ada-there", "u-grace")]));
        let world = World::on(Memory::new().into(), ManualClock::new(), |service| {
            service.sso("trusted", trusted).sso("other", other)
        })
        .await;
        for name in order {
            let (found, mut browser, id) = by(&world, name).await;
            assert_eq!(found, "ok", "{name}");
            assert_eq!(browser.complete("web", &id).await.status, 200);
            assert!(browser.authorize("web").await.redirected("code").is_some());
        }
        // each connection has its own link, and neither takes the place of the other
        let link = async |user: &str| stored(&world, user).await.unwrap()["links"].clone();
        for (user, name) in [("u-ada", "trusted"), ("u-grace", "other")] {
            let links = link(user).await;
            assert_eq!(links.as_array().unwrap().len(), 1, "{links}");
            assert_eq!((&links[0]["provider"], &links[0]["subject"]), (&json!(name), &json!("ada-there")));
        }
    }
}

#[tokio::test]
async fn c084_a_connection_without_a_hook_finds_no_link_of_another_one() {
    let trusted = SsoConnection::new(Fixed("ada-there")).create_account(Accounts(&[("ada-there", "u-ada")]));
    let world = World::on(Memory::new().into(), ManualClock::new(), |service| {
        service.sso("trusted", trusted).sso("other", Fixed("ada-there"))
    })
    .await;
    assert_eq!(by(&world, "trusted").await.0, "ok");
    assert_eq!(by(&world, "other").await.0, "failed");
    assert_eq!(by(&world, "trusted").await.0, "ok");
}
