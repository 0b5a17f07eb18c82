//! [`KeyCache`]: when the keys at hand are used, and when the issuer is asked for them.

use std::{sync::Arc, time::Duration};

use super::lifetime::Lifetime;
use crate::{jose::KeySet, util::clock::Moment};

/// How long nobody asks for a key of a name that is not there, once somebody has asked.
pub(super) const PAUSE: Duration = Duration::from_secs(30);

/// After a failure nobody asks for so long, and twice as long after each that follows, up to [`PAUSE`].
const REST: Duration = Duration::from_secs(1);

/// Keys, and what is known of the way to them. It makes no request: it says when one is to be made.
#[derive(Debug)]
pub(super) struct KeyCache {
    /// How long keys are good beyond their lifetime.
    outage: Duration,
    held: Option<CachedKeys>,
    /// A request is under way.
    asking: bool,
    /// When the last one began.
    asked: Option<Moment>,
    /// How many have failed in a row.
    failures: u32,
    rest_until: Moment,
}

#[derive(Debug)]
struct CachedKeys {
    keys: Arc<KeySet>,
    renew_at: Moment,
    good_until: Moment,
}

/// What whoever needs keys does.
#[derive(Debug)]
pub(super) enum NextStep {
    /// Takes these.
    Take(Arc<KeySet>),
    /// Takes these, and makes a request for whoever comes later.
    Renew(Arc<KeySet>),
    /// Waits for the request that is under way.
    Wait,
    /// Makes a request and waits for it.
    Fetch,
    /// Goes without.
    Fail,
}

impl KeyCache {
    pub(super) fn new(outage: Duration) -> Self {
        Self { outage, held: None, asking: false, asked: None, failures: 0, rest_until: Moment::default() }
    }

    /// The keys that may be used now.
    pub(super) fn good(&self, now: Moment) -> Option<&Arc<KeySet>> {
        self.held.as_ref().filter(|held| now < held.good_until).map(|held| &held.keys)
    }

    /// For a token. Where there are keys, nobody waits.
    pub(super) fn keys(&mut self, now: Moment) -> NextStep {
        let Some(keys) = self.good(now).map(Arc::clone) else { return self.none(now) };
        let is_old = self.held.as_ref().is_some_and(|held| held.renew_at <= now);
        if is_old && self.begin(now) { NextStep::Renew(keys) } else { NextStep::Take(keys) }
    }

    /// For a token that names a key which is not among those that were seen.
    pub(super) fn newer(&mut self, seen: &Arc<KeySet>, now: Moment) -> NextStep {
        let Some(keys) = self.good(now).map(Arc::clone) else { return self.none(now) };
        if !Arc::ptr_eq(&keys, seen) {
            return NextStep::Take(keys);
        }
        if self.asking {
            return NextStep::Wait;
        }
        let was_asked = self.asked.is_some_and(|asked| now < asked + PAUSE);
        if !was_asked && self.begin(now) { NextStep::Fetch } else { NextStep::Take(keys) }
    }

    fn none(&mut self, now: Moment) -> NextStep {
        if self.asking {
            return NextStep::Wait;
        }
        if self.begin(now) { NextStep::Fetch } else { NextStep::Fail }
    }

    /// Whether the one who asks is to make a request. One at a time, and none soon after a failure.
    fn begin(&mut self, now: Moment) -> bool {
        let may = !self.asking && self.rest_until <= now;
        if may {
            (self.asking, self.asked) = (true, Some(now));
        }
        may
    }

    /// A request is over: keys and how long they last, or nothing.
    pub(super) fn end(&mut self, found: Option<(KeySet, Lifetime)>, now: Moment) {
        self.asking = false;
        let Some((keys, lifetime)) = found else {
            let rest = REST.saturating_mul(1 << self.failures.min(10)).min(PAUSE);
            (self.failures, self.rest_until) = (self.failures.saturating_add(1), now + rest);
            return;
        };
        self.failures = 0;
        // the document has the age that it had when it was asked for
        let since = self.asked.unwrap_or(now);
        // tokens are remembered with the keys that they were good by: the same keys stay the same
        let known = self.held.take().map(|held| held.keys).filter(|known| **known == keys);
        self.held = Some(CachedKeys {
            keys: known.unwrap_or_else(|| Arc::new(keys)),
            renew_at: since + lifetime.early(),
            good_until: since + lifetime.whole() + self.outage,
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
        Lifetime::of(&HeaderMap::from_iter([(header::CACHE_CONTROL, value)]))
    }

    /// A cache, its time, and whoever asks it.
    struct World {
        cache: KeyCache,
        clock: ManualClock,
    }

    impl World {
        fn new() -> Self {
            Self { cache: KeyCache::new(OUTAGE), clock: ManualClock::new() }
        }

        /// One that has keys for 100 seconds.
        fn with_keys() -> Self {
            let mut world = Self::new();
            assert_eq!(world.keys(), "fetch");
            world.found(1, 100);
            world
        }

        fn wait(&self, seconds: u64) {
            self.clock.advance(Duration::from_secs(seconds));
        }

        fn keys(&mut self) -> &'static str {
            name(&self.cache.keys(self.clock.now()))
        }

        /// For a token whose key is in no set.
        fn newer(&mut self) -> &'static str {
            let now = self.clock.now();
            let seen = self.cache.good(now).cloned().unwrap_or_default();
            name(&self.cache.newer(&seen, now))
        }

        fn found(&mut self, number: u8, seconds: u64) {
            self.cache.end(Some((set(number), lifetime(seconds))), self.clock.now());
        }

        fn fails(&mut self) {
            self.cache.end(None, self.clock.now());
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
    fn one_fetches_the_first_keys_and_the_others_wait_for_them() {
        let mut world = World::new();
        assert_eq!([world.keys(), world.keys(), world.newer()], ["fetch", "wait", "wait"]);
        world.found(1, 100);
        assert_eq!([world.keys(), world.keys()], ["take", "take"]);
    }

    #[test]
    fn keys_are_renewed_before_their_end_by_one_and_nobody_waits() {
        let mut world = World::with_keys();
        world.wait(79);
        assert_eq!(world.keys(), "take");
        world.wait(1);
        assert_eq!([world.keys(), world.keys()], ["renew", "take"]);
        world.wait(500);
        assert_eq!(world.keys(), "take");
        world.found(1, 100);
        // they are as old as the question was, so it is time again
        assert_eq!(world.keys(), "renew");
    }

    #[test]
    fn names_that_nobody_knows_are_asked_for_once_in_a_while() {
        let mut world = World::with_keys();
        assert_eq!(world.newer(), "take", "they have just been fetched");
        world.wait(29);
        assert_eq!(world.newer(), "take");
        world.wait(1);
        assert_eq!([world.newer(), world.newer(), world.keys()], ["fetch", "wait", "take"]);
        world.found(2, 100);
        assert_eq!([world.newer(), world.keys()], ["take", "take"]);
    }

    #[test]
    fn who_has_seen_older_keys_takes_the_newer_ones() {
        let mut world = World::with_keys();
        let old = world.cache.good(world.clock.now()).cloned().unwrap();
        world.wait(80);
        assert_eq!(world.keys(), "renew");
        world.found(2, 100);
        let NextStep::Take(keys) = world.cache.newer(&old, world.clock.now()) else { panic!("these are newer") };
        assert_eq!(*keys, set(2));
    }

    #[test]
    fn the_same_keys_stay_the_same_so_that_tokens_stay_known() {
        let mut world = World::with_keys();
        let old = world.cache.good(world.clock.now()).cloned().unwrap();
        world.wait(80);
        assert_eq!(world.keys(), "renew");
        world.found(1, 100);
        assert!(Arc::ptr_eq(&old, world.cache.good(world.clock.now()).unwrap()));
    }

    #[test]
    fn keys_outlive_an_outage_up_to_its_bound() {
        let mut world = World::with_keys();
        world.wait(80);
        for _ in 0..1019 {
            if world.keys() == "renew" {
                world.fails();
            }
            assert_eq!(world.keys(), "take");
            world.wait(1);
        }
        world.wait(1);
        assert!(["fail", "fetch"].contains(&world.keys()), "they are used after 1100 seconds");
    }

    #[test]
    fn an_issuer_that_is_down_is_left_alone_for_longer_and_longer() {
        let mut world = World::new();
        for rest in [1, 2, 4, 8, 16, 30, 30, 30] {
            assert_eq!(world.keys(), "fetch");
            world.fails();
            world.wait(rest - 1);
            assert_eq!([world.keys(), world.newer()], ["fail", "fail"], "within {rest} s");
            world.wait(1);
        }
        assert_eq!(world.keys(), "fetch");
        world.found(1, 100);
        // it begins anew
        world.wait(80);
        assert_eq!(world.keys(), "renew");
        world.fails();
        world.wait(1);
        assert_eq!(world.keys(), "renew");
    }

    #[test]
    fn without_patience_for_an_outage_keys_end_with_their_time() {
        let mut world = World { cache: KeyCache::new(Duration::ZERO), clock: ManualClock::new() };
        assert_eq!(world.keys(), "fetch");
        world.found(1, 100);
        world.wait(100);
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
        fn whatever_comes_there_is_one_request_at_a_time_and_nobody_waits_who_has_keys(
            events in prop::collection::vec(event(), 0..200),
        ) {
            let mut world = World::new();
            // what the promises are about, kept apart from the cache
            let (mut under_way, mut last_start, mut not_before, mut until) = (None, None, 0, 0);
            for event in events {
                let now = world.clock.now().as_nanos() / 1_000_000_000;
                let has_keys = now < until;
                let step = match event {
                    Event::Passes(seconds) => { world.wait(seconds); continue }
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
                        let pause = |start| now >= start + PAUSE.as_secs();
                        prop_assert!(!has_keys || last_start.is_none_or(pause), "a flood of names asks often");
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
