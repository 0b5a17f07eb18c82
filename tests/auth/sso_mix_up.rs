//! A hostile provider of one tenant, and an honest one of another.

use std::sync::{Arc, Mutex};

use tollgate::{
    AuthService, ClientIp, StoredUsers, Tenant,
    auth::AuthServiceBuilder,
    sso::{ProviderUser, SsoCallback, SsoConnection, SsoError, SsoProvider, SsoRequest},
    store::{AnyStore, Memory},
};

use crate::{
    sso_provider::{asked, begun},
    world::{Browser, ISSUER, clients},
};

/// A provider that keeps the codes that it should redeem.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<String>>>);

impl SsoProvider for Collector {
    async fn authorization_url(&self, request: &SsoRequest<'_>) -> Result<String, SsoError> {
        let (state, to) = (request.state(), request.redirect_uri());
        Ok(format!("https://provider.example/authorize?state={state}&redirect_uri={to}"))
    }

    async fn user(&self, callback: &SsoCallback<'_>) -> Result<ProviderUser, SsoError> {
        self.0.lock().unwrap().push(callback.code()?.to_owned());
        Err(SsoError::Failed("only the code is of interest"))
    }
}

impl Collector {
    fn of(&self, tenant: &str) -> SsoConnection {
        SsoConnection::new(self.clone()).only_tenant(&tenant.parse::<Tenant>().unwrap())
    }
}

fn builder() -> AuthServiceBuilder {
    let store = AnyStore::from(Memory::new());
    AuthService::builder(ISSUER, store.clone())
        .clients(clients())
        .users(StoredUsers::new(store))
        .client_ip(ClientIp::peer())
}

/// Asks to be sent to a provider, and returns its URL.
async fn sent_to(browser: &mut Browser, client: &str, provider: &str) -> String {
    let id = begun(browser, client).await;
    let answer = browser.call("authenticate", client, &id, &[("method", "sso"), ("provider", provider)]).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["redirect_url"].as_str().unwrap().to_owned()
}

/// A user goes to the hostile provider of acme. It sends them on to the honest one of globex, with the redirect URI of a login
/// at globex and the `state` of the login at acme. Returns the codes of the honest provider that the hostile one was given, or
/// `None` if there is no such service.
async fn mixed_up(hostile: &str, honest: &str) -> Option<Vec<String>> {
    let (collector, other) = (Collector::default(), Collector::default());
    let service = builder().sso(hostile, collector.of("acme")).sso(honest, other.of("globex")).build().ok()?;
    let browser = || Browser { service: service.clone(), cookies: Default::default(), address: [192, 0, 2, 1].into() };
    let (mut user, mut attacker) = (browser(), browser());
    let redirect_uri = asked(&sent_to(&mut attacker, "other", honest).await)["redirect_uri"].clone();
    let state = asked(&sent_to(&mut user, "web", hostile).await)["state"].clone();
    let callback = redirect_uri.strip_prefix(ISSUER).unwrap();
    user.get(&format!("{callback}?code=code-of-the-honest-provider&state={state}")).await;
    Some(collector.0.lock().unwrap().clone())
}

#[tokio::test]
async fn c083_a_code_of_one_provider_is_never_sent_to_another() {
    assert_eq!(mixed_up("corp", "corp").await, None, "both share a redirect URI");
    assert_eq!(mixed_up("acme-corp", "globex-corp").await, Some(Vec::new()));
}

#[test]
fn c083_providers_of_different_tenants_need_different_names() {
    let one = || Collector::default();
    for (first, second) in [
        (one().of("acme"), one().of("globex")),
        (SsoConnection::new(one()), one().of("globex")),
        (SsoConnection::new(one()), SsoConnection::new(one())),
    ] {
        let error = builder().sso("corp", first).sso("corp", second).build().unwrap_err().to_string();
        assert!(error.contains("corp") && error.contains("redirect URI"), "{error}");
    }
    // one provider can be shared by several tenants
    let shared = one().of("acme").only_tenant(&"globex".parse().unwrap());
    assert!(builder().sso("corp", shared).build().is_ok());
}
