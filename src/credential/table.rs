//! Reads and changes the credentials of users.

use std::sync::Arc;

#[cfg(any(feature = "external-providers", test))]
use super::row::MOST_LINKS;
use super::{
    owners::{FOREVER, Owners},
    row::{CredentialId, Credentials, MOST_PASSKEYS, Passkey, SsoLink, TotpKey},
};
use crate::{
    session::UserId,
    store::{AnyStore, StoreError, WriteOutcome, table::Change},
    tenant::Tenant,
    util::{clock::Clock, handle::Handle},
};

/// The credentials of all users.
///
/// Calls may overlap, and each may be cut off at any store operation: a credential never has two users, and repeating a
/// call completes it.
#[derive(Clone, Debug)]
pub(crate) struct CredentialTable(Owners);

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
        Self(Owners::new(store, clock))
    }

    /// Returns the credentials of a user, or `None` if the user never had any.
    pub(crate) async fn get(&self, tenant: &Tenant, user: &UserId) -> Result<Option<Credentials>, StoreError> {
        Ok(self.0.row(tenant, user).await?.map(|row| row.value))
    }

    /// Returns the user handle for WebAuthn, which is created with the row.
    pub(crate) async fn handle(&self, tenant: &Tenant, user: &UserId) -> Result<[u8; 32], StoreError> {
        let handle = |row: Option<&Credentials>, _now| match row {
            Some(row) => Change::Keep(row.handle),
            None => {
                let row = Credentials::new();
                let handle = row.handle;
                Change::Put(row, FOREVER, handle)
            }
        };
        self.0.rows.update(Some(tenant), user.as_str().as_bytes(), handle).await
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
            if next == before { Change::Keep(result) } else { Change::Put(next, FOREVER, result) }
        };
        self.0.rows.update(Some(tenant), user.as_str().as_bytes(), change).await
    }

    /// Finds the user of a passkey.
    pub(crate) async fn by_passkey(
        &self,
        tenant: &Tenant,
        id: &[u8],
    ) -> Result<Option<(UserId, Credentials)>, StoreError> {
        self.by_id(tenant, CredentialId::Passkey(id)).await
    }

    /// Finds the user that an account at another identity provider is linked to: by the connection, the issuer and the subject.
    #[cfg(any(feature = "external-providers", test))]
    pub(crate) async fn by_link(
        &self,
        tenant: &Tenant,
        (provider, issuer, subject): (&str, &str, &str),
    ) -> Result<Option<(UserId, SsoLink)>, StoreError> {
        let id = CredentialId::Link { provider, issuer, subject };
        let found = self.by_id(tenant, id).await?;
        Ok(found.and_then(|(user, row)| Some((user, row.links.into_iter().find(|link| link.id() == id)?))))
    }

    /// Adds a passkey, if `may` allows it for the row before. It is asked in the compare-and-swap.
    pub(crate) async fn add_passkey(
        &self,
        owner: (&Tenant, &UserId),
        passkey: &Passkey,
        may: impl Fn(&Credentials) -> bool + Send + Sync,
    ) -> Result<Added, StoreError> {
        let add = |row: &mut Credentials| match row.passkeys.len() < MOST_PASSKEYS {
            _ if !may(row) => Added::Outdated,
            true => {
                row.passkeys.push(passkey.clone());
                Added::Done
            }
            false => Added::Refused,
        };
        self.add(owner, passkey.id(), add).await
    }

    /// Stores the key of an authenticator app in place of an earlier one, if `may` allows it for the row before.
    pub(crate) async fn put_totp(
        &self,
        (tenant, user): (&Tenant, &UserId),
        key: &TotpKey,
        may: impl Fn(&Credentials) -> bool + Send + Sync,
    ) -> Result<Added, StoreError> {
        let put = |row: &mut Credentials| {
            if !may(row) {
                return Added::Outdated;
            }
            row.totp = Some(key.clone());
            Added::Done
        };
        self.update(tenant, user, put).await
    }

    /// Links an account at another identity provider. If the user has unlinked it before, it is linked again only if the user
    /// vouches for it.
    #[cfg(any(feature = "external-providers", test))]
    pub(crate) async fn add_link(
        &self,
        owner: (&Tenant, &UserId),
        link: &SsoLink,
        is_vouched: bool,
    ) -> Result<Added, StoreError> {
        let add = |row: &mut Credentials| {
            let may = row.links.len() < MOST_LINKS && (is_vouched || !row.may_be_unlinked(link.id()));
            if may {
                row.relink(link.id());
                row.links.push(link.clone());
                return Added::Done;
            }
            Added::Refused
        };
        self.add(owner, link.id(), add).await
    }

    /// Removes a link that was added a moment ago, as if it had never been there.
    #[cfg(any(feature = "external-providers", test))]
    pub(crate) async fn discard_link(&self, owner: (&Tenant, &UserId), link: &SsoLink) -> Result<Removed, StoreError> {
        self.remove(owner, link.id(), Credentials::remove, |_, _| true).await
    }

    /// Removes the authenticator app or the recovery codes of this enrolment.
    pub(crate) async fn discard_enrolment(
        &self,
        (tenant, user): (&Tenant, &UserId),
        enrolment: &Handle,
    ) -> Result<(), StoreError> {
        let discard = |row: &mut Credentials| {
            row.totp.take_if(|key| key.enrolment == *enrolment);
            row.recovery.take_if(|codes| codes.enrolment == *enrolment);
        };
        self.update(tenant, user, discard).await
    }

    /// Removes a passkey, if `may` allows it.
    pub(crate) async fn remove_passkey(
        &self,
        owner: (&Tenant, &UserId),
        id: &[u8],
        may: impl MayChange,
    ) -> Result<Removed, StoreError> {
        self.remove(owner, CredentialId::Passkey(id), Credentials::remove, may).await
    }

    /// Removes a link for its user, if `may` allows it. A hook of the operator can't make it again.
    pub(crate) async fn remove_link(
        &self,
        owner: (&Tenant, &UserId),
        link: &SsoLink,
        may: impl MayChange,
    ) -> Result<Removed, StoreError> {
        self.remove(owner, link.id(), Credentials::unlink, may).await
    }

    /// Removes the key of the authenticator app, if `may` allows it.
    pub(crate) async fn remove_totp(
        &self,
        (tenant, user): (&Tenant, &UserId),
        may: impl MayChange,
    ) -> Result<Removed, StoreError> {
        self.update(tenant, user, |row| changed(row, |row| row.totp.take().is_some(), &may)).await
    }

    /// Deletes everything of a user: first the index rows, then the row, so that a repeated call finds what is left.
    pub(crate) async fn forget(&self, tenant: &Tenant, user: &UserId) -> Result<(), StoreError> {
        let mut found = self.0.row(tenant, user).await?;
        while let Some(row) = found {
            for id in row.value.ids() {
                let owner = self.0.find(tenant, id).await?;
                self.0.release((tenant, user), id, owner.as_ref()).await?;
            }
            // the expired entry that stays behind until the store removes it contains nothing
            let (key, empty, now) = (user.as_str().as_bytes(), Credentials::new(), self.0.rows.now());
            match self.0.rows.swap(Some(tenant), key, &row, &empty, now).await? {
                WriteOutcome::Done(_) => return Ok(()),
                WriteOutcome::Lost(instead) => found = instead,
            }
        }
        Ok(())
    }

    async fn by_id(&self, tenant: &Tenant, id: CredentialId<'_>) -> Result<Option<(UserId, Credentials)>, StoreError> {
        let Some(owner) = self.0.find(tenant, id).await?.map(|stored| stored.value.0) else { return Ok(None) };
        let row = self.get(tenant, &owner).await?;
        Ok(row.filter(|row| row.holds(id)).map(|row| (owner, row)))
    }

    /// Claims the credential, adds it to the row, and claims it again.
    ///
    /// Until the row holds the credential, another call can take the claim away. The second claim decides: it fails if
    /// another user has the credential by then, and afterwards no call can take it away.
    async fn add(
        &self,
        (tenant, user): (&Tenant, &UserId),
        id: CredentialId<'_>,
        mut add: impl FnMut(&mut Credentials) -> Added + Send,
    ) -> Result<Added, StoreError> {
        let Some(claimed) = self.0.claim((tenant, user), id).await? else { return Ok(Added::Taken) };
        let add = |row: &mut Credentials| if row.holds(id) { Added::Taken } else { add(row) };
        let added = self.update(tenant, user, add).await?;
        if matches!(added, Added::Refused | Added::Outdated) {
            self.0.release((tenant, user), id, Some(&claimed)).await?;
            return Ok(added);
        }
        // also for a credential that the user has already, whose index row may be missing after an interruption
        let is_theirs = self.0.claim((tenant, user), id).await?.is_some();
        if added == Added::Done && !is_theirs {
            self.update(tenant, user, |row| row.remove(id)).await?;
            return Ok(Added::Taken);
        }
        Ok(added)
    }

    async fn remove(
        &self,
        (tenant, user): (&Tenant, &UserId),
        id: CredentialId<'_>,
        remove: impl Fn(&mut Credentials, CredentialId<'_>) + Send + Sync,
        may: impl MayChange,
    ) -> Result<Removed, StoreError> {
        let claimed = self.0.find(tenant, id).await?;
        let remove = |row: &mut Credentials| {
            let held = row.holds(id);
            if held {
                remove(row, id);
            }
            held
        };
        let removed = self.update(tenant, user, |row| changed(row, remove, &may)).await?;
        if removed != Removed::Refused {
            self.0.release((tenant, user), id, claimed.as_ref()).await?;
        }
        Ok(removed)
    }
}

/// Changes a row if `remove` finds what to remove, and if `may` allows the result.
fn changed(row: &mut Credentials, remove: impl Fn(&mut Credentials) -> bool, may: &impl MayChange) -> Removed {
    let mut rest = row.clone();
    match remove(&mut rest) {
        false => Removed::Unknown,
        true if may(row, &rest) => {
            *row = rest;
            Removed::Done
        }
        true => Removed::Refused,
    }
}
