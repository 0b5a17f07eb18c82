//! Counting instead of recording: what makes a flood of refusals cheap.
//!
//! Each thread has a stripe of its own, so that no two cores fight for a lock.
//! A stripe is a small table: a slot counts the events of one key (tenant,
//! kind, policy, mode) in one second.

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use foldhash::quality::RandomState;

use super::{Event, EventKind, Mode, budget::Budget, lock};
use crate::tenant::Tenant;

/// Slots of a stripe: the keys that a thread can count side by side, at most.
pub(super) const SLOTS: usize = 64;
/// Slots that a key may stand in.
const WAYS: usize = 4;

#[derive(Debug)]
pub(super) struct Stripes {
    stripes: Box<[Stripe]>,
    hasher: RandomState,
    pub(super) budget: Budget,
}

/// On cache lines of its own, and on the line that the prefetcher takes along.
#[derive(Debug)]
#[repr(align(128))]
struct Stripe(Mutex<Table>);

#[derive(Debug)]
struct Table {
    slots: Box<[Option<Slot>]>,
    /// What came beyond the budget, by kind and mode.
    merged: Vec<Event>,
    coalesced: u64,
}

#[derive(Debug)]
struct Slot {
    /// The newest; its `count` is what the log does not show yet.
    event: Event,
}

type Key = (Option<Tenant>, EventKind, Option<&'static str>, Mode, u64);

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: usize = THREADS.fetch_add(1, Relaxed);
}

impl Stripes {
    /// Stripes for the cores of this machine.
    pub(super) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(4, usize::from);
        Self::with_stripes((2 * cores).next_power_of_two())
    }

    fn with_stripes(stripes: usize) -> Self {
        Self {
            stripes: (0..stripes).map(|_| Stripe(Mutex::new(Table::new()))).collect(),
            hasher: RandomState::default(),
            budget: Budget::new(),
        }
    }

    /// Counts one event. Hands to `append` what the log must show now: the
    /// first of its key in this second, and the count of a slot that it takes over.
    pub(super) fn tally(&self, event: &Event, mut append: impl FnMut(Event)) {
        let thread = THREAD.try_with(|thread| *thread).unwrap_or(0);
        // a power of two, so this is a mask; the last stripe is never missing
        let Some(stripe) = self.stripes.get(thread % self.stripes.len()) else { return };
        let hash = self.hasher.hash_one((&event.tenant, event.kind, event.mode, event.policy));
        lock(&stripe.0).tally(event, hash, &self.budget, &mut append);
    }

    /// Hands all counts that the log does not show yet to `append`, one event
    /// for each key and second.
    pub(super) fn drain(&self, mut append: impl FnMut(Event)) {
        let mut counts: HashMap<Key, Event> = HashMap::new();
        let mut merged = Table::without_slots();
        for stripe in &self.stripes {
            let mut table = lock(&stripe.0);
            for event in table.merged.drain(..) {
                merged.merge(event, &mut append);
            }
            for slot in table.slots.iter_mut().flatten() {
                if let Some(count) = slot.take_count() {
                    counts.entry(key(&count)).and_modify(|sum| add(sum, &count)).or_insert(count);
                }
            }
        }
        let mut counts: Vec<Event> = counts.into_values().collect();
        counts.sort_unstable_by_key(|event| event.at);
        for event in counts {
            merged.append_or_merge(event, &self.budget, &mut append);
        }
        merged.merged.into_iter().for_each(append);
    }

    /// How many events were counted in a slot instead of recorded.
    pub(super) fn coalesced(&self) -> u64 {
        self.stripes.iter().map(|stripe| lock(&stripe.0).coalesced).sum()
    }
}

impl Table {
    fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| None).collect(), ..Self::without_slots() }
    }

    fn without_slots() -> Self {
        // room for every kind and mode, so that merging never allocates
        Self { slots: Box::default(), merged: Vec::with_capacity(2 * EventKind::ALL.len()), coalesced: 0 }
    }

    fn tally(&mut self, event: &Event, hash: u64, budget: &Budget, append: &mut impl FnMut(Event)) {
        let first = (hash as usize % (SLOTS / WAYS)) * WAYS;
        let ways = self.slots.get_mut(first..first + WAYS).unwrap_or_default();
        let place = match ways.iter().position(|slot| slot.as_ref().is_some_and(|slot| slot.counts(event))) {
            Some(place) => place,
            None => oldest(ways),
        };
        let Some(place) = ways.get_mut(place) else { return };
        if let Some(slot) = place.as_mut().filter(|slot| slot.counts(event) && slot.in_second_of(event)) {
            add(&mut slot.event, event);
            self.coalesced += 1;
            return;
        }
        // over budget, the first of a key is counted like those that follow it
        let recorded = budget.take(event.at);
        let mut slot = Slot { event: event.clone() };
        if recorded {
            slot.event.count = 0;
        } else {
            self.coalesced += 1;
        }
        let before = place.replace(slot).and_then(|mut slot| slot.take_count());
        if let Some(count) = before {
            self.append_or_merge(count, budget, append);
        }
        if recorded {
            append(event.clone());
        }
    }

    fn append_or_merge(&mut self, event: Event, budget: &Budget, append: &mut impl FnMut(Event)) {
        if budget.take(event.at) {
            append(event);
        } else {
            self.merge(event, append);
        }
    }

    /// Keeps of an event what is not its tenant's: kind, mode and count.
    fn merge(&mut self, mut event: Event, append: &mut impl FnMut(Event)) {
        (event.tenant, event.session, event.policy) = (None, None, None);
        (event.subject, event.method) = (None, None);
        (event.limit, event.remaining, event.reset) = (0, 0, None);
        match self.merged.iter_mut().find(|merged| merged.kind == event.kind && merged.mode == event.mode) {
            Some(merged) if merged.at.as_secs() == event.at.as_secs() => add(merged, &event),
            Some(merged) => append(std::mem::replace(merged, event)),
            None => self.merged.push(event),
        }
    }
}

impl Slot {
    fn counts(&self, event: &Event) -> bool {
        let own = &self.event;
        own.kind == event.kind && own.mode == event.mode && own.policy == event.policy && own.tenant == event.tenant
    }

    /// Two threads may see a second begin in another order: one second back is still this one.
    fn in_second_of(&self, event: &Event) -> bool {
        let (own, other) = (self.event.at.as_secs(), event.at.as_secs());
        own == other || own == other.saturating_add(1)
    }

    fn take_count(&mut self) -> Option<Event> {
        if self.event.count == 0 {
            return None;
        }
        let count = self.event.clone();
        self.event.count = 0;
        Some(count)
    }
}

/// The way that is free, or else was not counted in for longest.
fn oldest(ways: &[Option<Slot>]) -> usize {
    let age = |(_, slot): &(usize, &Option<Slot>)| slot.as_ref().map(|slot| slot.event.at);
    ways.iter().enumerate().min_by_key(age).map_or(0, |(place, _)| place)
}

/// Counts `event` in `sum`, which then shows the newer of the two.
fn add(sum: &mut Event, event: &Event) {
    sum.count = sum.count.saturating_add(event.count);
    if sum.session != event.session {
        sum.session = None;
    }
    if sum.subject != event.subject {
        sum.subject = None;
    }
    if sum.method != event.method {
        sum.method = None;
    }
    if event.at >= sum.at {
        sum.at = event.at;
        sum.limit = event.limit;
        sum.remaining = event.remaining;
        sum.reset = event.reset;
    }
}

fn key(event: &Event) -> Key {
    (event.tenant.clone(), event.kind, event.policy, event.mode, event.at.as_secs())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::util::clock::UnixTime;

    fn refusal(tenant: &str, at: UnixTime) -> Event {
        Event::new(EventKind::RateLimited, at).tenant(Tenant::parse(tenant).unwrap())
    }

    fn drained(stripes: &Stripes) -> Vec<Event> {
        let mut events = Vec::new();
        stripes.drain(|event| events.push(event));
        events
    }

    #[test]
    fn the_first_of_a_second_is_shown_at_once_and_the_rest_as_one_count() {
        let stripes = Stripes::with_stripes(1);
        let mut shown = Vec::new();
        for n in 0..1000_u32 {
            let mut event = refusal("acme", UnixTime::from_secs(5) + Duration::from_micros(n.into()));
            event.remaining = n;
            stripes.tally(&event, |event| shown.push(event));
        }
        assert_eq!(shown.iter().map(|event| event.count).collect::<Vec<_>>(), [1]);
        let rest = drained(&stripes);
        assert_eq!(rest.len(), 1);
        assert_eq!((rest[0].count, rest[0].remaining), (999, 999), "the count shows the newest");
        assert_eq!(drained(&stripes), []);
        assert_eq!(stripes.coalesced(), 999);
    }

    #[test]
    fn the_next_second_shows_the_count_of_the_one_before() {
        let stripes = Stripes::with_stripes(1);
        let mut shown = Vec::new();
        for second in [1, 1, 1, 2] {
            stripes.tally(&refusal("acme", UnixTime::from_secs(second)), |event| {
                shown.push((event.at.as_secs(), event.count));
            });
        }
        assert_eq!(shown, [(1, 1), (1, 2), (2, 1)]);
    }

    #[test]
    fn beyond_the_budget_events_are_merged_without_a_tenant_and_none_is_missing() {
        let stripes = Stripes::with_stripes(1);
        stripes.budget.set(100);
        let mut shown = Vec::new();
        for n in 0..10_000 {
            stripes.tally(&refusal(&format!("t{n}"), UnixTime::from_secs(5)), |event| {
                shown.push(event);
            });
        }
        assert_eq!(shown.len(), 100);
        shown.extend(drained(&stripes));
        assert_eq!(shown.len(), 101, "the rest is one event");
        let merged = shown.last().unwrap();
        assert_eq!((merged.kind, &merged.tenant, merged.count), (EventKind::RateLimited, &None, 9_900));
    }

    #[test]
    fn two_threads_that_share_a_key_drain_as_one_count() {
        let stripes = Stripes::with_stripes(64);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        stripes.tally(&refusal("acme", UnixTime::from_secs(5)), |_| ());
                    }
                });
            }
        });
        let rest = drained(&stripes);
        assert_eq!(rest.iter().map(|event| event.count).collect::<Vec<_>>(), [198]);
    }

    proptest! {
        #[test]
        fn counts_add_up_whatever_comes(
            budget in 1_u32..50,
            calls in proptest::collection::vec((0_u32..200, 0_u64..4, any::<bool>(), any::<bool>()), 0..800),
        ) {
            let stripes = Stripes::with_stripes(1);
            stripes.budget.set(budget);
            let mut sum = 0;
            for (tenant, second, shadow, drain) in &calls {
                let mut event = refusal(&format!("t{tenant}"), UnixTime::from_secs(*second));
                event.mode = if *shadow { Mode::Shadow } else { Mode::Enforced };
                stripes.tally(&event, |event| sum += event.count);
                if *drain && tenant % 16 == 0 {
                    stripes.drain(|event| sum += event.count);
                }
            }
            stripes.drain(|event| sum += event.count);
            prop_assert_eq!(sum, calls.len() as u64);
        }
    }
}
