//! Stored counts of failed attempts and of sent codes.
//!
//! A refusal that the caller sees depends only on what the caller submitted, so it shows nothing about accounts. Counts of
//! real accounts and addresses are hidden. Every path writes the same number of rows for known and unknown users.
//!
//! A trusted browser has counts of its own, so others cannot use up the attempts and messages of its owner.

use std::{sync::Arc, time::Duration};

use crate::{
    login::{Keyed, LoginLimits, SendLimit, SendRefused, SentCodes, Throttle},
    policy::Method,
    session::UserId,
    store::{
        AnyStore, StoreError, StoreErrorKind,
        batch::{Outcomes, Slot},
        table::{Change, ReadRow, RowOperation, Table},
    },
    tenant::Tenant,
    user::{Account, Contact, Identifier},
    util::{
        clock::{Clock, UnixTime},
        public_id::PublicId,
        secret::SecretDigest,
    },
};

/// Digests of what callers submit. Rows belong to a tenant, so the digests need not name it.
pub(crate) mod submitted {
    use super::{Contact, Identifier, Keyed, PublicId, SecretDigest, UserId};

    /// A name. An address that is typed as a name has the digest of the address.
    pub(crate) fn name(name: &Identifier, keyed: &Keyed) -> SecretDigest {
        text(name.as_str(), keyed)
    }

    pub(crate) fn address(address: &Contact, keyed: &Keyed) -> SecretDigest {
        text(address.as_str(), keyed)
    }

    /// The mailbox of an address, or a number. Many servers deliver `name+anything` to `name`, so limits of messages count them
    /// together.
    pub(crate) fn mailbox(contact: &Contact, keyed: &Keyed) -> SecretDigest {
        let parts = match contact {
            Contact::Email(address) => address.as_str().rsplit_once('@'),
            Contact::Phone(_) => None,
        };
        match parts.and_then(|(local, domain)| Some((local.split_once('+')?.0, domain))) {
            Some((name, domain)) if !name.is_empty() => text(&format!("{name}@{domain}"), keyed),
            _ => address(contact, keyed),
        }
    }

    fn text(text: &str, keyed: &Keyed) -> SecretDigest {
        keyed.hash("name or address", [text.as_bytes()])
    }

    /// The id of a passkey. Others don't know it, so they can't lock its owner out.
    pub(crate) fn passkey(id: &[u8], keyed: &Keyed) -> SecretDigest {
        keyed.hash("submitted passkey", [id])
    }

    /// Takes the place of a name where the login knows its user: in logins that began with a session, and for codes of apps.
    pub(crate) fn user(user: &UserId, keyed: &Keyed) -> SecretDigest {
        keyed.hash("submitted user", [user.as_str().as_bytes()])
    }

    /// Combines a name with an address, so that knowing an address is not enough to lock its owner out.
    pub(crate) fn pair(name: &SecretDigest, address: &SecretDigest, keyed: &Keyed) -> SecretDigest {
        keyed.hash("submitted pair", [name.as_bytes(), address.as_bytes()])
    }

    /// Takes the place of the pair if the browser is trusted.
    pub(crate) fn by_device(device: &PublicId, address: &SecretDigest, keyed: &Keyed) -> SecretDigest {
        keyed.hash("submitted by device", [device.as_bytes(), address.as_bytes()])
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Guard {
    pub(super) throttles: Table<Throttle>,
    pub(super) sent_codes: Table<SentCodes>,
    pub(super) limits: LoginLimits,
}

/// How long failures with the id of a passkey are remembered: signatures can't be guessed, and anyone can make up any number
/// of ids.
const PASSKEY_MEMORY: Duration = Duration::from_secs(60);

/// What selects the rows that count an attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptKey<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) method: Method,
    /// The digest of what was submitted: a name, an address, a passkey, or the user that the login knows.
    pub(crate) submitted: &'a SecretDigest,
    pub(crate) account: Option<&'a UserId>,
    /// Set if the browser is trusted for the account.
    pub(crate) device: Option<PublicId>,
}

/// Which rows have counted an attempt so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    /// The row of the trusted browser or of what was submitted, and what was written to it, once it has counted the attempt.
    pub(crate) row: Option<(SecretDigest, Throttle)>,
    /// Whether the account was below the ceiling, once its row has counted the attempt.
    pub(crate) below_ceiling: Option<bool>,
}

/// A row that counts attempts, as it was read, and its id.
pub(crate) type AttemptRow = (SecretDigest, ReadRow<Throttle>);

/// The decision on an attempt.
pub(crate) struct AttemptDecision<'r> {
    row: &'r AttemptRow,
    /// The new value of that row, with the attempt.
    counted: Throttle,
    hidden: &'r AttemptRow,
    pub(crate) below_ceiling: bool,
    /// The writes that count the attempt, as far as it is not counted yet.
    pub(crate) counts: Vec<RowOperation<'r, Throttle>>,
}

/// How far a request for a code is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CountedCode {
    pub(crate) request: bool,
    /// Whether the address was below its limit, once its row has counted the code.
    pub(crate) below_limit: Option<bool>,
}

/// The decision on a request for a code.
pub(crate) struct CodeDecision<'g> {
    pub(crate) below_limit: bool,
    /// The writes that count the request, as far as it is not counted yet.
    pub(crate) counts: Vec<RowOperation<'g, SentCodes>>,
}

impl Counted {
    /// Notes which writes of a decision were done. Returns whether all were.
    pub(crate) fn note(
        &mut self,
        decision: &AttemptDecision<'_>,
        (counts, outcomes): (&[Slot<'_, Throttle>], &Outcomes),
    ) -> bool {
        let mut is_done = counts.iter().map(|count| outcomes.version(count).is_some());
        if self.row.is_none() && is_done.next() == Some(true) {
            self.row = Some((decision.row.0, decision.counted));
        }
        if self.below_ceiling.is_none() && is_done.next() == Some(true) {
            self.below_ceiling = Some(decision.below_ceiling);
        }
        self.row.is_some() && self.below_ceiling.is_some()
    }

    /// Returns whether any row has counted the attempt.
    pub(crate) fn is_any(self) -> bool {
        self.row.is_some() || self.below_ceiling.is_some()
    }

    /// Notes which writes that remove the failures were done, and the attempt with them.
    pub(crate) fn note_cleared(&mut self, [row, hidden]: [bool; 2]) {
        self.row = self.row.filter(|_| !row);
        self.below_ceiling = self.below_ceiling.filter(|_| !hidden);
    }
}

impl CountedCode {
    /// Notes which writes of a decision were done. Returns whether all were.
    pub(crate) fn note(&mut self, below_limit: bool, counts: &[Slot<'_, SentCodes>], outcomes: &Outcomes) -> bool {
        let mut is_done = counts.iter().map(|count| outcomes.version(count).is_some());
        self.request = self.request || is_done.next() == Some(true);
        if self.below_limit.is_none() && is_done.next() == Some(true) {
            self.below_limit = Some(below_limit);
        }
        self.request && self.below_limit.is_some()
    }
}

impl Guard {
    pub(crate) fn new(store: AnyStore, clock: Arc<dyn Clock>, limits: LoginLimits) -> Self {
        Self {
            throttles: Table::new(store.clone(), "throttles", Arc::clone(&clock)),
            sent_codes: Table::new(store, "sends", clock),
            limits,
        }
    }

    /// Returns the operations that read the rows of an attempt.
    pub(crate) fn prepare_attempt_reads(
        &self,
        tenant: &Tenant,
        ids: &[SecretDigest],
    ) -> Result<Vec<RowOperation<'_, Throttle>>, StoreError> {
        ids.iter().map(|row| self.throttles.prepare_row_read(Some(tenant), row.as_bytes())).collect()
    }

    /// Decides on an attempt: it counts under the trusted browser or under what was submitted, and against the account.
    /// Returns how long to wait if the first of these refuses it.
    ///
    /// A trusted browser that must wait is counted like any other, so it never waits longer than without its cookie.
    /// Attempts against the account are also written at its ceiling, because a missing write could be timed.
    pub(crate) fn decide_attempt<'r>(
        &'r self,
        attempt: AttemptKey<'_>,
        (rows, counted): (&'r [AttemptRow], Counted),
    ) -> Result<Result<AttemptDecision<'r>, Duration>, StoreError> {
        let (now, tenant) = (self.throttles.now(), Some(attempt.tenant));
        let (mut counts, mut shortest, mut counted_in) = (Vec::with_capacity(2), Duration::MAX, None);
        let (of_account, shown) = rows.split_last().ok_or(StoreErrorKind::Corrupt)?;
        for one in shown {
            let (id, row) = one;
            if let Some((own, written)) = counted.row {
                if own.matches(id) {
                    counted_in = Some((one, written));
                }
                continue;
            }
            match row.value().copied().unwrap_or_default().count(&self.limits, now) {
                Ok(next) => {
                    let kept_until = self.forgotten_at(attempt, now);
                    counts.push(self.throttles.prepare_row_write(tenant, id.as_bytes(), row, &next, kept_until)?);
                    counted_in = Some((one, next));
                    break;
                }
                Err(wait) => shortest = shortest.min(wait),
            }
        }
        let Some((row, written)) = counted_in else { return Ok(Err(shortest)) };
        let (id, hidden) = of_account;
        let before = hidden.value().copied().unwrap_or_default();
        let (next, is_below) = before.count_hidden(&self.limits, now, attempt.device.is_some());
        if counted.below_ceiling.is_none() {
            let kept_until = Throttle::forgotten_at(now);
            counts.push(self.throttles.prepare_row_write(tenant, id.as_bytes(), hidden, &next, kept_until)?);
        }
        let below_ceiling = counted.below_ceiling.unwrap_or(is_below);
        Ok(Ok(AttemptDecision { row, counted: written, hidden: of_account, below_ceiling, counts }))
    }

    /// Returns the writes that remove the failures instead of counting an attempt: they write rows that have expired. Each
    /// of them needs the row to be as it was read, so that of several attempts at the same time one is decided after the
    /// other.
    pub(crate) fn prepare_clear(
        &self,
        tenant: &Tenant,
        decision: &AttemptDecision<'_>,
    ) -> Result<[RowOperation<'_, Throttle>; 2], StoreError> {
        let (now, tenant, none) = (self.throttles.now(), Some(tenant), Throttle::default());
        let ((id, row), (hidden_id, hidden)) = (decision.row, decision.hidden);
        Ok([
            self.throttles.prepare_row_write(tenant, id.as_bytes(), row, &none, now)?,
            self.throttles.prepare_row_write(tenant, hidden_id.as_bytes(), hidden, &none, now)?,
        ])
    }

    /// Returns when the row of what was submitted is forgotten.
    fn forgotten_at(&self, attempt: AttemptKey<'_>, now: UnixTime) -> UnixTime {
        match attempt.method {
            // for known and invented ids alike
            Method::Passkey => now + PASSKEY_MEMORY,
            _ => Throttle::forgotten_at(now),
        }
    }

    /// Removes an attempt that could not be checked from the rows that counted it.
    pub(crate) async fn uncount(
        &self,
        attempt: AttemptKey<'_>,
        counted: Counted,
        keyed: &Keyed,
    ) -> Result<(), StoreError> {
        if let Some((row, written)) = counted.row {
            self.throttles
                .update(Some(attempt.tenant), row.as_bytes(), |row, now| match row {
                    Some(row) => Change::Put(row.uncount(written), self.forgotten_at(attempt, now), ()),
                    None => Change::Keep(()),
                })
                .await?;
        }
        let Some(counted_hidden) = counted.below_ceiling else { return Ok(()) };
        let kept_until = |now| Throttle::forgotten_at(now);
        self.throttles
            .update(Some(attempt.tenant), attempt.hidden(keyed).as_bytes(), |row, now| match row {
                Some(row) if counted_hidden => Change::Put(row.uncount_hidden(), kept_until(now), ()),
                Some(row) => Change::Put(*row, kept_until(now), ()),
                None => Change::Keep(()),
            })
            .await
    }

    /// Removes the failures after an attempt that was right, and that this row has counted. If the store fails here, the counts expire by
    /// themselves.
    pub(crate) async fn clear(
        &self,
        attempt: AttemptKey<'_>,
        row: SecretDigest,
        keyed: &Keyed,
    ) -> Result<(), StoreError> {
        let counted = self.throttles.remove(Some(attempt.tenant), row.as_bytes()).await;
        let hidden = self.throttles.remove(Some(attempt.tenant), attempt.hidden(keyed).as_bytes()).await;
        counted.and(hidden)?;
        Ok(())
    }

    /// Removes the failures of a user: those of this name, of the account's contacts, and of the account.
    pub(crate) async fn unlock(
        &self,
        tenant: &Tenant,
        identifier: Option<&Identifier>,
        account: Option<&Account>,
        keyed: &Keyed,
    ) -> Result<(), StoreError> {
        let contacts: Vec<&Contact> = account.iter().flat_map(|it| it.contacts()).map(|(contact, _)| contact).collect();
        // people sign in with their addresses, too
        let names = contacts.iter().filter_map(|contact| Identifier::parse(contact.as_str()).ok());
        let names = names.chain(identifier.cloned()).map(|name| submitted::name(&name, keyed));
        let names: Vec<SecretDigest> = names.chain(account.map(|it| submitted::user(it.id(), keyed))).collect();
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

    /// Returns the operations that read the rows of a request for a code.
    pub(crate) fn prepare_code_reads(
        &self,
        tenant: &Tenant,
        ids: &[SecretDigest; 2],
    ) -> Result<Vec<RowOperation<'_, SentCodes>>, StoreError> {
        ids.iter().map(|row| self.sent_codes.prepare_row_read(Some(tenant), row.as_bytes())).collect()
    }

    /// Decides on a request for a code. Returns why it is refused, if it is, which the caller sees. Whether a code is
    /// really sent, the caller does not see.
    pub(crate) fn decide_code(
        &self,
        attempt: AttemptKey<'_>,
        (ids, rows, counted): ([SecretDigest; 2], Vec<ReadRow<SentCodes>>, CountedCode),
    ) -> Result<Result<CodeDecision<'_>, SendRefused>, StoreError> {
        let (now, tenant) = (self.sent_codes.now(), Some(attempt.tenant));
        let limit = SendLimit::for_send_method(attempt.method);
        let kept_until = SentCodes::forgotten_at(limit, now);
        let mut counts = Vec::with_capacity(2);
        let mut rows = ids.into_iter().zip(rows);
        let ((request_id, request), (message_id, message)) =
            rows.next().zip(rows.next()).ok_or(StoreErrorKind::Corrupt)?;
        if !counted.request {
            let (id, row) = (request_id, &request);
            match row.value().unwrap_or(&SentCodes::default()).one_more(attempt.method, limit, now) {
                Ok(next) => {
                    counts.push(self.sent_codes.prepare_row_write(tenant, id.as_bytes(), row, &next, kept_until)?);
                }
                Err(refused) => return Ok(Err(refused)),
            }
        }
        let below_limit = match counted.below_limit {
            Some(below_limit) => below_limit,
            None => {
                let (id, row) = (message_id, &message);
                let sent = row.value().cloned().unwrap_or_default();
                // several names of one account may ask at almost the same time
                let more = sent.one_more(attempt.method, limit.without_interval(), now);
                let is_below = more.is_ok();
                // also written at the limit, because a missing write could be timed
                let next = more.unwrap_or(sent);
                counts.push(self.sent_codes.prepare_row_write(tenant, id.as_bytes(), row, &next, kept_until)?);
                is_below
            }
        };
        Ok(Ok(CodeDecision { below_limit, counts }))
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
        let limit = SendLimit::for_send_method(method).without_interval();
        let row = keyed.hash("notices", [submitted::address(contact, keyed).as_bytes()]);
        Ok(self.count_sent(tenant, &row, (method, limit)).await?.is_ok())
    }

    /// Counts a message in a row, unless it has too many.
    pub(super) async fn count_sent(
        &self,
        tenant: &Tenant,
        row: &SecretDigest,
        (method, limit): (Method, SendLimit),
    ) -> Result<Result<(), SendRefused>, StoreError> {
        let count = |row: Option<&SentCodes>, now| match row.cloned().unwrap_or_default().one_more(method, limit, now) {
            Ok(next) => Change::Put(next, SentCodes::forgotten_at(limit, now), Ok(())),
            Err(refused) => Change::Keep(Err(refused)),
        };
        self.sent_codes.update(Some(tenant), row.as_bytes(), count).await
    }
}

impl AttemptKey<'_> {
    /// Returns the ids of the rows that count the attempt: of the trusted browser, if it is one, of what was submitted, and
    /// last of the account, which callers can't see.
    pub(crate) fn ids(&self, keyed: &Keyed) -> Vec<SecretDigest> {
        self.of_device(keyed).into_iter().chain([self.visible(keyed), self.hidden(keyed)]).collect()
    }

    fn visible(&self, keyed: &Keyed) -> SecretDigest {
        keyed.hash("submitted", [self.method.as_str().as_bytes(), self.submitted.as_bytes()])
    }

    fn of_device(&self, keyed: &Keyed) -> Option<SecretDigest> {
        let device = self.device.as_ref()?;
        Some(keyed.hash("attempts of device", [self.method.as_str().as_bytes(), device.as_bytes()]))
    }

    /// Returns the id of the row that counts the codes that are really sent to the submitted address.
    pub(crate) fn messages(&self, keyed: &Keyed) -> SecretDigest {
        match (self.account, self.device) {
            (Some(_), None) => keyed.hash("sent", [self.submitted.as_bytes()]),
            (Some(_), Some(_)) => keyed.hash("sent to a trusted browser", [self.submitted.as_bytes()]),
            (None, _) => keyed.hash("not sent", [&self.shared_row()]),
        }
    }

    /// Returns one of 65,536 numbers, by which unknown users share rows. Their counts decide nothing and exist for equal work
    /// alone. They live as long as those of accounts, so callers must not be able to cause any number of them.
    fn shared_row(&self) -> [u8; 2] {
        let [first, second, ..] = *self.submitted.as_bytes();
        [first, second]
    }

    fn hidden(&self, keyed: &Keyed) -> SecretDigest {
        match self.account {
            Some(account) => of_account(self.method, account, keyed),
            None => keyed.hash("nobody", [self.method.as_str().as_bytes(), &self.shared_row()]),
        }
    }
}

fn of_account(method: Method, account: &UserId, keyed: &Keyed) -> SecretDigest {
    keyed.hash("account", [method.as_str().as_bytes(), account.as_str().as_bytes()])
}
