//! `GET /authentication/sso/<provider>/callback`: a user comes back from another identity provider.

use std::sync::Mutex;

use http::{Method, Response};

use crate::{
    auth::{
        authorize::query::Query,
        context::RequestContext,
        http::{
            answer,
            fields::Fields,
            problem::{Code, Problem},
            route::provider_of,
        },
        methods::{
            LoginStep,
            sso::{self, SsoState},
        },
        pages::page,
    },
    event::EventKind,
    http::body::Body,
    login::{Challenge, LoginCall},
    util::secret::Digest,
};

/// The longest query of a callback.
const LONGEST_QUERY: usize = 16 * 1024;

/// Redeems the open challenge of a login of this browser once, and returns to the login page.
pub(crate) async fn sso_callback(cx: &mut RequestContext<'_>) -> Result<Response<Body>, Problem> {
    match returned(cx).await {
        Ok(location) => answer::see_other(&location).ok_or_else(unexpected),
        Err(problem) => page::shown(cx, problem),
    }
}

/// The answer to a callback that no login of this browser waits for. It does not tell why.
fn unexpected() -> Problem {
    Problem::new(Code::SsoFailed, "no login of this browser waits for this answer of the provider")
}

/// Returns the URL of the login page.
async fn returned(cx: &mut RequestContext<'_>) -> Result<String, Problem> {
    let query = Query::of(cx).and_then(|query| match query.raw.len() <= LONGEST_QUERY {
        true => Ok(query),
        false => Err(Problem::invalid("the query is longer than 16 KiB")),
    });
    let query = cx.or_charge(query).await?;
    let state = query.value("state").and_then(SsoState::parse);
    let found = cx.returning_login(state.as_ref().map(|state| state.login.as_str())).await?;
    cx.refuse_prefetch()?;
    if query.has_duplicates() {
        return Err(Problem::invalid("a parameter appears more than once"));
    }
    // HEAD must not use up the challenge
    let (Some(state), Some((digest, stored)), &Method::GET) = (state, found, &cx.parts.method) else {
        return Err(unexpected());
    };
    let keyed = cx.core.keyed().await?;
    let (login, fields) = (stored.value.clone(), Fields::default());
    let step = LoginStep { cx, keyed, digest, login, latest: Mutex::new(stored), fields, typed: None };
    let provider = provider_of(cx.parts.uri.path(), cx.core.issuer.path());
    let provider = provider.and_then(|name| cx.core.providers.find(&step.login.tenant, name));
    let Some((provider, back)) = provider.zip(waiting(&step, provider.map(|(name, _)| name), &state.digest())) else {
        step.tally(EventKind::SequenceFailed, Some(crate::policy::Method::Sso));
        return Err(unexpected());
    };
    let redeemed = step.apply(&LoginCall::Redeem { provider: provider.0, state: &state.digest() }).await?;
    if redeemed.answer.is_err() {
        step.tally(EventKind::SequenceFailed, Some(crate::policy::Method::Sso));
        return Err(unexpected());
    }
    let parameters: Vec<(&str, &str)> = query.pairs().collect();
    let outcome = sso::settle(&step, provider, &state, &parameters).await?;
    Ok(format!("{}?{back}#sso={}", page::url(cx.core), outcome.as_str()))
}

/// Returns the query of the login page if the login waits for this answer.
fn waiting(step: &LoginStep<'_>, provider: Option<&str>, state: &Digest) -> Option<String> {
    match &step.login.open {
        Some(Challenge::Sso(open)) if open.is_for(provider?, state, step.now()) => Some(open.query.clone()),
        _ => None,
    }
}
