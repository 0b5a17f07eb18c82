//! `GET /sign-in` and `GET /sign-in/finish`: a user signs in to the site itself.

use http::{Method, Response};

use super::site::FirstParty;
use crate::{
    auth::{
        authorize::{oidc::OidcParameters, query::Query, session, signed_in::SignedIn},
        context::RequestContext,
        http::{
            answer,
            cookies::Carried,
            problem::{Code, Problem},
            route::SIGN_IN,
        },
        pages::page,
    },
    client::Client,
    event::EventKind,
    http::body::Body,
    login::{Login, LoginCall},
    pkce::{CodeChallenge, CodeVerifier},
    store::{StoreError, table::Stored},
    util::{form, secret::Secret},
};

/// Redirects to the login page, or to `return_to` if the user is already signed in.
pub(crate) async fn sign_in(cx: &mut RequestContext<'_>) -> Result<Response<Body>, Problem> {
    match begin(cx).await {
        Ok(response) => Ok(response),
        Err(problem) => page::shown(cx, problem),
    }
}

/// Spends a completed login of this browser, sets the session cookie, and redirects to where the user wanted to go.
pub(crate) async fn finish(cx: &mut RequestContext<'_>) -> Result<Response<Body>, Problem> {
    cx.refuse_prefetch()?;
    match end(cx).await {
        Ok(response) => Ok(response),
        Err(problem) => page::shown(cx, problem),
    }
}

async fn begin(cx: &mut RequestContext<'_>) -> Result<Response<Body>, Problem> {
    let query = Query::of(cx);
    let (site, client) = of_this_site(cx)?;
    let query = query?;
    if query.is_twice("return_to") {
        return Err(Problem::invalid("return_to appears more than once"));
    }
    let return_to = site.return_to(query.value("return_to"))?;
    if is_signed_in(cx, &client).await? {
        return redirect(return_to.as_deref().unwrap_or("/"));
    }
    let redirect_uri = client.redirect_uris().first().map_or("", |uri| uri.as_str());
    // there is no code, so the verifier is never used
    let challenge = CodeChallenge::of(&CodeVerifier::generate());
    let parameters = [
        ("client_id", client.id()),
        ("redirect_uri", redirect_uri),
        ("response_type", "code"),
        ("scope", "openid"),
        ("code_challenge", challenge.as_str()),
        ("code_challenge_method", "S256"),
    ];
    let return_to = return_to.as_deref().map(|path| ("return_to", path));
    let query = form::written(parameters.into_iter().chain(return_to));
    redirect(&format!("{}?{query}", page::url(cx.core)))
}

/// Returns whether the browser has a session at the client's tenant. Proofs that stopped counting are dropped on the way.
async fn is_signed_in(cx: &RequestContext<'_>, client: &Client) -> Result<bool, StoreError> {
    let Some(session) = cx.core.sessions.presented(&cx.parts.headers, client.tenant()).await? else {
        return Ok(false);
    };
    // a session that the application created itself
    let is_foreign = session.authentication().proofs.is_empty();
    Ok(is_foreign || SignedIn::find(cx, client, &OidcParameters::default()).await?.is_some())
}

async fn end(cx: &mut RequestContext<'_>) -> Result<Response<Body>, Problem> {
    let (site, client) = of_this_site(cx)?;
    if cx.parts.method == Method::GET {
        let carried = cx.core.cookies.carried(&cx.parts.headers);
        let signed_in = SignedIn::find(cx, &client, &OidcParameters::default()).await?;
        if let Some((cookie, login)) = completed(cx, &client, (&carried, signed_in.as_ref())).await?
            && let Some(response) = spend(cx, site, (cookie, &login), signed_in.as_ref()).await?
        {
            return Ok(response);
        }
    }
    // nothing to finish: the page was reloaded, or the login has ended meanwhile
    redirect(&format!("{}{SIGN_IN}", cx.core.issuer.path()))
}

/// Finds the newest login of this browser that is completed for the site itself and still meets its policy.
async fn completed<'c>(
    cx: &RequestContext<'_>,
    client: &Client,
    (carried, signed_in): (&'c [Carried<'c>], Option<&SignedIn>),
) -> Result<Option<(&'c Carried<'c>, Stored<Login>)>, Problem> {
    let logins = &cx.core.logins;
    let Some(plan) = OidcParameters::default().plan(cx, client)? else { return Ok(None) };
    let mut newest: Option<(&Carried<'_>, Stored<Login>)> = None;
    for cookie in carried {
        let Some(stored) = logins.find(&cookie.digest).await? else { continue };
        let login = &stored.value;
        let is_for_this_site = login.is_completed(logins.now())
            && login.binding.client_id == client.id()
            && login.tenant == *client.tenant()
            && cookie.name == cx.core.cookies.name_of(&login.id)
            // proofs of a session count as long as the session does
            && (login.carried == 0 || signed_in.is_some_and(|it| it.bears(login)))
            && plan.is_met_by(login.proved());
        if is_for_this_site && newest.as_ref().is_none_or(|(_, other)| other.value.began < login.began) {
            newest = Some((cookie, stored));
        }
    }
    Ok(newest)
}

/// Spends the login once and begins or updates the session. Returns `None` if the login cannot be used any more.
async fn spend(
    cx: &RequestContext<'_>,
    site: &FirstParty,
    (cookie, stored): (&Carried<'_>, &Stored<Login>),
    signed_in: Option<&SignedIn>,
) -> Result<Option<Response<Body>>, Problem> {
    let (core, keyed, login) = (cx.core, cx.core.keyed().await?, &stored.value);
    let Some(who) = login.authentication(login.plan.acr()) else { return Ok(None) };
    if session::counting_account(cx, &who).await?.is_none() {
        core.journal.tally_login(EventKind::LoginFailed, login, None, keyed);
        return Err(Problem::new(Code::AccessDenied, "the account is not allowed to log in"));
    }
    let return_to = site.return_to(login.wanted.return_to.as_deref())?;
    let mut response = redirect(return_to.as_deref().unwrap_or("/"))?;
    // the digest of no code: this login never yields one
    let spend = LoginCall::Consume(&Secret::generate().digest());
    let spent = core.logins.apply(&cookie.digest, stored.clone(), &spend).await?;
    if spent.is_none_or(|update| update.answer.is_err()) {
        return Ok(None);
    }
    let Some(begun) = session::begin(cx, login, &who, signed_in).await? else { return Ok(None) };
    core.journal.record(EventKind::LoginSucceeded, login, None, keyed);
    let removal = core.cookies.removal(cookie.name);
    for cookie in begun.cookies.into_iter().chain(removal) {
        cookie.append_to(response.headers_mut());
    }
    Ok(Some(response))
}

/// Finds the built-in client of the request's tenant, and charges the request to that tenant.
pub(super) fn of_this_site<'c>(cx: &mut RequestContext<'c>) -> Result<(&'c FirstParty, Client), Problem> {
    let core = cx.core;
    let found = core.first_party.as_ref().and_then(|site| Some((site, site.client(cx.head())?)));
    cx.charge(found.as_ref().map(|(_, client)| client.tenant()))?;
    found.ok_or(Problem::invalid("no tenant could be determined for this request"))
}

fn redirect(location: &str) -> Result<Response<Body>, Problem> {
    answer::see_other(location).ok_or(Problem::invalid("the location cannot be sent"))
}
