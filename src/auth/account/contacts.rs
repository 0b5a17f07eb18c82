//! `POST /account/contacts/begin` and `POST /account/contacts`: a new address or phone number, which the user proves by a code
//! before it counts.

use http::StatusCode;
use serde::Serialize;

use super::answers;
use crate::{
    auth::{
        factors::{
            self,
            enrolment::call::{AccountCall, AccountFields},
        },
        http::{
            answer,
            problem::{Code, EndpointResult, Problem},
        },
        state::tickets::{Ticket, TicketPlace, TicketPurpose},
    },
    delivery::NoticeKind,
    login::{BoundUser, Keyed},
    user::{AccountChange, Contact, EmailAddress, PhoneNumber},
    util::public_id::PublicId,
    words::Language,
};

/// The maximum number of contacts of an account.
const MOST: usize = 16;

/// A contact as the account page shows it.
#[derive(Serialize)]
pub(super) struct ContactShown {
    id: String,
    kind: &'static str,
    masked: String,
    verified: bool,
}

/// Returns the contacts of the user who calls.
pub(super) fn list_contacts(call: &AccountCall<'_>, keyed: &Keyed) -> Vec<ContactShown> {
    let shown = |(contact, verified)| ContactShown {
        id: contact_id(call, contact, keyed),
        kind: match contact {
            Contact::Email(_) => "email",
            Contact::Phone(_) => "phone",
        },
        masked: factors::masked_contact(contact),
        verified,
    };
    call.account().contacts().map(shown).collect()
}

/// Sends a code to the new contact. The answer is the same if another account has it.
pub(super) async fn begin_contact(call: &AccountCall<'_>) -> EndpointResult {
    let (core, keyed) = (call.cx.core, call.cx.core.keyed().await?);
    call.require_fresh()?;
    let contact = new_contact(&call.fields)?;
    let class = contact.class();
    // codes that go to a contact of this kind can't vouch for another one
    call.require_fresh_for_contact(class)?;
    let channel = core.channel_to(class).ok_or(Problem::new(Code::UnsupportedMethod, "no sender for this contact"))?;
    let replaces = match call.fields.contact_id.as_deref() {
        None if call.account().contacts().count() >= MOST => {
            return Err(Problem::invalid("this user has the maximum number of contacts"));
        }
        None => None,
        Some(id) => {
            let mut own = call.account().contacts().map(|(contact, _)| contact);
            let own = own.find(|own| own.class() == class && contact_id(call, own, keyed) == id);
            Some(own.cloned().ok_or(Problem::new(Code::NotFound, "this user has no contact with this contact_id"))?)
        }
    };
    if call.account().has_verified(&contact) {
        return Err(Problem::invalid("this user has the contact already"));
    }
    let user = BoundUser { id: call.session().user().clone(), generation: call.session().generation() };
    let ticket = Ticket { replaces, ..Ticket::for_contact(contact.clone()).of_user(user) };
    let sid = call.session().sid();
    let language = Language::accepted(&call.cx.parts.headers);
    let sent = call.cx.send_ticket_code(place(call, &sid), (&ticket, &contact), channel, language, None).await?;
    Ok(answer::json(StatusCode::OK, &sent))
}

/// Compares the code, and stores the contact.
pub(super) async fn confirm_contact(call: &AccountCall<'_>) -> EndpointResult {
    let (core, keyed, sid) = (call.cx.core, call.cx.core.keyed().await?, call.session().sid());
    let typed = call.fields.code.as_ref().ok_or(Problem::invalid("code is missing"))?;
    let place = place(call, &sid);
    call.cx.prove_ticket_code(place, &typed.0).await?;
    let used_up = || Problem::new(Code::NoPendingChallenge, "there is no pending code");
    let proved = core.tickets.proved(place, keyed).await?.ok_or_else(used_up)?;
    if !core.tickets.use_up(place, &proved, keyed).await? {
        return Err(used_up());
    }
    let ticket = &proved.value.ticket;
    let own = call.session();
    let is_own = |user: &BoundUser| user.id == *own.user() && user.generation == own.generation();
    let contact = ticket.contact.as_ref().filter(|_| ticket.user.as_ref().is_some_and(is_own)).ok_or_else(used_up)?;
    // what has vouched for the code may have been removed or replaced since
    let call = &call.read_again(proved.value.began()).await?;
    call.require_fresh()?;
    call.require_fresh_for_contact(contact.class())?;
    let ((tenant, user), old) = (call.owner(), ticket.replaces.as_ref());
    answers::changed(core.users.set_contact(tenant, user, old, Some(contact)).await?)?;
    let change = match contact {
        Contact::Email(_) => NoticeKind::EmailChanged,
        Contact::Phone(_) => NoticeKind::PhoneChanged,
    };
    // the contacts that the account had before, and before anything else can fail
    call.changed(change).await;
    // an old contact that was not verified must not become so
    let restored = old.filter(|old| call.account().has_verified(old));
    let undo = async {
        match core.users.set_contact(tenant, user, Some(contact), restored).await? {
            // the old contact may be that of another account by now
            AccountChange::Taken => core.users.set_contact(tenant, user, Some(contact), None).await,
            changed => Ok(changed),
        }
    };
    call.keep(undo).await?;
    Ok(answer::no_content())
}

fn place<'a>(call: &'a AccountCall<'_>, sid: &'a PublicId) -> TicketPlace<'a> {
    TicketPlace { purpose: TicketPurpose::Contact, tenant: call.tenant(), browser: sid }
}

fn new_contact(fields: &AccountFields) -> Result<Contact, Problem> {
    match (fields.email.as_deref(), fields.phone_number.as_deref()) {
        (Some(email), None) => EmailAddress::parse(email).map(Contact::from).map_err(|_| "email is malformed"),
        (None, Some(number)) => PhoneNumber::parse(number).map(Contact::from).map_err(|_| "phone_number is malformed"),
        _ => Err("either email or phone_number is needed"),
    }
    .map_err(Problem::invalid)
}

/// Returns the id of a contact in this session.
fn contact_id(call: &AccountCall<'_>, contact: &Contact, keyed: &Keyed) -> String {
    let digest = keyed.hash("contact id", [call.session().sid().as_bytes(), contact.as_str().as_bytes()]);
    PublicId::of_digest(&digest).to_string()
}
