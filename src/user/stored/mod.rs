//! Accounts in a store.

// Each module uses only modules listed above it.
mod error;
mod row;
mod index;
mod decoy;
mod users;
#[cfg(test)]
mod model;
#[cfg(test)]
mod races;

use std::sync::Arc;

pub use self::error::UserError;
use self::{
    index::{AccountKey, Claimed, Index, Unique},
    row::{Name, Row},
};
use crate::{
    password::PasswordHash,
    session::UserId,
    store::{AnyStore, StoreError, WriteOutcome, table::Change},
    tenant::Tenant,
    user::{
        account::{NewUser, OwnContact},
        contact::Contact,
        identifier::Identifier,
    },
    util::clock::{Clock, SystemClock, UnixTime},
};

/// User accounts in a [`Store`](crate::store::Store), for applications that have none of their own.
///
/// Accounts belong to a tenant, and so do their identifiers. The id of an account exists in one tenant only, because it
/// becomes the `sub` of tokens. Identifiers are stored as SHA-256 digests, contacts in plain text. Accounts never
/// expire. Clones share the accounts.
///
/// # Failures
///
/// If the store fails or a call is dropped, a change may be incomplete. An identifier still never finds an account that
/// it does not belong to, and no other account loses one. The account may lack some of its new identifiers: add them
/// again, or [`remove`](Self::remove) the account.
#[derive(Clone, Debug)]
pub struct StoredUsers {
    index: Index,
}

impl StoredUsers {
    /// Keeps the accounts in `store`.
    pub fn new(store: impl Into<AnyStore>) -> Self {
        Self::with_clock(store, SystemClock::new())
    }

    /// Keeps the accounts in `store`, and takes the time from `clock`.
    pub fn with_clock(store: impl Into<AnyStore>, clock: impl Clock) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        Self { index: Index::new(&store.into(), &clock) }
    }

    /// Creates an account.
    ///
    /// # Errors
    ///
    /// Returns [`UserError::Exists`] if an account of any tenant has the id, and [`UserError::Taken`] if another
    /// account of this tenant has one of the identifiers.
    pub async fn create(&self, tenant: &Tenant, new: NewUser) -> Result<UserId, UserError> {
        let (row, user) = (Row::new(&new)?, new.account.id().clone());
        let account = AccountKey { tenant, user: &user };
        // checked first, so that an identifier that is taken leaves no trace
        for name in &row.names {
            if self.index.is_taken(account, Unique::Name(*name)).await? {
                return Err(UserError::Taken);
            }
        }
        // claimed before the account is written, so that a crash leaves no account whose id another tenant can take
        if self.index.claim(account, Unique::Id).await?.is_none() {
            return Err(UserError::Exists);
        }
        match self.index.rows.insert(Some(tenant), user.as_str().as_bytes(), &row, UnixTime::FOREVER).await? {
            WriteOutcome::Done(_) => {}
            WriteOutcome::Lost(_) => return Err(UserError::Exists),
        }
        // and claimed again: until now, another tenant could take the id over
        let Some(id) = self.index.claim(account, Unique::Id).await? else {
            self.delete(account, row.instance, &[]).await?;
            return Err(UserError::Exists);
        };
        let mut claimed = vec![id];
        for name in &row.names {
            match self.index.claim(account, Unique::Name(*name)).await? {
                Some(name) => claimed.push(name),
                None => {
                    self.delete(account, row.instance, &claimed).await?;
                    return Err(UserError::Taken);
                }
            }
        }
        Ok(user)
    }

    /// Deletes this account, and not another one that has its id by now, and releases what it had.
    ///
    /// `claimed` must have been read while the account existed. If it is gone already, another account may have claimed
    /// the same again in the meantime, so nothing is released.
    async fn delete(&self, account: AccountKey<'_>, instance: u64, claimed: &[Claimed]) -> Result<(), StoreError> {
        let end = |row: Option<&Row>, _| match row {
            // it has expired by every clock, including those of other nodes that are behind
            Some(row) if row.instance == instance => Change::Put(row.clone(), UnixTime::from_nanos(0), true),
            _ => Change::Keep(false),
        };
        if self.index.rows.update(Some(account.tenant), account.user.as_str().as_bytes(), end).await? {
            self.index.release(account, claimed).await;
        }
        Ok(())
    }

    /// Sets the displayed names of the user, each 1 to 320 bytes: the OpenID Connect claims `name` and
    /// `preferred_username`. `None` removes a name.
    ///
    /// # Errors
    ///
    /// Returns an error if the account does not exist, or if a name is empty or too long.
    pub async fn set_names(
        &self,
        tenant: &Tenant,
        user: &UserId,
        name: Option<&str>,
        username: Option<&str>,
    ) -> Result<(), UserError> {
        self.change(tenant, user, |row| row.set_names(name, username)).await
    }

    /// Sets or removes the password, and gives it a new [mark](crate::password::PasswordMark).
    ///
    /// Everything that needs the old password ends at its next use: logins, sessions, codes and tokens. Call
    /// `AuthService::credential_changed` to end the sessions at once, `AuthService::password_changed` to keep the one in which
    /// the user made the change, or `AuthService::end_user` to end everything.
    ///
    /// # Errors
    ///
    /// Returns an error if the account does not exist.
    pub async fn set_password(
        &self,
        tenant: &Tenant,
        user: &UserId,
        hash: Option<PasswordHash>,
    ) -> Result<(), UserError> {
        self.edit(tenant, user, |row| row.set_password(hash.clone())).await
    }

    /// Adds an identifier. It also repairs an account whose creation was interrupted.
    ///
    /// # Errors
    ///
    /// Returns [`UserError::Taken`] if another account has the identifier. Returns an error if the account does not
    /// exist, or has 16 identifiers already.
    pub async fn add_identifier(
        &self,
        tenant: &Tenant,
        user: &UserId,
        identifier: &Identifier,
    ) -> Result<(), UserError> {
        self.add_name(AccountKey { tenant, user }, Name::from_identifier(identifier), None).await
    }

    /// Adds a name, which may be the 17th for a moment if another one is removed next.
    async fn add_name(&self, account: AccountKey<'_>, name: Name, replaced: Option<Name>) -> Result<(), UserError> {
        let AccountKey { tenant, user } = account;
        if self.index.is_taken(account, Unique::Name(name)).await? {
            return Err(UserError::Taken);
        }
        let list = |row: &mut Row| {
            let place = replaced.and_then(|replaced| row.names.iter().position(|listed| *listed == replaced));
            let replaced = place.map(|place| row.names.swap_remove(place));
            row.list(name)?;
            row.names.extend(replaced);
            Ok(())
        };
        self.change(tenant, user, list).await?;
        let refused = if self.index.claim(account, Unique::Id).await?.is_none() {
            UserError::Exists
        } else if self.index.claim(account, Unique::Name(name)).await?.is_none() {
            UserError::Taken
        } else {
            return Ok(());
        };
        self.edit(tenant, user, |row| row.names.retain(|listed| *listed != name)).await?;
        Err(refused)
    }

    /// Removes an identifier, if the account has it. If it is also the username, removes that, too.
    ///
    /// # Errors
    ///
    /// Returns an error if the account does not exist.
    pub async fn remove_identifier(
        &self,
        tenant: &Tenant,
        user: &UserId,
        identifier: &Identifier,
    ) -> Result<(), UserError> {
        let (account, name) = (AccountKey { tenant, user }, Name::from_identifier(identifier));
        let held = self.index.held(account, Unique::Name(name)).await?;
        self.edit(tenant, user, |row| row.unlist(&name)).await?;
        self.index.release(account, held.as_slice()).await;
        Ok(())
    }

    /// Adds a contact whose ownership the user has not proved.
    ///
    /// # Errors
    ///
    /// Returns an error if the account does not exist, or has 16 contacts already.
    pub async fn add_contact(&self, tenant: &Tenant, user: &UserId, contact: Contact) -> Result<(), UserError> {
        let new = OwnContact { contact, verified: false };
        self.change(tenant, user, |row| row.put(&new)).await
    }

    /// Marks a contact as proved, and adds it if the account does not have it.
    ///
    /// # Errors
    ///
    /// Returns an error if the account does not exist, or has 16 contacts already.
    pub async fn verify_contact(&self, tenant: &Tenant, user: &UserId, contact: Contact) -> Result<(), UserError> {
        let new = OwnContact { contact, verified: true };
        self.change(tenant, user, |row| row.put(&new)).await
    }

    /// Removes a contact, if the account has it.
    ///
    /// # Errors
    ///
    /// Returns an error if the account does not exist.
    pub async fn remove_contact(&self, tenant: &Tenant, user: &UserId, contact: &Contact) -> Result<(), UserError> {
        self.edit(tenant, user, |row| row.contacts.retain(|own| own.contact != *contact)).await
    }

    /// Disables the account: its user can no longer sign in or use a refresh token.
    ///
    /// Sessions continue, and so do access tokens until they expire. To end both, call
    /// [`AuthService::end_user`](crate::AuthService::end_user) afterwards. Passkeys, authenticator apps and links stay.
    /// They work again once the account is enabled.
    ///
    /// # Errors
    ///
    /// Returns an error if the account does not exist.
    pub async fn disable(&self, tenant: &Tenant, user: &UserId) -> Result<(), UserError> {
        self.set_disabled(tenant, user, true).await
    }

    /// Enables a disabled account.
    ///
    /// # Errors
    ///
    /// Returns an error if the account does not exist.
    pub async fn enable(&self, tenant: &Tenant, user: &UserId) -> Result<(), UserError> {
        self.set_disabled(tenant, user, false).await
    }

    async fn set_disabled(&self, tenant: &Tenant, user: &UserId, disabled: bool) -> Result<(), UserError> {
        self.edit(tenant, user, |row| row.disabled = disabled).await
    }

    /// Removes the account. Other accounts can then use its identifiers and its id.
    ///
    /// Call [`AuthService::forget_user`](crate::AuthService::forget_user) afterwards. It ends the sessions and tokens of the
    /// user, and deletes what the user has enrolled. Otherwise, passkeys, authenticator apps and links of this id sign
    /// in to the next account with the same id.
    ///
    /// # Errors
    ///
    /// Returns an error if the account does not exist.
    pub async fn remove(&self, tenant: &Tenant, user: &UserId) -> Result<(), UserError> {
        let account = AccountKey { tenant, user };
        let Some(row) = self.index.row(account).await? else { return Err(UserError::Unknown) };
        let mut held = Vec::new();
        for unique in row.names.iter().copied().map(Unique::Name).chain([Unique::Id]) {
            held.extend(self.index.held(account, unique).await?);
        }
        Ok(self.delete(account, row.instance, &held).await?)
    }

    async fn edit(&self, tenant: &Tenant, user: &UserId, edit: impl Fn(&mut Row) + Send) -> Result<(), UserError> {
        let edit = move |row: &mut Row| {
            edit(row);
            Ok(())
        };
        self.change(tenant, user, edit).await
    }

    async fn change(
        &self,
        tenant: &Tenant,
        user: &UserId,
        change: impl Fn(&mut Row) -> Result<(), UserError> + Send,
    ) -> Result<(), UserError> {
        let change = move |row: Option<&Row>, _| {
            let Some(mut row) = row.cloned() else { return Change::Keep(Err(UserError::Unknown)) };
            match change(&mut row) {
                Ok(()) => Change::Put(row, UnixTime::FOREVER, Ok(())),
                Err(error) => Change::Keep(Err(error)),
            }
        };
        self.index.rows.update(Some(tenant), user.as_str().as_bytes(), change).await?
    }
}
