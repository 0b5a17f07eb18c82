//! Tickets: proofs by message outside of logins. A ticket is a code of six digits that counts in one browser, or the secret
//! of a link.
//!
//! A row contains only the digest of the secret. There is at most one code for each purpose and browser, so no caller can
//! replace the code of another browser, and repeating a request adds no row.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    login::{BoundUser, Keyed, OneTimeCode},
    store::{
        AnyStore, StoreError, StoreErrorKind, WriteOutcome,
        table::{Change, Stored, Table},
    },
    tenant::Tenant,
    user::Contact,
    util::{
        clock::{Clock, UnixTime},
        fmt::named_enum,
        public_id::PublicId,
        secret::{Secret, SecretDigest},
    },
};

/// How long a code can be typed, and how long its proof can be used afterwards.
pub(crate) const CODE_LIVES: Duration = Duration::from_secs(600);
/// How many wrong guesses invalidate a code.
const GUESSES: u8 = 5;

named_enum! {
    /// The purpose of a ticket. It counts for no other.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum TicketPurpose {
        /// The address of a new account.
        SignUp = "sign up",
        /// A new contact of an account.
        Contact = "contact",
        /// An account to which the application invites.
        Invitation = "invitation",
        /// A new password for an account whose user the application has identified.
        Reset = "reset",
    }

    fn as_str;
}

/// The contents of a ticket: the address whose owner has read the message, and what the message was for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ticket {
    /// The address that the message was sent to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) contact: Option<Contact>,
    /// The contact that `contact` replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replaces: Option<Contact>,
    /// The user that the ticket is for, and the generation that was current then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<BoundUser>,
    /// The claims that the application has set for the new account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) claims: Option<Map<String, Value>>,
    /// The invitation that it comes from. It counts only while there is no newer one and this one was not withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) invitation: Option<[u8; 32]>,
}

impl Ticket {
    /// Creates a ticket for an address.
    pub(crate) fn for_contact(contact: Contact) -> Self {
        Self { contact: Some(contact), ..Self::default() }
    }

    /// Adds the user that the ticket is for.
    pub(crate) fn of_user(self, user: BoundUser) -> Self {
        Self { user: Some(user), ..self }
    }
}

/// The browser in which a code counts: it has the cookie of the login or of the session with this id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TicketPlace<'a> {
    pub(crate) purpose: TicketPurpose,
    pub(crate) tenant: &'a Tenant,
    pub(crate) browser: &'a PublicId,
}

/// A stored ticket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TicketRow {
    pub(crate) ticket: Ticket,
    /// In nanoseconds of Unix time.
    began: u64,
    /// `None` once the code was typed, and for links.
    code: Option<StoredCode>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredCode {
    digest: [u8; 32],
    guesses_left: u8,
}

impl TicketRow {
    pub(crate) fn began(&self) -> UnixTime {
        UnixTime::from_nanos(self.began)
    }
}

/// The outcome of a guess.
#[derive(Debug)]
pub(crate) enum Guess {
    Right(Box<Ticket>),
    Wrong,
    /// No code waits for a guess: none was sent, it has expired, or there were too many wrong ones.
    NoCode,
}

/// All tickets.
#[derive(Clone, Debug)]
pub(crate) struct Tickets(Table<TicketRow>);

impl Tickets {
    pub(crate) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self(Table::new(store, "tickets", clock))
    }

    /// Stores a ticket under a new code, in place of an earlier one for the same purpose and browser. Returns how long to wait
    /// if there was a code to the same address within `interval`.
    pub(crate) async fn open_code(
        &self,
        place: TicketPlace<'_>,
        ticket: &Ticket,
        (code, interval): (&OneTimeCode, Duration),
        keyed: &Keyed,
    ) -> Result<Result<(), Duration>, StoreError> {
        let digest = *place.code(ticket, code.expose(), keyed).as_bytes();
        let open = |row: Option<&TicketRow>, now: UnixTime| {
            if let Err(wait) = may_replace(row, ticket, interval, now) {
                return Change::Keep(Err(wait));
            }
            let code = Some(StoredCode { digest, guesses_left: GUESSES });
            Change::Put(TicketRow { ticket: ticket.clone(), began: now.as_nanos(), code }, now + CODE_LIVES, Ok(()))
        };
        self.0.update(Some(place.tenant), place.id(keyed).as_bytes(), open).await
    }

    /// Returns what [`open_code`](Self::open_code) would, and stores nothing.
    pub(crate) async fn may_open_code(
        &self,
        place: TicketPlace<'_>,
        ticket: &Ticket,
        interval: Duration,
        keyed: &Keyed,
    ) -> Result<Result<(), Duration>, StoreError> {
        let found = self.0.get(Some(place.tenant), place.id(keyed).as_bytes()).wait().await?;
        Ok(may_replace(found.as_ref().map(|found| &found.value), ticket, interval, self.0.now()))
    }

    /// Counts a guess of a code to this contact and compares it, in one step. After the right one, the ticket is
    /// [`proved`](Self::proved). Another call may have replaced the code by one to another contact, for which the guess was not
    /// counted.
    pub(crate) async fn guess_code(
        &self,
        place: TicketPlace<'_>,
        (contact, typed): (&Contact, &str),
        keyed: &Keyed,
    ) -> Result<Guess, StoreError> {
        let cutoff = self.0.cutoff().wait().await?;
        let guess = |row: Option<&TicketRow>, now: UnixTime| {
            let is_counted = |row: &&TicketRow| row.ticket.contact.as_ref() == Some(contact);
            let Some(row) = row.filter(is_counted).filter(|row| row.began >= cutoff.as_nanos()) else {
                return Change::Keep(Guess::NoCode);
            };
            let Some(code) = &row.code else { return Change::Keep(Guess::NoCode) };
            let (kept_until, mut next) = (UnixTime::from_nanos(row.began) + CODE_LIVES, row.clone());
            if SecretDigest::from_bytes(code.digest).matches(&place.code(&row.ticket, typed, keyed)) {
                next.code = None;
                return Change::Put(next, now + CODE_LIVES, Guess::Right(Box::new(row.ticket.clone())));
            }
            let guesses_left = code.guesses_left.saturating_sub(1);
            next.code = Some(StoredCode { guesses_left, ..code.clone() });
            // after the last one, it has expired by every clock, including those of other nodes that are behind
            Change::Put(next, if guesses_left == 0 { UnixTime::from_nanos(0) } else { kept_until }, Guess::Wrong)
        };
        self.0.update(Some(place.tenant), place.id(keyed).as_bytes(), guess).await
    }

    /// Returns the contact whose code is expected in this browser.
    pub(crate) async fn expected(&self, place: TicketPlace<'_>, keyed: &Keyed) -> Result<Option<Contact>, StoreError> {
        let found = self.0.get(Some(place.tenant), place.id(keyed).as_bytes()).wait().await?;
        Ok(found.filter(|found| found.value.code.is_some()).and_then(|found| found.value.ticket.contact))
    }

    /// Lets a link count as if its code had been typed in this browser.
    pub(crate) async fn adopt(&self, place: TicketPlace<'_>, ticket: &Ticket, keyed: &Keyed) -> Result<(), StoreError> {
        let adopt = |_: Option<&TicketRow>, now: UnixTime| {
            Change::Put(TicketRow { ticket: ticket.clone(), began: now.as_nanos(), code: None }, now + CODE_LIVES, ())
        };
        self.0.update(Some(place.tenant), place.id(keyed).as_bytes(), adopt).await
    }

    /// Returns the ticket whose code was typed in this browser.
    pub(crate) async fn proved(
        &self,
        place: TicketPlace<'_>,
        keyed: &Keyed,
    ) -> Result<Option<Stored<TicketRow>>, StoreError> {
        self.found(place.tenant, &place.id(keyed)).await
    }

    /// Uses up a ticket that was found. Returns `true` to one caller only.
    pub(crate) async fn use_up(
        &self,
        place: TicketPlace<'_>,
        found: &Stored<TicketRow>,
        keyed: &Keyed,
    ) -> Result<bool, StoreError> {
        self.end(place.tenant, &place.id(keyed), found).await
    }

    /// Stores a ticket under the secret of a new link.
    pub(crate) async fn create_link(
        &self,
        (purpose, tenant): (TicketPurpose, &Tenant),
        ticket: Ticket,
        lifetime: Duration,
    ) -> Result<Secret, StoreError> {
        let (secret, began) = (Secret::generate(), self.0.now());
        let row = TicketRow { ticket, began: began.as_nanos(), code: None };
        match self.0.insert(Some(tenant), link_id(purpose, &secret).as_bytes(), &row, began + lifetime).await? {
            WriteOutcome::Done(_) => Ok(secret),
            WriteOutcome::Lost(_) => Err(StoreErrorKind::Busy.into()),
        }
    }

    /// Uses up the ticket of a link, and returns it to one caller only.
    pub(crate) async fn take_link(
        &self,
        (purpose, tenant): (TicketPurpose, &Tenant),
        secret: &Secret,
    ) -> Result<Option<Ticket>, StoreError> {
        let id = link_id(purpose, secret);
        let Some(found) = self.found(tenant, &id).await? else { return Ok(None) };
        Ok(self.end(tenant, &id, &found).await?.then_some(found.value.ticket))
    }

    /// Stores an invitation under the secret of a new link, in place of an earlier one to the same contact.
    pub(crate) async fn create_invitation(
        &self,
        (tenant, contact): (&Tenant, &Contact),
        ticket: Ticket,
        lifetime: Duration,
        keyed: &Keyed,
    ) -> Result<Secret, StoreError> {
        let secret = self.create_link((TicketPurpose::Invitation, tenant), ticket, lifetime).await?;
        let digest = *link_id(TicketPurpose::Invitation, &secret).as_bytes();
        let replace = |_: Option<&TicketRow>, now: UnixTime| {
            let code = Some(StoredCode { digest, guesses_left: 0 });
            Change::Put(TicketRow { ticket: Ticket::default(), began: now.as_nanos(), code }, now + lifetime, ())
        };
        self.0.update(Some(tenant), newest_invitation(contact, keyed).as_bytes(), replace).await?;
        Ok(secret)
    }

    /// Returns the ticket of a link if it is the newest invitation to its contact. Older ones don't count. It lives until its
    /// account is created.
    pub(crate) async fn find_invitation(
        &self,
        tenant: &Tenant,
        secret: &Secret,
        keyed: &Keyed,
    ) -> Result<Option<Ticket>, StoreError> {
        let id = link_id(TicketPurpose::Invitation, secret);
        let Some(link) = self.found(tenant, &id).await? else { return Ok(None) };
        let ticket = Ticket { invitation: Some(*id.as_bytes()), ..link.value.ticket };
        Ok(self.is_current(tenant, &ticket, keyed).await?.then_some(ticket))
    }

    /// Returns whether a ticket comes from no invitation, or from the newest one to its contact.
    pub(crate) async fn is_current(&self, tenant: &Tenant, ticket: &Ticket, keyed: &Keyed) -> Result<bool, StoreError> {
        let (Some(own), Some(contact)) = (ticket.invitation, &ticket.contact) else { return Ok(true) };
        let newest = self.0.get(Some(tenant), newest_invitation(contact, keyed).as_bytes()).wait().await?;
        Ok(newest.and_then(|newest| newest.value.code).is_some_and(|code| code.digest == own))
    }

    /// Ends the invitation to a contact.
    pub(crate) async fn end_invitation(
        &self,
        (tenant, contact): (&Tenant, &Contact),
        keyed: &Keyed,
    ) -> Result<(), StoreError> {
        let id = newest_invitation(contact, keyed);
        let newest = self.0.get(Some(tenant), id.as_bytes()).wait().await?;
        self.0.remove(Some(tenant), id.as_bytes()).await?;
        match newest.and_then(|newest| newest.value.code) {
            Some(code) => self.0.remove(Some(tenant), &code.digest).await,
            None => Ok(()),
        }
    }

    async fn found(&self, tenant: &Tenant, id: &SecretDigest) -> Result<Option<Stored<TicketRow>>, StoreError> {
        let found = self.0.get(Some(tenant), id.as_bytes()).wait().await?;
        let cutoff = self.0.cutoff().wait().await?;
        Ok(found.filter(|found| found.value.code.is_none() && found.value.began >= cutoff.as_nanos()))
    }

    async fn end(&self, tenant: &Tenant, id: &SecretDigest, found: &Stored<TicketRow>) -> Result<bool, StoreError> {
        // it has expired by every clock, including those of other nodes that are behind
        let past = UnixTime::from_nanos(0);
        let outcome = self.0.swap(Some(tenant), id.as_bytes(), found, &found.value, past).await?;
        Ok(matches!(outcome, WriteOutcome::Done(_)))
    }
}

impl TicketPlace<'_> {
    fn id(&self, keyed: &Keyed) -> SecretDigest {
        keyed.hash("ticket", [self.purpose.as_str().as_bytes(), self.browser.as_bytes()])
    }

    /// Binds a code to its purpose, tenant, browser and address.
    fn code(&self, ticket: &Ticket, typed: &str, keyed: &Keyed) -> SecretDigest {
        let contact = ticket.contact.as_ref().map_or("", Contact::as_str);
        let place = [self.purpose.as_str().as_bytes(), self.tenant.as_str().as_bytes(), self.browser.as_bytes()];
        let [purpose, tenant, browser] = place;
        keyed.hash("ticket code", [purpose, tenant, browser, contact.as_bytes(), typed.as_bytes()])
    }
}

/// The row with the digest of the newest invitation to a contact.
fn newest_invitation(contact: &Contact, keyed: &Keyed) -> SecretDigest {
    keyed.hash("newest invitation", [contact.as_str().as_bytes()])
}

fn link_id(purpose: TicketPurpose, secret: &Secret) -> SecretDigest {
    SecretDigest::of_secret([purpose.as_str().as_bytes(), b": ", secret.expose().as_bytes()].concat())
}

/// Returns how long to wait if there was a code to the same address within `interval`.
fn may_replace(row: Option<&TicketRow>, ticket: &Ticket, interval: Duration, now: UnixTime) -> Result<(), Duration> {
    let again = row.filter(|row| row.ticket.contact == ticket.contact && row.code.is_some());
    let next = again.map_or(now, |row| UnixTime::from_nanos(row.began) + interval);
    if next > now { Err(Duration::from_nanos(next.as_nanos() - now.as_nanos())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        auth::state::pushed::tests::Unswept,
        store::Memory,
        testing::{ManualClock, block_on},
        user::EmailAddress,
    };

    struct Desk {
        tickets: Tickets,
        keyed: Keyed,
        clock: ManualClock,
        tenants: [Tenant; 2],
        browsers: [PublicId; 2],
    }

    impl Desk {
        fn new() -> Self {
            Self::on(Memory::new())
        }

        fn on(store: impl Into<AnyStore>) -> Self {
            let clock = ManualClock::new();
            Self {
                tickets: Tickets::new(store.into(), Arc::new(clock.clone())),
                keyed: Keyed::new(&Secret::generate()),
                clock,
                tenants: ["acme", "globex"].map(|name| Tenant::parse(name).unwrap()),
                browsers: [PublicId::random(), PublicId::random()],
            }
        }

        fn place(&self, purpose: TicketPurpose, tenant: usize, browser: usize) -> TicketPlace<'_> {
            TicketPlace { purpose, tenant: &self.tenants[tenant], browser: &self.browsers[browser] }
        }

        fn open(&self, place: TicketPlace<'_>) -> String {
            let code = OneTimeCode::generate();
            let ticket = ticket();
            let open = self.tickets.open_code(place, &ticket, (&code, Duration::ZERO), &self.keyed);
            block_on(open).unwrap().unwrap();
            code.expose().to_owned()
        }

        fn guess(&self, place: TicketPlace<'_>, typed: &str) -> Guess {
            self.guess_for(place, "ada@example.com", typed)
        }

        fn guess_for(&self, place: TicketPlace<'_>, email: &str, typed: &str) -> Guess {
            let contact = EmailAddress::parse(email).unwrap().into();
            block_on(self.tickets.guess_code(place, (&contact, typed), &self.keyed)).unwrap()
        }
    }

    fn ticket() -> Ticket {
        Ticket::for_contact(EmailAddress::parse("ada@example.com").unwrap().into())
    }

    /// Another code than this one.
    fn other(code: &str) -> String {
        let digit = if code.starts_with('0') { '1' } else { '0' };
        format!("{digit}{}", &code[1..])
    }

    #[test]
    fn c128_a_code_counts_for_its_purpose_tenant_and_browser_once_and_for_ten_minutes() {
        use TicketPurpose::{Contact, SignUp};
        let desk = Desk::new();
        let own = desk.place(SignUp, 0, 0);
        let code = desk.open(own);
        for place in [desk.place(Contact, 0, 0), desk.place(SignUp, 1, 0), desk.place(SignUp, 0, 1)] {
            assert!(matches!(desk.guess(place, &code), Guess::NoCode), "{place:?}");
            // also where another code is open
            assert_ne!(desk.open(place), "");
            assert!(!matches!(desk.guess(place, &code), Guess::Right(_)), "{place:?}");
        }
        let proved = || block_on(desk.tickets.proved(own, &desk.keyed)).unwrap();
        assert!(proved().is_none());
        assert!(matches!(desk.guess(own, &code), Guess::Right(found) if *found == ticket()));
        assert!(matches!(desk.guess(own, &code), Guess::NoCode));
        let found = proved().unwrap();
        let use_up = || block_on(desk.tickets.use_up(own, &found, &desk.keyed)).unwrap();
        assert!(use_up() && !use_up() && proved().is_none());

        let code = desk.open(own);
        desk.clock.advance(CODE_LIVES);
        assert!(matches!(desk.guess(own, &code), Guess::NoCode));
    }

    #[test]
    fn c128_a_code_after_its_last_guess_has_ended_by_every_clock() {
        let desk = Desk::on(Unswept(Memory::new()));
        let own = desk.place(TicketPurpose::SignUp, 0, 0);
        let code = desk.open(own);
        for _ in 0..GUESSES {
            assert!(matches!(desk.guess(own, &other(&code)), Guess::Wrong));
        }
        // as on another node, whose clock is behind
        desk.clock.set_wall(UnixTime::from_nanos(desk.tickets.0.now().as_nanos() - 1_000_000_000));
        assert!(matches!(desk.guess(own, &code), Guess::NoCode));
    }

    #[test]
    fn c128_a_guess_counts_only_for_the_contact_that_it_was_counted_for() {
        let desk = Desk::new();
        let own = desk.place(TicketPurpose::SignUp, 0, 0);
        let code = desk.open(own);
        assert!(matches!(desk.guess_for(own, "eve@example.com", &code), Guess::NoCode));
        assert!(matches!(desk.guess(own, &code), Guess::Right(_)));
    }

    #[test]
    fn c128_five_wrong_guesses_end_a_code_and_a_newer_one_replaces_it() {
        let desk = Desk::new();
        let own = desk.place(TicketPurpose::SignUp, 0, 0);
        let code = desk.open(own);
        for _ in 0..GUESSES {
            assert!(matches!(desk.guess(own, &other(&code)), Guess::Wrong));
        }
        assert!(matches!(desk.guess(own, &code), Guess::NoCode));
        let (first, second) = (desk.open(own), desk.open(own));
        if first != second {
            assert!(matches!(desk.guess(own, &first), Guess::Wrong));
        }
        // a wrong guess does not prolong it
        desk.clock.advance(CODE_LIVES - Duration::from_nanos(1));
        assert!(matches!(desk.guess(own, &other(&second)), Guess::Wrong));
        desk.clock.advance(Duration::from_nanos(1));
        assert!(matches!(desk.guess(own, &second), Guess::NoCode));
    }

    #[test]
    fn c128_an_address_gets_the_next_code_after_a_while_and_another_address_at_once() {
        let desk = Desk::new();
        let (own, interval) = (desk.place(TicketPurpose::SignUp, 0, 0), Duration::from_secs(30));
        let open = |ticket: &Ticket| {
            let code = OneTimeCode::generate();
            block_on(desk.tickets.open_code(own, ticket, (&code, interval), &desk.keyed)).unwrap()
        };
        assert_eq!((open(&ticket()), open(&ticket())), (Ok(()), Err(interval)));
        let eve = Ticket::for_contact(EmailAddress::parse("eve@example.com").unwrap().into());
        assert_eq!(open(&eve), Ok(()));
        desk.clock.advance(interval - Duration::from_nanos(1));
        assert_eq!(open(&eve), Err(Duration::from_nanos(1)));
        desk.clock.advance(Duration::from_nanos(1));
        assert_eq!(open(&eve), Ok(()));
    }

    #[test]
    fn c128_a_link_is_taken_once_for_its_purpose_and_tenant_and_until_its_expiry() {
        use TicketPurpose::{Invitation, Reset};
        let desk = Desk::new();
        let [acme, globex] = &desk.tenants;
        let lifetime = Duration::from_secs(900);
        let link = || block_on(desk.tickets.create_link((Reset, acme), ticket(), lifetime)).unwrap();
        let take = |purpose, tenant: &Tenant, secret: &Secret| {
            block_on(desk.tickets.take_link((purpose, tenant), secret)).unwrap()
        };
        let secret = link();
        for (purpose, tenant) in [(Invitation, acme), (Reset, globex)] {
            assert_eq!(take(purpose, tenant, &secret), None);
        }
        assert_eq!(take(Reset, acme, &Secret::generate()), None);
        assert_eq!(take(Reset, acme, &secret), Some(ticket()));
        assert_eq!(take(Reset, acme, &secret), None);
        let secret = link();
        desk.clock.advance(lifetime);
        assert_eq!(take(Reset, acme, &secret), None);
        // the store has no secret
        let id = link_id(Reset, &secret);
        assert!(!id.as_bytes().windows(8).any(|bytes| secret.expose().as_bytes().windows(8).any(|own| own == bytes)));
    }

    #[test]
    fn c128_the_newest_invitation_is_found_until_it_ends_and_leaves_no_row() {
        let desk = Desk::new();
        let (acme, contact) = (&desk.tenants[0], ticket().contact.unwrap());
        let invite = || {
            let created = desk.tickets.create_invitation((acme, &contact), ticket(), CODE_LIVES, &desk.keyed);
            block_on(created).unwrap()
        };
        let find = |secret: &Secret| block_on(desk.tickets.find_invitation(acme, secret, &desk.keyed)).unwrap();
        let is_current = |ticket: &Ticket| block_on(desk.tickets.is_current(acme, ticket, &desk.keyed)).unwrap();
        let older = invite();
        let accepted = find(&older).unwrap();
        assert!(find(&older).is_some_and(|again| again == accepted) && is_current(&accepted));
        let newer = invite();
        assert!(find(&older).is_none() && !is_current(&accepted));
        let accepted = find(&newer).unwrap();
        for _ in 0..2 {
            block_on(desk.tickets.end_invitation((acme, &contact), &desk.keyed)).unwrap();
            assert!(find(&newer).is_none() && !is_current(&accepted) && is_current(&ticket()));
            let id = link_id(TicketPurpose::Invitation, &newer);
            assert!(block_on(desk.tickets.found(acme, &id)).unwrap().is_none());
        }
    }

    #[test]
    fn c128_the_end_of_everything_ends_tickets() {
        let desk = Desk::new();
        let own = desk.place(TicketPurpose::SignUp, 0, 0);
        let code = desk.open(own);
        let link = (TicketPurpose::Invitation, &desk.tenants[0]);
        let secret = block_on(desk.tickets.create_link(link, ticket(), CODE_LIVES)).unwrap();
        desk.clock.advance(Duration::from_secs(2));
        let store = desk.tickets.0.clone().into_store();
        block_on(store.end_everything(Arc::new(desk.clock.clone()))).unwrap();
        desk.clock.advance(Duration::from_secs(2));
        assert!(matches!(desk.guess(own, &code), Guess::NoCode));
        assert_eq!(block_on(desk.tickets.take_link(link, &secret)).unwrap(), None);
    }
}
