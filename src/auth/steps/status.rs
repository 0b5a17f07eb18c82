//! `GET /authentication/status`: the state of a login. It changes nothing.

use http::{Response, StatusCode};

use crate::{
    auth::{
        context::RequestContext,
        http::{
            answer::{self, Counters},
            problem::Problem,
        },
        query::Query,
    },
    http::body::Body,
};

pub(crate) async fn status(cx: &mut RequestContext<'_>) -> Result<Response<Body>, Problem> {
    let session_id = cx.or_charge(Query::of(cx).and_then(|query| session_id(&query))).await?;
    let (_, login) = cx.own_login(None, session_id.as_deref()).await?;
    let now = cx.core.logins.now();
    Ok(answer::json(StatusCode::OK, &Counters::from(login.value.view(now))))
}

/// Reads the login that a call is about.
pub(super) fn session_id(query: &Query<'_>) -> Result<Option<String>, Problem> {
    if query.is_twice("session_id") {
        return Err(Problem::invalid("session_id appears more than once"));
    }
    Ok(query.value("session_id").map(str::to_owned))
}
