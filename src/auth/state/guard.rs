//! Stored counts of failed attempts and of sent codes.
//!
//! A refusal that the caller sees depends only on what the caller submitted, so it shows nothing about accounts. Counts of
//! real accounts and addresses are hidden. Every path writes the same number of rows for known and unknown users.
//!
//! A trusted browser has counts of its own, so strangers cannot use up the attempts and messages of its owner.

use std::{sync::Arc, time::Duration};

use crate::{
    login::{Keyed, LoginLimits, SendLimit, SendRefused, SentCodes, Throttle},
    policy::Method,
    session::UserId,
    store::{
        AnyStore, StoreError,
        table::{Change, Table},
    },
    tenant::Tenant,
    user::{Account, Contact, Identifier},
    util::{
        clock::{Clock, UnixTime},
        handle::Handle,
        secret::Digest,
    },
};

/// Digests of what callers submit. Rows belong to a tenant, so the digests need not name it.
pub(crate) mod submitted {
    use super::{Contact, Digest, Handle, Identifier, Keyed, UserId};

    /// A name. An address that is typed as a name has the digest of the address.
    pub(crate) fn name(name: &Identifier, keyed: &Keyed) -> Digest {
        text(name.as_str(), keyed)
    }

    pub(crate) fn address(address: &Contact, keyed: &Keyed) -> Digest {
        text(address.as_str(), keyed)
    }

    fn text(text: &str, keyed: &Keyed) -> Digest {
        keyed.hash("name or address", [text.as_bytes()])
    }

    /// The id of a passkey. Strangers don't know it, so they can't lock its owner out.
    pub(crate) fn passkey(id: &[u8], keyed: &Keyed) -> Digest {
        keyed.hash("submitted passkey", [id])
    }

    /// Takes the place of a name where the login knows its user: in logins that began with a session, and for codes of apps.
    pub(crate) fn user(user: &UserId, keyed: &Keyed) -> Digest {
        keyed.hash("submitted user", [user.as_str().as_bytes()])
    }

    /// Combines a name with an address, so that knowing an address is not enough to lock its owner out.
    pub(crate) fn pair(name: &Digest, address: &Digest, keyed: &Keyed) -> Digest {
        keyed.hash("submitted pair", [name.as_bytes(), address.as_bytes()])
    }

    /// Takes the place of the pair if the browser is trusted.
    pub(crate) fn by_device(device: &Handle, address: &Digest, keyed: &Keyed) -> Digest {
        keyed.hash("submitted by device", [device.as_bytes(), address.as_bytes()])
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Guard {
    throttles: Table<Throttle>,
    sent_codes: Table<SentCodes>,
    limits: LoginLimits,
}

/// How long a row of an unknown user or of an unknown passkey is kept. It exists only so that known and unknown ones cause the
/// same writes, and strangers can create any number of them.
const DECOY_LIFETIME: Duration = Duration::from_secs(60);

/// The rows that count one attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptKey<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) method: Method,
    /// Digest of what was submitted: a name, an address, a passkey, or the user that the login knows.
    pub(crate) submitted: &'a Digest,
    pub(crate) account: Option<&'a UserId>,
    /// Set if the browser is trusted for the account.
    pub(crate) device: Option<Handle>,
}

/// The result of counting an attempt.
pub(crate) enum AttemptCount {
    /// This row counts it.
    Counted(Digest),
    MustWait(Duration),
}

impl Guard {
    pub(crate) fn new(store: AnyStore, clock: Arc<dyn Clock>, limits: LoginLimits) -> Self {
        Self {
            throttles: Table::new(store.clone(), "throttles", Arc::clone(&clock)),
            sent_codes: Table::new(store, "sends", clock),
            limits,
        }
    }

    /// Counts an attempt under the trusted browser or under what was submitted. Returns the row that counts it, or how long
    /// to wait.
    ///
    /// A trusted browser that must wait is counted like a stranger, so it never waits longer than without its cookie.
    pub(crate) async fn count(&self, attempt: AttemptKey<'_>, keyed: &Keyed) -> Result<AttemptCount, StoreError> {
        let mut shortest = Duration::MAX;
        for row in attempt.of_device(keyed).into_iter().chain([attempt.visible(keyed)]) {
            let counted = self.throttles.update(Some(attempt.tenant), row.as_bytes(), |row, now| {
                match row.copied().unwrap_or_default().count(&self.limits, now) {
                    Ok(next) => Change::Put(next, self.forgotten_at(attempt, now), Ok(())),
                    Err(wait) => Change::Keep(Err(wait)),
                }
            });
            match counted.await? {
                Ok(()) => return Ok(AttemptCount::Counted(row)),
                Err(wait) => shortest = shortest.min(wait),
            }
        }
        Ok(AttemptCount::MustWait(shortest))
    }

    /// Returns when the row of what was submitted is forgotten.
    fn forgotten_at(&self, attempt: AttemptKey<'_>, now: UnixTime) -> UnixTime {
        match (attempt.method, attempt.account) {
            // never right, however often it is tried
            (Method::Passkey, None) => now + DECOY_LIFETIME,
            _ => Throttle::forgotten_at(&self.limits, now),
        }
    }

    /// Counts an attempt against the account. Returns whether it is below the ceiling and may still be right.
    pub(crate) async fn count_hidden(&self, attempt: AttemptKey<'_>, keyed: &Keyed) -> Result<bool, StoreError> {
        self.throttles
            .update(Some(attempt.tenant), attempt.hidden(keyed).as_bytes(), |row, now| {
                // also written at the ceiling, because a missing write could be timed
                let row = row.copied().unwrap_or_default();
                let (next, kept_until, is_below) = row.count_hidden(&self.limits, now, attempt.device.is_some());
                let kept_until = if attempt.account.is_some() { kept_until } else { now + DECOY_LIFETIME };
                Change::Put(next, kept_until, is_below)
            })
            .await
    }

    /// Removes an attempt that could not be checked from the row that counted it, and from the account if it was counted
    /// there.
    pub(crate) async fn uncount(
        &self,
        attempt: AttemptKey<'_>,
        row: Digest,
        counted_hidden: bool,
        keyed: &Keyed,
    ) -> Result<(), StoreError> {
        self.throttles
            .update(Some(attempt.tenant), row.as_bytes(), |row, now| match row {
                Some(row) => Change::Put(row.uncount(), self.forgotten_at(attempt, now), ()),
                None => Change::Keep(()),
            })
            .await?;
        // a withdrawn attempt beyond the ceiling must not prolong it
        let kept_until = |row: Throttle, now| match attempt.account {
            Some(_) => row.hidden_until(),
            None => now + DECOY_LIFETIME,
        };
        self.throttles
            .update(Some(attempt.tenant), attempt.hidden(keyed).as_bytes(), |row, now| match row {
                Some(row) if counted_hidden => Change::Put(row.uncount_hidden(), kept_until(*row, now), ()),
                Some(row) => Change::Put(*row, kept_until(*row, now), ()),
                None => Change::Keep(()),
            })
            .await
    }

    /// Removes the failures after a right attempt, which this row counted. If the store fails here, the counts expire by
    /// themselves.
    pub(crate) async fn clear(&self, attempt: AttemptKey<'_>, row: Digest, keyed: &Keyed) -> Result<(), StoreError> {
        let counted = self.throttles.remove(Some(attempt.tenant), row.as_bytes()).await;
        let hidden = self.throttles.remove(Some(attempt.tenant), attempt.hidden(keyed).as_bytes()).await;
        counted.and(hidden)?;
        Ok(())
    }

    /// Removes the failures of a person: those of this name, of the account's contacts, and of the account.
    pub(crate) async fn unlock(
        &self,
        tenant: &Tenant,
        identifier: &Identifier,
        account: Option<&Account>,
        keyed: &Keyed,
    ) -> Result<(), StoreError> {
        let contacts: Vec<&Contact> = account.iter().flat_map(|it| it.contacts()).map(|(contact, _)| contact).collect();
        // people sign in with their addresses, too
        let names = contacts.iter().filter_map(|contact| Identifier::parse(contact.as_str()).ok());
        let names = names.chain([identifier.clone()]).map(|name| submitted::name(&name, keyed));
        let names: Vec<Digest> = names.chain(account.map(|it| submitted::user(it.id(), keyed))).collect();
        let addresses: Vec<_> = contacts.iter().map(|contact| submitted::address(contact, keyed)).collect();
        for name in &names {
            let pairs = addresses.iter().map(|address| submitted::pair(name, address, keyed));
            for submitted in pairs.chain([*name]) {
                for method in Method::ALL.iter().copied() {
                    let key = AttemptKey { tenant, method, submitted: &submitted, account: None, device: None };
                    let row = key.visible(keyed);
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

    /// Counts a request for a code by this pair of name and address, or of trusted browser and address. Returns why it is
    /// refused, if it is, which the caller sees.
    pub(crate) async fn count_request(
        &self,
        attempt: AttemptKey<'_>,
        pair: &Digest,
    ) -> Result<Option<SendRefused>, StoreError> {
        let limit = SendLimit::of(attempt.method, &self.limits);
        self.sent_codes
            .update(Some(attempt.tenant), pair.as_bytes(), |row, now| {
                match row.cloned().unwrap_or_default().one_more(attempt.method, limit, now) {
                    Ok(next) => Change::Put(next, SentCodes::forgotten_at(limit, now), None),
                    Err(refused) => Change::Keep(Some(refused)),
                }
            })
            .await
    }

    /// Counts a code that is really sent to an address. Returns whether it may be, which the caller does not see.
    pub(crate) async fn count_message(&self, attempt: AttemptKey<'_>, keyed: &Keyed) -> Result<bool, StoreError> {
        let row = match (attempt.account, attempt.device) {
            (Some(_), None) => "sent",
            (Some(_), Some(_)) => "sent to a trusted browser",
            (None, _) => "not sent",
        };
        let row = keyed.hash(row, [attempt.submitted.as_bytes()]);
        // several names of one account may ask at almost the same time
        let limit = SendLimit::of(attempt.method, &self.limits).without_interval();
        self.sent_codes
            .update(Some(attempt.tenant), row.as_bytes(), |row, now| {
                let sent = row.cloned().unwrap_or_default();
                let more = sent.one_more(attempt.method, limit, now);
                let is_below = more.is_ok();
                // also written at the limit, because a missing write could be timed
                let kept_until = match attempt.account {
                    Some(_) => SentCodes::forgotten_at(limit, now),
                    None => now + DECOY_LIFETIME,
                };
                Change::Put(more.unwrap_or(sent), kept_until, is_below)
            })
            .await
    }

    /// Counts a notice to a verified contact. Returns whether it may be sent. As many may be sent as codes, but they count
    /// apart, so that they don't use up the codes.
    pub(crate) async fn count_notice(
        &self,
        tenant: &Tenant,
        method: Method,
        contact: &Contact,
        keyed: &Keyed,
    ) -> Result<bool, StoreError> {
        let limit = SendLimit::of(method, &self.limits).without_interval();
        let row = keyed.hash("notices", [submitted::address(contact, keyed).as_bytes()]);
        self.sent_codes
            .update(Some(tenant), row.as_bytes(), |row, now| {
                match row.cloned().unwrap_or_default().one_more(method, limit, now) {
                    Ok(next) => Change::Put(next, SentCodes::forgotten_at(limit, now), true),
                    Err(_) => Change::Keep(false),
                }
            })
            .await
    }
}

impl AttemptKey<'_> {
    fn visible(&self, keyed: &Keyed) -> Digest {
        keyed.hash("submitted", [self.method.as_str().as_bytes(), self.submitted.as_bytes()])
    }

    fn of_device(&self, keyed: &Keyed) -> Option<Digest> {
        let device = self.device.as_ref()?;
        Some(keyed.hash("attempts of device", [self.method.as_str().as_bytes(), device.as_bytes()]))
    }

    fn hidden(&self, keyed: &Keyed) -> Digest {
        match self.account {
            Some(account) => of_account(self.method, account, keyed),
            None => keyed.hash("nobody", [self.method.as_str().as_bytes(), self.submitted.as_bytes()]),
        }
    }
}

fn of_account(method: Method, account: &UserId, keyed: &Keyed) -> Digest {
    keyed.hash("account", [method.as_str().as_bytes(), account.as_str().as_bytes()])
}
