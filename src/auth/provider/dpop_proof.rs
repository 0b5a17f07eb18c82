//! Proofs of possession of a key (DPoP, RFC 9449).

use http::{HeaderValue, Response};

use crate::{
    auth::{
        http::problem::{Code, Problem},
        state::token_endpoints::TokenEndpoints,
    },
    client::Client,
    dpop,
    http::body::Body,
};

/// Checks that a client that gets only bound tokens has proved a key.
pub(crate) fn check_bound(client: &Client, jkt: Option<&str>) -> Result<(), Problem> {
    if client.tokens.require_dpop && jkt.is_none() {
        return Err(Problem::new(Code::InvalidDpopProof, "this client must send a DPoP proof"));
    }
    Ok(())
}

/// Adds the nonce of the next proof, if nonces are required.
pub(crate) fn with_nonce(endpoints: &TokenEndpoints, mut response: Response<Body>) -> Response<Body> {
    let nonce = endpoints.proofs.nonce();
    if let Some(nonce) = nonce.and_then(|nonce| HeaderValue::try_from(nonce).ok()) {
        response.headers_mut().insert(dpop::NONCE, nonce);
    }
    response
}
