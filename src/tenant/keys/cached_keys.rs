//! [`CachedKeys`]: API keys that are looked up elsewhere, and a cache in front of them.

use std::{future::ready, sync::Arc, time::Duration};

use http::HeaderName;
use tokio::{runtime::Handle, sync::Semaphore};

use super::{
    api_keys::{key_of_request, missing_key, unknown_key},
    key_lookup::{AnyKeyLookup, KeyLookup, PresentedKey},
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
        lookup::{Answer, Answers, Found, Pace, Running, Turn, in_time},
        secret::SecretDigest,
    },
};

/// Finds the tenant by an API key in a header, and looks the key up elsewhere, for example in a database (feature
/// `plans`).
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
/// `refund_if(|status, _| status.is_success())`, it charges only unsuccessful requests.
///
/// Only digests of keys are kept.
#[derive(Clone)]
pub struct CachedKeys(Arc<Cache>);

struct Cache {
    header: HeaderName,
    settings: CachedKeysBuilder,
    answers: Answers<[u8; 32], KnownKey>,
    running: Running<[u8; 32], Outcome>,
    /// A place for each lookup of a key that was not valid lately. Requests get them in the order of their arrival.
    places: Arc<Semaphore>,
    warnings: Pace,
}

/// A key that was found.
#[derive(Clone)]
struct KnownKey {
    tenant: Tenant,
    /// From when on it is looked up again, before its answer is too old.
    renew_at: Moment,
}

type Outcome = Result<Tenant, TenantError>;

/// The answer of the cache about a key.
enum KeyState {
    Decided(Outcome),
    /// It must be looked up. It was valid lately, or still is.
    Due {
        was_known: bool,
        valid: Option<Tenant>,
    },
}

/// Builds [`CachedKeys`].
#[must_use]
pub struct CachedKeysBuilder {
    header: String,
    lookup: Box<dyn AnyKeyLookup>,
    time_to_live: Duration,
    unknown_time_to_live: Duration,
    deadline: Duration,
    retry_after: Duration,
    max_keys: usize,
    max_lookups: usize,
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
            time_to_live: Duration::from_secs(60),
            unknown_time_to_live: Duration::from_secs(10),
            deadline: Duration::from_secs(1),
            retry_after: Duration::from_secs(1),
            max_keys: 100_000,
            max_lookups: 64,
            clock: Arc::new(SystemClock::new()),
        }
    }
}

impl CachedKeysBuilder {
    setters! {
        /// Sets how long a known key is accepted before it is looked up again. Defaults to one minute.
        pub fn time_to_live(time: Duration) { time_to_live: time }

        /// Sets how long an unknown key is refused without a lookup. Defaults to ten seconds, so a new key can take that long to work
        /// if it was tried before.
        pub fn unknown_time_to_live(time: Duration) { unknown_time_to_live: time }

        /// Sets how long a request waits for a lookup before the lookup counts as failed. Defaults to one second. Works
        /// in every runtime.
        pub fn deadline(time: Duration) { deadline: time }

        /// Sets how long to wait before retrying a failed lookup of a key. Defaults to one second.
        pub fn retry_after(time: Duration) { retry_after: time }

        /// Sets how many answers are kept. Defaults to 100,000, which take about 20 MB.
        ///
        /// At most half of them are about unknown keys, and they make room for known ones. Keys beyond the maximum are
        /// looked up on every request.
        pub fn max_keys(most: usize) { max_keys: most }

        /// Sets how many lookups run at once. Defaults to 64.
        ///
        /// At most half of them are for keys that were not valid recently. Others wait their turn, for at most a
        /// [deadline](Self::deadline), in the order in which they arrived.
        pub fn max_lookups(most: usize) { max_lookups: most }

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
        let times = [
            ("keys time_to_live", self.time_to_live),
            ("keys unknown_time_to_live", self.unknown_time_to_live),
            ("keys deadline", self.deadline),
            ("keys retry_after", self.retry_after),
        ];
        let numbers = [("keys max_keys", self.max_keys), ("keys max_lookups", self.max_lookups)];
        ConfigError::refuse_zeros(&numbers, &times)?;
        let answers = Answers::new(self.max_keys);
        let places = Arc::new(Semaphore::new(self.max_lookups.div_ceil(2).min(Semaphore::MAX_PERMITS)));
        let (running, warnings) = (Running::new(), Pace::default());
        let cache = Cache { header, settings: self, answers, running, places, warnings };
        Ok(CachedKeys(Arc::new(cache)))
    }
}

const UNAVAILABLE: TenantError = TenantError::unavailable("API keys cannot be checked for now");

impl Cache {
    fn key_state(&self, digest: &[u8; 32], now: Moment) -> KeyState {
        match self.answers.last_answer(digest) {
            Some(Answer { until, found: Found::Known(KnownKey { tenant, renew_at }) }) => {
                let is_valid = now < until;
                if is_valid && (now < renew_at || self.running.contains(digest)) {
                    return KeyState::Decided(Ok(tenant));
                }
                KeyState::Due { was_known: true, valid: is_valid.then_some(tenant) }
            }
            Some(Answer { until, found: Found::Nothing }) if now < until => {
                KeyState::Decided(Err(unknown_key(&self.header)))
            }
            Some(Answer { until, found: Found::Failure }) if now < until => KeyState::Decided(Err(UNAVAILABLE)),
            Some(_) | None => KeyState::Due { was_known: false, valid: None },
        }
    }

    async fn load_key(self: &Arc<Self>, digest: SecretDigest, key: PresentedKey) -> Outcome {
        let (digest, mut key) = (*digest.as_bytes(), Some(key));
        let CachedKeysBuilder { clock, max_lookups, deadline, .. } = &self.settings;
        let mut place = None;
        loop {
            let (was_known, valid) = match self.key_state(&digest, clock.now()) {
                KeyState::Decided(outcome) => return outcome,
                KeyState::Due { was_known, valid } => (was_known, valid),
            };
            let needs_place = !was_known && place.is_none();
            if needs_place && !self.running.contains(&digest) {
                let free = in_time(*deadline, Arc::clone(&self.places).acquire_owned()).await;
                let Some(Ok(own)) = free else {
                    self.warn("too many lookups are running");
                    return Err(UNAVAILABLE);
                };
                // the answer may be known by now
                place = Some(own);
                continue;
            }
            match self.running.join_lookup(&digest, *max_lookups) {
                Turn::Full => {
                    self.warn("too many lookups are running");
                    return valid.ok_or(UNAVAILABLE);
                }
                // the lookup that it would have followed has just ended
                Turn::Leads(_) if needs_place => {}
                Turn::Leads(turn) => {
                    // only one turn of a request is the leading one
                    let Some(key) = key.take() else { return Err(UNAVAILABLE) };
                    let cache = Arc::clone(self);
                    let lookup = async move {
                        let _place = place;
                        let outcome = cache.look_up_key(digest, key).await;
                        turn.publish_result(outcome.clone());
                        outcome
                    };
                    // the answer is kept even if this request is dropped; and it waits no longer if the task does not run
                    return match Handle::try_current() {
                        Ok(runtime) => match in_time(*deadline, runtime.spawn(lookup)).await {
                            Some(Ok(outcome)) => outcome,
                            Some(Err(_)) | None => Err(UNAVAILABLE),
                        },
                        Err(_) => lookup.await,
                    };
                }
                Turn::Follows(other) => {
                    if let Some(tenant) = valid {
                        return Ok(tenant);
                    }
                    place = None;
                    // without a result, the lookup was dropped
                    if let Some(outcome) = other.result().await {
                        return outcome;
                    }
                }
            }
        }
    }

    async fn look_up_key(&self, digest: [u8; 32], key: PresentedKey) -> Outcome {
        let CachedKeysBuilder { clock, deadline, lookup, .. } = &self.settings;
        // a key that is deleted meanwhile is not known for longer
        let asked_at = clock.now();
        let found = in_time(*deadline, lookup.look_up(key)).await;
        self.keep_key(&digest, asked_at, found.unwrap_or_else(|| Err("no answer in time".into())))
    }

    /// Keeps what was found about a key, and decides about the requests that wait.
    fn keep_key(&self, digest: &[u8; 32], asked_at: Moment, found: Result<Option<Tenant>, String>) -> Outcome {
        let CachedKeysBuilder { clock, time_to_live, unknown_time_to_live, retry_after, .. } = &self.settings;
        let now = clock.now();
        let keep = |until: Moment, found| {
            self.answers.keep_answer(digest, Answer { until, found }, now, |purge| purge(&|_| ()))
        };
        match found {
            Ok(Some(tenant)) => {
                let known = KnownKey { tenant: tenant.clone(), renew_at: asked_at + *time_to_live / 4 * 3 };
                // without room, it is looked up again
                keep(asked_at + *time_to_live, Found::Known(known));
                Ok(tenant)
            }
            Ok(None) => {
                keep(now + *unknown_time_to_live, Found::Nothing);
                Err(unknown_key(&self.header))
            }
            Err(reason) => {
                self.warn(&reason);
                match self.answers.last_answer(digest) {
                    Some(Answer { until, found: Found::Known(known) }) if now < until => {
                        let known = KnownKey { renew_at: now + *retry_after, ..known };
                        let tenant = known.tenant.clone();
                        keep(until, Found::Known(known));
                        Ok(tenant)
                    }
                    _ => {
                        keep(now + *retry_after, Found::Failure);
                        Err(UNAVAILABLE)
                    }
                }
            }
        }
    }

    /// Logs at most one failure each second, because callers can invent keys.
    fn warn(&self, reason: &str) {
        if self.warnings.is_due(self.settings.clock.now(), Duration::from_secs(1)) {
            crate::util::trace::warning!("an API key could not be looked up: {reason}");
        }
    }
}

impl TenantSource for CachedKeys {
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        let Some(key) = key_of_request(head, &self.0.header)? else { return Ok(None) };
        let digest = SecretDigest::of_secret(key);
        match self.0.key_state(digest.as_bytes(), self.0.settings.clock.now()) {
            KeyState::Decided(outcome) => outcome.map(|tenant| Some(tenant.into())),
            KeyState::Due { .. } => Err(TenantError::pending()),
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

crate::util::fmt::debug_fields!(CachedKeys, |own| header: own.0.header, settings: own.0.settings);
crate::util::fmt::debug_fields!(CachedKeysBuilder {
    time_to_live,
    unknown_time_to_live,
    deadline,
    max_keys,
    max_lookups
});
