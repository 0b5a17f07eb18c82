//! [`Seen`]: the proofs that were shown, until they are too old anyway.

use std::sync::Arc;

use super::{memory::Memory, proof::Proof};
use crate::{
    gate::MaybeReady,
    store::{AnyStore, BoxFuture, Outcome, table::Table},
    util::clock::{Clock, Moment},
};

/// Where they are remembered.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    /// In a store, for all nodes and endpoints that share it.
    Store(Table<()>),
    /// In this process.
    Memory(Arc<Memory>),
}

/// What became of a proof that was to be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    First,
    Again,
    /// Nothing can be said: there is no room, or the store is away.
    Unknown,
}

impl Seen {
    pub(super) fn in_store(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self::Store(Table::new(store, "dpop", clock))
    }

    pub(super) fn in_memory() -> Self {
        Self::Memory(Arc::new(Memory::new()))
    }

    /// Remembers a proof. Of any number of calls with one proof, a single one is the first.
    pub(super) fn mark(&self, proof: &Proof, now: Moment) -> MaybeReady<BoxFuture<'static, Mark>> {
        let digest = proof.digest();
        match self {
            Self::Memory(memory) => MaybeReady::Ready(memory.mark(proof.thumbprint(), &digest, now)),
            Self::Store(table) => {
                let (table, forgotten_at) = (table.clone(), proof.forgotten_at());
                MaybeReady::Pending(Box::pin(async move {
                    match table.insert(None, digest.as_bytes(), &(), forgotten_at).await {
                        Ok(Outcome::Done(_)) => Mark::First,
                        Ok(Outcome::Lost(_)) => Mark::Again,
                        Err(error) => {
                            crate::util::trace::warning!("proofs can't be remembered: {error}");
                            Mark::Unknown
                        }
                    }
                }))
            }
        }
    }
}
