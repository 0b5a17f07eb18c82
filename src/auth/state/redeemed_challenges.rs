//! Code challenges that were redeemed. A client that uses one again does not create fresh ones, so anybody who has seen a
//! verifier could redeem its codes (RFC 9700 §2.1.1).

use std::{sync::Arc, time::Duration};

use crate::{
    login::Binding,
    store::{
        AnyStore, StoreError,
        table::{RowOperation, Table},
    },
    util::{clock::Clock, secret::SecretDigest},
};

/// How long challenges are remembered.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Debug)]
pub(crate) struct RedeemedChallenges(Table<()>);

impl RedeemedChallenges {
    pub(crate) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self(Table::new(store, "redeemed_challenges", clock))
    }

    /// Remembers that a code for this binding was redeemed.
    pub(crate) async fn note_redeemed(&self, binding: &Binding) -> Result<(), StoreError> {
        let (id, kept_until) = (id(binding), self.0.now() + REMEMBERED);
        // one that is remembered already keeps its time
        self.0.insert(None, id.as_bytes(), &(), kept_until).await.map(|_| ())
    }

    /// Returns the operation that reads whether a code for this binding was redeemed.
    pub(crate) fn prepare_challenge_read(&self, binding: &Binding) -> Result<RowOperation<'_, ()>, StoreError> {
        self.0.prepare_row_read(None, id(binding).as_bytes())
    }

    pub(crate) async fn is_redeemed(&self, binding: &Binding) -> Result<bool, StoreError> {
        Ok(self.0.get(None, id(binding).as_bytes()).wait().await?.is_some())
    }
}

/// Each client has its own challenges.
fn id(binding: &Binding) -> SecretDigest {
    SecretDigest::of_secret([binding.code_challenge.as_str(), &*binding.client_id].join(" "))
}
