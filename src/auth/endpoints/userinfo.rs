//! `/userinfo` (OpenID Connect Core §5.3): who logged in.

use http::{Response, StatusCode, header};
use serde_json::Value;

use crate::{
    auth::{
        context::RequestContext,
        endpoints::{claims, with_nonce},
        http::{
            answer,
            problem::{Code, Problem},
        },
    },
    bearer::{self, Authorization, Scheme},
    client::Scopes,
    http::body::Body,
    tokens::{Access, Authorized, Tokens},
};

pub(crate) async fn userinfo(cx: &mut RequestContext<'_>, tokens: &Tokens) -> Result<Response<Body>, Problem> {
    let found = find(cx, tokens).await;
    let who = found.as_ref().ok().map(|access| &access.authorized);
    if let Some(who) = who.filter(|_| cx.reader.is_some()) {
        // a page of another client has no business with this token
        let client = cx.client(Some(&who.client_id)).await?;
        cx.let_read(client.as_deref());
    }
    cx.charge(who.map(|who| &who.tenant))?;
    let Access { claims: token, authorized: who, .. } = found?;
    let granted = Scopes::parse(token.scope.as_deref().unwrap_or_default());
    let Some(granted) = granted.ok().filter(|granted| granted.contains("openid")) else {
        let problem = Problem::new(Code::InsufficientScope, "the access token does not allow this");
        return Err(challenge(problem, scheme_of(&who), r#", error="insufficient_scope", scope="openid""#));
    };
    let account = claims::account(cx, (&who.tenant, &who.user), &who.identifier).await?;
    let account = account.ok_or_else(|| invalid(scheme_of(&who)))?;
    let mut answer = claims::named(&account, claims::of_scopes(&granted));
    answer.extend(claims::named(&account, who.userinfo.iter().map(String::as_str)));
    answer.insert("sub".to_owned(), Value::from(token.sub));
    answer.insert("tenant".to_owned(), Value::from(who.tenant.as_str()));
    Ok(with_nonce(cx, answer::json(StatusCode::OK, &answer)))
}

/// The token that comes with a request, if it is good.
async fn find(cx: &RequestContext<'_>, tokens: &Tokens) -> Result<Access, Problem> {
    let (scheme, token) = match Authorization::read(&cx.parts.headers) {
        Authorization::Token { scheme, token } => (scheme, token),
        Authorization::Nothing => {
            let problem = Problem::new(Code::InvalidToken, "an access token is needed");
            return Err(challenge(problem, Scheme::Bearer, ""));
        }
        Authorization::Malformed => {
            let problem = Problem::invalid("the authorization header is malformed");
            return Err(challenge(problem, Scheme::Bearer, r#", error="invalid_request""#));
        }
    };
    let access = tokens.access(token).await?.ok_or_else(|| invalid(scheme))?;
    let bound = access.authorized.jkt.as_deref();
    match scheme {
        Scheme::Bearer if bound.is_none() => Ok(access),
        Scheme::DPoP if bound.is_some() => {
            let missing = || unproved(Problem::new(Code::InvalidDpopProof, "the proof is missing"));
            let proved = cx.proved_key("/userinfo", Some(token)).await.map_err(unproved)?.ok_or_else(missing)?;
            if Some(&*proved) == bound { Ok(access) } else { Err(invalid(scheme)) }
        }
        Scheme::Bearer | Scheme::DPoP => Err(invalid(scheme)),
    }
}

fn scheme_of(who: &Authorized) -> Scheme {
    if who.jkt.is_some() { Scheme::DPoP } else { Scheme::Bearer }
}

fn invalid(scheme: Scheme) -> Problem {
    let problem = Problem::new(Code::InvalidToken, "the access token is not valid");
    challenge(problem, scheme, r#", error="invalid_token""#)
}

/// At an API a bad proof is a 401 (RFC 9449 §7.1).
fn unproved(problem: Problem) -> Problem {
    let rest = match problem.code {
        Code::UseDpopNonce => r#", error="use_dpop_nonce""#,
        Code::InvalidDpopProof => r#", error="invalid_dpop_proof""#,
        _ => return problem,
    };
    challenge(problem.at(StatusCode::UNAUTHORIZED), Scheme::DPoP, rest)
}

/// Says in which ways to come, and what was wrong.
fn challenge(problem: Problem, tried: Scheme, error: &str) -> Problem {
    problem.header(header::WWW_AUTHENTICATE, bearer::challenge("userinfo", true, tried, error))
}
