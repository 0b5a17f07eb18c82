//! Names and ids that belong to one account only.
//!
//! An index row holds the owner of a name in its tenant, or of an id among all tenants. It counts only while the
//! owner's account exists and, if it is a name, lists it. An index row left behind by a crash therefore belongs to no
//! account and can be claimed by any, and a name never finds an account that does not list it.
//!
//! An account is written first and claims afterwards, always with a write, even if the index row names it as the owner
//! already. A slower call that read the index row before the account existed then finds another version and reads
//! again, so it takes nothing away. For the same reason, an index row is released by swapping the version that was read
//! while the account still existed.

use std::sync::Arc;

use super::row::{Name, Row};
use crate::{
    session::UserId,
    store::{
        AnyStore, StoreError, StoreErrorKind, WriteOutcome,
        compact::{row_struct, stored_row},
        table::{Stored, Table},
    },
    tenant::Tenant,
    util::clock::{Clock, UnixTime},
};

/// How often a claim is tried again because others write the same index row.
const TRIES: usize = 64;

/// The tables of accounts and of what each of them has alone.
#[derive(Clone, Debug)]
pub(super) struct Index {
    pub(super) rows: Table<Row>,
    pub(super) names: Table<Owner>,
    pub(super) ids: Table<Owner>,
}

/// The address of an account.
#[derive(Clone, Copy)]
pub(super) struct AccountKey<'a> {
    pub(super) tenant: &'a Tenant,
    pub(super) user: &'a UserId,
}

/// Something that one account has alone.
#[derive(Clone, Copy)]
pub(super) enum Unique {
    /// A name, in its tenant.
    Name(Name),
    /// The id, among all tenants.
    Id,
}

/// The owner of a name is a user, and the owner of an id is a tenant.
#[derive(Clone)]
pub(super) struct Owner(pub(super) String);

stored_row!(Owner, 1, "not the owner of a name");
row_struct!(Owner(id));

/// An index row that an account has claimed.
pub(super) struct Claimed {
    unique: Unique,
    stored: Stored<Owner>,
}

/// The place of an index row, and the owner that an account writes there.
struct IndexEntry<'a> {
    table: &'a Table<Owner>,
    tenant: Option<&'a Tenant>,
    id: &'a [u8],
    owner: &'a str,
}

impl Index {
    pub(super) fn new(store: &AnyStore, clock: &Arc<dyn Clock>) -> Self {
        Self {
            rows: Table::new(store.clone(), "users", Arc::clone(clock)),
            names: Table::new(store.clone(), "user_names", Arc::clone(clock)),
            ids: Table::new(store.clone(), "user_ids", Arc::clone(clock)),
        }
    }

    pub(super) async fn row(&self, account: AccountKey<'_>) -> Result<Option<Row>, StoreError> {
        let found = self.rows.get(Some(account.tenant), account.user.as_str().as_bytes()).wait().await?;
        Ok(found.map(|stored| stored.value))
    }

    /// Returns the index row, if the account is the owner in it.
    pub(super) async fn held(&self, account: AccountKey<'_>, unique: Unique) -> Result<Option<Claimed>, StoreError> {
        let entry = self.entry(account, &unique);
        let found = entry.table.get(entry.tenant, entry.id).wait().await?;
        Ok(found.filter(|stored| stored.value.0 == entry.owner).map(|stored| Claimed { unique, stored }))
    }

    /// Returns whether another account has it.
    pub(super) async fn is_taken(&self, account: AccountKey<'_>, unique: Unique) -> Result<bool, StoreError> {
        let entry = self.entry(account, &unique);
        match entry.table.get(entry.tenant, entry.id).wait().await? {
            Some(stored) => self.counts_for_another(account, &unique, &stored.value).await,
            None => Ok(false),
        }
    }

    /// Claims it for the account. Returns `None` if another account has it.
    pub(super) async fn claim(&self, account: AccountKey<'_>, unique: Unique) -> Result<Option<Claimed>, StoreError> {
        let entry = self.entry(account, &unique);
        let owner = Owner(entry.owner.to_owned());
        let mut found = entry.table.get(entry.tenant, entry.id).wait().await?;
        for _ in 0..TRIES {
            let outcome = match &found {
                None => entry.table.insert(entry.tenant, entry.id, &owner, UnixTime::FOREVER).await?,
                Some(stored) if self.counts_for_another(account, &unique, &stored.value).await? => return Ok(None),
                Some(stored) => entry.table.swap(entry.tenant, entry.id, stored, &owner, UnixTime::FOREVER).await?,
            };
            match outcome {
                WriteOutcome::Done(version) => {
                    let stored = Stored { value: owner, version, expires_at: UnixTime::FOREVER };
                    return Ok(Some(Claimed { unique, stored }));
                }
                WriteOutcome::Lost(instead) => found = instead,
            }
        }
        Err(StoreErrorKind::Busy.into())
    }

    /// Removes index rows that no longer count, unless they were written since. This only tidies up, so errors are
    /// ignored.
    pub(super) async fn release(&self, account: AccountKey<'_>, claimed: &[Claimed]) {
        for Claimed { unique, stored } in claimed {
            let (entry, now) = (self.entry(account, unique), self.rows.now());
            let _released = entry.table.swap(entry.tenant, entry.id, stored, &stored.value, now).await;
        }
    }

    async fn counts_for_another(
        &self,
        account: AccountKey<'_>,
        unique: &Unique,
        owner: &Owner,
    ) -> Result<bool, StoreError> {
        if owner.0 == self.entry(account, unique).owner {
            return Ok(false);
        }
        let row = match unique {
            Unique::Name(_) => self.rows.get(Some(account.tenant), owner.0.as_bytes()).wait().await?,
            Unique::Id => {
                let tenant = Tenant::parse(&owner.0).map_err(|_| StoreErrorKind::Corrupt)?;
                self.rows.get(Some(&tenant), account.user.as_str().as_bytes()).wait().await?
            }
        };
        Ok(row.is_some_and(|stored| match unique {
            Unique::Name(name) => stored.value.lists(name),
            Unique::Id => true,
        }))
    }

    fn entry<'a>(&'a self, account: AccountKey<'a>, unique: &'a Unique) -> IndexEntry<'a> {
        let (tenant, user) = (account.tenant, account.user.as_str());
        match unique {
            Unique::Name(name) => {
                IndexEntry { table: &self.names, tenant: Some(tenant), id: name.as_bytes(), owner: user }
            }
            Unique::Id => IndexEntry { table: &self.ids, tenant: None, id: user.as_bytes(), owner: tenant.as_str() },
        }
    }
}
