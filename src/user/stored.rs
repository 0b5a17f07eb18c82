use std::sync::Arc;

use super::{
    Account, Contact, Identifier, NewUser, UserError, Users,
    account::OwnContact,
    decoy,
    names::FOREVER,
    row::{Name, Owner, Row},
};
use crate::{
    password::PasswordHash,
    session::UserId,
    store::{
        AnyStore, StoreError, WriteOutcome,
        table::{Change, Table},
    },
    tenant::Tenant,
    util::clock::{Clock, SystemClock},
};

/// Accounts in a store: the [`Users`] of an app that has none of its own.
///
/// Clones are one. Accounts belong to a tenant; the same id or name in another
/// is another's (where tokens are issued, see [`UserId`]). Names are kept as digests, contacts as they are. They are
/// written to live until the year 2554.
///
/// Dropping a call, or an error of the store, leaves open how far a change got;
/// no name ever finds an account that it was not given to, and none is lost for
/// others. An account may then have some of the names that it was to have: give
/// them again, or [`remove`](Self::remove) it.
#[derive(Clone, Debug)]
#[must_use]
pub struct StoredUsers {
    store: AnyStore,
    pub(super) rows: Table<Row>,
    pub(super) names: Table<Owner>,
}

impl StoredUsers {
    /// The accounts in this store.
    pub fn new(store: impl Into<AnyStore>) -> Self {
        Self::assemble(store.into(), Arc::new(SystemClock::new()))
    }

    fn assemble(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        let rows = Table::new(store.clone(), "users", Arc::clone(&clock));
        let names = Table::new(store.clone(), "user_names", clock);
        Self { store, rows, names }
    }

    /// Tells the time by this clock.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self::assemble(self.store, Arc::new(clock))
    }

    /// Makes an account. Refused if there is one with its id, or if another has
    /// one of its names.
    pub async fn create(&self, tenant: &Tenant, new: NewUser) -> Result<UserId, UserError> {
        let (row, user) = (Row::new(&new)?, new.account.id().clone());
        // so that a name that has been taken for long leaves no trace
        for name in &row.names {
            if self.is_others(tenant, name, &user).await? {
                return Err(UserError::Taken);
            }
        }
        match self.rows.insert(Some(tenant), user.as_str().as_bytes(), &row, FOREVER).await? {
            WriteOutcome::Done(_) => {}
            WriteOutcome::Lost(_) => return Err(UserError::Exists),
        }
        let mut held = Vec::new();
        for name in &row.names {
            match self.claim(tenant, name, &user).await? {
                Some(stored) => held.push((*name, stored)),
                None => {
                    self.unmake(tenant, &user, row.born).await?;
                    self.release(tenant, &held).await;
                    return Err(UserError::Taken);
                }
            }
        }
        Ok(user)
    }

    /// Removes the account that was born so, and not another of its id.
    async fn unmake(&self, tenant: &Tenant, user: &UserId, born: u64) -> Result<(), StoreError> {
        let end = |row: Option<&Row>, now| match row {
            Some(row) if row.born == born => Change::Put(row.clone(), now, ()),
            _ => Change::Keep(()),
        };
        self.rows.update(Some(tenant), user.as_str().as_bytes(), end).await
    }

    /// The account with this id.
    pub async fn get(&self, tenant: &Tenant, user: &UserId) -> Result<Option<Account>, StoreError> {
        Ok(self.row(tenant, user).await?.map(|row| row.into_account(user.clone())))
    }

    /// Says how the user is called, as applications may show it: the claims `name` and `preferred_username` of OpenID
    /// Connect, each in 1 to 320 bytes.
    pub async fn set_names(
        &self,
        tenant: &Tenant,
        user: &UserId,
        name: Option<&str>,
        username: Option<&str>,
    ) -> Result<(), UserError> {
        self.change(tenant, user, |row| row.call(name, username)).await
    }

    /// Gives the account another password, or none. Logins that are under way by
    /// the old one get no code; sessions that have begun go on, and so do tokens:
    /// [`Sessions::revoke_user`](crate::Sessions::revoke_user) ends the sessions,
    /// `Tokens::revoke_user` (feature `tokens`) the tokens.
    pub async fn set_password(
        &self,
        tenant: &Tenant,
        user: &UserId,
        hash: Option<PasswordHash>,
    ) -> Result<(), UserError> {
        self.change(tenant, user, |row| {
            row.password.clone_from(&hash);
            Ok(())
        })
        .await
    }

    /// Gives the account one more name.
    pub async fn add_identifier(
        &self,
        tenant: &Tenant,
        user: &UserId,
        identifier: &Identifier,
    ) -> Result<(), UserError> {
        let name = Name::of(identifier);
        if self.is_others(tenant, &name, user).await? {
            return Err(UserError::Taken);
        }
        self.change(tenant, user, |row| row.list(name)).await?;
        if self.claim(tenant, &name, user).await?.is_none() {
            self.unlist(tenant, user, name).await?;
            return Err(UserError::Taken);
        }
        Ok(())
    }

    /// Takes a name from the account, if it has it; as its username too.
    pub async fn remove_identifier(
        &self,
        tenant: &Tenant,
        user: &UserId,
        identifier: &Identifier,
    ) -> Result<(), UserError> {
        let name = Name::of(identifier);
        let held = self.held(tenant, &name, user).await?;
        self.change(tenant, user, |row| {
            row.strike(&name);
            Ok(())
        })
        .await?;
        self.release(tenant, &Vec::from_iter(held.map(|stored| (name, stored)))).await;
        Ok(())
    }

    async fn unlist(&self, tenant: &Tenant, user: &UserId, name: Name) -> Result<(), UserError> {
        self.change(tenant, user, |row| {
            row.names.retain(|listed| *listed != name);
            Ok(())
        })
        .await
    }

    /// Gives the account one more contact, which the user only claims.
    pub async fn add_contact(&self, tenant: &Tenant, user: &UserId, contact: Contact) -> Result<(), UserError> {
        let new = OwnContact { contact, verified: false };
        self.change(tenant, user, |row| row.put(&new)).await
    }

    /// Notes that a contact was proved to be the user's, and adds it where the
    /// account does not have it.
    pub async fn verify_contact(&self, tenant: &Tenant, user: &UserId, contact: Contact) -> Result<(), UserError> {
        let new = OwnContact { contact, verified: true };
        self.change(tenant, user, |row| row.put(&new)).await
    }

    /// Takes a contact from the account, if it has it.
    pub async fn remove_contact(&self, tenant: &Tenant, user: &UserId, contact: &Contact) -> Result<(), UserError> {
        self.change(tenant, user, |row| {
            row.contacts.retain(|own| own.contact != *contact);
            Ok(())
        })
        .await
    }

    /// From now on nobody can sign in to the account, or trade a refresh token of
    /// it. Sessions that have begun go on, and access tokens to their end:
    /// [`Sessions::revoke_user`](crate::Sessions::revoke_user) ends the sessions,
    /// `Tokens::revoke_user` (feature `tokens`) the tokens.
    pub async fn disable(&self, tenant: &Tenant, user: &UserId) -> Result<(), UserError> {
        self.set_disabled(tenant, user, true).await
    }

    /// Undoes [`disable`](Self::disable).
    pub async fn enable(&self, tenant: &Tenant, user: &UserId) -> Result<(), UserError> {
        self.set_disabled(tenant, user, false).await
    }

    async fn set_disabled(&self, tenant: &Tenant, user: &UserId, disabled: bool) -> Result<(), UserError> {
        self.change(tenant, user, |row| {
            row.disabled = disabled;
            Ok(())
        })
        .await
    }

    /// Removes the account. Its names can be had by others then.
    pub async fn remove(&self, tenant: &Tenant, user: &UserId) -> Result<(), UserError> {
        let Some(row) = self.row(tenant, user).await? else { return Err(UserError::Unknown) };
        let mut held = Vec::new();
        for name in &row.names {
            held.extend(self.held(tenant, name, user).await?.map(|stored| (*name, stored)));
        }
        self.unmake(tenant, user, row.born).await?;
        self.release(tenant, &held).await;
        Ok(())
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
                Ok(()) => Change::Put(row, FOREVER, Ok(())),
                Err(error) => Change::Keep(Err(error)),
            }
        };
        self.rows.update(Some(tenant), user.as_str().as_bytes(), change).await?
    }
}

impl Users for StoredUsers {
    /// Two reads, whether the name is known or not, and as much to make out of them.
    async fn find(&self, tenant: &Tenant, identifier: &Identifier) -> Result<Option<Account>, StoreError> {
        let name = Name::of(identifier);
        let owner = self.names.get(Some(tenant), name.as_bytes()).wait().await?.map(|stored| stored.value.0);
        if owner.is_none() {
            decoy::owner();
        }
        // of nobody's name, the second read is of a row that can't be there
        let id = owner.as_ref().map_or(&name.as_bytes()[..], |user| user.as_str().as_bytes());
        let row = self.rows.get(Some(tenant), id).wait().await?.map(|stored| stored.value);
        if row.is_none() {
            decoy::account(&name);
        }
        Ok(owner.zip(row.filter(|row| row.lists(&name))).map(|(user, row)| row.into_account(user)))
    }

    async fn upgrade_password(
        &self,
        tenant: &Tenant,
        user: &UserId,
        old: &PasswordHash,
        new: PasswordHash,
    ) -> Result<(), StoreError> {
        let upgrade = |row: Option<&Row>, _| match row {
            Some(row) if row.password.as_ref().is_some_and(|stored| stored.as_str() == old.as_str()) => {
                Change::Put(Row { password: Some(new.clone()), ..row.clone() }, FOREVER, ())
            }
            _ => Change::Keep(()),
        };
        self.rows.update(Some(tenant), user.as_str().as_bytes(), upgrade).await
    }
}
