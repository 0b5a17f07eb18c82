//! Remembers used proofs until they are too old anyway.

use std::sync::Arc;

use super::{
    proof::DpopProof,
    recent::{RecentProofs, Sighting},
};
use crate::{
    gate::MaybeReady,
    store::{AnyStore, BoxFuture, WriteOutcome, table::Table},
    util::clock::{Clock, Moment},
};

/// Where used proofs are remembered.
#[derive(Clone, Debug)]
pub(super) enum SeenProofs {
    /// In a store, shared by all nodes and endpoints that use it.
    Store(Table<()>),
    /// In this process.
    Memory(Arc<RecentProofs>),
}

impl SeenProofs {
    pub(super) fn in_store(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self::Store(Table::new(store, "dpop", clock))
    }

    pub(super) fn in_memory() -> Self {
        Self::Memory(Arc::new(RecentProofs::new()))
    }

    /// Remembers a proof. Of any number of calls with the same proof, exactly one returns
    /// [`Sighting::First`].
    pub(super) fn mark(&self, proof: &DpopProof, now: Moment) -> MaybeReady<BoxFuture<'static, Sighting>> {
        let digest = proof.digest();
        match self {
            Self::Memory(memory) => MaybeReady::Ready(memory.mark(proof.thumbprint(), &digest, now)),
            Self::Store(table) => {
                let (table, forgotten_at) = (table.clone(), proof.forgotten_at());
                MaybeReady::Pending(Box::pin(async move {
                    match table.insert(None, digest.as_bytes(), &(), forgotten_at).await {
                        Ok(WriteOutcome::Done(_)) => Sighting::First,
                        Ok(WriteOutcome::Lost(_)) => Sighting::Again,
                        Err(error) => {
                            crate::util::trace::warning!("failed to store a DPoP proof: {error}");
                            Sighting::Unknown
                        }
                    }
                }))
            }
        }
    }
}
