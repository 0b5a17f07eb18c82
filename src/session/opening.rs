//! A session that begins in one call of the store, together with other writes.

use std::sync::Arc;

use super::{
    rows::{ListedSession, SessionList, SessionRow},
    session::{NewSession, Session},
    sessions::Sessions,
};
use crate::{
    event::EventKind,
    http::cookie::SetCookie,
    store::{Operation, OperationOutcome, StoreError, table::ReadRow},
    util::{public_id::PublicId, secret::Secret},
};

/// A session that is about to begin.
pub(crate) struct Opening {
    session: Session,
    secret: Secret,
    list: ReadRow<SessionList>,
}

impl Sessions {
    /// Prepares a session with an id that was chosen before. `new` has to have the generation of its sign-in. Most users
    /// have no other session, so the list of the user is not read first.
    pub(crate) fn opening(&self, sid: PublicId, new: NewSession) -> Opening {
        let secret = Secret::generate();
        let generation = new.generation.unwrap_or_default();
        let row = new.into_row(generation, secret.digest(), self.rows().now(), self.lifetimes().absolute);
        Opening { session: Session::new(sid, Arc::new(row)), secret, list: ReadRow::ABSENT }
    }

    /// Returns the operations that list the session and then begin it, or `None` if the oldest session of the user has to
    /// end first. The generation of the user has to be read after them.
    pub(crate) fn opening_writes(&self, opening: &Opening) -> Result<Option<[Operation; 2]>, StoreError> {
        let Opening { session, list, .. } = opening;
        let (tenant, user, sid) = (session.tenant(), session.user(), session.sid());
        let now = self.lists().now();
        let before = list.value().cloned().unwrap_or_default().without_expired(now);
        let after = before.clone().with(ListedSession::new(sid, session.expires()));
        if !before.missing_in(&after).is_empty() {
            return Ok(None);
        }
        let row = SessionRow::Live(Arc::clone(session.row()));
        let keep_until = self.lifetimes().keep_until(&session.row().times);
        Ok(Some([
            self.lists().writing(Some(tenant), user.as_str().as_bytes(), list, &after, after.expires(now))?,
            self.rows().writing(None, sid.as_bytes(), &ReadRow::<SessionRow>::ABSENT, &row, keep_until)?,
        ]))
    }

    /// Takes the list of the user from the write that lost against it.
    pub(crate) fn relist(&self, opening: &mut Opening, lost: Option<OperationOutcome>) -> Result<(), StoreError> {
        opening.list = self.lists().row(lost)?;
        Ok(())
    }

    /// Returns the session after both writes, and its cookie. Ends the session and returns `None` if `generation`, which
    /// was read after the writes, was raised since the sign-in began.
    pub(crate) async fn finish_opening(
        &self,
        opening: Opening,
        generation: u64,
    ) -> Result<Option<(SetCookie, Session)>, StoreError> {
        let Opening { session, secret, .. } = opening;
        if !self.is_of_generation(&session, Ok(generation)).await? {
            return Ok(None);
        }
        self.record(EventKind::SessionCreated, &session);
        Ok(Some((self.cookie(&session, &secret), session)))
    }
}
