//! The matrices and the random call sequences of the main crate (`tests/auth`), with every store and all accounts in SQL: each
//! `Memory::new()` of those files is a `SqlStore` of its own, and their `StoredUsers` are `SqlUsers` in the same database.

#![cfg(unix)]
#![allow(
    dead_code,
    missing_docs,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "tests may panic and print, and use only some of the helpers"
)]

// in the files below, `tollgate` is this program: the crate itself, with another `store::Memory`
extern crate self as tollgate;
extern crate tollgate as real;

pub use real::*;
use real::{clock::Clock, store::AnyStore, user::AnyUsers};
use tollgate_sqlx::SqlUsers;

/// Accounts in the database of the newest store of this thread.
#[derive(Clone, Debug)]
pub struct StoredUsers(SqlUsers);

impl StoredUsers {
    pub fn new(_: impl Into<AnyStore>) -> Self {
        Self(SqlUsers::new(&store::newest()))
    }

    pub fn with_clock(_: impl Into<AnyStore>, clock: impl Clock) -> Self {
        Self(SqlUsers::with_clock(&store::newest(), clock))
    }
}

impl std::ops::Deref for StoredUsers {
    type Target = SqlUsers;

    fn deref(&self) -> &SqlUsers {
        &self.0
    }
}

impl From<StoredUsers> for AnyUsers {
    fn from(users: StoredUsers) -> Self {
        users.0.into()
    }
}

pub mod store {
    //! The stores of the crate, with SQL in place of memory.

    use std::{cell::RefCell, env, sync::Once};

    use real::gate::MaybeReady;
    pub use real::store::*;
    use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, postgres::PgPoolOptions, sqlite::SqlitePoolOptions};
    use tollgate_sqlx::{Database, Dialect, SqlStore};

    /// The name of the variable with the URL of PostgreSQL. Without it, the tests use SQLite.
    pub(crate) const URL: &str = "TOLLGATE_SQL_TESTS_ON";

    #[derive(Debug)]
    pub struct Memory(SqlStore);

    thread_local! {
        static NEWEST: RefCell<Option<Database>> = const { RefCell::new(None) };
    }

    impl Memory {
        pub fn new() -> Self {
            let database = match env::var(URL) {
                Ok(url) => postgres(&url),
                Err(_) => sqlite(),
            };
            NEWEST.set(Some(database.clone()));
            Self(SqlStore::new(&database))
        }
    }

    /// Returns the database of the newest store of this thread.
    pub(crate) fn newest() -> Database {
        NEWEST.with_borrow(Clone::clone).expect("a store comes before its users")
    }

    /// A database in the memory of its only connection.
    fn sqlite() -> Database {
        let pool = SqlitePoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
        let pool = pool.after_connect(|connection, _| {
            Box::pin(async move {
                connection.execute(AssertSqlSafe(Dialect::Sqlite.migrations(0))).await?;
                Ok(())
            })
        });
        Database::from_sqlite(pool.connect_lazy("sqlite::memory:").unwrap())
    }

    /// Temporary tables of its only connection, and the functions of a schema that all share.
    fn postgres(url: &str) -> Database {
        static SCHEMA: Once = Once::new();
        let (base, schema) = (url.to_owned(), format!("{url}?options[search_path]=shared"));
        SCHEMA.call_once(|| {
            let schema = schema.clone();
            // not in the runtime of the test, which may be waiting for this
            let created = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let mut connection = PgConnection::connect(&base).await.unwrap();
                    connection.execute("create schema shared").await.unwrap();
                    Database::connect(&schema).await.unwrap().migrate().await.unwrap();
                });
            });
            created.join().unwrap();
        });
        let pool = PgPoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
        let pool = pool.after_connect(|connection, _| {
            Box::pin(async move {
                connection.execute(TEMPORARY).await?;
                Ok(())
            })
        });
        Database::from_postgres(pool.connect_lazy(&schema).unwrap())
    }

    const TEMPORARY: &str = "
        create temp table tollgate_rows (like shared.tollgate_rows including all);
        create temp table tollgate_epoch as table shared.tollgate_epoch;
        create temp sequence tollgate_versions;
        create temp table tollgate_users (like shared.tollgate_users including all);
        create temp table tollgate_user_identifiers (like shared.tollgate_user_identifiers including all,
            foreign key (tenant, user_id) references tollgate_users (tenant, id) on delete cascade);
        create temp table tollgate_user_contacts (like shared.tollgate_user_contacts including all,
            foreign key (user_id) references tollgate_users on delete cascade);
        create temp table tollgate_user_claims (like shared.tollgate_user_claims including all,
            foreign key (user_id) references tollgate_users on delete cascade);
        create temp table tollgate_removed_users (like shared.tollgate_removed_users including all);
        create trigger tollgate_remember_removed_user after delete on tollgate_users
        for each row execute function shared.tollgate_remember_removed_user();";

    impl Default for Memory {
        fn default() -> Self {
            Self::new()
        }
    }

    impl Store for Memory {
        fn get(
            &self,
            key: &Key,
        ) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
            self.0.get(key)
        }

        async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
            self.0.insert(key, record).await
        }

        async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
            self.0.swap(key, expected, record).await
        }

        async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
            self.0.take(key).await
        }

        async fn run(&self, operations: Vec<Operation>) -> Result<Vec<OperationOutcome>, StoreError> {
            self.0.run(operations).await
        }

        // so that the tests need no seal
        fn is_persistent(&self) -> bool {
            false
        }
    }
}

mod imported;
#[path = "../support/mod.rs"]
mod support;

#[path = "../../../../tests/auth/account_contacts.rs"]
mod account_contacts;
#[path = "../../../../tests/auth/account_deletion.rs"]
mod account_deletion;
#[path = "../../../../tests/auth/account_matrix.rs"]
mod account_matrix;
#[path = "../../../../tests/auth/life_matrix.rs"]
mod life_matrix;
#[path = "../../../../tests/auth/life_sequences/mod.rs"]
mod life_sequences;
#[path = "../../../../tests/auth/own_account.rs"]
mod own_account;
#[path = "../../../../tests/auth/reset.rs"]
mod reset;
#[path = "../../../../tests/auth/sign_up.rs"]
mod sign_up;
#[path = "../../../../tests/auth/confidential_clients.rs"]
mod confidential_clients;
#[path = "../../../../tests/auth/consent_pages.rs"]
mod consent_pages;
#[path = "../../../../tests/auth/enrolled.rs"]
mod enrolled;
#[path = "../../../../tests/auth/five_tenants.rs"]
mod five_tenants;
#[path = "../../../../tests/auth/issued_tokens.rs"]
mod issued_tokens;
#[path = "../../../../tests/auth/machine_clients.rs"]
mod machine_clients;
#[path = "../../../../tests/auth/matrix.rs"]
mod matrix;
#[path = "../../../../tests/auth/method_matrix.rs"]
mod method_matrix;
#[path = "../../../../tests/auth/openapi.rs"]
mod openapi;
#[path = "../../../../tests/auth/random_provider.rs"]
mod random_provider;
#[path = "../../../../tests/auth/random_runs.rs"]
mod random_runs;
#[path = "../../../../tests/auth/sequences.rs"]
mod sequences;
#[path = "../../../../tests/auth/soft_passkey.rs"]
mod soft_passkey;
#[path = "../../../../tests/auth/special_worlds.rs"]
mod special_worlds;
#[path = "../../../../tests/auth/sso_provider.rs"]
mod sso_provider;
#[path = "../../../../tests/auth/token_matrix.rs"]
mod token_matrix;
#[path = "../../../../tests/auth/token_requests.rs"]
mod token_requests;
#[path = "../../../../tests/auth/token_sequences.rs"]
mod token_sequences;
#[path = "../../../../tests/auth/wire_text.rs"]
mod wire_text;
#[path = "../../../../tests/auth/world.rs"]
mod world;
#[path = "../../../../tests/auth/controlled_store.rs"]
mod controlled_store;

/// Runs the tests of these names once more, on PostgreSQL.
fn hold_on_postgres(names: &str, cases: &str) {
    let Some(cluster) = support::Cluster::start(&["fsync=off", "max_connections=200", "autovacuum=off"]) else {
        return;
    };
    let own = std::env::current_exe().unwrap();
    let mut again = std::process::Command::new(own);
    again.arg(names).env(store::URL, cluster.url()).env("PROPTEST_CASES", cases);
    let output = again.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !text.contains(" 0 passed"), "{text}");
}

#[test]
fn the_matrices_hold_on_postgres() {
    hold_on_postgres("matrix::", "1");
}

#[test]
fn the_sequences_hold_on_postgres() {
    hold_on_postgres("sequences::", "4");
}

#[test]
fn the_life_of_an_account_holds_on_postgres() {
    for names in ["imported::", "sign_up::", "reset::", "account_contacts::", "account_deletion::"] {
        hold_on_postgres(names, "1");
    }
}
