//! Which account a user of another identity provider gets.

use std::{
    future::Future,
    sync::{Arc, Mutex},
};

use serde_json::json;
use tollgate::{
    UserId,
    gate::MaybeReady,
    sso::SsoConnection,
    store::{Entry, Key, Memory, Record, Store, StoreError, Version, WriteOutcome},
};

use crate::{
    sso_provider::{Accounts, SsoWorld, begun, outcome},
    world::{ADA, ADA_PASSWORD, Browser, GRACE, GRACE_PASSWORD, NOBODY},
};

pub(crate) fn trusting(connection: SsoConnection) -> SsoConnection {
    connection.trust_email_domain("Example.COM").unwrap()
}

/// Begins a login in a new browser for this identifier, if there is one.
pub(crate) async fn login(world: &SsoWorld, client: &str, identifier: Option<&str>) -> (Browser, String) {
    let mut browser = world.world.browser();
    let id = match identifier {
        Some(identifier) => browser.start(client, identifier).await,
        None => begun(&mut browser, client).await,
    };
    (browser, id)
}

/// Proves the password of ada first, and then signs in at the provider.
pub(crate) async fn second_step(world: &SsoWorld, client: &str) -> String {
    let (mut browser, id) = login(world, client, Some(ADA)).await;
    assert_eq!(browser.password(client, &id, ADA, ADA_PASSWORD).await.status, 200);
    let answer = world.dance(&mut browser, client, &id).await;
    let found = outcome(&answer).to_owned();
    let completed = browser.status(&id).await.json()["completed_steps"].clone();
    assert_eq!(completed, if found == "ok" { 2 } else { 1 });
    found
}

/// Signs in at the provider as the first step.
pub(crate) async fn first_step(world: &SsoWorld, identifier: Option<&str>) -> String {
    let (mut browser, id) = login(world, "web", identifier).await;
    let answer = world.dance(&mut browser, "web", &id).await;
    let found = outcome(&answer).to_owned();
    assert_eq!(browser.status(&id).await.json()["completed_steps"], if found == "ok" { 1 } else { 0 });
    found
}

#[tokio::test]
async fn c084_an_email_address_alone_never_finds_an_account() {
    let world = SsoWorld::with(|oidc| oidc, trusting).await;
    for identifier in [None, Some(ADA), Some(NOBODY)] {
        assert_eq!(first_step(&world, identifier).await, "failed", "{identifier:?}");
    }
}

#[tokio::test]
async fn c084_the_first_link_needs_a_proved_step_and_a_verified_address_of_a_trusted_domain() {
    let untrusted = SsoWorld::with(|oidc| oidc, |connection| connection).await;
    assert_eq!(second_step(&untrusted, "mfa").await, "failed");
    let elsewhere = SsoWorld::with(|oidc| oidc, |it| it.trust_email_domain("sub.example.com").unwrap()).await;
    assert_eq!(second_step(&elsewhere, "mfa").await, "failed");

    let world = SsoWorld::with(|oidc| oidc, trusting).await;
    for claims in [
        json!({ "email_verified": false }),
        json!({ "email_verified": null }),
        json!({ "email_verified": 1 }),
        json!({ "email": GRACE }),
        json!({ "email": "other@example.com" }),
        json!({ "email": "ada@sub.example.com" }),
        json!({ "email": "ada@example.com.evil.example" }),
        json!({ "email": "x@evil.example,ada@example.com" }),
        json!({ "email": null }),
    ] {
        world.provider.set(|provider| provider.claims = claims.clone());
        assert_eq!(second_step(&world, "mfa").await, "failed", "{claims}");
        assert_eq!(first_step(&world, None).await, "failed", "nothing was linked: {claims}");
    }
    world.provider.set(|provider| provider.claims = json!({ "email": "ADA@example.com", "email_verified": "true" }));
    assert_eq!(second_step(&world, "mfa").await, "ok");
    // from now on the link alone finds the account, even with another address
    world.provider.set(|provider| provider.claims = json!({ "email": "new@evil.example" }));
    assert_eq!(first_step(&world, None).await, "ok");
    assert_eq!(first_step(&world, Some(ADA)).await, "ok");
    assert_eq!(first_step(&world, Some(GRACE)).await, "failed");
    assert_eq!(first_step(&world, Some(NOBODY)).await, "failed");
    // another subject with ada's address is somebody else
    world.provider.set(|provider| provider.claims = json!({ "sub": "another", "email": ADA }));
    assert_eq!(first_step(&world, None).await, "failed");
}

#[tokio::test]
async fn c084_one_mailbox_does_not_make_two_factors() {
    let world = SsoWorld::with(|oidc| oidc, trusting).await;
    let (mut browser, id) = login(&world, "mfa", Some(ADA)).await;
    assert_eq!(browser.ask("mfa", &id, "email", ADA).await.status, 200);
    let code = world.world.code(ADA).await;
    assert_eq!(browser.verify("mfa", &id, &code).await.status, 200);
    // a thief of the mailbox can have the account at the provider, too
    let answer = world.dance(&mut browser, "mfa", &id).await;
    assert_eq!(outcome(&answer), "failed");
    assert_eq!(browser.status(&id).await.json()["completed_steps"], 1);
    assert_eq!(first_step(&world, None).await, "failed", "nothing was linked");
}

#[tokio::test]
async fn c084_a_password_that_was_changed_since_vouches_for_no_link() {
    let world = SsoWorld::with(|oidc| oidc, trusting).await;
    let (mut browser, id) = login(&world, "mfa", Some(ADA)).await;
    assert_eq!(browser.password("mfa", &id, ADA, ADA_PASSWORD).await.status, 200);
    world.world.change_password(&"acme".parse().unwrap(), "u-ada", "another password for ada").await;
    let answer = world.dance(&mut browser, "mfa", &id).await;
    assert_eq!(outcome(&answer), "failed");
    assert_eq!(first_step(&world, None).await, "failed", "nothing was linked");
}

#[tokio::test]
async fn c084_a_link_of_one_account_is_not_given_to_another() {
    let world = SsoWorld::with(|oidc| oidc, trusting).await;
    assert_eq!(second_step(&world, "mfa").await, "ok");
    // grace's address at the provider, but the subject is linked to ada
    world.provider.set(|provider| provider.claims = json!({ "email": GRACE }));
    let (mut browser, id) = login(&world, "mfa", Some(GRACE)).await;
    assert_eq!(browser.password("mfa", &id, GRACE, GRACE_PASSWORD).await.status, 200);
    assert_eq!(outcome(&world.dance(&mut browser, "mfa", &id).await), "failed");
    assert_eq!(first_step(&world, None).await, "ok");
}

#[tokio::test]
async fn c084_an_unverified_or_removed_contact_does_not_link() {
    let world = SsoWorld::with(|oidc| oidc, trusting).await;
    let acme = "acme".parse().unwrap();
    let ada = UserId::parse("u-ada").unwrap();
    let contact = tollgate::user::EmailAddress::parse(ADA).unwrap();
    world.world.users.remove_contact(&acme, &ada, &contact.into()).await.unwrap();
    assert_eq!(second_step(&world, "mfa").await, "failed");
}

#[tokio::test]
async fn c084_a_hook_of_the_operator_can_name_the_account_of_a_user_without_one() {
    let hook = || Accounts(&[("ada-there", "u-ada"), ("lost-there", "u-nobody")]);
    let world = SsoWorld::with(|oidc| oidc, |connection| connection.create_account(hook())).await;
    // an identifier binds the login before any proof, and the hook is not asked
    assert_eq!(first_step(&world, Some(ADA)).await, "failed");
    assert_eq!(first_step(&world, Some(NOBODY)).await, "failed");
    for subject in ["unknown-there", "lost-there"] {
        world.provider.set(|provider| provider.claims = json!({ "sub": subject }));
        assert_eq!(first_step(&world, None).await, "failed", "{subject}");
    }
    world.provider.set(|provider| provider.claims = json!({}));
    assert_eq!(first_step(&world, None).await, "ok");
    assert_eq!(first_step(&world, Some(ADA)).await, "ok");
    // the operator decided, so the link also counts in a login of two steps
    let (mut browser, id) = login(&world, "mfa", None).await;
    assert_eq!(outcome(&world.dance(&mut browser, "mfa", &id).await), "ok");
    assert_eq!(browser.password("mfa", &id, ADA, ADA_PASSWORD).await.status, 200);
    assert_eq!(browser.complete("mfa", &id).await.status, 200);
}

#[tokio::test]
async fn c084_a_disabled_account_gets_nothing() {
    let world = SsoWorld::new().await;
    assert_eq!(first_step(&world, None).await, "ok");
    let (acme, ada) = ("acme".parse().unwrap(), UserId::parse("u-ada").unwrap());
    world.world.users.disable(&acme, &ada).await.unwrap();
    assert_eq!(first_step(&world, None).await, "failed");
}

#[tokio::test]
async fn c084_ending_a_user_ends_a_login_that_was_waiting_for_the_provider() {
    let world = SsoWorld::new().await;
    assert_eq!(first_step(&world, None).await, "ok");
    let (mut browser, id) = login(&world, "web", Some(ADA)).await;
    let target = world.provider.signs_in(&crate::sso_provider::sent(&mut browser, "web", &id).await);
    let (acme, ada) = ("acme".parse().unwrap(), UserId::parse("u-ada").unwrap());
    world.world.service.end_user(&acme, &ada).await.unwrap();
    assert_eq!(outcome(&browser.get(&target).await), "failed");
    assert_eq!(browser.status(&id).await.json()["status"], "expired");
}

// ---- what is stored

/// A store that keeps what was written to it.
#[derive(Clone, Default)]
struct Written(Arc<Memory>, Arc<Mutex<Vec<u8>>>);

impl Written {
    fn note(&self, record: &Record) {
        self.1.lock().unwrap().extend_from_slice(record.value());
    }
}

impl Store for Written {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        self.0.get(key)
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        self.note(&record);
        self.0.insert(key, record).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        self.note(&record);
        self.0.swap(key, expected, record).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.0.take(key).await
    }
}

#[tokio::test]
async fn c085_tokens_and_codes_of_the_provider_are_not_stored_and_neither_is_the_verifier() {
    let store = Written::default();
    let hook = |connection: SsoConnection| connection.create_account(Accounts(&[("ada-there", "u-ada")]));
    let world = SsoWorld::on(store.clone().into(), |oidc| oidc, hook).await;
    let (mut browser, id) = login(&world, "web", None).await;
    let url = crate::sso_provider::sent(&mut browser, "web", &id).await;
    assert_eq!(outcome(&browser.get(&world.provider.signs_in(&url)).await), "ok");
    let asked = crate::sso_provider::asked(&url);
    let (_, form) = world.provider.calls("/token").pop().unwrap();
    let written = String::from_utf8_lossy(&store.1.lock().unwrap()).into_owned();
    assert!(written.contains("ada-there"), "the link is stored");
    let secret = asked["state"].split_once('.').unwrap().1;
    for kept in ["their-access-token", &form["code"], &form["code_verifier"], secret, &asked["nonce"], "eyJ"] {
        assert!(!written.contains(kept), "{kept} is stored");
    }
}

// ---- the choices after a step

/// Returns the providers that ada can use after her password, and whether `sso` is among the methods.
async fn choices(world: &SsoWorld, client: &str) -> (serde_json::Value, bool) {
    let (mut browser, id) = login(world, client, Some(ADA)).await;
    assert_eq!(browser.password(client, &id, ADA, ADA_PASSWORD).await.status, 200);
    let answer = browser.get(&format!("/authentication/choices?session_id={id}")).await.json();
    (answer["providers"].clone(), answer["methods"].as_array().unwrap().contains(&json!("sso")))
}

#[tokio::test]
async fn the_choices_list_the_providers_that_can_prove_the_next_step() {
    let shown = json!([{ "name": "idp", "label": "Example ID" }]);
    let untrusted = SsoWorld::with(|oidc| oidc, |connection| connection).await;
    assert_eq!(choices(&untrusted, "mfa").await, (json!([]), false));
    let elsewhere = SsoWorld::with(|oidc| oidc, |it| it.trust_email_domain("other.example").unwrap()).await;
    assert_eq!(choices(&elsewhere, "mfa").await, (json!([]), false));
    // a verified address of a trusted domain can be linked now
    let trusted = SsoWorld::with(|oidc| oidc, trusting).await;
    assert_eq!(choices(&trusted, "mfa").await, (shown.clone(), true));
    // a link that a hook has made
    let linked = SsoWorld::new().await;
    assert_eq!(choices(&linked, "mfa").await, (json!([]), false));
    assert_eq!(first_step(&linked, None).await, "ok");
    assert_eq!(choices(&linked, "mfa").await, (shown, true));
}

#[tokio::test]
async fn c124_a_link_never_counts_in_a_login_of_more_steps_than_were_proved_for_it() {
    let three = tollgate::policy::Policy::any(3).unwrap();
    let policies = || tollgate::Policies::default().acr("three", three.clone()).unwrap();
    let clock = tollgate::testing::ManualClock::new();
    let provider = crate::sso_provider::Provider::start(&clock).await;
    let connection = trusting(SsoConnection::new(crate::sso_provider::oidc(&provider)));
    let world = crate::world::World::on(Memory::new().into(), clock, |service| {
        service.sso("idp", connection).policies(policies())
    })
    .await;
    let world = SsoWorld { world, provider };
    let three_steps = |browser: &Browser| {
        let mut browser = browser.clone();
        async move {
            let body =
                crate::world::with(crate::world::parameters("web"), &[("identifier", ADA), ("acr_values", "three")]);
            let answer = browser.post("/authentication/start", &body).await.json();
            assert_eq!(answer["required_steps"], 3);
            let id = answer["session_id"].as_str().unwrap().to_owned();
            assert_eq!(browser.password("web", &id, ADA, ADA_PASSWORD).await.status, 200);
            (browser, id)
        }
    };
    // one proved step and the provider make two, so the provider is not offered
    let (mut browser, id) = three_steps(&world.world.browser()).await;
    let choices = browser.get(&format!("/authentication/choices?session_id={id}")).await.json();
    assert_eq!(choices["providers"], json!([]));
    assert_eq!(outcome(&world.dance(&mut browser, "web", &id).await), "failed");
    assert_eq!(second_step(&world, "mfa").await, "ok");
    let (mut browser, id) = three_steps(&world.world.browser()).await;
    assert_eq!(outcome(&world.dance(&mut browser, "web", &id).await), "failed");
    assert_eq!(browser.status(&id).await.json()["completed_steps"], 1);
    // the link is good for two steps all the same
    assert_eq!(second_step(&world, "mfa").await, "ok");
}

#[tokio::test]
async fn c124_a_stolen_password_and_an_account_at_the_provider_do_not_make_two_factors() {
    // a thief who knows the password has an account at the provider, but not the address of the owner
    let world = SsoWorld::with(|oidc| oidc, trusting).await;
    world.provider.set(|provider| provider.claims = json!({ "sub": "thief-there", "email": "thief@example.com" }));
    assert_eq!(second_step(&world, "mfa").await, "failed");
    world.provider.set(|provider| provider.claims = json!({ "sub": "thief-there", "email_verified": false }));
    assert_eq!(second_step(&world, "mfa").await, "failed");
    assert_eq!(first_step(&world, None).await, "failed");
}
