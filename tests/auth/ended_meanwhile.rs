//! A user who is ended while a change of the account is on its way: the change of a session that has ended does not last.

use std::sync::{Arc, Mutex, OnceLock};

use serde_json::{Value, json};
use tollgate::{
    AuthService, Identifier, Password, StoredUsers, Tenant, UserId, Users,
    auth::Totp,
    password::{BreachedPasswords, PasswordRules},
    store::{AnyStore, Memory, StoreError},
    user::{Account, AccountChange, Contact, OfferedChange, PhoneNumber},
};

use crate::{
    own_account::{acme, call, enrol_totp, sign_in},
    world::{ADA, ADA_PASSWORD, ADA_PHONE, World},
};

const EVIL: &str = "evil@example.com";

/// When the user is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// At a read of the account, after this many others.
    Read(usize),
    BeforeContact,
    AfterContact,
    PasswordChecked,
}

/// Users of which one is ended in the middle of a call.
#[derive(Clone)]
struct Ends {
    users: StoredUsers,
    service: Arc<OnceLock<AuthService>>,
    when: Arc<Mutex<Option<When>>>,
    /// Whether the user loses the phone instead.
    loses_phone: bool,
}

impl Ends {
    async fn at(&self, now: When) {
        let is_now = {
            let mut when = self.when.lock().unwrap();
            match (*when, now) {
                (Some(When::Read(left @ 1..)), When::Read(_)) => {
                    *when = Some(When::Read(left - 1));
                    false
                }
                (Some(then), now) if then == now => when.take().is_some(),
                _ => false,
            }
        };
        if is_now {
            let ada = UserId::parse("u-ada").unwrap();
            match self.loses_phone {
                true => {
                    let phone = PhoneNumber::parse(ADA_PHONE).unwrap().into();
                    self.users.remove_contact(&acme(), &ada, &phone).await.unwrap();
                }
                false => _ = self.service.get().unwrap().end_user(&acme(), &ada).await.unwrap(),
            }
        }
    }
}

impl Users for Ends {
    type Error = StoreError;

    async fn find(&self, tenant: &Tenant, identifier: &Identifier) -> Result<Option<Account>, StoreError> {
        self.users.find(tenant, identifier).await
    }

    async fn by_id(&self, tenant: &Tenant, id: &UserId) -> Result<Option<Account>, StoreError> {
        let found = self.users.by_id(tenant, id).await;
        self.at(When::Read(0)).await;
        found
    }

    fn offers(&self, _: OfferedChange) -> bool {
        true
    }

    async fn set_password(
        &self,
        tenant: &Tenant,
        account: &Account,
        new: tollgate::password::PasswordHash,
    ) -> Result<AccountChange, StoreError> {
        Users::set_password(&self.users, tenant, account, new).await
    }

    async fn set_contact(
        &self,
        tenant: &Tenant,
        id: &UserId,
        old: Option<&Contact>,
        new: Option<&Contact>,
    ) -> Result<AccountChange, StoreError> {
        self.at(When::BeforeContact).await;
        let changed = Users::set_contact(&self.users, tenant, id, old, new).await;
        self.at(When::AfterContact).await;
        changed
    }

    async fn remove(&self, tenant: &Tenant, id: &UserId) -> Result<AccountChange, StoreError> {
        Users::remove(&self.users, tenant, id).await
    }
}

impl BreachedPasswords for Ends {
    type Error = std::convert::Infallible;

    async fn is_breached(&self, _: &Password) -> Result<bool, Self::Error> {
        self.at(When::PasswordChecked).await;
        Ok(false)
    }
}

async fn world() -> (World, Ends) {
    world_where(false).await
}

async fn world_where(loses_phone: bool) -> (World, Ends) {
    let store = AnyStore::from(Memory::new());
    let users = StoredUsers::new(store.clone());
    let ends = Ends { users, service: Arc::default(), when: Arc::default(), loses_phone };
    let rules = PasswordRules::new().breached(ends.clone());
    let world = World::with(store, |service| {
        service.users(ends.clone()).first_party(acme()).totp(Totp::new().name("Acme")).password_rules(rules)
    })
    .await;
    ends.service.set(world.service.clone()).unwrap();
    (world, ends)
}

async fn contacts(world: &World) -> Vec<(String, bool)> {
    let ada = world.users.by_id(&acme(), &UserId::parse("u-ada").unwrap()).await.unwrap().unwrap();
    ada.contacts().map(|(contact, is_verified)| (contact.as_str().to_owned(), is_verified)).collect()
}

#[tokio::test]
async fn c130_a_contact_of_an_ended_session_does_not_stay() {
    for when in [When::BeforeContact, When::AfterContact, When::Read(0)] {
        for replaces in [false, true] {
            let (world, ends) = world().await;
            let before = contacts(&world).await;
            let mut browser = sign_in(&world, ADA, &["password", "sms"]).await;
            let shown = crate::own_account::credentials(&mut browser).await;
            let old = if replaces { shown["contacts"][0]["id"].clone() } else { Value::Null };
            let sent = call(&mut browser, "contacts/begin", json!({ "email": EVIL, "contact_id": old })).await;
            assert_eq!(sent.status, 200, "{sent:?}");
            let code = world.code(EVIL).await;
            *ends.when.lock().unwrap() = Some(when);
            let refused = call(&mut browser, "contacts", json!({ "code": code })).await;
            assert_eq!(*ends.when.lock().unwrap(), None, "the user was ended");
            assert_eq!((refused.status.as_u16(), &*refused.error()), (401, "login_required"), "{when:?}");
            assert_eq!(contacts(&world).await, before, "{when:?}");
            let evil = world.users.find(&acme(), &EVIL.parse().unwrap()).await.unwrap();
            assert!(evil.is_none(), "{when:?}");
            let own = world.users.find(&acme(), &ADA.parse().unwrap()).await.unwrap();
            assert!(own.is_some(), "{when:?}");
        }
    }
}

#[tokio::test]
async fn c130_an_ended_session_changes_no_password_and_removes_nothing() {
    let changes = [
        (When::PasswordChecked, "password", json!({ "new_password": "gravel under moonlight" })),
        (When::Read(0), "totp/delete", json!({})),
        (When::Read(0), "delete", json!({ "confirmed": true })),
    ];
    for (when, path, body) in changes {
        let (world, ends) = world().await;
        let mut browser = sign_in(&world, ADA, &["password", "email"]).await;
        enrol_totp(&world, &mut browser).await;
        *ends.when.lock().unwrap() = Some(when);
        let refused = call(&mut browser, path, body).await;
        assert_eq!(*ends.when.lock().unwrap(), None, "the user was ended");
        assert_eq!((refused.status.as_u16(), &*refused.error()), (401, "login_required"), "{path}");
        assert!(crate::reset::signs_in(&world, "web", ADA, ADA_PASSWORD).await, "{path}");
        assert!(!crate::enrolled::stored(&world, "u-ada").await.unwrap()["totp"].is_null(), "{path}");
    }
}

#[tokio::test]
async fn c130_a_proof_that_counts_no_longer_changes_no_password() {
    let (world, ends) = world_where(true).await;
    let mut browser = sign_in(&world, ADA, &["password", "sms"]).await;
    *ends.when.lock().unwrap() = Some(When::PasswordChecked);
    let refused = call(&mut browser, "password", json!({ "new_password": "gravel under moonlight" })).await;
    assert_eq!(*ends.when.lock().unwrap(), None, "the phone is gone");
    assert_eq!((refused.status.as_u16(), &*refused.error()), (401, "login_required"));
    assert!(crate::reset::signs_in(&world, "web", ADA, ADA_PASSWORD).await);
}
