//! The user that a request expects: by `id_token_hint`, or by the claim `sub` with a value.

use crate::{
    auth::{authorize::oidc::OidcParameters, context::RequestContext, http::problem::Problem},
    client::Client,
    session::UserId,
};

/// The users that a request accepts. Accepts anyone if the request names no user.
pub(crate) struct ExpectedUser<'p> {
    hinted: Option<UserId>,
    oidc: &'p OidcParameters,
}

impl<'p> ExpectedUser<'p> {
    pub(crate) async fn from_oidc_parameters(
        cx: &RequestContext<'_>,
        oidc: &'p OidcParameters,
        client: &Client,
    ) -> Result<Self, Problem> {
        let hinted = match &oidc.id_token_hint {
            Some(hint) => hinted_user(cx, hint, client).await?,
            None => None,
        };
        Ok(Self { hinted, oidc })
    }

    pub(crate) fn is(&self, user: &UserId) -> bool {
        self.hinted.as_ref().is_none_or(|hinted| hinted == user) && self.oidc.accepts_subject(user)
    }
}

/// Returns the user of an id_token that was issued here for this client, even if it has expired.
async fn hinted_user(cx: &RequestContext<'_>, hint: &str, client: &Client) -> Result<Option<UserId>, Problem> {
    let Some(endpoints) = &cx.core.tokens else { return Ok(None) };
    let claims = endpoints.service.hint(hint).await?.filter(|claims| claims.aud == client.id());
    let user = claims.and_then(|claims| UserId::parse(&claims.sub).ok());
    user.map(Some).ok_or(Problem::invalid("id_token_hint is not an id_token of this client"))
}
