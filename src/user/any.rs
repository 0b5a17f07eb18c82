use std::{any::type_name, fmt, future::Future, sync::Arc, time::Duration};

use tokio::{runtime::Handle, time::timeout};

use super::{
    account::Account,
    attempt::{PasswordAttempt, PasswordCheck, PasswordUpgrade},
    claims::{Claims, ClaimsRequest},
    identifier::Identifier,
    users::Users,
};
use crate::{
    password::PasswordHash,
    session::UserId,
    store::{BoxFuture, StoreError, StoreErrorKind},
    tenant::Tenant,
};

/// The time that a call may take, by default.
const DEADLINE: Duration = Duration::from_secs(10);
/// The time that [`Users::claims`] may take.
const CLAIMS_DEADLINE: Duration = Duration::from_secs(2);

/// Any [`Users`] behind one type. Clones share them.
///
/// A call that fails or exceeds the deadline returns [`StoreErrorKind::Unavailable`]. The error of the call is its
/// [`source`](std::error::Error::source). A [`StoreError`] is passed on unchanged.
#[derive(Clone)]
pub struct AnyUsers {
    users: Arc<dyn DynUsers>,
    deadline: Duration,
}

impl AnyUsers {
    /// Wraps `users` with a deadline for each call. `From` uses 10 seconds. Claims have at most 2 seconds in any case.
    pub fn with_deadline(users: impl Users, deadline: Duration) -> Self {
        Self { users: Arc::new(users), deadline }
    }

    /// See [`Users::find`].
    pub async fn find(&self, tenant: &Tenant, identifier: &Identifier) -> Result<Option<Account>, StoreError> {
        within(self.deadline, self.users.find(tenant, identifier)).await
    }

    /// See [`Users::by_id`].
    pub async fn by_id(&self, tenant: &Tenant, id: &UserId) -> Result<Option<Account>, StoreError> {
        within(self.deadline, self.users.by_id(tenant, id)).await
    }

    /// See [`Users::verify_password`].
    ///
    /// `Right` becomes `Wrong` if the attempt has no account, or if the password is empty or too long. A missing mark is
    /// taken from the account.
    pub async fn verify_password(&self, attempt: PasswordAttempt<'_>) -> Result<PasswordCheck, StoreError> {
        let (account, can_succeed) = (attempt.account(), attempt.can_succeed());
        Ok(match within(self.deadline, self.users.verify_password(attempt)).await? {
            PasswordCheck::Right { mark, upgrade } if can_succeed => {
                let mark = mark.or_else(|| account?.current_password_mark());
                PasswordCheck::Right { mark, upgrade }
            }
            PasswordCheck::Right { .. } => PasswordCheck::Wrong,
            other => other,
        })
    }

    /// See [`Users::upgrade_password`].
    pub async fn upgrade_password(
        &self,
        tenant: &Tenant,
        account: &Account,
        new: PasswordHash,
    ) -> Result<PasswordUpgrade, StoreError> {
        within(self.deadline, self.users.upgrade_password(tenant, account, new)).await
    }

    /// See [`Users::claims`].
    pub async fn claims(
        &self,
        tenant: &Tenant,
        account: &Account,
        request: &ClaimsRequest,
    ) -> Result<Claims, StoreError> {
        within(self.deadline.min(CLAIMS_DEADLINE), self.users.claims(tenant, account, request)).await
    }
}

/// Waits for an answer until the deadline.
async fn within<T>(deadline: Duration, answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match Handle::try_current() {
        Ok(_) => timeout(deadline, answer).await.unwrap_or_else(|_| {
            Err(StoreError::new(StoreErrorKind::Unavailable, "the accounts did not answer in time"))
        }),
        // without a runtime there is no timer
        Err(_) => answer.await,
    }
}

impl<U: Users> From<U> for AnyUsers {
    fn from(users: U) -> Self {
        Self::with_deadline(users, DEADLINE)
    }
}

impl fmt::Debug for AnyUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyUsers").field(&self.users.name()).finish()
    }
}

type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// [`Users`] as an object.
trait DynUsers: Send + Sync {
    fn find<'a>(&'a self, tenant: &'a Tenant, identifier: &'a Identifier) -> Answer<'a, Option<Account>>;
    fn by_id<'a>(&'a self, tenant: &'a Tenant, id: &'a UserId) -> Answer<'a, Option<Account>>;
    fn verify_password<'a>(&'a self, attempt: PasswordAttempt<'a>) -> Answer<'a, PasswordCheck>;
    fn upgrade_password<'a>(
        &'a self,
        tenant: &'a Tenant,
        account: &'a Account,
        new: PasswordHash,
    ) -> Answer<'a, PasswordUpgrade>;
    fn claims<'a>(&'a self, tenant: &'a Tenant, account: &'a Account, request: &'a ClaimsRequest)
    -> Answer<'a, Claims>;
    fn name(&self) -> &'static str;
}

impl<U: Users> DynUsers for U {
    fn find<'a>(&'a self, tenant: &'a Tenant, identifier: &'a Identifier) -> Answer<'a, Option<Account>> {
        boxed(Users::find(self, tenant, identifier))
    }

    fn by_id<'a>(&'a self, tenant: &'a Tenant, id: &'a UserId) -> Answer<'a, Option<Account>> {
        boxed(Users::by_id(self, tenant, id))
    }

    fn verify_password<'a>(&'a self, attempt: PasswordAttempt<'a>) -> Answer<'a, PasswordCheck> {
        boxed(Users::verify_password(self, attempt))
    }

    fn upgrade_password<'a>(
        &'a self,
        tenant: &'a Tenant,
        account: &'a Account,
        new: PasswordHash,
    ) -> Answer<'a, PasswordUpgrade> {
        boxed(Users::upgrade_password(self, tenant, account, new))
    }

    fn claims<'a>(
        &'a self,
        tenant: &'a Tenant,
        account: &'a Account,
        request: &'a ClaimsRequest,
    ) -> Answer<'a, Claims> {
        boxed(Users::claims(self, tenant, account, request))
    }

    fn name(&self) -> &'static str {
        type_name::<U>()
    }
}

fn boxed<'a, T, E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    answer: impl Future<Output = Result<T, E>> + Send + 'a,
) -> Answer<'a, T> {
    Box::pin(async move { answer.await.map_err(|error| store_error(error.into())) })
}

fn store_error(error: Box<dyn std::error::Error + Send + Sync>) -> StoreError {
    match error.downcast::<StoreError>() {
        Ok(error) => *error,
        Err(error) => StoreError::new(StoreErrorKind::Unavailable, error),
    }
}
