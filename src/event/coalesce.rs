//! Coalesces floods: counting repeated events is much cheaper than recording each of them.
//!
//! Threads are spread over stripes so that cores don't contend for one lock. A stripe is a small
//! table of counters, one for each key (tenant, kind, policy, mode, reason) and second. A counter counts the
//! first few subjects of its key separately, by method, and the rest together.

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

use super::{
    kind::EventKind,
    record::{Event, Mode},
};
use crate::{
    tenant::LimitKey,
    util::{clock::UnixTime, lock::lock, public_id::PublicId},
};

/// Counters in a stripe: the maximum number of keys that it tracks at a time.
pub(super) const COUNTERS: usize = 64;
/// Counters in which a key may be found. The tables are set-associative.
const WAYS: usize = 4;
/// Subjects that a counter tracks, each with a method. Callers invent names, so the others of a second are counted together.
pub(super) const SUBJECTS: usize = 16;

#[derive(Debug)]
pub(super) struct Stripes {
    stripes: Box<[Stripe]>,
    hasher: RandomState,
    pub(super) cap: RecordCap,
}

/// Aligned to two cache lines, because the prefetcher loads pairs of them.
#[derive(Debug)]
#[repr(align(128))]
struct Stripe(Mutex<CounterTable>);

#[derive(Debug, Default)]
struct CounterTable {
    counters: Box<[Option<Counter>]>,
    /// Events beyond the cap, merged by kind and mode. It grows to one event for each that occurs, and then never allocates.
    merged: Vec<Event>,
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

type CounterKey = (
    Option<LimitKey>,
    EventKind,
    Option<&'static str>,
    Mode,
    Option<&'static str>,
    Option<(PublicId, Option<&'static str>)>,
    u64,
);

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
            stripes: (0..stripes).map(|_| Stripe(Mutex::new(CounterTable::new()))).collect(),
            hasher: RandomState::default(),
            cap: RecordCap::new(max_per_second),
        }
    }

    /// Counts one event. Passes to `append` what the log must show now: the first event of its key
    /// and subject in this second, and the pending counts of a counter that is reused.
    pub(super) fn tally(&self, event: &Event, mut append: impl FnMut(Event)) {
        let thread = THREAD.try_with(|thread| *thread).unwrap_or(0);
        // the length is a power of two, so this is a mask, and the index is always valid
        let Some(stripe) = self.stripes.get(thread % self.stripes.len()) else { return };
        let hash = self.hasher.hash_one((&event.tenant, event.kind, event.mode, event.policy, event.reason));
        lock(&stripe.0).tally(event, hash, &self.cap, &mut append);
    }

    /// Passes all pending counts to `append`, one event per key, subject and second.
    pub(super) fn drain(&self, mut append: impl FnMut(Event)) {
        let mut counts: HashMap<CounterKey, Event> = HashMap::new();
        let mut merged = CounterTable::default();
        for stripe in &self.stripes {
            let mut table = lock(&stripe.0);
            for event in table.merged.drain(..) {
                merged.merge(event, &mut append);
            }
            for counter in table.counters.iter_mut().flatten() {
                for count in counter.take_counts() {
                    counts.entry(key(&count)).and_modify(|sum| add(sum, &count)).or_insert(count);
                }
            }
        }
        let mut counts: Vec<Event> = counts.into_values().collect();
        counts.sort_unstable_by_key(|event| event.at);
        for event in counts {
            merged.append_or_merge(event, &self.cap, &mut append);
        }
        merged.merged.into_iter().for_each(append);
    }

    /// Returns how many events were coalesced instead of recorded.
    pub(super) fn coalesced(&self) -> u64 {
        self.stripes.iter().map(|stripe| lock(&stripe.0).coalesced).sum()
    }
}

impl CounterTable {
    fn new() -> Self {
        Self { counters: (0..COUNTERS).map(|_| None).collect(), ..Self::default() }
    }

    fn tally(&mut self, event: &Event, hash: u64, cap: &RecordCap, append: &mut impl FnMut(Event)) {
        let first = (hash as usize % (COUNTERS / WAYS)) * WAYS;
        let ways = self.counters.get_mut(first..first + WAYS).unwrap_or_default();
        let place = match ways.iter().position(|counter| counter.as_ref().is_some_and(|counter| counter.counts(event)))
        {
            Some(place) => place,
            None => oldest(ways),
        };
        let Some(place) = ways.get_mut(place) else { return };
        if let Some(counter) = place.as_mut().filter(|counter| counter.counts(event) && counter.in_second_of(event)) {
            if counter.add(event, || cap.admits(event)) {
                append(event.clone());
            } else {
                self.coalesced += 1;
            }
            return;
        }
        // beyond the cap, the first event of a key is counted like those that follow it
        let recorded = cap.admits(event);
        if !recorded {
            self.coalesced += 1;
        }
        if let Some(mut before) = place.replace(Counter::new(event, recorded)) {
            for count in before.take_counts() {
                self.append_or_merge(count, cap, append);
            }
        }
        if recorded {
            append(event.clone());
        }
    }

    fn append_or_merge(&mut self, event: Event, cap: &RecordCap, append: &mut impl FnMut(Event)) {
        if cap.take_record_slot(event.at) {
            append(event);
        } else {
            self.merge(event, append);
        }
    }

    /// Drops everything from an event except its kind, mode, time and count, and merges it with
    /// others like it.
    fn merge(&mut self, mut event: Event, append: &mut impl FnMut(Event)) {
        (event.tenant, event.session, event.policy) = (None, None, None);
        (event.subject, event.method, event.reason) = (None, None, None);
        (event.limit, event.remaining, event.reset) = (0, 0, None);
        match self.merged.iter_mut().find(|merged| merged.kind == event.kind && merged.mode == event.mode) {
            Some(merged) if merged.at.as_secs() == event.at.as_secs() => add(merged, &event),
            Some(merged) => append(std::mem::replace(merged, event)),
            None => self.merged.push(event),
        }
    }
}

impl Counter {
    /// Starts a counter with its first event. If the event is `recorded`, nothing is pending.
    fn new(event: &Event, recorded: bool) -> Self {
        let mut first = event.clone();
        if recorded {
            first.count = 0;
        }
        match event.subject {
            None => Self { rest: first, subjects: Vec::new() },
            Some(_) => {
                Self { rest: Event { subject: None, session: None, count: 0, ..first.clone() }, subjects: vec![first] }
            }
        }
    }

    /// Adds an event of this second. Returns whether it must be recorded individually, which `may_record` allows, because
    /// it is the first of its subject.
    fn add(&mut self, event: &Event, may_record: impl FnOnce() -> bool) -> bool {
        self.rest.at = self.rest.at.max(event.at);
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

    fn counts(&self, event: &Event) -> bool {
        let own = &self.rest;
        (own.kind, own.mode, own.policy, own.reason) == (event.kind, event.mode, event.policy, event.reason)
            && own.tenant == event.tenant
    }

    /// Threads may observe the start of a second in different orders, so an event that is one
    /// second late counts too.
    fn in_second_of(&self, event: &Event) -> bool {
        let (own, other) = (self.rest.at.as_secs(), event.at.as_secs());
        own == other || own == other.saturating_add(1)
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

/// Returns an empty way, or the one that was used least recently.
fn oldest(ways: &[Option<Counter>]) -> usize {
    let age = |(_, counter): &(usize, &Option<Counter>)| counter.as_ref().map(|counter| counter.rest.at);
    ways.iter().enumerate().min_by_key(age).map_or(0, |(place, _)| place)
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

fn key(event: &Event) -> CounterKey {
    let subject = event.subject.map(|subject| (subject, event.method));
    (event.tenant.clone(), event.kind, event.policy, event.mode, event.reason, subject, event.at.as_secs())
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
    use crate::util::secret::SecretDigest;

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
        shown.extend(drained(&stripes));
        assert_eq!(shown.len(), 101, "the rest is one event");
        let merged = shown.last().unwrap();
        assert_eq!((merged.kind, &merged.tenant, merged.count), (EventKind::RateLimited, &None, 9_900));
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
