//! `POST /introspect` (RFC 7662): tells what is known about a token.

use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::{
    auth::{
        context::RequestContext,
        endpoints::{claims, form::Posted, refresh_grant},
        http::{
            answer,
            problem::{Code, Problem},
        },
        state::token_endpoints::TokenEndpoints,
    },
    bearer::{Audience, Confirmation},
    http::body::Body,
    session::Authentication,
    tenant::Tenant,
    tokens::{Presented, ValidAccess},
    util::{clock::UnixTime, secret::Secret},
};

/// The answer. For a token that is not valid, it says nothing else.
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
    /// A client, which may learn about its own tokens.
    Client(String),
}

pub(crate) async fn introspect(
    cx: &mut RequestContext<'_>,
    endpoints: &TokenEndpoints,
    posted: Posted<'_>,
) -> Result<Response<Body>, Problem> {
    let asker = asker(cx, endpoints, &posted).await?;
    let token = posted.required("token", "token is missing")?;
    let known = known(cx, endpoints, token).await?;
    // an API spends the budget of the tenant that the token belongs to
    if let (Asker::Introspector, Some(tenant)) = (&asker, known.as_ref().and_then(|it| Tenant::parse(&it.tenant).ok()))
    {
        cx.charge_proved(&tenant)?;
    }
    // presenting a used refresh token as a client means that it leaked
    if matches!(asker, Asker::Client(_)) && known.is_none() {
        refresh_grant::revoke_if_reused(cx, endpoints, token).await?;
    }
    let known = known.filter(|known| match &asker {
        Asker::Introspector => true,
        Asker::Client(id) => known.client_id == *id,
    });
    Ok(answer::json(StatusCode::OK, &Answer { active: known.is_some(), known }))
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
    cx.charge(None)?;
    let challenge = HeaderValue::from_static(r#"Bearer realm="introspect", error="invalid_token""#);
    Err(Problem::new(Code::InvalidToken, "introspection needs a client_id or a valid secret")
        .header(header::WWW_AUTHENTICATE, challenge))
}

async fn known(cx: &RequestContext<'_>, endpoints: &TokenEndpoints, token: &str) -> Result<Option<Known>, Problem> {
    let tokens = &endpoints.service;
    if let Some(presented) = tokens.presented(token, cx.core.keyed().await?).await? {
        let grant = presented.grant();
        if !presented.is_current() || tokens.has_ended(grant).await? {
            return Ok(None);
        }
        let subject = claims::subject_of_family(cx, endpoints, &presented.family(), grant).await?;
        return Ok(subject.map(|subject| of_refresh_token(tokens.issuer(), &presented, subject.who)));
    }
    let Some(access) = tokens.access(token).await? else { return Ok(None) };
    let subject = claims::subject_of_family(cx, endpoints, &access.family, &access.grant).await?;
    Ok(subject.map(|subject| of_access_token(access, &subject.who)))
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
        auth_time: who.auth_time().map(UnixTime::as_secs),
        acr: who.acr.map(String::from),
        cnf: grant.jkt.clone().map(|jkt| Confirmation { jkt: Some(jkt) }),
    }
}

/// Describes the token as it was issued, except for what its user no longer proves.
fn of_access_token(ValidAccess { claims, .. }: ValidAccess, who: &Authentication) -> Known {
    Known {
        token_type: Some(if claims.cnf.is_some() { "DPoP" } else { "Bearer" }),
        iss: claims.iss,
        sub: claims.sub,
        client_id: claims.client_id,
        tenant: who.tenant.as_str().to_owned(),
        scope: claims.scope.unwrap_or_default(),
        exp: claims.exp,
        iat: Some(claims.iat),
        aud: Some(claims.aud),
        jti: Some(claims.jti),
        auth_time: who.auth_time().map(UnixTime::as_secs),
        acr: claims.acr.filter(|acr| Some(&**acr) == who.acr.as_deref()),
        cnf: claims.cnf,
    }
}
