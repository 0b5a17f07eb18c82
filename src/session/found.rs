//! A session as a look-up finds it. Only the part of its row that every request needs is decoded; the rest waits until
//! somebody asks for it.

use std::sync::{Arc, OnceLock};

use super::rows::{LiveSession, RowParts, SessionDetails, SessionHead, SessionRow, corrupt};
use crate::{
    store::{StoreError, table::Value},
    tenant::Tenant,
    util::clock::UnixTime,
};

/// A row of the table of sessions, for looking at it. The session is behind a pointer at once, because moving it would
/// take longer than decoding it.
pub(super) enum FoundRow {
    Live(Arc<FoundSession>),
    Ended(Tenant),
}

/// A live session whose row was checked, but not decoded completely.
pub(super) struct FoundSession {
    pub(super) head: SessionHead,
    /// The rest of the row. Empty if it has no details, or if the whole row is known.
    rest: Box<[u8]>,
    has_device: bool,
    row: OnceLock<Box<LiveSession>>,
}

impl FoundSession {
    /// Sets the last use.
    pub(super) fn use_at(&mut self, now: UnixTime) {
        self.head.times.last_use = now;
        if let Some(row) = self.row.get_mut() {
            row.last_use = now;
        }
    }

    /// Returns the whole row.
    #[expect(clippy::expect_used, reason = "the row was checked when it was read")]
    pub(super) fn row(&self) -> &LiveSession {
        self.row.get_or_init(|| {
            let details = match self.rest.is_empty() {
                true => SessionDetails::default(),
                false => SessionDetails::read(&self.rest, self.has_device).expect("the row is valid"),
            };
            Box::new(LiveSession::of(self.head.clone(), details))
        })
    }
}

impl From<LiveSession> for FoundSession {
    fn from(row: LiveSession) -> Self {
        Self { head: (&row).into(), rest: Box::default(), has_device: false, row: OnceLock::from(Box::new(row)) }
    }
}

impl From<SessionRow> for FoundRow {
    fn from(row: SessionRow) -> Self {
        match row {
            SessionRow::Live(row) => Self::Live(Arc::new(row.into())),
            SessionRow::Ended(tenant) => Self::Ended(tenant),
        }
    }
}

impl Value for FoundRow {
    /// Never called: this view of the table only reads.
    fn write(&self) -> Result<Vec<u8>, StoreError> {
        Err(corrupt())
    }

    fn read(bytes: &[u8]) -> Result<Self, StoreError> {
        // without an `acr`, a client, an `amr` and proofs
        const NO_DETAILS: &[u8] = &[0; 4];
        match RowParts::read(bytes).ok_or_else(corrupt)? {
            RowParts::Ended(tenant) => Ok(Self::Ended(tenant)),
            RowParts::Live { head, rest, has_device } => {
                let rest = match rest {
                    NO_DETAILS if !has_device => Box::default(),
                    rest if RowParts::is_rest(rest, has_device) => rest.into(),
                    _ => return Err(corrupt()),
                };
                Ok(Self::Live(Arc::new(FoundSession { head, rest, has_device, row: OnceLock::new() })))
            }
        }
    }
}
