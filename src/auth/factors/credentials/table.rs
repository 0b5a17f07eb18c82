//! Reads and changes the credentials of users.
//!
//! An index row names the user of each passkey and of each account at another identity provider. It counts only while the row
//! of that user holds the credential: an index row that a crash left behind counts as absent, and anyone can claim it.
//!
//! A claim always writes, even if the index row names the user already. A slower call that read the index row before the
//! user's row held the credential then finds another version and reads again, so it takes nothing away. For the same
//! reason, an index row is released by swapping the version that was read while the user's row still held the credential.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{credential::CredentialId, row::Credentials};
use crate::{
    session::UserId,
    store::{
        AnyStore, StoreError, StoreErrorKind, WriteOutcome,
        table::{Change, Stored, Table},
    },
    tenant::Tenant,
    util::clock::{Clock, UnixTime},
};

/// How often a claim is tried again because others write the same index row.
const TRIES: usize = 64;

/// The credentials of all users.
///
/// Calls may overlap, and each may be cut off at any store operation: a credential never has two users, and repeating a
/// call completes it.
#[derive(Clone, Debug)]
pub(crate) struct CredentialTable {
    /// The credentials of each user.
    rows: Table<Credentials>,
    /// The user of each credential that only one user can have.
    index: Table<Owner>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Owner(#[serde(with = "crate::util::text")] UserId);

/// The outcome of adding a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Added {
    Done,
    /// A user has this credential already. It can be the same user.
    Taken,
    /// The user has as many credentials of this kind as allowed, or has unlinked this one.
    Refused,
    /// The row has changed since the caller allowed this.
    Outdated,
}

/// Returns whether a credential was added. Returns `None` after an error of the store, because it may be there.
pub(crate) fn is_added(outcome: &Result<Added, StoreError>) -> Option<bool> {
    outcome.as_ref().ok().map(|added| *added == Added::Done)
}

/// The outcome of removing a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Removed {
    Done,
    /// The user does not have it.
    Unknown,
    Refused,
}

/// Decides whether a row may change from the first to the second. It is asked in the compare-and-swap of the change.
pub(crate) trait MayChange: Fn(&Credentials, &Credentials) -> bool + Send + Sync {}

impl<F: Fn(&Credentials, &Credentials) -> bool + Send + Sync> MayChange for F {}

impl CredentialTable {
    pub(crate) fn new(store: &AnyStore, clock: &Arc<dyn Clock>) -> Self {
        Self {
            rows: Table::new(store.clone(), "credentials", Arc::clone(clock)),
            index: Table::new(store.clone(), "credential_owners", Arc::clone(clock)),
        }
    }

    /// Returns the credentials of a user, or `None` if the user never had any.
    pub(crate) async fn get(&self, tenant: &Tenant, user: &UserId) -> Result<Option<Credentials>, StoreError> {
        Ok(self.row(tenant, user).await?.map(|row| row.value))
    }

    /// Returns whether the user may have something new. `is_stored` is `None` after an error of the store: then it may be there
    /// if the row is not as it was before.
    pub(crate) async fn may_be_stored(
        &self,
        (tenant, user): (&Tenant, &UserId),
        is_stored: Option<bool>,
        before: Option<&Credentials>,
    ) -> bool {
        match is_stored {
            Some(is_stored) => is_stored,
            None => !self.get(tenant, user).await.is_ok_and(|row| row.as_ref() == before),
        }
    }

    /// Returns the user handle for WebAuthn, which is created with the row.
    pub(crate) async fn handle(&self, tenant: &Tenant, user: &UserId) -> Result<[u8; 32], StoreError> {
        let handle = |row: Option<&Credentials>, _now| match row {
            Some(row) => Change::Keep(row.handle),
            None => {
                let row = Credentials::new();
                let handle = row.handle;
                Change::Put(row, UnixTime::FOREVER, handle)
            }
        };
        self.rows.update(Some(tenant), user.as_str().as_bytes(), handle).await
    }

    /// Changes the credentials of a user with one compare-and-swap. `change` may be called several times; only its last
    /// result counts. Nothing is written if it changes nothing.
    ///
    /// Passkeys and links are added and removed by the other functions, which keep the index.
    pub(crate) async fn update<R: Send>(
        &self,
        tenant: &Tenant,
        user: &UserId,
        mut change: impl FnMut(&mut Credentials) -> R + Send,
    ) -> Result<R, StoreError> {
        let change = |row: Option<&Credentials>, _now| {
            let mut next = row.cloned().unwrap_or_else(Credentials::new);
            let before = next.clone();
            let result = change(&mut next);
            if next == before { Change::Keep(result) } else { Change::Put(next, UnixTime::FOREVER, result) }
        };
        self.rows.update(Some(tenant), user.as_str().as_bytes(), change).await
    }

    /// Deletes everything of a user: first the index rows, then the row, so that a repeated call finds what is left.
    pub(crate) async fn forget(&self, tenant: &Tenant, user: &UserId) -> Result<(), StoreError> {
        let mut found = self.row(tenant, user).await?;
        while let Some(row) = found {
            for id in row.value.ids() {
                let owner = self.find(tenant, id).await?;
                self.release((tenant, user), id, owner.as_ref()).await?;
            }
            // the expired entry that stays behind until the store removes it contains nothing
            let (key, empty, now) = (user.as_str().as_bytes(), Credentials::new(), self.rows.now());
            match self.rows.swap(Some(tenant), key, &row, &empty, now).await? {
                WriteOutcome::Done(_) => return Ok(()),
                WriteOutcome::Lost(instead) => found = instead,
            }
        }
        Ok(())
    }

    /// Finds the user of a credential.
    pub(crate) async fn by_id(
        &self,
        tenant: &Tenant,
        id: CredentialId<'_>,
    ) -> Result<Option<(UserId, Credentials)>, StoreError> {
        let Some(owner) = self.find(tenant, id).await?.map(|stored| stored.value.0) else { return Ok(None) };
        let row = self.get(tenant, &owner).await?;
        Ok(row.filter(|row| row.holds(id)).map(|row| (owner, row)))
    }

    /// Claims the credential, adds it to the row, and claims it again. `remove` takes it out again.
    ///
    /// Until the row holds the credential, another call can take the claim away. The second claim decides: it fails if
    /// another user has the credential by then, and afterwards no call can take it away.
    pub(crate) async fn add(
        &self,
        (tenant, user): (&Tenant, &UserId),
        id: CredentialId<'_>,
        mut add: impl FnMut(&mut Credentials) -> Added + Send,
        remove: impl Fn(&mut Credentials) + Send + Sync,
    ) -> Result<Added, StoreError> {
        let Some(claimed) = self.claim((tenant, user), id).await? else { return Ok(Added::Taken) };
        let add = |row: &mut Credentials| if row.holds(id) { Added::Taken } else { add(row) };
        let added = self.update(tenant, user, add).await?;
        if matches!(added, Added::Refused | Added::Outdated) {
            self.release((tenant, user), id, Some(&claimed)).await?;
            return Ok(added);
        }
        // also for a credential that the user has already, whose index row may be missing after an interruption
        let is_theirs = self.claim((tenant, user), id).await?.is_some();
        if added == Added::Done && !is_theirs {
            self.update(tenant, user, remove).await?;
            return Ok(Added::Taken);
        }
        Ok(added)
    }

    /// Removes a credential with an index row, if `may` allows it.
    pub(crate) async fn remove(
        &self,
        (tenant, user): (&Tenant, &UserId),
        id: CredentialId<'_>,
        remove: impl Fn(&mut Credentials) + Send + Sync,
        may: impl MayChange,
    ) -> Result<Removed, StoreError> {
        let claimed = self.find(tenant, id).await?;
        let remove = |row: &mut Credentials| {
            let held = row.holds(id);
            if held {
                remove(row);
            }
            held
        };
        let removed = self.remove_if((tenant, user), remove, may).await?;
        if removed != Removed::Refused {
            self.release((tenant, user), id, claimed.as_ref()).await?;
        }
        Ok(removed)
    }

    /// Changes the row of a user if `remove` finds what to remove, and if `may` allows the result.
    pub(crate) async fn remove_if(
        &self,
        (tenant, user): (&Tenant, &UserId),
        remove: impl Fn(&mut Credentials) -> bool + Send + Sync,
        may: impl MayChange,
    ) -> Result<Removed, StoreError> {
        let change = |row: &mut Credentials| {
            let mut rest = row.clone();
            match remove(&mut rest) {
                false => Removed::Unknown,
                true if may(row, &rest) => {
                    *row = rest;
                    Removed::Done
                }
                true => Removed::Refused,
            }
        };
        self.update(tenant, user, change).await
    }

    async fn row(&self, tenant: &Tenant, user: &UserId) -> Result<Option<Stored<Credentials>>, StoreError> {
        self.rows.get(Some(tenant), user.as_str().as_bytes()).wait().await
    }

    /// Returns the index row.
    pub(super) async fn find(
        &self,
        tenant: &Tenant,
        id: CredentialId<'_>,
    ) -> Result<Option<Stored<Owner>>, StoreError> {
        self.index.get(Some(tenant), &id.digest()).wait().await
    }

    /// Claims a credential for the user. Returns the index row, or `None` if another user has the credential.
    pub(super) async fn claim(
        &self,
        (tenant, user): (&Tenant, &UserId),
        id: CredentialId<'_>,
    ) -> Result<Option<Stored<Owner>>, StoreError> {
        let (key, owner) = (id.digest(), Owner(user.clone()));
        let mut found = self.find(tenant, id).await?;
        for _ in 0..TRIES {
            let outcome = match &found {
                None => self.index.insert(Some(tenant), &key, &owner, UnixTime::FOREVER).await?,
                Some(other) if other.value.0 != *user && self.holds(tenant, &other.value.0, id).await? => {
                    return Ok(None);
                }
                Some(stored) => self.index.swap(Some(tenant), &key, stored, &owner, UnixTime::FOREVER).await?,
            };
            match outcome {
                WriteOutcome::Done(version) => {
                    return Ok(Some(Stored { value: owner, version, expires_at: UnixTime::FOREVER }));
                }
                WriteOutcome::Lost(instead) => found = instead,
            }
        }
        Err(StoreErrorKind::Busy.into())
    }

    /// Removes an index row of the user, unless it was written since it was read.
    async fn release(
        &self,
        (tenant, user): (&Tenant, &UserId),
        id: CredentialId<'_>,
        read: Option<&Stored<Owner>>,
    ) -> Result<(), StoreError> {
        if let Some(read) = read.filter(|read| read.value.0 == *user) {
            let now = self.index.now();
            let _released = self.index.swap(Some(tenant), &id.digest(), read, &read.value, now).await?;
        }
        Ok(())
    }

    async fn holds(&self, tenant: &Tenant, user: &UserId, id: CredentialId<'_>) -> Result<bool, StoreError> {
        Ok(self.row(tenant, user).await?.is_some_and(|row| row.value.holds(id)))
    }
}
