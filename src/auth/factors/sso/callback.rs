//! `GET /authentication/sso/<provider>/callback`: a user comes back from another identity provider.

use std::sync::Mutex;

use http::{Method, Response};

use super::{
    connect::{self, callback_query},
    login::{self, SsoState},
    outcome::SsoOutcome,
};
use crate::{
    auth::{
        context::{RequestContext, incoming::IncomingRequest},
        factors::step::LoginStep,
        http::{
            answer,
            fields::Fields,
            problem::{Code, Problem},
            route::{SIGN_IN, provider_of},
        },
        pages::page,
        query::Query,
        state::logins::StoredLogin,
    },
    event::EventKind,
    http::body::Body,
    login::{Challenge, LoginCall, LoginError},
    util::secret::SecretDigest,
};

/// Serves the return from a provider: to a login, or to the account page.
pub(crate) async fn serve_sso_callback(request: &mut IncomingRequest<'_>) -> Result<Response<Body>, Problem> {
    match request.has_site() && connect::is_awaited(request.parts()) {
        true => connect::finish_provider_link(request).await,
        false => finish_step(request).await,
    }
}

/// Redeems the open challenge of a login of this browser once, and returns to the login page.
async fn finish_step(request: &mut IncomingRequest<'_>) -> Result<Response<Body>, Problem> {
    let query = request.or_charge(callback_query(request.parts())).await.map_err(Problem::into_error_page)?;
    let state = query.value("state").and_then(SsoState::parse);
    let id = state.as_ref().map(|state| state.login.as_str());
    let (cx, found) = request.returning_login(id).await.map_err(Problem::into_error_page)?;
    let location = returned(&cx, &query, (state, found)).await.map_err(Problem::into_error_page)?;
    answer::see_other(&location).ok_or_else(|| unexpected(&cx))
}

/// The answer to a callback that no login of this browser waits for. It does not tell why. Where users sign in to the site
/// itself, it leads to a new sign-in.
fn unexpected(cx: &RequestContext<'_>) -> Problem {
    let problem = Problem::new(Code::SsoFailed, "no login of this browser waits for this answer of the provider");
    let is_site = cx.core.first_party.as_ref().is_some_and(|site| site.client(cx.head()).is_some());
    if is_site { problem.login_url(format!("{}{SIGN_IN}", cx.core.issuer.path())) } else { problem }
}

/// Returns the URL of the login page.
async fn returned(
    cx: &RequestContext<'_>,
    query: &Query<'_>,
    (state, found): (Option<SsoState>, Option<(SecretDigest, StoredLogin)>),
) -> Result<String, Problem> {
    cx.refuse_prefetch()?;
    if query.has_duplicates() {
        return Err(Problem::invalid("a parameter appears more than once"));
    }
    // HEAD must not use up the challenge
    let (Some(state), Some((digest, stored)), &Method::GET) = (state, found, &cx.parts.method) else {
        return Err(unexpected(cx));
    };
    let keyed = cx.core.keyed().await?;
    let (login, fields) = (stored.value.clone(), Fields::default());
    let step = LoginStep { cx, keyed, digest, login, latest: Mutex::new(stored), fields, typed: None };
    let provider = provider_of(cx.parts.uri.path(), cx.core.issuer.path());
    let provider = provider.and_then(|name| cx.core.factors.sso.find(&step.login.tenant, name));
    let waiting = provider.and_then(|(name, _)| waiting(&step, name, &state.digest()));
    let Some((provider, (back, is_in_time))) = provider.zip(waiting) else {
        step.tally(EventKind::SequenceFailed, Some(crate::policy::Method::Sso));
        return Err(unexpected(cx));
    };
    let redeemed = step.apply(&LoginCall::Redeem { provider: provider.0, state: &state.digest() }).await?;
    let outcome = match redeemed.answer {
        Ok(_) => {
            let parameters: Vec<(&str, &str)> = query.pairs().collect();
            login::settle_provider_login(&step, provider, &state, &parameters).await?
        }
        Err(error) => {
            step.tally(EventKind::SequenceFailed, Some(crate::policy::Method::Sso));
            if is_in_time && error != LoginError::Expired {
                return Err(unexpected(cx));
            }
            SsoOutcome::Expired
        }
    };
    Ok(format!("{}?{back}#{}", page::url(cx.core), outcome.fragment()))
}

/// Returns the query of the login page if the login waits for this answer, and whether the answer comes in time.
fn waiting(step: &LoginStep<'_>, provider: &str, state: &SecretDigest) -> Option<(String, bool)> {
    match &step.login.open {
        Some(Challenge::Redirect(open)) if open.was_for(provider, state) => {
            Some((open.query.clone(), open.is_for(provider, state, step.now())))
        }
        _ => None,
    }
}
