//! `/logout` (OpenID Connect RP-Initiated Logout): ends the signed-in session and its tokens.

use http::{Method, request::Parts};

use super::form::Posted;
use crate::{
    auth::{
        authorize::{proved_logins::ProvedLogins, query::LONGEST_STATE},
        context::{RequestContext, incoming::IncomingRequest, stages::ClientReach},
        http::{
            answer,
            bodies::RequestBody,
            fields,
            problem::{EndpointResult, Problem},
        },
        pages::{built, logout as logout_pages},
        query::Query,
    },
    client::{Client, RequestedRedirect},
    event::EventKind,
    session::Session,
    store::StoreError,
    tenant::Tenant,
    tokens::TokenService,
    util::{
        form::{self, Form},
        public_id::PublicId,
    },
};

/// Ends the session of the browser, and the tokens issued from it.
///
/// An `id_token_hint` of that session ends it at once, because only its client has that token: no foreign link can end
/// a session or a login. In all other cases the user is asked.
pub(crate) async fn logout(
    request: &mut IncomingRequest<'_>,
    tokens: &TokenService,
    body: &mut RequestBody,
) -> EndpointResult {
    let asked = read_logout_form(request.parts, body).await;
    let asked = request.or_charge(asked).await?;
    let hint = match asked.value("id_token_hint") {
        Some(hint) => {
            request.begin_lookup().await?;
            tokens.hint(hint).await?
        }
        None => None,
    };
    let client_id = asked.value("client_id").map(str::to_owned).or(hint.as_ref().map(|hint| hint.aud.clone()));
    let (cx, client) = request.charged_client(client_id.as_deref(), ClientReach::Registered).await?;
    if hint.as_ref().is_some_and(|hint| client_id.as_ref() != Some(&hint.aud)) {
        return Err(Problem::invalid("id_token_hint belongs to another client than client_id"));
    }
    let after = post_logout_target(&asked, client.as_deref())?;
    cx.refuse_prefetch()?;
    let sessions = &cx.core.sessions;
    let hinted = hint.filter(|_| cx.parts.method != Method::HEAD && client.is_some());
    let hinted_sid = hinted.as_ref().and_then(|hint| hint.sid.as_deref()).and_then(PublicId::parse);
    let mut shown = sessions.held(&cx.parts.headers).await?;
    // also without a cookie: a client can post the hint from another site
    if let Some(sid) = &hinted_sid {
        end_session_at_logout(&cx, sid, client.as_deref().map(Client::tenant)).await?;
    }
    let tenant = client.as_deref().map(Client::tenant);
    let removals = sessions.presented_removals(&cx.parts.headers, tenant);
    if cx.parts.method == Method::POST && removals.is_empty() && !cx.is_of_own_page() {
        return with_cookies(&cx, &asked, client_id.as_deref());
    }
    shown.retain(|session| tenant.is_none_or(|tenant| tenant == session.tenant()));
    let presented = cx.core.cookies.read_login_cookies(&cx.parts.headers);
    let logins = ProvedLogins::find(&cx, &presented, tenant).await?;
    let is_hinted = |session: &Session| {
        hinted_sid == Some(session.sid())
            || hinted_sid.is_none() && hinted.as_ref().is_some_and(|hint| hint.sub == session.user().as_str())
    };
    // the user has pressed the button on a page
    let has_confirmed = cx.parts.method == Method::POST && asked.value("confirmed").is_some();
    let is_confirmed = has_confirmed && cx.is_of_own_page();
    // a hint of a session that this browser does not have must not end its logins
    let needs_no_question = shown.iter().all(is_hinted) && (!shown.is_empty() || logins.is_empty());
    let language = built::language(asked.value("ui_locales"), cx.parts);
    if !is_confirmed && !needs_no_question {
        return Ok(logout_pages::logout_question_page(
            &cx.core.pages,
            language,
            "logout",
            &forwarded_parameters(&asked, client_id.as_deref()),
            after.as_ref().and_then(|after| after.to.policy_source()),
        ));
    }
    for session in shown.iter().filter(|session| hinted_sid != Some(session.sid())) {
        end_session_at_logout(&cx, &session.sid(), Some(session.tenant())).await?;
    }
    let removals = removals.into_iter().chain(logins.end(&cx).await?);
    let mut response = match after {
        // the policy of the page that asked can't permit this target, so the user follows a link
        Some(After { to, location }) if has_confirmed && to.policy_source().is_none() => {
            logout_pages::logout_done_page(&cx.core.pages, language, Some(&location))
        }
        Some(After { location, .. }) => {
            answer::redirect(&location).ok_or_else(|| Problem::invalid("state cannot be sent back"))?
        }
        None => logout_pages::logout_done_page(&cx.core.pages, language, None),
    };
    for removal in removals {
        removal.append_to(response.headers_mut());
    }
    Ok(response)
}

/// Redirects to the same request by GET. Browsers withhold cookies from a form of another site, but send them with the
/// redirect. So the page never confirms a logout while the browser has another session. The session of the hint has ended by
/// then.
fn with_cookies(cx: &RequestContext<'_>, asked: &Form<'_>, client_id: Option<&str>) -> EndpointResult {
    let forwarded = forwarded_parameters(asked, client_id);
    let query = form::encode_pairs(forwarded.into_iter().filter_map(|(name, value)| Some((name, value?))));
    answer::see_other(&format!("{}/logout?{query}", cx.core.issuer.path()))
        .ok_or_else(|| Problem::invalid("the form cannot be forwarded"))
}

async fn end_session_at_logout(
    cx: &RequestContext<'_>,
    sid: &PublicId,
    tenant: Option<&Tenant>,
) -> Result<(), StoreError> {
    if cx.core.sessions.end_sid(sid).await?.is_some() {
        cx.core.journal.tally(EventKind::TokenRevoked, tenant, None);
    }
    Ok(())
}

async fn read_logout_form(parts: &Parts, body: &mut RequestBody) -> Result<Form<'static>, Problem> {
    if parts.method == Method::POST {
        let body = fields::form(parts, body).await?;
        return Ok(Posted::from_form_body(&body).into_form()?.into_owned());
    }
    let form = Query::from_request_uri(parts)?.form;
    if form.has_duplicates() {
        return Err(Problem::invalid("a parameter appears more than once"));
    }
    Ok(form.into_owned())
}

/// Returns the parameters that a further request needs again. `client_id` may come from the hint.
fn forwarded_parameters<'a>(asked: &'a Form<'_>, client_id: Option<&'a str>) -> [(&'static str, Option<&'a str>); 4] {
    let own = |name| (name, asked.value(name));
    [("client_id", client_id), own("post_logout_redirect_uri"), own("state"), own("ui_locales")]
}

/// Where the browser goes afterwards.
struct After {
    /// A URI that the client has registered.
    to: RequestedRedirect,
    /// The URI with the state.
    location: String,
}

/// Returns where the browser goes afterwards.
fn post_logout_target(asked: &Form<'_>, client: Option<&Client>) -> Result<Option<After>, Problem> {
    let Some(uri) = asked.value("post_logout_redirect_uri") else { return Ok(None) };
    let Some(client) = client else {
        return Err(Problem::invalid("post_logout_redirect_uri needs client_id or id_token_hint"));
    };
    let unknown = Problem::invalid("post_logout_redirect_uri is not registered for this client");
    let to = client.after_logout_to(uri).ok_or(unknown)?;
    let location = match asked.value("state") {
        Some(state) if state.len() > LONGEST_STATE => {
            return Err(Problem::invalid("state is longer than 4096 bytes"));
        }
        Some(state) => to.with_parameters(&[("state", state)]),
        None => to.with_parameters(&[]),
    };
    Ok(Some(After { to, location }))
}
