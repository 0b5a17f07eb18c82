//! The decision on a request: all quotas of a plan are charged, or none is.

use std::{cmp::Reverse, iter::zip};

use super::{
    meter::{Context, Gauge, Meter},
    window::over,
};
use crate::{
    limit::{
        decision::{Ask, Decision, Marks},
        plan::Limited,
    },
    tenant::Standing,
    util::clock::Moment,
};

/// All or nothing: each enforced quota has room and is charged, or none is.
#[inline]
pub(super) fn charge_all(
    quotas: &[Limited],
    meters: &mut [Meter],
    context: Context<'_>,
    ask: Ask,
    marks: &mut Marks,
    decision: &mut Decision,
) {
    let units = ask.units;
    // by far the most common plan: one sliding window, which needs no comparison
    if let ([limited], [Meter::Window(log)], [mark, ..]) = (quotas, &mut *meters, &mut *marks)
        && let Gauge::Window(lengths) = limited.gauge
        && !limited.quota.is_shadow()
    {
        log.expire(lengths, context.now, context.bytes);
        let over = over(log.used(), units, limited.most);
        if over > 0 && units > 0 && !ask.is_admitted {
            let reset = log.freed_at(lengths, over);
            return decision.refuse(limited.standing_with(log.used(), reset, context));
        }
        *mark = log.add(lengths, context.now, units, context.bytes);
        let reset = log.rises_at(lengths, limited.most, context.now);
        decision.standing = Some(limited.standing_with(log.used(), reset, context));
        return;
    }
    let (mut refused, mut shadow, mut would_refuse) = (None::<Standing>, None, 0);
    for (meter, limited) in zip(&mut *meters, quotas).filter(|(_, limited)| limited.charges(ask)) {
        meter.refresh(limited.gauge, context);
        let Some(refusal) = limited.refusal(meter, context, units) else { continue };
        if limited.quota.is_shadow() {
            shadow = Some(refusal);
            would_refuse |= limited.bit;
        } else if !ask.is_admitted && refused.is_none_or(|other| other.reset() < refusal.reset()) {
            refused = Some(refusal);
        }
    }
    if let Some(latest) = refused {
        return decision.refuse(latest);
    }
    let mut tightest = None::<(_, Standing)>;
    let charged = |limited: &Limited| limited.charges(ask) && limited.bit & would_refuse == 0;
    for ((meter, limited), mark) in zip(zip(meters, quotas), marks).filter(|((_, limited), _)| charged(limited)) {
        *mark = meter.charge(limited.gauge, context, units);
        if !limited.quota.is_shadow() {
            let standing = limited.standing(meter, context);
            let order = limited.order(&standing);
            if tightest.is_none_or(|(other, _)| order < other) {
                tightest = Some((order, standing));
            }
        }
    }
    decision.standing = tightest.map(|(_, standing)| standing);
    decision.shadow = shadow.map(Box::new);
}

impl Limited {
    /// Returns whether this request is charged here.
    #[inline]
    pub(super) fn charges(&self, ask: Ask) -> bool {
        ask.is_anonymous || !self.is_for_anonymous
    }

    /// Returns the standing of the quota if it has no room for these units.
    #[inline]
    pub(super) fn refusal(&self, meter: &Meter, context: Context<'_>, units: u32) -> Option<Standing> {
        let reset = match units <= self.most || !self.gauge.counts_units() {
            true => meter.full_until(self.gauge, self.most, context, units)?,
            false => Standing::NEVER,
        };
        Some(self.standing(meter, context).with_reset(reset))
    }

    #[inline]
    pub(super) fn standing(&self, meter: &Meter, context: Context<'_>) -> Standing {
        let reset = meter.rises_at(self.gauge, self.most, context);
        self.standing_with(meter.used(self.gauge, context.now), reset, context)
    }

    #[inline]
    pub(super) fn standing_with(&self, used: u32, reset: Moment, context: Context<'_>) -> Standing {
        let remaining = self.most.saturating_sub(used);
        Standing::new(self.quota.name(), self.quota.limit(), remaining, reset, (context.now, context.unix_now))
    }

    /// Orders quotas by how little they leave. With as much left, one that is whole comes first, because `remaining`
    /// can't rise above it, and then the one whose units come back later, because `remaining` rises only when both do. A few
    /// slots would hide the units of all rates, so they come last.
    pub(super) fn order(&self, standing: &Standing) -> impl Ord + Copy + use<> {
        let counts_calls = !self.gauge.counts_units();
        (counts_calls, standing.remaining(), standing.remaining() < self.most, Reverse(standing.reset()))
    }
}
