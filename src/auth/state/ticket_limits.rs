//! Limits of tickets: the requests for messages to an address that need not belong to an account, the messages, and the guesses of
//! their codes.

use std::time::Duration;

use super::{
    guard::{Guard, submitted},
    tickets::{TicketPlace, TicketPurpose},
};
use crate::{
    login::{Keyed, SendLimit, SendRefused, SentCodes, Throttle},
    policy::Method,
    session::UserId,
    store::{StoreError, table::Change},
    tenant::LimitKey,
    user::Contact,
    util::{clock::UnixTime, secret::SecretDigest},
};

impl Guard {
    /// Counts a request for a message to an address that need not belong to an account. Each user, and each login without a
    /// user, has one count for all addresses, and another one for all numbers. Text messages cost money, so the client address
    /// has a count of them too. Returns how long to wait if there were too many requests.
    pub(crate) async fn count_ticket_request(
        &self,
        (place, user): (TicketPlace<'_>, Option<&UserId>),
        method: Method,
        client: Option<&LimitKey>,
        keyed: &Keyed,
    ) -> Result<Result<(), Duration>, StoreError> {
        let by_user = |name| match user {
            Some(user) => keyed.hash(name, [b"user", user.as_str().as_bytes()]),
            None => keyed.hash(name, [b"browser", place.browser.as_bytes()]),
        };
        let rows = match (method, client) {
            (Method::Email, _) => vec![(by_user("ticket requests"), SendLimit::OF_TICKET_REQUESTS)],
            (_, None) => vec![(by_user("text requests"), SendLimit::OF_TEXT_REQUESTS)],
            (_, Some(client)) => vec![
                (by_user("text requests"), SendLimit::OF_TEXT_REQUESTS),
                (keyed.hash("text requests by client", [client.as_bytes()]), SendLimit::OF_TEXT_REQUESTS_BY_CLIENT),
            ],
        };
        for (row, limit) in rows {
            let counted = self.count_sent(place.tenant, &row, (method, limit)).await?;
            if let Err(SendRefused::TooSoon(wait) | SendRefused::TooMany(wait)) = counted {
                return Ok(Err(wait));
            }
        }
        Ok(Ok(()))
    }

    /// Counts a message to an address that need not belong to an account. Returns whether it may be sent, which the caller does
    /// not see: an address gets at most ten a day. Callers who are not signed in can use up only a part of them, and fewer from
    /// one client address, so some are left for signed-in users.
    pub(crate) async fn count_ticket_message(
        &self,
        place: TicketPlace<'_>,
        (method, contact): (Method, &Contact),
        client: Option<&LimitKey>,
        keyed: &Keyed,
    ) -> Result<bool, StoreError> {
        let contact = submitted::mailbox(contact, keyed);
        let by_client = client.map_or_else(Default::default, LimitKey::as_bytes);
        let rows = [
            keyed.hash("tickets by client", [contact.as_bytes(), by_client]),
            keyed.hash("tickets", [contact.as_bytes()]),
        ];
        let limits = match (place.purpose, client) {
            (TicketPurpose::SignUp, Some(_)) => [SendLimit::OF_TICKETS_BY_CLIENT, SendLimit::OF_TICKETS_BY_STRANGERS],
            (TicketPurpose::SignUp, None) => [SendLimit::OF_TICKETS_BY_STRANGERS; 2],
            _ => [SendLimit::OF_TICKETS; 2],
        };
        let mut may_send = true;
        for (row, limit) in rows.iter().zip(limits) {
            let count = |row: Option<&SentCodes>, now| {
                let sent = row.cloned().unwrap_or_default();
                let more = sent.one_more(method, limit, now).ok().filter(|_| may_send);
                let is_below = more.is_some();
                // also written at the limit, because a missing write could be timed
                Change::Put(more.unwrap_or(sent), SentCodes::forgotten_at(limit, now), is_below)
            };
            may_send = self.sent_codes.update(Some(place.tenant), row.as_bytes(), count).await?;
        }
        Ok(may_send)
    }

    /// Counts a guess of the code of a ticket to this address in this browser. Returns how long to wait if there were too many.
    pub(crate) async fn count_ticket_guess(
        &self,
        place: TicketPlace<'_>,
        contact: &Contact,
        keyed: &Keyed,
    ) -> Result<Result<(), Duration>, StoreError> {
        let kept_until = |now: UnixTime| match place.purpose {
            // the browser can't guess after its login has ended
            TicketPurpose::SignUp => now + self.limits.absolute_timeout,
            _ => Throttle::forgotten_at(now),
        };
        let count = |row: Option<&Throttle>, now| match row.copied().unwrap_or_default().count(&self.limits, now) {
            Ok(next) => Change::Put(next, kept_until(now), Ok(())),
            Err(wait) => Change::Keep(Err(wait)),
        };
        self.throttles.update(Some(place.tenant), ticket_guesses(place, contact, keyed).as_bytes(), count).await
    }

    /// Removes the count of guesses after a right one.
    pub(crate) async fn clear_ticket_guesses(
        &self,
        place: TicketPlace<'_>,
        contact: &Contact,
        keyed: &Keyed,
    ) -> Result<(), StoreError> {
        self.throttles.remove(Some(place.tenant), ticket_guesses(place, contact, keyed).as_bytes()).await
    }
}

/// The row that counts guesses of the codes of tickets to this address in one browser.
fn ticket_guesses(place: TicketPlace<'_>, contact: &Contact, keyed: &Keyed) -> SecretDigest {
    let contact = submitted::address(contact, keyed);
    keyed.hash("ticket guesses in browser", [contact.as_bytes(), place.browser.as_bytes()])
}
