//! What only signed-in users see: the layer before these routes lets nobody else through.

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use tollgate::{AuthService, Session, Sessions};

use crate::html::{escape, page};

pub(crate) fn router(sessions: Sessions, auth: AuthService) -> Router {
    let routes = Router::new().route("/account", get(account)).route("/account/sign-out", post(sign_out));
    routes.with_state((sessions, auth))
}

async fn account(session: Session) -> Response {
    let proofs: Vec<_> = session.amr().map(escape).collect();
    page(&format!(
        r#"<h1>Signed in</h1>
<p>as <strong>{}</strong> of {}, by {}.
<form method="post" action="/account/sign-out"><button>Sign out</button></form>
<p><a href="/demo/">Back to the demo</a>"#,
        escape(session.user().as_str()),
        escape(session.tenant().as_str()),
        proofs.join(", "),
    ))
}

/// The tokens that came of the session end with it, and those of the sessions whose place it took.
async fn sign_out(State((sessions, auth)): State<(Sessions, AuthService)>, session: Session) -> Response {
    if auth.sign_out(&session).await.is_err() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let mut headers = HeaderMap::new();
    sessions.removal().append_to(&mut headers);
    (headers, Redirect::to("/demo/")).into_response()
}
