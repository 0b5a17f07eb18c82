//! `SqlUsers` on a real PostgreSQL and on SQLite.
#![cfg(all(feature = "postgres", feature = "sqlite", feature = "users"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod support;

use std::{collections::BTreeSet, future::Future, path::PathBuf, time::Duration};

use serde_json::json;
use sqlx::{Connection, Executor, PgConnection};
use support::{Cluster, temporary};
use tokio::runtime::Runtime;
use tollgate::{
    Identifier, NewUser, StoredUsers, Tenant, UserId, Users,
    clock::UnixTime,
    password::{PasswordHash, PasswordMark},
    store::Memory,
    testing::ManualClock,
    user::{
        Account, AccountChange, AnyUsers, ClaimTarget, ClaimsRequest, Contact, EmailAddress, NewAccount, OfferedChange,
        PasswordUpgrade, PhoneNumber, UserError,
    },
};
use tollgate_sqlx::{Database, Dialect, SqlStore, SqlUsers};

const HASH: &str = "$argon2id$v=19$m=8,t=1,p=1$MDEyMzQ1Njc4OWFiY2RlZg$gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0";
const BETTER: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0";

const OTHER: &str = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$9wBr9w09VghRwIyUmc1EBJM9jdBDn5h0";

fn tenant(name: &str) -> Tenant {
    Tenant::parse(name).unwrap()
}

fn id(id: &str) -> UserId {
    UserId::parse(id).unwrap()
}

fn name(typed: &str) -> Identifier {
    Identifier::parse(typed).unwrap()
}

fn hash(text: &str) -> PasswordHash {
    PasswordHash::parse(text).unwrap()
}

fn mailbox(text: &str) -> Contact {
    EmailAddress::parse(text).unwrap().into()
}

fn new(user: &str, typed: &str) -> NewUser {
    NewUser::new(id(user), name(typed))
}

/// A database file that is deleted at the end of a test.
struct File(PathBuf);

impl File {
    fn new() -> Self {
        Self(temporary("users"))
    }

    fn url(&self) -> String {
        format!("sqlite://{}", self.0.display())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{end}", self.0.display()));
        }
    }
}

async fn open(url: &str) -> Database {
    let database = Database::connect(url).await.unwrap();
    database.migrate().await.unwrap();
    database
}

/// Runs a test on SQLite, and on PostgreSQL if it is installed.
fn on_each<F: Future<Output = ()>>(test: impl Fn(Database) -> F) {
    let (runtime, file) = (Runtime::new().unwrap(), File::new());
    runtime.block_on(async { test(open(&file.url()).await).await });
    let Some(cluster) = Cluster::start(&["fsync=off"]) else { return };
    runtime.block_on(async { test(open(&cluster.schema()).await).await });
    assert_eq!(cluster.sql("select deadlocks from pg_stat_database where datname = 'postgres'"), "0");
}

async fn execute(database: &Database, sql: &'static str) {
    match database.dialect() {
        Dialect::Postgres => sqlx::query(sql).execute(database.postgres_pool().unwrap()).await.map(|_| ()).unwrap(),
        _ => sqlx::query(sql).execute(database.sqlite_pool().unwrap()).await.map(|_| ()).unwrap(),
    }
}

/// Everything that can be seen of an account, in an order that does not matter.
fn seen(account: &Account) -> impl PartialEq + std::fmt::Debug + use<> {
    let mut contacts: Vec<_> =
        account.contacts().map(|(contact, verified)| (contact.as_str().to_owned(), verified)).collect();
    contacts.sort();
    (
        account.id().clone(),
        account.display_name().map(str::to_owned),
        account.preferred_username().map(str::to_owned),
        account.password_hash().map(|hash| hash.as_str().to_owned()),
        account.is_disabled(),
        contacts,
    )
}

/// Makes the changes that users make themselves, and returns what they see after each.
async fn self_service(users: AnyUsers) -> Vec<String> {
    let (acme, mut seen) = (tenant("acme"), Vec::new());
    let account = async |user: &str| users.by_id(&acme, &id(user)).await.unwrap();
    let shown = |account: Option<Account>| {
        let Some(account) = account else { return "gone".to_owned() };
        let contacts: Vec<_> = account.contacts().map(|(contact, is_proved)| (contact.as_str(), is_proved)).collect();
        let names = (account.display_name(), account.preferred_username());
        format!("{names:?} {:?} {contacts:?}", account.password_hash().is_some())
    };
    assert!(users.offers(OfferedChange::Create) && users.offers(OfferedChange::Remove));
    // the address is the username, too, and goes with it
    let new = |user: &str, address: &str| new(user, address).contact(mailbox(address)).username(address);
    for (user, address) in
        [("u-1", "ada@example.com"), ("u-2", "ada@example.com"), ("u-1", "eve@example.com"), ("u-2", "eve@example.com")]
    {
        let created = users.create(&acme, new(user, address)).await.unwrap();
        assert_eq!(created == NewAccount::Taken, (user == "u-2") == (address == "ada@example.com"), "{user} {address}");
        seen.push(format!("{created:?}"));
    }
    let before = account("u-1").await.unwrap();
    for _ in 0..2 {
        // the second one has an outdated account
        seen.push(format!("{:?}", users.set_password(&acme, &before, hash(HASH)).await.unwrap()));
    }
    let marked = account("u-1").await.unwrap();
    // another mark, even for the same hash
    assert_eq!(users.set_password(&acme, &marked, hash(HASH)).await.unwrap(), AccountChange::Done);
    assert_ne!(account("u-1").await.unwrap().current_password_mark(), marked.current_password_mark());
    for name in [Some("Ada"), None] {
        seen.push(format!("{:?}", users.set_name(&acme, &id("u-1"), name).await.unwrap()));
        seen.push(shown(account("u-1").await));
    }
    for (old, new) in [
        (Some("ada@example.com"), Some("eve@example.com")),
        (Some("gone@example.com"), Some("new@example.com")),
        (Some("ada@example.com"), Some("new@example.com")),
        (None, Some("next@example.com")),
        (Some("new@example.com"), None),
        (Some("next@example.com"), Some("next@example.com")),
    ] {
        let (old, new, read) = (old.map(mailbox), new.map(mailbox), account("u-1").await.unwrap());
        seen.push(format!("{:?}", users.set_contact(&acme, &id("u-1"), old.as_ref(), new.as_ref()).await.unwrap()));
        seen.push(shown(account("u-1").await));
        // outdated if a contact was replaced, which may have proved who the user is
        seen.push(format!("{:?}", users.set_password(&acme, &read, hash(HASH)).await.unwrap()));
        for address in ["ada", "eve", "gone", "new", "next"] {
            let found = users.find(&acme, &name(&format!("{address}@example.com"))).await.unwrap();
            seen.push(format!("{address}: {:?}", found.map(|account| account.id().to_string())));
        }
    }
    for _ in 0..2 {
        seen.push(format!("{:?}", users.remove(&acme, &id("u-1")).await.unwrap()));
        seen.push(shown(account("u-1").await));
    }
    for changed in [
        users.set_password(&acme, &before, hash(HASH)).await,
        users.set_name(&acme, &id("u-1"), None).await,
        users.set_contact(&acme, &id("u-1"), None, Some(&mailbox("a@example.com"))).await,
    ] {
        assert_eq!(changed.unwrap(), AccountChange::Outdated);
    }
    seen
}

#[test]
fn users_change_their_accounts_like_those_in_a_store() {
    on_each(async |database| {
        let in_store = self_service(StoredUsers::new(Memory::new()).into()).await;
        assert_eq!(self_service(SqlUsers::new(&database).into()).await, in_store);
        assert!(in_store.contains(&"Done".to_owned()) && in_store.contains(&"Outdated".to_owned()));
    });
}

#[test]
fn an_account_with_all_its_names_can_replace_a_contact_and_gets_no_more() {
    on_each(async |database| {
        let (users, acme) = (SqlUsers::new(&database), tenant("acme"));
        let ada = new("u-1", "ada@example.com").contact(mailbox("ada@example.com"));
        let ada = (1..16).fold(ada, |ada, number| ada.identifier(name(&format!("ada{number}"))));
        users.create(&acme, ada).await.unwrap();
        let set = async |old: Option<Contact>, new: &str| {
            users.set_contact(&acme, &id("u-1"), old.as_ref(), Some(&mailbox(new))).await
        };
        assert_eq!(set(None, "more@example.com").await.unwrap(), AccountChange::OutOfBounds);
        let replaced = set(Some(mailbox("ada@example.com")), "new@example.com").await;
        assert_eq!(replaced.unwrap(), AccountChange::Done);
        let names = users.get(&acme, &id("u-1")).await.unwrap().unwrap().identifiers;
        assert!(names.len() == 16 && names.contains(&name("new@example.com")), "{names:?}");
        assert!(users.find(&acme, &name("more@example.com")).await.unwrap().is_none());
    });
}

#[test]
fn accounts_are_created_found_and_changed() {
    on_each(async |database| {
        let (users, acme, globex) = (SqlUsers::new(&database), tenant("acme"), tenant("globex"));
        let phone = Contact::from(PhoneNumber::parse("+1 555 555 0100").unwrap());
        let ada = new("u-1", "Ada")
            .identifier(name("ADA@example.com"))
            .identifier(name("ada"))
            .identifier(name("+1 (555) 555-0100"))
            .name("Ada Lovelace")
            .password(hash(HASH))
            .contact(mailbox("ada@example.com"))
            .unverified_contact(phone.clone());
        assert_eq!(users.create(&acme, ada).await.unwrap(), id("u-1"));
        for typed in ["ada", " ADA ", "Ada@Example.com", "+15555550100"] {
            let found = users.find(&acme, &name(typed)).await.unwrap().expect(typed);
            assert_eq!(found.id(), &id("u-1"));
            assert_eq!((found.display_name(), found.preferred_username()), (Some("Ada Lovelace"), Some("ada")));
            assert_eq!(found.password_hash().map(PasswordHash::as_str), Some(HASH));
            assert!(found.has_verified(&mailbox("ada@example.com")) && !found.has_verified(&phone));
            assert_eq!(found.contacts().count(), 2);
        }
        assert!(users.by_id(&acme, &id("u-1")).await.unwrap().is_some());
        for (tenant, unknown) in [(&acme, "grace"), (&globex, "ada")] {
            assert!(users.find(tenant, &name(unknown)).await.unwrap().is_none());
        }
        for (tenant, unknown) in [(&acme, "u-2"), (&globex, "u-1")] {
            assert!(users.by_id(tenant, &id(unknown)).await.unwrap().is_none());
            assert!(users.get(tenant, &id(unknown)).await.unwrap().is_none());
        }

        // names and ids are unique, and a refused account leaves nothing
        let taken = users.create(&acme, new("u-2", "grace").identifier(name("ADA"))).await;
        assert!(matches!(taken, Err(UserError::Taken)), "{taken:?}");
        assert!(users.find(&acme, &name("grace")).await.unwrap().is_none());
        for tenant in [&acme, &globex] {
            let exists = users.create(tenant, new("u-1", "somebody")).await;
            assert!(matches!(exists, Err(UserError::Exists)), "{exists:?}");
        }
        users.create(&globex, new("u-2", "ada")).await.unwrap();
        assert_eq!(users.find(&globex, &name("ada")).await.unwrap().unwrap().id(), &id("u-2"));
        assert!(matches!(users.add_identifier(&acme, &id("u-3"), &name("x")).await, Err(UserError::Unknown)));
        assert!(matches!(users.set_password(&globex, &id("u-1"), None).await, Err(UserError::Unknown)));

        // the displayed username goes with the identifier
        users.remove_identifier(&acme, &id("u-1"), &name("ada")).await.unwrap();
        assert!(users.find(&acme, &name("ada")).await.unwrap().is_none());
        let user = users.get(&acme, &id("u-1")).await.unwrap().unwrap();
        assert_eq!(user.account.preferred_username(), None);
        assert_eq!(user.identifiers, ["+15555550100", "ada@example.com"].map(name));
        users.set_names(&acme, &id("u-1"), None, Some("Countess")).await.unwrap();
        users.verify_contact(&acme, &id("u-1"), phone.clone()).await.unwrap();
        users.remove_contact(&acme, &id("u-1"), &mailbox("ada@example.com")).await.unwrap();
        // a verified contact stays verified
        users.add_contact(&acme, &id("u-1"), phone.clone()).await.unwrap();
        users.disable(&acme, &id("u-1")).await.unwrap();
        let account = users.by_id(&acme, &id("u-1")).await.unwrap().unwrap();
        assert_eq!((account.display_name(), account.preferred_username()), (None, Some("Countess")));
        assert_eq!(account.contacts().collect::<Vec<_>>(), [(&phone, true)]);
        assert!(account.is_disabled());
        users.enable(&acme, &id("u-1")).await.unwrap();
        assert!(!users.by_id(&acme, &id("u-1")).await.unwrap().unwrap().is_disabled());
    });
}

#[test]
fn an_account_has_bounds() {
    on_each(async |database| {
        let (users, acme) = (SqlUsers::new(&database), tenant("acme"));
        users.create(&acme, new("u-1", "name 0")).await.unwrap();
        for number in 1..16 {
            users.add_identifier(&acme, &id("u-1"), &name(&format!("name {number}"))).await.unwrap();
            users.add_identifier(&acme, &id("u-1"), &name("name 0")).await.unwrap();
        }
        for number in 0..16 {
            users.add_contact(&acme, &id("u-1"), mailbox(&format!("m{number}@example.com"))).await.unwrap();
        }
        let refused = [
            users.add_identifier(&acme, &id("u-1"), &name("name 16")).await,
            users.add_contact(&acme, &id("u-1"), mailbox("m16@example.com")).await,
            users.set_names(&acme, &id("u-1"), Some(""), None).await,
            users.set_names(&acme, &id("u-1"), None, Some(&"x".repeat(321))).await,
            users.set_names(&acme, &id("u-1"), None, Some("a\0")).await,
            users.set_claim(&acme, &id("u-1"), "roles", "sub", &json!("u-2")).await,
            users.create(&acme, new("u-2", "y").name("x".repeat(321))).await.map(|_| ()),
        ];
        assert!(refused.iter().all(|result| matches!(result, Err(UserError::OutOfBounds))), "{refused:?}");
        let user = users.get(&acme, &id("u-1")).await.unwrap().unwrap();
        assert_eq!((user.identifiers.len(), user.account.contacts().count()), (16, 16));
    });
}

/// Names that a database would treat differently than Rust: `lower()`, locales, and Unicode normalization.
#[test]
fn names_are_compared_byte_by_byte() {
    on_each(async |database| {
        let (users, acme) = (SqlUsers::new(&database), tenant("acme"));
        let names = ["İ", "i", "ı", "ß", "ss", "é", "e\u{301}", "k", "a b", "a  b", "%", "_", "'", "\\", "日本"];
        for (number, typed) in names.iter().enumerate() {
            users.create(&acme, new(&format!("u-{number}"), typed)).await.unwrap();
        }
        for (number, typed) in names.iter().enumerate() {
            let found = users.find(&acme, &name(typed)).await.unwrap().unwrap();
            assert_eq!(found.id().as_str(), format!("u-{number}"), "{typed:?}");
        }
        // the Kelvin sign is a K
        assert!(matches!(users.create(&acme, new("other", "\u{212a}")).await, Err(UserError::Taken)));
        let found = users.search(&acme, "", None, 100).await.unwrap();
        let found: Vec<_> = found.iter().map(|(identifier, _)| identifier.as_str()).collect();
        let mut sorted = found.clone();
        sorted.sort_unstable();
        assert_eq!((found.len(), &found), (names.len(), &sorted));
        for prefix in ["%", "_", "\\", "e", "É", "a  "] {
            let found = users.search(&acme, prefix, None, 100).await.unwrap();
            let expected = names.iter().filter(|typed| name(typed).as_str().starts_with(&prefix.to_lowercase()));
            assert_eq!(found.len(), expected.count(), "{prefix:?}");
        }
    });
}

#[test]
fn a_password_has_a_mark_that_outlives_its_hash() {
    on_each(async |database| {
        let (users, acme, ada) = (SqlUsers::new(&database), tenant("acme"), id("u-1"));
        users.create(&acme, new("u-1", "ada").password(hash(HASH))).await.unwrap();
        let account = async || users.by_id(&acme, &ada).await.unwrap().unwrap();
        let first = account().await;
        assert_ne!(first.current_password_mark(), Some(PasswordMark::of_version(HASH)), "a random mark");
        let upgrade = async |account: &Account| users.upgrade_password(&acme, account, hash(BETTER)).await.unwrap();
        assert!(matches!(upgrade(&first).await, PasswordUpgrade::Replaced));
        let better = account().await;
        assert_eq!(better.password_hash().map(PasswordHash::as_str), Some(BETTER));
        assert_eq!(better.current_password_mark(), first.current_password_mark());
        // another login, which has read the account before, changes nothing
        assert!(matches!(upgrade(&first).await, PasswordUpgrade::Replaced));

        // the same hash is another password
        users.set_password(&acme, &ada, Some(hash(BETTER))).await.unwrap();
        assert_ne!(account().await.current_password_mark(), first.current_password_mark());
        assert!(matches!(upgrade(&better).await, PasswordUpgrade::PasswordChanged));
        users.set_password(&acme, &ada, None).await.unwrap();
        assert_eq!(account().await.current_password_mark(), None);
        assert!(!account().await.has_password());
        users.set_external_password(&acme, &ada, true).await.unwrap();
        assert!(account().await.has_password());
        users.set_external_password(&acme, &ada, false).await.unwrap();
        assert!(matches!(upgrade(&better).await, PasswordUpgrade::PasswordChanged));

        // a hash of another kind, which SQL has put there
        execute(&database, "update tollgate_users set password_hash = '$2b$12$abc', password_mark = null").await;
        let foreign = account().await;
        assert_eq!(foreign.foreign_password_hash(), Some("$2b$12$abc"));
        assert_eq!(foreign.current_password_mark(), Some(PasswordMark::of_version("$2b$12$abc")));
        assert!(matches!(upgrade(&foreign).await, PasswordUpgrade::Replaced));
        assert_eq!(account().await.current_password_mark(), foreign.current_password_mark());
        assert_eq!(account().await.password_hash().map(PasswordHash::as_str), Some(BETTER));
    });
}

#[test]
fn logins_that_upgrade_the_same_hash_at_once_all_succeed() {
    on_each(async |database| {
        let (users, acme) = (SqlUsers::new(&database), tenant("acme"));
        for round in 0..20 {
            let user = format!("u-{round}");
            users.create(&acme, new(&user, &user).password(hash(HASH))).await.unwrap();
            let account = async || users.by_id(&acme, &id(&user)).await.unwrap().unwrap();
            let before = account().await;
            let upgrade = || users.upgrade_password(&acme, &before, hash(BETTER));
            let (one, other, third) = tokio::join!(upgrade(), upgrade(), upgrade());
            for upgraded in [one, other, third] {
                assert_eq!(upgraded.unwrap(), PasswordUpgrade::Replaced, "round {round}");
            }
            let after = account().await;
            assert_eq!(after.password_hash().map(PasswordHash::as_str), Some(BETTER));
            assert_eq!(after.current_password_mark(), before.current_password_mark());
        }
    });
}

#[test]
fn an_upgrade_and_a_new_password_at_once_leave_the_new_password() {
    on_each(async |database| {
        let (users, acme) = (SqlUsers::new(&database), tenant("acme"));
        for round in 0..20 {
            let user = format!("u-{round}");
            users.create(&acme, new(&user, &user).password(hash(HASH))).await.unwrap();
            let before = users.by_id(&acme, &id(&user)).await.unwrap().unwrap();
            let (_, changed) = tokio::join!(
                users.upgrade_password(&acme, &before, hash(BETTER)),
                SqlUsers::set_password(&users, &acme, before.id(), Some(hash(OTHER))),
            );
            changed.unwrap();
            let after = users.by_id(&acme, &id(&user)).await.unwrap().unwrap();
            assert_eq!(after.password_hash().map(PasswordHash::as_str), Some(OTHER));
            assert_ne!(after.current_password_mark(), before.current_password_mark());
        }
    });
}

/// An account is the same account with a better hash, even if SQL has set its mark to null.
#[test]
fn a_mark_that_is_derived_outlives_the_hash_in_memory() {
    on_each(async |database| {
        let (users, acme, ada) = (SqlUsers::new(&database), tenant("acme"), id("u-1"));
        users.create(&acme, new("u-1", "ada").password(hash(HASH))).await.unwrap();
        execute(&database, "update tollgate_users set password_mark = null").await;
        let before = users.by_id(&acme, &ada).await.unwrap().unwrap();
        assert_eq!(before.current_password_mark(), Some(PasswordMark::of_version(HASH)));
        assert_eq!(before.clone().password(hash(BETTER)).current_password_mark(), before.current_password_mark());
    });
}

#[test]
fn claims_go_to_clients_with_their_scope() {
    on_each(async |database| {
        let (users, acme, ada) = (SqlUsers::new(&database), tenant("acme"), id("u-1"));
        users.create(&acme, new("u-1", "ada")).await.unwrap();
        users.set_claim(&acme, &ada, "roles", "roles", &json!(["editor"])).await.unwrap();
        users.set_claim(&acme, &ada, "roles", "roles", &json!(["admin"])).await.unwrap();
        users.set_claim(&acme, &ada, "profile", "locale", &json!("en")).await.unwrap();
        users.set_claim(&acme, &ada, "profile", "zoneinfo", &json!("UTC")).await.unwrap();
        users.set_claim(&acme, &ada, "profile", "zoneinfo", &json!(null)).await.unwrap();
        let account = users.by_id(&acme, &ada).await.unwrap().unwrap();
        let claims = async |scopes: &[&str]| {
            let request = ClaimsRequest::new("web").with_scopes(scopes.iter().copied());
            users.claims(&acme, &account, &request).await.unwrap()
        };
        let roles: Option<Vec<String>> = claims(&["roles"]).await.get(ClaimTarget::AccessToken, "roles");
        assert_eq!(roles.unwrap(), ["admin"]);
        let profile = claims(&["openid", "profile"]).await;
        assert_eq!(profile.get::<String>(ClaimTarget::UserInfo, "locale").as_deref(), Some("en"));
        assert_eq!(profile.get::<serde_json::Value>(ClaimTarget::IdToken, "roles"), None);
        assert_eq!(profile.get::<serde_json::Value>(ClaimTarget::IdToken, "zoneinfo"), None);
    });
}

#[test]
fn claims_have_bounds_together() {
    on_each(async |database| {
        let (users, acme, ada) = (SqlUsers::new(&database), tenant("acme"), id("u-1"));
        users.create(&acme, new("u-1", "ada")).await.unwrap();
        // with the name, the quotes and the comma, each takes 1,000 bytes
        let text = json!("x".repeat(1000 - "\"c0\":\"\",".len()));
        for number in 0..4 {
            users.set_claim(&acme, &ada, &format!("scope{}", number % 2), &format!("c{number}"), &text).await.unwrap();
        }
        let refused = [
            users.set_claim(&acme, &ada, "scope2", "c4", &json!("x".repeat(100))).await,
            users.set_claim(&acme, &ada, "scope2", "c0", &json!("x".repeat(1200))).await,
            users.set_claim(&acme, &ada, "two scopes", "c4", &json!(1)).await,
            users.set_claim(&acme, &ada, "", "c4", &json!(1)).await,
            users.set_claim(&acme, &ada, "a\0", "c4", &json!(1)).await,
        ];
        assert!(refused.iter().all(|result| matches!(result, Err(UserError::OutOfBounds))), "{refused:?}");
        let account = users.by_id(&acme, &ada).await.unwrap().unwrap();
        let request = ClaimsRequest::new("web").with_scopes(["scope0", "scope1", "scope2"]);
        let claims = users.claims(&acme, &account, &request).await.unwrap();
        let has = |name: &str| claims.get::<serde_json::Value>(ClaimTarget::IdToken, name).is_some();
        assert_eq!(["c0", "c1", "c2", "c3", "c4"].map(has), [true, true, true, true, false]);
        // smaller ones have room
        users.set_claim(&acme, &ada, "scope0", "c0", &json!(1)).await.unwrap();
        users.set_claim(&acme, &ada, "scope2", "c4", &json!("x".repeat(900))).await.unwrap();
    });
}

#[test]
fn a_removed_account_gives_its_names_away_and_never_its_id() {
    on_each(async |database| {
        let clock = ManualClock::new();
        clock.set_wall(UnixTime::from_secs(1_800_000_000));
        let users = SqlUsers::with_clock(&database, clock);
        let (acme, globex, ada) = (tenant("acme"), tenant("globex"), id("u-1"));
        users.create(&acme, new("u-1", "ada").contact(mailbox("ada@example.com"))).await.unwrap();
        users.set_claim(&acme, &ada, "roles", "roles", &json!(["admin"])).await.unwrap();
        assert!(matches!(users.remove(&globex, &ada).await, Err(UserError::Unknown)));
        users.remove(&acme, &ada).await.unwrap();
        assert!(matches!(users.remove(&acme, &ada).await, Err(UserError::Unknown)));
        assert!(users.find(&acme, &name("ada")).await.unwrap().is_none());
        assert!(users.by_id(&acme, &ada).await.unwrap().is_none());

        users.create(&acme, new("u-2", "ada")).await.unwrap();
        for tenant in [&acme, &globex] {
            let exists = users.create(tenant, new("u-1", "other")).await;
            assert!(matches!(exists, Err(UserError::Exists)), "{exists:?}");
        }
        assert!(users.find(&acme, &name("other")).await.unwrap().is_none());
        // a row that SQL deletes
        execute(&database, "delete from tollgate_users where id = 'u-2'").await;
        assert!(matches!(users.create(&acme, new("u-2", "ada")).await, Err(UserError::Exists)));
        assert_eq!(users.removed(&acme, None, 10).await.unwrap(), [ada.clone(), id("u-2")]);
        assert_eq!(users.removed(&acme, Some(&ada), 10).await.unwrap(), [id("u-2")]);
        // by the clock of the application, which shows another year
        execute(&database, "delete from tollgate_removed_users where id = 'u-1' and removed_at <> 1800000000").await;
        assert_eq!(users.removed(&acme, None, 10).await.unwrap().len(), 2);
        assert!(users.removed(&globex, None, 10).await.unwrap().is_empty());

        assert!(!users.release_id(&globex, &ada).await.unwrap());
        assert!(users.release_id(&acme, &ada).await.unwrap());
        users.create(&acme, new("u-1", "ada")).await.unwrap();
        let again = users.by_id(&acme, &ada).await.unwrap().unwrap();
        assert_eq!(again.contacts().count(), 0, "nothing of the old account is left");
        let request = ClaimsRequest::new("web").with_scopes(["roles"]);
        let claims = users.claims(&acme, &again, &request).await.unwrap();
        assert_eq!(claims.get::<serde_json::Value>(ClaimTarget::IdToken, "roles"), None);
    });
}

#[test]
fn an_account_whose_id_is_remembered_already_can_be_removed() {
    on_each(async |database| {
        let (users, acme, ada) = (SqlUsers::new(&database), tenant("acme"), id("u-1"));
        users.create(&acme, new("u-1", "ada")).await.unwrap();
        // such as after a copy of the tables
        execute(&database, "insert into tollgate_removed_users (id, tenant, removed_at) values ('u-1', 'acme', 7)")
            .await;
        users.remove(&acme, &ada).await.unwrap();
        assert!(users.by_id(&acme, &ada).await.unwrap().is_none());
        assert_eq!(users.removed(&acme, None, 10).await.unwrap(), [ada]);
    });
}

#[test]
fn a_removed_stored_account_is_gone_at_a_node_whose_clock_is_behind() {
    on_each(async |database| {
        let (acme, [clock, behind]) = (tenant("acme"), [(); 2].map(|()| ManualClock::new()));
        clock.set_wall(UnixTime::from_secs(1_800_000_000));
        behind.set_wall(UnixTime::from_secs(1_799_999_990));
        let [own, other] = [&clock, &behind]
            .map(|clock| StoredUsers::with_clock(SqlStore::with_clock(&database, clock.clone()), clock.clone()));
        // the first write of each store sweeps
        for (users, name) in [(&own, "one"), (&other, "two")] {
            users.create(&acme, new(name, name)).await.unwrap();
        }
        own.create(&acme, new("u-1", "ada")).await.unwrap();
        own.remove(&acme, &id("u-1")).await.unwrap();
        for users in [&own, &other] {
            assert!(users.by_id(&acme, &id("u-1")).await.unwrap().is_none());
            assert!(users.find(&acme, &name("ada")).await.unwrap().is_none());
            let outdated = users.set_names(&acme, &id("u-1"), Some("Ada"), None).await;
            assert!(matches!(outdated, Err(UserError::Unknown)), "{outdated:?}");
        }
        // the id and the name are free there, too
        other.create(&acme, new("u-1", "ada")).await.unwrap();
    });
}

#[test]
fn accounts_are_listed_and_searched_in_pages() {
    on_each(async |database| {
        let (users, acme) = (SqlUsers::new(&database), tenant("acme"));
        users.create(&tenant("globex"), new("u-999", "user a 1")).await.unwrap();
        for number in 0..25 {
            let typed = format!("User {} {number:02}", if number % 5 == 0 { "b" } else { "a" });
            let user = new(&format!("u-{number:02}"), &typed).identifier(name(&format!("m{number}@example.com")));
            users.create(&acme, user).await.unwrap();
        }
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = users.list(&acme, after.as_ref(), 7).await.unwrap();
            assert!(page.iter().all(|user| user.identifiers.len() == 2));
            let Some(last) = page.last() else { break };
            after = Some(last.account.id().clone());
            all.extend(page.into_iter().map(|user| user.account.id().as_str().to_owned()));
        }
        assert_eq!(all, (0..25).map(|number| format!("u-{number:02}")).collect::<Vec<_>>());

        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = users.search(&acme, " USER A", after.as_ref(), 6).await.unwrap();
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            found.extend(page);
        }
        assert_eq!(found.len(), 20);
        assert!(found.iter().all(|(identifier, user)| user.identifiers.contains(identifier)));
        assert!(found.is_sorted_by_key(|(identifier, _)| identifier.as_str().to_owned()));
        assert_eq!(users.search(&acme, "user a 01", None, 6).await.unwrap().len(), 1);
        assert!(users.search(&acme, "user c", None, 6).await.unwrap().is_empty());
        assert!(users.search(&acme, "a\0", None, 6).await.unwrap().is_empty());
    });
}

/// Returns the ids of all accounts of a tenant.
async fn listed(users: impl Users, tenant: &Tenant) -> BTreeSet<String> {
    let (users, mut all, mut cursor) = (AnyUsers::from(users), BTreeSet::new(), None);
    loop {
        let page = users.list(tenant, cursor).await.unwrap();
        all.extend(page.accounts.iter().map(|account| account.id().as_str().to_owned()));
        cursor = page.next;
        if cursor.is_none() {
            return all;
        }
    }
}

#[test]
fn all_accounts_are_listed_in_sql_and_in_a_store() {
    on_each(async |database| {
        let (sql, stored, acme) =
            (SqlUsers::new(&database), StoredUsers::new(SqlStore::new(&database)), tenant("acme"));
        for number in 0..515 {
            let user = || new(&format!("u-{number:03}"), &format!("user {number}"));
            sql.create(&acme, user()).await.unwrap();
            if number < 200 {
                stored.create(&acme, user()).await.unwrap();
            }
        }
        for number in 0..3 {
            let user = || new(&format!("g-{number}"), &format!("user {number}"));
            sql.create(&tenant("globex"), user()).await.unwrap();
            stored.create(&tenant("globex"), user()).await.unwrap();
        }
        sql.remove(&acme, &id("u-007")).await.unwrap();
        stored.remove(&acme, &id("u-007")).await.unwrap();
        let expected = |most| (0..most).filter(|number| *number != 7).map(|number| format!("u-{number:03}")).collect();
        assert_eq!(listed(sql.clone(), &acme).await, expected(515));
        assert_eq!(listed(stored.clone(), &acme).await, expected(200));
        assert_eq!(listed(sql, &tenant("globex")).await, listed(stored, &tenant("globex")).await);
    });
}

#[test]
fn calls_that_want_the_same_names_or_id_have_one_winner() {
    on_each(async |database| {
        let (users, acme) = (SqlUsers::new(&database), tenant("acme"));
        for round in 0..20 {
            let tasks = (0..6).map(|task| {
                let (users, acme) = (users.clone(), acme.clone());
                let mut names: Vec<_> = (0..4).map(|number| name(&format!("{round} {number}"))).collect();
                names.rotate_left(task % 4);
                let first = names.remove(0);
                // half of them also want the same id
                let user = if task % 2 == 0 { format!("u-{round}") } else { format!("u-{round}-{task}") };
                let user = names.into_iter().fold(NewUser::new(id(&user), first), NewUser::identifier);
                tokio::spawn(async move { users.create(&acme, user).await })
            });
            let mut winners = Vec::new();
            for task in tasks.collect::<Vec<_>>() {
                match task.await.unwrap() {
                    Ok(user) => winners.push(user),
                    Err(UserError::Taken | UserError::Exists) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
            assert_eq!(winners.len(), 1, "{winners:?}");
            for number in 0..4 {
                let found = users.find(&acme, &name(&format!("{round} {number}"))).await.unwrap();
                assert_eq!(found.unwrap().id(), &winners[0]);
            }
        }
        // an account that is removed and created at the same time
        for round in 0..40 {
            let user = id(&format!("u-{round}"));
            let _ = users.create(&acme, NewUser::new(user.clone(), name(&format!("again {round}")))).await;
            let (again, removed) = tokio::join!(
                users.create(&acme, NewUser::new(user.clone(), name(&format!("other {round}")))),
                users.remove(&acme, &user),
            );
            removed.unwrap();
            assert!(matches!(again, Err(UserError::Exists)), "{again:?}");
        }
    });
}

/// A small random number generator, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Random calls give the same results as [`StoredUsers`], except that an id is never given away again.
#[test]
fn random_calls_do_what_stored_users_do() {
    on_each(async |database| {
        let (sql, stored) = (SqlUsers::new(&database), StoredUsers::new(Memory::new()));
        let (tenants, mut random, mut removed) = ([tenant("acme"), tenant("globex")], Random(7), Vec::new());
        for step in 0..1200 {
            let tenant = &tenants[usize::try_from(random.below(2)).unwrap()];
            let user = id(&format!("u-{}", random.below(5)));
            let typed = name(&format!("name {}", random.below(6)));
            let contact = mailbox(&format!("m{}@example.com", random.below(3)));
            let call = random.below(10);
            macro_rules! both {
                ($users:ident => $call:expr) => {{
                    let $users = &sql;
                    let one: Result<(), UserError> = $call.await.map(|_| ());
                    let $users = &stored;
                    let other: Result<(), UserError> = $call.await.map(|_| ());
                    // which of two reasons is found first differs
                    assert_eq!(one.is_ok(), other.is_ok(), "step {step}, call {call}: {one:?} {other:?}");
                    one.is_ok()
                }};
            }
            match call {
                0 | 1 if !removed.contains(&user) => {
                    let new = NewUser::new(user.clone(), typed.clone()).contact(contact);
                    let one = sql.create(tenant, new.clone()).await;
                    let other = stored.create(tenant, new).await;
                    assert_eq!(one.is_ok(), other.is_ok(), "step {step}: {one:?} {other:?}");
                }
                2 => drop(both!(users => users.add_identifier(tenant, &user, &typed))),
                3 => drop(both!(users => users.remove_identifier(tenant, &user, &typed))),
                4 => drop(both!(users => users.set_names(tenant, &user, Some("x"), Some(typed.as_str())))),
                5 => drop(both!(users => users.verify_contact(tenant, &user, contact.clone()))),
                6 => drop(both!(users => users.remove_contact(tenant, &user, &contact))),
                7 => drop(both!(users => users.set_password(tenant, &user, Some(hash(HASH))))),
                8 => drop(both!(users => users.disable(tenant, &user))),
                9 if random.below(8) == 0 => {
                    if both!(users => users.remove(tenant, &user)) {
                        // let it come back, as it does there
                        if random.below(3) > 0 {
                            assert!(sql.release_id(tenant, &user).await.unwrap());
                        } else {
                            removed.push(user.clone());
                        }
                    }
                }
                _ => {}
            }
            for tenant in &tenants {
                let (one, other) = tokio::join!(sql.find(tenant, &typed), stored.find(tenant, &typed));
                assert_eq!(
                    one.unwrap().as_ref().map(seen),
                    other.unwrap().as_ref().map(seen),
                    "step {step}, call {call}"
                );
                let (one, other) = tokio::join!(sql.by_id(tenant, &user), stored.by_id(tenant, &user));
                assert_eq!(
                    one.unwrap().as_ref().map(seen),
                    other.unwrap().as_ref().map(seen),
                    "step {step}, call {call}"
                );
            }
            if removed.len() == 4 {
                for user in removed.drain(..) {
                    let mut released = false;
                    for tenant in &tenants {
                        released |= sql.release_id(tenant, &user).await.unwrap();
                    }
                    assert!(released);
                }
            }
        }
    });
}

#[test]
fn a_call_ends_at_the_deadline_and_changes_nothing() {
    let Some(cluster) = Cluster::start(&["fsync=off"]) else { return };
    let runtime = Runtime::new().unwrap();
    let deadline = Duration::from_millis(500);
    let database = runtime.block_on(open(&cluster.url())).deadline(deadline);
    let (users, acme) = (SqlUsers::new(&database), tenant("acme"));
    runtime.block_on(users.create(&acme, new("u-1", "ada"))).unwrap();
    runtime.block_on(async {
        let mut other = PgConnection::connect(&cluster.url()).await.unwrap();
        other.execute("begin; lock table tollgate_users").await.unwrap();
        let failed = users.disable(&acme, &id("u-1")).await;
        assert!(matches!(failed, Err(UserError::Store(_))), "{failed:?}");
        assert!(users.find(&acme, &name("ada")).await.is_err());
        other.execute("rollback").await.unwrap();
    });
    let found = runtime.block_on(users.find(&acme, &name("ada"))).unwrap().unwrap();
    assert!(!found.is_disabled());
}

/// The procedure of `docs/scale.md` for accounts of an application in `StoredUsers`, whose names the application knows.
#[test]
fn accounts_move_from_stored_users() {
    on_each(async |database| {
        let (old, users, acme) = (StoredUsers::new(Memory::new()), SqlUsers::new(&database), tenant("acme"));
        let ada = new("u-1", "ada").identifier(name("ada@example.com")).name("Ada").password(hash(HASH));
        old.create(&acme, ada.contact(mailbox("ada@example.com")).disabled(true)).await.unwrap();

        let account = old.by_id(&acme, &id("u-1")).await.unwrap().unwrap();
        let identifiers = ["ada", "ada@example.com"].map(name);
        let mut new = NewUser::new(account.id().clone(), identifiers[0].clone()).identifier(identifiers[1].clone());
        new = account.display_name().into_iter().fold(new, NewUser::name);
        new = account.preferred_username().into_iter().fold(new, NewUser::username);
        new = account.password_hash().cloned().into_iter().fold(new, NewUser::password);
        for (contact, is_verified) in account.contacts() {
            new = if is_verified { new.contact(contact.clone()) } else { new.unverified_contact(contact.clone()) };
        }
        users.create(&acme, new.disabled(account.is_disabled())).await.unwrap();
        for identifier in &identifiers {
            let found = users.find(&acme, identifier).await.unwrap().unwrap();
            assert_eq!(seen(&found), seen(&account));
        }
    });
}
