//! Accounts whose passwords another system checks.

use serde_json::json;
use tollgate::{
    Identifier, StoredUsers, Tenant, UserId, Users,
    auth::Passkeys,
    store::{AnyStore, Memory, StoreError},
    testing::ManualClock,
    user::{Account, PasswordAttempt, PasswordCheck},
};

use crate::{
    enrolled::enrol,
    own_account::{self, acme, call},
    soft_passkey::{RP_ID, SoftPasskey, begin, prove, text},
    world::{ADA_PASSWORD, World, with},
};

/// Asks a directory for the passwords of accounts that have no contacts.
struct Directory {
    users: StoredUsers,
    /// Whether the accounts say so.
    is_marked: bool,
}

impl Directory {
    fn known(&self, account: Option<Account>) -> Option<Account> {
        let account = Account::new(account?.id().clone());
        Some(if self.is_marked { account.external_password() } else { account })
    }
}

impl Users for Directory {
    type Error = StoreError;

    async fn find(&self, tenant: &Tenant, identifier: &Identifier) -> Result<Option<Account>, StoreError> {
        Ok(self.known(self.users.find(tenant, identifier).await?))
    }

    async fn by_id(&self, tenant: &Tenant, id: &UserId) -> Result<Option<Account>, StoreError> {
        Ok(self.known(self.users.by_id(tenant, id).await?))
    }

    async fn verify_password(&self, attempt: PasswordAttempt<'_>) -> Result<PasswordCheck, StoreError> {
        let is_right = self.is_marked && attempt.account().is_some() && attempt.password().expose() == ADA_PASSWORD;
        Ok(if is_right { PasswordCheck::Right { mark: None, upgrade: None } } else { PasswordCheck::Wrong })
    }
}

/// Ada has a passkey of this strength.
async fn world(is_marked: bool, strength: u8) -> (World, SoftPasskey) {
    let (store, clock) = (AnyStore::from(Memory::new()), ManualClock::new());
    let users = Directory { users: StoredUsers::with_clock(store.clone(), clock.clone()), is_marked };
    let world =
        World::on(store, clock, |service| service.users(users).first_party(acme()).passkeys(Passkeys::new(RP_ID)))
            .await;
    let mut passkey = SoftPasskey::new();
    passkey.handle = vec![0; 32];
    enrol(&world, "u-ada", json!({ "passkeys": [passkey.stored(strength)] })).await;
    (world, passkey)
}

#[tokio::test]
async fn b05_a_password_that_another_system_checks_is_offered_as_a_second_step() {
    for (is_marked, offered) in [(true, json!(["password"])), (false, json!([]))] {
        let (world, passkey) = world(is_marked, 2).await;
        let mut browser = world.browser();
        let begun = begin(&mut browser, "mfa", None).await;
        assert_eq!(prove(&mut browser, &begun, &passkey).await.status, 200);
        let choices = browser.get(&format!("/authentication/choices?session_id={}", begun.id)).await.json();
        assert_eq!(choices["methods"], offered);
        let proved = browser.password("mfa", &begun.id, "ada", ADA_PASSWORD).await;
        assert_eq!(proved.status == 200, is_marked, "{proved:?}");
    }
}

#[tokio::test]
async fn b05_the_last_passkey_can_go_if_another_system_checks_the_password() {
    for (is_marked, status) in [(true, 204), (false, 409)] {
        let (world, passkey) = world(is_marked, 1).await;
        let mut browser = world.browser();
        let fields = own_account::begin(&mut browser, "/sign-in").await;
        let started = browser.post("/authentication/start", &fields).await.json();
        let own = with(fields, &[("session_id", started["session_id"].as_str().unwrap()), ("method", "passkey")]);
        if is_marked {
            // a change needs both factors
            let password = [("method", "password"), ("username", "ada"), ("password", ADA_PASSWORD)];
            let proved = browser.post("/authentication/authenticate", &with(own.clone(), &password)).await;
            assert_eq!(proved.json()["remaining_steps"], 1, "{proved:?}");
        }
        let begun = browser.post("/authentication/authenticate", &own).await.json();
        let (options, mut step) = (&begun["challenges"]["passkey"], own.clone());
        (step["challenge"], step["response"]) = (options["challenge"].clone(), passkey.get(options));
        assert_eq!(browser.post("/authentication/authenticate", &step).await.status, 200);
        assert_eq!(browser.post("/authentication/complete", &own).await.status, 200);
        assert_eq!(browser.get("/sign-in/finish").await.status, 303);
        let deleted = call(&mut browser, "passkeys/delete", json!({ "id": text(&passkey.id) })).await;
        assert_eq!(deleted.status, status, "{deleted:?}");
    }
}
