//! The account of a signed-in user of this site: see and end sessions, and change how to sign in.

mod answers;
mod consents;
mod contacts;
mod credentials;
mod deletion;
mod name;
mod password;
mod sessions;
pub(crate) mod well_known;

use crate::auth::{
    context::{incoming::IncomingRequest, stages::SiteCall},
    factors::{
        self,
        enrolment::{call::AccountCall, freshness},
    },
    http::{
        answer,
        bodies::RequestBody,
        fields,
        problem::{EndpointResult, Problem},
        route::AccountRoute,
    },
    pages::{built, page},
};

/// Serves the page for a signed-in user, and sends others to the sign-in.
pub(crate) async fn serve_account_page(SiteCall { cx, client, .. }: &SiteCall<'_>) -> EndpointResult {
    if cx.core.sessions.presented(&cx.parts.headers, client.tenant()).await?.is_some() {
        return Ok(page::account(&cx.core.pages, built::language_of(cx.parts)));
    }
    answer::see_other(&freshness::login_url(cx.core, None)).ok_or_else(Problem::unavailable)
}

/// Serves a call of the page.
pub(crate) async fn serve_account_route(
    request: &mut IncomingRequest<'_>,
    route: AccountRoute,
    body: &mut RequestBody,
) -> EndpointResult {
    // a slow body must not delay the checks of the session until they are outdated
    let fields = match route.has_body() {
        true => Some(fields::parse_json_body(&request.parts.headers, body).await),
        false => None,
    };
    let site = request.of_own_page().await?;
    let mut call = AccountCall::require_caller(&site).await?;
    call.fields = fields.transpose()?.unwrap_or_default();
    match route {
        AccountRoute::Credentials => credentials::list_credentials(&call).await,
        AccountRoute::Change(change) => factors::change_factor(change, &call).await,
        AccountRoute::Password => password::change_password(&mut call).await,
        AccountRoute::Name => name::change_name(&call).await,
        AccountRoute::BeginContact => contacts::begin_contact(&call).await,
        AccountRoute::ConfirmContact => contacts::confirm_contact(&call).await,
        AccountRoute::Delete => deletion::delete_account(&call).await,
        AccountRoute::EndSession => sessions::end_account_session(&call).await,
        AccountRoute::EndOtherSessions => sessions::end_others(&call).await,
        AccountRoute::WithdrawConsent => consents::withdraw_consent(&call).await,
        AccountRoute::SignOutEverywhere => sessions::sign_out_everywhere(&call).await,
    }
}
