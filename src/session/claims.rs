//! Extra claims of signed-in users, read through a cache.

use std::{
    collections::HashMap,
    error::Error,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Map, Value};

use super::{identity::UserId, session::Session};
use crate::{
    gate::MaybeReady,
    store::BoxFuture,
    tenant::Tenant,
    util::clock::{Clock, Moment},
};

/// How long claims are cached by default.
pub(super) const CACHED_FOR: Duration = Duration::from_secs(60);
/// The maximum number of users whose claims are cached.
const MOST_CACHED: usize = 10_000;

/// The claims of a user, or why they could not be read.
pub(crate) type ClaimsResult = Result<Arc<Map<String, Value>>, Box<dyn Error + Send + Sync>>;

/// Reads the extra claims of a session's user.
pub(crate) trait ClaimsSource: Send + Sync + 'static {
    fn claims(&self, session: &Session) -> BoxFuture<'static, ClaimsResult>;
}

/// A source of claims whose answers are cached per user.
pub(super) struct CachedClaims {
    source: Arc<dyn ClaimsSource>,
    clock: Arc<dyn Clock>,
    cached_for: Duration,
    users: Mutex<HashMap<(Tenant, UserId), CachedUser>>,
}

struct CachedUser {
    claims: Arc<Map<String, Value>>,
    read_at: Moment,
}

impl CachedClaims {
    pub(super) fn new(source: Arc<dyn ClaimsSource>, clock: Arc<dyn Clock>, cached_for: Duration) -> Self {
        Self { source, clock, cached_for, users: Mutex::default() }
    }

    /// Returns the same source with an empty cache and another lifetime.
    #[cfg(any(feature = "login", test))]
    pub(super) fn cached_for(&self, time: Duration) -> Self {
        Self::new(Arc::clone(&self.source), Arc::clone(&self.clock), time)
    }

    /// Adds the claims to a session; at once if they are cached.
    pub(super) fn add_to(
        self: &Arc<Self>,
        session: Session,
    ) -> MaybeReady<BoxFuture<'static, Result<Session, Box<dyn Error + Send + Sync>>>> {
        let user = (session.tenant().clone(), session.user().clone());
        if let Some(claims) = self.cached(&user) {
            return MaybeReady::Ready(Ok(session.with_claims(claims)));
        }
        // before the source is asked, so that an answer is never used longer than it may be
        let (read_at, reading, cache) = (self.clock.now(), self.source.claims(&session), Arc::clone(self));
        MaybeReady::Pending(Box::pin(async move {
            let claims = reading.await?;
            cache.keep(user, CachedUser { claims: Arc::clone(&claims), read_at });
            Ok(session.with_claims(claims))
        }))
    }

    fn cached(&self, user: &(Tenant, UserId)) -> Option<Arc<Map<String, Value>>> {
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = users.get(user).filter(|cached| self.is_fresh(cached))?;
        Some(Arc::clone(&cached.claims))
    }

    fn keep(&self, user: (Tenant, UserId), cached: CachedUser) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if users.len() >= MOST_CACHED && !users.contains_key(&user) {
            users.retain(|_, cached| self.is_fresh(cached));
            if users.len() >= MOST_CACHED {
                // rare, and it costs each user one read
                users.clear();
            }
        }
        users.insert(user, cached);
    }

    fn is_fresh(&self, cached: &CachedUser) -> bool {
        self.clock.now().since(cached.read_at) < self.cached_for
    }
}

impl fmt::Debug for CachedClaims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedClaims").field("cached_for", &self.cached_for).finish_non_exhaustive()
    }
}
