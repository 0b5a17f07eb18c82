//! From the cookies of a request to its session.

use std::sync::Arc;

#[cfg(any(feature = "login", test))]
use http::HeaderMap;

use super::{
    cookies::{PresentedCookies, SessionCookie},
    found::FoundRow,
    rows::{SessionRow, SessionTimes},
    session::Session,
    sessions::Sessions,
};
use crate::{
    event::EventKind,
    gate::MaybeReady,
    store::{BoxFuture, StoreError, WriteOutcome, table::Stored},
    tenant::Tenant,
    util::{clock::UnixTime, handle::Handle},
};

/// Use is recorded if the last record is this many seconds old.
const USE_RECORDED_EVERY: u64 = 60;

pub(super) type LookupResult = Result<Option<Session>, StoreError>;

/// The result of comparing a cookie with the row of its session.
enum CookieCheck {
    /// Refused, and this event must be counted.
    Refused(Option<(EventKind, Tenant)>),
    Accepted(Session),
    /// Accepted, and its use must be recorded: replace the version that was read with this row.
    UseIsDue(Stored<()>, Session),
}

impl Sessions {
    /// Finds the live session behind the cookies; at once if the store answers at once.
    ///
    /// Ignores sessions of tenants other than `tenant`, if one is given. Finds nothing if two
    /// of the cookies belong to live sessions.
    pub(super) fn find(
        &self,
        cookies: PresentedCookies,
        tenant: Option<Tenant>,
    ) -> MaybeReady<BoxFuture<'static, LookupResult>> {
        match cookies {
            PresentedCookies::Absent | PresentedCookies::Unusable => MaybeReady::Ready(Ok(None)),
            PresentedCookies::One(cookie) => match self.look_up(cookie) {
                MaybeReady::Ready(found) => MaybeReady::Ready(found.map(|found| of_tenant(found, tenant.as_ref()))),
                MaybeReady::Pending(future) => {
                    MaybeReady::Pending(Box::pin(async move { Ok(of_tenant(future.await?, tenant.as_ref())) }))
                }
            },
            PresentedCookies::Several(cookies) => {
                let sessions = self.clone();
                MaybeReady::Pending(Box::pin(async move { sessions.only_one_of(cookies, tenant).await }))
            }
        }
    }

    /// Finds the session of a browser at this tenant.
    #[cfg(any(feature = "login", test))]
    pub(crate) async fn presented(&self, headers: &HeaderMap, tenant: &Tenant) -> LookupResult {
        self.find(self.cookies().of_tenant(headers, tenant), Some(tenant.clone())).wait().await
    }

    /// Finds all live sessions of a browser, of any tenant. Looks at 16 cookies at most.
    #[cfg(test)]
    pub(crate) async fn signed_in(&self, headers: &HeaderMap) -> Result<Vec<Session>, StoreError> {
        let mut sessions: Vec<Session> = Vec::new();
        for cookie in self.cookies().first_of_all_tenants(headers) {
            if sessions.iter().all(|known| known.sid() != cookie.sid) {
                sessions.extend(self.look_up(cookie).wait().await?);
            }
        }
        Ok(sessions)
    }

    /// Finds the sessions whose secret the browser holds, including idle and expired ones that were not revoked: tokens
    /// issued from those can still be live.
    #[cfg(any(feature = "login", test))]
    pub(crate) async fn held(&self, headers: &HeaderMap) -> Result<Vec<Session>, StoreError> {
        let mut sessions: Vec<Session> = Vec::new();
        for cookie in self.cookies().first_of_all_tenants(headers) {
            let Some(stored) = self.rows().get(None, cookie.sid.as_bytes()).wait().await? else { continue };
            if let SessionRow::Live(row) = stored.value
                && row.secret.matches(&cookie.secret)
                && sessions.iter().all(|known| known.sid() != cookie.sid)
            {
                sessions.push(Session::new(cookie.sid, row));
            }
        }
        Ok(sessions)
    }

    /// Finds a live session by its id, without recording that it was used.
    pub async fn get(&self, sid: &Handle) -> Result<Option<Session>, StoreError> {
        let Some(stored) = self.rows().get(None, sid.as_bytes()).wait().await? else { return Ok(None) };
        Ok(match stored.value {
            SessionRow::Live(row) if self.rows().now() < self.lifetimes().end_of(&row) => Some(Session::new(*sid, row)),
            SessionRow::Live(_) | SessionRow::Ended(_) => None,
        })
    }

    async fn only_one_of(&self, cookies: Vec<SessionCookie>, tenant: Option<Tenant>) -> LookupResult {
        let mut only = None;
        for cookie in cookies {
            if let Some(session) = of_tenant(self.look_up(cookie).wait().await?, tenant.as_ref())
                && only.replace(session).is_some()
            {
                return Ok(None);
            }
        }
        Ok(only)
    }

    fn look_up(&self, cookie: SessionCookie) -> MaybeReady<BoxFuture<'static, LookupResult>> {
        let key = self.rows().key(None, cookie.sid.as_bytes());
        let key = match &key {
            Ok(key) => key,
            Err(error) => return MaybeReady::Ready(Err(error.clone())),
        };
        let now = self.rows().now();
        let mut checked = CookieCheck::Refused(None);
        let viewed = self.rows().view_at(key, now, |found| checked = self.check(&cookie, found, now));
        let checked = match viewed {
            Some(viewed) => viewed.map(|()| checked),
            None => match self.rows().get_at(key) {
                MaybeReady::Ready(row) => row.map(|row| self.check(&cookie, found(row), now)),
                MaybeReady::Pending(future) => {
                    let sessions = self.clone();
                    return MaybeReady::Pending(Box::pin(async move {
                        let checked = sessions.check(&cookie, found(future.await?), sessions.rows().now());
                        match checked {
                            CookieCheck::UseIsDue(read, used) => Ok(sessions.record_use(&cookie, &read, used).await),
                            checked => Ok(sessions.accepted(&cookie, checked)),
                        }
                    }));
                }
            },
        };
        match checked {
            Err(error) => MaybeReady::Ready(Err(error)),
            Ok(CookieCheck::UseIsDue(read, used)) => {
                let sessions = self.clone();
                MaybeReady::Pending(Box::pin(async move { Ok(sessions.record_use(&cookie, &read, used).await) }))
            }
            Ok(checked) => MaybeReady::Ready(Ok(self.accepted(&cookie, checked))),
        }
    }

    /// Compares a cookie with the row of its session. Only looks, because the row may be locked.
    fn check(&self, cookie: &SessionCookie, found: Option<Stored<FoundRow>>, now: UnixTime) -> CookieCheck {
        let Some(Stored { value, version, expires_at }) = found else { return CookieCheck::Refused(None) };
        let refused = |kind, tenant| CookieCheck::Refused(Some((kind, tenant)));
        let mut session = match value {
            FoundRow::Ended(tenant) => return refused(EventKind::SessionUseAfterExpire, *tenant),
            FoundRow::Live(session) => session,
        };
        let head = &session.head;
        // check the secret first: the sid is public, and callers without the secret must learn nothing
        if !head.secret.matches(&cookie.secret) {
            return refused(EventKind::SessionWrongSecret, head.tenant.clone());
        }
        if now >= self.lifetimes().end_of(head.times) {
            return refused(EventKind::SessionUseAfterExpire, head.tenant.clone());
        }
        if !is_due(&head.times, now) {
            return CookieCheck::Accepted(Session::found(cookie.sid, session));
        }
        // always succeeds, because this is the only pointer
        if let Some(session) = Arc::get_mut(&mut session) {
            session.use_at(now);
        }
        CookieCheck::UseIsDue(Stored { value: (), version, expires_at }, Session::found(cookie.sid, session))
    }

    /// Returns the session unless the cookie was refused.
    fn accepted(&self, cookie: &SessionCookie, checked: CookieCheck) -> Option<Session> {
        match checked {
            CookieCheck::Refused(event) => {
                if let Some((kind, tenant)) = event {
                    self.tally(kind, &tenant, cookie.sid);
                }
                None
            }
            CookieCheck::Accepted(session) | CookieCheck::UseIsDue(_, session) => Some(session),
        }
    }

    /// Records the use of a session, unless somebody has written its row since it was read.
    /// In that case the new row decides, so that a revoked session stays revoked.
    async fn record_use(&self, cookie: &SessionCookie, read: &Stored<()>, used: Session) -> Option<Session> {
        let keep_until = self.lifetimes().keep_until(used.head().times);
        let row = SessionRow::Live(used.row().clone());
        match self.rows().swap(None, cookie.sid.as_bytes(), read, &row, keep_until).await {
            Ok(WriteOutcome::Done(_)) => Some(used),
            Ok(WriteOutcome::Lost(instead)) => {
                self.accepted(cookie, self.check(cookie, found(instead), self.rows().now()))
            }
            // the session lives; if its use is not recorded, it only ends earlier
            Err(error) => {
                crate::util::trace::warning!("the use of a session could not be recorded: {error}");
                self.store_failed();
                Some(used)
            }
        }
    }
}

fn found(row: Option<Stored<SessionRow>>) -> Option<Stored<FoundRow>> {
    row.map(|row| row.map(FoundRow::from))
}

fn is_due(session: &SessionTimes, now: UnixTime) -> bool {
    now.as_nanos().saturating_sub(session.last_use.as_nanos()) >= USE_RECORDED_EVERY * 1_000_000_000
}

fn of_tenant(session: Option<Session>, tenant: Option<&Tenant>) -> Option<Session> {
    session.filter(|session| tenant.is_none_or(|tenant| tenant == session.tenant()))
}
