//! The accounts that logins, sessions and codes belong to.

use std::sync::Arc;

use crate::{
    client::Client,
    login::BoundUser,
    session::{ClaimsResult, ClaimsSource, Generations, Session, UserBatch, UserId},
    store::{BoxFuture, StoreError, StoreErrorKind},
    tenant::Tenant,
    user::{Account, AnyUsers, ClaimsRequest, Identifier},
};

/// Finds accounts together with the generation of their user.
#[derive(Clone, Debug)]
pub(crate) struct Accounts {
    users: AnyUsers,
    generations: Generations,
}

/// The result of a lookup. Known and unknown users cost the same number of operations.
#[derive(Debug)]
pub(crate) struct FoundAccount {
    account: Option<Account>,
    /// `None` until it is read, together with other rows.
    pub(crate) generation: Option<u64>,
}

/// Where the generation of a user is compared with that of their proofs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GenerationOf {
    /// It is read after the account.
    Account,
    /// A batch of this request compares it.
    Batch,
}

/// The id that is looked up if there is no user, so that the work is the same.
const UNKNOWN_USER: &str = "unknown-d41c6a0e7b5f4c3f9a2e";

impl Accounts {
    pub(crate) fn new(users: AnyUsers, generations: Generations) -> Self {
        Self { users, generations }
    }

    /// Finds the account behind a name.
    pub(crate) async fn named(&self, tenant: &Tenant, name: &Identifier) -> Result<Option<Account>, StoreError> {
        self.users.find(tenant, name).await
    }

    /// Finds the account of a user. Without a user it looks up an id that does not exist.
    pub(crate) async fn of_user(&self, tenant: &Tenant, user: Option<&UserId>) -> Result<Option<Account>, StoreError> {
        let unknown = unknown_user()?;
        let found = self.users.by_id(tenant, user.unwrap_or(&unknown)).await?;
        Ok(found.filter(|_| user.is_some()))
    }

    /// Begins a batch for a user, or for an unknown one.
    pub(crate) fn batch(&self, tenant: &Tenant, user: Option<&UserId>) -> Result<UserBatch<'_>, StoreError> {
        let unknown = unknown_user()?;
        self.generations.batch(tenant, user.unwrap_or(&unknown))
    }

    /// Reads the generation of the user of this account, or that of an unknown one.
    pub(crate) async fn with_generation(
        &self,
        tenant: &Tenant,
        account: Option<Account>,
    ) -> Result<FoundAccount, StoreError> {
        let unknown = unknown_user()?;
        let user = account.as_ref().map_or(&unknown, Account::id);
        let generation = Some(self.generations.current(tenant, user).wait().await?);
        Ok(FoundAccount { account, generation })
    }

    /// Returns whether a name leads to this account now.
    pub(crate) async fn is_named(
        &self,
        tenant: &Tenant,
        name: &Identifier,
        account: Option<&Account>,
    ) -> Result<bool, StoreError> {
        let found = self.users.find(tenant, name).await?;
        Ok(found.is_some_and(|found| Some(found.id()) == account.map(Account::id)))
    }
}

impl FoundAccount {
    pub(crate) fn without_generation(account: Option<Account>) -> Self {
        Self { account, generation: None }
    }

    /// Returns the id of the account, even if it is disabled.
    pub(crate) fn id(&self) -> Option<&UserId> {
        self.account.as_ref().map(Account::id)
    }

    /// Returns the user with the current generation, even if the account is disabled.
    pub(crate) fn user(&self) -> Option<BoundUser> {
        Some(BoundUser { id: self.id()?.clone(), generation: self.generation() })
    }

    /// Returns the current generation, also for an unknown user.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.unwrap_or_default()
    }

    /// Returns the account if it may sign in.
    pub(crate) fn active(&self) -> Option<&Account> {
        self.account.as_ref().filter(|account| !account.is_disabled())
    }

    pub(crate) fn into_active(self) -> Option<Account> {
        self.account.filter(|account| !account.is_disabled())
    }
}

fn unknown_user() -> Result<UserId, StoreError> {
    UserId::parse(UNKNOWN_USER).map_err(|_| StoreErrorKind::Corrupt.into())
}

/// Returns a name of the user for our own pages, and for authenticators.
pub(crate) fn shown_name(account: &Account) -> &str {
    let name = account.preferred_username().or(account.display_name());
    let contact = || account.contacts().next().map(|(contact, _)| contact.as_str());
    name.or_else(contact).unwrap_or(account.id().as_str())
}

/// Reads the claims of a session's user from the accounts.
pub(crate) struct SessionClaims(pub(crate) AnyUsers);

impl ClaimsSource for SessionClaims {
    fn claims(&self, session: &Session) -> BoxFuture<'static, ClaimsResult> {
        let (users, tenant, user) = (self.0.clone(), session.tenant().clone(), session.user().clone());
        Box::pin(async move {
            // an account that is gone or disabled has no rights
            let account = users.by_id(&tenant, &user).await?.filter(|account| !account.is_disabled());
            let Some(account) = account else { return Ok(Arc::default()) };
            let claims = users.claims(&tenant, &account, &ClaimsRequest::of_this_site(Client::FIRST_PARTY)).await?;
            Ok(Arc::new(claims.all().map(|(name, value)| (name.to_owned(), value.clone())).collect()))
        })
    }
}
