//! Compares proofs with requests, and spends them. Their signatures are verified in `proof.rs`.

use std::sync::Arc;

use http::{HeaderMap, Method};

use super::{
    nonce::Nonces,
    proof::{DpopError, DpopProof, Expected, UnverifiedProof},
    seen::{SeenProofs, Sighting},
};
use crate::{
    gate::MaybeReady,
    store::{AnyStore, BoxFuture, Memory},
    util::clock::{Clock, UnixTime},
};

/// Verifies proofs. Clones share the memory of used proofs.
#[derive(Clone)]
pub(crate) struct DpopVerifier {
    clock: Arc<dyn Clock>,
    seen: SeenProofs,
    nonces: Option<Arc<Nonces>>,
}

impl DpopVerifier {
    /// Creates a verifier that remembers used proofs in a store, so that all users of the store
    /// accept each proof once.
    pub(crate) fn in_store(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self { seen: SeenProofs::new(store, Arc::clone(&clock)), clock, nonces: None }
    }

    /// Creates a verifier that remembers used proofs in this process, within limits. Proofs beyond
    /// the limits are rejected as [`DpopError::Unavailable`].
    pub(crate) fn in_memory(clock: Arc<dyn Clock>) -> Self {
        Self::in_store(Memory::new().into(), clock)
    }

    /// Remembers used proofs in a store instead.
    pub(crate) fn with_store(self, store: AnyStore) -> Self {
        Self { seen: SeenProofs::new(store, Arc::clone(&self.clock)), ..self }
    }

    /// Limits the rows of each key in the store.
    #[cfg(all(test, feature = "login"))]
    pub(super) fn with_rows(self, most: u32) -> Self {
        Self { seen: self.seen.with_rows(&self.clock, most), ..self }
    }

    /// Requires nonces. All nodes need the same key for them.
    pub(crate) fn with_nonces(self, nonces: Arc<Nonces>) -> Self {
        Self { nonces: Some(nonces), ..self }
    }

    /// Returns the nonce for the `DPoP-Nonce` header, if nonces are required.
    pub(crate) fn nonce(&self) -> Option<String> {
        self.nonces.as_ref().map(|nonces| nonces.current(self.now()))
    }

    /// Verifies the proof of a request and marks it as used. Returns `None` if there is no proof. `url`
    /// is the URL that the proof must name, and `token` the access token of the request.
    #[cfg(all(test, feature = "login"))]
    pub(crate) fn check(
        &self,
        headers: &HeaderMap,
        method: &Method,
        url: &str,
        token: Option<&str>,
    ) -> MaybeReady<BoxFuture<'static, Result<Option<String>, DpopError>>> {
        let read = self.read_unverified_proof(headers, method, url, token);
        match read.and_then(|proof| proof.map(UnverifiedProof::verify).transpose()) {
            Ok(Some(proof)) => self.spend(proof).map(|spent| spent.map(Some)),
            Ok(None) => MaybeReady::Ready(Ok(None)),
            Err(error) => MaybeReady::Ready(Err(error)),
        }
    }

    /// Compares a proof with its request, without checking its signature and whether it was used before.
    pub(crate) fn read_unverified_proof<'h>(
        &self,
        headers: &'h HeaderMap,
        method: &Method,
        url: &str,
        token: Option<&str>,
    ) -> Result<Option<UnverifiedProof<'h>>, DpopError> {
        let expected = Expected { method, url, token, nonces: self.nonces.as_deref(), now: self.now() };
        UnverifiedProof::parse_proof_header(headers, &expected)
    }

    /// Marks a proof as used, and returns the thumbprint of its key (RFC 7638), as in a token's `cnf.jkt`. Fails if it was used
    /// before.
    pub(crate) fn spend(&self, proof: DpopProof) -> MaybeReady<BoxFuture<'static, Result<String, DpopError>>> {
        let proofs = self.clone();
        self.seen.mark(&proof).map(move |mark| proofs.spent(proof, mark))
    }

    fn spent(&self, proof: DpopProof, mark: Sighting) -> Result<String, DpopError> {
        match mark {
            Sighting::Again => Err(DpopError::Invalid("the proof was already used")),
            Sighting::Unknown => Err(DpopError::Unavailable),
            // the proof may have expired meanwhile, and then its use is no longer remembered
            Sighting::First if proof.is_too_old(self.now()) => Err(DpopError::Invalid("the proof is too old")),
            Sighting::First => Ok(proof.into_thumbprint()),
        }
    }

    fn now(&self) -> UnixTime {
        self.clock.unix(self.clock.now())
    }
}

crate::util::fmt::debug_fields!(DpopVerifier { seen, nonces });
