//! Rows of sessions of which only a part is decoded: the part that every request needs, or only whether the session was
//! ended.

use std::sync::{Arc, OnceLock};

use super::rows::{
    ENDED, LIVE, LIVE_ON_DEVICE, LiveSession, RowParts, SESSIONS, SessionDetails, SessionHead, SessionRow, corrupt,
};
use crate::{
    gate::MaybeReady,
    store::{
        AnyStore, BoxFuture, Key, StoreError,
        table::{Stored, Table, Value},
    },
    tenant::Tenant,
    util::{
        clock::{Clock, UnixTime},
        handle::Handle,
    },
};

/// A row of the table of sessions, for looking at it. The session is behind a pointer at once, because moving it would
/// take longer than decoding it. So is the tenant of an ended one, which is rare.
pub(super) enum FoundRow {
    Live(Arc<FoundSession>),
    Ended(Box<Tenant>),
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
            SessionRow::Ended(tenant) => Self::Ended(Box::new(tenant)),
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
            RowParts::Ended(tenant) => Ok(Self::Ended(Box::new(tenant))),
            RowParts::Live { head, rest, has_device } => {
                let rest = match rest {
                    NO_DETAILS if !has_device => Box::default(),
                    rest if RowParts::is_rest(rest, has_device) => rest.into(),
                    _ => return Err(corrupt()),
                };
                let head = head.decode().ok_or_else(corrupt)?;
                Ok(Self::Live(Arc::new(FoundSession { head, rest, has_device, row: OnceLock::new() })))
            }
        }
    }
}

/// Which sessions were ended. Sessions that expired without being ended are not among them.
#[derive(Clone, Debug)]
pub(crate) struct EndedSessions(Table<EndMark>);

/// A row of a session of which only the kind is read.
pub(super) struct EndMark {
    pub(super) has_ended: bool,
}

impl Value for EndMark {
    /// Never called: this view of the table only reads.
    fn write(&self) -> Result<Vec<u8>, StoreError> {
        Err(corrupt())
    }

    fn read(bytes: &[u8]) -> Result<Self, StoreError> {
        match bytes.first() {
            Some(&ENDED) => Ok(Self { has_ended: true }),
            Some(&LIVE | &LIVE_ON_DEVICE) => Ok(Self { has_ended: false }),
            _ => Err(corrupt()),
        }
    }
}

#[cfg_attr(not(feature = "tokens"), allow(dead_code, reason = "only tokens ask whether their session has ended"))]
impl EndedSessions {
    pub(crate) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self(Table::new(store, SESSIONS, clock))
    }

    /// Returns whether the session was ended; at once if the store answers at once.
    pub(crate) fn contains(&self, sid: &Handle) -> MaybeReady<BoxFuture<'static, Result<bool, StoreError>>> {
        match self.check(sid) {
            Ok(check) => check.has_ended(),
            Err(error) => MaybeReady::Ready(Err(error)),
        }
    }

    /// Prepares a check of one session that can be repeated without allocating.
    pub(crate) fn check(&self, sid: &Handle) -> Result<SessionEndCheck, StoreError> {
        Ok(SessionEndCheck { key: self.0.key(None, sid.as_bytes())?, rows: self.0.clone() })
    }
}

/// A repeatable check whether one session was ended.
#[derive(Debug)]
pub(crate) struct SessionEndCheck {
    rows: Table<EndMark>,
    key: Key,
}

#[cfg_attr(not(feature = "tokens"), allow(dead_code, reason = "only tokens ask whether their session has ended"))]
impl SessionEndCheck {
    /// Returns whether the session was ended; at once if the store answers at once.
    pub(crate) fn has_ended(&self) -> MaybeReady<BoxFuture<'static, Result<bool, StoreError>>> {
        let has_ended = |row: Option<Stored<EndMark>>| row.is_some_and(|row| row.value.has_ended);
        match self.rows.get_at(&self.key) {
            MaybeReady::Ready(row) => MaybeReady::Ready(row.map(has_ended)),
            MaybeReady::Pending(row) => MaybeReady::Pending(Box::pin(async move { row.await.map(has_ended) })),
        }
    }
}
