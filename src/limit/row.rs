//! The state of one tenant, and the decision on it.

use std::{
    cmp::Reverse,
    iter::zip,
    mem, slice,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering},
    },
};

use super::{
    meter::{Context, Gauge, Meter},
    plan::{Measured, Plan, Terms},
};
use crate::util::clock::Moment;

/// The moments that find a spend again, one per quota of the plan.
pub(super) type Marks = [Moment; Plan::MAX_QUOTAS];

/// The mark of a quota that was not charged.
const UNCHARGED: Moment = Moment::from_nanos(u64::MAX);

pub(super) const NO_MARKS: Marks = [UNCHARGED; Plan::MAX_QUOTAS];

/// The reset of units that will never fit.
pub(super) const NEVER: Moment = Moment::from_nanos(u64::MAX);

/// What a decision says of one quota.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) policy: &'static str,
    pub(super) limit: u32,
    pub(super) remaining: u32,
    /// When `remaining` rises; on a refusal, when the units would fit.
    pub(super) reset: Moment,
}

impl Standing {
    /// Of two with as much left, the one whose units come back later: what is left rises only when both do, and never
    /// above one that is whole.
    fn is_tighter_than(self, other: Self) -> bool {
        let order = |it: Self| (it.remaining, it.remaining < it.limit, Reverse(it.reset));
        order(self) < order(other)
    }
}

#[derive(Debug)]
pub(super) enum Verdict {
    Admitted {
        /// The quota with the least left, of those enforced.
        tightest: Option<Standing>,
        /// A shadow that would have refused; boxed, for it is rare.
        shadow: Option<Box<Standing>>,
    },
    /// By the quota that takes longest to have room again.
    Refused(Standing),
    Unlimited,
    Denied,
}

/// Which room a row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A tenant that the configuration names: always room.
    Named,
    /// Any other tenant: room under the cap.
    Stranger,
    /// A bucket that tenants with the default plan share for whom there was no room.
    Bucket,
    /// A bucket that tenants with another plan share for whom there was no room; that plan is in its name.
    PlanBucket,
}

/// Which past a spend belongs to: under which plan, and after which reset. A refund reaches no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Past {
    plan: u32,
    reset: u16,
}

/// How many resets there were, of any tenant: so a row that is made after one is not taken for the row before.
static RESETS: AtomicU16 = AtomicU16::new(0);

pub(super) struct Row {
    plan: Plan,
    pub(super) place: Place,
    /// The epoch of the quotas in which the plan was last found to be the tenant's.
    epoch: AtomicU32,
    /// The refusal of one unit that was found last: so the next takes no lock and writes nothing.
    refusal: AtomicU64,
    /// The reset after which all of this was spent.
    reset: AtomicU16,
    slots: Mutex<Slots>,
}

/// Until when one unit is refused, and by which quota of the plan; in one word, so that no reader sees half of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Remembered {
    until: Moment,
    by: usize,
}

impl Remembered {
    /// Enough for [`Plan::MAX_QUOTAS`]; the other 61 bits last 73 years.
    const BY_BITS: u32 = 3;

    fn packed(self) -> Option<u64> {
        let until = self.until.as_nanos();
        let packed = until << Self::BY_BITS;
        (packed >> Self::BY_BITS == until).then_some(packed | self.by as u64)
    }

    fn unpacked(packed: u64) -> Self {
        let by = packed & ((1 << Self::BY_BITS) - 1);
        Self { until: Moment::from_nanos(packed >> Self::BY_BITS), by: by as usize }
    }
}

enum Slots {
    One(Meter),
    Many(Box<[Meter]>),
    /// The row was swept or replaced; whoever still holds it must look again.
    Gone,
}

impl Row {
    pub(super) fn new(plan: Plan, place: Place, epoch: u32) -> Self {
        let slots = match plan.measured() {
            [only] => Slots::One(Meter::new(only.gauge)),
            several => Slots::Many(several.iter().map(|measured| Meter::new(measured.gauge)).collect()),
        };
        Self::with_slots(plan, place, epoch, slots)
    }

    fn with_slots(plan: Plan, place: Place, epoch: u32, slots: Slots) -> Self {
        Self {
            plan,
            place,
            epoch: AtomicU32::new(epoch),
            refusal: AtomicU64::new(0),
            reset: AtomicU16::new(RESETS.load(Ordering::Relaxed)),
            slots: Mutex::new(slots),
        }
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Read before a decision: a reset in between takes the spend for one of before, which is not refunded.
    pub(super) fn past(&self) -> Past {
        Past { plan: self.plan.id(), reset: self.reset.load(Ordering::Relaxed) }
    }

    #[inline]
    pub(super) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(super) fn set_epoch(&self, epoch: u32) {
        self.epoch.store(epoch, Ordering::Release);
    }

    /// Decides on so many units, and charges them if they may be spent, under the marks that are returned; `None` if
    /// the row is gone.
    #[inline]
    pub(super) fn decide(&self, context: Context<'_>, units: u32, marks: &mut Marks) -> Option<Verdict> {
        match self.plan.terms() {
            Terms::Limited { .. } => {}
            Terms::Unlimited { .. } => return Some(Verdict::Unlimited),
            Terms::Denied { .. } => return Some(Verdict::Denied),
        }
        if units == 1
            && let Some(standing) = self.known_refusal(context.now)
        {
            return Some(Verdict::Refused(standing));
        }
        let mut slots = self.lock();
        let verdict = decide(self.plan.measured(), slots.meters()?, context, units, marks);
        if units == 1
            && let Verdict::Refused(standing) = &verdict
        {
            self.remember_refusal(standing);
        } else if matches!(verdict, Verdict::Admitted { .. }) && units > 0 && self.refusal.load(Ordering::Relaxed) != 0
        {
            // it has passed; it must not come back with a clock that steps back
            self.forget_refusal();
        }
        Some(verdict)
    }

    /// How the tenant stands, without spending.
    pub(super) fn peek(&self, context: Context<'_>) -> Option<Verdict> {
        self.decide(context, 0, &mut NO_MARKS.clone())
    }

    fn remember_refusal(&self, standing: &Standing) {
        let by = self.plan.measured().iter().position(|measured| measured.quota.name() == standing.policy);
        let packed = by.and_then(|by| Remembered { until: standing.reset, by }.packed());
        self.refusal.store(packed.unwrap_or(0), Ordering::Release);
    }

    /// The refusal of one unit that was found before and still holds.
    #[inline]
    fn known_refusal(&self, now: Moment) -> Option<Standing> {
        let known = Remembered::unpacked(self.refusal.load(Ordering::Acquire));
        if known.until <= now {
            return None;
        }
        let quota = &self.plan.measured().get(known.by)?.quota;
        Some(Standing { policy: quota.name(), limit: quota.limit(), remaining: 0, reset: known.until })
    }

    /// Takes back what was spent under these marks, as far as it still counts.
    pub(super) fn refund(&self, context: Context<'_>, past: Past, marks: &Marks, units: u32) {
        let mut slots = self.lock();
        if past != self.past() {
            return;
        }
        let Some(meters) = slots.meters() else { return };
        for ((meter, measured), mark) in zip(zip(meters, self.plan.measured()), marks) {
            meter.refresh(measured.gauge, context);
            // a shadow that would have refused was not charged and has no mark
            if *mark != UNCHARGED {
                meter.refund(measured.gauge, context.now, *mark, units);
            }
        }
        self.forget_refusal();
    }

    /// Voids all that was spent.
    pub(super) fn void(&self, context: Context<'_>) -> Option<()> {
        let mut slots = self.lock();
        let meters = slots.meters()?;
        for (meter, measured) in zip(meters, self.plan.measured()) {
            context.budget.give_back(meter.heap_bytes());
            *meter = Meter::new(measured.gauge);
        }
        self.reset.store(RESETS.fetch_add(1, Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.forget_refusal();
        Some(())
    }

    /// Ends the row if nothing counts any more. A row that is being used is left for the next time.
    pub(super) fn retire_if_idle(&self, context: Context<'_>) -> bool {
        let Ok(mut slots) = self.slots.try_lock() else { return false };
        if !slots.is_idle(self.plan.measured(), context.now) {
            return false;
        }
        self.end(&mut slots, context);
        true
    }

    pub(super) fn is_idle(&self, now: Moment) -> bool {
        self.lock().is_idle(self.plan.measured(), now)
    }

    /// Ends this row in favour of one with another plan; what was spent goes with it. `publish` is called while nobody
    /// else can decide on either.
    pub(super) fn replace(
        &self,
        plan: Plan,
        place: Place,
        epoch: u32,
        context: Context<'_>,
        publish: impl FnOnce(Self),
    ) {
        let mut slots = self.lock();
        let Some(old) = slots.take_meters() else { return };
        self.forget_refusal();
        let carried = carry(self.plan.measured(), old, plan.measured(), context);
        context.budget.give_back(self.boxed_bytes());
        let mut new = Self::with_slots(plan, place, epoch, Slots::from_meters(carried));
        *new.reset.get_mut() = self.reset.load(Ordering::Relaxed);
        context.budget.force(new.boxed_bytes());
        publish(new);
    }

    /// A row with another plan that counts all that this one counts; `None` if this one is gone.
    pub(super) fn copied(&self, plan: &Plan, place: Place, epoch: u32, context: Context<'_>) -> Option<Self> {
        let mut slots = self.lock();
        let old = self.plan.measured();
        let copies = zip(slots.meters()?, old).map(|(meter, was)| {
            meter.refresh(was.gauge, context);
            meter.copied(was.gauge, context)
        });
        let carried = carry(old, copies.collect(), plan.measured(), context);
        Some(Self::with_slots(plan.clone(), place, epoch, Slots::from_meters(carried)))
    }

    /// Ends a row that nobody else has seen.
    pub(super) fn discard(self, context: Context<'_>) {
        self.end(&mut self.lock(), context);
    }

    /// What the meters take beside the row, without what they take themselves.
    pub(super) fn boxed_bytes(&self) -> usize {
        match self.plan.measured() {
            [_] => 0,
            several => several.len() * size_of::<Meter>(),
        }
    }

    fn end(&self, slots: &mut Slots, context: Context<'_>) {
        let bytes: usize = slots.meters().unwrap_or_default().iter().map(Meter::heap_bytes).sum();
        context.budget.give_back(bytes);
        *slots = Slots::Gone;
        self.forget_refusal();
    }

    fn forget_refusal(&self) {
        self.refusal.store(0, Ordering::Release);
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Slots> {
        // no code under the lock panics; were it to, the meters are whole at every step
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    fn from_meters(mut meters: Vec<Meter>) -> Self {
        match (meters.len(), meters.pop()) {
            (1, Some(only)) => Self::One(only),
            (_, last) => {
                meters.extend(last);
                Self::Many(meters.into())
            }
        }
    }

    #[inline]
    fn meters(&mut self) -> Option<&mut [Meter]> {
        match self {
            Self::One(meter) => Some(slice::from_mut(meter)),
            Self::Many(meters) => Some(meters),
            Self::Gone => None,
        }
    }

    fn take_meters(&mut self) -> Option<Vec<Meter>> {
        match mem::replace(self, Self::Gone) {
            Self::One(meter) => Some(vec![meter]),
            Self::Many(meters) => Some(meters.into()),
            Self::Gone => None,
        }
    }

    fn is_idle(&self, quotas: &[Measured], now: Moment) -> bool {
        let meters = match self {
            Self::One(meter) => slice::from_ref(meter),
            Self::Many(meters) => meters,
            // what was spent here may count in the row that took its place
            Self::Gone => return false,
        };
        zip(meters, quotas).all(|(meter, measured)| meter.is_idle(measured.gauge, now))
    }
}

/// All or nothing: each enforced quota has room and is charged, or none is.
#[inline]
fn decide(quotas: &[Measured], meters: &mut [Meter], context: Context<'_>, units: u32, marks: &mut Marks) -> Verdict {
    // by far the commonest plan, and nothing to weigh against each other
    if let ([measured], [meter], [mark, ..]) = (quotas, &mut *meters, &mut *marks)
        && !measured.quota.is_shadow()
    {
        meter.refresh(measured.gauge, context);
        if let Some(refusal) = measured.refusal(meter, context.now, units) {
            return Verdict::Refused(refusal);
        }
        if units > 0 {
            *mark = meter.charge(measured.gauge, context, units);
        }
        return Verdict::Admitted { tightest: Some(measured.standing(meter, context.now)), shadow: None };
    }
    let mut refused: Option<Standing> = None;
    for (meter, measured) in zip(&mut *meters, quotas) {
        meter.refresh(measured.gauge, context);
        if let Some(refusal) = measured.refusal(meter, context.now, units)
            && !measured.quota.is_shadow()
            && refused.is_none_or(|other| other.reset < refusal.reset)
        {
            refused = Some(refusal);
        }
    }
    if let Some(latest) = refused {
        return Verdict::Refused(latest);
    }
    let (mut tightest, mut shadow) = (None::<Standing>, None);
    for ((meter, measured), mark) in zip(zip(meters, quotas), marks) {
        if measured.quota.is_shadow()
            && let Some(refusal) = measured.refusal(meter, context.now, units)
        {
            shadow = Some(Box::new(refusal));
            continue;
        }
        if units > 0 {
            *mark = meter.charge(measured.gauge, context, units);
        }
        if !measured.quota.is_shadow() {
            let standing = measured.standing(meter, context.now);
            if tightest.is_none_or(|other| standing.is_tighter_than(other)) {
                tightest = Some(standing);
            }
        }
    }
    Verdict::Admitted { tightest, shadow }
}

impl Measured {
    /// How the quota stands if it has no room for so many units.
    #[inline]
    fn refusal(&self, meter: &Meter, now: Moment, units: u32) -> Option<Standing> {
        let limit = self.quota.limit();
        let reset = if units <= limit { meter.full_until(self.gauge, limit, now, units)? } else { NEVER };
        Some(Standing { reset, ..self.standing(meter, now) })
    }

    #[inline]
    fn standing(&self, meter: &Meter, now: Moment) -> Standing {
        let limit = self.quota.limit();
        Standing {
            policy: self.quota.name(),
            limit,
            remaining: limit.saturating_sub(meter.used(self.gauge, now)),
            reset: meter.rises_at(self.gauge, limit, now),
        }
    }
}

/// The meters of a new plan, with what was spent under the old one: each takes over from the quota of its name, else
/// from the one that knows most.
fn carry(old: &[Measured], mut meters: Vec<Meter>, new: &[Measured], context: Context<'_>) -> Vec<Meter> {
    for (meter, was) in zip(&mut meters, old) {
        meter.refresh(was.gauge, context);
    }
    let sources: Vec<Option<usize>> = new
        .iter()
        .map(|is| {
            let named = old.iter().position(|was| was.quota.name() == is.quota.name());
            named.or_else(|| most_telling(old, &meters, is, context.now))
        })
        .collect();
    let mut left: Vec<_> = zip(old, meters).map(|(was, meter)| (was.gauge, Some(meter))).collect();
    let carried = zip(new, 1..).map(|(is, next)| {
        let source = sources.get(next - 1).copied().flatten();
        let Some((was, meter)) = source.and_then(|source| left.get_mut(source)) else { return Meter::new(is.gauge) };
        let needed_again = sources.iter().skip(next).any(|other| *other == source);
        let taken = match needed_again {
            true => meter.as_ref().map(|meter| meter.copied(*was, context)),
            false => meter.take(),
        };
        taken.map_or_else(|| Meter::new(is.gauge), |meter| meter.carried(*was, is.gauge, context))
    });
    let carried = carried.collect();
    for dropped in left.into_iter().filter_map(|(_, meter)| meter) {
        context.budget.give_back(dropped.heap_bytes());
    }
    carried
}

/// Whose meter a new quota starts from: an enforced one, for a shadow does not count what it would refuse; the longest
/// log that holds all of the new window, else whatever counts most.
fn most_telling(old: &[Measured], meters: &[Meter], is: &Measured, now: Moment) -> Option<usize> {
    let knows = |was: &Measured, meter: &Meter| {
        let window = was.quota.window();
        let is_whole = matches!(was.gauge, Gauge::Window(_)) && window >= is.quota.window();
        let counts = if is_whole { 0 } else { meter.used(was.gauge, now) };
        (!was.quota.is_shadow(), is_whole, counts, window)
    };
    let known = zip(old, meters).map(|(was, meter)| knows(was, meter));
    known.enumerate().max_by_key(|(_, knows)| *knows).map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{budget::Budget, quota::Quota};

    #[test]
    fn a_refusal_is_remembered_whole_or_not_at_all() {
        for (until, by) in [(1, 0), (5, 5), ((1 << 61) - 1, 5)] {
            let known = Remembered { until: Moment::from_nanos(until), by };
            assert_eq!(known.packed().map(Remembered::unpacked), Some(known));
        }
        assert_eq!(Remembered { until: Moment::from_nanos(1 << 61), by: 0 }.packed(), None);
        const { assert!(Plan::MAX_QUOTAS <= 1 << Remembered::BY_BITS) };
    }

    #[test]
    fn a_row_that_was_replaced_is_not_idle_so_no_sweep_removes_its_successor() {
        let plan = |limit| Plan::from(Quota::per_minute(limit).unwrap());
        let budget = Budget::new(usize::MAX);
        let context = Context { now: Moment::from_nanos(5), unix_at_zero: 0, budget: &budget };
        let row = Row::new(plan(1), Place::Stranger, 0);
        let mut successor = None;
        row.replace(plan(2), Place::Stranger, 1, context, |new| successor = Some(new));
        assert!(successor.is_some());
        assert!(!row.is_idle(context.now));
        assert!(!row.retire_if_idle(context));
        assert!(row.decide(context, 1, &mut NO_MARKS.clone()).is_none(), "who still holds it must look again");
    }
}
