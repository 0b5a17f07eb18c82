//! Proofs of possession of a key (DPoP, RFC 9449).

use http::{HeaderValue, Response};

use crate::{
    auth::{
        endpoints::settings::TokenEndpoints,
        http::problem::{Code, Problem},
        visit::Visit,
    },
    client::Client,
    dpop::{self, DpopError},
    http::body::Body,
};

/// Returns the thumbprint of the key that the caller proves to have. Returns `None` without a proof. Each proof counts
/// once.
pub(crate) async fn proved_key(
    visit: &Visit<'_>,
    endpoints: &TokenEndpoints,
    path: &str,
    access_token: Option<&str>,
) -> Result<Option<String>, Problem> {
    let url = format!("{}{path}", visit.inner.config.issuer.as_str());
    let (method, headers) = (&visit.parts.method, &visit.parts.headers);
    match endpoints.proofs.check(headers, method, &url, access_token).wait().await {
        Ok(proven) => Ok(proven.map(|proven| proven.thumbprint)),
        Err(DpopError::Invalid(detail)) => Err(Problem::new(Code::InvalidDpopProof, detail)),
        Err(DpopError::UseNonce(nonce)) => {
            let problem = Problem::new(Code::UseDpopNonce, "the proof needs the nonce of this answer");
            Err(match HeaderValue::try_from(nonce) {
                Ok(nonce) => problem.header(dpop::NONCE, nonce),
                Err(_) => problem,
            })
        }
        Err(DpopError::Unavailable) => Err(Problem::unavailable()),
    }
}

/// Checks that a client that gets only bound tokens has proved a key.
pub(crate) fn check_bound(client: &Client, jkt: Option<&str>) -> Result<(), Problem> {
    if client.tokens.require_dpop && jkt.is_none() {
        return Err(Problem::new(Code::InvalidDpopProof, "this client needs a DPoP proof"));
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
