//! How an authorization code is issued: once for a login that is completed, or for who is signed in.

use http::Response;

use super::{
    cookies::Carried,
    evidence::Evidence,
    grant::Grant,
    problem::Code,
    query::{Asked, Checked},
    replaced::Replaced,
    request::Wrong,
    signed_in::SignedIn,
    visit::Visit,
};
use crate::{
    event::EventKind,
    http::body::Body,
    login::{Call, Login},
    policy::LoginPlan,
    store::StoreError,
    util::{handle::Handle, secret::Secret},
};

/// The answer with the code, nothing, or what the client is told.
type Issued = Result<Result<Option<Response<Body>>, Wrong>, StoreError>;

const ANSWERED: Wrong = Wrong { code: Code::InvalidRequest, detail: "the request had its answer" };

/// For a login, which is spent by it; what it proved begins a signed-in session, in place of the one before.
pub(super) async fn of_login(
    visit: &Visit<'_>,
    asked: &Asked<'_>,
    checked: &Checked,
    (cookie, login): (&Carried<'_>, &Login),
    before: Option<SignedIn>,
) -> Issued {
    let (running, journal, keyed) = (visit.inner.running(), visit.inner.journal(), visit.inner.keyed().await?);
    let Some(evidence) = Evidence::of(login) else { return Ok(Ok(None)) };
    if !evidence.still_stands(visit).await? {
        journal.tally_login(EventKind::LoginFailed, login, None, keyed);
        return Ok(Err(Wrong { code: Code::AccessDenied, detail: "the account may not log in" }));
    }
    // whatever can fail without the store does so before the login is spent
    let (code, secret) = (Secret::generate(), Secret::generate());
    let acr = checked.plan.as_ref().and_then(LoginPlan::acr).or(login.plan.acr());
    let before = before.filter(|before| login.session == Some(before.session.handle()));
    let kept = before.as_ref().filter(|_| login.is_all_carried()).map(|before| before.session.handle());
    let handle = kept.unwrap_or_else(|| Handle::of(&secret.digest()));
    let wanted = checked.wishes.wanted.clone().or(&login.wanted);
    let grant = Grant::of(login.binding.clone(), &evidence, acr, handle, wanted);
    let acr = acr.or(before.as_ref().and_then(SignedIn::acr));
    let mut evidence = match &before {
        Some(before) => evidence.and(&before.evidence),
        None => evidence,
    };
    let replaced = Replaced::by(visit, &evidence).await?;
    evidence.replaced.clone_from(&replaced.own);
    let answer = asked.back(visit, &[("code", code.expose())]);
    let (Some(grant), Some(session), Ok(mut response)) = (grant, evidence.new_session(acr), answer) else {
        return Ok(Ok(None));
    };
    // first the login is spent, then the code exists: what fails in between costs a login and never gives two codes
    let spent = running.logins.step(&cookie.digest, &Call::Consume(&code.digest())).await?;
    if spent.is_none_or(|moved| moved.answer.is_err()) {
        return Ok(Ok(None));
    }
    if !is_open(visit, asked).await? {
        return Ok(Err(ANSWERED));
    }
    // as long as the browser has the session of somebody else, another login can find what came of it
    if kept.is_none() {
        replaced.end_rest(visit).await?;
    }
    running.codes.issue(&code.digest(), &grant).await?;
    // who proved nothing new stays signed in as before
    if kept.is_none() {
        // a session that lives has its evidence
        running.evidences.keep(&secret.digest(), running.sessions.ends_if_begun_now(), &evidence).await?;
        let (session_cookie, _) = running.sessions.create_with(&secret, session).await?;
        // the cookie takes the place of the one before, and so nobody could end that session any more
        match running.sessions.end_presented(&visit.parts.headers).await {
            Ok(ended) => {
                for digest in &ended {
                    running.evidences.forget(digest).await;
                }
            }
            Err(error) => crate::util::trace::warning!("the session before could not be ended: {error}"),
        }
        session_cookie.append_to(response.headers_mut());
    }
    journal.record(EventKind::LoginSucceeded, login, None, keyed);
    journal.record(EventKind::CodeIssued, login, None, keyed);
    if let Some(removal) = visit.inner.config.cookies.removal(cookie.name) {
        removal.append_to(response.headers_mut());
    }
    Ok(Ok(Some(response)))
}

/// For who is signed in, without a login and without a word, where the client shares sessions and a site gets the code.
pub(super) async fn of_session(
    visit: &Visit<'_>,
    asked: &Asked<'_>,
    checked: &Checked,
    plan: &LoginPlan,
    signed_in: &SignedIn,
) -> Issued {
    let (running, wishes) = (visit.inner.running(), &checked.wishes);
    if wishes.asking || !signed_in.meets(plan, wishes, &asked.to.client, running.evidences.now()) {
        return Ok(Ok(None));
    }
    if !asked.to.redirect.is_of_a_site() {
        let wrong = Wrong { code: Code::InteractionRequired, detail: "the user has to confirm it" };
        return Ok(if wishes.silent { Err(wrong) } else { Ok(None) });
    }
    let (code, evidence) = (Secret::generate(), &signed_in.evidence);
    let handle = signed_in.session.handle();
    let grant = Grant::of(checked.binding.clone(), evidence, plan.acr(), handle, wishes.wanted.clone());
    let (Some(grant), Ok(response)) = (grant, asked.back(visit, &[("code", code.expose())])) else {
        return Ok(Ok(None));
    };
    // without a login that is spent, it is the request that is
    if !is_open(visit, asked).await? {
        return Ok(Err(ANSWERED));
    }
    running.codes.issue(&code.digest(), &grant).await?;
    visit.inner.journal().record(EventKind::CodeIssued, evidence, None, visit.inner.keyed().await?);
    Ok(Ok(Some(response)))
}

/// Whether a request may have a code: one that was pushed is spent by that.
async fn is_open(visit: &Visit<'_>, asked: &Asked<'_>) -> Result<bool, StoreError> {
    match asked.pushed() {
        Some(pushed) => visit.inner.running().pushed.take(pushed).await,
        None => Ok(true),
    }
}
