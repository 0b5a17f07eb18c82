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
        self.count_in_all(place.tenant, &rows, method).await
    }

    /// Counts a message to an address that need not belong to an account: at most ten a day. A signed-in user can use up only
    /// a part of them, as can callers at one client address and all who are not signed in. Returns how long to wait if there were
    /// too many. That depends on who has asked, and not on whether there is an account.
    pub(crate) async fn count_ticket_message(
        &self,
        (place, user): (TicketPlace<'_>, Option<&UserId>),
        (method, contact): (Method, &Contact),
        client: Option<&LimitKey>,
        keyed: &Keyed,
    ) -> Result<Result<(), Duration>, StoreError> {
        let contact = submitted::mailbox(contact, keyed);
        let of_all = keyed.hash("tickets", [contact.as_bytes()]);
        let own = |name, by| keyed.hash(name, [contact.as_bytes(), by]);
        let limit = if user.is_some() { SendLimit::OF_TICKETS } else { SendLimit::OF_TICKETS_BY_STRANGERS };
        let mut rows = vec![(of_all, limit)];
        rows.extend(user.map(|user| (own("tickets by user", user.as_str().as_bytes()), SendLimit::OF_TICKETS_BY_USER)));
        rows.extend(client.map(|it| (own("tickets by client", it.as_bytes()), SendLimit::OF_TICKETS_BY_CLIENT)));
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
