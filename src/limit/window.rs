//! The sliding window: a run-length log of what was spent.
//!
//! An entry stands for all units spent within one grain of its opening, and
//! leaves one window after the **last** of them. So at any moment the log holds
//! at least what was spent in the last window, and never forgets early; and an
//! honest client that spends everything at once gets everything back at once.

use std::collections::VecDeque;

use super::{budget::Budget, quota::Quota};
use crate::clock::{Moment, saturating_nanos};

/// The measures of one window, derived from its quota.
#[derive(Clone, Copy)]
pub(super) struct Measure {
    window: u64,
    grain: u64,
    /// Within an entry time is told in ticks of `1 << shift` nanoseconds, so that a grain fits in 32 bits.
    shift: u32,
}

impl Measure {
    pub(super) fn new(quota: &Quota, grains: u16) -> Self {
        let window = saturating_nanos(quota.window());
        let grain = (window / u64::from(grains)).max(1);
        let shift = (u64::BITS - grain.leading_zeros()).saturating_sub(u32::BITS);
        Self { window, grain, shift }
    }

    /// So many nanoseconds in ticks, rounded up. A shift, for a division would be the dearest step of a decision.
    #[inline]
    fn ticks(self, nanos: u64) -> u32 {
        let whole = nanos >> self.shift;
        let ticks = whole + u64::from(whole << self.shift != nanos);
        u32::try_from(ticks).unwrap_or(u32::MAX)
    }

    /// The longest time that an entry can span.
    fn longest(self) -> u64 {
        u64::from(u32::MAX) << self.shift
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    opened: u64,
    /// Ticks from the opening to the last unit.
    length: u32,
    count: u32,
}

impl Entry {
    /// An entry over this time. Its end may come late by less than a tick, never early; what is longer than an entry
    /// can span begins later.
    #[inline]
    fn spanning(opened: u64, last: u64, count: u32, measure: Measure) -> Self {
        let opened = opened.max(last.saturating_sub(measure.longest()));
        Self { opened, length: measure.ticks(last - opened), count }
    }

    #[inline]
    fn last(self, measure: Measure) -> u64 {
        self.opened.saturating_add(u64::from(self.length) << measure.shift)
    }

    #[inline]
    fn leaves(self, measure: Measure) -> u64 {
        self.last(measure).saturating_add(measure.window)
    }
}

/// What was spent, oldest first. A quiet tenant needs no more than the two entries that stand in place.
#[derive(Debug)]
pub(super) enum Log {
    Few { used: u32, len: u8, entries: [Entry; 2] },
    Many(Box<Ring>),
}

#[derive(Debug)]
pub(super) struct Ring {
    used: u32,
    entries: VecDeque<Entry>,
}

impl Log {
    pub(super) const EMPTY: Self =
        Self::Few { used: 0, len: 0, entries: [Entry { opened: 0, length: 0, count: 0 }; 2] };

    /// Units that count, once [`expire`](Self::expire) was called.
    #[inline]
    pub(super) fn used(&self) -> u32 {
        match self {
            Self::Few { used, .. } => *used,
            Self::Many(ring) => ring.used,
        }
    }

    /// Lets entries go whose last unit is a window old.
    #[inline]
    pub(super) fn expire(&mut self, measure: Measure, now: Moment, budget: &Budget) {
        while self.oldest().is_some_and(|entry| entry.count == 0 || entry.leaves(measure) <= now.as_nanos()) {
            self.remove_oldest();
        }
        if let Self::Many(ring) = self
            && ring.entries.len() <= 1
        {
            budget.give_back(ring.heap_bytes());
            let first = ring.entries.pop_front();
            *self = Self::Few {
                used: ring.used,
                len: u8::from(first.is_some()),
                entries: [first.unwrap_or_default(), Entry::default()],
            };
        }
    }

    /// When so many of the units have come back; never, if there are not so many.
    #[inline]
    pub(super) fn freed_at(&self, measure: Measure, units: u32) -> Moment {
        if let Some(oldest) = self.oldest()
            && oldest.count >= units
        {
            return Moment::from_nanos(oldest.leaves(measure));
        }
        let mut freed = 0_u32;
        for entry in self.entries() {
            freed = freed.saturating_add(entry.count);
            if freed >= units {
                return Moment::from_nanos(entry.leaves(measure));
            }
        }
        Moment::from_nanos(u64::MAX)
    }

    /// Adds units that were found to fit, and says when they count as spent:
    /// now, or with the newest entry where the clock has stepped back.
    #[inline]
    pub(super) fn add(&mut self, measure: Measure, now: Moment, units: u32, budget: &Budget) -> Moment {
        *self.used_mut() += units;
        let mut spent_at = now.as_nanos();
        let mut joins = false;
        if let Some(newest) = self.newest() {
            spent_at = spent_at.max(newest.last(measure));
            joins = spent_at - newest.opened < measure.grain;
        }
        if !joins && self.push(Entry { opened: spent_at, length: 0, count: units }, budget) {
            return Moment::from_nanos(spent_at);
        }
        // without memory for one more entry the log gets coarser: units may come back late, never early
        if let Some(newest) = self.newest_mut() {
            *newest = Entry::spanning(newest.opened, spent_at, newest.count + units, measure);
        }
        Moment::from_nanos(spent_at)
    }

    /// Takes units back that were spent at `spent_at`: from the entry that holds
    /// them and from older ones, which leave sooner; none if that entry has left.
    pub(super) fn refund(&mut self, measure: Measure, spent_at: Moment, units: u32) {
        let spent_at = spent_at.as_nanos();
        let mut owed = units;
        let mut own_or_older = self.entries_mut().rev().skip_while(|entry| entry.opened > spent_at);
        let mut next = own_or_older.next().filter(|own| own.last(measure) >= spent_at);
        while let Some(entry) = next {
            let taken = owed.min(entry.count);
            entry.count -= taken;
            owed -= taken;
            next = own_or_older.next();
        }
        drop(own_or_older);
        *self.used_mut() -= units - owed;
    }

    /// Fits the entries to another measure; none ends earlier for it, or before an older one.
    pub(super) fn remeasure(&mut self, from: Measure, to: Measure) {
        let (mut opened, mut last) = (0, 0);
        for entry in self.entries_mut() {
            *entry = Entry::spanning(entry.opened.max(opened), entry.last(from).max(last), entry.count, to);
            (opened, last) = (entry.opened, entry.last(to));
        }
    }

    /// Another log that counts the same; a coarser one, without memory for all of it.
    pub(super) fn copied(&self, measure: Measure, budget: &Budget) -> Self {
        match self {
            Self::Few { used, len, entries } => Self::Few { used: *used, len: *len, entries: *entries },
            Self::Many(ring) => {
                let copy = Ring { used: ring.used, entries: ring.entries.clone() };
                if budget.take(copy.heap_bytes()) {
                    return Self::Many(Box::new(copy));
                }
                let opened = self.oldest().map_or(0, |oldest| oldest.opened);
                let last = self.newest().map_or(0, |newest| newest.last(measure));
                let all = Entry::spanning(opened, last, ring.used, measure);
                Self::Few { used: ring.used, len: 1, entries: [all, Entry::default()] }
            }
        }
    }

    /// Whether nothing counts any more at this moment.
    pub(super) fn is_idle(&self, measure: Measure, now: Moment) -> bool {
        self.entries().all(|entry| entry.count == 0 || entry.leaves(measure) <= now.as_nanos())
    }

    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Few { .. } => 0,
            Self::Many(ring) => ring.heap_bytes(),
        }
    }

    #[inline]
    fn oldest(&self) -> Option<&Entry> {
        match self {
            Self::Few { len: 0, .. } => None,
            Self::Few { entries: [first, _], .. } => Some(first),
            Self::Many(ring) => ring.entries.front(),
        }
    }

    #[inline]
    fn newest(&self) -> Option<&Entry> {
        match self {
            Self::Few { len: 0, .. } => None,
            Self::Few { len: 1, entries: [first, _], .. } => Some(first),
            Self::Few { entries: [_, second], .. } => Some(second),
            Self::Many(ring) => ring.entries.back(),
        }
    }

    #[inline]
    fn newest_mut(&mut self) -> Option<&mut Entry> {
        match self {
            Self::Few { len: 0, .. } => None,
            Self::Few { len: 1, entries: [first, _], .. } => Some(first),
            Self::Few { entries: [_, second], .. } => Some(second),
            Self::Many(ring) => ring.entries.back_mut(),
        }
    }

    fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        let (older, newer) = match self {
            Self::Few { len, entries, .. } => (entries.get(..usize::from(*len)).unwrap_or_default(), [].as_slice()),
            Self::Many(ring) => ring.entries.as_slices(),
        };
        older.iter().chain(newer)
    }

    fn entries_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Entry> {
        let (older, newer) = match self {
            Self::Few { len, entries, .. } => {
                (entries.get_mut(..usize::from(*len)).unwrap_or_default(), [].as_mut_slice())
            }
            Self::Many(ring) => ring.entries.as_mut_slices(),
        };
        older.iter_mut().chain(newer)
    }

    #[inline]
    fn used_mut(&mut self) -> &mut u32 {
        match self {
            Self::Few { used, .. } => used,
            Self::Many(ring) => &mut ring.used,
        }
    }

    fn remove_oldest(&mut self) {
        match self {
            Self::Few { used, len, entries } => {
                *used -= entries[0].count;
                *len -= 1;
                entries[0] = entries[1];
            }
            Self::Many(ring) => ring.used -= ring.entries.pop_front().map_or(0, |entry| entry.count),
        }
    }

    /// Appends an entry whose units are counted already, if there is memory for it.
    fn push(&mut self, entry: Entry, budget: &Budget) -> bool {
        match self {
            Self::Few { len: len @ 0, entries: [place, _], .. }
            | Self::Few { len: len @ 1, entries: [_, place], .. } => {
                *place = entry;
                *len += 1;
                true
            }
            Self::Few { used, entries, .. } => {
                if !budget.take(Ring::heap_bytes_of(Ring::FIRST_CAPACITY)) {
                    return false;
                }
                let mut ring = Ring { used: *used, entries: VecDeque::with_capacity(Ring::FIRST_CAPACITY) };
                ring.entries.extend(*entries);
                ring.entries.push_back(entry);
                *self = Self::Many(Box::new(ring));
                true
            }
            Self::Many(ring) => {
                let capacity = ring.entries.capacity();
                if ring.entries.len() == capacity {
                    if !budget.take(capacity * size_of::<Entry>()) {
                        return false;
                    }
                    ring.entries.reserve_exact(capacity);
                }
                ring.entries.push_back(entry);
                true
            }
        }
    }
}

impl Ring {
    const FIRST_CAPACITY: usize = 4;

    fn heap_bytes(&self) -> usize {
        Self::heap_bytes_of(self.entries.capacity())
    }

    fn heap_bytes_of(capacity: usize) -> usize {
        size_of::<Self>() + capacity * size_of::<Entry>()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn measure(window_seconds: u64, grains: u16) -> Measure {
        Measure::new(&Quota::new(1, Duration::from_secs(window_seconds)).unwrap(), grains)
    }

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    #[test]
    fn an_entry_leaves_one_window_after_its_last_unit() {
        let (measure, budget, mut log) = (measure(60, 240), Budget::new(usize::MAX), Log::EMPTY);
        log.add(measure, at(0), 1, &budget);
        log.add(measure, at(SECOND / 5), 1, &budget);
        assert_eq!(log.freed_at(measure, 2), at(60 * SECOND + SECOND / 5));
        log.expire(measure, at(60 * SECOND + SECOND / 5 - 1), &budget);
        assert_eq!(log.used(), 2);
        log.expire(measure, at(60 * SECOND + SECOND / 5), &budget);
        assert_eq!(log.used(), 0);
    }

    #[test]
    fn a_year_long_window_never_ends_early() {
        let measure = measure(366 * 24 * 3600, 1);
        let (budget, mut log) = (Budget::new(usize::MAX), Log::EMPTY);
        let last = 300 * 24 * 3600 * SECOND + 1;
        log.add(measure, at(1), 1, &budget);
        log.add(measure, at(last), 1, &budget);
        let leaves = log.freed_at(measure, 1).as_nanos();
        assert!(leaves >= last + measure.window);
        assert!(leaves < last + measure.window + (1 << measure.shift));
    }

    #[test]
    fn a_busy_tenant_holds_at_most_a_few_entries_more_than_there_are_grains() {
        let (measure, budget, mut log) = (measure(60, 240), Budget::new(usize::MAX), Log::EMPTY);
        for step in 0..100_000 {
            let now = at(step * SECOND / 97);
            log.expire(measure, now, &budget);
            log.add(measure, now, 1, &budget);
            assert!(log.entries().count() <= 242);
        }
        assert!(log.heap_bytes() <= 256 * size_of::<Entry>() + size_of::<Ring>());
        assert_eq!(budget.used(), log.heap_bytes());
        log.expire(measure, at(u64::MAX), &budget);
        assert_eq!((log.heap_bytes(), budget.used()), (0, 0));
    }

    #[test]
    fn without_memory_units_come_back_late_but_never_early() {
        let (measure, none, mut log) = (measure(60, 240), Budget::new(0), Log::EMPTY);
        for second in [0, 10, 20, 30] {
            log.add(measure, at(second * SECOND), 1, &none);
        }
        assert_eq!(log.freed_at(measure, 1), at(60 * SECOND));
        assert_eq!(log.freed_at(measure, 2), at(90 * SECOND));
        assert_eq!(log.heap_bytes(), 0);
    }

    #[test]
    fn a_refund_takes_from_its_own_entry_or_an_older_one() {
        let (measure, budget, mut log) = (measure(60, 240), Budget::new(usize::MAX), Log::EMPTY);
        let first = log.add(measure, at(0), 2, &budget);
        let second = log.add(measure, at(10 * SECOND), 3, &budget);
        log.add(measure, at(20 * SECOND), 4, &budget);
        log.refund(measure, second, 4);
        let counts: Vec<_> = log.entries().map(|entry| entry.count).collect();
        assert_eq!((counts, log.used()), (vec![1, 0, 4], 5));
        log.expire(measure, at(60 * SECOND), &budget);
        log.refund(measure, first, 2);
        assert_eq!(log.used(), 4, "what has left already is not given back twice");
    }

    #[test]
    fn a_copy_without_memory_counts_the_same_and_comes_back_late_but_never_early() {
        let (measure, budget, mut log) = (measure(60, 240), Budget::new(usize::MAX), Log::EMPTY);
        for second in [0, 10, 20, 30] {
            log.add(measure, at(second * SECOND), 2, &budget);
        }
        let whole = log.copied(measure, &budget);
        assert_eq!((whole.used(), whole.freed_at(measure, 2)), (8, at(60 * SECOND)));
        assert_eq!(budget.used(), log.heap_bytes() + whole.heap_bytes());
        let coarse = log.copied(measure, &Budget::new(0));
        assert_eq!((coarse.used(), coarse.heap_bytes()), (8, 0));
        assert!((90 * SECOND..91 * SECOND).contains(&coarse.freed_at(measure, 2).as_nanos()));
    }

    proptest! {
        #[test]
        fn however_often_it_is_measured_anew_no_entry_overtakes_another(
            gaps in vec((0..3_000_000_u64, prop_oneof![Just(0), 0..3_000_000_u64]), 1..12),
            measures in vec((select(vec![1, 60, 86_400, 366 * 86_400]), select(vec![1, 7, 240, 1000])), 2..5),
        ) {
            let (budget, mut log, mut now) = (Budget::new(usize::MAX), Log::EMPTY, 0);
            let mut measures = measures.into_iter().map(|(seconds, grains)| measure(seconds, grains));
            let mut from = measures.next().unwrap();
            for (pause, length) in gaps {
                let opened = now + pause;
                now = opened + length;
                log.push(Entry::spanning(opened, now, 1, from), &budget);
                *log.used_mut() += 1;
                now = log.newest().unwrap().last(from);
            }
            for to in measures {
                let before: Vec<_> = log.entries().map(|entry| entry.last(from)).collect();
                log.remeasure(from, to);
                let order = |key: &dyn Fn(&Entry) -> u64| log.entries().map(key).is_sorted();
                prop_assert!(order(&|entry| entry.opened), "{:?}", log);
                prop_assert!(order(&|entry| entry.leaves(to)), "{:?}", log);
                for (entry, last) in log.entries().zip(before) {
                    prop_assert!((last..=last + (1 << to.shift)).contains(&entry.last(to)));
                }
                from = to;
            }
        }
    }

    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<Entry>(), 16);
        assert_eq!(size_of::<Log>(), 40);
    }
}
