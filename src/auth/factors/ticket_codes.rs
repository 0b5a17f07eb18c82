//! Codes that prove an address outside of logins: the address of a new account, or a new contact.

use serde::Serialize;

use crate::{
    auth::{
        context::RequestContext,
        factors::attempt::AddressSpend,
        http::problem::{Code, Problem},
        notices::method_of,
        state::tickets::{CODE_LIVES, Guess, Ticket, TicketPlace},
    },
    delivery::{Channel, Link, Message},
    event::EventKind,
    login::{DIGITS, OneTimeCode, RESEND_INTERVAL},
    user::Contact,
    util::clock::ceil_seconds,
    words::Language,
};

/// The answer to a request for a code.
#[derive(Serialize)]
pub(crate) struct TicketCodeSent {
    channel: &'static str,
    digits: usize,
    expires_in: u64,
    resend_in: u64,
}

impl RequestContext<'_> {
    /// Sends a code to the contact of a ticket, in this language. An owner who has to go another way gets the link `instead`.
    /// The answer and the work are the same.
    ///
    /// # Errors
    ///
    /// Returns a problem with the time to wait if this browser, this user or this address of a client asks too often, or if there were
    /// too many messages to this contact.
    pub(crate) async fn send_ticket_code(
        &self,
        place: TicketPlace<'_>,
        (ticket, contact): (&Ticket, &Contact),
        channel: Channel,
        language: Language,
        instead: Option<Link>,
    ) -> Result<TicketCodeSent, Problem> {
        let (core, keyed, code) = (self.core, self.core.keyed().await?, OneTimeCode::generate());
        let charged = self.charge_ticket_message().await?;
        let (method, client) = (method_of(channel), self.address.clone());
        let user = ticket.user.as_ref().map(|user| &user.id);
        let slow_down = |wait| Problem::new(Code::SlowDown, "a code was just sent; try again later").retry_in(wait);
        let refused = match core.tickets.may_open_code(place, ticket, RESEND_INTERVAL, keyed).await? {
            Ok(()) => {
                let to = (method, contact);
                let counted = core.guard.count_ticket_message((place, user), to, client.as_ref(), keyed).await?;
                counted.map_err(|wait| too_many_messages().retry_in(wait))
            }
            Err(wait) => Err(slow_down(wait)),
        };
        if let Err(refused) = refused {
            charged.into_iter().for_each(AddressSpend::refund);
            return Err(refused);
        }
        core.tickets.open_code(place, ticket, (&code, RESEND_INTERVAL), keyed).await?.map_err(slow_down)?;
        let expires = core.logins.now() + CODE_LIVES;
        let (tenant, to) = (place.tenant.clone(), contact.as_str());
        let message = match instead {
            Some(link) => Message::of_link(channel, tenant, to, link, expires),
            None => Message::new(channel, tenant, to, code.expose(), expires),
        };
        let message = message.in_language(language).with_words(core.pages.words.clone());
        let kind = if core.queue.push(channel, message) { EventKind::OtpSent } else { EventKind::OtpUndelivered };
        core.journal.tally(kind, Some(place.tenant), Some(channel.as_str()));
        Ok(TicketCodeSent {
            channel: channel.as_str(),
            digits: DIGITS,
            expires_in: ceil_seconds(CODE_LIVES),
            resend_in: ceil_seconds(RESEND_INTERVAL),
        })
    }

    /// Counts and compares a typed code. Guesses are counted by client address, by code, and by contact in this browser. Those
    /// of all browsers are bounded by the codes that are sent to a contact.
    ///
    /// # Errors
    ///
    /// Returns a problem for a wrong code, without a code, and after too many failures.
    pub(crate) async fn prove_ticket_code(&self, place: TicketPlace<'_>, typed: &str) -> Result<Ticket, Problem> {
        let (core, keyed) = (self.core, self.core.keyed().await?);
        let locked = |wait| Problem::new(Code::TooManyAttempts, "too many attempts; try again later").retry_in(wait);
        let spend = AddressSpend::spend_one(self, &core.limits.failures).await.map_err(locked)?;
        let contact = &core.tickets.expected(place, keyed).await?.ok_or_else(no_code)?;
        core.guard.count_ticket_guess(place, contact, keyed).await?.map_err(locked)?;
        match core.tickets.guess_code(place, (contact, typed), keyed).await? {
            Guess::Right(ticket) => {
                core.guard.clear_ticket_guesses(place, contact, keyed).await?;
                spend.refund();
                Ok(*ticket)
            }
            Guess::Wrong => {
                core.journal.tally(EventKind::LoginFailed, Some(place.tenant), None);
                Err(Problem::new(Code::InvalidOtp, "the code is wrong or has expired"))
            }
            Guess::NoCode => Err(no_code()),
        }
    }

    /// Charges a message to both limits of the client's address.
    async fn charge_ticket_message(&self) -> Result<[AddressSpend<'_>; 2], Problem> {
        let (limits, refused) = (&self.core.limits, |wait| too_many_messages().retry_in(wait));
        let message = AddressSpend::spend_one(self, &limits.messages).await.map_err(refused)?;
        match AddressSpend::spend_one(self, &limits.new_contact_codes).await {
            Ok(code) => Ok([message, code]),
            Err(wait) => {
                message.refund();
                Err(refused(wait))
            }
        }
    }
}

fn too_many_messages() -> Problem {
    Problem::new(Code::TooManyAttempts, "too many codes were requested; try again later")
}

fn no_code() -> Problem {
    Problem::new(Code::NoPendingChallenge, "there is no pending code")
}
