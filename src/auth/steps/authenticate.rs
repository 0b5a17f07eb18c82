//! The calls that prove a step, or prepare it: `POST /authentication/authenticate`, `verify-otp` and `enrol`.

use std::sync::{Arc, Mutex};

use http::Response;

use crate::{
    auth::{
        context::stages::OwnLogin,
        factors::{self, step::LoginStep},
        http::{fields::Fields, problem::Problem},
    },
    event::EventKind,
    http::body::Body,
    login::LoginError,
    policy::Method,
};

/// Proves a step, or opens a challenge.
pub(crate) async fn authenticate_step(own: &OwnLogin<'_>, fields: Fields) -> Result<Response<Body>, Problem> {
    let step = prepare_login_step(own, fields).await?;
    let name = step.fields.method.as_deref().ok_or(Problem::invalid("method is missing"))?;
    match Method::from_name(name) {
        Some(method) => factors::perform_login_step(method, step).await,
        None => Err(step.unsupported("unknown method")),
    }
}

/// Proves a step with the code that was sent for it.
pub(crate) async fn verify_otp(own: &OwnLogin<'_>, fields: Fields) -> Result<Response<Body>, Problem> {
    factors::verify_otp(prepare_login_step(own, fields).await?).await
}

/// Sets up a second factor, which proves the second step.
pub(crate) async fn set_up_second_factor(own: &OwnLogin<'_>, fields: Fields) -> Result<Response<Body>, Problem> {
    factors::set_up_factor(prepare_login_step(own, fields).await?).await
}

/// Compares the client parameters of a call with the start of its login. Errors change nothing.
pub(super) async fn prepare_login_step<'a>(
    own: &'a OwnLogin<'_>,
    mut fields: Fields,
) -> Result<LoginStep<'a>, Problem> {
    let sent = fields.client();
    let keyed = own.cx.core.keyed().await?;
    let (login, latest) = (Arc::clone(&own.stored.value), Mutex::new(own.stored.clone()));
    let step = LoginStep { cx: &own.cx, keyed, digest: own.digest, login, latest, fields, typed: None };
    if step.login.has_ended(step.now()) {
        step.tally(EventKind::SessionUseAfterExpire, None);
        return Err(step.problem(Problem::denied(LoginError::Expired)));
    }
    if let Some(difference) = step.login.binding.mismatch(&sent) {
        step.tally(EventKind::SequenceFailed, None);
        return Err(step.problem(Problem::invalid(difference)));
    }
    Ok(step)
}
