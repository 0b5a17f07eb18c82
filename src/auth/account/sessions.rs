//! Ends the sessions of the user who calls.

use crate::{
    auth::{
        authorize::proved_logins::ProvedLogins,
        factors::enrolment::call::AccountCall,
        http::{
            answer,
            problem::{Code, EndpointResult, Problem},
        },
    },
    session::Session,
    util::public_id::PublicId,
};

/// Ends one session, with everything issued from it. A session of another user counts as unknown.
pub(super) async fn end_account_session(call: &AccountCall<'_>) -> EndpointResult {
    let sid = call.fields.sid.as_deref().ok_or(Problem::invalid("sid is missing"))?;
    let session = match PublicId::parse(sid) {
        Some(sid) => call.cx.core.sessions.get(&sid).await?,
        None => None,
    };
    let is_own = |session: &Session| session.tenant() == call.tenant() && session.user() == call.session().user();
    let session = session.filter(is_own);
    let session = session.ok_or(Problem::new(Code::NotFound, "this user has no session with this sid"))?;
    call.cx.core.sessions.revoke(&session).await?;
    match session.sid() == call.session().sid() {
        true => signed_out(call).await,
        false => Ok(answer::no_content()),
    }
}

/// Ends all sessions of the user except the one of this browser.
pub(super) async fn end_others(call: &AccountCall<'_>) -> EndpointResult {
    call.cx.core.sessions.revoke_others(call.session()).await?;
    Ok(answer::no_content())
}

/// Ends everything that the user has begun, in every browser, and signs out of this one.
pub(super) async fn sign_out_everywhere(call: &AccountCall<'_>) -> EndpointResult {
    call.cx.core.sessions.end_user(call.tenant(), call.session().user()).await?;
    signed_out(call).await
}

/// Returns a response that signs this browser out, with the logins that were begun in it.
pub(super) async fn signed_out(call: &AccountCall<'_>) -> EndpointResult {
    let mut response = answer::no_content();
    ProvedLogins::end_in_browser(call.cx, call.tenant(), response.headers_mut()).await?;
    Ok(response)
}
