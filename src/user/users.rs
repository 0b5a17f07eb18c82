use std::{error::Error, future::Future};

use super::{
    account::{Account, NewUser},
    changes::{AccountChange, NewAccount, OfferedChange},
    claims::{Claims, ClaimsRequest},
    contact::Contact,
    identifier::Identifier,
    password_attempt::{PasswordAttempt, PasswordCheck, PasswordUpgrade},
};
use crate::{password::PasswordHash, session::UserId, store::ScanCursor, tenant::Tenant};

/// A page of a tenant's accounts. A page can be empty without being the last one.
#[derive(Clone, Debug)]
pub struct AccountPage {
    /// The accounts, in no particular order.
    pub accounts: Vec<Account>,
    /// The cursor of the next page, or `None` if this is the last one.
    pub next: Option<ScanCursor>,
}

/// The accounts of your application. The [module docs](super) show an implementation.
///
/// The login service relies on the following:
///
/// - An identifier is any name that the user may type: a username, an e-mail address or a phone number. It finds at
///   most one account, and all identifiers of a user find the same account.
/// - The id of an account never changes. No other account has the same id, in any tenant of the issuer, because it
///   becomes the `sub` of tokens.
/// - Lookups of known and unknown identifiers and ids cost the same. Run the same queries in both cases, so that the
///   time does not reveal who has an account. Passwords are hashed in either case; see [`PasswordAttempt`].
/// - A disabled account is returned as [disabled](Account::disabled). The caller then gets the answer for a wrong
///   password.
/// - An unknown user is `Ok(None)`. An error means that the accounts can't be read now: the caller gets a 503, and the
///   attempt is not counted. The text of the error goes to the log only. A call that takes longer than 10 seconds fails
///   too.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not hold user accounts",
    note = "implement `tollgate::Users` for it, or use `tollgate::StoredUsers`"
)]
pub trait Users: Send + Sync + 'static {
    /// The error of a failed call.
    type Error: Into<Box<dyn Error + Send + Sync>>;

    /// Finds the account behind a username, e-mail address or phone number.
    fn find(
        &self,
        tenant: &Tenant,
        identifier: &Identifier,
    ) -> impl Future<Output = Result<Option<Account>, Self::Error>> + Send;

    /// Finds an account by its id.
    fn by_id(&self, tenant: &Tenant, id: &UserId) -> impl Future<Output = Result<Option<Account>, Self::Error>> + Send;

    /// Checks a password.
    ///
    /// Defaults to [`PasswordAttempt::argon2`]. Override it for other hashes with [`PasswordAttempt::blocking`], or to
    /// ask another system, such as LDAP. In the latter case, make sure that unknown users take as long as known ones,
    /// and mark the accounts with [`Account::external_password`].
    ///
    /// The answer `Right` is ignored if the password is empty or longer than 1024 bytes, or if the attempt has no
    /// account.
    fn verify_password(
        &self,
        attempt: PasswordAttempt<'_>,
    ) -> impl Future<Output = Result<PasswordCheck, Self::Error>> + Send {
        async move { Ok(attempt.argon2().await) }
    }

    /// Replaces the hash of a password with a stronger one, after the user has proved that they know the password.
    ///
    /// `account` is the account as it was when the password was checked. Replace the hash only if it is still the same:
    /// `UPDATE users SET hash = $new WHERE id = $id AND hash = $old`. If it is not, the password was changed in the
    /// meantime: return [`PasswordUpgrade::PasswordChanged`], and the login fails. For accounts with a
    /// [mark](Account::password_mark), compare the mark instead, and keep it.
    ///
    /// Defaults to [`PasswordUpgrade::NotSupported`], which leaves weak hashes as they are. An error does not fail the
    /// login: the next one tries again.
    fn upgrade_password(
        &self,
        tenant: &Tenant,
        account: &Account,
        new: PasswordHash,
    ) -> impl Future<Output = Result<PasswordUpgrade, Self::Error>> + Send {
        let _ = (tenant, account, new);
        async { Ok(PasswordUpgrade::NotSupported) }
    }

    /// Returns extra claims for tokens and `/userinfo`. Defaults to none. A call that takes longer than 2 seconds
    /// fails.
    fn claims(
        &self,
        tenant: &Tenant,
        account: &Account,
        request: &ClaimsRequest,
    ) -> impl Future<Output = Result<Claims, Self::Error>> + Send {
        let _ = (tenant, account, request);
        async { Ok(Claims::new()) }
    }

    /// Returns a page of a tenant's accounts, starting at `cursor` or at the first account, for operators and exports.
    /// No login needs it.
    ///
    /// An account that exists from the first page to the last appears at least once. Defaults to `None`: not offered.
    fn list(
        &self,
        tenant: &Tenant,
        cursor: Option<ScanCursor>,
    ) -> impl Future<Output = Result<Option<AccountPage>, Self::Error>> + Send {
        let _ = (tenant, cursor);
        async { Ok(None) }
    }

    /// Returns whether users can make this change themselves. The pages and calls of the login service depend on this.
    /// Defaults to `false`. Return `true` for each of the following methods that you implement.
    fn offers(&self, change: OfferedChange) -> bool {
        let _ = change;
        false
    }

    /// Creates an account for a user who has proved ownership of its contacts, and returns its id. The [`id`](Account::id) in
    /// `new` is random; you can use one of your own.
    ///
    /// Create the account with all of its identifiers or not at all: of two concurrent calls for one identifier, one
    /// must return [`NewAccount::Taken`]. Store the [claims of the invitation](NewUser::invitation_claims) if there are
    /// any. After an error, the user can try again with the same proof or invitation.
    ///
    /// Defaults to [`NewAccount::NotOffered`].
    fn create(&self, tenant: &Tenant, new: NewUser) -> impl Future<Output = Result<NewAccount, Self::Error>> + Send {
        let _ = (tenant, new);
        async { Ok(NewAccount::NotOffered) }
    }

    /// Sets the password of an account, and gives it a new [mark](Account::password_mark) if it has one. Proofs by the old
    /// password then no longer count.
    ///
    /// `account` is the account as it was when the user proved who they are. Set the password only if the account still has
    /// the same mark or hash, or still has no password: `UPDATE users SET hash = $new WHERE id = $id AND hash IS NOT DISTINCT
    /// FROM $old`. If users can change contacts, it must also have the same contacts, one of which may have proved who the user
    /// is. Otherwise, return [`AccountChange::Outdated`].
    ///
    /// Defaults to [`AccountChange::NotOffered`].
    fn set_password(
        &self,
        tenant: &Tenant,
        account: &Account,
        new: PasswordHash,
    ) -> impl Future<Output = Result<AccountChange, Self::Error>> + Send {
        let _ = (tenant, account, new);
        async { Ok(AccountChange::NotOffered) }
    }

    /// Sets or removes the full name of a user. The name is known to have 1 to 320 bytes.
    ///
    /// Defaults to [`AccountChange::NotOffered`].
    fn set_name(
        &self,
        tenant: &Tenant,
        id: &UserId,
        name: Option<&str>,
    ) -> impl Future<Output = Result<AccountChange, Self::Error>> + Send {
        let _ = (tenant, id, name);
        async { Ok(AccountChange::NotOffered) }
    }

    /// Replaces the contact `old` with `new`, whose ownership the user has proved. Without `old`, adds a contact.
    /// Without `new`, removes one.
    ///
    /// Change everything in one step: the new contact also becomes an identifier of the account, and the old one no
    /// longer is. Return [`AccountChange::Taken`] if another account has the new identifier,
    /// [`AccountChange::Outdated`] if the account no longer has the contact `old`, and [`AccountChange::OutOfBounds`]
    /// if it can't have another one.
    ///
    /// Defaults to [`AccountChange::NotOffered`].
    fn set_contact(
        &self,
        tenant: &Tenant,
        id: &UserId,
        old: Option<&Contact>,
        new: Option<&Contact>,
    ) -> impl Future<Output = Result<AccountChange, Self::Error>> + Send {
        let _ = (tenant, id, old, new);
        async { Ok(AccountChange::NotOffered) }
    }

    /// Deletes an account. The login service itself ends what the user has begun, and deletes what the user has
    /// enrolled. Don't reuse the id for another account.
    ///
    /// Defaults to [`AccountChange::NotOffered`].
    fn remove(&self, tenant: &Tenant, id: &UserId) -> impl Future<Output = Result<AccountChange, Self::Error>> + Send {
        let _ = (tenant, id);
        async { Ok(AccountChange::NotOffered) }
    }
}
