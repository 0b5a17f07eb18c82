//! `/userinfo` (OpenID Connect Core §5.3): claims about the user.

use std::sync::Arc;

use http::{StatusCode, header, request::Parts};
use serde_json::Value;

use super::{dpop_proof::with_nonce, subject, user_claims};
use crate::{
    auth::{
        context::{incoming::IncomingRequest, read_proof},
        core::Core,
        http::{
            answer,
            problem::{Code, EndpointResult, Problem},
        },
        state::token_endpoints::TokenEndpoints,
    },
    bearer::{AccessTokenClaims, Authorization, Scheme, challenge_header},
    client::Scopes,
    dpop::DpopProof,
    tokens::Grant,
    user::ClaimTarget,
    util::public_id::PublicId,
};

pub(crate) async fn userinfo(request: &mut IncomingRequest<'_>, endpoints: &TokenEndpoints) -> EndpointResult {
    let core = request.begin_lookup().await?;
    let found = find(core, request.parts, endpoints).await;
    let grant = found.as_ref().ok().map(|found| &found.grant);
    if let Some(grant) = grant.filter(|_| request.reader.is_some()) {
        // a page of another client must not read the response
        let client = core.registered_client(Some(grant.client_id())).await?;
        request.let_read(client.as_deref());
    }
    let cx = match grant {
        Some(grant) => request.charge_proved(&grant.who.tenant).await?,
        None => request.charge(None).await?,
    };
    let UserAccess { token, grant, family, proof } = found?;
    if let Some(proof) = proof {
        cx.spend_proof(proof).await.map_err(unproved_problem)?;
    }
    let granted = Scopes::parse(token.scope.as_deref().unwrap_or_default());
    let Some(granted) = granted.ok().filter(|granted| granted.contains("openid")) else {
        let problem = Problem::new(Code::InsufficientScope, "the access token lacks the scope openid");
        return Err(add_challenge(problem, scheme_of(&grant), r#", error="insufficient_scope", scope="openid""#));
    };
    let subject = subject::find_subject_or_revoke(core, endpoints, (&family, &grant), None).await?;
    let account = subject.ok_or_else(|| invalid(scheme_of(&grant)))?.account;
    let extra = user_claims::extra_claims(core, &account, &grant, &granted).await?;
    let mut answer = user_claims::account_claims(&account, user_claims::claims_of_scopes(&granted));
    answer.extend(user_claims::account_claims(&account, grant.userinfo.iter().map(String::as_str)));
    answer.extend(extra.iter(ClaimTarget::UserInfo).map(|(name, value)| (name.to_owned(), value.clone())));
    answer.insert("sub".to_owned(), Value::from(token.sub));
    answer.insert("tenant".to_owned(), Value::from(grant.who.tenant.as_str()));
    Ok(with_nonce(endpoints, answer::json(StatusCode::OK, &answer)))
}

/// A valid access token that a user granted.
struct UserAccess {
    token: AccessTokenClaims,
    grant: Arc<Grant>,
    family: PublicId,
    /// The proof of the key that the token is bound to.
    proof: Option<DpopProof>,
}

/// Returns the access token of the request, if it is valid.
async fn find(core: &Core, parts: &Parts, endpoints: &TokenEndpoints) -> Result<UserAccess, Problem> {
    let (scheme, text) = match Authorization::from_auth_headers(&parts.headers) {
        Authorization::Token { scheme, token } => (scheme, token),
        Authorization::Nothing => {
            let problem = Problem::new(Code::InvalidToken, "an access token is required");
            return Err(add_challenge(problem, Scheme::Bearer, ""));
        }
        Authorization::Malformed => {
            let problem = Problem::invalid("the authorization header is malformed");
            return Err(add_challenge(problem, Scheme::Bearer, r#", error="invalid_request""#));
        }
    };
    let access = endpoints.service.access(text).await?.ok_or_else(|| invalid(scheme))?;
    // the token of a machine client is about no user
    let grant = access.grant.ok_or_else(|| invalid(scheme))?;
    // an API that gets a token for itself must not read the user's claims with it
    if !grant.resources.is_empty() && !access.claims.aud.has(endpoints.service.issuer()) {
        return Err(invalid(scheme));
    }
    let proof = bound_proof((core, parts), (scheme, text, grant.jkt.as_deref()))?;
    Ok(UserAccess { token: access.claims, grant, family: access.family, proof })
}

fn scheme_of(grant: &Grant) -> Scheme {
    if grant.jkt.is_some() { Scheme::DPoP } else { Scheme::Bearer }
}

fn invalid(scheme: Scheme) -> Problem {
    let problem = Problem::new(Code::InvalidToken, "the access token is not valid");
    add_challenge(problem, scheme, r#", error="invalid_token""#)
}

/// Checks how an access token is shown: as a bearer token, or with a proof of the key that it is bound to. The proof must be
/// spent once the request is charged.
fn bound_proof(
    (core, parts): (&Core, &Parts),
    (scheme, token, bound_to): (Scheme, &str, Option<&str>),
) -> Result<Option<DpopProof>, Problem> {
    match (scheme, bound_to) {
        (Scheme::Bearer, None) => Ok(None),
        (Scheme::DPoP, Some(bound_to)) => {
            let missing = || unproved_problem(Problem::new(Code::InvalidDpopProof, "the proof is missing"));
            let proof = read_proof(core, parts, "/userinfo", Some(token)).map_err(unproved_problem)?;
            let proof = proof.ok_or_else(missing)?;
            if proof.thumbprint() != bound_to {
                return Err(invalid(scheme));
            }
            Ok(Some(proof.verify().map_err(|error| unproved_problem(error.into()))?))
        }
        (Scheme::Bearer, Some(_)) | (Scheme::DPoP, None) => Err(invalid(scheme)),
    }
}

/// Turns a bad proof into a 401, as RFC 9449 §7.1 requires of APIs.
fn unproved_problem(problem: Problem) -> Problem {
    let rest = match problem.code {
        Code::UseDpopNonce => r#", error="use_dpop_nonce""#,
        Code::InvalidDpopProof => r#", error="invalid_dpop_proof""#,
        _ => return problem,
    };
    add_challenge(problem.override_status(StatusCode::UNAUTHORIZED), Scheme::DPoP, rest)
}

/// Adds the challenge, with the schemes that are accepted and the error.
fn add_challenge(problem: Problem, tried: Scheme, error: &str) -> Problem {
    problem.header(header::WWW_AUTHENTICATE, challenge_header("userinfo", true, tried, error, ""))
}
