//! `POST /account/name`: the full name of the user.

use super::answers;
use crate::{
    auth::{
        factors::enrolment::call::AccountCall,
        http::{
            answer,
            problem::{EndpointResult, Problem},
        },
        state::journal::EventSource,
    },
    event::EventKind,
};

const LONGEST: usize = 320;

/// Sets or removes the full name. It is only displayed, so it needs no fresh proofs.
pub(super) async fn change_name(call: &AccountCall<'_>) -> EndpointResult {
    let name = call.fields.name.as_deref().ok_or(Problem::invalid("name is missing"))?.trim();
    if name.len() > LONGEST || name.chars().any(char::is_control) {
        return Err(Problem::invalid("name must have at most 320 bytes and no control characters"));
    }
    let (core, (tenant, user)) = (call.cx.core, call.owner());
    answers::changed(core.users.set_name(tenant, user, Some(name).filter(|name| !name.is_empty())).await?)?;
    let changed =
        core.journal.event(EventKind::AccountUpdated, EventSource::of_user(tenant, user), None, core.keyed().await?);
    core.journal.tally_event(&changed);
    Ok(answer::no_content())
}
