//! From the cookies of a request to its session.

use std::sync::Arc;

use http::HeaderMap;

use super::{
    cookies::{PresentedCookies, SessionCookie},
    rows::{SessionRow, SessionTimes},
    session::Session,
    sessions::Sessions,
};
use crate::{
    event::EventKind,
    gate::MaybeReady,
    store::{BoxFuture, StoreError, WriteOutcome, table::Stored},
    tenant::Tenant,
    util::{clock::UnixTime, public_id::PublicId},
};

/// Use is recorded if the last record is this many seconds old.
const USE_RECORDED_EVERY: u64 = 60;

pub(super) type LookupResult = Result<Option<Session>, StoreError>;

/// The session of a cookie that was accepted. If its use is to be recorded, the row must still be as it was read.
type Accepted = (Session, Option<Stored<()>>);

impl Sessions {
    /// Finds the live session behind the cookies; at once if the store answers at once.
    ///
    /// Ignores sessions of tenants other than `tenant`, if one is given. Finds nothing if two
    /// of the cookies belong to live sessions.
    #[inline]
    pub(super) fn find(
        &self,
        cookies: &PresentedCookies,
        tenant: Option<&Tenant>,
    ) -> MaybeReady<BoxFuture<'static, LookupResult>> {
        match cookies {
            PresentedCookies::Absent | PresentedCookies::Unusable => MaybeReady::Ready(Ok(None)),
            PresentedCookies::One(cookie) => {
                let tenant = tenant.cloned();
                self.look_up(cookie).map(move |found| found.map(|found| of_tenant(found, tenant.as_ref())))
            }
            PresentedCookies::Several(cookies) => {
                let (sessions, cookies, tenant) = (self.clone(), cookies.clone(), tenant.cloned());
                MaybeReady::Pending(Box::pin(async move { sessions.only_one_of(&cookies, tenant.as_ref()).await }))
            }
        }
    }

    /// Finds the session of a browser at this tenant.
    pub(crate) async fn presented(&self, headers: &HeaderMap, tenant: &Tenant) -> LookupResult {
        self.find(&self.cookies().of_tenant(headers, tenant), Some(tenant)).wait().await
    }

    /// Finds all live sessions of a browser, of any tenant. Looks at 16 cookies at most.
    #[cfg(test)]
    pub(crate) async fn signed_in(&self, headers: &HeaderMap) -> Result<Vec<Session>, StoreError> {
        let mut sessions: Vec<Session> = Vec::new();
        for cookie in self.cookies().first_of_all_tenants(headers) {
            if sessions.iter().all(|known| known.sid() != cookie.sid) {
                sessions.extend(self.look_up(&cookie).wait().await?);
            }
        }
        Ok(sessions)
    }

    /// Finds the sessions whose secret the browser holds, including idle and expired ones that were not revoked: what was
    /// issued from those can still be valid.
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
    pub async fn get(&self, sid: &PublicId) -> Result<Option<Session>, StoreError> {
        let Some(stored) = self.rows().get(None, sid.as_bytes()).wait().await? else { return Ok(None) };
        self.store().cutoff().wait().await?;
        Ok(match stored.value {
            SessionRow::Live(row) if self.rows().now() < self.end_of(&row.times) => Some(Session::new(*sid, row)),
            SessionRow::Live(_) | SessionRow::Ended(_) => None,
        })
    }

    async fn only_one_of(&self, cookies: &[SessionCookie], tenant: Option<&Tenant>) -> LookupResult {
        let mut only = None;
        for cookie in cookies {
            if let Some(session) = of_tenant(self.look_up(cookie).wait().await?, tenant)
                && only.replace(session).is_some()
            {
                return Ok(None);
            }
        }
        Ok(only)
    }

    #[inline]
    fn look_up(&self, cookie: &SessionCookie) -> MaybeReady<BoxFuture<'static, LookupResult>> {
        let key = match self.rows().key(None, cookie.sid.as_bytes()) {
            Ok(key) => key,
            Err(error) => return MaybeReady::Ready(Err(error)),
        };
        let cutoff = match self.store().knows_cutoff() {
            true => None,
            false => Some(self.store().cutoff()),
        };
        let found: MaybeReady<BoxFuture<'static, _>> = match cutoff {
            None | Some(MaybeReady::Ready(Ok(_))) => self.rows().get_at(&key),
            Some(MaybeReady::Ready(Err(error))) => return MaybeReady::Ready(Err(error)),
            // this table may answer at once although others don't
            Some(MaybeReady::Pending(cutoff)) => {
                let rows = self.rows().clone();
                MaybeReady::Pending(Box::pin(async move {
                    cutoff.await?;
                    rows.get_at(&key).wait().await
                }))
            }
        };
        let checked = match found {
            MaybeReady::Ready(found) => found.map(|found| self.check(cookie, found, self.rows().now())),
            MaybeReady::Pending(found) => {
                let (sessions, cookie) = (self.clone(), *cookie);
                return MaybeReady::Pending(Box::pin(async move {
                    let found = found.await?;
                    // last, because the read may have shown that it has moved
                    sessions.store().cutoff().wait().await?;
                    let checked = sessions.check(&cookie, found, sessions.rows().now());
                    Ok(sessions.finish(&cookie, checked).await)
                }));
            }
        };
        match checked {
            Ok(due @ Some((_, Some(_)))) => {
                let (sessions, cookie) = (self.clone(), *cookie);
                MaybeReady::Pending(Box::pin(async move { Ok(sessions.finish(&cookie, due).await) }))
            }
            checked => MaybeReady::Ready(checked.map(|accepted| accepted.map(|(session, _)| session))),
        }
    }

    /// Compares a cookie with the row of its session, and counts it if it is refused.
    #[inline]
    fn check(&self, cookie: &SessionCookie, found: Option<Stored<SessionRow>>, now: UnixTime) -> Option<Accepted> {
        let Stored { value, version, expires_at } = found?;
        let refuse = |kind, tenant: &Tenant| {
            self.tally(kind, tenant, cookie.sid);
            None
        };
        let mut row = match value {
            SessionRow::Ended(tenant) => return refuse(EventKind::SessionUseAfterExpire, &tenant),
            SessionRow::Live(row) => row,
        };
        // check the secret first: the sid is public, and callers without the secret must learn nothing
        if !row.secret.matches(&cookie.secret) {
            return refuse(EventKind::SessionWrongSecret, &row.tenant);
        }
        if now >= self.end_of(&row.times) {
            return refuse(EventKind::SessionUseAfterExpire, &row.tenant);
        }
        let due = is_due(&row.times, now).then(|| {
            Arc::make_mut(&mut row).times.last_use = now;
            Stored { value: (), version, expires_at }
        });
        Some((Session::new(cookie.sid, row), due))
    }

    /// Records the use of the session if that is due, and returns the session unless the cookie was refused.
    async fn finish(&self, cookie: &SessionCookie, accepted: Option<Accepted>) -> Option<Session> {
        match accepted? {
            (used, Some(read)) => self.record_use(cookie, &read, used).await,
            (session, None) => Some(session),
        }
    }

    /// Records the use of a session, unless somebody has written its row since it was read.
    /// In that case the new row decides, so that a revoked session stays revoked.
    async fn record_use(&self, cookie: &SessionCookie, read: &Stored<()>, used: Session) -> Option<Session> {
        let keep_until = self.lifetimes().keep_until(&used.row().times);
        let row = SessionRow::Live(Arc::clone(used.row()));
        match self.rows().swap(None, cookie.sid.as_bytes(), read, &row, keep_until).await {
            Ok(WriteOutcome::Done(_)) => Some(used),
            Ok(WriteOutcome::Lost(instead)) => Some(self.check(cookie, instead, self.rows().now())?.0),
            // the session lives; if its use is not recorded, it only ends earlier
            Err(error) => {
                crate::util::trace::failure!("the use of a session could not be recorded", &error);
                self.store_failed();
                Some(used)
            }
        }
    }
}

fn is_due(session: &SessionTimes, now: UnixTime) -> bool {
    now.as_nanos().saturating_sub(session.last_use.as_nanos()) >= USE_RECORDED_EVERY * 1_000_000_000
}

fn of_tenant(session: Option<Session>, tenant: Option<&Tenant>) -> Option<Session> {
    session.filter(|session| tenant.is_none_or(|tenant| tenant == session.tenant()))
}

#[cfg(test)]
mod tests {
    use std::{future::Future, sync::Mutex, time::Duration};

    use http::header::COOKIE;

    use super::*;
    use crate::{
        event::{EventLog, Query},
        session::{
            identity::UserId,
            model::{cookie_of, present},
            rows::KEPT_AFTER_END,
            session::NewSession,
        },
        store::{AnyStore, Entry, Key, Memory, Record, Store, StoreErrorKind, Version, table::Change},
        testing::{ManualClock, block_on},
        util::{lock::lock, secret::Secret},
    };

    type Step = Box<dyn FnOnce() -> Result<(), StoreError> + Send>;

    /// A store that answers later or at once, and that does something else before its next read or write.
    #[derive(Clone, Default)]
    struct Interrupted {
        memory: Arc<Memory>,
        at_once: bool,
        /// Answers at once for sessions.
        knows_sessions: bool,
        before_read: Arc<Mutex<Option<Step>>>,
        before_write: Arc<Mutex<Option<Step>>>,
    }

    fn interrupt(at: &Mutex<Option<Step>>) -> Result<(), StoreError> {
        let step = lock(at).take();
        step.map_or(Ok(()), |step| step())
    }

    impl Store for Interrupted {
        fn get(
            &self,
            key: &Key,
        ) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
            let (store, key) = (self.clone(), key.clone());
            let at_once = self.at_once || self.knows_sessions && key.table() == "sessions";
            let answer = async move {
                interrupt(&store.before_read)?;
                store.memory.get(&key).wait().await
            };
            if at_once { MaybeReady::Ready(block_on(answer)) } else { MaybeReady::Pending(answer) }
        }

        async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
            self.memory.insert(key, record).await
        }

        async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
            interrupt(&self.before_write)?;
            self.memory.swap(key, expected, record).await
        }

        async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
            self.memory.take(key).await
        }
    }

    struct World {
        sessions: Sessions,
        clock: ManualClock,
        log: EventLog,
    }

    impl World {
        fn new(store: impl Into<AnyStore>) -> Self {
            let (clock, log) = (ManualClock::new(), EventLog::new());
            let sessions = Sessions::builder(store).clock(clock.clone()).events(log.clone()).build().unwrap();
            Self { sessions, clock, log }
        }

        fn sign_in(&self, tenant: &str) -> (SessionCookie, Session) {
            let new = NewSession::new(Tenant::parse(tenant).unwrap(), UserId::parse("ada").unwrap());
            let (cookie, session) = block_on(self.sessions.create(new)).unwrap();
            (cookie_of(&cookie), session)
        }

        fn row(&self, cookie: SessionCookie) -> Stored<SessionRow> {
            block_on(self.sessions.rows().get(None, cookie.sid.as_bytes()).wait()).unwrap().unwrap()
        }
    }

    /// Calls `test` with a store that answers at once, and with one that answers later.
    fn with_both_stores(test: impl Fn(&World)) {
        test(&World::new(Memory::new()));
        test(&World::new(Interrupted::default()));
    }

    #[test]
    fn what_has_ended_with_everything_stays_ended_in_a_store_that_answers_for_sessions_before_other_tables() {
        let store = Interrupted { knows_sessions: true, ..Interrupted::default() };
        let world = World::new(store.clone());
        let (cookie, _) = world.sign_in("acme");
        assert!(present(&world.sessions, cookie).unwrap().is_some());
        block_on(world.sessions.store().end_everything(Arc::new(world.clock.clone()))).unwrap();
        // another process
        let sessions = Sessions::builder(store).clock(world.clock.clone()).build().unwrap();
        assert!(present(&sessions, cookie).unwrap().is_none());
    }

    #[test]
    fn sessions_of_another_tenant_are_ignored() {
        with_both_stores(|world| {
            let [(acme, own), (globex, _)] = ["acme", "globex"].map(|tenant| world.sign_in(tenant));
            let find = |cookies| block_on(world.sessions.find(&cookies, Some(own.tenant())).wait()).unwrap();
            assert!(find(PresentedCookies::One(globex)).is_none());
            for cookies in [vec![acme, globex], vec![globex, acme]] {
                assert_eq!(find(PresentedCookies::Several(cookies)).unwrap().sid(), own.sid());
            }
        });
    }

    #[test]
    fn a_use_is_recorded_after_a_minute_and_the_row_is_kept_until_25_hours_after_the_new_end() {
        const HOUR: Duration = Duration::from_secs(3600);
        with_both_stores(|world| {
            let (cookie, session) = world.sign_in("acme");
            let before = world.row(cookie);
            world.clock.advance(Duration::from_secs(60) - Duration::from_nanos(1));
            assert_eq!(present(&world.sessions, cookie).unwrap().unwrap().last_use(), session.created());
            assert_eq!(world.row(cookie).version, before.version);
            world.clock.advance(Duration::from_nanos(1));
            let used_at = session.created() + Duration::from_secs(60);
            assert_eq!(present(&world.sessions, cookie).unwrap().unwrap().last_use(), used_at);
            let row = world.row(cookie);
            assert_eq!(row.expires_at, used_at + HOUR + 25 * HOUR);
            assert!(matches!(row.value, SessionRow::Live(row) if row.times.last_use == used_at));
        });
    }

    #[test]
    fn if_a_row_was_written_since_it_was_read_the_new_row_decides() {
        type Write = fn(&Sessions, &Session) -> Result<(), StoreError>;
        let revoke: Write = |sessions, session| block_on(sessions.revoke(session));
        let rotate: Write = |sessions, session| block_on(sessions.rotate(session)).map(|_| ());
        // as another request with this cookie does
        let touch: Write = |sessions, session| {
            let unchanged = |row: Option<&SessionRow>, now| Change::Put(row.unwrap().clone(), now + KEPT_AFTER_END, ());
            block_on(sessions.rows().update(None, session.sid().as_bytes(), unchanged))
        };
        for (write, survives) in [(revoke, false), (rotate, false), (touch, true)] {
            let store = Interrupted::default();
            let world = World::new(store.clone());
            let (cookie, session) = world.sign_in("acme");
            world.clock.advance(Duration::from_secs(60));
            let sessions = world.sessions.clone();
            let step: Step = Box::new(move || write(&sessions, &session));
            *lock(&store.before_write) = Some(step);
            assert_eq!(present(&world.sessions, cookie).unwrap().is_some(), survives);
        }
    }

    #[test]
    fn a_process_reads_when_everything_was_ended_before_it_accepts_its_first_cookie() {
        for at_once in [false, true] {
            let store = Interrupted { at_once, ..Interrupted::default() };
            let [one, other] = [0, 1].map(|_| AnyStore::from(store.clone()));
            let (world, restarted) = (World::new(one.clone()), World::new(other));
            let (cookie, _) = world.sign_in("acme");
            block_on(one.end_everything(Arc::new(world.clock.clone()))).unwrap();
            assert!(present(&restarted.sessions, cookie).unwrap().is_none());
        }
    }

    #[test]
    fn a_session_that_expires_before_the_store_answers_is_refused() {
        let store = Interrupted::default();
        let world = World::new(store.clone());
        let (cookie, _) = world.sign_in("acme");
        let clock = world.clock.clone();
        let step: Step = Box::new(move || {
            clock.advance(Duration::from_secs(3600));
            Ok(())
        });
        *lock(&store.before_read) = Some(step);
        assert!(present(&world.sessions, cookie).unwrap().is_none());
    }

    #[test]
    fn a_session_whose_use_cannot_be_recorded_lives_on_and_the_failure_is_counted() {
        let store = Interrupted::default();
        let world = World::new(store.clone());
        let (cookie, session) = world.sign_in("acme");
        world.clock.advance(Duration::from_secs(60));
        *lock(&store.before_write) = Some(Box::new(|| Err(StoreErrorKind::Unavailable.into())));
        assert_eq!(present(&world.sessions, cookie).unwrap().unwrap().sid(), session.sid());
        let failed = world.log.read_events(&Query::new().kind(EventKind::StoreFailed));
        assert_eq!(failed.events.iter().map(|event| event.count).sum::<u64>(), 1);
    }

    #[test]
    fn a_row_that_cannot_be_read_is_an_error_and_not_a_missing_session() {
        let store = AnyStore::from(Memory::new());
        let world = World::new(store.clone());
        let (cookie, _) = world.sign_in("acme");
        let key = world.sessions.rows().key(None, cookie.sid.as_bytes()).unwrap();
        let now = world.sessions.rows().now();
        let version = world.row(cookie).version;
        let corrupt = Record::new(vec![0xff], now, now + Duration::from_secs(60)).unwrap();
        let _written = block_on(store.swap(&key, version, corrupt)).unwrap();
        assert_eq!(present(&world.sessions, cookie).unwrap_err().kind(), StoreErrorKind::Corrupt);
    }

    #[test]
    fn a_browser_that_knows_only_the_sid_holds_no_session() {
        let world = World::new(Memory::new());
        let (_, session) = world.sign_in("acme");
        let cookie = world.sessions.cookie(&session, &Secret::generate());
        let header = cookie.header_value();
        let (pair, _) = header.to_str().unwrap().split_once(';').unwrap();
        let headers = HeaderMap::from_iter([(COOKIE, pair.parse().unwrap())]);
        assert!(block_on(world.sessions.held(&headers)).unwrap().is_empty());
    }
}
