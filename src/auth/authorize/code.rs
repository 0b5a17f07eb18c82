//! Issues authorization codes: once for a completed login, or silently for a signed-in user.

use http::Response;

use crate::{
    auth::{
        authorize::{
            query::{Asked, Checked},
            session,
            signed_in::SignedIn,
        },
        context::RequestContext,
        http::{
            cookies::Carried,
            problem::{Code, RequestError},
        },
        state::codes::AuthorizationCode,
    },
    event::EventKind,
    http::body::Body,
    login::{Login, LoginCall},
    policy::LoginPlan,
    store::{StoreError, table::Stored},
    util::secret::Secret,
};

const ANSWERED: RequestError = RequestError::invalid("the request was already answered");

/// Issues the code of a completed login and spends the login. Its proofs begin or update the browser's session.
///
/// Returns `None` if the login cannot be used any more, so that the user logs in again.
pub(crate) async fn for_login(
    cx: &RequestContext<'_>,
    asked: &Asked<'_>,
    checked: &Checked,
    (cookie, stored): (&Carried<'_>, &Stored<Login>),
    signed_in: Option<&SignedIn>,
) -> Result<Option<Response<Body>>, RequestError> {
    let (core, keyed, login) = (cx.core, cx.core.keyed().await?, &stored.value);
    let acr = checked.plan.as_ref().and_then(LoginPlan::acr).or(login.plan.acr());
    let Some(who) = login.authentication(acr) else { return Ok(None) };
    if session::counting_account(cx, &who).await?.is_none() {
        core.journal.tally_login(EventKind::LoginFailed, login, None, keyed);
        return Err(RequestError::new(Code::AccessDenied, "the account is not allowed to log in"));
    }
    // what can fail without the store fails before the login is spent
    let code = Secret::generate();
    let Ok(mut response) = asked.back(cx, &[("code", code.expose())]) else { return Ok(None) };
    // the login is spent first: a failure after it costs a login and never yields two codes
    let spent = core.logins.apply(&cookie.digest, stored.clone(), &LoginCall::Consume(&code.digest())).await?;
    if spent.is_none_or(|update| update.answer.is_err()) {
        return Ok(None);
    }
    if !is_open(cx, asked).await? {
        return Err(ANSWERED);
    }
    let Some(begun) = session::begin(cx, login, &who, signed_in).await? else { return Ok(None) };
    let row = AuthorizationCode {
        who,
        session: begun.sid,
        login: login.id,
        binding: login.binding.clone(),
        wanted: checked.oidc.wanted.clone().or(&login.wanted),
    };
    core.codes.issue(&code.digest(), &row).await?;
    core.journal.record(EventKind::LoginSucceeded, login, None, keyed);
    core.journal.record(EventKind::CodeIssued, login, None, keyed);
    let removal = core.cookies.removal(cookie.name);
    for cookie in begun.cookies.into_iter().chain(removal) {
        cookie.append_to(response.headers_mut());
    }
    Ok(Some(response))
}

/// Issues a code silently for a signed-in user, if the client has single sign-on and its redirect URI is a website.
pub(crate) async fn for_session(
    cx: &RequestContext<'_>,
    asked: &Asked<'_>,
    checked: &Checked,
    plan: &LoginPlan,
    signed_in: &SignedIn,
) -> Result<Option<Response<Body>>, RequestError> {
    let (core, oidc) = (cx.core, &checked.oidc);
    let silently = signed_in.silently(plan, oidc, &asked.to.client, core.logins.now());
    let Some(who) = silently.filter(|_| !oidc.asks_user) else { return Ok(None) };
    if !asked.to.redirect.is_of_a_site() {
        let error = RequestError::new(Code::InteractionRequired, "the user must confirm");
        return if oidc.is_silent { Err(error) } else { Ok(None) };
    }
    let code = Secret::generate();
    let Ok(response) = asked.back(cx, &[("code", code.expose())]) else { return Ok(None) };
    // there is no login to spend, so a pushed request is spent instead
    if !is_open(cx, asked).await? {
        return Err(ANSWERED);
    }
    let session = signed_in.session.sid();
    core.journal.record(EventKind::CodeIssued, &who, None, core.keyed().await?);
    let (binding, wanted) = (checked.binding.clone(), oidc.wanted.clone());
    core.codes.issue(&code.digest(), &AuthorizationCode { who, session, login: session, binding, wanted }).await?;
    Ok(Some(response))
}

/// Returns whether the request can have a code. A pushed request is spent by this.
async fn is_open(cx: &RequestContext<'_>, asked: &Asked<'_>) -> Result<bool, StoreError> {
    match asked.pushed() {
        Some(pushed) => cx.core.pushed.take(pushed).await,
        None => Ok(true),
    }
}
