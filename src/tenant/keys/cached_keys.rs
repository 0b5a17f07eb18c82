//! [`CachedKeys`]: API keys that are looked up elsewhere, and a cache in front of them.

use std::{future::ready, sync::Arc, time::Duration};

use http::HeaderName;
use tokio::runtime::Handle;

use super::{
    api_keys::{key_of_request, missing_key, unknown_key},
    key_lookup::{AnyKeyLookup, KeyLookup, LookedUp, PresentedKey},
};
use crate::{
    http::head::Head,
    tenant::{
        error::TenantError,
        header::header_name,
        id::Tenant,
        source::{TenantLookup, TenantName, TenantSource},
    },
    util::{
        builder::setters,
        clock::{Clock, Moment, SystemClock},
        error::ConfigError,
        lookup::{Answer, CachedLookup, Found, Lookup, LookupSettings, Pace, in_time},
        secret::SecretDigest,
    },
};

/// Finds the tenant by an API key in a header, and looks the key up elsewhere, for example in a database.
///
/// Use it as the source of a [`RateLimitLayer`](crate::RateLimitLayer), alone or in a chain. Other layers can't wait for a
/// lookup. Put them behind it, with an [`ExtensionTenant`](crate::tenant::ExtensionTenant).
///
/// ```
/// use std::time::Duration;
/// use tollgate::{
///     Limiter, Plans, Quota, RateLimitLayer, Tenant,
///     tenant::{CachedKeys, PresentedKey, TenantError},
/// };
///
/// async fn tenant_of(key: PresentedKey) -> Result<Option<Tenant>, TenantError> {
///     // SELECT tenant FROM api_keys WHERE sha256 = $1
///     let _ = key.digest().as_bytes();
///     Tenant::parse("acme").map(Some)
/// }
///
/// // a key that is deleted from the database is accepted for at most 30 seconds more
/// let keys = CachedKeys::builder("x-api-key", tenant_of).time_to_live(Duration::from_secs(30)).build()?;
/// let layer: RateLimitLayer = RateLimitLayer::new(keys, Limiter::memory(Plans::new(Quota::per_minute(600)?)));
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
///
/// The first request with a key waits for the lookup. Its answer is then used for the [time to
/// live](CachedKeysBuilder::time_to_live). In the last quarter of that time, one request looks the key up again while
/// others use the answer, so busy tenants never wait. There is at most one lookup at a time for each key.
///
/// A key that can't be looked up is refused with a 503, and the event
/// [`TenantLookupFailed`](crate::event::EventKind::TenantLookupFailed) is recorded. A known key stays valid to the end of its time
/// to live.
///
/// # Security
///
/// Anyone can make up keys. So answers that a key is unknown are cached, too, and the numbers of answers and of
/// concurrent lookups are bounded. Unknown keys never take more than half of either, so they can't displace customers.
/// A lookup goes on even if its caller disconnects, and its answer is cached.
///
/// After a start, valid keys can't be told from made-up ones, so all wait for a lookup in the order in which they
/// arrived. Unknown keys are refused without a charge to any tenant: to bound how often one address can query your
/// database, put a layer with [`ClientIp`](crate::ClientIp) in front. With
/// `charge_if(|status, _| !status.is_success())`, it charges only unsuccessful requests.
///
/// Only digests of keys are kept.
#[derive(Clone)]
pub struct CachedKeys(Arc<Cache>);

struct Cache {
    header: HeaderName,
    lookup: Box<dyn AnyKeyLookup>,
    unknown_time_to_live: Duration,
    clock: Arc<dyn Clock>,
    cached: CachedLookup<[u8; 32], Tenant>,
    warnings: Pace,
}

/// Builds [`CachedKeys`].
#[must_use]
pub struct CachedKeysBuilder {
    header: String,
    lookup: Box<dyn AnyKeyLookup>,
    settings: LookupSettings,
    unknown_time_to_live: Duration,
    clock: Arc<dyn Clock>,
}

impl CachedKeys {
    /// Looks up the keys in the header `header`, with the default settings.
    ///
    /// # Errors
    ///
    /// Returns an error if `header` is not a valid header name.
    pub fn new(header: impl Into<String>, lookup: impl KeyLookup) -> Result<Self, ConfigError> {
        Self::builder(header, lookup).build()
    }

    /// Returns a builder with the default settings.
    pub fn builder(header: impl Into<String>, lookup: impl KeyLookup) -> CachedKeysBuilder {
        CachedKeysBuilder {
            header: header.into(),
            lookup: Box::new(lookup),
            settings: LookupSettings::new(Duration::from_secs(1)),
            unknown_time_to_live: Duration::from_secs(10),
            clock: Arc::new(SystemClock::new()),
        }
    }
}

impl CachedKeysBuilder {
    setters! {
        /// Sets how long a known key is accepted before it is looked up again. Defaults to one minute.
        pub fn time_to_live(time: Duration) { settings.time_to_live: time }

        /// Sets how long an unknown key is refused without a lookup. Defaults to ten seconds, so a new key can take that long to work
        /// if it was tried before.
        pub fn unknown_time_to_live(time: Duration) { unknown_time_to_live: time }

        /// Sets how long a request waits for its turn, and then for the lookup, before the lookup counts as failed. Defaults to one
        /// second. Works in every runtime.
        pub fn deadline(time: Duration) { settings.deadline: time }

        /// Sets how long to wait before retrying a failed lookup of a key. Defaults to one second.
        pub fn retry_after(time: Duration) { settings.retry_after: time }

        /// Sets how many answers are kept. Defaults to 100,000, which take about 20 MB.
        ///
        /// At most half of them are about unknown keys, and they make room for known ones. Keys beyond the maximum are
        /// looked up on every request.
        pub fn max_keys(most: usize) { settings.max_answers: most }

        /// Sets how many lookups run at once. Defaults to 64.
        ///
        /// At most half of them are for keys that were not valid recently. Others wait their turn, for at most a
        /// [deadline](Self::deadline), in the order in which they arrived.
        pub fn max_lookups(most: usize) { settings.max_lookups: most }

        /// Sets the clock. Defaults to the system clock.
        pub fn clock(clock: impl Clock) { clock: Arc::new(clock) }
    }

    /// Checks the settings and creates the source.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is invalid.
    pub fn build(self) -> Result<CachedKeys, ConfigError> {
        let header = header_name("API key header", &self.header)?;
        self.settings.validate([
            "keys time_to_live",
            "keys deadline",
            "keys retry_after",
            "keys max_keys",
            "keys max_lookups",
        ])?;
        ConfigError::refuse_zero("keys unknown_time_to_live", self.unknown_time_to_live)?;
        let Self { lookup, settings, unknown_time_to_live, clock, .. } = self;
        let (cached, warnings) = (CachedLookup::new(settings), Pace::default());
        Ok(CachedKeys(Arc::new(Cache { header, lookup, unknown_time_to_live, clock, cached, warnings })))
    }
}

impl Cache {
    fn outcome(&self, found: Found<Tenant>) -> Result<Tenant, TenantError> {
        match found {
            Found::Known(tenant) => Ok(tenant),
            Found::Nothing => Err(unknown_key(&self.header)),
            Found::Failure => Err(TenantError::unavailable("API keys cannot be checked for now")),
        }
    }

    async fn load_key(self: &Arc<Self>, digest: SecretDigest, key: PresentedKey) -> Result<Tenant, TenantError> {
        let digest = *digest.as_bytes();
        let look_up = |lookup: Lookup<[u8; 32], Found<Tenant>>| async move {
            let cache = Arc::clone(self);
            let looked_up = async move {
                // a key that is deleted meanwhile is not known for longer
                let asked_at = cache.clock.now();
                let answer = cache.cached.in_time(cache.lookup.look_up(key)).await;
                let found = cache.keep_key(&digest, asked_at, answer);
                lookup.publish_result(found.clone());
                found
            };
            // the answer is kept even if this request is dropped; and it waits no longer if the task does not run
            let Ok(runtime) = Handle::try_current() else { return looked_up.await };
            let found = in_time(self.cached.settings.deadline, runtime.spawn(looked_up)).await;
            found.and_then(Result::ok).unwrap_or(Found::Failure)
        };
        let state = || self.cached.state(&digest, self.clock.now());
        self.outcome(self.cached.load(&digest, state, |reason| self.warn(reason), look_up).await)
    }

    /// Keeps what was found about a key. Without room, it is looked up again.
    fn keep_key(&self, digest: &[u8; 32], asked_at: Moment, answer: LookedUp) -> Found<Tenant> {
        let (now, time_to_live) = (self.clock.now(), self.cached.settings.time_to_live);
        let answer = match answer {
            Ok(Some(tenant)) => {
                let (renew_at, until) = (asked_at + time_to_live / 4 * 3, asked_at + time_to_live);
                Answer { renew_at, until, found: Found::Known(tenant) }
            }
            Ok(None) => {
                let until = now + self.unknown_time_to_live;
                Answer { renew_at: until, until, found: Found::Nothing }
            }
            Err(reason) => {
                self.warn(&reason);
                self.cached.answer_after_failure(digest, now, true)
            }
        };
        self.cached.answers.keep_answer(digest, answer.clone(), now, |purge| purge(&|_| ()));
        answer.found
    }

    /// Logs at most one failure each second, because callers can invent keys.
    fn warn(&self, reason: &str) {
        if self.warnings.is_due(self.clock.now(), Duration::from_secs(1)) {
            crate::util::trace::warning!("an API key could not be looked up: {reason}");
        }
    }
}

impl TenantSource for CachedKeys {
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        let Some(key) = key_of_request(head, &self.0.header)? else { return Ok(None) };
        let (digest, cached) = (SecretDigest::of_secret(key), &self.0.cached);
        match cached.without_waiting(digest.as_bytes(), cached.state(digest.as_bytes(), self.0.clock.now())) {
            Some(found) => self.0.outcome(found).map(|tenant| Some(tenant.into())),
            None => Err(TenantError::pending()),
        }
    }

    fn look_up(&self, head: Head<'_>) -> TenantLookup {
        let key = match key_of_request(head, &self.0.header) {
            Ok(Some(key)) => key,
            Ok(None) => return Box::pin(ready(Err(self.missing(head)))),
            Err(error) => return Box::pin(ready(Err(error))),
        };
        let (digest, cache) = (SecretDigest::of_secret(key), Arc::clone(&self.0));
        let key = PresentedKey::new(key, digest);
        Box::pin(async move { cache.load_key(digest, key).await.map(TenantName::from) })
    }

    fn missing(&self, _: Head<'_>) -> TenantError {
        missing_key(&self.0.header)
    }
}

crate::util::fmt::debug_fields!(CachedKeys, |own| header: own.0.header, settings: own.0.cached.settings);
crate::util::fmt::debug_fields!(CachedKeysBuilder { header, settings, unknown_time_to_live });
