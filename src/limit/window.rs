//! The sliding window: a run-length log of what was spent.
//!
//! An entry stands for all units spent within one grain of its opening, and
//! leaves one window after the **last** of them. So at any moment the log holds
//! at least what was spent in the last window, and never forgets early; and an
//! honest client that spends everything at once gets everything back at once.

use std::collections::VecDeque;

use super::{budget::Budget, quota::Quota};
use crate::util::clock::{Moment, saturating_nanos};

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

#[derive(Clone, Copy, Debug)]
struct Entry {
    opened: u64,
    /// Ticks from the opening to the last unit.
    length: u32,
    count: u32,
}

impl Entry {
    const EMPTY: Self = Self { opened: 0, length: 0, count: 0 };

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

/// What was spent. The oldest and the newest entry stand in place, so that a decision touches nothing else; only a
/// tenant with more than two entries needs memory beside its row.
#[derive(Debug)]
pub(super) struct Log {
    used: u32,
    held: Held,
    oldest: Entry,
    newest: Entry,
    between: Option<Between>,
}

/// Boxed, for a quiet tenant has none and its row is to be small: 8 bytes instead of 32.
type Between = Box<VecDeque<Entry>>;

/// Which entries are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Nothing,
    Newest,
    /// The oldest, the newest, and what is between.
    Ends,
}

impl Log {
    pub(super) const EMPTY: Self =
        Self { used: 0, held: Held::Nothing, oldest: Entry::EMPTY, newest: Entry::EMPTY, between: None };

    /// Units that count, once [`expire`](Self::expire) was called.
    #[inline]
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// Lets entries go whose last unit is a window old.
    #[inline]
    pub(super) fn expire(&mut self, measure: Measure, now: Moment, budget: &Budget) {
        while self.oldest().is_some_and(|entry| entry.count == 0 || entry.leaves(measure) <= now.as_nanos()) {
            self.remove_oldest(budget);
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
        self.used += units;
        let mut spent_at = now.as_nanos();
        let mut joins = false;
        if self.held != Held::Nothing {
            spent_at = spent_at.max(self.newest.last(measure));
            joins = spent_at - self.newest.opened < measure.grain;
        }
        if !joins && self.push(Entry { opened: spent_at, length: 0, count: units }, budget) {
            return Moment::from_nanos(spent_at);
        }
        // without memory for one more entry the log gets coarser: units may come back late, never early
        self.newest = Entry::spanning(self.newest.opened, spent_at, self.newest.count + units, measure);
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
        self.used -= units - owed;
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
        let &Self { used, held, oldest, newest, ref between } = self;
        let Some(between) = between.clone().filter(|between| !between.is_empty()) else {
            return Self { used, held, oldest, newest, between: None };
        };
        if budget.take(heap_bytes_of(between.capacity())) {
            return Self { used, held, oldest, newest, between: Some(between) };
        }
        let all = Entry::spanning(oldest.opened, newest.last(measure), used, measure);
        Self { used, held: Held::Newest, oldest: Entry::EMPTY, newest: all, between: None }
    }

    /// Whether nothing counts any more at this moment.
    pub(super) fn is_idle(&self, measure: Measure, now: Moment) -> bool {
        self.used == 0 || self.newest.leaves(measure) <= now.as_nanos()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.between.as_ref().map_or(0, |between| heap_bytes_of(between.capacity()))
    }

    #[inline]
    fn oldest(&self) -> Option<&Entry> {
        match self.held {
            Held::Nothing => None,
            Held::Newest => Some(&self.newest),
            Held::Ends => Some(&self.oldest),
        }
    }

    fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        let oldest = (self.held == Held::Ends).then_some(&self.oldest);
        let newest = (self.held != Held::Nothing).then_some(&self.newest);
        let between = self.between.as_deref().into_iter().flatten();
        oldest.into_iter().chain(between).chain(newest)
    }

    fn entries_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Entry> {
        let oldest = (self.held == Held::Ends).then_some(&mut self.oldest);
        let newest = (self.held != Held::Nothing).then_some(&mut self.newest);
        let between = self.between.as_deref_mut().into_iter().flatten();
        oldest.into_iter().chain(between).chain(newest)
    }

    fn remove_oldest(&mut self, budget: &Budget) {
        match self.held {
            Held::Nothing => {}
            Held::Newest => {
                self.used -= self.newest.count;
                self.held = Held::Nothing;
            }
            Held::Ends => {
                self.used -= self.oldest.count;
                match self.between.as_mut().and_then(|between| between.pop_front()) {
                    Some(next) => self.oldest = next,
                    None => {
                        self.held = Held::Newest;
                        budget.give_back(self.heap_bytes());
                        self.between = None;
                    }
                }
            }
        }
    }

    /// Appends an entry whose units are counted already, if there is memory for it.
    fn push(&mut self, entry: Entry, budget: &Budget) -> bool {
        match self.held {
            Held::Nothing => self.held = Held::Newest,
            Held::Newest => {
                self.oldest = self.newest;
                self.held = Held::Ends;
            }
            Held::Ends => {
                let Some(between) = room_for_one(&mut self.between, budget) else { return false };
                between.push_back(self.newest);
            }
        }
        self.newest = entry;
        true
    }
}

const FIRST_CAPACITY: usize = 4;

fn heap_bytes_of(capacity: usize) -> usize {
    size_of::<VecDeque<Entry>>() + capacity * size_of::<Entry>()
}

/// The entries between, with room for one more if the budget has it.
fn room_for_one<'a>(between: &'a mut Option<Between>, budget: &Budget) -> Option<&'a mut VecDeque<Entry>> {
    match between {
        Some(entries) => {
            let capacity = entries.capacity();
            if entries.len() == capacity {
                let more = capacity.max(FIRST_CAPACITY);
                if !budget.take(more * size_of::<Entry>()) {
                    return None;
                }
                entries.reserve_exact(more);
            }
            Some(entries)
        }
        None => {
            if !budget.take(heap_bytes_of(FIRST_CAPACITY)) {
                return None;
            }
            Some(between.insert(Box::new(VecDeque::with_capacity(FIRST_CAPACITY))))
        }
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
        assert!(log.heap_bytes() <= heap_bytes_of(256));
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

    #[test]
    fn a_copy_of_a_log_whose_middle_is_empty_counts_its_bytes_as_it_grows() {
        let (measure, budget, mut log) = (measure(60, 240), Budget::new(usize::MAX), Log::EMPTY);
        for second in 0..3 {
            log.add(measure, at(second * SECOND), 1, &budget);
        }
        log.expire(measure, at(60 * SECOND), &budget);
        assert!(log.between.as_ref().is_some_and(|between| between.is_empty()));
        let mut copy = log.copied(measure, &budget);
        for second in 61..64 {
            copy.add(measure, at(second * SECOND), 1, &budget);
        }
        assert_eq!(budget.used(), log.heap_bytes() + copy.heap_bytes());
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
                log.used += 1;
                now = log.newest.last(from);
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
        assert_eq!(size_of::<Log>(), 48);
    }
}
