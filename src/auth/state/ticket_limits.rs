//! Limits of tickets: the messages to an address that need not belong to an account, and the guesses of their codes.

use std::time::Duration;

use super::guard::{Guard, submitted};
use crate::{
    login::{Keyed, SendLimit, SentCodes, Throttle},
    policy::Method,
    store::{StoreError, table::Change},
    tenant::Tenant,
    user::Contact,
    util::secret::SecretDigest,
};

impl Guard {
    /// Counts a message to an address that need not belong to an account. Returns whether it may be sent, which the caller does
    /// not see: an address gets at most ten a day, whoever asks for them.
    pub(crate) async fn count_ticket_message(
        &self,
        tenant: &Tenant,
        (method, contact): (Method, &Contact),
        keyed: &Keyed,
    ) -> Result<bool, StoreError> {
        let limit = SendLimit::OF_TICKETS;
        let messages = keyed.hash("tickets", [submitted::address(contact, keyed).as_bytes()]);
        let count = |row: Option<&SentCodes>, now| {
            let sent = row.cloned().unwrap_or_default();
            let more = sent.one_more(method, limit, now);
            let is_below = more.is_ok();
            // also written at the limit, because a missing write could be timed
            Change::Put(more.unwrap_or(sent), SentCodes::forgotten_at(limit, now), is_below)
        };
        self.sent_codes.update(Some(tenant), messages.as_bytes(), count).await
    }

    /// Counts a guess of the code of a ticket to this address. Returns how long to wait if there were too many.
    pub(crate) async fn count_ticket_guess(
        &self,
        tenant: &Tenant,
        contact: &Contact,
        keyed: &Keyed,
    ) -> Result<Result<(), Duration>, StoreError> {
        let row = ticket_guesses(contact, keyed);
        let count = |row: Option<&Throttle>, now| match row.copied().unwrap_or_default().count(&self.limits, now) {
            Ok(next) => Change::Put(next, Throttle::forgotten_at(&self.limits, now), Ok(())),
            Err(wait) => Change::Keep(Err(wait)),
        };
        self.throttles.update(Some(tenant), row.as_bytes(), count).await
    }

    /// Removes the counts of guesses after a right one.
    pub(crate) async fn clear_ticket_guesses(
        &self,
        tenant: &Tenant,
        contact: &Contact,
        keyed: &Keyed,
    ) -> Result<(), StoreError> {
        self.throttles.remove(Some(tenant), ticket_guesses(contact, keyed).as_bytes()).await
    }
}

/// The row that counts guesses of the codes of tickets to this address, from all browsers.
fn ticket_guesses(contact: &Contact, keyed: &Keyed) -> SecretDigest {
    keyed.hash("ticket guesses", [submitted::address(contact, keyed).as_bytes()])
}
