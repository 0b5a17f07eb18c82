//! `POST /introspect` (RFC 7662): what is known of a token.

use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::{
    auth::{
        context::RequestContext,
        endpoints::{claims, client::Posted},
        http::{
            answer,
            problem::{Code, Problem},
        },
        state::token_config::TokenConfig,
    },
    bearer::{Audience, Confirmation},
    http::body::Body,
    tenant::Tenant,
    tokens::Authorized,
    util::secret::Secret,
};

/// Of a token that is no good nothing but that is told.
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
    auth_time: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    acr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cnf: Option<Confirmation>,
}

/// Who asks.
enum Asker {
    /// An API, which may know all.
    Introspector,
    /// A client, which may know its own.
    Client(String),
}

pub(crate) async fn introspect(
    cx: &mut RequestContext<'_>,
    config: &TokenConfig,
    posted: Posted<'_>,
) -> Result<Response<Body>, Problem> {
    let asker = asker(cx, config, &posted).await?;
    let token = posted.required("token", "token is missing")?;
    let known = known(cx, config, token).await?;
    // an API spends of the budget of whose token it asks about, and asks about nobody's for nothing
    if let (Asker::Introspector, Some(tenant)) = (&asker, known.as_ref().and_then(|it| Tenant::parse(&it.tenant).ok()))
    {
        cx.charge(Some(&tenant))?;
    }
    let known = known.filter(|known| match &asker {
        Asker::Introspector => true,
        Asker::Client(id) => known.client_id == *id,
    });
    Ok(answer::json(StatusCode::OK, &Answer { active: known.is_some(), known }))
}

async fn asker(cx: &mut RequestContext<'_>, config: &TokenConfig, posted: &Posted<'_>) -> Result<Asker, Problem> {
    let Some(shown) = cx.parts.headers.get(header::AUTHORIZATION) else {
        let client = posted.client(cx).await;
        // this is for programs: no page reads it
        cx.reader = None;
        return Ok(Asker::Client(client?.id().to_owned()));
    };
    let secret = shown.as_bytes().split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "));
    let digest = secret.and_then(|(_, secret)| Secret::parse(secret)).map(|secret| secret.digest());
    // all are looked at, so that the time tells nothing
    let is_one = |digest| config.introspectors.iter().fold(false, |found, own| found | own.matches(&digest));
    if digest.is_some_and(is_one) {
        posted.check()?;
        return Ok(Asker::Introspector);
    }
    cx.charge(None)?;
    let challenge = HeaderValue::from_static(r#"Bearer realm="introspect", error="invalid_token""#);
    Err(Problem::new(Code::InvalidToken, "this may not ask about tokens").header(header::WWW_AUTHENTICATE, challenge))
}

async fn known(cx: &RequestContext<'_>, config: &TokenConfig, token: &str) -> Result<Option<Known>, Problem> {
    let tokens = &config.tokens;
    if let Some(presented) = tokens.presented(token, cx.core.keyed().await?).await? {
        let ended = !presented.counts() || tokens.has_ended(presented.authorized()).await?;
        if ended || !stands(cx, presented.authorized()).await? {
            return Ok(None);
        }
        let (exp, who) = (presented.ends().as_secs(), presented.authorized().clone());
        return Ok(Some(Known {
            token_type: None,
            iss: tokens.issuer().to_owned(),
            sub: who.user.as_str().to_owned(),
            client_id: who.client_id,
            tenant: who.tenant.as_str().to_owned(),
            scope: who.scope.to_string(),
            exp,
            iat: None,
            aud: None,
            jti: None,
            auth_time: who.auth_time,
            acr: who.acr,
            cnf: who.jkt.map(|jkt| Confirmation { jkt: Some(jkt) }),
        }));
    }
    let Some(access) = tokens.access(token).await? else { return Ok(None) };
    if !stands(cx, &access.authorized).await? {
        return Ok(None);
    }
    let (claims, who) = (access.claims, access.authorized);
    Ok(Some(Known {
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
        auth_time: who.auth_time,
        acr: claims.acr,
        cnf: claims.cnf,
    }))
}

/// Whether the account that it was given for may still log in.
async fn stands(cx: &RequestContext<'_>, who: &Authorized) -> Result<bool, Problem> {
    Ok(claims::account(cx, (&who.tenant, &who.user), &who.identifier).await?.is_some())
}
