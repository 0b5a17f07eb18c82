//! How sessions begin and are renewed: a few writes, in one call of the store that can have others between them.

use std::sync::Arc;

use super::{
    generations::UserBatch,
    rows::{ListedSession, SessionList, SessionRow, SessionTimes},
    session::{NewSession, Session},
    sessions::Sessions,
};
use crate::{
    event::EventKind,
    http::cookie::SetCookie,
    store::{
        StoreError, StoreErrorKind,
        batch::{Batch, Outcomes, Slot},
        table::ReadRow,
    },
    util::{public_id::PublicId, secret::Secret},
};

/// How often the writes are tried again because others change the list of the user or the session.
const ROUNDS: usize = 64;

/// A new sign-in of a user who already has a session in this browser.
#[derive(Clone, Debug)]
pub(crate) enum Renewal {
    /// The user proved all steps again, so the absolute lifetime restarts.
    FullSignIn(NewSession),
    /// The user proved more. Whether the session is remembered stays, and so does the absolute
    /// end, unless the new proofs are remembered for a shorter time.
    StepUp(NewSession),
}

/// A session that is about to begin or to be renewed.
pub(crate) struct Opening {
    /// The session as it will be.
    session: Session,
    secret: Secret,
    /// The row that it replaces.
    over: ReadRow<SessionRow>,
    /// The list of its user. `None` if it stays as it is.
    list: Option<ReadRow<SessionList>>,
    /// Sessions that were ended to make room in the list.
    ended: Vec<PublicId>,
}

impl Opening {
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    fn is_new(&self) -> bool {
        self.over.live.is_none()
    }

    /// Returns whether the list was written or stays as it is. If not, notes the list that the write lost against.
    pub(crate) fn note_listed(
        &mut self,
        list: Option<&Slot<'_, SessionList>>,
        outcomes: &Outcomes,
    ) -> Result<bool, StoreError> {
        let Some(lost) = list.filter(|list| outcomes.version(list).is_none()) else { return Ok(true) };
        self.list = Some(outcomes.row(lost)?);
        Ok(false)
    }
}

impl Sessions {
    /// Begins a session and returns the cookie that carries it. The id and the secret are
    /// always new, so an attacker cannot plant them beforehand.
    ///
    /// A user has up to 100 sessions. Beyond that, the oldest is revoked.
    ///
    /// This creates a second session if the browser already has one. End the one it replaces
    /// with [`revoke`](Self::revoke).
    ///
    /// # Errors
    ///
    /// Besides errors of the store, returns `Busy` if all sessions of the user were ended at
    /// that very moment.
    pub async fn create(&self, new: NewSession) -> Result<(SetCookie, Session), StoreError> {
        self.create_unless_ended(new).await?.ok_or_else(|| StoreErrorKind::Busy.into())
    }

    /// Begins a session. Returns `None` if the user's sessions were ended since the sign-in began.
    pub(crate) async fn create_unless_ended(
        &self,
        new: NewSession,
    ) -> Result<Option<(SetCookie, Session)>, StoreError> {
        let opening = self.opening(PublicId::random(), new).await?;
        self.open(opening).await
    }

    /// Updates a session after its user has signed in again or has proved more, and gives it
    /// a new secret.
    ///
    /// Returns `None` if the session has ended or got another secret in the meantime, if
    /// the user's sessions were ended since the sign-in began, or if `renewal` is about
    /// another user.
    pub(crate) async fn renew(
        &self,
        session: &Session,
        renewal: Renewal,
    ) -> Result<Option<(SetCookie, Session)>, StoreError> {
        for _ in 0..ROUNDS {
            let Some(opening) = self.renewal(session, renewal.clone()).await? else { return Ok(None) };
            // without a result, it was changed since it was read, or has ended
            if let Some(renewed) = self.open(opening).await? {
                return Ok(Some(renewed));
            }
        }
        Err(StoreErrorKind::Busy.into())
    }

    /// Prepares a session with an id that was chosen before. Most users have no other session, so the list of the user is not
    /// read first.
    pub(crate) async fn opening(&self, sid: PublicId, new: NewSession) -> Result<Opening, StoreError> {
        let (generation, secret) = (self.generation_of(&new).await?, Secret::generate());
        let row = new.into_row(generation, secret.digest(), self.rows().now(), self.lifetimes().absolute);
        let session = Session::new(sid, Arc::new(row));
        Ok(Opening { session, secret, over: ReadRow::ABSENT, list: Some(ReadRow::ABSENT), ended: Vec::new() })
    }

    /// Prepares the renewal of a session. Returns `None` like [`renew`](Self::renew).
    pub(crate) async fn renewal(&self, session: &Session, renewal: Renewal) -> Result<Option<Opening>, StoreError> {
        let (new, is_full) = match renewal {
            Renewal::FullSignIn(new) => (new, true),
            Renewal::StepUp(new) => (new, false),
        };
        let (tenant, user, sid) = (session.tenant(), session.user(), session.sid());
        if new.tenant != *tenant || new.user != *user {
            return Ok(None);
        }
        let (generation, secret, longest) = (self.generation_of(&new).await?, Secret::generate(), new.remember);
        let mut batch = Batch::without_user(self.store());
        let row = batch.add(self.rows().prepare_row_read(None, sid.as_bytes())?);
        let list = match is_full {
            true => Some(batch.add(self.lists().prepare_row_read(Some(tenant), user.as_str().as_bytes())?)),
            false => None,
        };
        let read = batch.run().await?;
        let (over, list) = (read.row(&row)?, list.map(|list| read.row(&list)).transpose()?);
        let now = self.rows().now();
        let Some(SessionRow::Live(row)) = over.value() else { return Ok(None) };
        if !row.secret.matches(&session.row().secret) || now >= self.end_of(&row.times) {
            return Ok(None);
        }
        let mut renewed = new.into_row(generation, secret.digest(), now, self.lifetimes().absolute);
        if !is_full {
            // a session of several steps may have to end earlier than one of a single step
            let expires = longest.map_or(row.times.expires, |longest| row.times.expires.min(now + longest));
            renewed.times = SessionTimes { expires, last_use: now, ..row.times };
        }
        Ok(Some(Opening { session: Session::new(sid, Arc::new(renewed)), secret, over, list, ended: Vec::new() }))
    }

    /// Adds the write that lists the session, which comes before [`add_row`](Self::add_row). Ends the oldest sessions of a user
    /// who has too many. Returns `None` if the list stays as it is.
    ///
    /// A session is listed before it begins, because this can fail if the user has others, and a list with a session that never
    /// begins is of no consequence. The list never has an earlier end than the row.
    pub(crate) async fn add_list<'s>(
        &'s self,
        opening: &mut Opening,
        batch: &mut UserBatch<'_>,
    ) -> Result<Option<Slot<'s, SessionList>>, StoreError> {
        let Opening { session, list: Some(list), ended, .. } = opening else { return Ok(None) };
        let (tenant, now) = (session.tenant(), self.lists().now());
        let listed = ListedSession { sid: session.sid(), expires: session.expires() };
        let before = list.value().cloned().unwrap_or_default().without_expired(now);
        // one that is not listed any more is about to end, which its row shows
        let after = before.clone().with(listed);
        let mut lived = Vec::new();
        for surplus in before.missing_in(&after) {
            if !ended.contains(&surplus.sid) {
                lived.extend(self.end(tenant, &surplus).await?);
                ended.push(surplus.sid);
            }
        }
        self.record_revoked(&lived);
        let user = session.user().as_str().as_bytes();
        Ok(Some(batch.add(self.lists().prepare_row_write(Some(tenant), user, list, &after, after.expires(now))?)))
    }

    /// Adds the write that begins or renews the session. The generation of the user has to be the one of the session after it.
    pub(crate) fn add_row<'s>(
        &'s self,
        opening: &Opening,
        batch: &mut UserBatch<'_>,
    ) -> Result<Slot<'s, SessionRow>, StoreError> {
        let Opening { session, over, .. } = opening;
        let (row, keep_until) = (session.row(), self.lifetimes().keep_until(&session.row().times));
        let write = self.rows().prepare_row_write(
            None,
            session.sid().as_bytes(),
            over,
            &SessionRow::Live(Arc::clone(row)),
            keep_until,
        )?;
        Ok(batch.add(write))
    }

    /// Returns the session after its writes, and its cookie.
    pub(crate) fn finish_opening(&self, opening: Opening) -> (SetCookie, Session) {
        let kind = if opening.is_new() { EventKind::SessionCreated } else { EventKind::SessionRenewed };
        let Opening { session, secret, .. } = opening;
        self.record(kind, &session);
        (self.cookie(&session, &secret), session)
    }

    /// Begins or renews a session. Returns `None` if its row has changed, or if the user's sessions were ended since the sign-in
    /// began.
    async fn open(&self, mut opening: Opening) -> Result<Option<(SetCookie, Session)>, StoreError> {
        let (tenant, user) = (opening.session.tenant().clone(), opening.session.user().clone());
        for _ in 0..ROUNDS {
            let mut batch = self.generations().batch(&tenant, &user)?;
            let list = self.add_list(&mut opening, &mut batch).await?;
            let row = self.add_row(&opening, &mut batch)?;
            let Some(outcomes) = batch.run().await?.since(opening.session.generation()) else {
                // its secret was not sent to anyone yet, so a failure here does no harm
                self.revoke(&opening.session).await?;
                return Ok(None);
            };
            if opening.note_listed(list.as_ref(), &outcomes)? {
                let is_done = outcomes.version(&row).is_some();
                return Ok(is_done.then(|| self.finish_opening(opening)));
            }
        }
        Err(StoreErrorKind::Busy.into())
    }

    /// Returns the generation of the user of a new session.
    async fn generation_of(&self, new: &NewSession) -> Result<u64, StoreError> {
        match new.generation {
            Some(read) => Ok(read),
            None => self.generations().current(&new.tenant, &new.user).wait().await,
        }
    }
}
