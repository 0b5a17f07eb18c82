//! Checks that the caller owns the key to which a token is bound (RFC 9449 §7).

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method};

use super::token::AccessToken;
use crate::{
    dpop::{self, DpopError, DpopProof, DpopVerifier},
    gate::MaybeReady,
    http::head::Head,
    store::BoxFuture,
    support::issuer::Issuer,
    util::clock::Clock,
};

#[derive(Clone, Debug)]
pub(super) struct Possession {
    /// The URL prefix of all requests. `None` if DPoP is not enabled.
    pub(super) base: Option<Issuer>,
    pub(super) proofs: DpopVerifier,
}

/// A proof and the request that it must match, kept while the token is verified. Callers without a
/// valid token can't make this process compute with keys of their choice.
pub(super) struct PresentedProof {
    proofs: HeaderMap,
    method: Method,
    url: String,
    token: String,
}

/// Why a token with a proof is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProofError {
    /// The token is not bound, or is bound to another key.
    Token,
    Proof(DpopError),
}

impl Possession {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { base: None, proofs: DpopVerifier::in_memory(clock) }
    }

    /// Returns whether DPoP is enabled.
    pub(super) fn is_on(&self) -> bool {
        self.base.is_some()
    }

    /// Returns the nonce for the next proof.
    pub(super) fn nonce(&self) -> Option<HeaderValue> {
        HeaderValue::try_from(self.proofs.nonce()?).ok()
    }

    /// Copies the proof of a request without checking it. Returns `None` if DPoP is not enabled.
    pub(super) fn copy_request_proof(&self, head: Head<'_>, token: &str) -> Option<PresentedProof> {
        let url = format!("{}{}", self.base.as_ref()?.as_str(), head.uri().path());
        let proofs = dpop::headers(head.headers());
        Some(PresentedProof { proofs, method: head.method().clone(), url, token: token.to_owned() })
    }

    /// Checks that the proof is for its request and was made with the key of the token. It is not marked as used yet.
    pub(super) fn prove(&self, shown: &PresentedProof, token: &AccessToken) -> Result<DpopProof, ProofError> {
        // an unbound token must not be sent with a proof
        let Some(bound_to) = token.bound_to() else { return Err(ProofError::Token) };
        let read = self.proofs.read_unverified_proof(&shown.proofs, &shown.method, &shown.url, Some(&shown.token));
        let missing = ProofError::Proof(DpopError::Invalid("the proof is missing"));
        let proof = read.map_err(ProofError::Proof)?.ok_or(missing)?;
        // checked before the signature, so that other keys cause no work
        if proof.thumbprint() != bound_to {
            return Err(ProofError::Token);
        }
        proof.verify().map_err(ProofError::Proof)
    }

    /// Marks a proof as used.
    pub(super) fn spend(&self, proof: DpopProof) -> MaybeReady<BoxFuture<'static, Result<(), ProofError>>> {
        self.proofs.spend(proof).map(|spent| spent.map(drop).map_err(ProofError::Proof))
    }
}
