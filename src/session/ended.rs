//! Whether a session was ended, for what was issued from it.

use std::sync::Arc;

use super::rows::{ENDED, LIVE, SESSIONS};
use crate::{
    gate::MaybeReady,
    store::{
        AnyStore, BoxFuture, StoreError, StoreErrorKind,
        table::{RowCheck, Table, Value},
    },
    util::{clock::Clock, public_id::PublicId},
};

/// Which sessions were ended. Sessions that expired without being ended are not among them.
#[derive(Clone, Debug)]
pub(crate) struct EndedSessions(Table<EndMark>);

/// A row of a session of which only the kind is read.
pub(crate) struct EndMark {
    pub(crate) has_ended: bool,
}

impl Value for EndMark {
    /// Never called: this view of the table only reads.
    fn encode_row(&self) -> Result<Vec<u8>, StoreError> {
        Err(StoreErrorKind::NotOffered.into())
    }

    fn decode_row(bytes: &[u8]) -> Result<Self, StoreError> {
        match bytes.first_chunk() {
            Some(&ENDED) => Ok(Self { has_ended: true }),
            Some(&LIVE) => Ok(Self { has_ended: false }),
            _ => Err(StoreErrorKind::Corrupt.into()),
        }
    }
}

impl EndedSessions {
    pub(crate) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self(Table::new(store, SESSIONS, clock))
    }

    /// Returns whether the session was ended; at once if the store answers at once.
    pub(crate) fn contains(&self, sid: &PublicId) -> MaybeReady<BoxFuture<'static, Result<bool, StoreError>>> {
        self.0.get(None, sid.as_bytes()).map(|row| Ok(row?.is_some_and(|row| row.value.has_ended)))
    }

    /// Prepares a check of one session that can be repeated without allocating.
    pub(crate) fn check(&self, sid: &PublicId) -> Result<RowCheck<EndMark>, StoreError> {
        self.0.check(None, sid.as_bytes())
    }
}
