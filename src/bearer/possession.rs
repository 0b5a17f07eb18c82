//! [`Possession`]: that the caller has the key to which a token is bound (RFC 9449 §7).

use std::{fmt, sync::Arc};

use http::{HeaderMap, HeaderValue, Method};

use super::token::AccessToken;
use crate::{
    dpop::{self, DpopError, DpopVerifier, Nonces},
    gate::MaybeReady,
    http::{head::Head, issuer::Issuer},
    store::{AnyStore, BoxFuture},
    util::{clock::Clock, error::ConfigError, secret::Secret},
};

#[derive(Clone)]
pub(super) struct Possession {
    /// What stands in front of the path of each request; none where proofs are not taken.
    base: Option<Issuer>,
    proofs: DpopVerifier,
}

/// What a proof has to fit, kept for as long as the token is looked at: whoever has no token that counts chooses no key
/// that this process computes with.
pub(super) struct PresentedProof {
    proofs: HeaderMap,
    method: Method,
    url: String,
    token: String,
}

/// Why a token with a proof does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProofError {
    /// It is not bound, or to another key.
    Token,
    Proof(DpopError),
}

impl Possession {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { base: None, proofs: DpopVerifier::in_memory(clock) }
    }

    pub(super) fn at(self, base_url: &str) -> Result<Self, ConfigError> {
        let base = Issuer::parse(base_url)
            .map_err(|error| ConfigError::new("base url of proofs", base_url, error.reason().to_owned()))?;
        Ok(Self { base: Some(base), ..self })
    }

    pub(super) fn store(self, store: AnyStore) -> Self {
        Self { proofs: self.proofs.with_store(store), ..self }
    }

    pub(super) fn nonces(self, key: &Secret) -> Self {
        Self { proofs: self.proofs.with_nonces(Arc::new(Nonces::new(key))), ..self }
    }

    /// Whether proofs are taken.
    pub(super) fn is_on(&self) -> bool {
        self.base.is_some()
    }

    /// The value that the next proof has to hold.
    pub(super) fn nonce(&self) -> Option<HeaderValue> {
        HeaderValue::try_from(self.proofs.nonce()?).ok()
    }

    /// Takes the proof that comes with a token, and does not look at it yet; `None` where proofs are not taken.
    pub(super) fn take(&self, head: Head<'_>, token: &str) -> Option<PresentedProof> {
        let url = format!("{}{}", self.base.as_ref()?.as_str(), head.uri().path());
        let proofs = dpop::headers(head.headers());
        Some(PresentedProof { proofs, method: head.method().clone(), url, token: token.to_owned() })
    }

    /// Whether the key that was shown is that of the token. Each proof is taken once.
    pub(super) fn settle(
        &self,
        shown: &PresentedProof,
        token: &AccessToken,
    ) -> MaybeReady<BoxFuture<'static, Result<(), ProofError>>> {
        // what is bound to no key has nothing to prove
        if token.bound_to().is_none() {
            return unproved(ProofError::Token);
        }
        let proof = match self.proofs.read(&shown.proofs, &shown.method, &shown.url, Some(&shown.token)) {
            Ok(Some(proof)) => proof,
            Ok(None) => return unproved(ProofError::Proof(DpopError::Invalid("the proof is missing"))),
            Err(error) => return unproved(ProofError::Proof(error)),
        };
        // before it is remembered: strangers with keys of their own can't fill what remembers
        if token.bound_to() != Some(proof.thumbprint()) {
            return unproved(ProofError::Token);
        }
        match self.proofs.spend(proof) {
            MaybeReady::Ready(spent) => MaybeReady::Ready(spent.map(drop).map_err(ProofError::Proof)),
            MaybeReady::Pending(spent) => {
                MaybeReady::Pending(Box::pin(async move { spent.await.map(drop).map_err(ProofError::Proof) }))
            }
        }
    }
}

fn unproved(why: ProofError) -> MaybeReady<BoxFuture<'static, Result<(), ProofError>>> {
    MaybeReady::Ready(Err(why))
}

impl fmt::Debug for Possession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Possession").field("base", &self.base).field("proofs", &self.proofs).finish()
    }
}
