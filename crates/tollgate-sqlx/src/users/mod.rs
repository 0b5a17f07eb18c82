//! Accounts in tables.

// Each module uses only modules listed above it.
mod statements;
mod sql_user;
mod row;
mod decoy;
mod failure;
mod transaction;
mod changes;
mod user_changes;
mod removal;
mod listing;
#[cfg(all(test, feature = "sqlite"))]
mod plans;

use std::{fmt, sync::Arc};

use tollgate::{
    Identifier, Tenant, UserId, Users,
    clock::{Clock, SystemClock},
    password::PasswordHash,
    store::{ScanCursor, ScanPage, StoreError, StoreErrorKind},
    user::{
        Account, AccountChange, AccountPage, Claims, ClaimsRequest, Contact, NewAccount, NewUser, OfferedChange,
        PasswordUpgrade, UserError,
    },
};

pub use self::sql_user::SqlUser;
use self::{
    row::{AccountRow, read_claims},
    transaction::on_pool,
};
use crate::database::Database;

/// User accounts in PostgreSQL or SQLite, in tables that an application can join and extend. Clones share them.
///
/// ```no_run
/// use tollgate::{Identifier, NewUser, Tenant, UserId};
/// use tollgate_sqlx::{Database, SqlUsers};
///
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// let database = Database::connect("sqlite://app.db").await?;
/// database.migrate().await?;
/// let (users, acme) = (SqlUsers::new(&database), Tenant::parse("acme")?);
/// let ada = NewUser::new(UserId::parse("u-1815")?, Identifier::parse("ada@example.com")?).name("Ada Lovelace");
/// users.create(&acme, ada).await?;
/// # Ok(()) }
/// ```
///
/// Accounts belong to a tenant, and so do their identifiers. The id of an account exists in one tenant only, because it
/// becomes the `sub` of tokens, and no other account ever has it again: see [`remove`](Self::remove).
///
/// # Tables
///
/// | table | columns |
/// |---|---|
/// | `tollgate_users` | `id` (primary key), `tenant`, `name`, `username`, `password_hash`, `password_mark`, `external_password`, `disabled`, `created_at`, `changed_at` |
/// | `tollgate_user_identifiers` | `tenant`, `identifier` (together the primary key), `user_id` |
/// | `tollgate_user_contacts` | `user_id`, `kind` (`email` or `phone`), `contact`, `verified` |
/// | `tollgate_user_claims` | `user_id`, `name`, `scope`, `value` (JSON) |
/// | `tollgate_removed_users` | `id` (primary key), `tenant`, `removed_at` |
///
/// Read and join them as you like, and let your own tables refer to `tollgate_users (id)` with `on delete cascade`.
/// Write through this type: identifiers are stored as [`Identifier`] normalizes them, and compared byte by byte, so a
/// name that SQL inserts with a capital letter is never found. Text is never compared with `lower()`, which treats some
/// letters differently than Rust. SQL that changes a `password_hash` must set `password_mark` to null. Otherwise,
/// sessions that began with the old password continue. A hash that is not argon2 becomes the
/// [`foreign_hash`](Account::foreign_hash) of the account.
///
/// # Accounts and the store
///
/// Sessions, tokens, passkeys and links are in the [`Store`](tollgate::store::Store), which has no transaction with these
/// tables. Change the account first and call [`AuthService`](tollgate::AuthService) afterwards, as each method says. If the
/// process dies in between, the user has less access than before, never more.
///
/// # Failures
///
/// Each method is one statement or one transaction, so a change happens as a whole or not at all.
#[derive(Clone)]
pub struct SqlUsers {
    database: Database,
    clock: Arc<dyn Clock>,
}

impl SqlUsers {
    /// Keeps the accounts in this database. Call [`Database::migrate`] or [`Database::check`] first.
    pub fn new(database: &Database) -> Self {
        Self::with_clock(database, SystemClock::new())
    }

    /// Keeps the accounts in this database, and takes the time from `clock`.
    pub fn with_clock(database: &Database, clock: impl Clock) -> Self {
        Self { database: database.clone(), clock: Arc::new(clock) }
    }

    /// Returns the time in seconds, as columns have it.
    fn seconds(&self) -> i64 {
        i64::try_from(self.clock.read().1.as_secs()).unwrap_or(i64::MAX)
    }

    /// Returns the account, after the same work for an unknown one.
    async fn account(
        &self,
        statement: &'static str,
        tenant: &Tenant,
        name: &str,
    ) -> Result<Option<Account>, StoreError> {
        let row = on_pool!(self.database, reads, pool => {
            let found = sqlx::query(statement).bind(tenant.as_str()).bind(name).fetch_one(pool).await?;
            Ok::<_, sqlx::Error>(AccountRow::read(&found)?)
        })?;
        let account = row.account()?;
        if account.is_none() {
            decoy::read();
        }
        Ok(account)
    }
}

impl Users for SqlUsers {
    type Error = StoreError;

    /// Makes one round trip and the same work, whether the identifier is known or not.
    async fn find(&self, tenant: &Tenant, identifier: &Identifier) -> Result<Option<Account>, StoreError> {
        self.account(statements::FIND, tenant, identifier.as_str()).await
    }

    /// Makes one round trip and the same work, whether the id is known or not.
    async fn by_id(&self, tenant: &Tenant, id: &UserId) -> Result<Option<Account>, StoreError> {
        self.account(statements::BY_ID, tenant, id.as_str()).await
    }

    /// Lists the accounts in the order of their ids.
    async fn list(&self, tenant: &Tenant, cursor: Option<ScanCursor>) -> Result<Option<AccountPage>, StoreError> {
        let after = cursor.as_ref().map(|cursor| std::str::from_utf8(cursor.as_bytes()).ok().map(UserId::parse));
        let after = after.map(|id| id.and_then(Result::ok).ok_or(StoreErrorKind::Corrupt)).transpose()?;
        let users = self.list(tenant, after.as_ref(), ScanPage::USUAL_LEN as u16).await?;
        let last = users.last().filter(|_| users.len() == ScanPage::USUAL_LEN);
        let next = last.map(|user| ScanCursor::new(user.account.id().as_str().to_owned()));
        Ok(Some(AccountPage { accounts: users.into_iter().map(|user| user.account).collect(), next }))
    }

    async fn upgrade_password(
        &self,
        tenant: &Tenant,
        account: &Account,
        new: PasswordHash,
    ) -> Result<PasswordUpgrade, StoreError> {
        self.rehash_password(tenant, account, &new).await
    }

    /// Returns the claims whose scope the client was granted. Makes one round trip.
    async fn claims(&self, _: &Tenant, account: &Account, request: &ClaimsRequest) -> Result<Claims, StoreError> {
        let rows = on_pool!(self.database, reads, pool => {
            Ok::<_, sqlx::Error>(sqlx::query_as(statements::CLAIMS).bind(account.id().as_str()).fetch_all(pool).await?)
        })?;
        read_claims(rows, |scope| request.has_scope(scope))
    }

    fn offers(&self, _: OfferedChange) -> bool {
        true
    }

    async fn create(&self, tenant: &Tenant, new: NewUser) -> Result<NewAccount, StoreError> {
        match self.create(tenant, new).await {
            Ok(user) => Ok(NewAccount::Created(user)),
            Err(UserError::Taken | UserError::Exists) => Ok(NewAccount::Taken),
            Err(UserError::Store(error)) => Err(error),
            Err(_) => Err(StoreErrorKind::TooLarge.into()),
        }
    }

    async fn set_password(
        &self,
        tenant: &Tenant,
        account: &Account,
        new: PasswordHash,
    ) -> Result<AccountChange, StoreError> {
        self.replace_password(tenant, account, &new).await
    }

    async fn set_name(&self, tenant: &Tenant, id: &UserId, name: Option<&str>) -> Result<AccountChange, StoreError> {
        self.replace_name(tenant, id, name).await
    }

    async fn set_contact(
        &self,
        tenant: &Tenant,
        id: &UserId,
        old: Option<&Contact>,
        new: Option<&Contact>,
    ) -> Result<AccountChange, StoreError> {
        self.replace_contact(tenant, id, old, new).await
    }

    async fn remove(&self, tenant: &Tenant, id: &UserId) -> Result<AccountChange, StoreError> {
        user_changes::outcome(self.remove(tenant, id).await)
    }
}

impl fmt::Debug for SqlUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlUsers").field("database", &self.database).finish_non_exhaustive()
    }
}
