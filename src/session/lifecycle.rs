//! How sessions change and end.
//!
//! Two rows describe a session: its own, under its `sid`, and the list of its user. Every
//! live session is listed, so nothing escapes [`Sessions::list`] and
//! [`Sessions::revoke_user`], even if a node crashes in between: a session is listed before
//! it begins, and it ends before it is removed from the list. Ending a session that has not
//! begun yet leaves its end in the row, so a sign-in in progress cannot begin it afterwards.
//!
//! A session that begins or is renewed is written first, and then the generation of its
//! user is read. [`Sessions::end_user`] raises the generation first and then reads the list.
//! So one of the two always sees the other, because a read in a call of the store never misses
//! a write whose caller misses the writes of that call: see [`Store::run`](crate::store::Store::run).

use std::{sync::Arc, time::Duration};

use super::{
    identity::{Proof, UserId},
    rows::{KEPT_AFTER_END, ListedSession, LiveSession, SessionList, SessionRow, SessionTimes},
    session::Session,
    sessions::Sessions,
};
use crate::{
    event::EventKind,
    http::cookie::SetCookie,
    store::{StoreError, StoreErrorKind, table::Change},
    tenant::Tenant,
    util::{clock::UnixTime, public_id::PublicId, secret::Secret},
};

/// How often a list is read again because others change it.
const LIST_ROUNDS: usize = 64;

/// The maximum number of tenants at which one browser is signed in.
const MOST_TENANTS: usize = 4;

impl Sessions {
    /// Replaces the secret of a session and invalidates the old one at once. Call this when the rights of the session
    /// change. Its id, its user and its absolute end stay the same.
    ///
    /// Returns `None` if the session has ended or got another secret in the meantime: of
    /// several calls for one session, one succeeds. If the store fails, the user may have to
    /// sign in again.
    ///
    /// A sign-out with the old cookie, while the new one is on its way to the browser, ends nothing.
    pub async fn rotate(&self, session: &Session) -> Result<Option<(SetCookie, Session)>, StoreError> {
        let (lifetimes, known, secret) = (self.lifetimes(), session.row().secret, Secret::generate());
        let step = |row: Option<&SessionRow>, now: UnixTime| match row {
            Some(SessionRow::Live(row)) if row.secret.matches(&known) && now < self.end_of(&row.times) => {
                let times = SessionTimes { last_use: now, ..row.times };
                let rotated = Arc::new(LiveSession { secret: secret.digest(), times, ..LiveSession::clone(row) });
                Change::Put(SessionRow::Live(Arc::clone(&rotated)), lifetimes.keep_until(&times), Some(rotated))
            }
            _ => Change::Keep(None),
        };
        let rotated = self.rows().update(None, session.sid().as_bytes(), step).await?;
        let Some(row) = rotated else { return Ok(None) };
        let rotated = Session::new(session.sid(), row);
        self.record(EventKind::SessionRenewed, &rotated);
        Ok(Some((self.cookie(&rotated, &secret), rotated)))
    }

    /// Replaces each proof by what `keep` returns for it. A session that loses a proof also loses the `acr` that it reached.
    /// `amr` returns the new names for the remaining proofs, or `None` if they are not enough.
    ///
    /// Returns `None` if the session ends because they are not enough, or has ended. One that never had proofs stays as it is.
    pub(crate) async fn keep_proofs(
        &self,
        session: &Session,
        keep: impl Fn(&Proof) -> Option<Proof> + Send + Sync,
        amr: impl Fn(&[Proof]) -> Option<Vec<Box<str>>> + Send + Sync,
    ) -> Result<Option<Session>, StoreError> {
        let kept = |proofs: &[Proof]| proofs.iter().filter_map(&keep).collect::<Vec<_>>();
        if kept(session.proofs()) == session.proofs() {
            return Ok(Some(session.clone()));
        }
        let lifetimes = self.lifetimes();
        let step = |row: Option<&SessionRow>, now: UnixTime| {
            let Some(SessionRow::Live(row)) = row else { return Change::Keep(None) };
            if now >= self.end_of(&row.times) {
                return Change::Keep(None);
            }
            let mut details = row.details.get().clone();
            let proofs = kept(&details.proofs);
            if proofs == details.proofs {
                return Change::Keep(Some((Arc::clone(row), true)));
            }
            let Some(amr) = amr(&proofs) else {
                let ended = SessionRow::Ended(Arc::new(row.tenant.clone()));
                return Change::Put(ended, row.times.expires + KEPT_AFTER_END, Some((Arc::clone(row), false)));
            };
            details.acr = details.acr.filter(|_| proofs.len() == details.proofs.len());
            (details.proofs, details.amr) = (proofs, amr);
            let kept = Arc::new(LiveSession { details: details.into(), ..LiveSession::clone(row) });
            let keep_until = lifetimes.keep_until(&kept.times);
            Change::Put(SessionRow::Live(Arc::clone(&kept)), keep_until, Some((kept, true)))
        };
        let written = self.rows().update(None, session.sid().as_bytes(), step).await?;
        let Some((row, lives)) = written else { return Ok(None) };
        // keep the secret that was passed: if it has been replaced, a rotation must still fail
        let row = LiveSession { secret: session.row().secret, ..Arc::unwrap_or_clone(row) };
        let kept = Session::new(session.sid(), Arc::new(row));
        if !lives {
            self.record(EventKind::SessionRevoked, &kept);
            self.unlist(kept.tenant(), kept.user(), kept.sid()).await;
        }
        Ok(Some(kept).filter(|_| lives))
    }

    /// Ends a session, for example at a sign-out. It is refused from the next request on.
    pub async fn revoke(&self, session: &Session) -> Result<(), StoreError> {
        let listed = ListedSession { sid: session.sid(), expires: session.expires() };
        self.end_and_unlist(session.tenant(), session.user(), &listed).await.map(|_| ())
    }

    /// Ends the session with this id. Returns whether there was one.
    ///
    /// A `sid` is not a secret. If users name the session to end, check first that it is
    /// one of their own: [`get`](Self::get) returns its tenant and user.
    pub async fn revoke_sid(&self, sid: &PublicId) -> Result<bool, StoreError> {
        Ok(self.end_sid(sid).await?.unwrap_or(false))
    }

    /// Ends the session with this id, even if it has expired, because what was issued from it can still be valid. Returns
    /// whether it was live, or `None` if it had already been ended.
    pub(crate) async fn end_sid(&self, sid: &PublicId) -> Result<Option<bool>, StoreError> {
        let Some(stored) = self.rows().get(None, sid.as_bytes()).wait().await? else { return Ok(None) };
        let SessionRow::Live(row) = stored.value else { return Ok(None) };
        let listed = ListedSession { sid: *sid, expires: row.times.expires };
        self.end_and_unlist(&row.tenant, &row.user, &listed).await.map(Some)
    }

    /// Ends the session of a user with this id. If it has not begun yet, it never begins.
    pub(crate) async fn end_or_prevent(
        &self,
        tenant: &Tenant,
        user: &UserId,
        sid: &PublicId,
    ) -> Result<(), StoreError> {
        let listed = ListedSession { sid: *sid, expires: self.rows().now() + self.lifetimes().absolute };
        self.end_and_unlist(tenant, user, &listed).await.map(|_| ())
    }

    /// Ends all sessions of a user. Returns how many there were.
    ///
    /// A sign-in that has not created its session yet is not stopped: see [`end_user`](Self::end_user).
    pub async fn revoke_user(&self, tenant: &Tenant, user: &UserId) -> Result<usize, StoreError> {
        self.revoke_if(tenant, user, |_| true).await
    }

    /// Ends all sessions of a user except this one. Returns how many there were.
    pub async fn revoke_others(&self, session: &Session) -> Result<usize, StoreError> {
        let own = session.sid();
        self.revoke_if(session.tenant(), session.user(), |sid| *sid != own).await
    }

    /// Ends all sessions of a user and everything else that the user has begun: sign-ins
    /// in progress, and what was issued from them by services on the same store.
    /// Returns how many sessions there were.
    ///
    /// It does not matter whether the clocks of the nodes agree. The user can sign in again
    /// at once.
    pub async fn end_user(&self, tenant: &Tenant, user: &UserId) -> Result<usize, StoreError> {
        // if a full store has no room for a generation, the sessions end all the same
        let raised = self.generations().raise(tenant, user).await;
        let ended = self.revoke_user(tenant, user).await?;
        raised?;
        Ok(ended)
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
    /// tenant, and the oldest sessions at other tenants beyond four tenants. Sessions that have
    /// expired are included, because without their cookie no sign-out could end what was issued from them.
    /// Call this after a sign-in, with the headers of its request. Returns the cookies that
    /// remove those of the ended sessions.
    pub(crate) async fn end_replaced(
        &self,
        headers: &http::HeaderMap,
        session: &Session,
    ) -> Result<Vec<SetCookie>, StoreError> {
        let mut others = self.held(headers).await?;
        others.retain(|other| other.sid() != session.sid());
        if others.is_empty() {
            return Ok(Vec::new());
        }
        others.sort_by_key(Session::created);
        // compare names: two tenants can share a cookie name, and then the new cookie replaces the other
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

    pub(super) fn cookie(&self, session: &Session, secret: &Secret) -> SetCookie {
        let remaining = session.expires().as_nanos().saturating_sub(self.rows().now().as_nanos());
        let max_age = session.row().times.remembered.then(|| Duration::from_nanos(remaining));
        self.cookies().set(session.tenant(), session.sid(), secret, max_age)
    }

    async fn revoke_if(
        &self,
        tenant: &Tenant,
        user: &UserId,
        whether: impl Fn(&PublicId) -> bool + Send,
    ) -> Result<usize, StoreError> {
        let rest = move |list: SessionList| list.only(|listed| !whether(&listed.sid));
        let ended = self.amend(tenant, user, None, rest).await?;
        self.record_revoked(&ended);
        Ok(ended.len())
    }

    pub(super) fn record_revoked<'a>(&self, ended: impl IntoIterator<Item = &'a Session>) {
        for session in ended {
            self.record(EventKind::SessionRevoked, session);
        }
    }

    /// Ends a session. Returns it if it was live until now.
    pub(super) async fn end(&self, tenant: &Tenant, listed: &ListedSession) -> Result<Option<Session>, StoreError> {
        let end = |row: Option<&SessionRow>, now: UnixTime| {
            let (lived, expires) = match row {
                Some(SessionRow::Ended(_)) => return Change::Keep(None),
                Some(SessionRow::Live(row)) => {
                    let lived = (now < self.end_of(&row.times)).then(|| Arc::clone(row));
                    (lived, listed.expires.max(row.times.expires))
                }
                None => (None, listed.expires),
            };
            Change::Put(SessionRow::Ended(Arc::new(tenant.clone())), expires + KEPT_AFTER_END, lived)
        };
        let lived = self.rows().update(None, listed.sid.as_bytes(), end).await?;
        Ok(lived.map(|row| Session::new(listed.sid, row)))
    }

    /// Ends a session of a user and removes it from their list. Returns whether it was live until now.
    async fn end_and_unlist(&self, tenant: &Tenant, user: &UserId, listed: &ListedSession) -> Result<bool, StoreError> {
        let ended = self.end(tenant, listed).await?;
        self.record_revoked(&ended);
        self.unlist(tenant, user, listed.sid).await;
        Ok(ended.is_some())
    }

    /// Removes an ended session from the list of its user. A failure does not matter: the list may name ended sessions.
    async fn unlist(&self, tenant: &Tenant, user: &UserId, sid: PublicId) {
        let rest = |list: SessionList| list.only(|listed| listed.sid != sid);
        if let Err(error) = self.amend(tenant, user, Some(sid), rest).await {
            crate::util::trace::failure!("an ended session could not be removed from its list", &error);
            self.store_failed();
        }
    }

    /// Replaces the list of a user with the result of `plan`, after ending the sessions that are missing in it, except
    /// `ended`. Returns those that were live.
    ///
    /// When this is done, every session that was listed before and is not listed now has ended.
    async fn amend(
        &self,
        tenant: &Tenant,
        user: &UserId,
        ended: Option<PublicId>,
        mut plan: impl FnMut(SessionList) -> SessionList + Send,
    ) -> Result<Vec<Session>, StoreError> {
        let (mut ended, mut lived) = (Vec::from_iter(ended), Vec::new());
        for _ in 0..LIST_ROUNDS {
            let step = |list: Option<&SessionList>, now: UnixTime| {
                let before = list.cloned().unwrap_or_default().without_expired(now);
                let after = plan(before.clone());
                let mut removed = before.missing_in(&after);
                removed.retain(|listed| !ended.contains(&listed.sid));
                // they end first
                if !removed.is_empty() || list.is_none() && after.is_empty() {
                    return Change::Keep(removed);
                }
                let expires = after.expires(now);
                Change::Put(after, expires, removed)
            };
            let removed = self.lists().update(Some(tenant), user.as_str().as_bytes(), step).await?;
            if removed.is_empty() {
                return Ok(lived);
            }
            let mut failed = None;
            for listed in removed {
                match self.end(tenant, &listed).await {
                    Ok(session) => {
                        lived.extend(session);
                        ended.push(listed.sid);
                    }
                    // a row that cannot be read does not save the others
                    Err(error) if error.kind() == StoreErrorKind::Corrupt => failed = Some(error),
                    Err(error) => return Err(error),
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Err(StoreErrorKind::Busy.into())
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, header::COOKIE};

    use super::*;
    use crate::{
        event::{EventLog, Query},
        session::{
            cookies::SessionCookie,
            model::{amr, by, cookie_of, present, proved},
            opening::Renewal,
            session::NewSession,
        },
        store::{AnyStore, Memory, Record},
        testing::{ManualClock, block_on},
    };

    struct World {
        sessions: Sessions,
        clock: ManualClock,
        log: EventLog,
    }

    /// A browser with its cookies.
    #[derive(Default)]
    struct Browser(Vec<(String, String)>);

    impl Browser {
        fn store_cookie(&mut self, cookie: &SetCookie) {
            let header = cookie.header_value();
            let text = header.to_str().unwrap();
            let (name, value) = text.split(';').next().unwrap().split_once('=').unwrap();
            self.0.retain(|(other, _)| other != name);
            if !text.contains("Max-Age=0") {
                self.0.push((name.to_owned(), value.to_owned()));
            }
        }

        fn headers(&self) -> HeaderMap {
            let pairs: Vec<_> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
            HeaderMap::from_iter([(COOKIE, HeaderValue::from_str(&pairs.join("; ")).unwrap())])
        }
    }

    impl World {
        fn new() -> Self {
            Self::on(Memory::new())
        }

        fn on(store: impl Into<AnyStore>) -> Self {
            let (clock, log) = (ManualClock::new(), EventLog::new());
            let sessions = Sessions::builder(store).clock(clock.clone()).events(log.clone()).build().unwrap();
            Self { sessions, clock, log }
        }

        fn create(&self, new: NewSession) -> (SetCookie, Session) {
            block_on(self.sessions.create(new)).unwrap()
        }

        fn lives(&self, session: &Session) -> bool {
            block_on(self.sessions.get(&session.sid())).unwrap().is_some()
        }

        /// Signs in, ends what the sign-in replaces, and returns the session.
        fn sign_in(&self, browser: &mut Browser, tenant: &str, user: &str) -> Session {
            let (cookie, session) = self.create(proved_sign_in(tenant, user));
            let removals = block_on(self.sessions.end_replaced(&browser.headers(), &session)).unwrap();
            for cookie in [cookie].iter().chain(&removals) {
                browser.store_cookie(cookie);
            }
            self.clock.advance(Duration::from_secs(1));
            session
        }

        fn signed_in(&self, browser: &Browser) -> Vec<String> {
            let sessions = block_on(self.sessions.signed_in(&browser.headers())).unwrap();
            let mut names: Vec<_> = sessions.iter().map(|it| format!("{} of {}", it.user(), it.tenant())).collect();
            names.sort();
            names
        }
    }

    fn proved_sign_in(tenant: &str, user: &str) -> NewSession {
        NewSession::authenticated(proved(tenant, user, 0, &["password", "email"]))
    }

    #[test]
    fn c118_a_right_sid_with_a_wrong_secret_changes_nothing_and_is_counted() {
        let world = World::new();
        let (cookie, session) = world.create(proved_sign_in("acme", "ada"));
        let right = cookie_of(&cookie);
        // so that a use would be recorded
        world.clock.advance(Duration::from_secs(61));
        let row = || {
            let row = block_on(world.sessions.rows().get(None, session.sid().as_bytes()).wait()).unwrap().unwrap();
            (row.version, row.expires_at)
        };
        let before = row();
        for bit in [0, 1, 100, 255] {
            let mut secret = *right.secret.as_bytes();
            secret[bit / 8] ^= 1 << (bit % 8);
            let wrong = SessionCookie { secret: crate::util::secret::SecretDigest::from_bytes(secret), ..right };
            assert!(present(&world.sessions, wrong).unwrap().is_none());
        }
        assert_eq!(row(), before, "nothing was written");
        let count = |kind| {
            let page = world.log.read_events(&Query::new().kind(kind));
            assert!(page.events.iter().all(|event| event.session == Some(session.sid())));
            page.events.iter().map(|event| event.count).sum::<u64>()
        };
        assert_eq!((count(EventKind::SessionWrongSecret), count(EventKind::SessionUseAfterExpire)), (4, 0));
        assert!(present(&world.sessions, right).unwrap().is_some(), "nothing was ended");
        assert_ne!(row(), before);
        // the secret of another user does not help
        let (other, _) = world.create(proved_sign_in("acme", "grace"));
        let mixed = SessionCookie { sid: session.sid(), ..cookie_of(&other) };
        assert!(present(&world.sessions, mixed).unwrap().is_none());
    }

    #[test]
    fn c118_the_secret_from_before_a_rotation_is_not_accepted() {
        let world = World::new();
        let (old, session) = world.create(proved_sign_in("acme", "ada"));
        let (new, rotated) = block_on(world.sessions.rotate(&session)).unwrap().unwrap();
        assert_eq!((rotated.sid(), rotated.expires()), (session.sid(), session.expires()));
        assert!(present(&world.sessions, cookie_of(&old)).unwrap().is_none());
        assert!(present(&world.sessions, cookie_of(&new)).unwrap().is_some());
        assert!(block_on(world.sessions.rotate(&session)).unwrap().is_none());
        // signing out with the old snapshot ends the session all the same: the sid is the same
        block_on(world.sessions.revoke(&session)).unwrap();
        assert!(!world.lives(&rotated));
    }

    #[test]
    fn a_step_up_keeps_the_absolute_end_and_a_full_sign_in_restarts_it() {
        let world = World::new();
        let (_, session) =
            world.create(NewSession::authenticated(proved("acme", "ada", 0, &["password"])).client("web"));
        assert_eq!(session.client(), Some("web"));
        world.clock.advance(Duration::from_secs(1800));
        let again = || proved_sign_in("acme", "ada").client("shop").amr(["pwd", "otp"]).unwrap();
        let renew = |session: &Session, renewal| block_on(world.sessions.renew(session, renewal)).unwrap();
        let (cookie, stepped) = renew(&session, Renewal::StepUp(again())).unwrap();
        assert!(!cookie.header_value().to_str().unwrap().contains("Max-Age"));
        assert_eq!(
            (stepped.sid(), stepped.created(), stepped.expires()),
            (session.sid(), session.created(), session.expires())
        );
        assert!(stepped.authentication().methods().eq(["password", "email"]));
        assert_eq!((stepped.client(), stepped.acr()), (Some("shop"), Some("mfa")));
        assert!(stepped.amr().eq(["pwd", "otp"]));
        assert!(renew(&session, Renewal::StepUp(again())).is_none(), "the secret is not the one that was passed");

        let month = Duration::from_secs(30 * 86400);
        let full = Renewal::FullSignIn(again().remember(month).unwrap());
        let (cookie, renewed) = renew(&stepped, full).unwrap();
        assert!(cookie.header_value().to_str().unwrap().contains("; Max-Age=2592000;"));
        assert_eq!(renewed.created(), session.created() + Duration::from_secs(1800));
        assert_eq!(renewed.expires(), renewed.created() + month);
        // a step-up later, and a rotation, leave the end and give the cookie the remaining time
        world.clock.advance(Duration::from_secs(86400));
        let (_, stepped) = renew(&renewed, Renewal::StepUp(again())).unwrap();
        let (cookie, rotated) = block_on(world.sessions.rotate(&stepped)).unwrap().unwrap();
        assert!(cookie.header_value().to_str().unwrap().contains("; Max-Age=2505600;"));
        assert_eq!(rotated.expires(), renewed.expires());
        // remembered sessions do not end by idle time
        world.clock.advance(month - Duration::from_secs(86401));
        assert!(world.lives(&rotated));
        world.clock.advance(Duration::from_secs(1));
        assert!(!world.lives(&rotated));
        // another user, another tenant
        let (_, other) = world.create(proved_sign_in("acme", "grace"));
        assert!(renew(&other, Renewal::FullSignIn(again())).is_none());
        assert!(renew(&other, Renewal::StepUp(proved_sign_in("globex", "grace"))).is_none());
        assert!(world.lives(&other));
        // proofs that are remembered for a shorter time end the session earlier
        let (_, long) = world.create(again().remember(month).unwrap());
        let hour = Duration::from_secs(3600);
        let (_, short) = renew(&long, Renewal::StepUp(again().remember(hour).unwrap())).unwrap();
        assert_eq!(short.expires(), long.created() + hour);
    }

    #[test]
    fn c119_a_sign_in_that_began_before_end_user_gets_no_session() {
        let world = World::new();
        let (_, session) = world.create(proved_sign_in("acme", "ada"));
        let (_, other) = world.create(proved_sign_in("acme", "grace"));
        let (_, elsewhere) = world.create(proved_sign_in("globex", "ada"));
        let (tenant, user) = (session.tenant(), session.user());
        // clocks do not matter
        world.clock.set_wall(UnixTime::from_secs(5));
        assert_eq!(block_on(world.sessions.end_user(tenant, user)).unwrap(), 1);
        assert!(!world.lives(&session) && world.lives(&other) && world.lives(&elsewhere));
        assert!(block_on(world.sessions.create_unless_ended(proved_sign_in("acme", "ada"))).unwrap().is_none());
        let busy = block_on(world.sessions.create(proved_sign_in("acme", "ada"))).unwrap_err();
        assert_eq!(busy.kind(), StoreErrorKind::Busy);
        assert!(block_on(world.sessions.list(tenant, user)).unwrap().is_empty());
        // a session of an application, and a sign-in that begins now
        let new = NewSession::new(tenant.clone(), user.clone());
        let (_, begun) = world.create(new);
        assert_eq!(begun.generation(), 1);
        let (_, session) = world.create(NewSession::authenticated(proved("acme", "ada", 1, &["password"])));
        // a step-up that began before is refused too, and ends the session that it was written to
        assert!(
            block_on(world.sessions.renew(&session, Renewal::StepUp(proved_sign_in("acme", "ada")))).unwrap().is_none()
        );
        assert!(!world.lives(&session) && world.lives(&begun));
    }

    #[test]
    fn all_sessions_of_a_user_end_even_if_the_store_is_full_or_a_row_cannot_be_read() {
        let full = World::on(Memory::new().entries(2).unwrap());
        let (_, session) = full.create(proved_sign_in("acme", "ada"));
        let failed = block_on(full.sessions.end_user(session.tenant(), session.user())).unwrap_err();
        assert_eq!(failed.kind(), StoreErrorKind::Full);
        assert!(!full.lives(&session));

        let store = AnyStore::from(Memory::new());
        let world = World::on(store.clone());
        let [first, second] = [(), ()].map(|()| world.create(proved_sign_in("acme", "ada")).1);
        let key = world.sessions.rows().key(None, first.sid().as_bytes()).unwrap();
        let now = world.sessions.rows().now();
        let version = block_on(store.get(&key).wait()).unwrap().unwrap().version;
        let newer = Record::new(vec![0xff], now, first.expires()).unwrap();
        let _written = block_on(store.swap(&key, version, newer)).unwrap();
        let failed = block_on(world.sessions.end_user(first.tenant(), first.user())).unwrap_err();
        assert_eq!(failed.kind(), StoreErrorKind::Corrupt);
        assert!(!world.lives(&second));
    }

    #[test]
    fn proofs_that_no_longer_count_are_dropped_and_the_session_ends_with_the_last() {
        let world = World::new();
        let keep = |session: &Session, method: &'static str| {
            block_on(world.sessions.keep_proofs(session, by(method), amr)).unwrap()
        };
        let (cookie, session) = world.create(proved_sign_in("acme", "ada").amr(["pwd", "otp"]).unwrap());
        let kept = keep(&session, "password").unwrap();
        assert!(kept.authentication().methods().eq(["password"]));
        assert!(kept.amr().eq(["password"]) && kept.acr().is_none());
        let found = present(&world.sessions, cookie_of(&cookie)).unwrap().unwrap();
        assert_eq!(found.authentication(), kept.authentication(), "the cookie stays");
        // a snapshot from before a rotation still works for this, and for nothing else
        let (_, rotated) = block_on(world.sessions.rotate(&kept)).unwrap().unwrap();
        let again = keep(&session, "password").unwrap();
        assert!(block_on(world.sessions.rotate(&again)).unwrap().is_none());
        // what was proved since then counts
        let renewal = Renewal::StepUp(proved_sign_in("acme", "ada"));
        let (_, renewed) = block_on(world.sessions.renew(&rotated, renewal)).unwrap().unwrap();
        let old = Session::new(rotated.sid(), Arc::clone(rotated.row()));
        assert!(keep(&old, "email").unwrap().authentication().methods().eq(["email"]));
        assert!(world.lives(&renewed));
        assert!(keep(&old, "none").is_none());
        assert!(!world.lives(&renewed));
        assert!(block_on(world.sessions.ended().contains(&session.sid()).wait()).unwrap());
        assert!(keep(&old, "none").is_none(), "it has ended");
        // a session that an application has made has no proofs to lose
        let (_, own) =
            world.create(NewSession::new(session.tenant().clone(), session.user().clone()).acr("own").unwrap());
        assert_eq!(keep(&own, "none").unwrap().acr(), Some("own"));
        assert!(world.lives(&own));
    }

    #[test]
    fn c121_a_browser_is_signed_in_at_four_tenants_and_a_fifth_ends_the_oldest() {
        let world = World::new();
        let mut browser = Browser::default();
        let first: Vec<_> =
            ["one", "two", "three", "four"].iter().map(|tenant| world.sign_in(&mut browser, tenant, "ada")).collect();
        assert_eq!(world.signed_in(&browser), ["ada of four", "ada of one", "ada of three", "ada of two"]);
        for session in &first {
            let found = block_on(world.sessions.presented(&browser.headers(), session.tenant())).unwrap().unwrap();
            assert_eq!(found.sid(), session.sid());
            assert!(browser.0.iter().any(|(name, _)| *name == world.sessions.cookie_name(session.tenant())));
        }
        world.sign_in(&mut browser, "five", "ada");
        assert_eq!(world.signed_in(&browser), ["ada of five", "ada of four", "ada of three", "ada of two"]);
        assert!(!world.lives(&first[0]));
        assert_eq!(browser.0.len(), 4, "the cookie of the oldest is removed");
        // another user at the same tenant replaces only that session
        world.sign_in(&mut browser, "three", "grace");
        assert_eq!(world.signed_in(&browser), ["ada of five", "ada of four", "ada of two", "grace of three"]);
        assert!(!world.lives(&first[2]) && world.lives(&first[1]));
        // another browser's sessions stay
        let mut other = Browser::default();
        world.sign_in(&mut other, "two", "ada");
        assert_eq!(world.signed_in(&browser).len(), 4);
        // an ended session does not count
        block_on(world.sessions.revoke(&first[1])).unwrap();
        world.sign_in(&mut browser, "six", "ada");
        assert_eq!(world.signed_in(&browser), ["ada of five", "ada of four", "ada of six", "grace of three"]);
    }

    #[test]
    fn c106_a_tombstone_outlives_what_was_issued_from_its_session() {
        let world = World::new();
        let sids: Vec<_> = (0..3).map(|_| world.create(proved_sign_in("acme", "ada")).1).collect();
        let ended = |session: &Session| block_on(world.sessions.ended().contains(&session.sid()).wait()).unwrap();
        block_on(world.sessions.revoke(&sids[0])).unwrap();
        // a session that expired hours ago can still be ended, because what was issued from it may live
        world.clock.advance(Duration::from_secs(23 * 3600));
        assert!(!block_on(world.sessions.revoke_sid(&sids[1].sid())).unwrap());
        world.clock.advance(Duration::from_secs(26 * 3600) - Duration::from_nanos(1));
        assert_eq!((ended(&sids[0]), ended(&sids[1]), ended(&sids[2])), (true, true, false));
        world.clock.advance(Duration::from_nanos(1));
        assert!(!ended(&sids[0]));
        assert!(!block_on(world.sessions.revoke_sid(&PublicId::random())).unwrap());
    }

    #[test]
    fn c106_a_tombstone_is_final_and_an_older_snapshot_does_not_shorten_it() {
        let world = World::new();
        let (_, session) = world.create(proved_sign_in("acme", "ada"));
        let month = Duration::from_secs(30 * 86400);
        let renewal = Renewal::FullSignIn(proved_sign_in("acme", "ada").remember(month).unwrap());
        let (_, renewed) = block_on(world.sessions.renew(&session, renewal)).unwrap().unwrap();
        block_on(world.sessions.revoke(&renewed)).unwrap();
        let row = || block_on(world.sessions.rows().get(None, session.sid().as_bytes()).wait()).unwrap().unwrap();
        let before = row();
        assert_eq!(before.expires_at, renewed.expires() + KEPT_AFTER_END);
        block_on(world.sessions.revoke(&session)).unwrap();
        assert!(!block_on(world.sessions.revoke_sid(&session.sid())).unwrap());
        assert!(
            block_on(world.sessions.renew(&renewed, Renewal::StepUp(proved_sign_in("acme", "ada")))).unwrap().is_none()
        );
        assert_eq!((row().version, row().expires_at), (before.version, before.expires_at));
        // an older snapshot ends the session for just as long
        let (_, session) = world.create(proved_sign_in("acme", "grace"));
        let renewal = Renewal::FullSignIn(proved_sign_in("acme", "grace").remember(month).unwrap());
        let (_, renewed) = block_on(world.sessions.renew(&session, renewal)).unwrap().unwrap();
        block_on(world.sessions.revoke(&session)).unwrap();
        let row = block_on(world.sessions.rows().get(None, session.sid().as_bytes()).wait()).unwrap().unwrap();
        assert_eq!(row.expires_at, renewed.expires() + KEPT_AFTER_END);
    }

    #[test]
    fn a_session_is_not_live_any_more_at_its_end() {
        for (before_its_end, lived) in [(1, true), (0, false)] {
            let world = World::new();
            let (_, session) = world.create(proved_sign_in("acme", "ada"));
            let idle = world.sessions.lifetimes().idle;
            world.clock.advance(idle - Duration::from_nanos(before_its_end));
            assert_eq!(block_on(world.sessions.revoke_sid(&session.sid())).unwrap(), lived);
        }
    }

    #[test]
    fn a_session_is_remembered_for_two_minutes_to_400_days() {
        let remember = |seconds| proved_sign_in("acme", "ada").remember(Duration::from_secs(seconds));
        assert!(remember(120).is_ok() && remember(400 * 86400).is_ok());
        for seconds in [0, 119, 400 * 86400 + 1, u64::MAX] {
            assert_eq!(remember(seconds).unwrap_err().setting(), "remembered session lifetime");
        }
    }
}
