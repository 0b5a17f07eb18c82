//! Accounts that change while a login is in progress.

use http::Request;
use tollgate::{
    AuthService, Client, ClientIp, ClientTable, Identifier, Password, Passwords, Policies, StoredUsers, Tenant, UserId,
    Users,
    body::Body,
    password::{PasswordHash, Verdict},
    policy::{Method, Policy},
    store::{AnyStore, Memory, StoreError, StoreErrorKind},
    user::{Account, PasswordAttempt, PasswordCheck, PasswordUpgrade},
};
use tower::ServiceExt;

use crate::world::{ADA, ADA_PASSWORD, ADA_PHONE, ISSUER, World, clients};

fn ada() -> (Tenant, UserId) {
    ("acme".parse().unwrap(), "u-ada".parse().unwrap())
}

#[tokio::test]
async fn a_login_with_a_password_that_was_changed_since_gets_no_code() {
    let world = World::new().await;
    let mut thief = world.browser();
    let id = thief.start("web", ADA).await;
    assert_eq!(thief.password("web", &id, ADA, ADA_PASSWORD).await.status, 200);
    assert_eq!(thief.complete("web", &id).await.status, 200);
    let (acme, ada) = ada();
    let new = Passwords::insecure_fast().hash(Password::new("another one entirely")).await.unwrap();
    world.users.set_password(&acme, &ada, Some(new)).await.unwrap();
    let answer = thief.authorize("web").await;
    assert_eq!(answer.redirected("error").as_deref(), Some("access_denied"), "{answer:?}");
    assert!(world.sessions.list(&acme, &ada).await.unwrap().is_empty());
}

#[tokio::test]
async fn upgrading_a_weak_hash_does_not_count_as_a_password_change() {
    // the current settings are stricter than those of the stored hash
    let world = World::with(Memory::new(), |service| service.passwords(Passwords::new())).await;
    let mut browser = world.browser();
    assert_eq!(browser.sign_in("web").await.code.len(), 43);
    assert_eq!(browser.sign_in("web").await.code.len(), 43);
}

/// KeepsWeakHashes weak hashes: upgrades are ignored, or fail.
#[derive(Clone)]
struct KeepsWeakHashes {
    users: StoredUsers,
    fails: bool,
}

impl Users for KeepsWeakHashes {
    type Error = StoreError;

    async fn find(&self, tenant: &Tenant, identifier: &Identifier) -> Result<Option<Account>, StoreError> {
        self.users.find(tenant, identifier).await
    }

    async fn by_id(&self, tenant: &Tenant, id: &UserId) -> Result<Option<Account>, StoreError> {
        self.users.by_id(tenant, id).await
    }

    async fn upgrade_password(&self, _: &Tenant, _: &Account, _: PasswordHash) -> Result<PasswordUpgrade, StoreError> {
        if self.fails { Err(StoreErrorKind::Unavailable.into()) } else { Ok(PasswordUpgrade::NotSupported) }
    }
}

#[tokio::test]
async fn a_user_with_a_weak_hash_that_cannot_be_upgraded_can_still_log_in() {
    for fails in [false, true] {
        let world = World::new().await;
        let users = KeepsWeakHashes { users: world.users.clone(), fails };
        let service = AuthService::builder(ISSUER, world.store.clone())
            .clients(clients())
            .users(users)
            .sms(world.outbox.clone())
            .client_ip(ClientIp::peer())
            .clock(world.clock.clone())
            .build()
            .unwrap();
        let world = World { service, ..world };
        assert_eq!(world.browser().sign_in("web").await.code.len(), 43, "{fails}");
    }
}

#[tokio::test]
async fn a_hash_upgrade_by_another_login_does_not_end_this_one() {
    let world = World::new().await;
    let mut first = world.browser();
    let id = first.start("web", ADA).await;
    assert_eq!(first.password("web", &id, ADA, ADA_PASSWORD).await.status, 200);
    assert_eq!(first.complete("web", &id).await.status, 200);
    let (acme, ada) = ada();
    let stored = async || world.users.by_id(&acme, &ada).await.unwrap().unwrap();
    let before = stored().await;
    // another service on the same store, with the default cost
    let mut second = world.browser();
    let strong = AuthService::builder(ISSUER, world.store.clone())
        .clients(clients())
        .users(world.users.clone())
        .sms(world.outbox.clone())
        .client_ip(ClientIp::peer())
        .clock(world.clock.clone())
        .build()
        .unwrap();
    second.service = strong;
    assert_eq!(second.sign_in("web").await.code.len(), 43);
    let after = stored().await;
    assert_ne!(before.password_hash().unwrap().as_str(), after.password_hash().unwrap().as_str());
    assert_eq!(before.current_password_mark(), after.current_password_mark());
    let answer = first.authorize("web").await;
    assert_eq!(answer.redirected("code").map_or(0, |code| code.len()), 43, "{answer:?}");
}

/// Changes the password after it was checked and before its hash is upgraded.
struct ChangesMeanwhile(StoredUsers);

impl Users for ChangesMeanwhile {
    type Error = StoreError;

    async fn find(&self, tenant: &Tenant, identifier: &Identifier) -> Result<Option<Account>, StoreError> {
        self.0.find(tenant, identifier).await
    }

    async fn by_id(&self, tenant: &Tenant, id: &UserId) -> Result<Option<Account>, StoreError> {
        self.0.by_id(tenant, id).await
    }

    async fn verify_password(&self, attempt: PasswordAttempt<'_>) -> Result<PasswordCheck, StoreError> {
        let (tenant, account) = (attempt.tenant(), attempt.account());
        let check = attempt.argon2().await;
        if let (PasswordCheck::Right { upgrade, .. }, Some(account)) = (&check, account) {
            assert!(upgrade.is_some(), "the stored hash is weak");
            let new = Passwords::insecure_fast().hash(Password::new("another one entirely")).await.unwrap();
            self.0.set_password(tenant, account.id(), Some(new)).await.unwrap();
        }
        Ok(check)
    }

    async fn upgrade_password(
        &self,
        tenant: &Tenant,
        account: &Account,
        new: PasswordHash,
    ) -> Result<PasswordUpgrade, StoreError> {
        self.0.upgrade_password(tenant, account, new).await
    }
}

#[tokio::test]
async fn a_login_fails_if_the_password_changes_before_its_hash_is_upgraded() {
    let world = World::new().await;
    let users = ChangesMeanwhile(world.users.clone());
    let service = AuthService::builder(ISSUER, world.store.clone())
        .clients(clients())
        .users(users)
        .sms(world.outbox.clone())
        .client_ip(ClientIp::peer())
        .clock(world.clock.clone())
        .build()
        .unwrap();
    let world = World { service, ..world };
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    let answer = browser.password("web", &id, ADA, ADA_PASSWORD).await;
    assert_eq!((answer.status.as_u16(), answer.error().as_str()), (401, "invalid_credentials"));
    // the new password is kept
    let (acme, ada) = ada();
    let stored = world.users.by_id(&acme, &ada).await.unwrap().unwrap().password_hash().cloned();
    let right = Passwords::insecure_fast().verify(Password::new("another one entirely"), stored).await.unwrap();
    assert!(matches!(right, Verdict::Right { .. }));
}

#[tokio::test]
async fn two_concurrent_logins_that_upgrade_the_same_hash_both_succeed() {
    let world = World::with(Memory::new(), |service| service.passwords(Passwords::new())).await;
    let (mut one, mut other) = (world.browser(), world.browser());
    // both check the old hash, because checking takes longer than everything else
    let (first, second) = tokio::join!(one.sign_in("web"), other.sign_in("web"));
    assert_ne!(first.code, second.code);
}

#[tokio::test]
async fn a_guess_counts_against_the_code_that_was_pending_when_it_was_made() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    assert_eq!(browser.ask("web", &id, "sms", ADA_PHONE).await.status, 200);
    let by_sms = world.code(ADA_PHONE).await;
    assert_eq!(browser.ask("web", &id, "email", ADA).await.status, 200);
    assert_ne!(world.code(ADA).await, by_sms);
    assert_eq!(browser.verify("web", &id, &by_sms).await.status, 401);
}

#[tokio::test]
async fn an_issuer_path_that_equals_an_endpoint_path_can_be_mounted_with_and_without_it() {
    let store = AnyStore::from(Memory::new());
    let client = Client::new("web", "acme".parse().unwrap()).unwrap().scopes("openid").unwrap();
    let clients = ClientTable::new([client.redirect_uri("https://app.example/cb").unwrap()]).unwrap();
    let users = StoredUsers::new(Memory::new());
    for base in ["/authentication", "/authorize", "/a/b"] {
        let issuer = format!("https://auth.example{base}");
        let service = AuthService::builder(&issuer, store.clone())
            .clients(clients.clone())
            .users(users.clone())
            .client_ip(ClientIp::peer())
            .build()
            .unwrap();
        for path in ["/authentication/status", "/authorize", "/openapi.json"] {
            for target in [path.to_owned(), format!("{base}{path}")] {
                let request = Request::get(&target).body(Body::empty()).unwrap();
                assert_ne!(service.clone().oneshot(request).await.unwrap().status(), 404, "{base}: {target}");
            }
        }
    }
}

#[tokio::test]
async fn a_client_and_a_level_that_cannot_be_met_together_are_refused_when_the_service_is_built() {
    let client = Client::new("web", "acme".parse().unwrap()).unwrap().scopes("openid").unwrap();
    let client = client.policy(Policy::slots([[Method::Password]]).unwrap());
    let clients = ClientTable::new([client.redirect_uri("https://app.example/cb").unwrap()]).unwrap();
    let service = |policies: Policies| {
        let users = StoredUsers::new(Memory::new());
        AuthService::builder("https://auth.example", Memory::new())
            .clients(clients.clone())
            .users(users)
            .client_ip(ClientIp::peer())
            .policies(policies)
            .build()
    };
    assert!(service(Policies::default()).is_ok());
    let strict = Policies::default().acr("urn:example:2fa", Policy::any(2).unwrap()).unwrap();
    let why = service(strict).unwrap_err().to_string();
    assert!(why.contains("2"), "{why}");
}
