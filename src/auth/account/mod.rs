//! The account of a signed-in user of this site: see and end sessions, and change how to sign in.

mod freshness;
pub(crate) mod call;
mod authenticators;
#[cfg(feature = "sso")]
pub(crate) mod linking;
pub(crate) mod links;
mod credentials;
mod passkeys;
mod sessions;

use http::Response;

use self::call::AccountCall;
use crate::{
    auth::{
        context::{incoming::IncomingRequest, stages::SiteCall},
        http::{answer, bodies::RequestBody, problem::Problem, route::AccountRoute},
        pages::page,
    },
    http::body::Body,
};

/// Serves the page for a signed-in user, and sends others to the sign-in.
pub(crate) async fn page(SiteCall { cx, client, .. }: &SiteCall<'_>) -> Result<Response<Body>, Problem> {
    if cx.core.sessions.presented(&cx.parts.headers, client.tenant()).await?.is_some() {
        return Ok(page::account());
    }
    answer::see_other(&call::login_url(cx.core, None)).ok_or_else(Problem::unavailable)
}

/// Serves a call of the page.
pub(crate) async fn serve(
    request: &mut IncomingRequest<'_>,
    route: AccountRoute,
    body: &mut RequestBody,
) -> Result<Response<Body>, Problem> {
    // a slow body must not delay the checks of the session until they are outdated
    let fields = match route {
        AccountRoute::AddPasskey
        | AccountRoute::RenamePasskey
        | AccountRoute::DeletePasskey
        | AccountRoute::ConfirmTotp
        | AccountRoute::BeginLink
        | AccountRoute::DeleteLink
        | AccountRoute::EndSession => Some(call::fields(request.parts(), body).await),
        _ => None,
    };
    let site = request.of_own_page().await?;
    let (cx, call) = (&site.cx, AccountCall::enter(&site).await?);
    let fields = fields.transpose()?.unwrap_or_default();
    match route {
        AccountRoute::Credentials => credentials::list(cx, &call).await,
        AccountRoute::PasskeyOptions => passkeys::options(cx, &call).await,
        AccountRoute::AddPasskey => passkeys::add(cx, &call, &fields).await,
        AccountRoute::RenamePasskey => passkeys::rename(cx, &call, &fields).await,
        AccountRoute::DeletePasskey => passkeys::delete(cx, &call, &fields).await,
        AccountRoute::BeginTotp => authenticators::begin_totp(cx, &call).await,
        AccountRoute::ConfirmTotp => authenticators::confirm_totp(cx, &call, &fields).await,
        AccountRoute::DeleteTotp => authenticators::delete_totp(cx, &call).await,
        AccountRoute::RenewRecoveryCodes => authenticators::renew_codes(cx, &call).await,
        #[cfg(feature = "sso")]
        AccountRoute::BeginLink => linking::begin(cx, &call, &fields).await,
        #[cfg(not(feature = "sso"))]
        AccountRoute::BeginLink => Err(Problem::invalid("provider is unknown")),
        AccountRoute::DeleteLink => links::delete(cx, &call, &fields).await,
        AccountRoute::EndSession => sessions::end(cx, &call, &fields).await,
        AccountRoute::EndOtherSessions => sessions::end_others(cx, &call).await,
        AccountRoute::SignOutEverywhere => sessions::sign_out_everywhere(cx, &call).await,
    }
}
