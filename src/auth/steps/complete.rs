//! `POST /authentication/complete`: all steps are done, and the browser may go back to `/authorize`.

use http::{Response, StatusCode};
use serde::Serialize;

use crate::{
    auth::{
        context::RequestContext,
        http::{answer, fields::Fields, problem::Problem},
        steps::step,
    },
    event::EventKind,
    http::body::Body,
    login::{Call, Denied},
};

#[derive(Serialize)]
struct Completed {
    session_id: String,
    status: &'static str,
}

pub(crate) async fn complete(cx: &mut RequestContext<'_>, fields: Fields) -> Result<Response<Body>, Problem> {
    let entered = step::enter(cx, fields).await?;
    let moved = entered.step(cx, &Call::Complete).await?;
    if moved.answer == Err(Denied::StepsRemaining) {
        let keyed = cx.core.keyed().await?;
        cx.core.journal.tally_login(EventKind::SequenceFailed, &moved.login, None, keyed);
    }
    let view = moved.told(cx.core.logins.now())?;
    let completed = Completed { session_id: view.id.to_string(), status: view.status.as_str() };
    Ok(answer::json(StatusCode::OK, &completed))
}
