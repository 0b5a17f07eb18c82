//! PostgreSQL runs the statements of `SqlUsers` and `SqlStore` with 1,000,000 accounts by index only.

#![cfg(all(unix, feature = "postgres", feature = "sqlite", feature = "users"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "helpers of tests")]

mod support;

use std::time::Duration;

use support::Cluster;
use tokio::runtime::Runtime;
use tollgate::{
    Identifier, NewUser, Tenant, UserId, Users,
    clock::UnixTime,
    password::PasswordHash,
    store::{AnyStore, Expected, Key, Operation, Record},
    user::{Claims, ClaimsRequest, EmailAddress},
};
use tollgate_sqlx::{Database, Dialect, SqlStore, SqlUsers};

const MILLION: &str = "
    set session_replication_role = replica;
    insert into tollgate_users (id, tenant, name, created_at, changed_at)
    select 'u-' || to_char(n, 'FM0000000'), 'acme', 'Name', 0, 0 from generate_series(1, 1000000) n;
    insert into tollgate_user_identifiers (tenant, user_id, identifier)
    select tenant, id, 'name' || substr(id, 2) from tollgate_users;
    insert into tollgate_user_contacts (user_id, kind, contact, verified)
    select id, 'email', 'm' || id || '@example.com', true from tollgate_users;
    insert into tollgate_user_claims (user_id, name, scope, value)
    select id, 'locale', 'profile', '1' from tollgate_users where id < 'u-0050000';
    insert into tollgate_removed_users (id, tenant, removed_at)
    select 'r-' || to_char(n, 'FM0000000'), 'acme', 0 from generate_series(1, 50000) n;
    insert into tollgate_rows
    select decode(md5(n::text), 'hex'), n, 0, 9e15::bigint, '\\x00' from generate_series(1, 100000) n;
    analyze";

const HASH: &str = "$argon2id$v=19$m=8,t=1,p=1$MDEyMzQ1Njc4OWFiY2RlZg$gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0";

#[test]
fn with_a_million_accounts_postgres_uses_indexes_only() {
    let settings = [
        "fsync=off",
        "max_wal_size=4GB",
        "shared_buffers=256MB",
        "shared_preload_libraries=auto_explain",
        "auto_explain.log_nested_statements=on",
    ];
    let Some(cluster) = Cluster::start(&settings) else { return };
    cluster.sql(&Dialect::Postgres.migrations(0));
    cluster.sql(MILLION);
    cluster.sql("alter database postgres set auto_explain.log_min_duration = 0");
    let begins = cluster.log().len();

    Runtime::new().unwrap().block_on(async {
        let database = Database::connect(&cluster.url()).await.unwrap().deadline(Duration::from_secs(30));
        let (users, acme) = (SqlUsers::new(&database), Tenant::parse("acme").unwrap());
        let store = AnyStore::from(SqlStore::new(&database));
        // the server may choose another plan for a statement that it has run five times
        for round in 0..8 {
            let number = 777_000 + round;
            let (id, name) = (format!("u-{number:07}"), format!("name-{number:07}"));
            let (id, name) = (UserId::parse(id).unwrap(), Identifier::parse(name).unwrap());
            let account = users.find(&acme, &name).await.unwrap().expect("it is known");
            assert_eq!(account.id(), &id);
            assert!(users.find(&acme, &Identifier::parse("nobody").unwrap()).await.unwrap().is_none());
            assert!(users.by_id(&acme, &id).await.unwrap().is_some());
            assert_eq!(users.get(&acme, &id).await.unwrap().unwrap().identifiers.len(), 1);
            let request = ClaimsRequest::new("web").with_scopes(["profile"]);
            let _: Claims = users.claims(&acme, &account, &request).await.unwrap();
            assert_eq!(users.search(&acme, "Name-09999", None, 1000).await.unwrap().len(), 100);
            assert_eq!(users.search(&acme, "name", Some(&name), 50).await.unwrap().len(), 50);
            assert_eq!(users.list(&acme, Some(&id), 50).await.unwrap().len(), 50);
            assert_eq!(users.removed(&acme, Some(&UserId::parse("r-0049000").unwrap()), 50).await.unwrap().len(), 50);

            let hash = PasswordHash::parse(HASH).unwrap();
            users.set_password(&acme, &id, Some(hash.clone())).await.unwrap();
            let account = users.by_id(&acme, &id).await.unwrap().unwrap();
            users.upgrade_password(&acme, &account, hash).await.unwrap();
            let alias = Identifier::parse(format!("alias {round}")).unwrap();
            let mailbox = EmailAddress::parse(format!("new{round}@example.com")).unwrap();
            users.add_identifier(&acme, &id, &alias).await.unwrap();
            users.remove_identifier(&acme, &id, &alias).await.unwrap();
            users.verify_contact(&acme, &id, mailbox.clone().into()).await.unwrap();
            users.remove_contact(&acme, &id, &mailbox.into()).await.unwrap();
            users.disable(&acme, &id).await.unwrap();
            let new = UserId::parse(format!("new-{round}")).unwrap();
            users.create(&acme, NewUser::new(new.clone(), alias)).await.unwrap();
            users.remove(&acme, &new).await.unwrap();
            users.release_id(&acme, &new).await.unwrap();

            let (key, now) = (Key::new("rows", None, round.to_string()).unwrap(), UnixTime::from_secs(1_800_000_000));
            let record = Record::new("x", now, now + Duration::from_secs(60)).unwrap();
            let calls = vec![Operation::Read(key.clone()), Operation::Write(key.clone(), Expected::Absent, record)];
            store.run(calls).await.unwrap();
            assert!(store.get(&key).wait().await.unwrap().is_some());
        }
    });

    let log = cluster.log();
    let plans = &log[begins..];
    for index in [
        "tollgate_user_identifiers_pkey",
        "tollgate_user_identifiers_user_id",
        "tollgate_users_tenant_id_key",
        "tollgate_user_contacts_pkey",
        "tollgate_user_claims_pkey",
        "tollgate_removed_users_tenant",
        "tollgate_rows_pkey",
    ] {
        assert!(plans.contains(&format!("using {index}")), "{index} is not used");
    }
    let scans = plans.lines().filter(|line| line.contains("Seq Scan") && !line.contains("on tollgate_epoch"));
    assert_eq!(scans.collect::<Vec<_>>(), Vec::<&str>::new());
}
