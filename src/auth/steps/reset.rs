//! The reset of a forgotten password: `POST /reset-password/start` begins a login that sets a password and nothing else, `link`
//! accepts a link of the application, and `POST /reset-password` sets the password.
//!
//! The steps in between are the calls of any login, except the password. The first proof shows how many more the account needs:
//! see [`reset_demand`](crate::auth::factors::reset_demand). No factor is removed.

use std::mem::take;

use http::StatusCode;
use serde_json::json;

use super::{
    links::{accept_link, invalid_link, place_of_login},
    sign_up::not_offered,
};
use crate::{
    auth::{
        context::stages::OwnLogin,
        factors::step::{LoginStep, prepare_login_step},
        http::{
            answer,
            fields::Fields,
            problem::{EndpointResult, Problem},
        },
        state::{
            journal::EventSource,
            tickets::{Ticket, TicketPlace, TicketPurpose},
        },
    },
    delivery::NoticeKind,
    login::{BoundUser, LoginCall, LoginError, Subject},
    password::Password,
    user::{Account, AccountChange},
};

/// Uses up a link of the application. The password can then be set in this browser.
pub(crate) async fn accept_reset_link(own: &OwnLogin<'_>, mut fields: Fields) -> EndpointResult {
    let secret = fields.link.take();
    let step = prepare_reset(own, fields).await?;
    // the name of a login may be that of another user
    let secret = secret.filter(|_| step.login.subject == Subject::Unbound);
    let (_, view) = accept_link(&step, (TicketPurpose::Reset, secret), place(&step)).await?;
    Ok(answer::login_progress(view, ()))
}

/// Sets the password, ends everything that the user has begun, and tells them at each contact.
pub(crate) async fn set_new_password(own: &OwnLogin<'_>, mut fields: Fields) -> EndpointResult {
    let password = fields.password.take().map(|mut typed| Password::new(take(&mut *typed.0)));
    let step = prepare_reset(own, fields).await?;
    let (account, generation) = identified_user(&step).await?;
    let (core, tenant) = (step.cx.core, &step.login.tenant);
    let password = password.ok_or(Problem::invalid("password is missing"))?;
    let hash = core.hash_new_password(tenant, &account, password).await.map_err(|problem| step.problem(problem))?;
    // the check of the password takes long: a proof may have stopped counting
    let _ = identified_user(&step).await?;
    // everything ends before the password is set, and again afterwards: nothing that began with the old one remains
    let raised = core.sessions.generations().raise(tenant, account.id()).await?;
    // of two at the same time, one goes on
    if generation.checked_add(1) != Some(raised) {
        return Err(step.problem(Problem::denied(LoginError::Expired)));
    }
    rebind(&step, BoundUser { id: account.id().clone(), generation: raised }).await?;
    core.sessions.revoke_user(tenant, account.id()).await?;
    let changed = core.users.set_password(tenant, &account, hash).await?;
    // one password for each login
    let over = core.logins.apply(&step.digest, step.latest(), &LoginCall::End).await;
    step.cx.log_failures([over.err()]);
    match changed {
        AccountChange::Done => {}
        AccountChange::NotOffered => return Err(not_offered()),
        // the password was changed in the meantime
        AccountChange::Outdated | AccountChange::Taken | AccountChange::OutOfBounds => {
            return Err(Problem::denied(LoginError::Expired));
        }
    }
    // the password is set: each of these happens even if another one fails
    let ended = core.sessions.end_user(tenant, account.id()).await;
    let unlocked = core.guard.unlock(tenant, step.login.identifier.as_ref(), Some(&account), step.keyed).await;
    let (language, source) = (step.cx.language(&step.login), EventSource::of_user(tenant, account.id()));
    let announced = core.announce(source, (tenant, &account), NoticeKind::PasswordReset, language).await;
    step.cx.log_failures([ended.err(), unlocked.err(), announced.err()]);
    let mut response = answer::json(StatusCode::OK, &json!({ "status": "done" }));
    if let Some(removal) = core.cookies.removal(&core.cookies.name_of(&step.login.id)) {
        removal.append_to(response.headers_mut());
    }
    Ok(response)
}

/// Binds a reset to the generation that it has raised, so that it can be repeated if the password can't be written.
async fn rebind(step: &LoginStep<'_>, user: BoundUser) -> Result<(), Problem> {
    step.apply(&LoginCall::Rebind(user.generation)).await?.response_view(step.now())?;
    if step.login.subject == Subject::Unbound {
        step.cx.core.tickets.adopt(place(step), &Ticket::default().of_user(user), step.keyed).await?;
    }
    Ok(())
}

/// Returns the account whose user has proved enough, or whom the application has identified, and the generation that this counts for.
async fn identified_user(step: &LoginStep<'_>) -> Result<(Account, u64), Problem> {
    let (core, login) = (step.cx.core, &*step.login);
    let tenant = &login.tenant;
    let refused = || step.problem(Problem::denied(LoginError::StepsRemaining));
    let Some(who) = login.authentication(None) else {
        let linked = core.tickets.proved(place(step), step.keyed).await?;
        let linked = linked.and_then(|found| found.value.ticket.user).ok_or_else(refused)?;
        let account = core.accounts.of_user(tenant, Some(&linked.id)).await?;
        let found = core.accounts.with_generation(tenant, account).await?;
        let is_current = found.generation() <= linked.generation;
        let account = found.into_active().filter(|_| is_current).ok_or_else(|| step.problem(invalid_link()))?;
        return Ok((account, linked.generation));
    };
    if login.remaining() > 0 {
        return Err(refused());
    }
    let current = core.current_proofs(&who, step.keyed).await?;
    let current = current.filter(|current| current.proofs.len() == who.proofs.len());
    let current = current.ok_or_else(|| step.problem(Problem::denied(LoginError::Expired)))?;
    // the account may need more by now than when the first step was proved
    let credentials = core.credentials.get(tenant, current.account.id()).await?;
    let demand = core.reset_demand_of(tenant, &current.account, credentials.as_ref(), login.proved());
    match demand.is_met_by(current.methods(|strength| strength.suffices_for(demand.policy_steps))) {
        true => Ok((current.account, who.generation)),
        false => Err(refused()),
    }
}

/// Checks that the login sets a new password.
async fn prepare_reset<'a>(own: &'a OwnLogin<'_>, fields: Fields) -> Result<LoginStep<'a>, Problem> {
    let step = prepare_login_step(own, fields).await?;
    match step.login.wanted.is_reset {
        true => Ok(step),
        false => Err(step.problem(Problem::denied(LoginError::MethodNotAllowed))),
    }
}

fn place<'s>(step: &'s LoginStep<'_>) -> TicketPlace<'s> {
    place_of_login(step, TicketPurpose::Reset)
}
