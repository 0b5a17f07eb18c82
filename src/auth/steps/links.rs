//! The secret of a link, which counts as a proof in the browser whose page has posted it.

use crate::{
    auth::{
        factors::step::LoginStep,
        http::{
            fields::Typed,
            problem::{Code, Problem},
        },
        state::tickets::{Ticket, TicketPlace, TicketPurpose},
    },
    login::{LoginCall, LoginView},
    util::secret::Secret,
};

/// Returns the place of the tickets of a login.
pub(super) fn place_of_login<'s>(step: &'s LoginStep<'_>, purpose: TicketPurpose) -> TicketPlace<'s> {
    TicketPlace { purpose, tenant: &step.login.tenant, browser: &step.login.id }
}

/// Accepts a link of this purpose. The login then has its proof at `place`. That uses up a link for a new password. An invitation is
/// used up by its account, so it outlives a tab that was closed and a call that failed.
///
/// # Errors
///
/// Returns `invalid_link` for a link that is missing, unknown, used up, too old, or of another tenant.
pub(super) async fn accept_link(
    step: &LoginStep<'_>,
    (purpose, typed): (TicketPurpose, Option<Typed>),
    place: TicketPlace<'_>,
) -> Result<(Ticket, LoginView), Problem> {
    let tickets = &step.cx.core.tickets;
    let ticket = match typed.and_then(|typed| Secret::parse(typed.0.as_str())) {
        Some(secret) if purpose == TicketPurpose::Invitation => {
            tickets.find_invitation(place.tenant, &secret, step.keyed).await?
        }
        Some(secret) => tickets.take_link((purpose, place.tenant), &secret).await?,
        None => None,
    };
    let ticket = ticket.ok_or_else(|| step.problem(invalid_link()))?;
    tickets.adopt(place, &ticket, step.keyed).await?;
    Ok((ticket, step.apply(&LoginCall::Touch).await?.response_view(step.now())?))
}

pub(super) fn invalid_link() -> Problem {
    Problem::new(Code::InvalidLink, "this link can't be used any more")
}
