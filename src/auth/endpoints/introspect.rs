//! `POST /introspect` (RFC 7662): tells what is known about a token.

use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::{
    auth::{
        context::RequestContext,
        endpoints::{form::Posted, proof::with_nonce, refresh_grant, user_claims},
        http::{
            answer,
            problem::{Code, Problem},
        },
        state::token_endpoints::TokenEndpoints,
    },
    bearer::{AccessTokenClaims, Audience, Confirmation, MACHINE},
    client::Client,
    dpop::UnverifiedProof,
    http::body::Body,
    session::Authentication,
    tenant::Tenant,
    tokens::{Presented, ValidAccess},
    util::{clock::UnixTime, secret::Secret},
};

/// The response. For an invalid token it contains only `active`.
#[derive(Serialize)]
struct Answer {
    active: bool,
    #[serde(flatten)]
    known: Option<Known>,
}

#[derive(Serialize)]
struct Known {
    #[serde(skip_serializing_if = "Option::is_none")]
    token_type: Option<&'static str>,
    iss: String,
    sub: String,
    client_id: String,
    tenant: String,
    scope: String,
    exp: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    iat: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aud: Option<Audience>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jti: Option<String>,
    /// How a client got a token for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    gty: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_time: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    acr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cnf: Option<Confirmation>,
}

/// The party that asks.
enum Asker {
    /// An API, which may learn about every token.
    Introspector,
    /// A client, which may learn about its own tokens. It proves the key of those that are bound to one.
    Client(String),
}

pub(crate) async fn introspect(
    cx: &mut RequestContext<'_>,
    endpoints: &TokenEndpoints,
    posted: Posted<'_>,
) -> Result<Response<Body>, Problem> {
    let asker = asker(cx, endpoints, &posted).await;
    if let Some(token) = posted.value("token")
        && is_reuse_checked(&asker)
    {
        refresh_grant::revoke_if_reused(cx, endpoints, token).await?;
    }
    let (asker, token) = (asker?, posted.required("token", "token is missing")?);
    let known = match asker {
        Asker::Introspector => {
            let known = known(cx, endpoints, token).await?;
            // an API spends the budget of the tenant that the token belongs to
            if let Some(tenant) = known.as_ref().and_then(|it| Tenant::parse(&it.tenant).ok()) {
                cx.charge_proved(&tenant).await?;
            }
            known
        }
        Asker::Client(id) => {
            // read first, so that what is wrong with a proof reveals nothing about the token
            let proof = cx.read_proof("/introspect", None)?;
            let known = known(cx, endpoints, token).await?.filter(|known| known.client_id == id);
            proved(cx, known, proof).await?
        }
    };
    Ok(with_nonce(endpoints, answer::json(StatusCode::OK, &Answer { active: known.is_some(), known })))
}

/// Returns whether presenting a used refresh token revokes its family. APIs may ask about any token. Anybody else who has
/// a used one got it from its client, even if the rest of the request is wrong.
fn is_reuse_checked(asker: &Result<Asker, Problem>) -> bool {
    match asker {
        Ok(Asker::Introspector) => false,
        Ok(Asker::Client(_)) => true,
        // without a budget, or while the store fails, nothing more is read
        Err(problem) => !matches!(problem.code, Code::RateLimitExceeded | Code::TemporarilyUnavailable),
    }
}

/// Returns what is known of a token that is bound to no key, or to the key of this proof. A thief without the key learns
/// nothing.
async fn proved(
    cx: &RequestContext<'_>,
    known: Option<Known>,
    proof: Option<UnverifiedProof<'_>>,
) -> Result<Option<Known>, Problem> {
    let bound_to = known.as_ref().and_then(|known| known.cnf.as_ref()?.jkt.as_deref());
    let Some(bound_to) = bound_to else { return Ok(known) };
    let proof = proof.filter(|proof| proof.thumbprint() == bound_to).and_then(|proof| proof.verify().ok());
    let Some(proof) = proof else { return Ok(None) };
    cx.spend_proof(proof).await?;
    Ok(known)
}

async fn asker(cx: &mut RequestContext<'_>, endpoints: &TokenEndpoints, posted: &Posted<'_>) -> Result<Asker, Problem> {
    let Some(shown) = cx.parts.headers.get(header::AUTHORIZATION) else {
        let client = posted.client(cx).await;
        // introspection is for programs, so no page may read the answer
        cx.reader = None;
        return Ok(Asker::Client(client?.id().to_owned()));
    };
    let secret = shown.as_bytes().split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "));
    let digest = secret.and_then(|(_, secret)| Secret::parse(secret)).map(|secret| secret.digest());
    if digest.is_some_and(|digest| endpoints.is_introspector(&digest)) {
        posted.check()?;
        return Ok(Asker::Introspector);
    }
    cx.charge(None).await?;
    let challenge = HeaderValue::from_static(r#"Bearer realm="introspect", error="invalid_token""#);
    Err(Problem::new(Code::InvalidToken, "introspection needs a client_id or a valid secret")
        .header(header::WWW_AUTHENTICATE, challenge))
}

async fn known(cx: &RequestContext<'_>, endpoints: &TokenEndpoints, token: &str) -> Result<Option<Known>, Problem> {
    let tokens = &endpoints.service;
    if let Some(presented) = tokens.presented(token, cx.core.keyed().await?).await? {
        let grant = presented.grant();
        if !tokens.is_usable(&presented) || tokens.has_ended(grant).await? {
            return Ok(None);
        }
        let subject = user_claims::subject_of_family(cx, endpoints, &presented.family(), grant).await?;
        return Ok(subject.map(|subject| of_refresh_token(tokens.issuer(), &presented, subject.who)));
    }
    let Some(ValidAccess { claims, grant, family }) = tokens.access(token).await? else { return Ok(None) };
    let Some(grant) = grant else {
        // a client that was removed has no tokens
        let client = cx.client(Some(&claims.client_id)).await?;
        return Ok(client
            .filter(|client| client.is_machine() && claims.tenant.as_deref() == Some(client.tenant().as_str()))
            .map(|client| of_machine(claims, &client)));
    };
    let subject = user_claims::subject_of_family(cx, endpoints, &family, &grant).await?;
    Ok(subject.map(|subject| of_access_token(claims, &subject.who)))
}

fn of_refresh_token(issuer: &str, presented: &Presented, who: Authentication) -> Known {
    let grant = presented.grant();
    Known {
        token_type: None,
        iss: issuer.to_owned(),
        sub: who.user.as_str().to_owned(),
        client_id: grant.client_id().to_owned(),
        tenant: who.tenant.as_str().to_owned(),
        scope: grant.scope().to_string(),
        exp: presented.ends().as_secs(),
        iat: None,
        aud: None,
        jti: None,
        gty: None,
        auth_time: who.auth_time().map(UnixTime::as_secs),
        acr: who.acr.map(String::from),
        cnf: grant.jkt.clone().map(|jkt| Confirmation { jkt: Some(jkt) }),
    }
}

/// Describes the token as it was issued, except for what its user no longer proves.
fn of_access_token(mut claims: AccessTokenClaims, who: &Authentication) -> Known {
    let acr = claims.acr.take().filter(|acr| Some(&**acr) == who.acr.as_deref());
    Known { auth_time: who.auth_time().map(UnixTime::as_secs), acr, ..of_claims(claims, &who.tenant) }
}

/// Describes a token that a client has for itself.
fn of_machine(claims: AccessTokenClaims, client: &Client) -> Known {
    Known { gty: Some(MACHINE.1), ..of_claims(claims, client.tenant()) }
}

fn of_claims(claims: AccessTokenClaims, tenant: &Tenant) -> Known {
    Known {
        token_type: Some(if claims.cnf.is_some() { "DPoP" } else { "Bearer" }),
        iss: claims.iss,
        sub: claims.sub,
        client_id: claims.client_id,
        tenant: tenant.as_str().to_owned(),
        scope: claims.scope.unwrap_or_default(),
        exp: claims.exp,
        iat: Some(claims.iat),
        aud: Some(claims.aud),
        jti: Some(claims.jti),
        gty: None,
        auth_time: None,
        acr: None,
        cnf: claims.cnf,
    }
}
