//! Limits of tickets: the requests for messages to an address that need not belong to an account, the messages, and the guesses of
//! their codes.

use std::time::Duration;

use super::{
    guard::{Guard, submitted},
    tickets::{TicketPlace, TicketPurpose},
};
use crate::{
    login::{Keyed, SendLimit, SendRefused, Throttle},
    policy::Method,
    session::UserId,
    store::{StoreError, table::Change},
    tenant::{LimitKey, Tenant},
    user::Contact,
    util::{clock::UnixTime, secret::SecretDigest},
};

impl Guard {
    /// Counts a message to an address that need not belong to an account, or returns how long to wait if there were too many.
    ///
    /// An address gets ten messages a day. One user, one client address and all strangers can use up only a part of them. Each
    /// user, and each login without a user, has a count of messages to all addresses, and another one of those to numbers. Text
    /// messages cost money, so the client address has a count of them too. A refused message counts nowhere. The wait depends on the
    /// callers who have asked, and not on whether there is an account.
    pub(crate) async fn count_ticket_message(
        &self,
        (place, user): (TicketPlace<'_>, Option<&UserId>),
        (method, contact): (Method, &Contact),
        client: Option<&LimitKey>,
        keyed: &Keyed,
    ) -> Result<Result<(), Duration>, StoreError> {
        let by_user = |name| match user {
            Some(user) => keyed.hash(name, [b"user", user.as_str().as_bytes()]),
            None => keyed.hash(name, [b"browser", place.browser.as_bytes()]),
        };
        let mut rows = match method {
            Method::Email => vec![(by_user("ticket requests"), SendLimit::OF_TICKET_REQUESTS)],
            _ => vec![(by_user("text requests"), SendLimit::OF_TEXT_REQUESTS)],
        };
        if let Some(client) = client.filter(|_| method != Method::Email) {
            let row = keyed.hash("text requests by client", [client.as_bytes()]);
            rows.push((row, SendLimit::OF_TEXT_REQUESTS_BY_CLIENT));
        }
        let contact = submitted::mailbox(contact, keyed);
        let to_contact = |name, by| keyed.hash(name, [contact.as_bytes(), by]);
        let (by_client, of_all) = match user {
            Some(user) => {
                rows.push((to_contact("tickets by user", user.as_str().as_bytes()), SendLimit::OF_TICKETS_BY_USER));
                ("tickets by client of users", SendLimit::OF_TICKETS)
            }
            None => ("tickets by client", SendLimit::OF_TICKETS_BY_STRANGERS),
        };
        rows.extend(client.map(|it| (to_contact(by_client, it.as_bytes()), SendLimit::OF_TICKETS_BY_CLIENT)));
        // last: of many requests at the same time, those beyond a share must not count here
        rows.push((keyed.hash("tickets", [contact.as_bytes()]), of_all));
        self.count_in_all(place.tenant, &rows, method).await
    }

    /// Counts a message in each of these rows, or in none if one of them has too many. Returns the longest wait then.
    async fn count_in_all(
        &self,
        tenant: &Tenant,
        rows: &[(SecretDigest, SendLimit)],
        method: Method,
    ) -> Result<Result<(), Duration>, StoreError> {
        let mut longest = None;
        for (row, limit) in rows {
            let found = self.sent_codes.get(Some(tenant), row.as_bytes()).wait().await?;
            let sent = found.map(|found| found.value).unwrap_or_default();
            if let Err(SendRefused::TooSoon(wait) | SendRefused::TooMany(wait)) =
                sent.one_more(method, *limit, self.sent_codes.now())
            {
                longest = longest.max(Some(wait));
            }
        }
        if let Some(wait) = longest {
            return Ok(Err(wait));
        }
        // other calls may have counted meanwhile
        for (row, limit) in rows {
            let counted = self.count_sent(tenant, row, (method, *limit)).await?;
            if let Err(SendRefused::TooSoon(wait) | SendRefused::TooMany(wait)) = counted {
                return Ok(Err(wait));
            }
        }
        Ok(Ok(()))
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
