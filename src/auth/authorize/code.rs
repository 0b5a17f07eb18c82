//! Issues authorization codes: once for a completed login, or silently for a signed-in user.

use http::Response;

use super::{
    completed::CompletedLogin,
    consent::{self, Decider},
    query::{Asked, Checked},
    session::{self, NewCode},
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
    policy::{LoginPlan, MethodSet},
    session::Authentication,
    store::{StoreError, StoreErrorKind},
    util::secret::Secret,
};

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
    let wanted = checked.oidc.wanted.clone().or(&completed.login().wanted);
    let decider = Decider { who: &who, proof: completed.login().id.as_bytes(), has_session: false };
    if let Some(question) = consent::require_consent(cx, asked, (checked, &wanted), &decider).await? {
        return Ok(Some(question));
    }
    // what can fail without the store fails before the login is spent
    let code = Secret::generate();
    let Ok(response) = asked.back(cx, &[("code", code.expose())]) else { return Ok(None) };
    let mut row = AuthorizationCode {
        who: who.clone(),
        session: completed.new_session(),
        binding: completed.login().binding.clone(),
        wanted,
    };
    let new = NewCode { digest: code.digest(), row: &mut row, pushed: asked.pushed() };
    let cookies = session::begin_session(cx, &mut completed, &who, signed_in, Some(new)).await?;
    let Some(cookies) = cookies else {
        completed.check_account(cx, &who).await?;
        return Ok(None);
    };
    let (login, keyed) = (completed.login(), core.keyed().await?);
    core.journal.record(EventKind::LoginSucceeded, login, None, keyed);
    core.journal.record(EventKind::CodeIssued, login, None, keyed);
    Ok(Some(completed.finish(cx, cookies, response)))
}

/// Issues a code silently for a signed-in user, if the client has single sign-on and its redirect URI is a website. A user who
/// has just allowed the client gets one for other redirect URIs, too.
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
    let session = signed_in.session.sid();
    let decider = Decider { who: &who, proof: session.as_bytes(), has_session: true };
    if let Some(question) = consent::require_consent(cx, asked, (checked, &oidc.wanted), &decider).await? {
        return Ok(Some(question));
    }
    // the answer of that page is a confirmation, too
    if !asked.to.redirect.is_of_a_site() && !decider.has_allowed(asked, core.keyed().await?, core.logins.now()) {
        let error = Problem::new(Code::InteractionRequired, "the user must confirm");
        return if oidc.is_silent { Err(error) } else { Ok(None) };
    }
    let code = Secret::generate();
    let Ok(response) = asked.back(cx, &[("code", code.expose())]) else { return Ok(None) };
    let (binding, wanted) = (checked.binding.clone(), oidc.wanted.clone());
    let row = AuthorizationCode { who, session, binding, wanted };
    let mut batch = core.accounts.batch(&row.who.tenant, Some(&row.who.user))?;
    // there is no login to use up, so a pushed request is used up instead
    let pushed = session::use_up(cx, asked.pushed()).await?.map(|write| batch.add(write));
    let issued = batch.add(core.codes.prepare_code_insert(&code.digest(), &row)?);
    let Some(outcomes) = batch.run().await?.since(row.who.generation) else { return Ok(None) };
    if pushed.is_some_and(|pushed| outcomes.version(&pushed).is_none()) {
        return Err(session::already_answered());
    }
    outcomes.version(&issued).ok_or_else(|| StoreError::from(StoreErrorKind::Busy))?;
    core.journal.tally_login(EventKind::CodeIssued, &row.who, (None, None), core.keyed().await?);
    Ok(Some(response))
}

/// Returns whether a session has not proved the second factor that its account has and that a login of this plan asks for. Sessions
/// that began without it count as they are, except for a request that names a level.
async fn lacks_factor(cx: &RequestContext<'_>, plan: &LoginPlan, who: &Authentication) -> Result<bool, StoreError> {
    let proved = MethodSet::of_proofs(&who.proofs);
    let factors = cx.core.enrolled_factors((&who.tenant, &who.user), plan, proved).await?;
    Ok(!factors.all.is_empty())
}
