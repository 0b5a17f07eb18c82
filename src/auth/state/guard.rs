//! Who was wrong too often: counts of tries and of messages, in the store.
//!
//! What is refused aloud is counted under what the caller submitted, so that it shows nothing of who exists. What is
//! counted under real accounts and addresses is silent. Every path writes as many rows, whoever is asked for.

use std::{sync::Arc, time::Duration};

use crate::{
    login::{Allowance, Keyed, Sends, Throttle, TooSoon},
    policy::Method,
    session::UserId,
    store::{
        AnyStore, StoreError,
        table::{Change, Table},
    },
    tenant::Tenant,
    user::{Account, Contact, Identifier},
    util::{clock::Clock, secret::Digest},
};

/// What callers submit, as it is counted.
pub(crate) mod submitted {
    use super::{Contact, Digest, Identifier, Keyed, Tenant};

    pub(crate) fn name(tenant: &Tenant, name: &Identifier, keyed: &Keyed) -> Digest {
        keyed.hash("submitted name", [tenant.as_str().as_bytes(), name.as_str().as_bytes()])
    }

    pub(crate) fn address(tenant: &Tenant, address: &Contact, keyed: &Keyed) -> Digest {
        keyed.hash("address", [tenant.as_str().as_bytes(), address.as_str().as_bytes()])
    }

    /// A name and an address together: who knows only the address can lock nobody out of it.
    pub(crate) fn pair(name: &Identifier, address: &Digest, keyed: &Keyed) -> Digest {
        keyed.hash("submitted pair", [name.as_str().as_bytes(), address.as_bytes()])
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Guard {
    throttles: Table<Throttle>,
    sends: Table<Sends>,
}

/// How long a row is kept that is written only so that nobody's costs as much as somebody's: strangers can make as many
/// of them as they like.
const FOR_SHOW: Duration = Duration::from_secs(60);

/// Where the tries of one login step are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tried<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) method: Method,
    /// What was submitted: a keyed hash of a name or an address.
    pub(crate) submitted: &'a Digest,
    /// The account that it leads to, if there is one.
    pub(crate) account: Option<&'a UserId>,
}

impl Guard {
    pub(crate) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self {
            throttles: Table::new(store.clone(), "throttles", Arc::clone(&clock)),
            sends: Table::new(store, "sends", clock),
        }
    }

    /// Counts a try of what was submitted; or says how long to wait.
    pub(crate) async fn count(&self, tried: Tried<'_>, keyed: &Keyed) -> Result<Result<(), Duration>, StoreError> {
        self.throttles
            .update(Some(tried.tenant), tried.visible(keyed).as_bytes(), |row, now| {
                match row.copied().unwrap_or_default().counted(now) {
                    Ok(next) => Change::Put(next, Throttle::forgotten_at(now), Ok(())),
                    Err(wait) => Change::Keep(Err(wait)),
                }
            })
            .await
    }

    /// Counts a try of the account, and says whether it may still be right.
    pub(crate) async fn count_silently(&self, tried: Tried<'_>, keyed: &Keyed) -> Result<bool, StoreError> {
        self.throttles
            .update(Some(tried.tenant), tried.silent(keyed).as_bytes(), |row, now| {
                // at the ceiling too it is a write: one that is left out could be timed
                let (next, kept_until, is_below) = row.copied().unwrap_or_default().counted_silently(now);
                let kept_until = if tried.account.is_some() { kept_until } else { now + FOR_SHOW };
                Change::Put(next, kept_until, is_below)
            })
            .await
    }

    /// Takes back a try that could not be checked; of the account, if it was counted there.
    pub(crate) async fn uncount(&self, tried: Tried<'_>, silently: bool, keyed: &Keyed) -> Result<(), StoreError> {
        let for_show = tried.account.is_none();
        for (row, counted, for_show) in [(tried.visible(keyed), true, false), (tried.silent(keyed), silently, for_show)]
        {
            let kept_until = |now| if for_show { now + FOR_SHOW } else { Throttle::forgotten_at(now) };
            self.throttles
                .update(Some(tried.tenant), row.as_bytes(), |row, now| match row {
                    // a row of nobody's stays short-lived, and one at its ceiling is written as it is
                    Some(row) if counted => Change::Put(row.uncounted(), kept_until(now), ()),
                    Some(row) => Change::Put(*row, kept_until(now), ()),
                    None => Change::Keep(()),
                })
                .await?;
        }
        Ok(())
    }

    /// Forgets the failures, for the try was right. The step is proved by then: where this fails, it still is, and the
    /// counts end by themselves.
    pub(crate) async fn clear(&self, tried: Tried<'_>, keyed: &Keyed) {
        for row in [tried.visible(keyed), tried.silent(keyed)] {
            if let Err(error) = self.throttles.remove(Some(tried.tenant), row.as_bytes()).await {
                crate::util::trace::warning!("failures that were made up for are still counted: {error}");
            }
        }
    }

    /// Forgets the failures of a person: those of this name, of the contacts of the account, and of the account itself.
    pub(crate) async fn unlock(
        &self,
        tenant: &Tenant,
        identifier: &Identifier,
        account: Option<&Account>,
        keyed: &Keyed,
    ) -> Result<(), StoreError> {
        // people log in by their addresses, too
        let contacts: Vec<&Contact> = account.iter().flat_map(|it| it.contacts()).map(|(contact, _)| contact).collect();
        let names = contacts.iter().filter_map(|contact| Identifier::parse(contact.as_str()).ok());
        for name in names.chain([identifier.clone()]) {
            let pairs = contacts.iter().map(|contact| {
                let address = submitted::address(tenant, contact, keyed);
                submitted::pair(&name, &address, keyed)
            });
            for submitted in pairs.chain([submitted::name(tenant, &name, keyed)]) {
                for method in Method::ALL.iter().copied() {
                    let row = Tried { tenant, method, submitted: &submitted, account: None }.visible(keyed);
                    self.throttles.remove(Some(tenant), row.as_bytes()).await?;
                }
            }
        }
        let Some(account) = account.map(Account::id) else { return Ok(()) };
        for method in Method::ALL.iter().copied() {
            let row = of_account(method, account, keyed);
            self.throttles.remove(Some(tenant), row.as_bytes()).await?;
        }
        Ok(())
    }

    /// Counts a message that was asked for by this identifier to this address; or says why not, which the caller sees.
    pub(crate) async fn count_request(
        &self,
        tried: Tried<'_>,
        pair: &Digest,
    ) -> Result<Result<(), TooSoon>, StoreError> {
        let allowance = Allowance::of(tried.method);
        self.sends
            .update(Some(tried.tenant), pair.as_bytes(), |row, now| {
                match row.cloned().unwrap_or_default().one_more(tried.method, allowance, now) {
                    Ok(next) => Change::Put(next, Sends::forgotten_at(allowance, now), Ok(())),
                    Err(too_soon) => Change::Keep(Err(too_soon)),
                }
            })
            .await
    }

    /// Counts a message that really goes out to this address, and says whether it may: which the caller does not see.
    pub(crate) async fn count_message(&self, tried: Tried<'_>, keyed: &Keyed) -> Result<bool, StoreError> {
        let row = match tried.account {
            Some(_) => keyed.hash("sent", [tried.submitted.as_bytes()]),
            None => keyed.hash("not sent", [tried.submitted.as_bytes()]),
        };
        // by several names of one account messages may be asked for close together
        let allowance = Allowance::of(tried.method).without_cool_down();
        self.sends
            .update(Some(tried.tenant), row.as_bytes(), |row, now| {
                let sends = row.cloned().unwrap_or_default();
                let more = sends.one_more(tried.method, allowance, now);
                let is_below = more.is_ok();
                // at the ceiling too it is a write: one that is left out could be timed
                let kept_until =
                    if tried.account.is_some() { Sends::forgotten_at(allowance, now) } else { now + FOR_SHOW };
                Change::Put(more.unwrap_or(sends), kept_until, is_below)
            })
            .await
    }
}

impl Tried<'_> {
    fn visible(&self, keyed: &Keyed) -> Digest {
        keyed.hash("submitted", [self.method.as_str().as_bytes(), self.submitted.as_bytes()])
    }

    fn silent(&self, keyed: &Keyed) -> Digest {
        match self.account {
            Some(account) => of_account(self.method, account, keyed),
            None => keyed.hash("nobody", [self.method.as_str().as_bytes(), self.submitted.as_bytes()]),
        }
    }
}

fn of_account(method: Method, account: &UserId, keyed: &Keyed) -> Digest {
    keyed.hash("account", [method.as_str().as_bytes(), account.as_str().as_bytes()])
}
