//! `POST /revoke` (RFC 7009): a client revokes its tokens.

use http::StatusCode;

use super::form::Posted;
use crate::{
    auth::{
        context::{RequestContext, incoming::IncomingRequest},
        http::{
            answer,
            problem::{EndpointResult, Problem},
        },
        state::token_endpoints::TokenEndpoints,
    },
    event::EventKind,
    tokens::TokenService,
    util::public_id::PublicId,
};

/// Revokes all tokens issued from the same code. Takes a refresh token or an access token.
///
/// The answer is the same for every token, so that it does not reveal which tokens exist.
pub(crate) async fn revoke_token_family(
    request: &mut IncomingRequest<'_>,
    endpoints: &TokenEndpoints,
    posted: Posted<'_>,
) -> EndpointResult {
    let (cx, client) = posted.charged_client(request).await?;
    let client = client?;
    let token = posted.required("token", "token is missing")?;
    if let Some(family) = family_of(&cx, &endpoints.service, client.id(), token).await? {
        endpoints.service.revoke_family(&family).await?;
        cx.core.journal.tally(EventKind::TokenRevoked, Some(client.tenant()), None);
    }
    Ok(answer::json(StatusCode::OK, &serde_json::Map::new()))
}

async fn family_of(
    cx: &RequestContext<'_>,
    tokens: &TokenService,
    client: &str,
    token: &str,
) -> Result<Option<PublicId>, Problem> {
    if let Some(presented) = tokens.find_refresh_token(token, cx.core.keyed().await?).await? {
        // a made-up token must not end anything
        let own = presented.grant().client_id() == client && presented.is_known();
        return Ok(own.then(|| presented.family()));
    }
    let Some(access) = tokens.access(token).await? else { return Ok(None) };
    Ok((access.claims.client_id == client).then_some(access.family))
}
