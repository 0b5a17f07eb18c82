//! The shared handle on all sessions, and its builder.

use std::{sync::Arc, time::Duration};

use super::{
    cookies::CookieFormat,
    generations::Generations,
    rows::{SESSIONS, SessionLifetimes, SessionList, SessionRow, SessionTimes},
    session::Session,
};
use crate::{
    event::{Event, EventKind, EventLog, event_kinds},
    http::cookie::SetCookie,
    store::{AnyStore, table::Table},
    tenant::Tenant,
    util::{
        builder::setters,
        clock::{Clock, SystemClock, UnixTime},
        error::ConfigError,
        public_id::PublicId,
    },
};

const HOUR: Duration = Duration::from_secs(3600);
const DEFAULT_LIFETIMES: SessionLifetimes = SessionLifetimes { idle: HOUR, absolute: Duration::from_secs(24 * 3600) };

event_kinds! {
    /// a store or the accounts could not be read or written. Requests that need them get a 503 in the meantime.
    StoreFailed = "store_fail",
    /// a user signed in and a session was created.
    SessionCreated = "session_created",
    /// a session received a new secret, and the old one became invalid.
    SessionRenewed = "session_renewed",
    /// a session was ended by its user, by an operator, or because the user had too many.
    SessionRevoked = "session_revoked",
    /// a cookie of a session that had already ended was presented. The browser may have been asleep, or the cookie was
    /// stolen. Its secret may be wrong, because that of an ended session is forgotten.
    SessionUseAfterExpire = "session_use_after_expire",
    /// a cookie named a live session but carried another secret. It may be older than the last rotation, or a guess.
    SessionWrongSecret = "session_wrong_secret",
    /// a request was rejected or redirected to the login page, because it has no valid session. The reason is `no_session`, or
    /// what the session lacks: `proofs` or `claims`.
    SessionRefused = "session_refused",
    /// a request came from a page of a foreign origin, or would have changed something with a session cookie without
    /// naming its origin.
    ForeignOrigin = "malicious_csrf",
}

/// Creates, finds, lists and ends signed-in sessions.
///
/// Clones share the same sessions. The application keeps one for its sign-in and sign-out
/// pages and gives another to the [`SessionLayer`](super::SessionLayer).
///
/// There is no cache in front of the store: a revoked session is refused from the next
/// request on, on every node that shares the store.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Sessions, Tenant, UserId, session::NewSession, store::Memory};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let sessions = Sessions::builder(Memory::new()).idle(Duration::from_secs(1800)).build()?;
///
/// // sign in: the cookie goes into the response
/// let ada = NewSession::new(Tenant::parse("acme")?, UserId::parse("ada")?);
/// let (cookie, session) = sessions.create(ada).await?;
/// assert!(cookie.header_value().to_str()?.starts_with("__Host-session_"));
///
/// // sign out
/// sessions.revoke(&session).await?;
/// let removal = sessions.removal(session.tenant());
/// assert!(sessions.list(session.tenant(), session.user()).await?.is_empty());
/// # let _ = removal;
/// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Sessions(Arc<SessionsInner>);

struct SessionsInner {
    store: AnyStore,
    clock: Arc<dyn Clock>,
    rows: Table<SessionRow>,
    lists: Table<SessionList>,
    generations: Generations,
    lifetimes: SessionLifetimes,
    cookies: CookieFormat,
    log: Option<EventLog>,
}

impl Sessions {
    /// Creates sessions in this store with the default settings of
    /// [`builder`](Self::builder).
    pub fn new(store: impl Into<AnyStore>) -> Self {
        Self::builder(store).assemble(CookieFormat::default_name())
    }

    /// Creates a builder for sessions in this store.
    pub fn builder(store: impl Into<AnyStore>) -> SessionsBuilder {
        SessionsBuilder {
            store: store.into(),
            clock: Arc::new(SystemClock::new()),
            lifetimes: DEFAULT_LIFETIMES,
            cookie_name: String::from("session"),
            loopback: false,
            log: None,
        }
    }

    /// Creates a cookie that removes the session cookie of this tenant. Send it in the response to
    /// a sign-out. It does not end the session: see [`revoke`](Self::revoke).
    pub fn removal(&self, tenant: &Tenant) -> SetCookie {
        self.0.cookies.removal(tenant)
    }

    /// Returns the cookies that remove the session cookies of a request: of all tenants, or of this one only.
    pub(crate) fn presented_removals(&self, headers: &http::HeaderMap, tenant: Option<&Tenant>) -> Vec<SetCookie> {
        self.0.cookies.presented_removals(headers, tenant)
    }

    /// Returns the name of the session cookie of this tenant. The cookies of two tenants can
    /// have the same name.
    pub(crate) fn cookie_name(&self, tenant: &Tenant) -> String {
        self.0.cookies.name(tenant)
    }

    /// Returns whether cookies are sent over plain HTTP.
    pub(crate) fn is_loopback(&self) -> bool {
        self.0.cookies.is_loopback()
    }

    pub(super) fn store(&self) -> &AnyStore {
        &self.0.store
    }

    /// Returns when a session ends. One that began before everything was ended has ended then.
    #[inline]
    pub(super) fn end_of(&self, times: &SessionTimes) -> UnixTime {
        let end = self.lifetimes().end_of(times);
        if times.created < self.0.store.last_cutoff() { end.min(times.created) } else { end }
    }

    /// Returns the generations of users.
    pub(crate) fn generations(&self) -> &Generations {
        &self.0.generations
    }

    /// Returns which sessions were ended, as other modules read it.
    #[cfg(test)]
    pub(super) fn ended(&self) -> super::ended::EndedSessions {
        super::ended::EndedSessions::new(self.0.store.clone(), self.0.clock.clone())
    }

    pub(super) fn cookies(&self) -> &CookieFormat {
        &self.0.cookies
    }

    pub(super) fn rows(&self) -> &Table<SessionRow> {
        &self.0.rows
    }

    pub(super) fn lists(&self) -> &Table<SessionList> {
        &self.0.lists
    }

    pub(super) fn lifetimes(&self) -> SessionLifetimes {
        self.0.lifetimes
    }

    /// Returns how long a session lives that is not remembered.
    pub(crate) fn absolute_lifetime(&self) -> Duration {
        self.0.lifetimes.absolute
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    pub(super) fn record(&self, kind: EventKind, session: &Session) {
        if let Some(log) = &self.0.log {
            log.record(self.event(kind, session.tenant(), session.sid()));
        }
    }

    /// Counts an event that any caller can trigger at will.
    pub(super) fn tally(&self, kind: EventKind, tenant: &Tenant, sid: PublicId) {
        if let Some(log) = &self.0.log {
            log.tally(&self.event(kind, tenant, sid));
        }
    }

    /// Counts a store that failed, or accounts that did.
    pub(super) fn store_failed(&self) {
        self.tally_kind(EventKind::StoreFailed, None);
    }

    /// Counts an event without a session, such as a request that was refused before one was known.
    pub(super) fn tally_kind(&self, kind: EventKind, reason: Option<&'static str>) {
        if let Some(log) = &self.0.log {
            log.tally(&Event { reason, ..Event::new(kind, self.0.clock.unix(self.0.clock.now())) });
        }
    }

    fn event(&self, kind: EventKind, tenant: &Tenant, sid: PublicId) -> Event {
        Event::new(kind, self.0.clock.unix(self.0.clock.now())).tenant(tenant.clone().into()).session(sid)
    }
}

crate::util::fmt::debug_fields!(Sessions, |own| store: own.0.store, cookies: own.0.cookies, lifetimes: own.0.lifetimes);

/// Sets up [`Sessions`]. Created by [`Sessions::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct SessionsBuilder {
    store: AnyStore,
    clock: Arc<dyn Clock>,
    lifetimes: SessionLifetimes,
    cookie_name: String,
    loopback: bool,
    log: Option<EventLog>,
}

impl SessionsBuilder {
    setters! {
        /// Ends sessions that were not used for this long. Defaults to one hour, and is at least
        /// two minutes.
        ///
        /// Use is recorded once a minute, so a session can end up to a minute early. A shorter
        /// time also applies to existing sessions, a longer one from their next use.
        pub fn idle(lifetime: Duration) { lifetimes.idle: lifetime }

        /// Ends sessions this long after the sign-in, regardless of use. Defaults to 24
        /// hours, and is at most 400 days. [`NewSession::remember`](super::NewSession::remember)
        /// sets another time for one session.
        ///
        /// A shorter time also applies to existing sessions.
        pub fn absolute(lifetime: Duration) { lifetimes.absolute: lifetime }

        /// Sets the base name of the cookies, without a prefix. Defaults to `session`, which is
        /// sent as `__Host-session_` and eight characters of the tenant's digest.
        ///
        /// A name of your own does not separate sessions. All `Sessions` on one store accept each other's cookies, and users can
        /// rename a cookie. A separate realm, such as an admin area with its own lifetimes, needs another store, or on Redis
        /// another key prefix.
        pub fn cookie_name(name: &str) { cookie_name: name.to_owned() }

        /// Takes the time from this clock. Defaults to [`SystemClock`].
        pub fn clock(clock: impl Clock) { clock: Arc::new(clock) }

        /// Records in this log when sessions begin, get a new secret or are revoked, and when a
        /// cookie is used that is no longer valid.
        pub fn events(log: EventLog) { log: Some(log) }

        /// Sends cookies over plain HTTP, without `__Host-` and `Secure`.
        ///
        /// # Security
        ///
        /// Use this only for development on a loopback address. Elsewhere everyone on the
        /// network can read the cookie, and any host of the domain can set it.
        pub fn insecure_loopback() { loopback: true }
    }

    /// Checks the settings and creates the sessions.
    ///
    /// # Errors
    ///
    /// Returns an error if a lifetime or the cookie name is not usable.
    pub fn build(self) -> Result<Sessions, ConfigError> {
        let SessionLifetimes { idle, absolute } = self.lifetimes;
        let (shortest, longest) = (Duration::from_secs(120), Duration::from_secs(400 * 86400));
        ConfigError::check_range("session idle lifetime", idle, shortest.., "must be at least two minutes")?;
        ConfigError::check_range("session absolute lifetime", absolute, ..=longest, "must be at most 400 days")?;
        let reason = "must not be longer than the absolute lifetime";
        ConfigError::check_range("session idle lifetime", idle, ..=absolute, reason)?;
        let cookies = CookieFormat::new(&self.cookie_name, self.loopback)?;
        Ok(self.assemble(cookies))
    }

    fn assemble(self, cookies: CookieFormat) -> Sessions {
        let Self { store, clock, lifetimes, log, .. } = self;
        Sessions(Arc::new(SessionsInner {
            rows: Table::new(store.clone(), SESSIONS, Arc::clone(&clock)),
            lists: Table::new(store.clone(), "session_users", Arc::clone(&clock)),
            generations: Generations::new(store.clone(), Arc::clone(&clock)),
            store,
            clock,
            lifetimes,
            cookies,
            log,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        session::{NewSession, model::proved},
        store::Memory,
        testing::{ManualClock, block_on},
    };

    fn create_session(sessions: &Sessions) -> Session {
        block_on(sessions.create(NewSession::authenticated(proved("acme", "ada", 0, &["password"])))).unwrap().1
    }

    #[test]
    fn the_longest_lifetime_is_the_one_that_was_set() {
        let hour = Duration::from_secs(3600);
        let sessions = Sessions::builder(Memory::new()).absolute(hour).idle(hour).build().unwrap();
        assert_eq!(sessions.absolute_lifetime(), hour);
    }

    #[test]
    fn an_ended_session_is_not_listed_any_more() {
        let sessions = Sessions::new(Memory::new());
        let (first, second) = (create_session(&sessions), create_session(&sessions));
        block_on(sessions.revoke(&first)).unwrap();
        let key = (first.tenant(), first.user().as_str().as_bytes());
        let list = block_on(sessions.lists().get(Some(key.0), key.1).wait()).unwrap().unwrap().value;
        assert!(!list.contains(&first.sid()) && list.contains(&second.sid()));
    }

    #[test]
    fn a_session_that_began_before_everything_was_ended_has_ended() {
        let (store, clock) = (AnyStore::from(Memory::new()), ManualClock::new());
        let sessions = Sessions::builder(store.clone()).clock(clock.clone()).build().unwrap();
        let lives = |session: &Session| block_on(sessions.get(&session.sid())).unwrap().is_some();
        let before = create_session(&sessions);
        assert!(lives(&before));
        block_on(store.end_everything(Arc::new(clock.clone()))).unwrap();
        // the time that is stored is later, because clocks differ
        let left = store.last_cutoff().as_nanos() - clock.unix(clock.now()).as_nanos();
        clock.advance(Duration::from_nanos(left - 1));
        let just_before = create_session(&sessions);
        clock.advance(Duration::from_nanos(1));
        let after = create_session(&sessions);
        assert_eq!([&before, &just_before, &after].map(lives), [false, false, true]);
    }

    #[test]
    fn lifetimes_are_bounded_and_may_be_equal() {
        let day = Duration::from_secs(86400);
        for (idle, absolute, is_valid) in [
            (Duration::from_secs(119), day, false),
            (Duration::from_secs(120), day, true),
            (day, day, true),
            (day + Duration::from_nanos(1), day, false),
            (day, 400 * day, true),
            (day, 401 * day, false),
        ] {
            let built = Sessions::builder(Memory::new()).idle(idle).absolute(absolute).build();
            assert_eq!(built.is_ok(), is_valid, "{idle:?} {absolute:?}");
        }
    }
}
