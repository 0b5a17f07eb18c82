//! `GET /authentication/sso/<provider>/callback`: a user comes back from another identity provider.

use std::{sync::Mutex, time::Duration};

use http::{Method as HttpMethod, request::Parts};

use super::{
    account::find_or_link_account,
    connect::finish_provider_link,
    outcome::{SsoOutcome, SsoRefusal},
    round_trip::{CHALLENGE_LIFETIME, LINK, SsoState, TOO_MANY_FAILURES, callback_query, returned_user},
};
use crate::{
    auth::{
        context::{RequestContext, incoming::IncomingRequest},
        factors::step::LoginStep,
        http::{
            answer,
            fields::Fields,
            problem::{Code, EndpointResult, Problem},
            route::{SIGN_IN, provider_of},
        },
        pages::page,
        query::Query,
        state::logins::StoredLogin,
    },
    event::EventKind,
    login::{Challenge, Login, LoginCall, LoginError, Proved},
    policy::Method,
    sso::{SsoConnection, SsoError},
    util::{
        clock::{UnixTime, saturating_nanos},
        secret::SecretDigest,
    },
};

const METHOD: Method = Method::Sso;

/// Serves the return from a provider: to a login, or to the account page.
pub(crate) async fn serve_sso_callback(request: &mut IncomingRequest<'_>) -> EndpointResult {
    match request.has_site() && is_of_account_page(request.parts) {
        true => finish_provider_link(request).await,
        false => finish_provider_login(request).await,
    }
}

/// Returns whether the user has left the account page to link an account, and not a login.
fn is_of_account_page(parts: &Parts) -> bool {
    let query = Query::from_request_uri(parts).ok();
    let state = query.as_ref().and_then(|query| SsoState::parse(query.value("state")?));
    state.is_some_and(|state| state.login == LINK)
}

/// Ends the login step of a user who comes back, and returns to the login page.
async fn finish_provider_login(request: &mut IncomingRequest<'_>) -> EndpointResult {
    let query = request.or_charge(callback_query(request.parts)).await.map_err(Problem::into_error_page)?;
    let state = query.value("state").and_then(SsoState::parse);
    let id = state.as_ref().map(|state| state.login.as_str());
    let (cx, found) = request.returning_login(id).await.map_err(Problem::into_error_page)?;
    let location = redeem_challenge(&cx, &query, (state, found)).await.map_err(Problem::into_error_page)?;
    answer::see_other(&location).ok_or_else(|| unexpected(&cx))
}

/// The answer to a callback that no login of this browser waits for. It does not say why. If users sign in to the site itself,
/// it leads to a new sign-in.
fn unexpected(cx: &RequestContext<'_>) -> Problem {
    let problem = Problem::new(Code::SsoFailed, "no login of this browser waits for this answer of the provider");
    let is_site = cx.core.first_party.as_ref().is_some_and(|site| site.client(cx.head()).is_some());
    if is_site { problem.login_url(format!("{}{SIGN_IN}", cx.core.issuer.path())) } else { problem }
}

/// Redeems the open challenge of a login of this browser, which counts once. Returns the URL of the login page.
async fn redeem_challenge(
    cx: &RequestContext<'_>,
    query: &Query<'_>,
    (state, found): (Option<SsoState>, Option<(SecretDigest, StoredLogin)>),
) -> Result<String, Problem> {
    cx.refuse_prefetch()?;
    if query.form.has_duplicates() {
        return Err(Problem::invalid("a parameter appears more than once"));
    }
    // HEAD must not use up the challenge
    let (Some(state), Some((digest, stored)), &HttpMethod::GET) = (state, found, &cx.parts.method) else {
        return Err(unexpected(cx));
    };
    let keyed = cx.core.keyed().await?;
    let (login, fields) = (stored.value.clone(), Fields::default());
    let step = LoginStep { cx, keyed, digest, login, latest: Mutex::new(stored), fields, typed: None };
    let provider = provider_of(cx.parts.uri.path(), cx.core.issuer.path());
    let provider = provider.and_then(|name| cx.core.factors.sso.find(&step.login.tenant, name));
    let awaited = provider.and_then(|(name, _)| awaited_query(&step, name, &state.digest()));
    let Some((provider, (back, is_in_time))) = provider.zip(awaited) else {
        step.tally(EventKind::SequenceFailed, Some(METHOD));
        return Err(unexpected(cx));
    };
    let redeemed = step.apply(&LoginCall::Redeem { provider: provider.0, state: &state.digest() }).await?;
    let outcome = match redeemed.answer {
        Ok(_) => settle_provider_login(&step, provider, &state, query).await?,
        Err(error) => {
            step.tally(EventKind::SequenceFailed, Some(METHOD));
            if is_in_time && error != LoginError::Expired {
                return Err(unexpected(cx));
            }
            SsoOutcome::Expired
        }
    };
    Ok(format!("{}?{back}#{}", page::url(cx.core), outcome.fragment()))
}

/// Returns the query of the login page if the login waits for this answer, and whether the answer comes in time.
fn awaited_query(step: &LoginStep<'_>, provider: &str, state: &SecretDigest) -> Option<(String, bool)> {
    match &step.login.open {
        Some(Challenge::Redirect(open)) if open.was_for(provider, state) => {
            Some((open.query.clone(), open.is_for(provider, state, step.now())))
        }
        _ => None,
    }
}

/// Asks the provider who the user is, and proves the step if that user has the account of the login.
async fn settle_provider_login(
    step: &LoginStep<'_>,
    (name, connection): (&str, &SsoConnection),
    state: &SsoState,
    query: &Query<'_>,
) -> Result<SsoOutcome, Problem> {
    let user = match returned_user(step.cx, (name, connection), (state, step.keyed), query).await {
        Ok(user) => user,
        Err(error) => {
            if error == TOO_MANY_FAILURES {
                step.tally(EventKind::LoginLocked, Some(METHOD));
            }
            return end_without_user(step, error).await;
        }
    };
    let earliest = earliest_auth_time(&step.login);
    let auth_time = connection.auth_time(&user, earliest, step.now());
    let is_fresh = earliest.is_none_or(|earliest| auth_time.is_some_and(|time| time >= earliest));
    // a sign-in of unknown age still counts, as a further factor after a fresh step
    if !is_fresh && (auth_time.is_some() || step.login.proofs.is_empty()) {
        return refuse_provider_user(step, name, SsoRefusal::NotFresh).await;
    }
    let found = async {
        Ok(match find_or_link_account(step, (name, connection), &user).await? {
            Ok((user, mark)) => Ok((step.enrolled_factors(&user).await?, user, mark)),
            Err(refusal) => Err(refusal),
        })
    };
    let (factors, user, mark) = match found.await {
        Ok(Ok(proved)) => proved,
        Ok(Err(refusal)) => return refuse_provider_user(step, name, refusal).await,
        Err(problem) => {
            step.apply(&LoginCall::Withdraw).await?;
            step.cx.log(&problem);
            return Ok(SsoOutcome::Unavailable);
        }
    };
    let elsewhere = Some(auth_time.unwrap_or_default().as_nanos());
    let proved = Proved { user: &user, mark: Some(mark), elsewhere, factors };
    let update = step.apply(&LoginCall::Settle(METHOD, Some(proved))).await?;
    let is_proved = step.conclude(&update, METHOD).is_ok();
    Ok(if is_proved { SsoOutcome::Proved } else { SsoOutcome::Ended })
}

/// Ends an attempt of a user whom the provider has signed in, but who is refused here.
async fn refuse_provider_user(step: &LoginStep<'_>, name: &str, refusal: SsoRefusal) -> Result<SsoOutcome, Problem> {
    crate::util::trace::warning!("a user of the provider {name} is not signed in: {}", refusal.explanation());
    let update = step.apply(&LoginCall::Settle(METHOD, None)).await?;
    let _counted = step.conclude_with(&update, METHOD, Some(refusal.as_str()));
    Ok(SsoOutcome::Refused(refusal))
}

/// Returns the earliest sign-in at the provider that the login accepts, if it limits the age.
fn earliest_auth_time(login: &Login) -> Option<UnixTime> {
    let (Some(Challenge::Redirect(open)), Some(seconds)) = (&login.open, login.max_age) else { return None };
    let age = saturating_nanos(Duration::from_secs(seconds));
    Some(UnixTime::from_nanos(
        open.state.expires_at().as_nanos().saturating_sub(saturating_nanos(CHALLENGE_LIFETIME)).saturating_sub(age),
    ))
}

/// Ends an attempt for which the provider named no user.
async fn end_without_user(step: &LoginStep<'_>, error: SsoError) -> Result<SsoOutcome, Problem> {
    let outcome = match error {
        SsoError::Denied => SsoOutcome::Denied,
        SsoError::Unavailable(_) => SsoOutcome::Unavailable,
        SsoError::Failed(_) => {
            let (refusal, update) = (SsoRefusal::WrongAnswer, step.apply(&LoginCall::Settle(METHOD, None)).await?);
            let _counted = step.conclude_with(&update, METHOD, Some(refusal.as_str()));
            return Ok(SsoOutcome::Refused(refusal));
        }
    };
    step.apply(&LoginCall::Withdraw).await?;
    Ok(outcome)
}
