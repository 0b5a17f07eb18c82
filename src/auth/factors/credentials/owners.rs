//! The user of each passkey and of each account at another identity provider.
//!
//! An index row names the user. It counts only while the row of that user holds the credential: an index row that a crash
//! left behind counts as absent, and anyone can claim it.
//!
//! A claim always writes, even if the index row names the user already. A slower call that read the index row before the
//! user's row held the credential then finds another version and reads again, so it takes nothing away. For the same
//! reason, an index row is released by swapping the version that was read while the user's row still held the credential.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::row::{CredentialId, Credentials};
use crate::{
    session::UserId,
    store::{
        AnyStore, StoreError, StoreErrorKind, WriteOutcome,
        table::{Stored, Table},
    },
    tenant::Tenant,
    util::clock::{Clock, UnixTime},
};

/// Credentials don't expire: this is the latest time that a store supports.
pub(super) const FOREVER: UnixTime = UnixTime::from_nanos(u64::MAX);

/// How often a claim is tried again because others write the same index row.
const TRIES: usize = 64;

/// The user of an index row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Owner(#[serde(with = "crate::util::text")] pub(super) UserId);

/// The rows of users and the index rows.
#[derive(Clone, Debug)]
pub(super) struct Owners {
    pub(super) rows: Table<Credentials>,
    index: Table<Owner>,
}

impl Owners {
    pub(super) fn new(store: &AnyStore, clock: &Arc<dyn Clock>) -> Self {
        Self {
            rows: Table::new(store.clone(), "credentials", Arc::clone(clock)),
            index: Table::new(store.clone(), "credential_owners", Arc::clone(clock)),
        }
    }

    pub(super) async fn row(&self, tenant: &Tenant, user: &UserId) -> Result<Option<Stored<Credentials>>, StoreError> {
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
                None => self.index.insert(Some(tenant), &key, &owner, FOREVER).await?,
                Some(other) if other.value.0 != *user && self.holds(tenant, &other.value.0, id).await? => {
                    return Ok(None);
                }
                Some(stored) => self.index.swap(Some(tenant), &key, stored, &owner, FOREVER).await?,
            };
            match outcome {
                WriteOutcome::Done(version) => {
                    return Ok(Some(Stored { value: owner, version, expires_at: FOREVER }));
                }
                WriteOutcome::Lost(instead) => found = instead,
            }
        }
        Err(StoreErrorKind::Busy.into())
    }

    /// Removes an index row of the user, unless it was written since it was read.
    pub(super) async fn release(
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
