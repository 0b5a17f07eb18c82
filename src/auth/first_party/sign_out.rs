//! `/sign-out`: a user signs out of the site itself. `GET` only asks.

use crate::{
    auth::{
        authorize::proved_logins::ProvedLogins,
        context::stages::SiteCall,
        http::{
            answer,
            problem::{EndpointResult, Problem},
        },
        pages::{built, logout},
        query::Query,
    },
    util::form::Form,
};
use bytes::Bytes;

/// Returns the page that asks whether to sign out. Its form repeats `return_to`.
pub(crate) fn show_question(SiteCall { cx, site, .. }: &SiteCall<'_>) -> EndpointResult {
    let query = Query::from_request_uri(cx.parts)?;
    if query.is_twice("return_to") {
        return Err(Problem::invalid("return_to appears more than once"));
    }
    let return_to = site.return_to(query.value("return_to"))?;
    let language = built::language(query.value("ui_locales"), cx.parts);
    let fields = [("return_to", return_to.as_deref())];
    Ok(logout::logout_question_page(&cx.core.pages, language, "sign-out", &fields, None))
}

/// Ends the session of this browser at the request's tenant, with the tokens issued from it, and its logins. Removes their
/// cookies. Only pages of this site may ask for it.
pub(crate) async fn sign_out(SiteCall { cx, site, client }: &SiteCall<'_>, body: &Bytes) -> EndpointResult {
    let form = Form::parse(body).map_err(|error| Problem::invalid(error.detail()))?;
    if form.has_duplicates() {
        return Err(Problem::invalid("a field appears more than once"));
    }
    let return_to = site.return_to(form.value("return_to"))?;
    let location = return_to.as_deref().unwrap_or("/");
    let mut response = answer::see_other(location).ok_or(Problem::invalid("the location cannot be sent"))?;
    let (sessions, tenant) = (&cx.core.sessions, client.tenant());
    for session in sessions.held(&cx.parts.headers).await? {
        if session.tenant() == tenant {
            sessions.revoke_sid(&session.sid()).await?;
        }
    }
    ProvedLogins::end_in_browser(cx, tenant, response.headers_mut()).await?;
    Ok(response)
}
