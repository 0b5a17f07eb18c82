//! Coalesces floods: counting repeated events is much cheaper than recording each of them.
//!
//! Threads are spread over stripes so that cores don't contend for one lock. A stripe is a table of the counters of one
//! second, one for each key (tenant, kind, policy, mode, reason). A counter counts the first few subjects of its key
//! separately, by method, and the rest together.

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{
        Mutex,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed},
        },
    },
};

use foldhash::quality::RandomState;
use hashbrown::HashTable;

use super::{
    kind::EventKind,
    record::{Event, Mode},
};
use crate::{
    tenant::LimitKey,
    util::{clock::UnixTime, lock::lock},
};

/// Subjects that a counter tracks, each with a method. Callers invent names, so the others of a second are counted together.
const SUBJECTS: usize = 16;

#[derive(Debug)]
pub(super) struct Stripes {
    stripes: Box<[Stripe]>,
    hasher: RandomState,
    pub(super) cap: RecordCap,
}

/// Aligned to two cache lines, because the prefetcher loads pairs of them.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(Mutex<CounterTable>);

/// The counters of one second. The cap bounds how many there are: beyond it, callers share one for each kind and mode.
#[derive(Debug, Default)]
struct CounterTable {
    second: u64,
    counters: HashTable<Counter>,
    coalesced: u64,
}

/// The events of one key in one second. The `count` of each is what the log does not show yet.
#[derive(Debug)]
struct Counter {
    /// The newest event of the subjects beyond the bound, and of events without a subject.
    rest: Event,
    /// The newest event of each of the first subjects.
    subjects: Vec<Event>,
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: usize = THREADS.fetch_add(1, Relaxed);
}

impl Stripes {
    /// Creates enough stripes for the cores of this machine.
    pub(super) fn new(max_per_second: u32) -> Self {
        let cores = std::thread::available_parallelism().map_or(4, usize::from);
        Self::with_stripes((2 * cores).next_power_of_two(), max_per_second)
    }

    fn with_stripes(stripes: usize, max_per_second: u32) -> Self {
        Self {
            stripes: (0..stripes).map(|_| Stripe::default()).collect(),
            hasher: RandomState::default(),
            cap: RecordCap::new(max_per_second),
        }
    }

    /// Counts one event. Passes to `append` what the log must show now: the first event of its key
    /// and subject in this second, and the pending counts of an earlier second.
    pub(super) fn tally(&self, event: &Event, mut append: impl FnMut(Event)) {
        let thread = THREAD.try_with(|thread| *thread).unwrap_or(0);
        // the length is a power of two, so this is a mask, and the index is always valid
        let Some(stripe) = self.stripes.get(thread % self.stripes.len()) else { return };
        let mut table = lock(&stripe.0);
        if !table.is_in_second_of(event) {
            self.append_counts(table.take_counts(), &mut append);
            let coalesced = table.coalesced;
            *table = CounterTable { second: event.at.as_secs(), counters: HashTable::new(), coalesced };
        }
        if table.count(event, &self.hasher, &self.cap) {
            append(event.clone());
        } else {
            table.coalesced += 1;
        }
    }

    /// Passes all pending counts to `append`, one event per key, subject and second.
    pub(super) fn drain(&self, mut append: impl FnMut(Event)) {
        let counts = self.stripes.iter().flat_map(|stripe| lock(&stripe.0).take_counts()).collect();
        self.append_counts(counts, &mut append);
    }

    /// Passes counts to `append`. Those beyond the cap become one event per kind, mode and second.
    fn append_counts(&self, counts: Vec<Event>, append: &mut impl FnMut(Event)) {
        let mut counts = sum_by_key(counts);
        counts.sort_unstable_by_key(|event| event.at);
        let (shown, rest): (Vec<_>, Vec<_>) = counts.into_iter().partition(|event| self.cap.take_record_slot(event.at));
        let rest = sum_by_key(rest.iter().map(without_details));
        shown.into_iter().chain(rest).for_each(append);
    }

    /// Returns how many events were coalesced instead of recorded.
    pub(super) fn coalesced(&self) -> u64 {
        self.stripes.iter().map(|stripe| lock(&stripe.0).coalesced).sum()
    }
}

impl CounterTable {
    /// Threads may observe the start of a second in different orders, so an event that is one
    /// second late counts too.
    fn is_in_second_of(&self, event: &Event) -> bool {
        let second = event.at.as_secs();
        self.second == second || self.second == second.saturating_add(1)
    }

    /// Counts an event of this second. Returns whether it must be recorded individually, as the first of its key or subject.
    fn count(&mut self, event: &Event, hasher: &RandomState, cap: &RecordCap) -> bool {
        let hash = |event: &Event| hasher.hash_one(key(event));
        if let Some(counter) = self.counters.find_mut(hash(event), |counter| key(&counter.rest) == key(event)) {
            return counter.add(event, || cap.admits(event));
        }
        let is_recorded = cap.admits(event);
        // beyond the cap, the first event of a key is counted like those that follow it
        let first = if is_recorded { event.clone() } else { without_details(event) };
        let is_same = |counter: &Counter| key(&counter.rest) == key(&first);
        let entry = self.counters.entry(hash(&first), is_same, |counter| hash(&counter.rest));
        let counter = entry.or_insert_with(|| Counter::new(&first)).into_mut();
        is_recorded || counter.add(&first, || false)
    }

    fn take_counts(&mut self) -> Vec<Event> {
        self.counters.iter_mut().flat_map(Counter::take_counts).collect()
    }
}

impl Counter {
    /// Starts a counter with its first event. Nothing is pending.
    fn new(first: &Event) -> Self {
        let first = Event { count: 0, ..first.clone() };
        match first.subject {
            None => Self { rest: first, subjects: Vec::new() },
            Some(_) => Self { rest: Event { subject: None, session: None, ..first.clone() }, subjects: vec![first] },
        }
    }

    /// Adds an event of this second. Returns whether it must be recorded individually, which `may_record` allows, because
    /// it is the first of its subject.
    fn add(&mut self, event: &Event, may_record: impl FnOnce() -> bool) -> bool {
        let has_room = event.subject.is_some() && self.subjects.len() < SUBJECTS;
        let same = |known: &&mut Event| (known.subject, known.method) == (event.subject, event.method);
        match self.subjects.iter_mut().find(same) {
            Some(known) => add(known, event),
            None if has_room => {
                let recorded = may_record();
                let count = if recorded { 0 } else { event.count };
                self.subjects.push(Event { count, ..event.clone() });
                return recorded;
            }
            None => add(&mut self.rest, event),
        }
        false
    }

    fn take_counts(&mut self) -> impl Iterator<Item = Event> {
        let pending = self.subjects.iter_mut().chain([&mut self.rest]).filter(|event| event.count > 0);
        pending.map(|event| {
            let count = event.clone();
            event.count = 0;
            count
        })
    }
}

/// Returns what the events of one counter have in common.
fn key(event: &Event) -> (&Option<LimitKey>, EventKind, Mode, Option<&'static str>, Option<&'static str>) {
    (&event.tenant, event.kind, event.mode, event.policy, event.reason)
}

/// Returns an event with nothing but its kind, mode, time and count.
fn without_details(event: &Event) -> Event {
    Event { mode: event.mode, count: event.count, ..Event::new(event.kind, event.at) }
}

/// Adds up the counts of each key, subject and second.
fn sum_by_key(counts: impl IntoIterator<Item = Event>) -> Vec<Event> {
    let mut sums = HashMap::new();
    for event in counts {
        let subject = event.subject.map(|subject| (subject, event.method));
        let own =
            (event.tenant.clone(), event.kind, event.mode, event.policy, event.reason, subject, event.at.as_secs());
        sums.entry(own).and_modify(|sum| add(sum, &event)).or_insert(event);
    }
    sums.into_values().collect()
}

/// Adds `event` to `sum`, which then shows the newer of the two.
fn add(sum: &mut Event, event: &Event) {
    sum.count = sum.count.saturating_add(event.count);
    keep_if_same(&mut sum.session, event.session);
    keep_if_same(&mut sum.subject, event.subject);
    keep_if_same(&mut sum.method, event.method);
    if event.at >= sum.at {
        sum.at = event.at;
        sum.limit = event.limit;
        sum.remaining = event.remaining;
        sum.reset = event.reset;
    }
}

fn keep_if_same<T: Copy + PartialEq>(own: &mut Option<T>, other: Option<T>) {
    if *own != other {
        *own = None;
    }
}

/// Caps how many events per second are recorded individually, in the time of the events themselves.
#[derive(Debug)]
pub(super) struct RecordCap {
    max: u32,
    /// The newest second seen, and in the low bits the number of events recorded in it.
    state: AtomicU64,
}

const SPENT_BITS: u32 = 24;
const SPENT: u64 = (1 << SPENT_BITS) - 1;

impl RecordCap {
    pub(super) const MOST: u32 = SPENT as u32;

    pub(super) fn new(max: u32) -> Self {
        Self { max: max.clamp(1, Self::MOST), state: AtomicU64::new(0) }
    }

    /// Returns whether this event may be recorded individually. Made-up tenants are the reason for the cap, so it is not for
    /// events of users.
    fn admits(&self, event: &Event) -> bool {
        event.kind.is_of_users() || self.take_record_slot(event.at)
    }

    /// Returns whether one more event of this time may be recorded individually.
    pub(super) fn take_record_slot(&self, at: UnixTime) -> bool {
        let (max, second) = (u64::from(self.max), at.as_secs());
        let spend = |state: u64| {
            let (current, spent) = (state >> SPENT_BITS, state & SPENT);
            // late events count towards the current second; a time far in the past means that the
            // wall clock was set back
            let anew = second > current || current - second > 60;
            match anew {
                true => Some(second << SPENT_BITS | 1),
                false => (spent < max).then_some(state + 1),
            }
        };
        self.state.fetch_update(Relaxed, Acquire, spend).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::util::{public_id::PublicId, secret::SecretDigest};

    fn refusal(tenant: &str, at: UnixTime) -> Event {
        Event::new(EventKind::RateLimited, at).tenant(LimitKey::parse(tenant).unwrap())
    }

    fn drained(stripes: &Stripes) -> Vec<Event> {
        let mut events = Vec::new();
        stripes.drain(|event| events.push(event));
        events
    }

    #[test]
    fn the_first_event_of_a_second_is_recorded_and_the_rest_become_one_count() {
        let stripes = Stripes::with_stripes(1, 1_000);
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

    fn failure_of(name: u32, second: u64) -> Event {
        let subject = PublicId::of_digest(&SecretDigest::of_secret(name.to_be_bytes()));
        Event::new(EventKind::RateLimited, UnixTime::from_secs(second)).tenant("acme".parse().unwrap()).subject(subject)
    }

    #[test]
    fn a09_subjects_of_one_second_keep_their_events_apart_within_a_bound() {
        let stripes = Stripes::with_stripes(1, 1_000);
        let mut shown = Vec::new();
        for _ in 0..3 {
            for name in 0..1000 {
                stripes.tally(&failure_of(name, 5), |event| shown.push(event));
            }
        }
        assert_eq!(shown, (0..16).map(|name| failure_of(name, 5)).collect::<Vec<_>>());
        let rest = drained(&stripes);
        let subjects: Vec<_> = rest.iter().filter(|event| event.subject.is_some()).map(|event| event.count).collect();
        let others: Vec<_> = rest.iter().filter(|event| event.subject.is_none()).map(|event| event.count).collect();
        assert_eq!((subjects, others), (vec![2; 16], vec![3 * (1000 - 16)]));
    }

    #[test]
    fn the_next_second_records_the_count_of_the_previous_one() {
        let stripes = Stripes::with_stripes(1, 1_000);
        let mut shown = Vec::new();
        for second in [1, 1, 1, 2] {
            stripes.tally(&refusal("acme", UnixTime::from_secs(second)), |event| {
                shown.push((event.at.as_secs(), event.count));
            });
        }
        assert_eq!(shown, [(1, 1), (1, 2), (2, 1)]);
    }

    #[test]
    fn events_beyond_the_cap_are_merged_without_a_tenant_and_all_are_counted() {
        let stripes = Stripes::with_stripes(1, 100);
        let mut shown = Vec::new();
        for n in 0..10_000 {
            stripes.tally(&refusal(&format!("t{n}"), UnixTime::from_secs(5)), |event| {
                shown.push(event);
            });
        }
        assert_eq!(shown.len(), 100);
        assert_eq!(lock(&stripes.stripes[0].0).counters.len(), 101, "made-up tenants take no memory");
        shown.extend(drained(&stripes));
        assert_eq!(shown.len(), 101, "the rest is one event");
        let merged = shown.last().unwrap();
        assert_eq!((merged.kind, &merged.tenant, merged.count), (EventKind::RateLimited, &None, 9_900));
    }

    #[test]
    fn hundreds_of_tenants_in_one_second_have_counts_of_their_own() {
        let stripes = Stripes::with_stripes(1, 1_000);
        let (mut first, mut later) = (0, Vec::new());
        for second in [5, 6] {
            for n in 0..900 {
                stripes.tally(&refusal(&format!("t{}", n % 300), UnixTime::from_secs(second)), |event| {
                    if event.count == 1 { first += 1 } else { later.push(event) }
                });
            }
        }
        assert_eq!((first, later.len()), (600, 300));
        assert!(later.iter().all(|event| event.count == 2 && event.tenant.is_some()));
    }

    #[test]
    fn counts_of_two_threads_for_one_key_drain_as_one_event() {
        let stripes = Stripes::with_stripes(64, 1_000);
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

    #[test]
    fn each_second_has_its_own_cap_and_late_events_count_towards_the_newest() {
        let cap = RecordCap::new(2);
        let take = |second| cap.take_record_slot(UnixTime::from_secs(second));
        assert_eq!([take(100), take(100), take(100)], [true, true, false]);
        assert_eq!([take(101), take(100), take(101)], [true, true, false]);
        assert!(take(1), "a wall clock that was set back does not silence the log");
    }

    proptest! {
        #[test]
        fn counts_always_add_up(
            cap in 1_u32..50,
            calls in proptest::collection::vec((0_u32..200, 0_u64..4, any::<bool>(), any::<bool>()), 0..800),
        ) {
            let stripes = Stripes::with_stripes(1, cap);
            let mut sum = 0;
            for (tenant, second, shadow, drain) in &calls {
                let mut event = refusal(&format!("t{}", tenant % 20), UnixTime::from_secs(*second));
                event.subject = (tenant % 3 > 0).then(|| failure_of(*tenant, *second).subject).flatten();
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
