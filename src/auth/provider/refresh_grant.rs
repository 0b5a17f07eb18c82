//! `grant_type=refresh_token`: exchanges a refresh token for the next tokens of its family.

use super::{dpop_proof::check_bound, form::TokenCall, subject, user_claims};
use crate::{
    auth::{
        context::RequestContext,
        http::problem::{Code, Problem},
        state::{consents::Access, token_endpoints::TokenEndpoints},
    },
    client::Scopes,
    event::EventKind,
    tokens::{Issued, TokenRequest},
};

fn invalid_grant() -> Problem {
    Problem::new(Code::InvalidGrant, "the refresh token is invalid, expired or was issued to another client")
}

fn invalid_scope(detail: &'static str) -> Problem {
    Problem::new(Code::InvalidScope, detail)
}

/// Returns the next tokens.
pub(crate) async fn exchange_refresh_token(call: TokenCall<'_>) -> Result<Issued, Problem> {
    let TokenCall { cx, endpoints, client, posted } = call;
    let text = posted.required("refresh_token", "refresh_token is missing")?;
    if client.tokens.without_refresh {
        return Err(Problem::new(Code::UnauthorizedClient, "this client may not use refresh tokens"));
    }
    let scope = posted.value("scope").map(Scopes::parse).transpose();
    let scope = scope.map_err(|_| invalid_scope("scope is malformed"))?;
    let (keyed, tokens) = (cx.core.keyed().await?, &endpoints.service);
    let presented = tokens.find_refresh_token(text, keyed).await?.ok_or_else(invalid_grant)?;
    // checked before the client and the grant; `/token` revokes the family after any error
    if tokens.is_reused(&presented) {
        return Err(invalid_grant());
    }
    let grant = presented.grant();
    // a made-up token must learn nothing, and the client may have lost a scope since the grant
    let is_own = grant.client_id() == client.id() && grant.who.tenant == *client.tenant();
    if !is_own || !presented.is_known() || !client.allows_scopes(grant.scope()) {
        return Err(invalid_grant());
    }
    let jkt = cx.spend_request_proof("/token").await?;
    check_bound(client, jkt.as_deref())?;
    // the client may have had to bind its tokens only after the grant
    if client.tokens.require_dpop && grant.jkt.is_none() {
        return Err(invalid_grant());
    }
    let subject =
        subject::find_subject_or_revoke(cx.core, endpoints, (&presented.family(), grant), Some(client)).await?;
    let subject = subject.ok_or_else(invalid_grant)?;
    if client.is_third_party() {
        let access = Access::of_grant(grant, tokens.default_audience(client));
        if !cx.core.consents.allow((client.tenant(), &subject.who.user), client, &access).await? {
            tokens.revoke_family(&presented.family()).await?;
            return Err(invalid_grant());
        }
    }
    let audience = endpoints.narrowed_audience(client, grant, posted.resources())?;
    let granted = scope.as_ref().unwrap_or(grant.scope());
    let extra = user_claims::extra_claims(cx.core, &subject.account, grant, granted).await?;
    endpoints.ready(client).await?;
    let request = TokenRequest {
        who: &subject.who,
        audience,
        with_id_token: !client.tokens.without_id_token_on_refresh,
        id_token_algorithm: client.tokens.id_token_algorithm,
        scope: scope.as_ref(),
        nonce: None,
        account_claims: user_claims::account_claims(&subject.account, grant.id_token.iter().map(String::as_str)),
        extra_claims: extra,
        keyed,
    };
    if grant.jkt.as_ref().is_some_and(|own| jkt.as_ref() != Some(own)) {
        return Err(Problem::new(Code::InvalidDpopProof, "the refresh token is bound to another key"));
    }
    if scope.as_ref().is_some_and(|scope| !scope.is_subset(grant.scope())) {
        return Err(invalid_scope("scope contains a name that was not granted"));
    }
    tokens.refresh(&presented, &request).await?.ok_or_else(invalid_grant)
}

/// Revokes the family of a refresh token that was used before. Two parties have had such a token, even if the rest of the
/// request is wrong.
pub(crate) async fn revoke_if_reused(
    cx: &RequestContext<'_>,
    endpoints: &TokenEndpoints,
    text: &str,
) -> Result<(), Problem> {
    let tokens = &endpoints.service;
    let Some(presented) = tokens.find_refresh_token(text, cx.core.keyed().await?).await? else { return Ok(()) };
    if tokens.is_reused(&presented) {
        tokens.revoke_family(&presented.family()).await?;
        cx.core.journal.tally(EventKind::TokenReused, Some(&presented.grant().who.tenant), None);
    }
    Ok(())
}
