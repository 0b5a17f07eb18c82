//! Which account a name belongs to.
//!
//! A name's row says whose it is, and it counts only while that account's row
//! lists the name. So there are two writes, and whatever is torn down between
//! them no name finds an account that does not list it, and a name that counts
//! for nobody can be claimed by anybody.
//!
//! An account lists a name first and claims it then, always by a write, also
//! where the name's row says already that it is theirs. So whoever saw the name
//! unclaimed, before it was listed, finds another version there and looks again:
//! a name that was claimed is never taken over. Likewise a name is given up by a
//! swap of the version that was there while the account still listed it.

use super::{
    StoredUsers,
    row::{Name, Owner, Row},
};
use crate::{
    session::UserId,
    store::{StoreError, StoreErrorKind, WriteOutcome, table::Stored},
    tenant::Tenant,
    util::clock::UnixTime,
};

/// Accounts don't expire: the end of the time that a store can tell.
pub(super) const FOREVER: UnixTime = UnixTime::from_nanos(u64::MAX);

/// How often a name is looked at again because others write it.
const TRIES: usize = 64;

impl StoredUsers {
    pub(super) async fn row(&self, tenant: &Tenant, user: &UserId) -> Result<Option<Row>, StoreError> {
        let found = self.rows.get(Some(tenant), user.as_str().as_bytes()).wait().await?;
        Ok(found.map(|stored| stored.value))
    }

    /// The name's row, if it says that it is theirs.
    pub(super) async fn held(
        &self,
        tenant: &Tenant,
        name: &Name,
        user: &UserId,
    ) -> Result<Option<Stored<Owner>>, StoreError> {
        let found = self.names.get(Some(tenant), name.as_bytes()).wait().await?;
        Ok(found.filter(|stored| stored.value.0 == *user))
    }

    /// Whether it counts for another account.
    pub(super) async fn is_others(&self, tenant: &Tenant, name: &Name, user: &UserId) -> Result<bool, StoreError> {
        let found = self.names.get(Some(tenant), name.as_bytes()).wait().await?;
        match found {
            Some(stored) => self.counts_for_another(tenant, name, user, &stored.value).await,
            None => Ok(false),
        }
    }

    async fn counts_for_another(
        &self,
        tenant: &Tenant,
        name: &Name,
        user: &UserId,
        owner: &Owner,
    ) -> Result<bool, StoreError> {
        Ok(owner.0 != *user && self.row(tenant, &owner.0).await?.is_some_and(|row| row.lists(name)))
    }

    /// Claims a name that the user's row lists; `None` if it counts for another.
    pub(super) async fn claim(
        &self,
        tenant: &Tenant,
        name: &Name,
        user: &UserId,
    ) -> Result<Option<Stored<Owner>>, StoreError> {
        let (id, owner) = (name.as_bytes(), Owner(user.clone()));
        let mut found = self.names.get(Some(tenant), id).wait().await?;
        for _ in 0..TRIES {
            let outcome = match &found {
                None => self.names.insert(Some(tenant), id, &owner, FOREVER).await?,
                Some(stored) if self.counts_for_another(tenant, name, user, &stored.value).await? => return Ok(None),
                Some(stored) => self.names.swap(Some(tenant), id, stored, &owner, FOREVER).await?,
            };
            match outcome {
                WriteOutcome::Done(version) => return Ok(Some(Stored { value: owner, version, expires_at: FOREVER })),
                WriteOutcome::Lost(instead) => found = instead,
            }
        }
        Err(StoreErrorKind::Busy.into())
    }

    /// Forgets names that no longer count, unless they were written since. That
    /// only tidies up, so whether it succeeds does not matter.
    pub(super) async fn release(&self, tenant: &Tenant, held: &[(Name, Stored<Owner>)]) {
        for (name, stored) in held {
            let now = self.names.now();
            let _released = self.names.swap(Some(tenant), name.as_bytes(), stored, &stored.value, now).await;
        }
    }
}
