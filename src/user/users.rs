use std::{any::type_name, fmt, future::Future, sync::Arc};

use super::{Account, Identifier};
use crate::{
    password::PasswordHash,
    session::UserId,
    store::{BoxFuture, StoreError},
    tenant::Tenant,
};

/// The accounts of the app. The module docs show one in full.
///
/// What the login relies on:
///
/// - An identifier is any name that the person may type: a username, an e-mail
///   address, a phone number. All that belong to one person find one account;
///   none finds two.
/// - The id of an account is that of no other, in no tenant of the issuer: it is
///   the `sub` of tokens.
/// - A name that is known and one that is not cost the same: what is asked of a
///   database first (an index, say) decides whether strangers can tell by the
///   time who has an account. Ask the same questions in both cases. Hashing is
///   not done here, and is the same already.
/// - An account that is disabled is found, and says so. Its answer is then that
///   of a wrong password.
/// - An error is for what failed; nobody of that name is `Ok(None)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not know the users",
    note = "implement `tollgate::Users` for it, or use `tollgate::StoredUsers`"
)]
pub trait Users: Send + Sync + 'static {
    /// The account that this name belongs to.
    fn find(
        &self,
        tenant: &Tenant,
        identifier: &Identifier,
    ) -> impl Future<Output = Result<Option<Account>, StoreError>> + Send;

    /// Replaces a hash by a better one of the same password, which its user has
    /// just proved to know: only while `old` is still what stands there, for
    /// the user may be changing the password at this moment.
    ///
    /// If this does nothing, hashes stay as weak as they are.
    fn upgrade_password(
        &self,
        tenant: &Tenant,
        user: &UserId,
        old: &PasswordHash,
        new: PasswordHash,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let _ = (tenant, user, old, new);
        async { Ok(()) }
    }
}

impl<U: Users> Users for Arc<U> {
    async fn find(&self, tenant: &Tenant, identifier: &Identifier) -> Result<Option<Account>, StoreError> {
        (**self).find(tenant, identifier).await
    }

    async fn upgrade_password(
        &self,
        tenant: &Tenant,
        user: &UserId,
        old: &PasswordHash,
        new: PasswordHash,
    ) -> Result<(), StoreError> {
        (**self).upgrade_password(tenant, user, old, new).await
    }
}

/// Any [`Users`], its type forgotten; clones are the same.
#[derive(Clone)]
pub struct AnyUsers(Arc<dyn DynUsers>);

impl AnyUsers {
    /// See [`Users::find`].
    pub async fn find(&self, tenant: &Tenant, identifier: &Identifier) -> Result<Option<Account>, StoreError> {
        self.0.find(tenant, identifier).await
    }

    /// See [`Users::upgrade_password`].
    pub async fn upgrade_password(
        &self,
        tenant: &Tenant,
        user: &UserId,
        old: &PasswordHash,
        new: PasswordHash,
    ) -> Result<(), StoreError> {
        self.0.upgrade_password(tenant, user, old, new).await
    }
}

impl<U: Users> From<U> for AnyUsers {
    fn from(users: U) -> Self {
        Self(Arc::new(users))
    }
}

impl fmt::Debug for AnyUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyUsers").field(&self.0.name()).finish()
    }
}

/// [`Users`] as an object.
trait DynUsers: Send + Sync {
    fn find<'a>(
        &'a self,
        tenant: &'a Tenant,
        identifier: &'a Identifier,
    ) -> BoxFuture<'a, Result<Option<Account>, StoreError>>;
    fn upgrade_password<'a>(
        &'a self,
        tenant: &'a Tenant,
        user: &'a UserId,
        old: &'a PasswordHash,
        new: PasswordHash,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
    fn name(&self) -> &'static str;
}

impl<U: Users> DynUsers for U {
    fn find<'a>(
        &'a self,
        tenant: &'a Tenant,
        identifier: &'a Identifier,
    ) -> BoxFuture<'a, Result<Option<Account>, StoreError>> {
        Box::pin(Users::find(self, tenant, identifier))
    }

    fn upgrade_password<'a>(
        &'a self,
        tenant: &'a Tenant,
        user: &'a UserId,
        old: &'a PasswordHash,
        new: PasswordHash,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(Users::upgrade_password(self, tenant, user, old, new))
    }

    fn name(&self) -> &'static str {
        type_name::<U>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::block_on;

    struct OnlyAda;

    impl Users for OnlyAda {
        async fn find(&self, _: &Tenant, identifier: &Identifier) -> Result<Option<Account>, StoreError> {
            let ada = identifier.as_str() == "ada";
            Ok(ada.then(|| Account::new(UserId::parse("u-1").unwrap())))
        }
    }

    #[test]
    fn users_whose_type_is_forgotten_are_the_same_and_need_not_upgrade() {
        let users = AnyUsers::from(Arc::new(OnlyAda)).clone();
        let acme = Tenant::parse("acme").unwrap();
        let ada = block_on(users.find(&acme, &Identifier::parse("Ada").unwrap())).unwrap().unwrap();
        assert!(block_on(users.find(&acme, &Identifier::parse("eve").unwrap())).unwrap().is_none());
        let hash = "$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0";
        let hash = PasswordHash::parse(hash).unwrap();
        block_on(users.upgrade_password(&acme, ada.id(), &hash, hash.clone())).unwrap();
        assert!(format!("{users:?}").contains("OnlyAda"));
    }
}
