//! `grant_type=refresh_token`: the next tokens of a family.

use crate::{
    auth::{
        context::RequestContext,
        endpoints::{claims, client::Posted, exchange::check_bound},
        http::problem::{Code, Problem},
        state::token_config::TokenConfig,
    },
    client::{Client, Scopes},
    event::EventKind,
    tokens::{Denied, Issued, Wish},
};

fn invalid_grant() -> Problem {
    Problem::new(Code::InvalidGrant, "the refresh token is not good for this request")
}

pub(crate) async fn refresh(
    cx: &RequestContext<'_>,
    config: &TokenConfig,
    client: &Client,
    posted: &Posted<'_>,
) -> Result<(Issued, bool), Problem> {
    let tokens = &config.tokens;
    let text = posted.required("refresh_token", "refresh_token is missing")?;
    if client.tokens.without_refresh {
        return Err(Problem::new(Code::UnauthorizedClient, "this client gets no refresh tokens"));
    }
    let wrong_scope = |detail| Problem::new(Code::InvalidScope, detail);
    let scope = posted.value("scope").map(Scopes::parse).transpose();
    let scope = scope.map_err(|_| wrong_scope("scope is malformed"))?;
    let keyed = cx.core.keyed().await?;
    let presented = tokens.presented(text, keyed).await?.ok_or_else(invalid_grant)?;
    let who = presented.authorized();
    // what was made up learns nothing; and a scope may have been taken from the client since
    let is_own = who.client_id == client.id() && who.tenant == *client.tenant();
    if !is_own || !presented.is_known() || !client.allows_scopes(&who.scope) {
        return Err(invalid_grant());
    }
    let jkt = cx.proved_key("/token", None).await?;
    check_bound(client, jkt.as_deref())?;
    // from before the client had to bind its tokens
    if client.tokens.require_dpop && who.jkt.is_none() {
        return Err(invalid_grant());
    }
    // an account that was closed gets nothing more
    let account = claims::account(cx, (&who.tenant, &who.user), &who.identifier).await?.ok_or_else(invalid_grant)?;
    config.ready(client).await?;
    let wish = Wish {
        audience: client.tokens.audience.as_deref(),
        id_token: client.tokens.id_token_algorithm,
        scope: scope.as_ref(),
        nonce: None,
        claims: claims::named(&account, who.id_token.iter().map(String::as_str)),
        keyed,
    };
    let is_bound = who.jkt.is_some();
    match tokens.refresh(&presented, jkt.as_deref(), wish).await? {
        Ok(issued) => Ok((issued, is_bound)),
        Err(denied) => {
            if denied == Denied::Reused {
                cx.core.journal.tally(EventKind::TokenReused, Some(client.tenant()), None);
            }
            Err(match denied {
                Denied::ScopeGrows => wrong_scope("scope has a name that was not granted"),
                Denied::Foreign => Problem::new(Code::InvalidDpopProof, "the refresh token is bound to another key"),
                Denied::Unknown | Denied::Reused => invalid_grant(),
            })
        }
    }
}
