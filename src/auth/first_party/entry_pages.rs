//! `GET /sign-up` and `GET /reset-password`: pages of people who can't sign in yet, or not any more.
//!
//! They are the login page in another mode, with the same query. Opening them changes nothing: the secret of a link is behind
//! the `#`, which browsers send to no server, and the page posts it after a click.

use super::sign_in;
use crate::auth::{
    authorize::query,
    context::{incoming::IncomingRequest, stages::ClientReach},
    http::{
        answer,
        problem::{EndpointResult, Problem},
        route::{RESET_PAGE, Route, SIGN_UP_PAGE},
    },
    pages::{built, page},
    query::Query,
};

/// Serves a page for the request of a client. Without one, it redirects to that of the site itself.
pub(crate) async fn serve_entry_page(request: &mut IncomingRequest<'_>, route: Route) -> EndpointResult {
    let path = if route == Route::ResetPage { RESET_PAGE } else { SIGN_UP_PAGE };
    let query = Query::from_request_uri(request.parts);
    let query = request.or_charge(query).await?;
    if query.client_id().is_none() {
        let site = request.of_this_site().await?;
        let return_to = site.site.return_to(query.value("return_to"))?;
        let optional = [("return_to", return_to.as_deref()), ("ui_locales", query.value("ui_locales"))];
        let parameters = sign_in::parameters_of_site(&site.client, optional);
        let location = format!("{}{path}?{parameters}", site.cx.core.issuer.path());
        return answer::see_other(&location).ok_or(Problem::invalid("the location cannot be sent"));
    }
    let (cx, asked) = query::read_authorize_request(request, ClientReach::Login).await?;
    asked.checked(&cx)?;
    let language = built::language(asked.query.value("ui_locales"), cx.parts);
    Ok(page::entry(&cx.core.pages, language))
}
