//! `POST /account/password`: a new password.

use std::mem::take;

use super::answers;
use crate::{
    auth::{
        context::RequestContext,
        factors::enrolment::call::{AccountCall, AccountFields},
        http::{
            answer,
            problem::{EndpointResult, Problem},
        },
    },
    delivery::NoticeKind,
    password::Password,
};

/// Sets a new password after fresh proofs, and ends all other sessions. The first password of an account adds a factor, so it
/// requires fresh proofs of two others.
pub(super) async fn change_password(
    cx: &RequestContext<'_>,
    call: &AccountCall,
    fields: &mut AccountFields,
) -> EndpointResult {
    let (core, account) = (cx.core, call.account());
    match account.has_password() {
        true => call.require_fresh(core)?,
        false => call.require_second_factor(core)?,
    }
    let mut typed = fields.new_password.take().ok_or(Problem::invalid("new_password is missing"))?;
    let password = Password::new(take(&mut *typed.0));
    let hash = core.hash_new_password(call.tenant(), account, password).await?;
    // the check of the password takes long
    call.require_current(core).await?;
    // of two concurrent changes, one wins
    answers::changed(core.users.set_password(call.tenant(), account, hash).await?)?;
    call.changed(cx, NoticeKind::PasswordChanged).await;
    core.sessions.revoke_others(call.session()).await?;
    Ok(answer::no_content())
}
