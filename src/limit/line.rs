//! Callers that wait until a limit admits them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::{Mutex as FairMutex, MutexGuard, Semaphore, SemaphorePermit},
    time::Instant,
};

use super::decision::{Ask, CallAsk, Decision, RefusalReason};
use crate::{tenant::LimitKey, util::lock::lock};

/// The timers of tokio have this resolution.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// How often to ask again while open calls block, because they may end at any time.
const WHILE_CALLS_ARE_OPEN: Duration = Duration::from_millis(100);

/// As long as a wait for good. The end of a longer one could overflow.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Waiting callers. Those with the same key that ask for about as much form a line, and only its first one asks again when units
/// come back. If all did, a thousand callers would ask a thousand times for each unit.
#[derive(Debug, Default)]
pub(super) struct Lines(Mutex<HashMap<(LimitKey, Ask), Line>>);

/// A line, and its length.
type Line = (Arc<FairMutex<()>>, usize);

/// A place in a line. Dropping it leaves the line.
pub(super) struct LinePlace<'a> {
    lines: &'a Lines,
    asks_for: (LimitKey, Ask),
    line: Arc<FairMutex<()>>,
}

impl Lines {
    pub(super) fn join(&self, key: &LimitKey, ask: Ask) -> LinePlace<'_> {
        // callers may choose numbers, and must not get a line for each
        let rounded = |units: u32| units.checked_next_power_of_two().unwrap_or(u32::MAX);
        let units = if ask.units == 0 { 0 } else { rounded(ask.units) };
        let call = if ask.call.is_hold() { CallAsk::Hold { at_most: 0, millis: 0 } } else { ask.call };
        let asks_for = (key.clone(), Ask { units, call, ..ask });
        let mut lines = lock(&self.0);
        let (line, length) = lines.entry(asks_for.clone()).or_default();
        *length += 1;
        LinePlace { lines: self, asks_for, line: Arc::clone(line) }
    }
}

impl LinePlace<'_> {
    /// Waits until this place is the first one. It is while the guard lives.
    pub(super) async fn be_first(&self) -> MutexGuard<'_, ()> {
        self.line.lock().await
    }
}

impl Drop for LinePlace<'_> {
    fn drop(&mut self) {
        let mut lines = lock(&self.lines.0);
        if let Some((_, length)) = lines.get_mut(&self.asks_for) {
            *length -= 1;
            if *length == 0 {
                lines.remove(&self.asks_for);
            }
        }
    }
}

/// When a refused caller asks again, and until when it waits.
pub(super) struct Wait<'a> {
    pub(super) until: Instant,
    pub(super) deadline: Instant,
    /// The place of a request in its layer.
    _place: Option<SemaphorePermit<'a>>,
}

impl Wait<'_> {
    /// Begins a wait of at most this time after a decision. Returns `None` if that is useless.
    pub(super) fn begin(decision: &Decision, at_most: Duration) -> Option<Self> {
        let now = Instant::now();
        Self { until: now, deadline: now + at_most.min(LONGEST_WAIT), _place: None }.after(decision)
    }

    /// Continues the wait after another decision. Returns `None` if it admits, or if no retry before the deadline helps.
    pub(super) fn after(self, decision: &Decision) -> Option<Self> {
        let standing = decision.standing().filter(|_| decision.refused == Some(RefusalReason::Spent))?;
        let now = Instant::now();
        let after = |longest| now + standing.time_until_reset().clamp(SHORTEST_PAUSE, longest);
        let until = match standing.is_exact() {
            true => after(LONGEST_WAIT),
            false if now < self.deadline => after(WHILE_CALLS_ARE_OPEN).min(self.deadline),
            false => return None,
        };
        (until <= self.deadline).then_some(Self { until, ..self })
    }
}

/// How long the requests of a layer wait, and how many at the same time.
pub(super) struct Waiting {
    pub(super) at_most: Duration,
    pub(super) places: Semaphore,
}

impl Waiting {
    /// Begins a wait after this decision. Returns `None` if that is useless, or if there is no place.
    pub(super) fn begin(&self, decision: &Decision) -> Option<Wait<'_>> {
        let wait = Wait::begin(decision, self.at_most)?;
        Some(Wait { _place: Some(self.places.try_acquire().ok()?), ..wait })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_forgotten_when_the_last_one_has_left_it() {
        let (lines, key) = (Lines::default(), LimitKey::parse("acme").unwrap());
        let count = || lock(&lines.0).len();
        let first = lines.join(&key, Ask::new(1, false));
        let others = (lines.join(&key, Ask::new(1, false)), lines.join(&key, Ask::new(2, false)));
        assert_eq!(count(), 2);
        drop(first);
        assert_eq!(count(), 2);
        drop(others);
        assert_eq!(count(), 0);
    }

    #[test]
    fn a_key_has_few_lines_whatever_its_callers_ask_for() {
        let (lines, key) = (Lines::default(), LimitKey::parse("acme").unwrap());
        let hold = |units| Ask::hold(units, 2 * units, Duration::from_millis(units.into()), false);
        let asks = (1..=512).map(hold).chain([Ask::new(u32::MAX, false)]).map(|ask| lines.join(&key, ask));
        let places: Vec<_> = asks.collect();
        assert_eq!((places.len(), lock(&lines.0).len()), (513, 11));
    }
}
