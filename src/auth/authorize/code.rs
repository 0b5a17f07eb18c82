//! Issues authorization codes: once for a completed login, or silently for a signed-in user.

use http::Response;

use super::{
    at_once::{self, AtOnce},
    completed::CompletedLogin,
    query::{Asked, Checked},
    session::{self, TargetSession},
};
use crate::{
    auth::{
        context::RequestContext,
        factors::signed_in::SignedIn,
        http::problem::{Code, Problem},
        state::codes::AuthorizationCode,
    },
    event::EventKind,
    http::body::Body,
    policy::{LoginPlan, Method},
    session::Authentication,
    store::StoreError,
    util::secret::Secret,
};

fn already_answered() -> Problem {
    Problem::invalid("the request was already answered")
}

/// Issues the code of a completed login and spends the login. Its proofs begin or update the browser's session.
///
/// Returns `None` if the login cannot be used any more, so that the user logs in again.
pub(crate) async fn for_login(
    cx: &RequestContext<'_>,
    asked: &Asked<'_>,
    checked: &Checked,
    plan: &LoginPlan,
    mut completed: CompletedLogin<'_>,
    signed_in: Option<&SignedIn>,
) -> Result<Option<Response<Body>>, Problem> {
    let core = cx.core;
    let acr = plan.acr().or(completed.login().plan.acr()).map(str::to_owned);
    let Some(who) = completed.authentication(cx, acr.as_deref()).await? else { return Ok(None) };
    let target = TargetSession::of_completed_login(cx, &completed, &who).await?;
    // what can fail without the store fails before the login is spent
    let code = Secret::generate();
    let Ok(response) = asked.back(cx, &[("code", code.expose())]) else { return Ok(None) };
    let mut row = AuthorizationCode {
        who,
        session: target.sid,
        binding: completed.login().binding.clone(),
        wanted: checked.oidc.wanted.clone().or(&completed.login().wanted),
    };
    let at_once = match asked.pushed() {
        None => at_once::begin(cx, &mut completed, &target, &row.who, Some((&code.digest(), &row))).await?,
        Some(_) => AtOnce::NotPossible,
    };
    let begun = match at_once {
        AtOnce::Begun(begun) => Some(begun),
        AtOnce::Refused => None,
        AtOnce::NotPossible => {
            // the login is spent first: a failure after it costs a login and never yields two codes
            if !completed.spend(cx, &target.sid).await? {
                return Ok(None);
            }
            if !is_open(cx, asked).await? {
                return Err(already_answered());
            }
            let begun = session::begin_session(cx, &completed, &row.who, signed_in, target).await?;
            if let Some(begun) = &begun {
                row.session = begun.sid;
                core.codes.issue(&code.digest(), &row).await?;
            }
            begun
        }
    };
    let Some(begun) = begun else {
        completed.check_account(cx, &row.who).await?;
        return Ok(None);
    };
    let (login, keyed) = (completed.login(), core.keyed().await?);
    core.journal.record(EventKind::LoginSucceeded, login, None, keyed);
    core.journal.record(EventKind::CodeIssued, login, None, keyed);
    Ok(Some(completed.finish(cx, begun.cookies, response)))
}

/// Issues a code silently for a signed-in user, if the client has single sign-on and its redirect URI is a website.
pub(crate) async fn for_session(
    cx: &RequestContext<'_>,
    asked: &Asked<'_>,
    checked: &Checked,
    plan: &LoginPlan,
    signed_in: &SignedIn,
) -> Result<Option<Response<Body>>, Problem> {
    let (core, oidc) = (cx.core, &checked.oidc);
    let silently = signed_in.silently(plan, oidc, &asked.to.client, core.logins.now());
    let Some(who) = silently.filter(|_| !oidc.asks_user) else { return Ok(None) };
    if plan.acr().is_some() && lacks_factor(cx, plan, &who).await? {
        return Ok(None);
    }
    if !asked.to.redirect.is_of_a_site() {
        let error = Problem::new(Code::InteractionRequired, "the user must confirm");
        return if oidc.is_silent { Err(error) } else { Ok(None) };
    }
    let code = Secret::generate();
    let Ok(response) = asked.back(cx, &[("code", code.expose())]) else { return Ok(None) };
    // there is no login to use up, so a pushed request is used up instead
    if !is_open(cx, asked).await? {
        return Err(already_answered());
    }
    let session = signed_in.session.sid();
    core.journal.tally_login(EventKind::CodeIssued, &who, (None, None), core.keyed().await?);
    let (binding, wanted) = (checked.binding.clone(), oidc.wanted.clone());
    core.codes.issue(&code.digest(), &AuthorizationCode { who, session, binding, wanted }).await?;
    Ok(Some(response))
}

/// Returns whether a session has not proved the second factor that its account has and that a login of this plan asks for. Sessions
/// that began without it count as they are, except for a request that names a level.
async fn lacks_factor(cx: &RequestContext<'_>, plan: &LoginPlan, who: &Authentication) -> Result<bool, StoreError> {
    let proved = who.methods().filter_map(Method::from_name).collect();
    let factors = cx.core.enrolled_factors((&who.tenant, &who.user), plan, proved).await?;
    Ok(!factors.all.is_empty())
}

/// Returns whether the request can have a code. This uses up a pushed request.
async fn is_open(cx: &RequestContext<'_>, asked: &Asked<'_>) -> Result<bool, StoreError> {
    match asked.pushed() {
        Some(pushed) => cx.core.pushed.take(pushed).await,
        None => Ok(true),
    }
}
