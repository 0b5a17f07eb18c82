//! `/userinfo` (OpenID Connect Core §5.3): who logged in.

use http::{HeaderValue, Response, StatusCode, header};
use serde_json::Value;

use super::{claims, client::proved_key};
use crate::{
    auth::{
        answer,
        problem::{Code, Problem},
        visit::Visit,
    },
    bearer::{Presented, Scheme},
    body::Body,
    client::Scopes,
    tokens::{Access, Tokens},
};

pub(super) async fn userinfo(visit: &mut Visit<'_>, tokens: &Tokens) -> Result<Response<Body>, Problem> {
    let found = find(visit, tokens).await;
    let tenant = found.as_ref().ok().map(|access| &access.authorized.tenant);
    visit.charge(tenant)?;
    let Access { claims: token, authorized: who, .. } = found?;
    let granted = Scopes::parse(token.scope.as_deref().unwrap_or_default());
    let Some(granted) = granted.ok().filter(|granted| granted.contains("openid")) else {
        let problem = Problem::new(Code::InsufficientScope, "the access token does not allow this");
        return Err(challenge(problem, r#", error="insufficient_scope", scope="openid""#));
    };
    let account = visit.inner.config.users.find(&who.tenant, &who.identifier).await?;
    let account = account.filter(|account| *account.id() == who.user && !account.is_disabled());
    let account = account.ok_or_else(invalid)?;
    let mut answer = claims::named(&account, claims::of_scopes(&granted));
    answer.extend(claims::named(&account, who.userinfo.iter().map(String::as_str)));
    answer.insert("sub".to_owned(), Value::from(token.sub));
    Ok(answer::json(StatusCode::OK, &answer))
}

/// The token that comes with a request, if it is good.
async fn find(visit: &Visit<'_>, tokens: &Tokens) -> Result<Access, Problem> {
    let (scheme, token) = match Presented::read(&visit.parts.headers) {
        Presented::Token { scheme, token } => (scheme, token),
        Presented::Nothing => return Err(challenge(Problem::new(Code::InvalidToken, "an access token is needed"), "")),
        Presented::Malformed => {
            let problem = Problem::invalid("the authorization header is malformed");
            return Err(challenge(problem, r#", error="invalid_request""#));
        }
    };
    let access = tokens.access(token).await?.ok_or_else(invalid)?;
    let bound = access.authorized.jkt.as_deref();
    match scheme {
        Scheme::Bearer if bound.is_none() => Ok(access),
        Scheme::DPoP if bound.is_some() => {
            let proved = proved_key(visit, "/userinfo", Some(token)).await.map_err(unproved)?;
            if proved.as_deref() == bound { Ok(access) } else { Err(invalid()) }
        }
        Scheme::Bearer | Scheme::DPoP => Err(invalid()),
    }
}

fn invalid() -> Problem {
    challenge(Problem::new(Code::InvalidToken, "the access token is not valid"), r#", error="invalid_token""#)
}

/// At an API a bad proof is a 401 (RFC 9449 §7.1).
fn unproved(problem: Problem) -> Problem {
    let text = match problem.code {
        Code::UseDpopNonce => r#"DPoP realm="userinfo", error="use_dpop_nonce""#,
        Code::InvalidDpopProof => r#"DPoP realm="userinfo", error="invalid_dpop_proof""#,
        _ => return problem,
    };
    problem.at(StatusCode::UNAUTHORIZED).header(header::WWW_AUTHENTICATE, HeaderValue::from_static(text))
}

fn challenge(problem: Problem, rest: &str) -> Problem {
    let text = format!(r#"Bearer realm="userinfo"{rest}"#);
    // never the default: all of it stands here
    let value = HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("Bearer"));
    problem.header(header::WWW_AUTHENTICATE, value)
}
