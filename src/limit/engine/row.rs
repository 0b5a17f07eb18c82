//! The state of one tenant, and the decision on it.

use std::{iter::zip, mem, ptr, slice};

use super::{
    calls::{Call, Calls},
    charge::charge_all,
    convert::convert,
    meter::{Context, Meter},
};
#[cfg(feature = "redis")]
use crate::util::clock::UnixTime;
use crate::{
    limit::{
        decision::{Ask, CallEnd, Decision, Marks, NO_MARKS, Past, UNCHARGED},
        plan::{Limited, Plan, PlanKind},
    },
    tenant::Standing,
};

/// Which room a row takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A tenant that the configuration names: there is always room.
    Named,
    /// Any other tenant: room up to the maximum.
    Unnamed,
    /// A bucket that tenants share when there is no room.
    Bucket,
}

/// The state of one tenant. It is compact, because there may be millions; `tests::a_row_is_small` knows its size.
#[repr(C)]
pub(super) struct Row {
    plan: Plan,
    /// The epoch of the quotas in which the plan was last found to be the tenant's.
    epoch: u32,
    /// Place and generation.
    bits: u32,
    meters: Meters,
}

enum Meters {
    One(Meter),
    Many(Box<[Meter]>),
    /// Boxed, so that other rows stay small, and their decisions need not look for calls.
    WithCalls(Box<Calls>),
}

const PLACE: u32 = 0b11;
const GENERATION_SHIFT: u32 = 2;

impl Row {
    /// Creates an empty row. No two rows of a tenant, and no row before and after a reset or a change of its quotas, may
    /// have the same generation. Generations repeat after 2^30 of them.
    pub(super) fn new(plan: Plan, place: Place, epoch: u32, generation: u32) -> Self {
        let meters = match plan.limits() {
            [only] if !only.needs_tracking() => Meters::One(Meter::new(only.gauge)),
            several => {
                let meters = several.iter().map(|limited| Meter::new(limited.gauge)).collect();
                Meters::of_plan(meters, &plan, None)
            }
        };
        Self { plan, meters, epoch, bits: generation << GENERATION_SHIFT | place as u32 }
    }

    #[inline]
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Lets the next request check the age of the plan.
    pub(super) fn outdate(&mut self) {
        self.epoch = self.epoch.wrapping_sub(1);
    }

    pub(super) fn place(&self) -> Place {
        match self.bits & PLACE {
            0 => Place::Named,
            1 => Place::Unnamed,
            _ => Place::Bucket,
        }
    }

    pub(super) fn past(&self) -> Past {
        Past { plan: self.plan.id(), generation: self.bits >> GENERATION_SHIFT }
    }

    /// Decides on a request, and charges it if it fits. Sets the marks of what was charged, and the `decision`, which is
    /// [`Decision::UNLIMITED`] before. Returns the number of the call that was opened, if one was asked for.
    #[inline]
    pub(super) fn decide(
        &mut self,
        context: Context<'_>,
        ask: Ask,
        marks: &mut Marks,
        decision: &mut Decision,
    ) -> Option<u64> {
        match self.plan.kind() {
            PlanKind::Limited { quotas, .. }
                if matches!(self.meters, Meters::WithCalls(_)) || ask.call.opens_under(quotas) =>
            {
                return self.decide_with_calls(context, ask, marks, decision);
            }
            PlanKind::Limited { quotas, .. } => {
                charge_all(quotas, self.meters.as_slice(), context, ask, marks, decision);
            }
            PlanKind::Unlimited { .. } => {}
            PlanKind::Denied { .. } => *decision = Decision::DENIED,
        }
        None
    }

    #[cold]
    fn decide_with_calls(
        &mut self,
        context: Context<'_>,
        ask: Ask,
        marks: &mut Marks,
        decision: &mut Decision,
    ) -> Option<u64> {
        context.bytes.give_back(self.boxed_bytes());
        let opened = self.meters.with_calls()?.decide(self.plan.limits(), context, ask, marks, decision);
        context.bytes.force(self.boxed_bytes());
        opened
    }

    /// Ends a call, and charges what it has used. Returns whether it was open here.
    pub(super) fn end_call(&mut self, context: Context<'_>, id: u64, end: CallEnd) -> bool {
        match &mut self.meters {
            Meters::WithCalls(calls) => calls.end(self.plan.limits(), context, id, end),
            Meters::One(_) | Meters::Many(_) => false,
        }
    }

    /// Notes the tenant of the call that was opened last, in a bucket.
    pub(super) fn name_newest_call(&mut self, tenant: u64) {
        if let Meters::WithCalls(calls) = &mut self.meters {
            calls.name_newest(tenant);
        }
    }

    /// Returns the calls of a tenant in a bucket, and removes them if the tenant gets them.
    pub(super) fn calls_of_tenant(&mut self, context: Context<'_>, tenant: u64, removes: bool) -> Vec<Call> {
        self.meters.settled(self.plan.limits(), context);
        match &mut self.meters {
            Meters::WithCalls(calls) => calls.of_tenant(self.plan.limits(), context, tenant, removes),
            Meters::One(_) | Meters::Many(_) => Vec::new(),
        }
    }

    /// Adds calls that were opened in a bucket to a row that is in no map yet.
    pub(super) fn add_calls(&mut self, calls: Vec<Call>, context: Context<'_>) {
        if !calls.is_empty()
            && let Some(own) = self.meters.with_calls()
        {
            own.add(calls, self.plan.limits(), context);
        }
    }

    /// Returns the standing of the tenant without spending, as authenticated or as anonymous requests see it.
    pub(super) fn peek(&mut self, context: Context<'_>, is_anonymous: bool) -> Option<Standing> {
        let mut decision = Decision::UNLIMITED;
        self.decide(context, Ask::new(0, is_anonymous), &mut NO_MARKS.clone(), &mut decision);
        decision.standing.filter(|_| decision.refused.is_none())
    }

    /// Refunds the part of the charge with these marks that still counts.
    pub(super) fn refund(&mut self, context: Context<'_>, past: Past, marks: &Marks, units: u32) {
        if past != self.past() {
            return;
        }
        let meters = self.meters.settled(self.plan.limits(), context);
        for ((meter, limited), mark) in zip(zip(meters, self.plan.limits()), marks) {
            meter.refresh(limited.gauge, context);
            // a shadow quota that would have refused was not charged
            if *mark != UNCHARGED {
                meter.refund(limited.gauge, context.now, *mark, units);
            }
        }
    }

    /// Clears all spends, and the estimates of open calls.
    pub(super) fn reset(&mut self, context: Context<'_>, generation: u32) {
        for (meter, limited) in zip(self.meters.as_slice(), self.plan.limits()) {
            context.bytes.give_back(meter.heap_bytes());
            *meter = Meter::new(limited.gauge);
        }
        if let Meters::WithCalls(calls) = &mut self.meters {
            calls.forget_estimates();
        }
        self.bits = generation << GENERATION_SHIFT | self.bits & PLACE;
    }

    /// Returns whether no units count any more, and no call is open.
    pub(super) fn is_idle(&mut self, context: Context<'_>) -> bool {
        let has_calls = matches!(&self.meters, Meters::WithCalls(calls) if !calls.is_empty());
        !has_calls && self.has_idle_meters(context)
    }

    /// Returns whether no units count any more that were charged.
    pub(super) fn has_idle_meters(&mut self, context: Context<'_>) -> bool {
        zip(self.meters.as_slice(), self.plan.limits()).all(|(meter, limited)| meter.is_idle(limited.gauge, context))
    }

    /// Updates the plan and the place to this epoch, and keeps the spent units. Other quotas begin a new generation, even
    /// if the plan changes back later.
    pub(super) fn adopt(
        &mut self,
        plan: &Plan,
        place: Place,
        epoch: u32,
        generation: impl FnOnce() -> u32,
        context: Context<'_>,
    ) {
        self.epoch = epoch;
        if *plan != self.plan {
            let plan = plan.clone().after(&self.plan);
            let was = mem::replace(&mut self.plan, plan);
            if !ptr::eq(was.limits(), self.plan.limits()) {
                context.bytes.give_back(self.boxed_bytes());
                self.meters.settled(was.limits(), context);
                let (old, mut calls) = mem::replace(&mut self.meters, Meters::Many(Box::default())).into_parts();
                let converted = convert(was.limits(), old, self.plan.limits(), context);
                calls.take_if(|calls| calls.is_empty());
                self.meters = Meters::of_plan(converted, &self.plan, calls);
                context.bytes.force(self.boxed_bytes());
                self.bits = generation() << GENERATION_SHIFT;
            }
        }
        self.bits = self.bits & !PLACE | place as u32;
    }

    /// Makes the quotas of this plan count at least `used` units, as a shared server did at a time.
    #[cfg(feature = "redis")]
    pub(super) fn raise(&mut self, context: Context<'_>, plan: &Plan, used: &[u32], at: UnixTime) {
        if self.plan != *plan {
            return;
        }
        let same_period = |limited: &Limited| limited.gauge.is_same_period(context, at);
        let limits = zip(self.meters.settled(self.plan.limits(), context), self.plan.limits());
        for ((meter, limited), used) in zip(limits, used).filter(|((_, limited), _)| same_period(limited)) {
            meter.refresh(limited.gauge, context);
            let more = used.saturating_sub(meter.used(limited.gauge, context.now));
            meter.charge(limited.gauge, context, more);
        }
    }

    /// Returns the units that count of each quota of this plan.
    #[cfg(feature = "redis")]
    pub(super) fn counts(&mut self, context: Context<'_>, plan: &Plan) -> Option<Vec<u32>> {
        let meters = self.meters.settled(self.plan.limits(), context);
        let counted = zip(meters, self.plan.limits()).map(|(meter, limited)| {
            meter.refresh(limited.gauge, context);
            meter.used(limited.gauge, context.now)
        });
        (self.plan == *plan).then(|| counted.collect())
    }

    /// Returns a row with another plan that counts all that this one counts, without its open calls.
    pub(super) fn copied(&mut self, into: &Self, context: Context<'_>) -> Self {
        let old = self.plan.limits();
        let copies = zip(self.meters.settled(old, context), old).map(|(meter, was)| {
            meter.refresh(was.gauge, context);
            meter.copied(was.gauge, context)
        });
        let converted = convert(old, copies.collect(), into.plan.limits(), context);
        let meters = Meters::of_plan(converted, &into.plan, None);
        Self { plan: into.plan.clone(), meters, epoch: into.epoch, bits: into.bits }
    }

    /// Releases the bytes of the logs and of the calls. Call it before the row is dropped.
    pub(super) fn release(&mut self, context: Context<'_>) {
        if let Meters::WithCalls(calls) = &self.meters {
            context.bytes.give_back(calls.bytes_of_calls());
        }
        context.bytes.give_back(self.meters.as_slice().iter().map(Meter::heap_bytes).sum());
    }

    /// Returns the bytes that the row takes in a map with such keys, without those of its logs and calls.
    pub(super) fn bytes_in_map<K>(&self) -> usize {
        // of the map and of the allocator
        const SLACK: usize = 32;
        size_of::<(K, Self)>() + SLACK + self.boxed_bytes()
    }

    /// Returns the bytes that the meters take outside the row, without those of their logs and of open calls.
    fn boxed_bytes(&self) -> usize {
        match &self.meters {
            Meters::One(_) => 0,
            Meters::Many(meters) => size_of_val::<[Meter]>(meters),
            Meters::WithCalls(calls) => calls.own_bytes(),
        }
    }
}

impl Meters {
    #[inline]
    fn as_slice(&mut self) -> &mut [Meter] {
        match self {
            Self::One(meter) => slice::from_mut(meter),
            Self::Many(meters) => meters,
            Self::WithCalls(calls) => &mut calls.meters,
        }
    }

    /// Charges the estimates that have expired, and returns the meters. They are those of these limits.
    fn settled(&mut self, limits: &[Limited], context: Context<'_>) -> &mut [Meter] {
        if let Self::WithCalls(calls) = self {
            calls.settle(limits, context);
        }
        self.as_slice()
    }

    /// Makes room for calls.
    fn with_calls(&mut self) -> Option<&mut Calls> {
        if !matches!(self, Self::WithCalls(_)) {
            let (meters, _) = mem::replace(self, Self::Many(Box::default())).into_parts();
            *self = Self::WithCalls(Box::new(Calls::new(meters)));
        }
        match self {
            Self::WithCalls(calls) => Some(calls),
            Self::One(_) | Self::Many(_) => None,
        }
    }

    fn into_parts(self) -> (Vec<Meter>, Option<Box<Calls>>) {
        match self {
            Self::One(meter) => (vec![meter], None),
            Self::Many(meters) => (meters.into(), None),
            Self::WithCalls(mut calls) => (mem::take(&mut calls.meters), Some(calls)),
        }
    }

    /// Creates the meters of a plan, with the calls that are open.
    fn of_plan(meters: Vec<Meter>, plan: &Plan, calls: Option<Box<Calls>>) -> Self {
        match calls {
            Some(calls) => Self::WithCalls(calls.with_meters(meters, plan.limits())),
            None if plan.counts_calls() => Self::WithCalls(Box::new(Calls::new(meters))),
            None => Self::from(meters),
        }
    }
}

impl From<Vec<Meter>> for Meters {
    fn from(mut meters: Vec<Meter>) -> Self {
        match (meters.len(), meters.pop()) {
            (1, Some(only)) => Self::One(only),
            (_, last) => {
                meters.extend(last);
                Self::Many(meters.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        limit::{engine::window::ByteBudget, quota::Quota},
        util::clock::{Moment, UnixTime},
    };

    fn context(bytes: &ByteBudget) -> Context<'_> {
        let (now, unix_now) = (Moment::from_nanos(5), UnixTime::from_nanos(5));
        Context { now, unix_now, swept_at: 0, bytes }
    }

    #[test]
    fn a_row_is_small() {
        assert_eq!(size_of::<Row>(), 64);
        assert_eq!(std::mem::offset_of!((crate::tenant::Tenant, Row), 0), 0);
    }

    #[test]
    fn place_and_generation_are_independent() {
        let bytes = ByteBudget::new(usize::MAX);
        let context = context(&bytes);
        let plan = Plan::from(Quota::per_minute(1).unwrap());
        for place in [Place::Named, Place::Unnamed, Place::Bucket] {
            let mut row = Row::new(plan.clone(), place, 1, 77);
            assert_eq!((row.place(), row.past().generation), (place, 77));
            row.reset(context, 78);
            assert_eq!((row.place(), row.past().generation), (place, 78));
            row.adopt(&plan, Place::Unnamed, 2, || 79, context);
            assert_eq!((row.place(), row.past().generation), (Place::Unnamed, 78));
            row.adopt(&Plan::from(Quota::per_minute(2).unwrap()), place, 3, || 81, context);
            assert_eq!((row.place(), row.past().generation), (place, 81));
        }
    }

    #[test]
    fn the_bytes_of_a_row_are_those_it_takes_and_less_than_double() {
        let named = |name: usize| Quota::per_minute(1).unwrap().with_name(&format!("quota-{name}")).unwrap();
        let plan = |quotas| Plan::new((0..quotas).map(named)).unwrap();
        for (quotas, boxed) in [(1, 0), (3, 3 * size_of::<Meter>())] {
            let bytes = Row::new(plan(quotas), Place::Named, 1, 1).bytes_in_map::<u64>();
            let taken = size_of::<(u64, Row)>() + boxed;
            assert!((taken..2 * taken).contains(&bytes), "{bytes}");
        }
    }

    #[test]
    fn of_two_quotas_that_leave_as_much_the_first_is_shown() {
        let bytes = ByteBudget::new(usize::MAX);
        let plan = [("first", Duration::from_secs(60)), ("second", Duration::from_secs(3_600))]
            .map(|(name, window)| Quota::new(5, window).unwrap().with_name(name).unwrap());
        let mut row = Row::new(Plan::new(plan).unwrap(), Place::Named, 1, 1);
        assert_eq!(row.peek(context(&bytes), false).unwrap().policy(), "first");
    }

    #[test]
    fn a_shadow_quota_alone_refuses_nothing_and_says_what_it_would_refuse() {
        let bytes = ByteBudget::new(usize::MAX);
        let mut row = Row::new(Quota::per_minute(1).unwrap().shadow().into(), Place::Named, 1, 1);
        for would_refuse in [false, true] {
            let mut decision = Decision::UNLIMITED;
            row.decide(context(&bytes), Ask::new(1, false), &mut { NO_MARKS }, &mut decision);
            assert_eq!((decision.is_admitted(), decision.shadow.is_some()), (true, would_refuse));
        }
    }

    #[test]
    fn a_new_window_starts_from_one_that_covers_it_even_if_another_rule_counts_more() {
        let bytes = ByteBudget::new(usize::MAX);
        let minute = |name| Quota::per_minute(9).unwrap().with_name(name).unwrap();
        let daily = Quota::fixed(9, Duration::from_secs(86_400)).unwrap();
        let mut row = Row::new(Plan::new([minute("old"), daily]).unwrap(), Place::Named, 1, 1);
        let [spent_before, spent_now] = [5, 5 + 61_000_000_000].map(Moment::from_nanos);
        for (now, units) in [(spent_before, 4), (spent_now, 2)] {
            let context = Context { now, ..context(&bytes) };
            row.decide(context, Ask::new(units, false), &mut { NO_MARKS }, &mut { Decision::UNLIMITED });
        }
        let context = Context { now: spent_now, ..context(&bytes) };
        row.adopt(&minute("new").into(), Place::Named, 2, || 2, context);
        assert_eq!(row.peek(context, false).unwrap().remaining(), 7);
    }
}
