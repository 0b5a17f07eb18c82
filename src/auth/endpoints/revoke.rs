//! `POST /revoke` (RFC 7009): a client gives back what it has.

use http::{Response, StatusCode};

use crate::{
    auth::{
        context::RequestContext,
        endpoints::client::Posted,
        http::{answer, problem::Problem},
    },
    event::EventKind,
    http::body::Body,
    tokens::Tokens,
    util::handle::Handle,
};

/// One answer for every token, be it unknown, another client's or long gone: nobody learns which tokens there are.
///
/// A refresh token and an access token alike end all that came of their code.
pub(crate) async fn revoke(
    cx: &mut RequestContext<'_>,
    tokens: &Tokens,
    posted: Posted<'_>,
) -> Result<Response<Body>, Problem> {
    let client = posted.client(cx).await?;
    let token = posted.required("token", "token is missing")?;
    if let Some(family) = family_of(cx, tokens, client.id(), token).await? {
        tokens.revoke_family(&family).await?;
        cx.core.journal.tally(EventKind::TokenRevoked, Some(client.tenant()), None);
    }
    Ok(answer::json(StatusCode::OK, &serde_json::Map::new()))
}

async fn family_of(
    cx: &RequestContext<'_>,
    tokens: &Tokens,
    client: &str,
    token: &str,
) -> Result<Option<Handle>, Problem> {
    if let Some(presented) = tokens.presented(token, cx.core.keyed().await?).await? {
        // by a token that was made up nobody's tokens are ended
        let own = presented.authorized().client_id == client && presented.is_known();
        return Ok(own.then(|| presented.family()));
    }
    let Some(access) = tokens.access(token).await? else { return Ok(None) };
    Ok((access.authorized.client_id == client).then_some(access.family))
}
