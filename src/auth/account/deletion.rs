//! `POST /account/delete`: deletes the account.

use super::{answers, sessions};
use crate::{
    auth::{
        factors::enrolment::call::AccountCall,
        http::problem::{EndpointResult, Problem},
    },
    delivery::NoticeKind,
    words::Language,
};

/// Deletes the account with everything that it has here: credentials, sessions, tokens, and codes that wait for delivery.
/// Requires fresh proofs and a confirmation by the user.
pub(super) async fn delete_account(call: &AccountCall<'_>) -> EndpointResult {
    let (core, (tenant, user)) = (call.cx.core, call.owner());
    call.require_fresh()?;
    if call.fields.confirmed != Some(true) {
        return Err(Problem::invalid("confirmed must be true"));
    }
    call.require_current().await?;
    let who = call.session().authentication();
    // first, because the user can ask again if this fails
    core.sessions.end_user(tenant, user).await?;
    // from here on, no one can sign in while the rest is deleted
    answers::changed(core.users.remove(tenant, user).await?)?;
    let account = Some(call.account());
    let forgotten = match core.forget_user((tenant, user), account).await {
        Ok(ended) => Ok(ended),
        // the user could not ask again
        Err(_) => core.forget_user((tenant, user), account).await,
    };
    let language = Language::accepted(&call.cx.parts.headers);
    if let Err(error) = core.announce(&who, (tenant, call.account()), NoticeKind::AccountDeleted, language).await {
        call.cx.log(&Problem::from(error));
    }
    forgotten?;
    sessions::signed_out(call).await
}
