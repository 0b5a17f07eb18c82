//! `POST /authentication/complete`: all steps are done, and the browser may return to `/authorize`.

use http::{Response, StatusCode};
use serde::Serialize;

use super::enter::enter;
use crate::{
    auth::{
        context::RequestContext,
        http::{answer, fields::Fields, problem::Problem},
    },
    event::EventKind,
    http::body::Body,
    login::{LoginCall, LoginError},
};

#[derive(Serialize)]
struct Completed {
    session_id: String,
    status: &'static str,
}

pub(crate) async fn complete(cx: &mut RequestContext<'_>, fields: Fields) -> Result<Response<Body>, Problem> {
    let step = enter(cx, fields).await?;
    if step.login.remaining() == 0
        && let Some(who) = step.login.authentication(None)
        && !step.cx.core.accounts.still_counts(&who, step.cx.core.keyed().await?).await?
    {
        return Err(step.end().await?);
    }
    let update = step.apply(&LoginCall::Complete).await?;
    if update.answer == Err(LoginError::StepsRemaining) {
        step.tally(EventKind::SequenceFailed, None);
    }
    let view = update.view(step.now())?;
    let completed = Completed { session_id: view.id.to_string(), status: view.status.as_str() };
    Ok(answer::json(StatusCode::OK, &completed))
}
