//! Users of oidc-provider from npm sign in.

use serde_json::json;
use tollgate::{
    clock::{Clock, SystemClock},
    sso::{ClientSecret, OidcProvider, SsoConnection},
    store::Memory,
    testing::ManualClock,
};

use crate::{
    identity_provider::IdentityProvider,
    sso_provider::{Accounts, begun, outcome},
    world::{ISSUER, World},
};

const SECRET: &str = "a secret: of + signs";

#[tokio::test]
async fn users_of_a_foreign_provider_sign_in_while_its_keys_are_rotated() {
    let redirect_uri = format!("{ISSUER}/authentication/sso/foreign/callback");
    let Some(mut foreign) = IdentityProvider::start(&redirect_uri).await else { return };
    for client in ["RS256", "PS256", "ES256", "ES384", "EdDSA"] {
        let (clock, system) = (ManualClock::new(), SystemClock::new());
        clock.set_wall(system.unix(system.now()));
        let provider = OidcProvider::new(&foreign.issuer, client).unwrap().clock(clock.clone());
        let provider = match client {
            "RS256" | "ES384" => provider.secret(ClientSecret::new(SECRET)),
            "PS256" => provider.secret_in_body(ClientSecret::new(SECRET)),
            "EdDSA" => provider.private_key(&foreign.key, Some("ours")).unwrap(),
            _ => provider,
        };
        let provider = if client == "ES384" { provider.userinfo() } else { provider };
        let connection = SsoConnection::new(provider).create_account(Accounts(&[("ada-there", "u-ada")]));
        let world = World::on(Memory::new().into(), clock, |service| service.sso("foreign", connection)).await;
        for round in 0..2 {
            let mut browser = world.browser();
            let id = begun(&mut browser, "web").await;
            let fields = [("method", "sso"), ("provider", "foreign")];
            let sent = browser.call("authenticate", "web", &id, &fields).await;
            let url = sent.json()["redirect_url"].as_str().unwrap_or_else(|| panic!("{sent:?}")).to_owned();
            let back = foreign.ask(&format!("visit {url}")).await;
            let target = back.strip_prefix(ISSUER).unwrap_or_else(|| panic!("{back}"));
            let answer = browser.get(target).await;
            assert_eq!(outcome(&answer), "ok", "{client}, round {round}");
            assert_eq!(browser.status(&id).await.json()["completed_steps"], json!(1));
            assert_eq!(browser.get(target).await.status, 401, "a callback works once");
            assert_eq!(foreign.ask("rotate").await, "rotated");
            world.advance(31);
        }
    }
}
