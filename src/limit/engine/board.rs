//! The refusal board: recent refusals, readable without a lock.
//!
//! A tenant that has used up its quota is refused again and again. The board repeats such a refusal without a lock, so that
//! a flood costs little and does not slow down with more threads. A refusal is only repeated for as many units, because more
//! units fit later: a tenant whose requests have different costs has several refusals on the board.
//!
//! Invariants:
//!
//! - A slot is written and cleared only while the row of its tenant is locked. If a reset, a refund or an admission
//!   invalidates a refusal, the refusal is therefore gone before the lock is released.
//! - A reader believes a slot only if everything in it matches: 128 bits of keyed hash, the units, the epoch of the
//!   quotas, the plan where a function chooses plans, and the time. A change of any plan raises the epoch.
//! - A slot with a valid refusal is not taken over by another tenant, unless both post at the same time. A refusal that is
//!   not on the board is decided under the lock.
//! - A refusal outside the home of its tenant, the first slot of its group, is only read while the tenant has its home. So a
//!   request of a tenant that is not refused looks at one bit, and rarely at one slot.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use crate::{
    limit::quota::Quota,
    tenant::Standing,
    util::clock::{Moment, UnixTime},
};

/// The number of slots, of one cache line each.
const SLOTS: usize = 512;

/// The number of slots that form a group. Each of them is the home of some tenants.
const GROUP: usize = 4;

pub(super) struct Board {
    slots: Box<[Slot]>,
    /// A bit for each home in use. It fits in one cache line, so that a request of a tenant that is not refused reads no
    /// slot. A bit may be missing for a moment, and then the refusal is decided under the lock.
    in_use: InUse,
}

#[derive(Default)]
#[repr(align(64))]
struct InUse([AtomicU64; SLOTS / 64]);

/// One refusal. The version is odd while the slot is being written, and rises with each change.
#[derive(Default)]
#[repr(align(64))]
struct Slot {
    version: AtomicU64,
    hash: AtomicU64,
    second_hash: AtomicU64,
    holds_until: AtomicU64,
    reset: AtomicU64,
    /// Units and remaining units.
    units: AtomicU64,
    /// Limit, whom the refusal is for, and number of the policy name.
    policy: AtomicU64,
    /// Plan id and epoch.
    plan: AtomicU64,
}

/// Two hashes of a tenant, with different keys. The second is only computed if the first matches.
#[derive(Clone, Copy)]
pub(super) struct TenantHash<F> {
    pub(super) first: u64,
    pub(super) second: F,
}

/// The terms of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BoardTerms {
    pub(super) units: u32,
    pub(super) epoch: u32,
    /// The plan, if a function chooses it. Without a function, the epoch is sufficient.
    pub(super) plan: Option<u32>,
    /// Whether the request is anonymous. `None` on the board if it makes no difference, because nothing is reserved.
    pub(super) is_anonymous: Option<bool>,
}

impl Board {
    pub(super) fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| Slot::default()).collect(), in_use: InUse::default() }
    }

    /// Returns the refusal of this tenant that still holds, if it is on the board.
    #[inline]
    pub(super) fn find(
        &self,
        tenant: &TenantHash<impl Fn() -> u64>,
        terms: BoardTerms,
        time: (Moment, UnixTime),
    ) -> Option<Standing> {
        if !self.in_use.has(tenant.first) || !self.slot(tenant.first, 0)?.is_of(tenant.first) {
            return None;
        }
        self.group(tenant.first).find_map(|slot| slot.refusal(tenant, terms, time))
    }

    /// Returns whether a refusal of this tenant can be posted: no other tenant has its slot.
    #[inline]
    pub(super) fn has_room(&self, first_hash: u64, epoch: u32, now: Moment) -> bool {
        self.slot(first_hash, 0).is_some_and(|home| home.is_of(first_hash) || home.is_free(epoch, now))
    }

    /// Posts a refusal that holds until `holds_until` unless it is cleared. Returns whether there was room for it.
    /// Call it while the row of the tenant is locked.
    pub(super) fn post(
        &self,
        tenant: TenantHash<u64>,
        terms: BoardTerms,
        standing: &Standing,
        quota: &Quota,
        (now, holds_until): (Moment, Moment),
    ) -> bool {
        let (Some(slot), Some(policy)) = (self.place(tenant.first, terms, now), quota.name_number()) else {
            return false;
        };
        let is_posted = slot.write_slot(|| {
            slot.hash.store(tenant.first, Relaxed);
            slot.second_hash.store(tenant.second, Relaxed);
            slot.holds_until.store(holds_until.as_nanos(), Relaxed);
            slot.reset.store(standing.reset().as_nanos(), Relaxed);
            slot.units.store(pair(terms.units, standing.remaining()), Relaxed);
            slot.policy.store(pair(standing.limit(), with_audience(policy, terms.is_anonymous)), Relaxed);
            slot.plan.store(pair(terms.plan.unwrap_or_default(), terms.epoch), Relaxed);
        });
        self.in_use.set(tenant.first);
        is_posted
    }

    /// Clears the refusal of this tenant. Call it while the row of the tenant is locked.
    pub(super) fn clear(&self, first_hash: u64) {
        for slot in self.group(first_hash) {
            // If another tenant is writing the slot right now, it overwrites this refusal.
            while slot.is_of(first_hash)
                && slot.holds_until.load(Relaxed) != 0
                && !slot.write_slot(|| slot.holds_until.store(0, Relaxed))
            {
                std::hint::spin_loop();
            }
        }
        if self.slot(first_hash, 0).is_some_and(|home| home.holds_until.load(Relaxed) == 0) {
            self.in_use.unset(first_hash);
        }
    }

    /// Returns the slot for a refusal, or `None` if another tenant has the home. Does not overwrite refusals of other costs
    /// if a slot of the group is free.
    fn place(&self, hash: u64, terms: BoardTerms, now: Moment) -> Option<&Slot> {
        let home = self.slot(hash, 0)?;
        if !home.is_of(hash) {
            return home.is_free(terms.epoch, now).then_some(home);
        }
        let same = self.group(hash).find(|slot| slot.is_of(hash) && slot.is_for(terms));
        let free = || self.group(hash).find(|slot| slot.is_free(terms.epoch, now));
        same.or_else(free).or(Some(home))
    }

    /// Returns the slots of a tenant, with its home first.
    fn group(&self, hash: u64) -> impl Iterator<Item = &Slot> {
        (0..GROUP).filter_map(move |place| self.slot(hash, place))
    }

    #[inline]
    fn slot(&self, hash: u64, place: usize) -> Option<&Slot> {
        self.slots.get(home_of(hash) ^ place)
    }
}

/// Returns the number of the slot that is the home of a tenant.
#[inline]
pub(super) fn home_of(hash: u64) -> usize {
    (hash >> 43) as usize % SLOTS
}

impl InUse {
    #[inline]
    fn has(&self, hash: u64) -> bool {
        let (word, bit) = self.bit(hash);
        word.is_some_and(|word| word.load(Relaxed) & bit != 0)
    }

    fn set(&self, hash: u64) {
        if let (Some(word), bit) = self.bit(hash)
            && word.load(Relaxed) & bit == 0
        {
            word.fetch_or(bit, Relaxed);
        }
    }

    fn unset(&self, hash: u64) {
        if let (Some(word), bit) = self.bit(hash) {
            word.fetch_and(!bit, Relaxed);
        }
    }

    #[inline]
    fn bit(&self, hash: u64) -> (Option<&AtomicU64>, u64) {
        let home = home_of(hash);
        (self.0.get(home / 64), 1 << (home % 64))
    }
}

impl Slot {
    #[inline]
    fn is_of(&self, hash: u64) -> bool {
        self.hash.load(Relaxed) == hash
    }

    /// Returns whether no valid refusal is here.
    fn is_free(&self, epoch: u32, now: Moment) -> bool {
        self.holds_until.load(Relaxed) <= now.as_nanos() || halves(self.plan.load(Relaxed)).1 != epoch
    }

    /// Returns whether the refusal is for requests of as many units and of the same audience.
    fn is_for(&self, terms: BoardTerms) -> bool {
        let units = halves(self.units.load(Relaxed)).0;
        units == terms.units && audience(halves(self.policy.load(Relaxed)).1).1 == terms.is_anonymous
    }

    /// Returns the refusal of this tenant that still holds, if it is here.
    fn refusal(
        &self,
        tenant: &TenantHash<impl Fn() -> u64>,
        terms: BoardTerms,
        time: (Moment, UnixTime),
    ) -> Option<Standing> {
        if !self.is_of(tenant.first) || time.0.as_nanos() >= self.holds_until.load(Relaxed) {
            return None;
        }
        let (posted, posted_terms, second_hash) = self.read_slot(time)?;
        let is_same_plan = terms.plan.is_none_or(|plan| Some(plan) == posted_terms.plan);
        let is_for_it = posted_terms.is_anonymous.is_none_or(|posted| Some(posted) == terms.is_anonymous);
        let matches = posted_terms.units == terms.units && posted_terms.epoch == terms.epoch && is_same_plan;
        (matches && is_for_it && (tenant.second)() == second_hash).then_some(posted)
    }

    /// Reads all of the slot, or nothing if it changes meanwhile.
    fn read_slot(&self, time: (Moment, UnixTime)) -> Option<(Standing, BoardTerms, u64)> {
        let before = self.version.load(Acquire);
        if before % 2 == 1 {
            return None;
        }
        let (units, remaining) = halves(self.units.load(Relaxed));
        let (limit, policy) = halves(self.policy.load(Relaxed));
        let (plan, epoch) = halves(self.plan.load(Relaxed));
        let (reset, second_hash) = (self.reset.load(Relaxed), self.second_hash.load(Relaxed));
        let holds_until = self.holds_until.load(Relaxed);
        fence(Acquire);
        if self.version.load(Relaxed) != before || time.0.as_nanos() >= holds_until {
            return None;
        }
        let (policy, is_anonymous) = audience(policy);
        let name = Quota::name_by_number(policy)?;
        let standing = Standing::new(name, limit, remaining, Moment::from_nanos(reset), time);
        Some((standing, BoardTerms { units, epoch, plan: Some(plan), is_anonymous }, second_hash))
    }

    /// Writes the slot, unless another thread is writing it. Returns whether it did.
    fn write_slot(&self, store: impl FnOnce()) -> bool {
        let version = self.version.load(Relaxed);
        if version % 2 == 1 || self.version.compare_exchange(version, version + 1, Acquire, Relaxed).is_err() {
            return false;
        }
        fence(Release);
        store();
        self.version.store(version + 2, Release);
        true
    }
}

/// Packs the number of a policy name, and whom a refusal is for.
fn with_audience(policy: u16, is_anonymous: Option<bool>) -> u32 {
    u32::from(policy) | is_anonymous.map_or(0, |is_anonymous| 2 | u32::from(is_anonymous)) << 16
}

fn audience(word: u32) -> (u16, Option<bool>) {
    (word as u16, (word >> 17 == 1).then_some(word >> 16 & 1 == 1))
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicBool, thread};

    use super::*;

    fn times_at(nanos: u64) -> (Moment, UnixTime) {
        (Moment::from_nanos(nanos), UnixTime::from_nanos(nanos))
    }

    fn quota() -> Quota {
        Quota::per_minute(9).unwrap()
    }

    fn terms() -> BoardTerms {
        BoardTerms { units: 3, epoch: 7, plan: Some(5), is_anonymous: None }
    }

    fn post(board: &Board, (first, second): (u64, u64), now: u64, until: u64) -> bool {
        let standing = Standing::new(quota().name(), 9, 2, Moment::from_nanos(until + 1), times_at(now));
        let period = (Moment::from_nanos(now), Moment::from_nanos(until));
        board.post(TenantHash { first, second }, terms(), &standing, &quota(), period)
    }

    fn find(board: &Board, (first, second): (u64, u64), terms: BoardTerms, now: u64) -> Option<Standing> {
        board.find(&TenantHash { first, second: || second }, terms, times_at(now))
    }

    #[test]
    fn a_refusal_is_repeated_only_if_everything_matches() {
        let board = Board::new();
        assert!(post(&board, (1, 2), 10, 20));
        let posted = find(&board, (1, 2), terms(), 19).unwrap();
        assert_eq!((posted.policy(), posted.limit(), posted.remaining()), ("default", 9, 2));
        assert_eq!((posted.reset(), posted.time_until_reset().as_nanos()), (Moment::from_nanos(21), 2));
        assert!(find(&board, (1, 2), BoardTerms { plan: None, ..terms() }, 19).is_some(), "the epoch says enough");
        assert_eq!(find(&board, (1, 2), terms(), 20), None, "it has passed");
        assert_eq!(find(&board, (1, 3), terms(), 19), None, "half a hash is not the tenant");
        assert_eq!(find(&board, (2, 2), terms(), 19), None);
        for other in [
            BoardTerms { units: 2, ..terms() },
            BoardTerms { epoch: 8, ..terms() },
            BoardTerms { plan: Some(6), ..terms() },
        ] {
            assert_eq!(find(&board, (1, 2), other, 19), None, "{other:?}");
        }
    }

    #[test]
    fn a_refusal_of_anonymous_requests_is_not_for_others() {
        for audience in [None, Some(false), Some(true)] {
            let (board, terms) = (Board::new(), BoardTerms { is_anonymous: audience, ..terms() });
            let standing = Standing::new(quota().name(), 9, 2, Moment::from_nanos(21), times_at(10));
            let period = (Moment::from_nanos(10), Moment::from_nanos(20));
            assert!(board.post(TenantHash { first: 1, second: 2 }, terms, &standing, &quota(), period));
            for asked in [false, true] {
                let found = find(&board, (1, 2), BoardTerms { is_anonymous: Some(asked), ..terms }, 15);
                assert_eq!(found.is_some(), audience.is_none_or(|audience| audience == asked), "{audience:?}");
                assert!(found.is_none_or(|found| found.policy() == "default" && found.limit() == 9));
            }
        }
    }

    #[test]
    fn a_cleared_refusal_is_gone_and_others_stay() {
        let board = Board::new();
        let other = 1 << 43;
        assert!(post(&board, (0, 2), 10, 20) && post(&board, (other, 2), 10, 20));
        board.clear(0);
        assert_eq!(find(&board, (0, 2), terms(), 15), None);
        assert!(find(&board, (other, 2), terms(), 15).is_some());
    }

    #[test]
    fn a_tenant_has_refusals_of_several_costs_and_clears_them_together() {
        let (board, neighbor) = (Board::new(), (3 << 43, 2));
        let of = |units: usize| BoardTerms { units: units as u32, ..terms() };
        let standing = Standing::new(quota().name(), 9, 2, Moment::from_nanos(21), times_at(10));
        let period = (Moment::from_nanos(10), Moment::from_nanos(20));
        let post_of = |units| board.post(TenantHash { first: 1, second: 2 }, of(units), &standing, &quota(), period);
        let found = || (1..=GROUP + 1).map(|units| find(&board, (1, 2), of(units), 15).is_some()).collect::<Vec<_>>();
        assert!((1..=GROUP).chain(1..=GROUP).all(post_of));
        assert_eq!(found(), [true, true, true, true, false]);
        assert!(!post(&board, neighbor, 10, 20), "a valid refusal keeps its slot");
        assert!(post_of(GROUP + 1));
        assert_eq!(found(), [false, true, true, true, true], "more costs take turns in the home");
        board.clear(1);
        assert_eq!(found(), [false; 5]);
        assert!(post(&board, neighbor, 10, 20) && post_of(1) && post_of(2));
        assert!(find(&board, neighbor, terms(), 15).is_some());
        assert_eq!(found(), [true, true, false, false, false]);
    }

    #[test]
    fn a_refusal_that_is_not_at_home_is_not_read_without_its_home_and_cleared_all_the_same() {
        let board = Board::new();
        let of = |units| BoardTerms { units, ..terms() };
        let post_of = |first, units, until| {
            let standing = Standing::new(quota().name(), 9, 2, Moment::from_nanos(until), times_at(10));
            let period = (Moment::from_nanos(10), Moment::from_nanos(until));
            board.post(TenantHash { first, second: 2 }, of(units), &standing, &quota(), period)
        };
        assert!(post_of(1, 1, 20) && post_of(1, 5, 40));
        assert!(post(&board, (2, 2), 20, 30), "the home is free again");
        assert_eq!(find(&board, (1, 2), of(5), 25), None);
        board.clear(1);
        assert!(post(&board, (1, 2), 30, 35));
        assert_eq!(find(&board, (1, 2), of(5), 31), None);
    }

    #[test]
    fn a_slot_is_not_taken_over_until_its_refusal_has_expired() {
        let board = Board::new();
        assert!(post(&board, (1, 2), 10, 20));
        let has_room = |first, now| board.has_room(first, terms().epoch, Moment::from_nanos(now));
        assert!(has_room(1, 19) && !has_room(3, 19) && has_room(3, 20));
        assert!(!post(&board, (3, 4), 19, 30), "it has the same slot");
        assert!(find(&board, (1, 2), terms(), 19).is_some());
        assert!(post(&board, (3, 4), 20, 30));
        assert_eq!(find(&board, (1, 2), terms(), 15), None);
        board.clear(1);
        assert!(find(&board, (3, 4), terms(), 25).is_some(), "it is not the one to clear");
    }

    #[test]
    fn a_slot_that_is_being_written_has_an_odd_version_and_takes_no_other_writer() {
        let slot = Slot::default();
        for after in [2, 4, 6] {
            let is_written = slot.write_slot(|| {
                assert_eq!(slot.version.load(Relaxed), after - 1);
                assert!(!slot.write_slot(|| ()));
            });
            assert!(is_written);
            assert_eq!(slot.version.load(Relaxed), after);
        }
    }

    #[test]
    fn only_homes_with_a_refusal_are_in_use() {
        let board = Board::new();
        let homes = || (0..SLOTS as u64).filter(|home| board.in_use.has(home << 43)).collect::<Vec<_>>();
        assert!(homes().is_empty());
        assert!(post(&board, (70 << 43, 2), 10, 20) && post(&board, (300 << 43, 2), 10, 20));
        assert_eq!(homes(), [70, 300]);
        board.clear(70 << 43);
        assert_eq!(homes(), [300]);
    }

    /// Figures that belong together are posted in turn; a reader never sees a mixture.
    #[test]
    fn no_reader_sees_half_of_two_refusals() {
        let (board, is_done) = (Board::new(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0.. {
                    let figure = 1 + turn % 2;
                    let reset = Moment::from_nanos(figure.into());
                    let standing = Standing::new("default", figure, figure, reset, times_at(0));
                    let period = (Moment::from_nanos(0), Moment::from_nanos(100));
                    board.post(TenantHash { first: 1, second: 1 }, terms(), &standing, &quota(), period);
                    if is_done.load(Relaxed) {
                        break;
                    }
                }
            });
            let (mut hits, mut mixtures) = (0, Vec::new());
            while hits < 20_000 {
                if let Some(seen) = find(&board, (1, 1), terms(), 1) {
                    let seen = (u64::from(seen.limit()), u64::from(seen.remaining()), seen.reset().as_nanos());
                    mixtures.extend(Some(seen).filter(|seen| ![(1, 1, 1), (2, 2, 2)].contains(seen)));
                    hits += 1;
                }
            }
            is_done.store(true, Relaxed);
            assert_eq!(mixtures, []);
        });
    }
}
