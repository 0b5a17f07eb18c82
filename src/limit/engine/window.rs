//! The sliding window: a run-length log of spent units.
//!
//! An entry holds all units spent within one slice of the window and expires one window after the **last** of them. The
//! log therefore never forgets a unit early, and a client that spends its whole quota at once gets it back at once.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use crate::{
    limit::quota::Quota,
    util::clock::{Moment, saturating_nanos},
};

/// The lengths that a sliding window works with, derived from its quota.
#[derive(Clone, Copy)]
pub(crate) struct Lengths {
    window: u64,
    /// Units spent within one slice share an entry.
    slice: u64,
    /// Within an entry, time counts in ticks of `1 << shift` nanoseconds, so that a slice fits in 32 bits.
    shift: u32,
}

impl Lengths {
    pub(super) fn new(quota: &Quota, slices: u16) -> Self {
        let window = saturating_nanos(quota.window());
        let slice = (window / u64::from(slices)).max(1);
        let shift = (u64::BITS - slice.leading_zeros()).saturating_sub(u32::BITS);
        Self { window, slice, shift }
    }

    /// Converts nanoseconds to ticks, rounded up. Shifts, because a division would be the most expensive step of a
    /// decision.
    #[inline]
    fn ticks(self, nanos: u64) -> u32 {
        let whole = nanos >> self.shift;
        let ticks = whole + u64::from(whole << self.shift != nanos);
        u32::try_from(ticks).unwrap_or(u32::MAX)
    }

    /// Returns the longest time that an entry can span.
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

    /// Creates an entry. Its end may come late by less than a tick, never early. If the time is longer than an entry can
    /// span, the entry begins later.
    #[inline]
    fn spanning(opened: u64, last: u64, count: u32, lengths: Lengths) -> Self {
        let opened = opened.max(last.saturating_sub(lengths.longest()));
        Self { opened, length: lengths.ticks(last - opened), count }
    }

    #[inline]
    fn last(self, lengths: Lengths) -> u64 {
        self.opened.saturating_add(u64::from(self.length) << lengths.shift)
    }

    #[inline]
    fn expires(self, lengths: Lengths) -> u64 {
        self.last(lengths).saturating_add(lengths.window)
    }
}

/// The units that a tenant has spent. The oldest and the newest entry are stored inline, so that a decision needs no other memory.
/// Only a tenant with more than two entries needs a heap allocation.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Log {
    used: u32,
    filled: Filled,
    newest: Entry,
    oldest: Entry,
    between: Option<Between>,
}

/// Boxed, because a quiet tenant has none and its row must be small: 8 bytes instead of 32.
type Between = Box<VecDeque<Entry>>;

/// Returns the number of units beyond the limit.
#[inline]
pub(super) fn over(used: u32, units: u32, limit: u32) -> u32 {
    let wanted = u64::from(used) + u64::from(units);
    u32::try_from(wanted.saturating_sub(u64::from(limit))).unwrap_or(u32::MAX)
}

/// Which entries of a log are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    Nothing,
    Newest,
    /// The oldest, the newest and those between.
    All,
}

impl Log {
    pub(super) const EMPTY: Self =
        Self { used: 0, filled: Filled::Nothing, oldest: Entry::EMPTY, newest: Entry::EMPTY, between: None };

    /// Returns the units that count. Call [`expire`](Self::expire) first.
    #[inline]
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// Removes entries whose last unit is at least one window old.
    #[inline]
    pub(super) fn expire(&mut self, lengths: Lengths, now: Moment, bytes: &ByteBudget) {
        while self.oldest().is_some_and(|entry| entry.count == 0 || entry.expires(lengths) <= now.as_nanos()) {
            self.remove_oldest(bytes);
        }
    }

    /// Returns when these units will have come back, or the end of time if the log has fewer.
    #[inline]
    pub(super) fn freed_at(&self, lengths: Lengths, units: u32) -> Moment {
        if let Some(oldest) = self.oldest()
            && oldest.count >= units
        {
            return Moment::from_nanos(oldest.expires(lengths));
        }
        let mut freed = 0_u32;
        for entry in self.entries() {
            freed = freed.saturating_add(entry.count);
            if freed >= units {
                return Moment::from_nanos(entry.expires(lengths));
            }
        }
        Moment::from_nanos(u64::MAX)
    }

    /// Returns when one more unit than now will be left, or now if nothing is spent.
    #[inline]
    pub(super) fn rises_at(&self, lengths: Lengths, limit: u32, now: Moment) -> Moment {
        match self.used {
            0 => now,
            used => self.freed_at(lengths, over(used, 1, limit).max(1)),
        }
    }

    /// Adds units that were found to fit. Returns when they count as spent: now, or with the newest entry if the clock
    /// has stepped back.
    #[inline]
    pub(super) fn add(&mut self, lengths: Lengths, now: Moment, units: u32, bytes: &ByteBudget) -> Moment {
        // an entry without units would only take memory
        if units == 0 {
            return now;
        }
        // what a shared server has admitted may not fit
        let units = units.min(u32::MAX - self.used);
        self.used += units;
        let mut spent_at = now.as_nanos();
        let mut joins = false;
        if self.filled != Filled::Nothing {
            spent_at = spent_at.max(self.newest.last(lengths));
            joins = spent_at - self.newest.opened < lengths.slice;
        }
        if !joins && self.push(Entry { opened: spent_at, length: 0, count: units }, bytes) {
            return Moment::from_nanos(spent_at);
        }
        // without memory for one more entry the log gets coarser: units may come back late, never early
        self.newest = Entry::spanning(self.newest.opened, spent_at, self.newest.count + units, lengths);
        Moment::from_nanos(spent_at)
    }

    /// Refunds units that were spent at `spent_at`: from the entry that holds them and from older ones, which expire
    /// sooner. Refunds nothing if that entry has expired.
    pub(super) fn refund(&mut self, lengths: Lengths, spent_at: Moment, units: u32) {
        let spent_at = spent_at.as_nanos();
        let mut owed = units;
        let mut own_or_older = self.entries_mut().rev().skip_while(|entry| entry.opened > spent_at);
        let mut next = own_or_older.next().filter(|own| own.last(lengths) >= spent_at);
        while let Some(entry) = next {
            let taken = owed.min(entry.count);
            entry.count -= taken;
            owed -= taken;
            next = own_or_older.next();
        }
        drop(own_or_older);
        self.used -= units - owed;
    }

    /// Converts the entries to other lengths. No entry expires earlier because of it, or before an older one.
    pub(super) fn convert(&mut self, from: Lengths, to: Lengths) {
        let (mut opened, mut last) = (0, 0);
        for entry in self.entries_mut() {
            *entry = Entry::spanning(entry.opened.max(opened), entry.last(from).max(last), entry.count, to);
            (opened, last) = (entry.opened, entry.last(to));
        }
    }

    /// Returns a log that counts the same. It is coarser if there is no memory for all entries.
    pub(super) fn copied(&self, lengths: Lengths, bytes: &ByteBudget) -> Self {
        let &Self { used, filled, oldest, newest, ref between } = self;
        let Some(between) = between.clone().filter(|between| !between.is_empty()) else {
            return Self { used, filled, oldest, newest, between: None };
        };
        if bytes.reserve_bytes(heap_bytes_of(between.capacity())) {
            return Self { used, filled, oldest, newest, between: Some(between) };
        }
        let all = Entry::spanning(oldest.opened, newest.last(lengths), used, lengths);
        Self { used, filled: Filled::Newest, oldest: Entry::EMPTY, newest: all, between: None }
    }

    /// Returns whether no units count any more.
    pub(super) fn is_idle(&self, lengths: Lengths, now: Moment) -> bool {
        self.used == 0 || self.newest.expires(lengths) <= now.as_nanos()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.between.as_ref().map_or(0, |between| heap_bytes_of(between.capacity()))
    }

    #[inline]
    fn oldest(&self) -> Option<&Entry> {
        match self.filled {
            Filled::Nothing => None,
            Filled::Newest => Some(&self.newest),
            Filled::All => Some(&self.oldest),
        }
    }

    fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        let oldest = (self.filled == Filled::All).then_some(&self.oldest);
        let newest = (self.filled != Filled::Nothing).then_some(&self.newest);
        let between = self.between.as_deref().into_iter().flatten();
        oldest.into_iter().chain(between).chain(newest)
    }

    fn entries_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Entry> {
        let oldest = (self.filled == Filled::All).then_some(&mut self.oldest);
        let newest = (self.filled != Filled::Nothing).then_some(&mut self.newest);
        let between = self.between.as_deref_mut().into_iter().flatten();
        oldest.into_iter().chain(between).chain(newest)
    }

    fn remove_oldest(&mut self, bytes: &ByteBudget) {
        match self.filled {
            Filled::Nothing => {}
            Filled::Newest => {
                self.used -= self.newest.count;
                self.filled = Filled::Nothing;
            }
            Filled::All => {
                self.used -= self.oldest.count;
                match self.between.as_mut().and_then(|between| between.pop_front()) {
                    Some(next) => self.oldest = next,
                    None => {
                        self.filled = Filled::Newest;
                        bytes.give_back(self.heap_bytes());
                        self.between = None;
                    }
                }
            }
        }
    }

    /// Appends an entry whose units are counted already. Returns whether there was memory for it.
    #[inline]
    fn push(&mut self, entry: Entry, bytes: &ByteBudget) -> bool {
        match self.filled {
            Filled::Nothing => self.filled = Filled::Newest,
            Filled::Newest => {
                self.oldest = self.newest;
                self.filled = Filled::All;
            }
            Filled::All => {
                let Some(between) = room_for_one(&mut self.between, bytes) else { return false };
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

/// Makes room for one more entry, if the budget allows it.
fn room_for_one<'a>(between: &'a mut Option<Between>, bytes: &ByteBudget) -> Option<&'a mut VecDeque<Entry>> {
    match between {
        Some(entries) => {
            let capacity = entries.capacity();
            if entries.len() == capacity {
                let more = capacity.max(FIRST_CAPACITY);
                if !bytes.reserve_bytes(more * size_of::<Entry>()) {
                    return None;
                }
                entries.reserve_exact(more);
            }
            Some(entries)
        }
        None => {
            if !bytes.reserve_bytes(heap_bytes_of(FIRST_CAPACITY)) {
                return None;
            }
            Some(between.insert(Box::new(VecDeque::with_capacity(FIRST_CAPACITY))))
        }
    }
}

/// The bytes that all tenants of a limiter may take together.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    used: AtomicUsize,
    most: usize,
}

impl ByteBudget {
    pub(super) fn new(most: usize) -> Self {
        Self { used: AtomicUsize::new(0), most }
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    pub(super) fn has_room(&self) -> bool {
        self.used() < self.most
    }

    /// Takes bytes if there is room for them, and returns whether there was.
    pub(super) fn reserve_bytes(&self, bytes: usize) -> bool {
        self.used
            .fetch_update(Relaxed, Relaxed, |used| used.checked_add(bytes).filter(|after| *after <= self.most))
            .is_ok()
    }

    /// Takes bytes without checking the budget. Use it only for memory that another limit bounds.
    pub(super) fn force(&self, bytes: usize) {
        self.used.fetch_add(bytes, Relaxed);
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn lengths(window_seconds: u64, slices: u16) -> Lengths {
        Lengths::new(&Quota::new(1, Duration::from_secs(window_seconds)).unwrap(), slices)
    }

    fn moment_at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    #[test]
    fn an_entry_leaves_one_window_after_its_last_unit() {
        let (lengths, bytes, mut log) = (lengths(60, 240), ByteBudget::new(usize::MAX), Log::EMPTY);
        log.add(lengths, moment_at(0), 1, &bytes);
        log.add(lengths, moment_at(SECOND / 5), 1, &bytes);
        assert_eq!(log.freed_at(lengths, 2), moment_at(60 * SECOND + SECOND / 5));
        log.expire(lengths, moment_at(60 * SECOND + SECOND / 5 - 1), &bytes);
        assert_eq!(log.used(), 2);
        log.expire(lengths, moment_at(60 * SECOND + SECOND / 5), &bytes);
        assert_eq!(log.used(), 0);
    }

    #[test]
    fn a_year_long_window_never_ends_early() {
        let lengths = lengths(366 * 24 * 3600, 1);
        let (bytes, mut log) = (ByteBudget::new(usize::MAX), Log::EMPTY);
        let last = 300 * 24 * 3600 * SECOND + 1;
        log.add(lengths, moment_at(1), 1, &bytes);
        log.add(lengths, moment_at(last), 1, &bytes);
        let leaves = log.freed_at(lengths, 1).as_nanos();
        assert!(leaves >= last + lengths.window);
        assert!(leaves < last + lengths.window + (1 << lengths.shift));
    }

    #[test]
    fn a_busy_tenant_holds_at_most_a_few_entries_more_than_there_are_slices() {
        let (lengths, bytes, mut log) = (lengths(60, 240), ByteBudget::new(usize::MAX), Log::EMPTY);
        for step in 0..100_000 {
            let now = moment_at(step * SECOND / 97);
            log.expire(lengths, now, &bytes);
            log.add(lengths, now, 1, &bytes);
            assert!(log.entries().count() <= 242);
        }
        assert!(log.heap_bytes() <= heap_bytes_of(256));
        assert_eq!(bytes.used(), log.heap_bytes());
        log.expire(lengths, moment_at(u64::MAX), &bytes);
        assert_eq!((log.heap_bytes(), bytes.used()), (0, 0));
    }

    #[test]
    fn without_memory_units_come_back_late_but_never_early() {
        let (lengths, none, mut log) = (lengths(60, 240), ByteBudget::new(0), Log::EMPTY);
        for second in [0, 10, 20, 30] {
            log.add(lengths, moment_at(second * SECOND), 1, &none);
        }
        assert_eq!(log.freed_at(lengths, 1), moment_at(60 * SECOND));
        assert_eq!(log.freed_at(lengths, 2), moment_at(90 * SECOND));
        assert_eq!(log.heap_bytes(), 0);
    }

    #[test]
    fn a_refund_is_taken_from_its_own_entry_or_an_older_one() {
        let (lengths, bytes, mut log) = (lengths(60, 240), ByteBudget::new(usize::MAX), Log::EMPTY);
        let first = log.add(lengths, moment_at(0), 2, &bytes);
        let second = log.add(lengths, moment_at(10 * SECOND), 3, &bytes);
        log.add(lengths, moment_at(20 * SECOND), 4, &bytes);
        log.refund(lengths, second, 4);
        let counts: Vec<_> = log.entries().map(|entry| entry.count).collect();
        assert_eq!((counts, log.used()), (vec![1, 0, 4], 5));
        log.expire(lengths, moment_at(60 * SECOND), &bytes);
        log.refund(lengths, first, 2);
        assert_eq!(log.used(), 4, "what has left already is not given back twice");
    }

    #[test]
    fn a_copy_without_memory_counts_the_same_and_comes_back_late_but_never_early() {
        let (lengths, bytes, mut log) = (lengths(60, 240), ByteBudget::new(usize::MAX), Log::EMPTY);
        for second in [0, 10, 20, 30] {
            log.add(lengths, moment_at(second * SECOND), 2, &bytes);
        }
        let whole = log.copied(lengths, &bytes);
        assert_eq!((whole.used(), whole.freed_at(lengths, 2)), (8, moment_at(60 * SECOND)));
        assert_eq!(bytes.used(), log.heap_bytes() + whole.heap_bytes());
        let coarse = log.copied(lengths, &ByteBudget::new(0));
        assert_eq!((coarse.used(), coarse.heap_bytes()), (8, 0));
        assert!((90 * SECOND..91 * SECOND).contains(&coarse.freed_at(lengths, 2).as_nanos()));
    }

    #[test]
    fn a_copy_of_a_log_whose_middle_is_empty_counts_its_bytes_as_it_grows() {
        let (lengths, bytes, mut log) = (lengths(60, 240), ByteBudget::new(usize::MAX), Log::EMPTY);
        for second in 0..3 {
            log.add(lengths, moment_at(second * SECOND), 1, &bytes);
        }
        log.expire(lengths, moment_at(60 * SECOND), &bytes);
        assert!(log.between.as_ref().is_some_and(|between| between.is_empty()));
        let mut copy = log.copied(lengths, &bytes);
        for second in 61..64 {
            copy.add(lengths, moment_at(second * SECOND), 1, &bytes);
        }
        assert_eq!(bytes.used(), log.heap_bytes() + copy.heap_bytes());
    }

    #[test]
    fn whole_ticks_are_not_rounded_up() {
        let lengths = lengths(366 * 24 * 3600, 1);
        assert!(lengths.shift > 0);
        let [whole, more] = [5 << lengths.shift, (5 << lengths.shift) + 1];
        assert_eq!([whole, more].map(|nanos| lengths.ticks(nanos)), [5, 6]);
    }

    #[test]
    fn a_budget_has_room_until_all_of_it_is_used() {
        let bytes = ByteBudget::new(2);
        for has_room in [true, true, false] {
            assert_eq!(bytes.has_room(), has_room);
            bytes.force(1);
        }
    }

    proptest! {
        #[test]
        fn repeated_conversions_keep_the_order_of_entries(
            gaps in vec((0..3_000_000_u64, prop_oneof![Just(0), 0..3_000_000_u64]), 1..12),
            all_lengths in vec((select(vec![1, 60, 86_400, 366 * 86_400]), select(vec![1, 7, 240, 1000])), 2..5),
        ) {
            let (bytes, mut log, mut now) = (ByteBudget::new(usize::MAX), Log::EMPTY, 0);
            let mut all_lengths = all_lengths.into_iter().map(|(seconds, slices)| lengths(seconds, slices));
            let mut from = all_lengths.next().unwrap();
            for (pause, length) in gaps {
                let opened = now + pause;
                now = opened + length;
                log.push(Entry::spanning(opened, now, 1, from), &bytes);
                log.used += 1;
                now = log.newest.last(from);
            }
            for to in all_lengths {
                let before: Vec<_> = log.entries().map(|entry| entry.last(from)).collect();
                log.convert(from, to);
                let order = |key: &dyn Fn(&Entry) -> u64| log.entries().map(key).is_sorted();
                prop_assert!(order(&|entry| entry.opened), "{:?}", log);
                prop_assert!(order(&|entry| entry.expires(to)), "{:?}", log);
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
