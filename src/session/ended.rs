//! Whether a session was ended, for what was issued from it.

use std::sync::Arc;

use super::rows::{ENDED, LIVE, SESSIONS};
use crate::{
    gate::MaybeReady,
    store::{
        AnyStore, BoxFuture, Key, StoreError, StoreErrorKind,
        table::{Stored, Table, Value},
    },
    util::{clock::Clock, public_id::PublicId},
};

/// Which sessions were ended. Sessions that expired without being ended are not among them.
#[derive(Clone, Debug)]
pub(crate) struct EndedSessions(Table<EndMark>);

/// A row of a session of which only the kind is read.
pub(super) struct EndMark {
    pub(super) has_ended: bool,
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
        self.0.get(None, sid.as_bytes()).map(|row| row.map(has_ended))
    }

    /// Prepares a check of one session that can be repeated without allocating.
    pub(crate) fn check(&self, sid: &PublicId) -> Result<SessionEndCheck, StoreError> {
        Ok(SessionEndCheck { key: self.0.key(None, sid.as_bytes())?, rows: self.0.clone() })
    }
}

/// A repeatable check whether one session was ended.
#[derive(Debug)]
pub(crate) struct SessionEndCheck {
    rows: Table<EndMark>,
    key: Key,
}

impl SessionEndCheck {
    /// Returns whether the session was ended; at once if the store answers at once.
    pub(crate) fn has_ended(&self) -> MaybeReady<BoxFuture<'static, Result<bool, StoreError>>> {
        self.rows.get_at(&self.key).map(|row| row.map(has_ended))
    }
}

fn has_ended(row: Option<Stored<EndMark>>) -> bool {
    row.is_some_and(|row| row.value.has_ended)
}
