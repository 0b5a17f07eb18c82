//! The account of a signed-in user of this site: see and end sessions, and change how to sign in.

mod freshness;
pub(crate) mod call;
mod authenticators;
#[cfg(feature = "external-providers")]
pub(crate) mod linking;
pub(crate) mod links;
mod credentials;
mod passkeys;
mod sessions;

use http::Response;

use self::call::AccountCall;
use crate::{
    auth::{
        context::RequestContext,
        first_party::sign_in::of_this_site,
        http::{answer, bodies::RequestBody, problem::Problem, route::AccountRoute},
        pages::page,
    },
    http::body::Body,
};

/// Serves the page for a signed-in user, and sends others to the sign-in.
pub(crate) async fn page(cx: &mut RequestContext<'_>) -> Result<Response<Body>, Problem> {
    shown(cx).await.or_else(|problem| page::shown(cx, problem))
}

async fn shown(cx: &mut RequestContext<'_>) -> Result<Response<Body>, Problem> {
    let (_, client) = of_this_site(cx).await?;
    if cx.core.sessions.presented(&cx.parts.headers, client.tenant()).await?.is_some() {
        return Ok(page::account());
    }
    answer::see_other(&call::login_url(cx.core, None)).ok_or_else(Problem::unavailable)
}

/// Serves a call of the page.
pub(crate) async fn serve(
    cx: &mut RequestContext<'_>,
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
        | AccountRoute::EndSession => Some(call::fields(cx, body).await),
        _ => None,
    };
    let call = AccountCall::enter(cx).await?;
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
        #[cfg(feature = "external-providers")]
        AccountRoute::BeginLink => linking::begin(cx, &call, &fields).await,
        #[cfg(not(feature = "external-providers"))]
        AccountRoute::BeginLink => Err(Problem::invalid("provider is unknown")),
        AccountRoute::DeleteLink => links::delete(cx, &call, &fields).await,
        AccountRoute::EndSession => sessions::end(cx, &call, &fields).await,
        AccountRoute::EndOtherSessions => sessions::end_others(cx, &call).await,
        AccountRoute::SignOutEverywhere => sessions::sign_out_everywhere(cx, &call).await,
    }
}
