//! Whom a request wants to be logged in: by `id_token_hint`, or by the claim `sub` with a value.

#[cfg(feature = "tokens")]
use super::problem::{Code, Problem};
use super::{request::Wrong, visit::Visit, wishes::Wishes};
use crate::{client::Client, session::UserId};

/// The users that a request means; anybody, where it names none.
pub(super) struct Meant {
    hinted: Option<UserId>,
    subject: Option<String>,
}

impl Meant {
    pub(super) async fn by(visit: &Visit<'_>, wishes: &Wishes, client: &Client) -> Result<Self, Wrong> {
        let hinted = match &wishes.hint {
            Some(hint) => hinted_subject(visit, hint, client).await?,
            None => None,
        };
        Ok(Self { hinted, subject: wishes.subject.clone() })
    }

    pub(super) fn is(&self, user: &UserId) -> bool {
        let is_hinted = self.hinted.as_ref().is_none_or(|hinted| hinted == user);
        is_hinted && self.subject.as_deref().is_none_or(|subject| subject == user.as_str())
    }
}

/// The user of an `id_token` that was issued here for this client, be it that it has expired. Where no tokens are issued,
/// none says anything.
#[cfg(feature = "tokens")]
async fn hinted_subject(visit: &Visit<'_>, hint: &str, client: &Client) -> Result<Option<UserId>, Wrong> {
    let Some(config) = &visit.inner.config.tokens else { return Ok(None) };
    let wrong = Wrong { code: Code::InvalidRequest, detail: "id_token_hint is none that this client got here" };
    let unavailable = |error| {
        let Problem { code, detail, .. } = Problem::from(error);
        Wrong { code, detail }
    };
    let claims = config.tokens.hint(hint).await.map_err(unavailable)?;
    let claims = claims.filter(|claims| claims.aud == client.id()).ok_or(wrong)?;
    UserId::parse(&claims.sub).map(Some).map_err(|_| wrong)
}

#[cfg(not(feature = "tokens"))]
#[expect(clippy::unused_async, reason = "with tokens, keys are read from the store")]
async fn hinted_subject(_: &Visit<'_>, _: &str, _: &Client) -> Result<Option<UserId>, Wrong> {
    Ok(None)
}
