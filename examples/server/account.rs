//! The page of a signed-in user. The layer in front of it sends everyone else to the sign-in and back.

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use tollgate::{AuthService, Session, Users};

use crate::{
    html::{escape, page},
    users::AccountTable,
};

pub(crate) fn router(auth: AuthService, users: AccountTable) -> Router {
    let layer = auth.session_layer();
    let pages = Router::new().route("/account", get(account)).with_state(users);
    let pages = pages.layer(layer.clone().required());
    // anyone may sign out: the session of a tab that was left open has ended perhaps
    let sign_out = Router::new().route("/account/sign-out", post(sign_out)).with_state(auth).layer(layer);
    pages.merge(sign_out).route("/account/", get(async || Redirect::to("/account")))
}

/// Leads to the page of the login service below this path, on which users manage their accounts.
pub(crate) fn starts(path: &str) -> Router {
    let starts = ["/".to_owned(), format!("{path}/account"), format!("{path}/account/")];
    starts.into_iter().fold(Router::new(), |routes, start| {
        let security = format!("{path}/account/security");
        routes.route(&start, get(async move || Redirect::to(&security)))
    })
}

async fn account(State(users): State<AccountTable>, session: Session) -> Response {
    let Ok(account) = users.by_id(session.tenant(), session.user()).await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let name = account.as_ref().and_then(|account| {
        // a new account has no name yet
        account.display_name().or_else(|| account.contacts().next().map(|(contact, _)| contact.as_str()))
    });
    let name = name.unwrap_or(session.user().as_str());
    let proofs: Vec<_> = session.amr().filter_map(proof).collect();
    page(&format!(
        r#"<section class="card">
<h1>Signed in</h1>
<p>as <strong>{}</strong> of {}, with {}.
<p><a href="/account/security">Your account</a> has:
<ul>
<li>your name, e-mail address and phone number
<li>your password, passkeys, authenticator app and recovery codes
<li>the applications that you allowed to see your data
<li>the places where you are signed in
<li>the deletion of your account
</ul>
<form method="post" action="/account/sign-out"><button>Sign out</button></form>
</section>"#,
        escape(name),
        escape(session.tenant().as_str()),
        proofs.join(" and "),
    ))
}

/// Returns the words for a value of `amr`. Values that another one implies have none.
fn proof(amr: &str) -> Option<String> {
    Some(match amr {
        "pwd" => "a password".to_owned(),
        "otp" => "a code".to_owned(),
        "pop" => "a passkey".to_owned(),
        "sso" => "another account".to_owned(),
        "sms" | "mfa" => return None,
        other => escape(other),
    })
}

/// Ends the session, if there is one. The tokens issued from it end with it.
async fn sign_out(State(auth): State<AuthService>, session: Option<Session>) -> Response {
    let mut headers = HeaderMap::new();
    if let Some(session) = session {
        if auth.end_session(&session.sid()).await.is_err() {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        auth.sessions().removal(session.tenant()).append_to(&mut headers);
    }
    (headers, Redirect::to("/demo/")).into_response()
}
