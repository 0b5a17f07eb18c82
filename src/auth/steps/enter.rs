//! The checks that every call for a started login passes first.

use std::sync::{Arc, Mutex};

use crate::{
    auth::{
        context::stages::OwnLogin,
        http::{fields::Fields, problem::Problem},
        methods::LoginStep,
    },
    event::EventKind,
    login::LoginError,
};

/// Compares the client parameters of a call with the start of its login. Errors change nothing.
pub(super) async fn enter<'a>(own: &'a OwnLogin<'_>, mut fields: Fields) -> Result<LoginStep<'a>, Problem> {
    let sent = fields.client();
    let keyed = own.cx.core.keyed().await?;
    let (login, latest) = (Arc::clone(&own.stored.value), Mutex::new(own.stored.clone()));
    let step = LoginStep { cx: &own.cx, keyed, digest: own.digest, login, latest, fields, typed: None };
    if step.login.has_ended(step.now()) {
        step.tally(EventKind::SessionUseAfterExpire, None);
        return Err(step.problem(Problem::denied(LoginError::Expired)));
    }
    if let Some(name) = step.login.binding.mismatch(&sent) {
        step.tally(EventKind::SequenceFailed, None);
        return Err(step.problem(Problem::invalid(mismatch(name))));
    }
    Ok(step)
}

fn mismatch(name: &'static str) -> &'static str {
    match name {
        "client_id" => "client_id is missing or differs from the start of the login",
        "redirect_uri" => "redirect_uri is missing or differs from the start of the login",
        "response_type" => "response_type is missing or differs from the start of the login",
        "scope" => "scope is missing or differs from the start of the login",
        "code_challenge" => "code_challenge is missing or differs from the start of the login",
        _ => "code_challenge_method is missing or differs from the start of the login",
    }
}
