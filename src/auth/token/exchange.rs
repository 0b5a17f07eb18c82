//! `POST /token`: a code, or a refresh token, for tokens.

use http::{Response, StatusCode};
use serde::Serialize;

use super::{
    claims,
    client::{Posted, proved_key},
    refresh,
    settings::TokenConfig,
    with_nonce,
};
use crate::{
    auth::{
        answer,
        grant::{self, Code as Row, Codes, Grant},
        problem::{Code, Problem},
        visit::Visit,
    },
    client::Client,
    event::EventKind,
    http::body::Body,
    pkce::CodeVerifier,
    store::StoreError,
    tokens::{Authorized, Issued, Listed, Tokens, Wish},
    util::{run_to_completion::RunToCompletion, secret::Secret},
};

/// What a client is answered (RFC 6749 §5.1).
#[derive(Serialize)]
struct Answer {
    access_token: String,
    token_type: &'static str,
    expires_in: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id_token: Option<String>,
    scope: String,
}

pub(super) async fn exchange(
    visit: &mut Visit<'_>,
    config: &TokenConfig,
    posted: Posted<'_>,
) -> Result<Response<Body>, Problem> {
    let client = posted.client(visit).await?;
    let (issued, is_bound) = match posted.required("grant_type", "grant_type is missing")? {
        "authorization_code" => redeem(visit, config, &client, &posted).await?,
        "refresh_token" => refresh::refresh(visit, config, &client, &posted).await?,
        _ => {
            let detail = "grant_type is neither authorization_code nor refresh_token";
            return Err(Problem::new(Code::UnsupportedGrantType, detail));
        }
    };
    visit.inner.journal().tally(EventKind::TokenIssued, Some(client.tenant()), None);
    let answer = Answer {
        access_token: issued.access_token,
        token_type: if is_bound { "DPoP" } else { "Bearer" },
        expires_in: issued.expires_in,
        refresh_token: issued.refresh_token,
        id_token: issued.id_token,
        scope: issued.scope,
    };
    Ok(with_nonce(visit, answer::json(StatusCode::OK, &answer)))
}

/// One answer for every code that gives nothing.
fn invalid_grant() -> Problem {
    Problem::new(Code::InvalidGrant, "the code is not good for this request")
}

/// Tokens for a code, and whether they are bound to a key.
async fn redeem(
    visit: &Visit<'_>,
    config: &TokenConfig,
    client: &Client,
    posted: &Posted<'_>,
) -> Result<(Issued, bool), Problem> {
    let tokens = &config.tokens;
    let code = posted.required("code", "code is missing")?;
    let verifier = posted.required("code_verifier", "code_verifier is missing")?;
    let verifier = CodeVerifier::parse(verifier).map_err(|_| Problem::invalid("code_verifier is malformed"))?;
    let digest = Secret::parse(code).ok_or_else(invalid_grant)?.digest();

    let codes = &visit.inner.running().codes;
    let Row { grant, spent } = codes.find(&digest).await?.ok_or_else(invalid_grant)?;
    let binding = &grant.binding;
    let is_for_this = binding.client_id == client.id()
        && grant.tenant == *client.tenant()
        && posted.value("redirect_uri").is_none_or(|uri| uri == binding.redirect_uri)
        && binding.code_challenge.verify(&verifier);
    if !is_for_this {
        return Err(invalid_grant());
    }
    if let Some(spent) = spent {
        // whoever has both code and verifier got them from the client: so may somebody else have what the code gave
        if spent.is_long_ago(codes.now()) {
            tokens.revoke_family(&spent.family).await?;
            visit.inner.journal().tally(EventKind::TokenReused, Some(client.tenant()), None);
        }
        return Err(invalid_grant());
    }
    let jkt = proved_key(visit, "/token", None).await?;
    if grant.wanted.dpop_jkt.as_ref().is_some_and(|wanted| jkt.as_ref() != Some(wanted)) {
        return Err(Problem::new(Code::InvalidDpopProof, "the code is bound to another key"));
    }
    check_bound(client, jkt.as_deref())?;
    let account = claims::account(visit, (&grant.tenant, &grant.user), &grant.identifier).await?;
    let account = account.ok_or_else(invalid_grant)?;
    let keyed = visit.inner.keyed().await?;
    // what can fail without the store does so before the code is spent
    config.ready(client).await?;
    let is_bound = jkt.is_some();
    let who = authorized(grant.clone(), client, jkt);
    // the session, or all that the user had, may have ended since the code was given
    if tokens.has_ended(&who).await? {
        return Err(invalid_grant());
    }

    visit.inner.running().challenges.note_redeemed(binding).await?;
    let birth = tokens.conceive(&binding.scope, !client.tokens.without_refresh);
    let new = Listed::new(birth.family, digest, &who, birth.ends);
    let spent = spend(codes.clone(), tokens.clone(), who.clone(), new);
    if !RunToCompletion::new(spent).await? {
        return Err(invalid_grant());
    }
    let wish = Wish {
        audience: client.tokens.audience.as_deref(),
        id_token: client.tokens.id_token_algorithm,
        scope: None,
        nonce: grant.wanted.nonce.clone(),
        claims: claims::named(&account, who.id_token.iter().map(String::as_str)),
        keyed,
    };
    let issued = tokens.begin(birth, who, wish).await?.ok_or_else(invalid_grant)?;
    Ok((issued, is_bound))
}

/// Spends a code for a family, and lists that. A spent code is remembered as long as what came of it, so both are done, or
/// a list of what is kept would miss it.
async fn spend(codes: Codes, tokens: Tokens, who: Authorized, new: Listed) -> Result<bool, StoreError> {
    if !codes.spend(&new.code, new.family, new.ends()).await? {
        return Ok(false);
    }
    let mut made_room = Vec::new();
    while let Some(doomed) = tokens.list(&new, &who, &made_room).await? {
        codes.forget(&doomed.code).await?;
        tokens.make_room(&doomed).await?;
        made_room.push(doomed);
    }
    Ok(true)
}

/// A client that gets bound tokens alone has to prove a key.
pub(super) fn check_bound(client: &Client, jkt: Option<&str>) -> Result<(), Problem> {
    if client.tokens.require_dpop && jkt.is_none() {
        return Err(Problem::new(Code::InvalidDpopProof, "this client needs a DPoP proof"));
    }
    Ok(())
}

fn authorized(grant: Grant, client: &Client, jkt: Option<String>) -> Authorized {
    let Grant { binding, tenant, user, auth_time, acr, methods, identifier, session, wanted, .. } = grant;
    Authorized {
        tenant,
        user,
        identifier,
        client_id: binding.client_id,
        scope: binding.scope,
        auth_time,
        acr,
        amr: grant::amr(methods).into_iter().map(str::to_owned).collect(),
        session,
        jkt,
        id_token: claims::allowed(client, wanted.id_token),
        userinfo: claims::allowed(client, wanted.userinfo),
    }
}
