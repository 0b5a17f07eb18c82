//! [`DpopVerifier`]: what is asked of proofs at one place, and what was shown there.

use std::{fmt, sync::Arc};

use http::{HeaderMap, Method};

use super::{
    nonce::Nonces,
    proof::{DpopError, DpopProof, Expected},
    recent::Sighting,
    seen::SeenProofs,
};
use crate::{
    gate::MaybeReady,
    store::{AnyStore, BoxFuture},
    util::clock::{Clock, UnixTime},
};

/// Checks proofs. Clones remember the same ones.
#[derive(Clone)]
pub(crate) struct DpopVerifier {
    clock: Arc<dyn Clock>,
    seen: SeenProofs,
    nonces: Option<Arc<Nonces>>,
}

/// What a proof has shown: that whoever sends this request has this key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProvenKey {
    /// Of the key (RFC 7638), as it stands in `cnf.jkt` of a token.
    pub(crate) thumbprint: String,
}

impl DpopVerifier {
    /// Proofs that are remembered in a store: whoever shares it takes each once.
    #[cfg(feature = "tokens")]
    pub(crate) fn in_store(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self { seen: SeenProofs::in_store(store, Arc::clone(&clock)), clock, nonces: None }
    }

    /// Proofs that this process remembers, within bounds: beyond them they are refused as [`DpopError::Unavailable`].
    pub(crate) fn in_memory(clock: Arc<dyn Clock>) -> Self {
        Self { seen: SeenProofs::in_memory(), clock, nonces: None }
    }

    /// Remembers proofs in a store instead.
    pub(crate) fn with_store(self, store: AnyStore) -> Self {
        Self { seen: SeenProofs::in_store(store, Arc::clone(&self.clock)), ..self }
    }

    /// Demands nonces. All nodes need the same key for them.
    pub(crate) fn with_nonces(self, nonces: Arc<Nonces>) -> Self {
        Self { nonces: Some(nonces), ..self }
    }

    /// The nonce for `DPoP-Nonce`, where nonces are demanded.
    pub(crate) fn nonce(&self) -> Option<String> {
        self.nonces.as_ref().map(|nonces| nonces.current(self.now()))
    }

    /// Reads the proof of a request and spends it; `None` where there is none. `url` is the one that the caller has to
    /// mean, `token` the access token that comes along.
    #[cfg(feature = "tokens")]
    pub(crate) fn check(
        &self,
        headers: &HeaderMap,
        method: &Method,
        url: &str,
        token: Option<&str>,
    ) -> MaybeReady<BoxFuture<'static, Result<Option<ProvenKey>, DpopError>>> {
        match self.read(headers, method, url, token) {
            Ok(Some(proof)) => match self.spend(proof) {
                MaybeReady::Ready(spent) => MaybeReady::Ready(spent.map(Some)),
                MaybeReady::Pending(future) => MaybeReady::Pending(Box::pin(async move { future.await.map(Some) })),
            },
            Ok(None) => MaybeReady::Ready(Ok(None)),
            Err(error) => MaybeReady::Ready(Err(error)),
        }
    }

    /// The first half: all but whether the proof was shown before.
    pub(crate) fn read(
        &self,
        headers: &HeaderMap,
        method: &Method,
        url: &str,
        token: Option<&str>,
    ) -> Result<Option<DpopProof>, DpopError> {
        let wanted = Expected { method, url, token, nonces: self.nonces.as_deref(), now: self.now() };
        DpopProof::read(headers, &wanted)
    }

    /// The second half: takes a proof once.
    pub(crate) fn spend(&self, proof: DpopProof) -> MaybeReady<BoxFuture<'static, Result<ProvenKey, DpopError>>> {
        match self.seen.mark(&proof, self.clock.now()) {
            MaybeReady::Ready(mark) => MaybeReady::Ready(self.spent(proof, mark)),
            MaybeReady::Pending(marked) => {
                let proofs = self.clone();
                MaybeReady::Pending(Box::pin(async move {
                    let mark = marked.await;
                    proofs.spent(proof, mark)
                }))
            }
        }
    }

    fn spent(&self, proof: DpopProof, mark: Sighting) -> Result<ProvenKey, DpopError> {
        match mark {
            Sighting::Again => Err(DpopError::Invalid("the proof was used before")),
            Sighting::Unknown => Err(DpopError::Unavailable),
            // it may have come to its end on the way, and then nobody remembers that it was shown
            Sighting::First if proof.is_too_old(self.now()) => Err(DpopError::Invalid("the proof is too old")),
            Sighting::First => Ok(ProvenKey { thumbprint: proof.into_thumbprint() }),
        }
    }

    fn now(&self) -> UnixTime {
        self.clock.unix(self.clock.now())
    }
}

impl fmt::Debug for DpopVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proofs").field("seen", &self.seen).field("nonces", &self.nonces).finish_non_exhaustive()
    }
}
