//! How sessions begin, change and end.
//!
//! Two rows describe a session: its own, under its `sid`, and the list of its user. Every
//! live session is listed, so nothing escapes [`Sessions::list`] and
//! [`Sessions::revoke_user`], even if a node crashes in between: a session is listed before
//! it begins, and it ends before it is removed from the list. Ending a session that has not
//! begun yet leaves its end in the row, so a sign-in under way cannot begin it afterwards.
//!
//! A session that begins or is renewed is written first, and then the generation of its
//! user is read. [`Sessions::end_user`] raises the generation first and then reads the list.
//! So one of the two always sees the other.

use std::time::Duration;

#[cfg(any(feature = "login", test))]
use super::identity::Proof;
use super::{
    identity::{Authentication, UserId},
    rows::{ListedSession, LiveSession, REMEMBERED, SessionList, SessionRow},
    session::{NewSession, Session},
    sessions::Sessions,
};
use crate::{
    event::EventKind,
    http::cookie::SetCookie,
    store::{Outcome, StoreError, StoreErrorKind, table::Change},
    tenant::Tenant,
    util::{clock::UnixTime, handle::Handle, secret::Secret},
};

/// How often a list is read again because others change it.
const LIST_ROUNDS: usize = 64;

/// The maximum number of tenants at which one browser is signed in.
#[cfg(any(feature = "login", test))]
const MOST_TENANTS: usize = 4;

/// What a sign-in of a user who already has a session in this browser changes.
#[cfg(any(feature = "login", test))]
#[derive(Debug)]
pub(crate) enum Renewal {
    /// The user proved everything anew, so the absolute lifetime restarts.
    FullSignIn(NewSession),
    /// The user proved more. The absolute end stays, and so does whether the session is
    /// remembered.
    StepUp(NewSession),
}

impl Sessions {
    /// Begins a session and returns the cookie that carries it. The id and the secret are
    /// new, so nobody can plant them beforehand.
    ///
    /// A user has up to 100 sessions. Beyond that, the oldest is revoked.
    ///
    /// This creates a second session if the browser already has one. End the one it replaces
    /// with [`revoke`](Self::revoke). `AuthService` does that, and it ends the oldest session
    /// when a browser signs in at a fifth tenant; this function does neither.
    ///
    /// # Errors
    ///
    /// Besides errors of the store, returns `Busy` if all sessions of the user were ended at
    /// that very moment.
    pub async fn create(&self, new: NewSession) -> Result<(SetCookie, Session), StoreError> {
        self.create_unless_ended(new).await?.ok_or_else(|| StoreErrorKind::Busy.into())
    }

    /// Begins a session. Returns `None` if the user's sessions were ended since the sign-in
    /// began.
    pub(crate) async fn create_unless_ended(
        &self,
        new: NewSession,
    ) -> Result<Option<(SetCookie, Session)>, StoreError> {
        let (authentication, secret) = (self.with_generation(&new).await?, Secret::generate());
        let (tenant, user) = (authentication.tenant.clone(), authentication.user.clone());
        let now = self.rows().now();
        let row = LiveSession {
            authentication,
            secret: secret.digest(),
            client: new.client,
            amr: new.amr,
            declared_auth_time: new.auth_time.unwrap_or(now),
            created: now,
            expires: now + new.remember.unwrap_or(self.lifetimes().absolute),
            last_use: now,
            remembered: new.remember.is_some(),
        };
        let sid = Handle::random();
        let listed = ListedSession::new(sid, row.expires);
        let revoked = self.amend(&tenant, &user, |list| Some(list.with(listed.clone()))).await?.unwrap_or_default();
        self.record_revoked(&revoked);
        let keep_until = self.lifetimes().keep_until(&row);
        let written = SessionRow::Live(row.clone());
        if let Outcome::Lost(_) = self.rows().insert(None, sid.as_bytes(), &written, keep_until).await? {
            return Ok(None);
        }
        let session = Session::new(sid, row);
        if !self.is_of_current_generation(&session).await? {
            return Ok(None);
        }
        self.record(EventKind::SessionCreated, &session);
        Ok(Some((self.cookie(&session, &secret), session)))
    }

    /// Gives a session a new secret and invalidates the old one at once. Call this when the
    /// rights of the session change. Its id, its user and its absolute end stay.
    ///
    /// Returns `None` if the session has ended or got another secret in the meantime: of
    /// several calls for one session, one succeeds. If the store fails, the user may have to
    /// sign in again.
    pub async fn rotate(&self, session: &Session) -> Result<Option<(SetCookie, Session)>, StoreError> {
        let secret = Secret::generate();
        let change = |row: &LiveSession, now| LiveSession { secret: secret.digest(), last_use: now, ..row.clone() };
        let Some(rotated) = self.change(session, change).await? else { return Ok(None) };
        self.record(EventKind::SessionRenewed, &rotated);
        Ok(Some((self.cookie(&rotated, &secret), rotated)))
    }

    /// Updates a session after its user has signed in again or has proved more, and gives it
    /// a new secret.
    ///
    /// Returns `None` if the session has ended or got another secret in the meantime, if
    /// the user's sessions were ended since the sign-in began, or if `renewal` is about
    /// another user.
    #[cfg(any(feature = "login", test))]
    pub(crate) async fn renew(
        &self,
        session: &Session,
        renewal: Renewal,
    ) -> Result<Option<(SetCookie, Session)>, StoreError> {
        let (new, is_full) = match renewal {
            Renewal::FullSignIn(new) => (new, true),
            Renewal::StepUp(new) => (new, false),
        };
        let (authentication, secret) = (self.with_generation(&new).await?, Secret::generate());
        let (tenant, user) = (session.tenant(), session.user());
        if authentication.tenant != *tenant || authentication.user != *user {
            return Ok(None);
        }
        let began = self.rows().now();
        let expires = began + new.remember.unwrap_or(self.lifetimes().absolute);
        if is_full {
            // what would fail below must not make the session the newest
            let current = self.get(&session.sid()).await?;
            if current.is_none_or(|current| !current.row().secret.matches(&session.row().secret)) {
                return Ok(None);
            }
            // first the list, because it must never name an earlier end than the row
            let listed = ListedSession::new(session.sid(), expires);
            if self.amend(tenant, user, |list| list.renewed(listed.clone())).await?.is_none() {
                return Ok(None);
            }
        }
        let change = |row: &LiveSession, now| {
            let lifetime = if is_full { (began, expires, new.remember.is_some()) } else { lifetime_of(row) };
            LiveSession {
                authentication: authentication.clone(),
                secret: secret.digest(),
                client: new.client.clone(),
                amr: new.amr.clone(),
                declared_auth_time: new.auth_time.unwrap_or(now),
                created: lifetime.0,
                expires: lifetime.1,
                remembered: lifetime.2,
                last_use: now,
            }
        };
        let Some(renewed) = self.change(session, change).await? else { return Ok(None) };
        if !self.is_of_current_generation(&renewed).await? {
            return Ok(None);
        }
        self.record(EventKind::SessionRenewed, &renewed);
        Ok(Some((self.cookie(&renewed, &secret), renewed)))
    }

    /// Removes proofs that no longer count, and with them the `acr` that they reached. `amr`
    /// computes the new names from the remaining proofs.
    ///
    /// Ends the session if no proof is left, and returns `None`. Also returns `None` if the
    /// session has ended in the meantime. Sessions that never had proofs stay as they are.
    #[cfg(any(feature = "login", test))]
    pub(crate) async fn keep_proofs(
        &self,
        session: &Session,
        keep: impl Fn(&Proof) -> bool + Send + Sync,
        amr: impl Fn(&[Proof]) -> Box<[Box<str>]> + Send + Sync,
    ) -> Result<Option<Session>, StoreError> {
        if session.authentication().proofs.iter().all(&keep) {
            return Ok(Some(session.clone()));
        }
        let lifetimes = self.lifetimes();
        let step = |row: Option<&SessionRow>, now: UnixTime| {
            let Some(SessionRow::Live(row)) = row else { return Change::Keep(None) };
            if now >= lifetimes.end_of(row) || row.authentication.proofs.iter().all(&keep) {
                return Change::Keep(Some(row.clone()).filter(|row| now < lifetimes.end_of(row)));
            }
            let mut kept = row.clone();
            kept.authentication.proofs.retain(&keep);
            kept.authentication.acr = None;
            kept.amr = amr(&kept.authentication.proofs);
            if kept.authentication.proofs.is_empty() {
                let ended = SessionRow::Ended(row.authentication.tenant.clone());
                return Change::Put(ended, row.expires + REMEMBERED, Some(kept));
            }
            let keep_until = lifetimes.keep_until(&kept);
            Change::Put(SessionRow::Live(kept.clone()), keep_until, Some(kept))
        };
        let Some(row) = self.rows().update(None, session.sid().as_bytes(), step).await? else { return Ok(None) };
        let had_proofs = !session.authentication().proofs.is_empty();
        // with the secret that was passed: if another one has replaced it, a rotation must still fail
        let kept = Session::new(session.sid(), LiveSession { secret: session.row().secret, ..row });
        if had_proofs && kept.authentication().proofs.is_empty() {
            self.record(EventKind::SessionRevoked, &kept);
            self.unlist(kept.tenant(), kept.user(), kept.sid()).await;
            return Ok(None);
        }
        Ok(Some(kept))
    }

    /// Ends a session: a sign-out. It is refused from the next request on.
    pub async fn revoke(&self, session: &Session) -> Result<(), StoreError> {
        let listed = ListedSession::new(session.sid(), session.expires());
        let ended = self.end(session.tenant(), &listed).await?;
        self.record_revoked(&Vec::from_iter(ended));
        self.unlist(session.tenant(), session.user(), session.sid()).await;
        Ok(())
    }

    /// Ends the session with this id. Returns whether there was one.
    ///
    /// A `sid` is not a secret. If users name the session to end, check first that it is
    /// one of their own: [`get`](Self::get) returns its tenant and user.
    pub async fn revoke_sid(&self, sid: &Handle) -> Result<bool, StoreError> {
        let Some(stored) = self.rows().get(None, sid.as_bytes()).wait().await? else { return Ok(false) };
        let SessionRow::Live(row) = stored.value else { return Ok(false) };
        let Authentication { tenant, user, .. } = &row.authentication;
        let ended = self.end(tenant, &ListedSession::new(*sid, row.expires)).await?;
        let lived = ended.is_some();
        self.record_revoked(&Vec::from_iter(ended));
        self.unlist(tenant, user, *sid).await;
        Ok(lived)
    }

    /// Ends all sessions of a user. Returns how many there were.
    ///
    /// A sign-in that has not reached its session yet is not stopped: see
    /// [`end_user`](Self::end_user).
    pub async fn revoke_user(&self, tenant: &Tenant, user: &UserId) -> Result<usize, StoreError> {
        self.revoke_if(tenant, user, |_| true).await
    }

    /// Ends all sessions of a user except this one. Returns how many there were.
    pub async fn revoke_others(&self, session: &Session) -> Result<usize, StoreError> {
        let own = session.sid();
        self.revoke_if(session.tenant(), session.user(), |sid| *sid != own).await
    }

    /// Ends all sessions of a user and everything else that the user has begun: sign-ins
    /// under way, and the tokens that an `AuthService` on the same store has issued.
    /// Returns how many sessions there were.
    ///
    /// It does not matter whether the clocks of the nodes agree. The user can sign in again
    /// at once.
    pub async fn end_user(&self, tenant: &Tenant, user: &UserId) -> Result<usize, StoreError> {
        self.generations().raise(tenant, user).await?;
        self.revoke_user(tenant, user).await
    }

    /// Returns the live sessions of a user, oldest sign-in first.
    pub async fn list(&self, tenant: &Tenant, user: &UserId) -> Result<Vec<Session>, StoreError> {
        let Some(list) = self.lists().get(Some(tenant), user.as_str().as_bytes()).wait().await? else {
            return Ok(Vec::new());
        };
        let mut sessions = Vec::new();
        for listed in list.value.iter() {
            sessions.extend(self.get(&listed.sid).await?);
        }
        Ok(sessions)
    }

    /// Ends the sessions that `session` replaces in its browser: other sessions at the same
    /// tenant, and the oldest sessions at other tenants beyond four tenants. Call this after
    /// a sign-in, with the headers of its request. Returns the cookies that remove those of
    /// the ended sessions.
    #[cfg(any(feature = "login", test))]
    pub(crate) async fn end_replaced(
        &self,
        headers: &http::HeaderMap,
        session: &Session,
    ) -> Result<Vec<SetCookie>, StoreError> {
        let mut others = self.signed_in(headers).await?;
        others.retain(|other| other.sid() != session.sid());
        others.sort_by_key(Session::created);
        // by name: two tenants can have one cookie, and then the new one replaces the other
        let own = self.cookie_name(session.tenant());
        let (replaced, others): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|other| self.cookie_name(other.tenant()) == own);
        for session in &replaced {
            self.revoke(session).await?;
        }
        let mut oldest_first: Vec<&Tenant> = Vec::new();
        for other in &others {
            if !oldest_first.contains(&other.tenant()) {
                oldest_first.push(other.tenant());
            }
        }
        let beyond = (oldest_first.len() + 1).saturating_sub(MOST_TENANTS);
        let mut removals = Vec::new();
        for tenant in oldest_first.into_iter().take(beyond) {
            for other in others.iter().filter(|other| other.tenant() == tenant) {
                self.revoke(other).await?;
            }
            removals.push(self.removal(tenant));
        }
        Ok(removals)
    }

    /// Returns the authentication of a new session, with the current generation if the
    /// sign-in has not read it.
    async fn with_generation(&self, new: &NewSession) -> Result<Authentication, StoreError> {
        let mut authentication = new.authentication.clone();
        if !new.has_generation {
            let (tenant, user) = (&authentication.tenant, &authentication.user);
            authentication.generation = self.generations().current(tenant, user).wait().await?;
        }
        Ok(authentication)
    }

    /// Checks the generation of a session that was just written, and ends the session if its
    /// user was ended since the sign-in began.
    async fn is_of_current_generation(&self, session: &Session) -> Result<bool, StoreError> {
        let current = self.generations().current(session.tenant(), session.user()).wait().await;
        if matches!(current, Ok(current) if current <= session.authentication().generation) {
            return Ok(true);
        }
        // nobody has its secret yet, so a failure here does no harm
        let ended = self.revoke(session).await;
        current?;
        ended?;
        Ok(false)
    }

    fn cookie(&self, session: &Session, secret: &Secret) -> SetCookie {
        let remaining = session.expires().as_nanos().saturating_sub(self.rows().now().as_nanos());
        let max_age = session.row().remembered.then(|| Duration::from_nanos(remaining));
        self.cookies().set(session.tenant(), session.sid(), secret, max_age)
    }

    async fn revoke_if(
        &self,
        tenant: &Tenant,
        user: &UserId,
        whether: impl Fn(&Handle) -> bool + Send,
    ) -> Result<usize, StoreError> {
        let rest = move |list: SessionList| Some(list.only(|listed| !whether(&listed.sid)));
        let ended = self.amend(tenant, user, rest).await?.unwrap_or_default();
        self.record_revoked(&ended);
        Ok(ended.len())
    }

    fn record_revoked<'a>(&self, ended: impl IntoIterator<Item = &'a Session>) {
        for session in ended {
            self.record(EventKind::SessionRevoked, session);
        }
    }

    /// Changes the row of a session by one compare-and-swap, if the session lives and still
    /// has the secret of the one that is passed.
    async fn change(
        &self,
        session: &Session,
        change: impl Fn(&LiveSession, UnixTime) -> LiveSession + Send + Sync,
    ) -> Result<Option<Session>, StoreError> {
        let (lifetimes, secret) = (self.lifetimes(), session.row().secret);
        let step = |row: Option<&SessionRow>, now: UnixTime| match row {
            Some(SessionRow::Live(row)) if row.secret.matches(&secret) && now < lifetimes.end_of(row) => {
                let changed = change(row, now);
                let keep_until = lifetimes.keep_until(&changed);
                Change::Put(SessionRow::Live(changed.clone()), keep_until, Some(changed))
            }
            _ => Change::Keep(None),
        };
        let changed = self.rows().update(None, session.sid().as_bytes(), step).await?;
        Ok(changed.map(|row| Session::new(session.sid(), row)))
    }

    /// Ends a session. Returns it if it was live until now.
    async fn end(&self, tenant: &Tenant, listed: &ListedSession) -> Result<Option<Session>, StoreError> {
        let lifetimes = self.lifetimes();
        let end = |row: Option<&SessionRow>, now: UnixTime| {
            let (lived, expires) = match row {
                Some(SessionRow::Ended(_)) => return Change::Keep(None),
                Some(SessionRow::Live(row)) => {
                    let lived = (now < lifetimes.end_of(row)).then(|| row.clone());
                    (lived, listed.expires().max(row.expires))
                }
                None => (None, listed.expires()),
            };
            Change::Put(SessionRow::Ended(tenant.clone()), expires + REMEMBERED, lived)
        };
        let lived = self.rows().update(None, listed.sid.as_bytes(), end).await?;
        Ok(lived.map(|row| Session::new(listed.sid, row)))
    }

    /// Removes an ended session from the list of its user. A failure does not matter, because
    /// the list may name sessions that have ended.
    async fn unlist(&self, tenant: &Tenant, user: &UserId, sid: Handle) {
        let rest = |list: SessionList| Some(list.only(|listed| listed.sid != sid));
        if let Err(error) = self.amend(tenant, user, rest).await {
            crate::util::trace::warning!("an ended session could not be removed from its list: {error}");
        }
    }

    /// Replaces the list of a user with the result of `plan`, after ending the sessions that
    /// are missing in it. Returns those that were live. Returns `None` if `plan` wants no
    /// change.
    ///
    /// When this is done, every session that was listed before and is not listed now has
    /// ended.
    async fn amend(
        &self,
        tenant: &Tenant,
        user: &UserId,
        mut plan: impl FnMut(SessionList) -> Option<SessionList> + Send,
    ) -> Result<Option<Vec<Session>>, StoreError> {
        let (mut ended, mut lived) = (Vec::<Handle>::new(), Vec::new());
        for _ in 0..LIST_ROUNDS {
            let step = |list: Option<&SessionList>, now: UnixTime| {
                let before = list.cloned().unwrap_or_default().without_expired(now);
                let Some(after) = plan(before.clone()) else { return Change::Keep(AmendStep::NoChange) };
                let mut removed = before.missing_in(&after);
                removed.retain(|listed| !ended.contains(&listed.sid));
                if !removed.is_empty() {
                    return Change::Keep(AmendStep::EndFirst(removed));
                }
                if list.is_none() && after.is_empty() {
                    return Change::Keep(AmendStep::Done);
                }
                let expires = after.expires(now);
                Change::Put(after, expires, AmendStep::Done)
            };
            match self.lists().update(Some(tenant), user.as_str().as_bytes(), step).await? {
                AmendStep::NoChange => return Ok(None),
                AmendStep::Done => return Ok(Some(lived)),
                AmendStep::EndFirst(removed) => {
                    for listed in removed {
                        lived.extend(self.end(tenant, &listed).await?);
                        ended.push(listed.sid);
                    }
                }
            }
        }
        Err(StoreErrorKind::Busy.into())
    }
}

/// Creation, absolute end, and whether the session is remembered.
#[cfg(any(feature = "login", test))]
fn lifetime_of(row: &LiveSession) -> (UnixTime, UnixTime, bool) {
    (row.created, row.expires, row.remembered)
}

/// What is left to do before a list can be replaced.
enum AmendStep {
    NoChange,
    EndFirst(Vec<ListedSession>),
    Done,
}
