//! Proofs of possession of a key (DPoP, RFC 9449).

use http::{HeaderValue, Response, StatusCode, header, request::Parts};

use crate::{
    auth::{
        context::read_proof,
        core::Core,
        http::problem::{Code, Problem},
        state::token_endpoints::TokenEndpoints,
    },
    bearer::{self, Scheme},
    client::Client,
    dpop::{self, DpopProof},
    http::body::Body,
};

/// Checks that a client that gets only bound tokens has proved a key.
pub(crate) fn check_bound(client: &Client, jkt: Option<&str>) -> Result<(), Problem> {
    if client.tokens.require_dpop && jkt.is_none() {
        return Err(Problem::new(Code::InvalidDpopProof, "this client must send a DPoP proof"));
    }
    Ok(())
}

/// Checks how an access token is shown to an endpoint: as a bearer token, or with a proof of the key that it is bound to.
/// The proof must be spent once the request is charged.
pub(crate) fn bound_proof(
    (core, parts): (&Core, &Parts),
    path: &str,
    (scheme, token, bound_to): (Scheme, &str, Option<&str>),
    realm: &str,
) -> Result<Option<DpopProof>, Problem> {
    let invalid = || {
        let problem = Problem::new(Code::InvalidToken, "the access token is not valid");
        add_challenge(problem, realm, scheme, r#", error="invalid_token""#)
    };
    let unproved = |problem| unproved_problem(problem, realm);
    match (scheme, bound_to) {
        (Scheme::Bearer, None) => Ok(None),
        (Scheme::DPoP, Some(bound_to)) => {
            let missing = || unproved(Problem::new(Code::InvalidDpopProof, "the proof is missing"));
            let proof = read_proof(core, parts, path, Some(token)).map_err(unproved)?.ok_or_else(missing)?;
            if proof.thumbprint() != bound_to {
                return Err(invalid());
            }
            Ok(Some(proof.verify().map_err(|error| unproved(error.into()))?))
        }
        (Scheme::Bearer, Some(_)) | (Scheme::DPoP, None) => Err(invalid()),
    }
}

/// Turns a bad proof into a 401, as RFC 9449 §7.1 requires of APIs.
pub(crate) fn unproved_problem(problem: Problem, realm: &str) -> Problem {
    let rest = match problem.code {
        Code::UseDpopNonce => r#", error="use_dpop_nonce""#,
        Code::InvalidDpopProof => r#", error="invalid_dpop_proof""#,
        _ => return problem,
    };
    add_challenge(problem.override_status(StatusCode::UNAUTHORIZED), realm, Scheme::DPoP, rest)
}

/// Adds the challenge, with the schemes that are accepted and the error.
pub(crate) fn add_challenge(problem: Problem, realm: &str, tried: Scheme, error: &str) -> Problem {
    problem.header(header::WWW_AUTHENTICATE, bearer::challenge_header(realm, true, tried, error, ""))
}

/// Adds the nonce of the next proof, if nonces are required.
pub(crate) fn with_nonce(endpoints: &TokenEndpoints, mut response: Response<Body>) -> Response<Body> {
    let nonce = endpoints.proofs.nonce();
    if let Some(nonce) = nonce.and_then(|nonce| HeaderValue::try_from(nonce).ok()) {
        response.headers_mut().insert(dpop::NONCE, nonce);
    }
    response
}
