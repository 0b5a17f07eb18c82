//! Pages for signed-in users. The layer in front of them refuses everyone else.

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use tollgate::{AuthService, Session};

use crate::html::{escape, page};

pub(crate) fn router(auth: AuthService) -> Router {
    let routes = Router::new().route("/account", get(account)).route("/account/sign-out", post(sign_out));
    routes.with_state(auth)
}

async fn account(session: Session) -> Response {
    let proofs: Vec<_> = session.amr().map(escape).collect();
    page(&format!(
        r#"<section class="card">
<h1>Signed in</h1>
<p>as <strong>{}</strong> of {}, by {}.
<p><a href="/account/security">Passkeys, authenticator app and sessions</a>
<form method="post" action="/account/sign-out"><button>Sign out</button></form>
</section>"#,
        escape(session.user().as_str()),
        escape(session.tenant().as_str()),
        proofs.join(", "),
    ))
}

/// Ends the session. The tokens issued from it end with it.
async fn sign_out(State(auth): State<AuthService>, session: Session) -> Response {
    if auth.end_session(&session.sid()).await.is_err() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let mut headers = HeaderMap::new();
    auth.sessions().removal(session.tenant()).append_to(&mut headers);
    (headers, Redirect::to("/demo/")).into_response()
}
