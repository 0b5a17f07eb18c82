//! The accounts that logins, sessions and codes belong to.

use crate::{
    login::BoundUser,
    session::{Generations, UserId},
    store::{Operation, OperationOutcome, StoreError, StoreErrorKind},
    tenant::Tenant,
    user::{Account, AnyUsers, Identifier},
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
    generation: u64,
}

/// Looked up if there is no user, so that the work is the same.
const UNKNOWN_USER: &str = "unknown-d41c6a0e7b5f4c3f9a2e";

impl Accounts {
    pub(crate) fn new(users: AnyUsers, generations: Generations) -> Self {
        Self { users, generations }
    }

    /// Finds the account behind a name.
    pub(crate) async fn named(&self, tenant: &Tenant, name: &Identifier) -> Result<FoundAccount, StoreError> {
        let account = self.named_without_generation(tenant, name).await?;
        self.found(tenant, account).await
    }

    /// Finds the account of a user. Without a user it looks up an id that does not exist.
    pub(crate) async fn of_user(&self, tenant: &Tenant, user: Option<&UserId>) -> Result<FoundAccount, StoreError> {
        let account = self.without_generation(tenant, user).await?;
        self.found(tenant, account).await
    }

    /// Finds the account behind a name without the generation.
    pub(crate) async fn named_without_generation(
        &self,
        tenant: &Tenant,
        name: &Identifier,
    ) -> Result<Option<Account>, StoreError> {
        self.users.find(tenant, name).await
    }

    /// Finds the account of a user without the generation. Without a user it looks up an id that does not exist.
    pub(crate) async fn without_generation(
        &self,
        tenant: &Tenant,
        user: Option<&UserId>,
    ) -> Result<Option<Account>, StoreError> {
        match (user, UserId::parse(UNKNOWN_USER)) {
            (Some(user), _) => self.users.by_id(tenant, user).await,
            (None, Ok(unknown)) => Ok(self.users.by_id(tenant, &unknown).await?.filter(|_| false)),
            (None, Err(_)) => Ok(None),
        }
    }

    /// Returns the operation that reads the generation of a user, or of an unknown one.
    pub(crate) fn reading_generation(&self, tenant: &Tenant, user: Option<&UserId>) -> Result<Operation, StoreError> {
        let unknown = UserId::parse(UNKNOWN_USER).map_err(|_| StoreErrorKind::Corrupt)?;
        self.generations.reading(tenant, user.unwrap_or(&unknown))
    }

    /// Returns the generation that an operation read.
    pub(crate) fn generation(&self, outcome: Option<OperationOutcome>) -> Result<u64, StoreError> {
        self.generations.generation_from_outcome(outcome)
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

    /// Adds the generation of the user, or reads that of an unknown one.
    async fn found(&self, tenant: &Tenant, account: Option<Account>) -> Result<FoundAccount, StoreError> {
        let unknown = UserId::parse(UNKNOWN_USER).ok();
        let generation = match account.as_ref().map(Account::id).or(unknown.as_ref()) {
            Some(user) => self.generations.current(tenant, user).wait().await?,
            None => 0,
        };
        Ok(FoundAccount { account, generation })
    }
}

impl FoundAccount {
    pub(crate) fn new(account: Option<Account>, generation: u64) -> Self {
        Self { account, generation }
    }

    /// Sets the generation, once it is read.
    pub(crate) fn generate(&mut self, generation: u64) {
        self.generation = generation;
    }

    /// Returns the user with the current generation, even if the account is disabled.
    pub(crate) fn user(&self) -> Option<BoundUser> {
        let id = self.account.as_ref()?.id().clone();
        Some(BoundUser { id, generation: self.generation })
    }

    /// Returns the current generation, also for an unknown user.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the account if it may sign in.
    pub(crate) fn active(&self) -> Option<&Account> {
        self.account.as_ref().filter(|account| !account.is_disabled())
    }

    pub(crate) fn into_active(self) -> Option<Account> {
        self.account.filter(|account| !account.is_disabled())
    }
}

/// Returns a name of the user for our own pages, and for authenticators.
pub(crate) fn shown_name(account: &Account) -> &str {
    let name = account.preferred_username().or(account.display_name());
    let contact = || account.contacts().next().map(|(contact, _)| contact.as_str());
    name.or_else(contact).unwrap_or(account.id().as_str())
}
