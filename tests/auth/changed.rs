//! What changes under a login while it is under way.

use http::Request;
use tollgate::{
    Account, AuthService, Client, ClientIp, ClientTable, Identifier, Method, Password, PasswordHash, Passwords,
    Policies, Policy, StoredUsers, Tenant, UserId, Users,
    body::Body,
    password::Verdict,
    store::{AnyStore, Memory, StoreError, StoreErrorKind},
    user::{PasswordAttempt, PasswordCheck, PasswordUpgrade},
};
use tower::ServiceExt;

use crate::world::{ADA, ADA_PASSWORD, ADA_PHONE, ISSUER, World, clients};

fn ada() -> (Tenant, UserId) {
    ("acme".parse().unwrap(), "u-ada".parse().unwrap())
}

#[tokio::test]
async fn a_login_by_a_password_that_was_changed_since_gives_no_code() {
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
async fn a_weak_hash_that_was_replaced_is_no_change() {
    // today more is asked of a hash than when it was made
    let world = World::with(Memory::new(), |service| service.passwords(Passwords::new())).await;
    let mut browser = world.browser();
    assert_eq!(browser.sign_in("web").await.code.len(), 43);
    assert_eq!(browser.sign_in("web").await.code.len(), 43);
}

/// The same accounts, but hashes are not replaced, or replacing them fails.
#[derive(Clone)]
struct Keeps {
    users: StoredUsers,
    fails: bool,
}

impl Users for Keeps {
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
async fn a_weak_hash_that_stays_keeps_nobody_out() {
    for fails in [false, true] {
        let world = World::new().await;
        let users = Keeps { users: world.users.clone(), fails };
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
async fn a_hash_that_another_login_replaces_ends_nothing() {
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

/// The same accounts, whose password is changed after it was checked and before its hash is replaced.
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
async fn a_password_that_changes_before_its_hash_is_replaced_fails_the_login() {
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
    // the new password stays as it is
    let (acme, ada) = ada();
    let stored = world.users.by_id(&acme, &ada).await.unwrap().unwrap().password_hash().cloned();
    let right = Passwords::insecure_fast().verify(Password::new("another one entirely"), stored).await.unwrap();
    assert!(matches!(right, Verdict::Right { .. }));
}

#[tokio::test]
async fn of_two_logins_that_replace_a_weak_hash_at_once_both_go_on() {
    let world = World::with(Memory::new(), |service| service.passwords(Passwords::new())).await;
    let (mut one, mut other) = (world.browser(), world.browser());
    // both are checked against the old hash, for checking takes longer than all else
    let (first, second) = tokio::join!(one.sign_in("web"), other.sign_in("web"));
    assert_ne!(first.code, second.code);
}

#[tokio::test]
async fn a_guess_counts_for_the_code_that_it_was_made_for() {
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
async fn a_path_of_the_issuer_that_is_one_of_ours_is_found_with_and_without_it() {
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
async fn a_client_and_a_level_that_nothing_meets_together_are_found_at_the_start() {
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
