//! Changes to accounts.

use tollgate::{
    Identifier, NewUser, Secret, Tenant, UserId,
    client::Scopes,
    password::{PasswordHash, PasswordMark},
    user::{Claims, Contact, UserError},
};

use super::{
    SqlUsers,
    failure::instead_of_duplicate,
    row::{contact_columns, read_claims, write_mark},
    statements::{
        ADD_CONTACT, ADD_IDENTIFIER, CLAIMS, COUNT_CONTACTS, COUNT_IDENTIFIERS, CREATE, REMOVE_CLAIM, REMOVE_CONTACT,
        REMOVE_IDENTIFIER, SET_CLAIM, SET_DISABLED, SET_EXTERNAL_PASSWORD, SET_NAMES, SET_PASSWORD, WAS_REMOVED,
    },
    transaction::{change, in_transaction},
};

/// The maximum number of identifiers, and of contacts, of an account.
const MOST: i64 = 16;

/// Clears the username if it is this identifier, which another user may get next.
macro_rules! clear_username {
    ($connection:ident, $tenant:ident, $user:ident, $identifier:expr) => {
        let find = sqlx::query_scalar($crate::users::statements::USERNAME).bind($tenant.as_str()).bind($user.as_str());
        let username: Option<String> = find.fetch_one(&mut *$connection).await?;
        if username.is_some_and(|username| Identifier::parse(username).is_ok_and(|own| own == *$identifier)) {
            let update =
                sqlx::query($crate::users::statements::CLEAR_USERNAME).bind($tenant.as_str()).bind($user.as_str());
            update.execute(&mut *$connection).await?;
        }
    };
}
pub(super) use clear_username;

impl SqlUsers {
    /// Creates an account.
    ///
    /// # Errors
    ///
    /// Returns [`UserError::Exists`] if an account of any tenant has the id, or had it before it was removed, and
    /// [`UserError::Taken`] if another account of this tenant has one of the identifiers.
    pub async fn create(&self, tenant: &Tenant, new: NewUser) -> Result<UserId, UserError> {
        let account = new.account();
        check_names([account.display_name(), account.preferred_username()])?;
        let mut identifiers: Vec<&str> = new.identifiers().iter().map(Identifier::as_str).collect();
        // in one order, so that two calls with the same identifiers never wait for each other in a circle
        identifiers.sort_unstable();
        identifiers.dedup();
        if count(identifiers.len()) > MOST || count(account.contacts().count()) > MOST {
            return Err(UserError::OutOfBounds);
        }
        let (id, hash) = (account.id().as_str(), account.password_hash().map(PasswordHash::as_str));
        let mark = hash.and_then(|_| new_mark());
        in_transaction!(self.database, connection => {
            let insert = sqlx::query(CREATE).bind(tenant.as_str()).bind(id).bind(account.display_name());
            let insert = insert.bind(account.preferred_username()).bind(hash).bind(mark.as_deref());
            let insert = insert.bind(account.is_disabled()).bind(self.seconds());
            insert.execute(&mut *connection).await.map_err(instead_of_duplicate(UserError::Exists))?;
            let removed: i64 = sqlx::query_scalar(WAS_REMOVED).bind(id).fetch_one(&mut *connection).await?;
            if removed > 0 {
                return Err(UserError::Exists.into());
            }
            for identifier in &identifiers {
                let insert = sqlx::query(ADD_IDENTIFIER).bind(tenant.as_str()).bind(id).bind(*identifier);
                if insert.execute(&mut *connection).await?.rows_affected() == 0 {
                    return Err(UserError::Taken.into());
                }
            }
            for (contact, is_verified) in account.contacts() {
                let (kind, contact) = contact_columns(contact).ok_or(UserError::OutOfBounds)?;
                let insert = sqlx::query(ADD_CONTACT).bind(id).bind(kind).bind(contact).bind(is_verified);
                insert.execute(&mut *connection).await?;
            }
            // clients get each claim with the scope of its name
            for (name, value) in new.invitation_claims().into_iter().flatten() {
                let insert = sqlx::query(SET_CLAIM).bind(id).bind(name).bind(name).bind(value.to_string());
                insert.execute(&mut *connection).await?;
            }
        })?;
        Ok(account.id().clone())
    }

    /// Sets the displayed names of the user, each 1 to 320 bytes: the OpenID Connect claims `name` and
    /// `preferred_username`.
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
        check_names([name, username])?;
        change!(self, tenant, user, connection => {
            let update = sqlx::query(SET_NAMES).bind(tenant.as_str()).bind(user.as_str()).bind(name).bind(username);
            update.execute(&mut *connection).await?;
        })
    }

    /// Sets or removes the password, and gives it a new [mark](PasswordMark).
    ///
    /// Everything that needs the old password ends at its next use: logins, sessions, codes and tokens. Call
    /// `AuthService::credential_changed` to end the sessions at once, `AuthService::password_changed` to do so except
    /// for the one in which the user made the change, or `AuthService::end_user` to end everything.
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
        let hash = hash.as_ref().map(PasswordHash::as_str);
        let mark = hash.and_then(|_| new_mark());
        change!(self, tenant, user, connection => {
            let update = sqlx::query(SET_PASSWORD).bind(tenant.as_str()).bind(user.as_str());
            update.bind(hash).bind(mark.as_deref()).execute(&mut *connection).await?;
        })
    }

    /// Sets whether the account has a password that your own `Users::verify_password` checks elsewhere, such as with LDAP. See
    /// [`Account::external_password`](tollgate::user::Account::external_password).
    ///
    /// # Errors
    ///
    /// Returns an error if the account does not exist.
    pub async fn set_external_password(
        &self,
        tenant: &Tenant,
        user: &UserId,
        is_external: bool,
    ) -> Result<(), UserError> {
        change!(self, tenant, user, connection => {
            let update = sqlx::query(SET_EXTERNAL_PASSWORD).bind(tenant.as_str()).bind(user.as_str());
            update.bind(is_external).execute(&mut *connection).await?;
        })
    }

    /// Adds an identifier.
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
        change!(self, tenant, user, connection => {
            let insert = sqlx::query(ADD_IDENTIFIER).bind(tenant.as_str()).bind(user.as_str());
            if insert.bind(identifier.as_str()).execute(&mut *connection).await?.rows_affected() == 0 {
                return Err(UserError::Taken.into());
            }
            let count = sqlx::query_scalar(COUNT_IDENTIFIERS).bind(tenant.as_str()).bind(user.as_str());
            check_count(count.fetch_one(&mut *connection).await?)?;
        })
    }

    /// Removes an identifier, if the account has it. If it is also the account's username, removes that, too.
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
        change!(self, tenant, user, connection => {
            let delete = sqlx::query(REMOVE_IDENTIFIER).bind(tenant.as_str()).bind(user.as_str());
            delete.bind(identifier.as_str()).execute(&mut *connection).await?;
            clear_username!(connection, tenant, user, identifier);
        })
    }

    /// Adds a contact that the user has not proved to own.
    ///
    /// # Errors
    ///
    /// Returns an error if the account does not exist, or has 16 contacts already.
    pub async fn add_contact(&self, tenant: &Tenant, user: &UserId, contact: Contact) -> Result<(), UserError> {
        self.put_contact(tenant, user, &contact, false).await
    }

    /// Marks a contact as proved, and adds it if the account does not have it.
    ///
    /// # Errors
    ///
    /// Returns an error if the account does not exist, or has 16 contacts already.
    pub async fn verify_contact(&self, tenant: &Tenant, user: &UserId, contact: Contact) -> Result<(), UserError> {
        self.put_contact(tenant, user, &contact, true).await
    }

    async fn put_contact(
        &self,
        tenant: &Tenant,
        user: &UserId,
        contact: &Contact,
        is_verified: bool,
    ) -> Result<(), UserError> {
        let (kind, contact) = contact_columns(contact).ok_or(UserError::OutOfBounds)?;
        change!(self, tenant, user, connection => {
            let insert = sqlx::query(ADD_CONTACT).bind(user.as_str()).bind(kind).bind(contact).bind(is_verified);
            insert.execute(&mut *connection).await?;
            check_count(sqlx::query_scalar(COUNT_CONTACTS).bind(user.as_str()).fetch_one(&mut *connection).await?)?;
        })
    }

    /// Removes a contact, if the account has it. Call `AuthService::credential_changed` afterwards, to end at once what
    /// depends on it.
    ///
    /// # Errors
    ///
    /// Returns an error if the account does not exist.
    pub async fn remove_contact(&self, tenant: &Tenant, user: &UserId, contact: &Contact) -> Result<(), UserError> {
        let (kind, contact) = contact_columns(contact).ok_or(UserError::OutOfBounds)?;
        change!(self, tenant, user, connection => {
            let delete = sqlx::query(REMOVE_CONTACT).bind(user.as_str()).bind(kind).bind(contact);
            delete.execute(&mut *connection).await?;
        })
    }

    /// Sets a claim that clients with this scope get, in tokens and from `/userinfo`. `value` is JSON; `null` removes the
    /// claim.
    ///
    /// # Errors
    ///
    /// Returns an error if the account does not exist, and [`UserError::OutOfBounds`] if `scope` is not the name of a scope, or
    /// if [`Claims`] do not accept the claim. All claims of the account together take at most [`Claims::MAX_BYTES`].
    pub async fn set_claim(
        &self,
        tenant: &Tenant,
        user: &UserId,
        scope: &str,
        name: &str,
        value: &serde_json::Value,
    ) -> Result<(), UserError> {
        Claims::new().insert(name, value).map_err(|_| UserError::OutOfBounds)?;
        if scope.contains(' ') || Scopes::parse(scope).is_err() {
            return Err(UserError::OutOfBounds);
        }
        let text = value.to_string();
        change!(self, tenant, user, connection => {
            let query = if value.is_null() {
                sqlx::query(REMOVE_CLAIM).bind(user.as_str()).bind(name)
            } else {
                sqlx::query(SET_CLAIM).bind(user.as_str()).bind(name).bind(scope).bind(&text)
            };
            query.execute(&mut *connection).await?;
            // a client that has all scopes gets all of them
            let all = sqlx::query_as(CLAIMS).bind(user.as_str()).fetch_all(&mut *connection).await?;
            read_claims(all, |_| true).map_err(|_| UserError::OutOfBounds)?;
        })
    }

    /// Disables the account: its user can no longer sign in or use a refresh token.
    ///
    /// Sessions continue, and so do access tokens until they expire. To end both, call
    /// [`AuthService::end_user`](tollgate::AuthService::end_user) afterwards. Passkeys, authenticator apps and links stay.
    /// They count again once the account is enabled.
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

    async fn set_disabled(&self, tenant: &Tenant, user: &UserId, is_disabled: bool) -> Result<(), UserError> {
        change!(self, tenant, user, connection => {
            let update = sqlx::query(SET_DISABLED).bind(tenant.as_str()).bind(user.as_str()).bind(is_disabled);
            update.execute(&mut *connection).await?;
        })
    }
}

/// Returns the mark of a new password, as a column.
pub(super) fn new_mark() -> Option<String> {
    write_mark(PasswordMark::of_version(Secret::generate().expose()))
}

fn count(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

pub(super) fn check_count(count: i64) -> Result<(), UserError> {
    if count > MOST { Err(UserError::OutOfBounds) } else { Ok(()) }
}

/// PostgreSQL can't store a zero byte.
fn check_names(names: [Option<&str>; 2]) -> Result<(), UserError> {
    let is_name = |text: &str| (1..=Identifier::MAX_LEN).contains(&text.len()) && !text.contains('\0');
    if names.into_iter().flatten().all(is_name) { Ok(()) } else { Err(UserError::OutOfBounds) }
}
