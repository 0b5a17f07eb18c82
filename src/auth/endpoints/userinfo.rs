//! `/userinfo` (OpenID Connect Core §5.3): claims about the user.

use http::{Response, StatusCode, header};
use serde_json::Value;

use crate::{
    auth::{
        context::RequestContext,
        endpoints::{claims, proof::with_nonce},
        http::{
            answer,
            problem::{Code, Problem},
        },
        state::token_endpoints::TokenEndpoints,
    },
    bearer::{self, Authorization, Scheme},
    client::Scopes,
    http::body::Body,
    tokens::{Grant, ValidAccess},
    user::ClaimTarget,
};

pub(crate) async fn userinfo(
    cx: &mut RequestContext<'_>,
    endpoints: &TokenEndpoints,
) -> Result<Response<Body>, Problem> {
    let found = find(cx, endpoints).await;
    let grant = found.as_ref().ok().map(|access| &access.grant);
    if let Some(grant) = grant.filter(|_| cx.reader.is_some()) {
        // a page of another client must not read the answer
        let client = cx.client(Some(grant.client_id())).await?;
        cx.let_read(client.as_deref());
    }
    match grant {
        Some(grant) => cx.charge_proved(&grant.who.tenant)?,
        None => cx.charge(None)?,
    }
    let ValidAccess { claims: token, grant, family } = found?;
    let granted = Scopes::parse(token.scope.as_deref().unwrap_or_default());
    let Some(granted) = granted.ok().filter(|granted| granted.contains("openid")) else {
        let problem = Problem::new(Code::InsufficientScope, "the access token lacks the scope openid");
        return Err(challenge(problem, scheme_of(&grant), r#", error="insufficient_scope", scope="openid""#));
    };
    let subject = claims::subject_of_family(cx, endpoints, &family, &grant).await?;
    let account = subject.ok_or_else(|| invalid(scheme_of(&grant)))?.account;
    let extra = claims::extra(cx, &account, &grant, &granted).await?;
    let mut answer = claims::named(&account, claims::of_scopes(&granted));
    answer.extend(claims::named(&account, grant.userinfo.iter().map(String::as_str)));
    answer.extend(extra.iter(ClaimTarget::UserInfo).map(|(name, value)| (name.to_owned(), value.clone())));
    answer.insert("sub".to_owned(), Value::from(token.sub));
    answer.insert("tenant".to_owned(), Value::from(grant.who.tenant.as_str()));
    Ok(with_nonce(endpoints, answer::json(StatusCode::OK, &answer)))
}

/// Returns the access token of the request, if it is valid.
async fn find(cx: &RequestContext<'_>, endpoints: &TokenEndpoints) -> Result<ValidAccess, Problem> {
    let (scheme, token) = match Authorization::read(&cx.parts.headers) {
        Authorization::Token { scheme, token } => (scheme, token),
        Authorization::Nothing => {
            let problem = Problem::new(Code::InvalidToken, "an access token is required");
            return Err(challenge(problem, Scheme::Bearer, ""));
        }
        Authorization::Malformed => {
            let problem = Problem::invalid("the authorization header is malformed");
            return Err(challenge(problem, Scheme::Bearer, r#", error="invalid_request""#));
        }
    };
    let access = endpoints.service.access(token).await?.ok_or_else(|| invalid(scheme))?;
    let bound = access.grant.jkt.as_deref();
    match scheme {
        Scheme::Bearer if bound.is_none() => Ok(access),
        Scheme::DPoP if bound.is_some() => {
            let missing = || unproved(Problem::new(Code::InvalidDpopProof, "the proof is missing"));
            let proved = cx.proved_key("/userinfo", Some(token)).await.map_err(unproved)?;
            if Some(&*proved.ok_or_else(missing)?) == bound { Ok(access) } else { Err(invalid(scheme)) }
        }
        Scheme::Bearer | Scheme::DPoP => Err(invalid(scheme)),
    }
}

fn scheme_of(grant: &Grant) -> Scheme {
    if grant.jkt.is_some() { Scheme::DPoP } else { Scheme::Bearer }
}

fn invalid(scheme: Scheme) -> Problem {
    let problem = Problem::new(Code::InvalidToken, "the access token is not valid");
    challenge(problem, scheme, r#", error="invalid_token""#)
}

/// Turns a bad proof into a 401, as RFC 9449 §7.1 requires of APIs.
fn unproved(problem: Problem) -> Problem {
    let rest = match problem.code {
        Code::UseDpopNonce => r#", error="use_dpop_nonce""#,
        Code::InvalidDpopProof => r#", error="invalid_dpop_proof""#,
        _ => return problem,
    };
    challenge(problem.at(StatusCode::UNAUTHORIZED), Scheme::DPoP, rest)
}

/// Adds the challenge, with the schemes that are accepted and the error.
fn challenge(problem: Problem, tried: Scheme, error: &str) -> Problem {
    problem.header(header::WWW_AUTHENTICATE, bearer::challenge("userinfo", true, tried, error))
}
