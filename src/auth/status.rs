//! `GET /authentication/status`: how a login stands. It changes nothing.

use http::{Response, StatusCode};

use super::{
    answer::{self, Counters},
    authorize::Query,
    problem::Problem,
    visit::Visit,
};
use crate::body::Body;

pub(super) async fn status(visit: &mut Visit<'_>) -> Result<Response<Body>, Problem> {
    let query = Query::of(visit);
    let asked = query.as_ref().ok().filter(|query| !query.is_twice("session_id"));
    let session_id = asked.and_then(|query| query.value("session_id")).map(str::to_owned);
    let found = visit.own_login(None, session_id.as_deref()).await;
    if query?.is_twice("session_id") {
        return Err(Problem::invalid("session_id is given twice"));
    }
    let (_, login) = found?;
    let now = visit.inner.running().logins.now();
    Ok(answer::json(StatusCode::OK, &Counters::from(login.view(now))))
}
