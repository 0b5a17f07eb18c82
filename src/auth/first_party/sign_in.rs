//! `GET /sign-in` and `GET /sign-in/finish`: a user signs in to the site itself.

use http::{Method, Response};

use super::site::FirstParty;
use crate::{
    auth::{
        authorize::{completed::CompletedLogin, oidc::OidcParameters, session},
        context::{RequestContext, stages::SiteCall},
        factors::signed_in::SignedIn,
        http::{
            answer,
            problem::{EndpointResult, Problem},
            route::SIGN_IN,
        },
        pages::page,
        query::Query,
    },
    client::Client,
    event::EventKind,
    http::body::Body,
    login::Login,
    pkce::{CodeChallenge, CodeVerifier},
    policy::LoginPlan,
    store::StoreError,
    util::form,
};

/// Redirects to the login page, or to `return_to` if the user is already signed in.
pub(crate) async fn sign_in(SiteCall { cx, site, client }: &SiteCall<'_>) -> EndpointResult {
    let query = Query::from_request_uri(cx.parts)?;
    if query.is_twice("return_to") {
        return Err(Problem::invalid("return_to appears more than once"));
    }
    for (name, detail) in [("max_age", "max_age appears more than once"), ("steps", "steps appears more than once")] {
        if query.is_twice(name) {
            return Err(Problem::invalid(detail));
        }
    }
    let return_to = site.return_to(query.value("return_to"))?;
    let wanted = [("max_age", query.value("max_age")), ("steps", query.value("steps"))];
    let wanted = || wanted.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let oidc = OidcParameters::read_oidc_parameters(client, |asked| {
        wanted().find(|(name, _)| *name == asked).map(|(_, value)| value)
    })?;
    let plan = oidc.plan(cx, client)?;
    if is_signed_in(cx, client, &oidc, plan.as_ref()).await? {
        return redirect(return_to.as_deref().unwrap_or("/"));
    }
    let optional = [("return_to", return_to.as_deref()), ("ui_locales", query.value("ui_locales"))];
    let optional = optional.into_iter().chain(wanted().map(|(name, value)| (name, Some(value))));
    redirect(&format!("{}?{}", page::url(cx.core), parameters_of_site(client, optional)))
}

/// Returns the query of a login to the site itself, with these parameters as far as they have a value.
pub(super) fn parameters_of_site<'v>(
    client: &Client,
    optional: impl IntoIterator<Item = (&'static str, Option<&'v str>)>,
) -> String {
    let redirect_uri = client.redirect_uris().first().map_or("", |uri| uri.as_str());
    // there is no code, so the verifier is never used
    let challenge = CodeChallenge::from_verifier(&CodeVerifier::generate());
    let parameters = [
        ("client_id", client.id()),
        ("redirect_uri", redirect_uri),
        ("response_type", "code"),
        ("scope", "openid"),
        ("code_challenge", challenge.as_str()),
        ("code_challenge_method", "S256"),
    ];
    let optional = optional.into_iter().filter_map(|(name, value)| Some((name, value?)));
    form::encode_pairs(parameters.into_iter().chain(optional))
}

/// Returns whether the browser has a session at the client's tenant that meets the request. Proofs that stopped counting
/// are dropped on the way.
async fn is_signed_in(
    cx: &RequestContext<'_>,
    client: &Client,
    oidc: &OidcParameters,
    plan: Option<&LoginPlan>,
) -> Result<bool, StoreError> {
    if let Some(signed_in) = SignedIn::find(cx, client, oidc).await? {
        let now = cx.core.logins.now();
        return Ok(!oidc.needs_proofs() || plan.is_some_and(|plan| signed_in.meets(plan, oidc, now)));
    }
    // a session that the application created itself
    let foreign = cx.core.sessions.presented(&cx.parts.headers, client.tenant()).await?;
    Ok(!oidc.needs_proofs() && foreign.is_some_and(|session| session.proofs().is_empty()))
}

/// Spends a completed login of this browser, sets the session cookie, and redirects to where the user wanted to go.
pub(crate) async fn finish_sign_in(SiteCall { cx, site, client }: &SiteCall<'_>) -> EndpointResult {
    cx.refuse_prefetch()?;
    if cx.parts.method == Method::GET {
        let presented = cx.core.cookies.read_login_cookies(&cx.parts.headers);
        let signed_in = SignedIn::find(cx, client, &OidcParameters::default()).await?;
        let is_for_this_site = |login: &Login| login.binding.client_id == client.id();
        let Some(plan) = OidcParameters::default().plan(cx, client)? else { return to_sign_in(cx) };
        let (_, logins) = CompletedLogin::read_logins(cx, None, &presented).await?;
        if let Some(completed) =
            CompletedLogin::newest(cx, client, &plan, (&presented, logins, signed_in.as_ref()), is_for_this_site)
            && let Some(response) = spend_for_session(cx, site, completed, signed_in.as_ref()).await?
        {
            return Ok(response);
        }
    }
    to_sign_in(cx)
}

/// Nothing is there to finish: the page was reloaded, or the login has ended meanwhile.
fn to_sign_in(cx: &RequestContext<'_>) -> EndpointResult {
    redirect(&format!("{}{SIGN_IN}", cx.core.issuer.path()))
}

/// Spends the login once and begins or updates the session. Returns `None` if the login cannot be used any more.
async fn spend_for_session(
    cx: &RequestContext<'_>,
    site: &FirstParty,
    mut completed: CompletedLogin<'_>,
    signed_in: Option<&SignedIn>,
) -> Result<Option<Response<Body>>, Problem> {
    let acr = completed.login().plan.acr().map(str::to_owned);
    let Some(who) = completed.authentication(cx, acr.as_deref()).await? else { return Ok(None) };
    let return_to = site.return_to(completed.login().wanted.return_to.as_deref())?;
    let response = redirect(return_to.as_deref().unwrap_or("/"))?;
    let cookies = session::begin_session(cx, &mut completed, &who, signed_in, None).await?;
    let Some(cookies) = cookies else {
        completed.check_account(cx, &who).await?;
        return Ok(None);
    };
    cx.core.journal.record(EventKind::LoginSucceeded, completed.login(), None, cx.core.keyed().await?);
    Ok(Some(completed.finish(cx, cookies, response)))
}

fn redirect(location: &str) -> EndpointResult {
    answer::see_other(location).ok_or(Problem::invalid("the location cannot be sent"))
}
