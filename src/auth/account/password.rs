//! `POST /account/password`: a new password.

use std::mem::take;

use super::answers;
use crate::{
    auth::{
        factors::enrolment::call::AccountCall,
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
pub(super) async fn change_password(call: &mut AccountCall<'_>) -> EndpointResult {
    let typed = call.fields.new_password.take();
    let (core, account) = (call.cx.core, call.account());
    match account.has_password() {
        true => call.require_fresh()?,
        false => call.require_second_factor()?,
    }
    let mut typed = typed.ok_or(Problem::invalid("new_password is missing"))?;
    let password = Password::new(take(&mut *typed.0));
    let hash = core.hash_new_password(call.tenant(), account, password).await?;
    // the check of the password takes long
    call.require_current().await?;
    // of two concurrent changes, one wins
    answers::changed(core.users.set_password(call.tenant(), account, hash).await?)?;
    call.changed(NoticeKind::PasswordChanged).await;
    core.sessions.revoke_others(call.session()).await?;
    Ok(answer::no_content())
}
