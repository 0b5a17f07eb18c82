//! SQLite runs the statements with 1,000,000 accounts by index only. `tests/million.rs` shows the same for PostgreSQL.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use sqlx::{AssertSqlSafe, Executor, Row, SqlitePool, sqlite::SqlitePoolOptions};
use tollgate::{Identifier, NewUser, Tenant, UserId, Users};

use super::{SqlUsers, statements};
use crate::{database::Database, migrations::Dialect, row, sqlite};

const STATEMENTS: &[&str] = &[
    statements::FIND,
    statements::BY_ID,
    statements::GET,
    statements::LIST,
    statements::SEARCH,
    statements::CLAIMS,
    statements::CREATE,
    statements::WAS_REMOVED,
    statements::CHANGE,
    statements::ADD_IDENTIFIER,
    statements::REMOVE_IDENTIFIER,
    statements::COUNT_IDENTIFIERS,
    statements::ADD_CONTACT,
    statements::REMOVE_CONTACT,
    statements::CONTACTS,
    statements::COUNT_CONTACTS,
    statements::SET_CLAIM,
    statements::REMOVE_CLAIM,
    statements::SET_NAMES,
    statements::USERNAME,
    statements::CLEAR_USERNAME,
    statements::SET_DISABLED,
    statements::SET_EXTERNAL_PASSWORD,
    statements::SET_PASSWORD,
    statements::PASSWORD,
    statements::REMEMBER,
    statements::REMOVE,
    statements::REMOVED,
    statements::RELEASE_ID,
    row::READ,
    sqlite::SWEEP,
];

const MILLION: &str = "
    with recursive n(n) as (select 1 union all select n + 1 from n where n < 1000000)
    insert into tollgate_users (id, tenant, name, created_at, changed_at)
    select printf('u-%07d', n), 'acme', 'Name', 0, 0 from n;
    insert into tollgate_user_identifiers (tenant, user_id, identifier)
    select tenant, id, 'name' || substr(id, 2) from tollgate_users;
    insert into tollgate_user_contacts (user_id, kind, contact, verified)
    select id, 'email', 'm' || id || '@example.com', 1 from tollgate_users;
    analyze;";

async fn million() -> SqlitePool {
    // all tables are in memory, and the connection is never closed
    let pool = SqlitePoolOptions::new().max_connections(1).min_connections(1).idle_timeout(None).max_lifetime(None);
    let pool = pool.connect("sqlite::memory:").await.unwrap();
    pool.execute(AssertSqlSafe(Dialect::Sqlite.migrations(0))).await.unwrap();
    pool.execute("pragma foreign_keys = off").await.unwrap();
    pool.execute(MILLION).await.unwrap();
    pool.execute("pragma foreign_keys = on").await.unwrap();
    pool
}

#[tokio::test]
async fn with_a_million_accounts_sqlite_uses_indexes_only() {
    let pool = million().await;
    for statement in STATEMENTS {
        let plan = pool.fetch_all(AssertSqlSafe(format!("explain query plan {statement}"))).await.unwrap();
        let steps: Vec<String> = plan.iter().map(|step| step.get("detail")).collect();
        for step in &steps {
            // one row that is made up, and the table of one row
            let is_small = ["SCAN CONSTANT ROW", "SCAN (subquery-1)", "SCAN f", "SCAN e"].contains(&step.as_str());
            assert!(!step.starts_with("SCAN") || is_small, "{statement}: {steps:?}");
            let is_sorted = step.contains("TEMP B-TREE") && !step.contains("string_agg");
            assert!(!is_sorted, "{statement}: {steps:?}");
        }
    }

    let (users, acme) = (SqlUsers::new(&Database::from_sqlite(pool)), Tenant::parse("acme").unwrap());
    let name = Identifier::parse("Name-0777777").unwrap();
    assert_eq!(users.find(&acme, &name).await.unwrap().unwrap().id().as_str(), "u-0777777");
    let page = users.search(&acme, "name-09999", None, 1000).await.unwrap();
    assert_eq!(page.len(), 100);
    let page = users.list(&acme, Some(&UserId::parse("u-0999990").unwrap()), 1000).await.unwrap();
    assert_eq!(page.len(), 10);
    users.create(&acme, NewUser::new(UserId::parse("u-x").unwrap(), Identifier::parse("x").unwrap())).await.unwrap();
}
