//! Changes that users make themselves, as `Users` names them.

use tollgate::{
    Identifier, Tenant, UserId,
    password::PasswordHash,
    store::{StoreError, StoreErrorKind},
    user::{Account, AccountChange, Contact, PasswordUpgrade, UserError},
};

use super::{
    SqlUsers,
    changes::{check_count, clear_username, new_mark},
    row::{StoredHash, contact_columns, mark_of, write_mark},
    statements::{
        ADD_CONTACT, ADD_IDENTIFIER, CONTACTS, COUNT_CONTACTS, COUNT_IDENTIFIERS, HAS_CONTACT, PASSWORD,
        REMOVE_CONTACT, REMOVE_IDENTIFIER, SET_NAME, SET_PASSWORD,
    },
    transaction::change,
};

/// Reads the password of an account that exists.
macro_rules! read_password {
    ($connection:ident, $tenant:ident, $user:ident) => {{
        let query = sqlx::query_as(PASSWORD).bind($tenant.as_str()).bind($user.as_str());
        let (hash, mark): (Option<String>, Option<String>) = query.fetch_one(&mut *$connection).await?;
        hash.map(|hash| StoredHash { hash, mark })
    }};
}

impl SqlUsers {
    /// Replaces the hash if the account still has the password with which it was read.
    pub(super) async fn rehash_password(
        &self,
        tenant: &Tenant,
        account: &Account,
        new: &PasswordHash,
    ) -> Result<PasswordUpgrade, StoreError> {
        let (user, mark) = (account.id(), account.current_password_mark());
        let old = account.password_hash().map(PasswordHash::as_str).or(account.foreign_password_hash());
        let rehashed = outcome(change!(self, tenant, user, connection => {
            let stored = read_password!(connection, tenant, user).ok_or(UserError::Unknown)?;
            let found = mark_of(&stored).map_err(UserError::Store)?;
            if mark != Some(found) {
                return Err(UserError::Unknown.into());
            }
            // another login may have replaced it since
            if old == Some(&*stored.hash) {
                let update = sqlx::query(SET_PASSWORD).bind(tenant.as_str()).bind(user.as_str());
                update.bind(new.as_str()).bind(write_mark(found)).execute(&mut *connection).await?;
            }
        }))?;
        Ok(match rehashed {
            AccountChange::Done => PasswordUpgrade::Replaced,
            _ => PasswordUpgrade::PasswordChanged,
        })
    }

    /// Sets the password if the account still has the one with which it was read, and the same contacts.
    pub(super) async fn replace_password(
        &self,
        tenant: &Tenant,
        account: &Account,
        new: &PasswordHash,
    ) -> Result<AccountChange, StoreError> {
        let (user, expected, mark) = (account.id(), account.current_password_mark(), new_mark());
        outcome(change!(self, tenant, user, connection => {
            let found = read_password!(connection, tenant, user).map(|stored| mark_of(&stored)).transpose();
            if found.map_err(UserError::Store)? != expected {
                return Err(UserError::Unknown.into());
            }
            let query = sqlx::query_as(CONTACTS).bind(user.as_str());
            let found: Vec<(String, String, bool)> = query.fetch_all(&mut *connection).await?;
            let is_same = |(contact, verified): (&Contact, bool)| contact_columns(contact).is_some_and(|(kind, text)| {
                found.iter().any(|own| (own.0.as_str(), own.1.as_str(), own.2) == (kind, text, verified))
            });
            if found.len() != account.contacts().count() || !account.contacts().all(is_same) {
                return Err(UserError::Unknown.into());
            }
            let update = sqlx::query(SET_PASSWORD).bind(tenant.as_str()).bind(user.as_str());
            update.bind(new.as_str()).bind(mark.as_deref()).execute(&mut *connection).await?;
        }))
    }

    pub(super) async fn replace_name(
        &self,
        tenant: &Tenant,
        user: &UserId,
        name: Option<&str>,
    ) -> Result<AccountChange, StoreError> {
        outcome(change!(self, tenant, user, connection => {
            let update = sqlx::query(SET_NAME).bind(tenant.as_str()).bind(user.as_str()).bind(name);
            update.execute(&mut *connection).await?;
        }))
    }

    pub(super) async fn replace_contact(
        &self,
        tenant: &Tenant,
        user: &UserId,
        old: Option<&Contact>,
        new: Option<&Contact>,
    ) -> Result<AccountChange, StoreError> {
        let (old, new) = match (columns(old), columns(new)) {
            (Ok(old), Ok(new)) => (old, new),
            (Err(error), _) | (_, Err(error)) => return outcome(Err(error)),
        };
        let identifier = |contact: &str| Identifier::parse(contact).map_err(|_| UserError::OutOfBounds);
        outcome(change!(self, tenant, user, connection => {
            if let Some((kind, contact)) = old {
                let query = sqlx::query_scalar(HAS_CONTACT).bind(user.as_str()).bind(kind).bind(contact);
                let found: i64 = query.fetch_one(&mut *connection).await?;
                if found == 0 {
                    return Err(UserError::Unknown.into());
                }
                let delete = sqlx::query(REMOVE_CONTACT).bind(user.as_str()).bind(kind).bind(contact);
                delete.execute(&mut *connection).await?;
                let delete = sqlx::query(REMOVE_IDENTIFIER).bind(tenant.as_str()).bind(user.as_str());
                let name = identifier(contact)?;
                delete.bind(name.as_str()).execute(&mut *connection).await?;
                if old != new {
                    clear_username!(connection, tenant, user, &name);
                }
            }
            if let Some((kind, contact)) = new {
                let insert = sqlx::query(ADD_IDENTIFIER).bind(tenant.as_str()).bind(user.as_str());
                let added = insert.bind(identifier(contact)?.as_str()).execute(&mut *connection).await?;
                if added.rows_affected() == 0 {
                    return Err(UserError::Taken.into());
                }
                let insert = sqlx::query(ADD_CONTACT).bind(user.as_str()).bind(kind).bind(contact).bind(true);
                insert.execute(&mut *connection).await?;
                let count = sqlx::query_scalar(COUNT_IDENTIFIERS).bind(tenant.as_str()).bind(user.as_str());
                check_count(count.fetch_one(&mut *connection).await?)?;
                check_count(sqlx::query_scalar(COUNT_CONTACTS).bind(user.as_str()).fetch_one(&mut *connection).await?)?;
            }
        }))
    }
}

/// Returns the columns of a contact, if there is one.
fn columns(contact: Option<&Contact>) -> Result<Option<(&'static str, &str)>, UserError> {
    contact.map(|contact| contact_columns(contact).ok_or(UserError::OutOfBounds)).transpose()
}

/// Translates the outcome of a change.
pub(super) fn outcome(changed: Result<(), UserError>) -> Result<AccountChange, StoreError> {
    match changed {
        Ok(()) => Ok(AccountChange::Done),
        Err(UserError::Taken | UserError::Exists) => Ok(AccountChange::Taken),
        Err(UserError::Unknown) => Ok(AccountChange::Outdated),
        Err(UserError::OutOfBounds) => Ok(AccountChange::OutOfBounds),
        Err(UserError::Store(error)) => Err(error),
        Err(_) => Err(StoreErrorKind::TooLarge.into()),
    }
}
