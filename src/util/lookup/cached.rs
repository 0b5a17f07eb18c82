use std::{future::Future, hash::Hash, sync::Arc, time::Duration};

use tokio::sync::Semaphore;

use super::{
    answers::{Answer, Answers, Found},
    deadline::in_time,
    running::{Lookup, Running, Turn},
};
use crate::util::{clock::Moment, error::ConfigError};

/// The settings of a [`CachedLookup`].
#[derive(Clone, Debug)]
pub(crate) struct LookupSettings {
    /// How long an answer is used.
    pub(crate) time_to_live: Duration,
    /// How long a request waits for its turn, and then for the lookup.
    pub(crate) deadline: Duration,
    /// The pause after a failed lookup.
    pub(crate) retry_after: Duration,
    pub(crate) max_answers: usize,
    pub(crate) max_lookups: usize,
}

impl LookupSettings {
    pub(crate) fn new(retry_after: Duration) -> Self {
        let (time_to_live, deadline) = (Duration::from_secs(60), Duration::from_secs(1));
        Self { time_to_live, deadline, retry_after, max_answers: 100_000, max_lookups: 64 }
    }

    /// Refuses zeros. `names` are those of the settings, in the order of the fields.
    pub(crate) fn validate(&self, names: [&'static str; 5]) -> Result<(), ConfigError> {
        let [time_to_live, deadline, retry_after, max_answers, max_lookups] = names;
        for (name, number) in [(max_answers, self.max_answers), (max_lookups, self.max_lookups)] {
            ConfigError::refuse_if(number == 0, name, number, "must be at least 1")?;
        }
        let times = [(time_to_live, self.time_to_live), (deadline, self.deadline), (retry_after, self.retry_after)];
        times.into_iter().try_for_each(|(name, time)| ConfigError::refuse_zero(name, time))
    }
}

/// Answers that are kept for a while, and the lookups of those that are missing or too old.
pub(crate) struct CachedLookup<K: Eq + Hash, V> {
    pub(crate) settings: LookupSettings,
    pub(crate) answers: Answers<K, V>,
    pub(crate) running: Running<K, Found<V>>,
    /// A place for each lookup of a key that was not known lately, so that made-up keys take at most half of the lookups.
    /// Requests get them in the order of their arrival.
    places: Arc<Semaphore>,
}

/// The state of a key in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyState<V> {
    Decided(Found<V>),
    /// It must be looked up.
    Due {
        was_known: bool,
        /// The value that is used while the key is looked up.
        meanwhile: Option<V>,
    },
}

impl<K: Clone + Eq + Hash, V: Clone> CachedLookup<K, V> {
    pub(crate) fn new(settings: LookupSettings) -> Self {
        let places = Arc::new(Semaphore::new(settings.max_lookups.div_ceil(2).min(Semaphore::MAX_PERMITS)));
        Self { answers: Answers::new(settings.max_answers), settings, running: Running::new(), places }
    }

    pub(crate) fn state(&self, key: &K, now: Moment) -> KeyState<V> {
        match self.answers.last_answer(key) {
            Some(answer) if now < answer.renew_at => KeyState::Decided(answer.found),
            Some(Answer { until, found: Found::Known(known), .. }) => {
                KeyState::Due { was_known: true, meanwhile: (now < until).then_some(known) }
            }
            _ => KeyState::Due { was_known: false, meanwhile: None },
        }
    }

    /// Returns whether a lookup of a key that was not known lately would begin at once.
    pub(crate) fn has_place(&self) -> bool {
        self.places.available_permits() > 0
    }

    /// Returns what counts for a request, or `None` if it must wait for a lookup. While one request looks a key up
    /// again, the others don't wait.
    pub(crate) fn without_waiting(&self, key: &K, state: KeyState<V>) -> Option<Found<V>> {
        match state {
            KeyState::Decided(found) => Some(found),
            KeyState::Due { meanwhile, .. } => meanwhile.filter(|_| self.running.contains(key)).map(Found::Known),
        }
    }

    /// Returns what counts for a request, after a lookup if that is needed. `state` is called again after each wait. If
    /// the request is the one that looks up, `look_up` does so, and publishes what it found for the others.
    pub(crate) async fn load<F: Future<Output = Found<V>>>(
        &self,
        key: &K,
        state: impl Fn() -> KeyState<V>,
        failed: impl Fn(&str),
        look_up: impl FnOnce(Lookup<K, Found<V>>) -> F,
    ) -> Found<V> {
        let too_many = |meanwhile: Option<V>| {
            failed("too many lookups are running");
            meanwhile.map_or(Found::Failure, Found::Known)
        };
        let mut place = None;
        loop {
            let (was_known, meanwhile) = match state() {
                KeyState::Decided(found) => return found,
                KeyState::Due { was_known, meanwhile } => (was_known, meanwhile),
            };
            let needs_place = !was_known && place.is_none();
            if needs_place && !self.running.contains(key) {
                let free = in_time(self.settings.deadline, Arc::clone(&self.places).acquire_owned()).await;
                let Some(Ok(own)) = free else { return too_many(None) };
                // the answer may be known by now
                place = Some(own);
                continue;
            }
            match self.running.join_lookup(key, self.settings.max_lookups, &mut place) {
                Turn::Full => return too_many(meanwhile),
                // the lookup that it would have followed has just ended
                Turn::Leads(_) if needs_place => {}
                Turn::Leads(lookup) => return look_up(lookup).await,
                Turn::Follows(mut other) => {
                    if let Some(known) = meanwhile {
                        return Found::Known(known);
                    }
                    place = None;
                    if let Ok(found) = other.wait_for(Option::is_some).await
                        && let Some(found) = found.clone()
                    {
                        return found;
                    }
                }
            }
        }
    }

    /// Waits for an answer until the deadline.
    pub(crate) async fn in_time<T>(&self, answer: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        in_time(self.settings.deadline, answer).await.unwrap_or_else(|| Err("no answer in time".into()))
    }

    /// Returns the answer after a failed lookup. One that was known is kept if `keeps_known`, until it is too old.
    pub(crate) fn answer_after_failure(&self, key: &K, now: Moment, keeps_known: bool) -> Answer<V> {
        let renew_at = now + self.settings.retry_after;
        match self.answers.last_answer(key) {
            Some(last) if keeps_known && last.found.is_known() && now < last.until => {
                Answer { renew_at: renew_at.min(last.until), ..last }
            }
            _ => Answer { renew_at, until: renew_at, found: Found::Failure },
        }
    }
}
