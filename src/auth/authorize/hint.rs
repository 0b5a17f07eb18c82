//! Whom a request wants to be logged in: by `id_token_hint`, or by the claim `sub` with a value.

use crate::{
    auth::{
        authorize::{request::Wrong, wishes::Wishes},
        context::RequestContext,
    },
    client::Client,
    session::UserId,
};

/// The users that a request means; anybody, where it names none.
pub(crate) struct Meant<'w> {
    hinted: Option<UserId>,
    wishes: &'w Wishes,
}

impl<'w> Meant<'w> {
    pub(crate) async fn by(cx: &RequestContext<'_>, wishes: &'w Wishes, client: &Client) -> Result<Self, Wrong> {
        let hinted = match &wishes.hint {
            Some(hint) => hinted_subject(cx, hint, client).await?,
            None => None,
        };
        Ok(Self { hinted, wishes })
    }

    pub(crate) fn is(&self, user: &UserId) -> bool {
        self.hinted.as_ref().is_none_or(|hinted| hinted == user) && self.wishes.may_mean(user)
    }
}

/// The user of an `id_token` that was issued here for this client, be it that it has expired.
#[cfg(feature = "tokens")]
async fn hinted_subject(cx: &RequestContext<'_>, hint: &str, client: &Client) -> Result<Option<UserId>, Wrong> {
    use crate::auth::http::problem::{Code, Problem};

    let Some(config) = &cx.core.tokens else { return Ok(None) };
    let claims = config.tokens.hint(hint).await.map_err(|error| {
        let Problem { code, detail, .. } = Problem::from(error);
        Wrong { code, detail }
    })?;
    let own = claims.filter(|claims| claims.aud == client.id());
    let user = own.and_then(|claims| UserId::parse(&claims.sub).ok());
    let unknown = Wrong { code: Code::InvalidRequest, detail: "id_token_hint is no id_token of this client" };
    user.map(Some).ok_or(unknown)
}

/// Where no tokens are issued, none says anything.
#[cfg(not(feature = "tokens"))]
#[expect(clippy::unused_async, reason = "with tokens it asks the store")]
async fn hinted_subject(_: &RequestContext<'_>, _: &str, _: &Client) -> Result<Option<UserId>, Wrong> {
    Ok(None)
}
