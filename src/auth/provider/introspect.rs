//! `POST /introspect` (RFC 7662): tells what is known about a token.

use std::sync::Arc;

use http::{StatusCode, header};
use serde::Serialize;

use super::{
    form::Posted,
    subject::{self, Subject},
};
use crate::{
    auth::{
        context::incoming::IncomingRequest,
        core::Core,
        http::{
            answer,
            problem::{Code, EndpointResult, Problem},
        },
        state::token_endpoints::TokenEndpoints,
    },
    bearer::{AccessTokenClaims, Audience, Authorization, Confirmation, MACHINE, Scheme, challenge_header},
    client::Client,
    tenant::Tenant,
    tokens::ValidAccess,
    util::{clock::UnixTime, secret::Secret},
};

/// The response. For an invalid token it contains only `active`.
#[derive(Serialize)]
struct Answer {
    active: bool,
    #[serde(flatten)]
    known: Option<Known>,
}

#[derive(Default, Serialize)]
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

/// The tokens that a caller learns about.
enum Reach {
    /// Those of all tenants: the caller has a secret of the operator.
    Everything,
    Tenant(Tenant),
    /// Only the tokens of the caller, which is a client with users.
    Client(Arc<Client>),
}

/// Changes no token. Callers authenticate before the token is read.
pub(crate) async fn introspect(
    request: &mut IncomingRequest<'_>,
    endpoints: &TokenEndpoints,
    posted: Posted<'_>,
) -> EndpointResult {
    let reach = reach(request, endpoints, &posted).await;
    // introspection is for programs, so no page may read the answer
    request.reader = None;
    let ((core, reach), token) = (reach?, posted.required("token", "token is missing")?);
    // an API that asks about a token that it got must not take a stolen refresh token for an access token
    let expects_refresh_token = posted.value("token_type_hint") == Some("refresh_token");
    let mut known = match expects_refresh_token || matches!(reach, Reach::Client(_)) {
        true => find_refresh_token(core, endpoints, token).await?,
        false => None,
    };
    if known.is_none() {
        known = find_access_token(core, endpoints, token).await?;
    }
    match reach {
        Reach::Everything => {
            // an API spends the budget of the tenant that the token belongs to
            if let Some(tenant) = known.as_ref().and_then(|it| Tenant::parse(&it.tenant).ok()) {
                request.charge_proved(&tenant).await?;
            }
        }
        Reach::Tenant(tenant) => known = known.filter(|known| known.tenant == tenant.as_str()),
        Reach::Client(client) => known = known.filter(|known| known.client_id == client.id()),
    }
    Ok(answer::json(StatusCode::OK, &Answer { active: known.is_some(), known }))
}

/// Authenticates the caller: by a secret of the operator, or as a client.
async fn reach<'a>(
    request: &mut IncomingRequest<'a>,
    endpoints: &TokenEndpoints,
    posted: &Posted<'_>,
) -> Result<(&'a Core, Reach), Problem> {
    let is_introspector = |shown: &str| Secret::parse(shown).is_some_and(|it| endpoints.is_introspector(&it.digest()));
    match Authorization::from_auth_headers(&request.parts.headers) {
        Authorization::Nothing => {
            let (cx, client) = posted.confidential_client(request).await?;
            let reach = match client.is_machine() {
                true => Reach::Tenant(client.tenant().clone()),
                // a client must not learn about the tokens of another one
                false => Reach::Client(client),
            };
            Ok((cx.core, reach))
        }
        Authorization::Token { scheme: Scheme::Bearer, token } if is_introspector(token) => {
            posted.check()?;
            Ok((request.operated(), Reach::Everything))
        }
        _ => {
            request.charge(None).await?;
            let challenge = challenge_header("introspect", false, Scheme::Bearer, r#", error="invalid_token""#, "");
            let problem = Problem::new(Code::InvalidToken, "the secret is not valid");
            Err(problem.header(header::WWW_AUTHENTICATE, challenge))
        }
    }
}

async fn find_refresh_token(core: &Core, endpoints: &TokenEndpoints, token: &str) -> Result<Option<Known>, Problem> {
    let tokens = &endpoints.service;
    let Some(presented) = tokens.find_refresh_token(token, core.keyed().await?).await? else { return Ok(None) };
    let grant = presented.grant();
    if !tokens.is_usable(&presented) || tokens.has_ended(grant).await? {
        return Ok(None);
    }
    let Some(Subject { who, .. }) = subject::subject_of_grant(core, &grant.who, None).await? else { return Ok(None) };
    Ok(Some(Known {
        iss: tokens.issuer().to_owned(),
        sub: who.user.as_str().to_owned(),
        client_id: grant.client_id().to_owned(),
        tenant: who.tenant.as_str().to_owned(),
        scope: grant.scope().to_string(),
        exp: presented.ends().as_secs(),
        auth_time: who.auth_time().map(UnixTime::as_secs),
        acr: who.acr.map(String::from),
        cnf: grant.jkt.clone().map(|jkt| Confirmation { jkt: Some(jkt) }),
        ..Known::default()
    }))
}

async fn find_access_token(core: &Core, endpoints: &TokenEndpoints, token: &str) -> Result<Option<Known>, Problem> {
    let Some(ValidAccess { mut claims, grant, .. }) = endpoints.service.access(token).await? else { return Ok(None) };
    let Some(grant) = grant else {
        let client = find_machine_client(core, &claims).await?;
        return Ok(client.map(|client| Known { gty: Some(MACHINE.1), ..of_claims(claims, client.tenant()) }));
    };
    let Some(Subject { who, .. }) = subject::subject_of_grant(core, &grant.who, None).await? else { return Ok(None) };
    // the token as it was issued, except for what its user no longer proves
    let acr = claims.acr.take().filter(|acr| Some(&**acr) == who.acr.as_deref());
    Ok(Some(Known { auth_time: who.auth_time().map(UnixTime::as_secs), acr, ..of_claims(claims, &who.tenant) }))
}

/// Returns the machine client of a token. A client that was removed has no tokens.
async fn find_machine_client(core: &Core, claims: &AccessTokenClaims) -> Result<Option<Arc<Client>>, Problem> {
    let client = core.registered_client(Some(&claims.client_id)).await?;
    Ok(client.filter(|client| client.is_machine() && claims.tenant.as_deref() == Some(client.tenant().as_str())))
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
        cnf: claims.cnf,
        ..Known::default()
    }
}
