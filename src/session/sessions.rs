use std::{fmt, sync::Arc, time::Duration};

use super::{
    index::Index,
    journal::Journal,
    record::{Lifetimes, Row},
};
use crate::{
    event::EventLog,
    http::cookie::SetCookie,
    store::{AnyStore, table::Table},
    util::{
        clock::{Clock, SystemClock},
        error::ConfigError,
        secret::Secret,
    },
};

/// All signed-in sessions: what begins, finds, lists and ends them.
///
/// Clones are one. The app keeps one for its sign-in and sign-out pages and
/// gives another to the [`SessionLayer`](super::SessionLayer).
///
/// There is no cache in front of the store: a revoked session is refused from
/// the next request on, on every node that shares the store.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{NewSession, Sessions, Tenant, UserId, store::Memory};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let sessions = Sessions::new(Memory::new()).idle(Duration::from_secs(1800))?;
///
/// // sign in: the cookie goes into the answer
/// let ada = NewSession::new(Tenant::parse("acme")?, UserId::parse("ada")?);
/// let (cookie, session) = sessions.create(ada).await?;
/// assert!(cookie.header_value().to_str()?.starts_with("__Host-session="));
///
/// // sign out
/// sessions.revoke(&session).await?;
/// assert!(sessions.list(session.tenant(), session.user()).await?.is_empty());
/// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Sessions(Arc<Shared>);

#[derive(Clone)]
struct Shared {
    store: AnyStore,
    clock: Arc<dyn Clock>,
    rows: Table<Row>,
    users: Table<Index>,
    lifetimes: Lifetimes,
    cookie: Cookie,
    journal: Journal,
}

#[derive(Clone)]
struct Cookie {
    /// Without the prefix.
    base: String,
    /// As it is sent.
    name: String,
    loopback: bool,
}

impl Cookie {
    fn new(base: &str, loopback: bool) -> Self {
        let prefix = if loopback { "" } else { "__Host-" };
        Self { base: base.to_owned(), name: format!("{prefix}{base}"), loopback }
    }

    fn set(&self, value: &str) -> Result<SetCookie, ConfigError> {
        let cookie = SetCookie::new(&self.name, value)?;
        if self.loopback { cookie.insecure_plain_http() } else { Ok(cookie) }
    }
}

impl Sessions {
    /// Sessions in this store. They end after an hour without use and after 24
    /// hours in any case; their cookie is `__Host-session`.
    pub fn new(store: impl Into<AnyStore>) -> Self {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        Self::assemble(Shared::new(
            store.into(),
            Arc::new(SystemClock::new()),
            Lifetimes { idle: hours(1), absolute: hours(24) },
        ))
    }

    fn assemble(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }

    /// Ends a session that was not used for this long. Use is noted once a
    /// minute, so that one may end up to a minute early; at least two minutes.
    ///
    /// A shorter time holds at once, for sessions that began before too; a
    /// longer one from their next use.
    pub fn idle(self, lifetime: Duration) -> Result<Self, ConfigError> {
        const SETTING: &str = "session idle lifetime";
        let mut shared = self.into_shared();
        if lifetime < Duration::from_secs(120) {
            return Err(ConfigError::new(SETTING, format!("{lifetime:?}"), "must be at least two minutes"));
        }
        if lifetime > shared.lifetimes.absolute {
            let reason = "must not be longer than the absolute lifetime; set that first";
            return Err(ConfigError::new(SETTING, format!("{lifetime:?}"), reason));
        }
        shared.lifetimes.idle = lifetime;
        Ok(Self::assemble(shared))
    }

    /// Ends a session this long after its sign-in, however much it is used.
    ///
    /// A shorter time holds at once, for sessions that began before too.
    pub fn absolute(self, lifetime: Duration) -> Result<Self, ConfigError> {
        const SETTING: &str = "session absolute lifetime";
        let mut shared = self.into_shared();
        if lifetime < shared.lifetimes.idle {
            let reason = "must not be shorter than the idle lifetime; set that first";
            return Err(ConfigError::new(SETTING, format!("{lifetime:?}"), reason));
        }
        if lifetime > Duration::from_secs(400 * 86400) {
            return Err(ConfigError::new(SETTING, format!("{lifetime:?}"), "must be at most 400 days"));
        }
        shared.lifetimes.absolute = lifetime;
        Ok(Self::assemble(shared))
    }

    /// Names the cookie, without its prefix: `app` is sent as `__Host-app`.
    pub fn cookie_name(self, name: &str) -> Result<Self, ConfigError> {
        if name.is_empty() || name.starts_with("__") {
            return Err(ConfigError::new("session cookie name", name, "is a name, given without a prefix"));
        }
        let mut shared = self.into_shared();
        let cookie = Cookie::new(name, shared.cookie.loopback);
        // as long as every value that it will have
        let _good = cookie.set(&"A".repeat(43))?;
        shared.cookie = cookie;
        Ok(Self::assemble(shared))
    }

    /// Takes the time from this clock.
    pub fn clock(self, clock: impl Clock) -> Self {
        let old = self.into_shared();
        let new = Shared::new(old.store, Arc::new(clock), old.lifetimes);
        Self::assemble(Shared { cookie: old.cookie, journal: old.journal, ..new })
    }

    /// Records in this log when sessions begin, get a new secret, are revoked,
    /// and are used after their end.
    pub fn events(self, log: EventLog) -> Self {
        Self::assemble(Shared { journal: Journal(Some(log)), ..self.into_shared() })
    }

    /// Sends the cookie over plain HTTP, as `session` without `__Host-` and
    /// `Secure`. For development on a loopback address alone: elsewhere everyone
    /// on the way reads it, and any host of the domain can set it.
    pub fn insecure_loopback(self) -> Self {
        let mut shared = self.into_shared();
        shared.cookie = Cookie::new(&shared.cookie.base, true);
        Self::assemble(shared)
    }

    /// The cookie that takes the session cookie away, for the answer to a
    /// sign-out. It revokes nothing: see [`revoke`](Self::revoke).
    #[expect(clippy::expect_used, reason = "the name was checked when it was set")]
    pub fn removal(&self) -> SetCookie {
        self.0.cookie.set("").expect("the name is good").max_age(Duration::ZERO)
    }

    /// The cookie that brings this secret.
    #[expect(clippy::expect_used, reason = "the name was checked when it was set, and a secret is base64url")]
    pub(super) fn cookie(&self, secret: &Secret) -> SetCookie {
        self.0.cookie.set(secret.expose()).expect("the name is good")
    }

    pub(super) fn name_of_cookie(&self) -> &str {
        &self.0.cookie.name
    }

    pub(crate) fn is_loopback(&self) -> bool {
        self.0.cookie.loopback
    }

    pub(super) fn rows(&self) -> &Table<Row> {
        &self.0.rows
    }

    pub(super) fn users(&self) -> &Table<Index> {
        &self.0.users
    }

    /// When a session that begins now has ended in any case.
    #[cfg(feature = "login")]
    pub(crate) fn ends_if_begun_now(&self) -> crate::util::clock::UnixTime {
        self.0.rows.now() + self.0.lifetimes.absolute
    }

    /// How long one lives in any case.
    #[cfg(feature = "login")]
    pub(crate) fn absolute_lifetime(&self) -> Duration {
        self.0.lifetimes.absolute
    }

    pub(super) fn lifetimes(&self) -> Lifetimes {
        self.0.lifetimes
    }

    pub(super) fn journal(&self) -> &Journal {
        &self.0.journal
    }

    pub(super) fn time(&self) -> &dyn Clock {
        &*self.0.clock
    }

    fn into_shared(self) -> Shared {
        Arc::unwrap_or_clone(self.0)
    }
}

impl Shared {
    fn new(store: AnyStore, clock: Arc<dyn Clock>, lifetimes: Lifetimes) -> Self {
        Self {
            rows: Table::new(store.clone(), "sessions", Arc::clone(&clock)),
            users: Table::new(store.clone(), "session_users", Arc::clone(&clock)),
            store,
            clock,
            lifetimes,
            cookie: Cookie::new("session", false),
            journal: Journal::default(),
        }
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("store", &self.0.store)
            .field("cookie", &self.0.cookie.name)
            .field("lifetimes", &self.0.lifetimes)
            .finish_non_exhaustive()
    }
}
