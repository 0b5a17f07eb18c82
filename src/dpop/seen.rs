//! Remembers used proofs until they are too old anyway.

use std::{sync::Arc, time::Duration};

use super::proof::DpopProof;
use crate::{
    gate::MaybeReady,
    limit::{Limiter, Plans, Quota},
    store::{AnyStore, BoxFuture, WriteOutcome, table::Table},
    tenant::LimitKey,
    util::clock::Clock,
};

/// The rows that one key can have in a store: 800 for each second that they are kept. A caller that floods with one key
/// blocks only itself.
const ROWS_OF_A_KEY: u32 = 56_000;
const KEPT: Duration = Duration::from_secs(70);

/// Remembers used proofs in a store, shared by all nodes and endpoints that use it. Each node limits the rows of each key.
#[derive(Clone, Debug)]
pub(super) struct SeenProofs {
    table: Table<()>,
    rows: Limiter,
}

/// Whether a proof was seen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sighting {
    First,
    Again,
    /// Unknown, because there is no room or the store is unavailable.
    Unknown,
}

impl SeenProofs {
    pub(super) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        let rows = rows_limiter(&clock, ROWS_OF_A_KEY);
        Self { table: Table::new(store, "dpop", clock), rows }
    }

    #[cfg(all(test, feature = "login"))]
    pub(super) fn with_rows(self, clock: &Arc<dyn Clock>, most: u32) -> Self {
        Self { rows: rows_limiter(clock, most), ..self }
    }

    /// Remembers a proof. Of any number of calls with the same proof, exactly one returns
    /// [`Sighting::First`].
    pub(super) fn mark(&self, proof: &DpopProof) -> MaybeReady<BoxFuture<'static, Sighting>> {
        // a prefix of 192 bits needs no allocation
        let key = LimitKey::trusted(proof.thumbprint().as_bytes().get(..32).unwrap_or_default());
        let row = self.rows.check(&key, 1);
        if !row.is_admitted() {
            return MaybeReady::Ready(Sighting::Unknown);
        }
        let Self { table, rows } = self.clone();
        let (digest, forgotten_at) = (proof.digest(), proof.forgotten_at());
        MaybeReady::Pending(Box::pin(async move {
            match table.insert(None, digest.as_bytes(), &(), forgotten_at).await {
                Ok(WriteOutcome::Done(_)) => Sighting::First,
                Ok(WriteOutcome::Lost(_)) => {
                    // a thief who repeats a proof must not use up the rows of its key
                    rows.refund(row.into_spend());
                    Sighting::Again
                }
                Err(error) => {
                    crate::util::trace::failure!("failed to store a DPoP proof", &error);
                    Sighting::Unknown
                }
            }
        }))
    }
}

#[expect(clippy::expect_used, reason = "the settings are constants")]
fn rows_limiter(clock: &Arc<dyn Clock>, most: u32) -> Limiter {
    let quota = Quota::new(most, KEPT).expect("the quota is valid");
    Limiter::builder(Plans::new(quota)).clock(Arc::clone(clock)).max_tenants(100_000).build().expect("there is room")
}
