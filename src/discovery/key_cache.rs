//! Decides when cached keys are used and when new ones are fetched.

use std::{sync::Arc, time::Duration};

use super::lifetime::Lifetime;
use crate::{jose::KeySet, util::clock::Moment};

/// The pause between requests for unknown key ids.
pub(super) const PAUSE: Duration = Duration::from_secs(30);

/// How often one such request is made without that pause, because keys can be rotated right after they were fetched.
const EARLY_PAUSE: Duration = Duration::from_secs(300);

/// The pause after a failed request. It doubles with each further failure, up to [`PAUSE`].
const REST: Duration = Duration::from_secs(1);

/// The cached keys and the state of requests for them. It makes no requests itself, but decides
/// when one is needed.
#[derive(Debug)]
pub(super) struct KeyCache {
    /// How long keys stay valid beyond their lifetime.
    outage: Duration,
    held: Option<CachedKeys>,
    /// A request is in progress.
    asking: bool,
    /// When the last request started.
    asked: Option<Moment>,
    /// When the last request started that did not wait for the pause.
    asked_early: Option<Moment>,
    /// The number of consecutive failures.
    failures: u32,
    rest_until: Moment,
}

#[derive(Debug)]
struct CachedKeys {
    keys: Arc<KeySet>,
    renew_at: Moment,
    good_until: Moment,
}

/// The next action of a caller that needs keys.
#[derive(Debug)]
pub(super) enum NextStep {
    /// Use these keys.
    Take(Arc<KeySet>),
    /// Use these keys, and start a request for later callers.
    Renew(Arc<KeySet>),
    /// Wait for the request in progress.
    Wait,
    /// Start a request and wait for it.
    Fetch,
    /// Give up.
    Fail,
}

impl KeyCache {
    pub(super) fn new(outage: Duration) -> Self {
        let (asked, asked_early, rest_until) = (None, None, Moment::default());
        Self { outage, held: None, asking: false, asked, asked_early, failures: 0, rest_until }
    }

    /// Returns the keys that are valid now.
    pub(super) fn valid_keys(&self, now: Moment) -> Option<&Arc<KeySet>> {
        self.held.as_ref().filter(|held| now < held.good_until).map(|held| &held.keys)
    }

    /// Decides for a token. Callers never wait while there are keys.
    pub(super) fn keys(&mut self, now: Moment) -> NextStep {
        let Some(keys) = self.valid_keys(now).map(Arc::clone) else { return self.decide_without_keys(now) };
        let is_old = self.held.as_ref().is_some_and(|held| held.renew_at <= now);
        if is_old && self.try_start_fetch(now) { NextStep::Renew(keys) } else { NextStep::Take(keys) }
    }

    /// Decides for a token that names an unknown key.
    pub(super) fn decide_for_unknown_key(&mut self, seen: &Arc<KeySet>, now: Moment) -> NextStep {
        let Some(keys) = self.valid_keys(now).map(Arc::clone) else { return self.decide_without_keys(now) };
        if !Arc::ptr_eq(&keys, seen) {
            return NextStep::Take(keys);
        }
        if self.asking {
            return NextStep::Wait;
        }
        let is_early = self.asked.is_some_and(|asked| now < asked + PAUSE);
        let is_too_early = is_early && self.asked_early.is_some_and(|asked| now < asked + EARLY_PAUSE);
        if is_too_early || !self.try_start_fetch(now) {
            return NextStep::Take(keys);
        }
        if is_early {
            self.asked_early = Some(now);
        }
        NextStep::Fetch
    }

    fn decide_without_keys(&mut self, now: Moment) -> NextStep {
        if self.asking {
            return NextStep::Wait;
        }
        if self.try_start_fetch(now) { NextStep::Fetch } else { NextStep::Fail }
    }

    /// Returns whether the caller should start a request. There is one request at a time, and none
    /// soon after a failure.
    fn try_start_fetch(&mut self, now: Moment) -> bool {
        let may = !self.asking && self.rest_until <= now;
        if may {
            (self.asking, self.asked) = (true, Some(now));
        }
        may
    }

    /// Ends a request with the keys and their lifetime, or with a failure.
    pub(super) fn finish_fetch(&mut self, found: Option<(KeySet, Lifetime)>, now: Moment) {
        self.asking = false;
        let Some((keys, lifetime)) = found else {
            let rest = REST.saturating_mul(1 << self.failures.min(10)).min(PAUSE);
            (self.failures, self.rest_until) = (self.failures.saturating_add(1), now + rest);
            return;
        };
        self.failures = 0;
        // the lifetime counts from the start of the request
        let since = self.asked.unwrap_or(now);
        // verified tokens are cached per key set, so unchanged keys keep the same allocation
        let known = self.held.take().map(|held| held.keys).filter(|known| **known == keys);
        self.held = Some(CachedKeys {
            keys: known.unwrap_or_else(|| Arc::new(keys)),
            renew_at: since + lifetime.early(),
            good_until: since + lifetime.0 + self.outage,
        });
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, header};
    use proptest::prelude::*;

    use super::*;
    use crate::{jose::jwk::PublicKey, testing::ManualClock, util::clock::Clock};

    const OUTAGE: Duration = Duration::from_secs(1000);

    fn set(number: u8) -> KeySet {
        KeySet::new([(number.to_string(), PublicKey::Ed25519([number; 32]))])
    }

    fn lifetime(seconds: u64) -> Lifetime {
        let value = HeaderValue::from_str(&format!("max-age={seconds}")).unwrap();
        Lifetime::from_cache_control(&HeaderMap::from_iter([(header::CACHE_CONTROL, value)]))
    }

    /// A cache and its clock.
    struct World {
        cache: KeyCache,
        clock: ManualClock,
    }

    impl World {
        fn new() -> Self {
            Self { cache: KeyCache::new(OUTAGE), clock: ManualClock::new() }
        }

        /// A cache with keys that are valid for 100 seconds.
        fn with_keys() -> Self {
            let mut world = Self::new();
            assert_eq!(world.keys(), "fetch");
            world.found(1, 100);
            world
        }

        fn advance_seconds(&self, seconds: u64) {
            self.clock.advance(Duration::from_secs(seconds));
        }

        fn keys(&mut self) -> &'static str {
            name(&self.cache.keys(self.clock.now()))
        }

        /// A token with an unknown key.
        fn newer(&mut self) -> &'static str {
            let now = self.clock.now();
            let seen = self.cache.valid_keys(now).cloned().unwrap_or_default();
            name(&self.cache.decide_for_unknown_key(&seen, now))
        }

        fn found(&mut self, number: u8, seconds: u64) {
            self.cache.finish_fetch(Some((set(number), lifetime(seconds))), self.clock.now());
        }

        fn fails(&mut self) {
            self.cache.finish_fetch(None, self.clock.now());
        }

        /// Makes the one request that needs no pause, which finds the same keys.
        fn uses_early_request(&mut self) {
            assert_eq!(self.newer(), "fetch");
            self.found(1, 100);
        }
    }

    fn name(step: &NextStep) -> &'static str {
        match step {
            NextStep::Take(_) => "take",
            NextStep::Renew(_) => "renew",
            NextStep::Wait => "wait",
            NextStep::Fetch => "fetch",
            NextStep::Fail => "fail",
        }
    }

    #[test]
    fn one_caller_fetches_the_first_keys_and_the_others_wait() {
        let mut world = World::new();
        assert_eq!([world.keys(), world.keys(), world.newer()], ["fetch", "wait", "wait"]);
        world.found(1, 100);
        assert_eq!([world.keys(), world.keys()], ["take", "take"]);
    }

    #[test]
    fn keys_are_renewed_in_time_by_one_caller_without_delaying_others() {
        let mut world = World::with_keys();
        world.advance_seconds(79);
        assert_eq!(world.keys(), "take");
        world.advance_seconds(1);
        assert_eq!([world.keys(), world.keys()], ["renew", "take"]);
        world.advance_seconds(500);
        assert_eq!(world.keys(), "take");
        world.found(1, 100);
        // their lifetime counts from the request, so it is time again
        assert_eq!(world.keys(), "renew");
    }

    #[test]
    fn unknown_key_ids_cause_few_requests() {
        let mut world = World::with_keys();
        world.uses_early_request();
        assert_eq!(world.newer(), "take", "just fetched");
        world.advance_seconds(29);
        assert_eq!(world.newer(), "take");
        world.advance_seconds(1);
        assert_eq!([world.newer(), world.newer(), world.keys()], ["fetch", "wait", "take"]);
        world.found(2, 100);
        assert_eq!([world.newer(), world.keys()], ["take", "take"]);
    }

    #[test]
    fn b14_keys_that_are_rotated_right_after_a_request_are_found_once_in_five_minutes() {
        let mut world = World::with_keys();
        assert_eq!([world.newer(), world.newer()], ["fetch", "wait"]);
        world.found(2, 1000);
        assert_eq!([world.newer(), world.newer()], ["take", "take"]);
        // a made-up key causes one request per pause from now on
        for _ in 0..9 {
            world.advance_seconds(30);
            assert_eq!(world.newer(), "fetch");
            world.found(2, 1000);
            assert_eq!(world.newer(), "take");
        }
        world.advance_seconds(29);
        assert_eq!(world.newer(), "take", "after 299 seconds");
        world.advance_seconds(1);
        assert_eq!(world.newer(), "fetch");
        world.found(2, 1000);
        assert_eq!(world.newer(), "fetch", "another early request");
        // a failed request is no reason to ask again at once
        world.fails();
        assert_eq!(world.newer(), "take");
    }

    #[test]
    fn newer_keys_are_used_without_a_request() {
        let mut world = World::with_keys();
        let old = world.cache.valid_keys(world.clock.now()).cloned().unwrap();
        world.advance_seconds(80);
        assert_eq!(world.keys(), "renew");
        world.found(2, 100);
        let NextStep::Take(keys) = world.cache.decide_for_unknown_key(&old, world.clock.now()) else {
            panic!("newer keys expected")
        };
        assert_eq!(*keys, set(2));
    }

    #[test]
    fn unchanged_keys_keep_verified_tokens_cached() {
        let mut world = World::with_keys();
        let old = world.cache.valid_keys(world.clock.now()).cloned().unwrap();
        world.advance_seconds(80);
        assert_eq!(world.keys(), "renew");
        world.found(1, 100);
        assert!(Arc::ptr_eq(&old, world.cache.valid_keys(world.clock.now()).unwrap()));
    }

    #[test]
    fn keys_survive_an_outage_up_to_the_limit() {
        let mut world = World::with_keys();
        world.advance_seconds(80);
        for _ in 0..1019 {
            if world.keys() == "renew" {
                world.fails();
            }
            assert_eq!(world.keys(), "take");
            world.advance_seconds(1);
        }
        world.advance_seconds(1);
        assert!(["fail", "fetch"].contains(&world.keys()), "still used after 1100 seconds");
    }

    #[test]
    fn pauses_grow_while_an_issuer_is_down() {
        let mut world = World::new();
        for rest in [1, 2, 4, 8, 16, 30, 30, 30] {
            assert_eq!(world.keys(), "fetch");
            world.fails();
            world.advance_seconds(rest - 1);
            assert_eq!([world.keys(), world.newer()], ["fail", "fail"], "within {rest} s");
            world.advance_seconds(1);
        }
        assert_eq!(world.keys(), "fetch");
        world.found(1, 100);
        // the pauses start over
        world.advance_seconds(80);
        assert_eq!(world.keys(), "renew");
        world.fails();
        world.advance_seconds(1);
        assert_eq!(world.keys(), "renew");
    }

    #[test]
    fn without_outage_tolerance_keys_expire_on_time() {
        let mut world = World { cache: KeyCache::new(Duration::ZERO), clock: ManualClock::new() };
        assert_eq!(world.keys(), "fetch");
        world.found(1, 100);
        world.advance_seconds(100);
        assert_eq!([world.keys(), world.keys()], ["fetch", "wait"]);
    }

    #[derive(Clone, Debug)]
    enum Event {
        Passes(u64),
        Keys,
        Newer,
        Found(u8, u64),
        Fails,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            (0..40_u64).prop_map(Event::Passes),
            (0..2000_u64).prop_map(Event::Passes),
            Just(Event::Keys),
            Just(Event::Newer),
            Just(Event::Newer),
            (0..3_u8, 60..300_u64).prop_map(|(number, seconds)| Event::Found(number, seconds)),
            Just(Event::Fails),
        ]
    }

    proptest! {
        #[test]
        fn there_is_one_request_at_a_time_and_callers_with_keys_do_not_wait(
            events in prop::collection::vec(event(), 0..200),
        ) {
            let mut world = World::new();
            // a model of the guarantees, independent of the cache
            let (mut under_way, mut last_start, mut last_early, mut not_before, mut until) = (None, None, None, 0, 0);
            for event in events {
                let now = world.clock.now().as_nanos() / 1_000_000_000;
                let has_keys = now < until;
                let step = match event {
                    Event::Passes(seconds) => { world.advance_seconds(seconds); continue }
                    Event::Found(number, seconds) => {
                        if let Some(start) = under_way.take() {
                            world.found(number, seconds);
                            until = start + seconds + OUTAGE.as_secs();
                        }
                        continue;
                    }
                    Event::Fails => {
                        if under_way.take().is_some() {
                            world.fails();
                            not_before = now + 1;
                        }
                        continue;
                    }
                    Event::Keys => world.keys(),
                    Event::Newer => world.newer(),
                };
                let is_newer = matches!(event, Event::Newer);
                match step {
                    "take" => prop_assert!(has_keys),
                    "fail" => prop_assert!(!has_keys && under_way.is_none()),
                    "wait" => prop_assert!(under_way.is_some() && (is_newer || !has_keys)),
                    "renew" => prop_assert!(has_keys && !is_newer),
                    _ => {
                        prop_assert!(is_newer || !has_keys);
                        let has_passed = |start: Option<u64>, pause: Duration| start.is_none_or(|start| now >= start + pause.as_secs());
                        if has_keys && !has_passed(last_start, PAUSE) {
                            prop_assert!(has_passed(last_early, EARLY_PAUSE), "a flood of key ids causes many requests");
                            last_early = Some(now);
                        }
                    }
                }
                if ["renew", "fetch"].contains(&step) {
                    prop_assert!(under_way.is_none() && now >= not_before);
                    (under_way, last_start) = (Some(now), Some(now));
                }
            }
        }
    }
}
