//! How sessions begin and end.
//!
//! Two rows stand for a session: its own, under the digest of its secret, and
//! its user's, which lists digests. What lives is always listed, so that
//! nothing escapes [`Sessions::list`] and [`Sessions::revoke_user`], whatever is
//! torn down in between: a session is listed before it begins, and ends before
//! it is taken from the list. One that ends where none has begun leaves its end
//! there, so that a sign-in or a rotation under way can't begin it afterwards.

use super::{
    NewSession, Session, Sessions, UserId,
    index::{Index, Listed},
    record::{REMEMBERED, Record, Row},
};
use crate::{
    event::EventKind,
    http::cookie::SetCookie,
    store::{StoreError, StoreErrorKind, WriteOutcome, table::Change},
    tenant::Tenant,
    util::{
        clock::UnixTime,
        handle::Handle,
        secret::{Digest, Secret},
    },
};

/// How often the list is read again because others change it.
const ROUNDS: usize = 64;

impl Sessions {
    /// Begins a session with a secret of its own, never one that a caller
    /// brought, and gives the cookie that carries it.
    ///
    /// A user has up to 100 sessions; with one more, the oldest is revoked. The
    /// error is `Busy` if all sessions of the user were revoked at that very
    /// moment.
    pub async fn create(&self, new: NewSession) -> Result<(SetCookie, Session), StoreError> {
        self.create_with(&Secret::generate(), new).await
    }

    /// The same with a secret that was made just now, for who has to know its digest before.
    pub(crate) async fn create_with(
        &self,
        secret: &Secret,
        new: NewSession,
    ) -> Result<(SetCookie, Session), StoreError> {
        let record = Record::new(new, self.rows().now(), self.lifetimes());
        let (tenant, user) = (record.tenant.clone(), record.user.clone());
        let listed = Listed::new(secret.digest(), record.expires);
        let amended =
            self.amend(&tenant, &user, Vec::new(), |index| Some(index.with(listed.clone()))).await?.unwrap_or_default();
        self.note_revoked(&amended);
        let session = self.begin(secret, record).await?.ok_or(StoreErrorKind::Busy)?;
        self.journal().record(EventKind::SessionCreated, &session, self.time());
        Ok((self.cookie(secret), session))
    }

    /// Gives a session a new secret, and ends the old one at once; to be called
    /// when what a session may do changes. Identity and absolute end stay.
    ///
    /// `None` if it had ended already, or is ended meanwhile. Of several calls
    /// for one session, one gets the new secret. If the store fails, the user
    /// may have to sign in again.
    pub async fn rotate(&self, session: &Session) -> Result<Option<(SetCookie, Session)>, StoreError> {
        self.rotate_with(&Secret::generate(), session).await
    }

    /// The same with a secret that was made just now, for who has to know its digest before.
    pub(crate) async fn rotate_with(
        &self,
        secret: &Secret,
        session: &Session,
    ) -> Result<Option<(SetCookie, Session)>, StoreError> {
        let old = Listed::new(session.digest(), session.expires());
        let Some(mut record) = self.end(session.tenant(), &old).await? else { return Ok(None) };
        record.last_use = self.rows().now();
        let new = Listed::new(secret.digest(), record.expires);
        let replace = |index: Index| index.replaced(&old.digest, new.clone());
        if self.amend(session.tenant(), session.user(), vec![old.clone()], replace).await?.is_none() {
            return Ok(None);
        }
        let Some(renewed) = self.begin(secret, record).await? else { return Ok(None) };
        self.journal().record(EventKind::SessionRenewed, &renewed, self.time());
        Ok(Some((self.cookie(secret), renewed)))
    }

    /// Ends a session: a sign-out. From the next request on it is refused.
    pub async fn revoke(&self, session: &Session) -> Result<(), StoreError> {
        let listed = Listed::new(session.digest(), session.expires());
        let ended = self.end(session.tenant(), &listed).await?;
        self.note_revoked(&Vec::from_iter(ended.map(|record| Session::new(listed.digest, record))));
        // the list may name what has ended, so whether this succeeds does not matter
        let digest = listed.digest;
        let rest = |index: Index| Some(index.only(|listed| !listed.digest.matches(&digest)));
        let _amended = self.amend(session.tenant(), session.user(), vec![listed], rest).await;
        Ok(())
    }

    /// Ends the session of a user that has this handle; says whether there was one.
    pub async fn revoke_one(&self, tenant: &Tenant, user: &UserId, handle: &Handle) -> Result<bool, StoreError> {
        let ended = self.revoke_if(tenant, user, |digest| Handle::of(digest) == *handle).await?;
        Ok(ended > 0)
    }

    /// Ends all sessions of a user, also those whose sign-in is under way; says
    /// how many there were.
    pub async fn revoke_user(&self, tenant: &Tenant, user: &UserId) -> Result<usize, StoreError> {
        self.revoke_if(tenant, user, |_| true).await
    }

    /// Ends all sessions of a user but this one; says how many there were.
    pub async fn revoke_others(&self, session: &Session) -> Result<usize, StoreError> {
        let own = session.digest();
        self.revoke_if(session.tenant(), session.user(), |digest| !digest.matches(&own)).await
    }

    /// The sessions of a user, oldest first.
    pub async fn list(&self, tenant: &Tenant, user: &UserId) -> Result<Vec<Session>, StoreError> {
        let Some(index) = self.users().get(Some(tenant), user.as_str().as_bytes()).wait().await? else {
            return Ok(Vec::new());
        };
        let mut sessions = Vec::new();
        for listed in index.value.iter() {
            let found = self.rows().get(None, listed.digest.as_bytes()).wait().await?;
            if let Some(Row::Live(record)) = found.map(|stored| stored.value)
                && self.rows().now() < self.lifetimes().end_of(&record)
            {
                sessions.push(Session::new(listed.digest, record));
            }
        }
        Ok(sessions)
    }

    /// The digest of a session, until its absolute end, if it was not revoked.
    #[cfg(feature = "login")]
    pub(crate) async fn listed(
        &self,
        tenant: &Tenant,
        user: &UserId,
        handle: &Handle,
    ) -> Result<Option<Digest>, StoreError> {
        let index = self.users().get(Some(tenant), user.as_str().as_bytes()).wait().await?;
        let listed = index.and_then(|index| {
            let mut digests = index.value.iter().map(|listed| listed.digest);
            digests.find(|digest| Handle::of(digest) == *handle)
        });
        Ok(listed)
    }

    async fn revoke_if(
        &self,
        tenant: &Tenant,
        user: &UserId,
        whether: impl Fn(&Digest) -> bool + Send,
    ) -> Result<usize, StoreError> {
        let rest = move |index: Index| Some(index.only(|listed| !whether(&listed.digest)));
        let ended = self.amend(tenant, user, Vec::new(), rest).await?.unwrap_or_default();
        self.note_revoked(&ended);
        Ok(ended.len())
    }

    fn note_revoked(&self, ended: &[Session]) {
        for session in ended {
            self.journal().record(EventKind::SessionRevoked, session, self.time());
        }
    }

    /// Writes the row of a session, unless its end stands there already.
    async fn begin(&self, secret: &Secret, record: Record) -> Result<Option<Session>, StoreError> {
        let digest = secret.digest();
        let kept_until = self.lifetimes().end_of(&record) + REMEMBERED;
        let row = Row::Live(record.clone());
        match self.rows().insert(None, digest.as_bytes(), &row, kept_until).await? {
            WriteOutcome::Done(_) => Ok(Some(Session::new(digest, record))),
            WriteOutcome::Lost(_) => Ok(None),
        }
    }

    /// Ends a session; gives it if it lived until now.
    async fn end(&self, tenant: &Tenant, listed: &Listed) -> Result<Option<Record>, StoreError> {
        let lifetimes = self.lifetimes();
        let end = |row: Option<&Row>, now: UnixTime| {
            let lived = match row {
                Some(Row::Ended(_)) => return Change::Keep(None),
                Some(Row::Live(record)) => Some(record).filter(|record| now < lifetimes.end_of(record)).cloned(),
                None => None,
            };
            Change::Put(Row::Ended(tenant.clone()), listed.expires() + REMEMBERED, lived)
        };
        self.rows().update(None, listed.digest.as_bytes(), end).await
    }

    /// Changes the list of a user to what `plan` makes of it, after the
    /// sessions that are not in it any more have ended; those not among
    /// `ended` already are given. `None` if `plan` wants no change.
    ///
    /// When it is done, no session lives that was on the list before and is not
    /// on it now: should one be added meanwhile, it begins anew.
    async fn amend(
        &self,
        tenant: &Tenant,
        user: &UserId,
        mut ended: Vec<Listed>,
        mut plan: impl FnMut(Index) -> Option<Index> + Send,
    ) -> Result<Option<Vec<Session>>, StoreError> {
        let mut lived = Vec::new();
        for _ in 0..ROUNDS {
            let step = |index: Option<&Index>, now: UnixTime| {
                let before = index.cloned().unwrap_or_default().living(now);
                let Some(after) = plan(before.clone()) else { return Change::Keep(Step::Nothing) };
                let mut doomed = before.without(&after);
                doomed.retain(|listed| !ended.iter().any(|done| done.digest.matches(&listed.digest)));
                if !doomed.is_empty() {
                    return Change::Keep(Step::End(doomed));
                }
                if index.is_none() && after.is_empty() {
                    return Change::Keep(Step::Done);
                }
                let expires = after.expires(now);
                Change::Put(after, expires, Step::Done)
            };
            match self.users().update(Some(tenant), user.as_str().as_bytes(), step).await? {
                Step::Nothing => return Ok(None),
                Step::Done => return Ok(Some(lived)),
                Step::End(doomed) => {
                    for listed in doomed {
                        let record = self.end(tenant, &listed).await?;
                        lived.extend(record.map(|record| Session::new(listed.digest, record)));
                        ended.push(listed);
                    }
                }
            }
        }
        Err(StoreErrorKind::Busy.into())
    }
}

enum Step {
    Nothing,
    End(Vec<Listed>),
    Done,
}
