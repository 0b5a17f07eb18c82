//! Extra claims of signed-in users, read through a cache.

use std::{
    collections::HashMap,
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Map, Value};

use super::super::{identity::UserId, session::Session};
use crate::{
    gate::MaybeReady,
    store::BoxFuture,
    tenant::Tenant,
    util::clock::{Clock, Moment},
};

/// How long claims are cached.
const CACHED_FOR: Duration = Duration::from_secs(60);
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
    users: Mutex<HashMap<(Tenant, UserId), CachedUser>>,
}

struct CachedUser {
    claims: Arc<Map<String, Value>>,
    read_at: Moment,
}

impl CachedClaims {
    pub(super) fn new(source: Arc<dyn ClaimsSource>, clock: Arc<dyn Clock>) -> Self {
        Self { source, clock, users: Mutex::default() }
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
        // read the time before asking the source, so that its answer is never used for too long
        let (read_at, reading, cache) = (self.clock.now(), self.source.claims(&session), Arc::clone(self));
        MaybeReady::Pending(Box::pin(async move {
            let claims = reading.await?;
            cache.cache_claims(user, CachedUser { claims: Arc::clone(&claims), read_at });
            Ok(session.with_claims(claims))
        }))
    }

    fn cached(&self, user: &(Tenant, UserId)) -> Option<Arc<Map<String, Value>>> {
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = users.get(user).filter(|cached| self.is_fresh(cached))?;
        Some(Arc::clone(&cached.claims))
    }

    fn cache_claims(&self, user: (Tenant, UserId), cached: CachedUser) {
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
        self.clock.now().since(cached.read_at) < CACHED_FOR
    }
}

crate::util::fmt::opaque_debug!(CachedClaims);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

    use http::{Request, Response};
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    use super::{
        super::{
            super::{session::NewSession, sessions::Sessions},
            SessionLayer,
        },
        *,
    };
    use crate::{
        store::Memory,
        testing::{ManualClock, block_on},
    };

    /// Answers with the number of the read.
    #[derive(Clone, Default)]
    struct Counting {
        reads: Arc<AtomicUsize>,
        fails: Arc<AtomicBool>,
    }

    impl ClaimsSource for Counting {
        fn claims(&self, session: &Session) -> BoxFuture<'static, ClaimsResult> {
            let (source, user) = (self.clone(), session.user().to_string());
            Box::pin(async move {
                if source.fails.load(SeqCst) {
                    return Err("the directory is down".into());
                }
                let read = source.reads.fetch_add(1, SeqCst);
                let claims = serde_json::json!({ "read": read, "name": user, "roles": ["admin"] });
                Ok(Arc::new(claims.as_object().unwrap().clone()))
            })
        }
    }

    struct World {
        source: Counting,
        clock: ManualClock,
        sessions: Sessions,
        layer: SessionLayer,
    }

    impl World {
        fn new() -> Self {
            let (source, clock) = (Counting::default(), ManualClock::new());
            let sessions = Sessions::builder(Memory::new()).clock(clock.clone()).build().unwrap();
            let layer = SessionLayer::new(sessions.clone()).required().claims(Arc::new(source.clone()));
            Self { source, clock, sessions, layer }
        }

        fn sign_in(&self, tenant: &str, user: &str) -> String {
            let new = NewSession::new(Tenant::parse(tenant).unwrap(), UserId::parse(user).unwrap());
            let (cookie, _) = block_on(self.sessions.create(new)).unwrap();
            cookie.header_value().to_str().unwrap().split(';').next().unwrap().to_owned()
        }

        /// The status, and the claims `read` and `name`.
        fn request_with_cookie(&self, cookie: &str) -> (u16, Option<(u64, String)>) {
            let service = service_fn(async |request: Request<()>| {
                let session = Session::from_extensions(request.extensions()).unwrap();
                let roles: Option<Vec<String>> = session.claim("roles");
                assert_eq!(roles.unwrap(), ["admin"]);
                assert_eq!(session.claim::<u64>("name"), None, "a string is no number");
                assert_eq!(session.claim::<u64>("other"), None);
                let claims = session.claim::<u64>("read").zip(session.claim("name"));
                Ok::<_, std::convert::Infallible>(Response::new(claims))
            });
            let service = ServiceBuilder::new().layer(self.layer.clone()).service(service);
            let request = Request::get("/").header("cookie", cookie).body(()).unwrap();
            let response = block_on(service.oneshot(request)).unwrap();
            (response.status().as_u16(), response.into_body())
        }
    }

    #[test]
    fn claims_are_read_once_a_minute_for_each_user_of_each_tenant() {
        let world = World::new();
        let (ada, grace) = (world.sign_in("acme", "ada"), world.sign_in("acme", "grace"));
        let (again, elsewhere) = (world.sign_in("acme", "ada"), world.sign_in("globex", "ada"));
        let read = |number, name: &str| (200, Some((number, String::from(name))));
        assert_eq!(world.request_with_cookie(&ada), read(0, "ada"));
        assert_eq!(world.request_with_cookie(&grace), read(1, "grace"));
        assert_eq!(world.request_with_cookie(&elsewhere), read(2, "ada"));
        world.clock.advance(CACHED_FOR - Duration::from_nanos(1));
        assert_eq!(world.request_with_cookie(&again), read(0, "ada"), "of another session of the same user");
        world.clock.advance(Duration::from_nanos(1));
        assert_eq!(world.request_with_cookie(&ada), read(3, "ada"));
    }

    #[test]
    fn a_request_is_refused_if_the_claims_cannot_be_read() {
        let world = World::new();
        let ada = world.sign_in("acme", "ada");
        world.source.fails.store(true, SeqCst);
        assert_eq!(world.request_with_cookie(&ada).0, 503);
        world.source.fails.store(false, SeqCst);
        assert_eq!(world.request_with_cookie(&ada).0, 200);
        // cached claims need no source
        world.source.fails.store(true, SeqCst);
        assert_eq!(world.request_with_cookie(&ada).0, 200);
        world.clock.advance(CACHED_FOR);
        assert_eq!(world.request_with_cookie(&ada).0, 503);
    }

    #[test]
    fn the_cache_is_bounded_and_expired_claims_make_room_first() {
        let world = World::new();
        let clock = Arc::new(world.clock.clone());
        let cache = CachedClaims::new(Arc::new(world.source), clock);
        let user = |number: usize| (Tenant::parse("acme").unwrap(), UserId::parse(format!("u{number}")).unwrap());
        let keep = |number: usize| {
            cache.cache_claims(user(number), CachedUser { claims: Arc::default(), read_at: world.clock.now() });
        };
        let len = || cache.users.lock().unwrap().len();
        (0..MOST_CACHED / 2).for_each(keep);
        world.clock.advance(CACHED_FOR);
        (MOST_CACHED / 2..MOST_CACHED).for_each(keep);
        assert_eq!(len(), MOST_CACHED);
        keep(MOST_CACHED);
        assert_eq!(len(), MOST_CACHED / 2 + 1);
        assert!(cache.cached(&user(MOST_CACHED - 1)).is_some());
        (0..MOST_CACHED * 2).for_each(keep);
        assert!(len() <= MOST_CACHED);
    }
}
