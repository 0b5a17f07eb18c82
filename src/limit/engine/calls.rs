//! The open calls of a row: what they hold, and what they are charged when they end.
//!
//! A call holds its estimate of every rate, and a slot of every quota of concurrent calls. Invariants:
//!
//! - Each use of a row first settles the estimates that have expired: each is charged at the moment of its expiry, so that
//!   nothing depends on when the row is used.
//! - An estimate counts until it is charged, so admitted estimates never exceed a limit in any window in which charges count
//!   when they are made.
//! - A slot is taken until its guard ends the call.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    iter::zip,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use super::meter::{Context, Gauge, Meter};
use crate::{
    limit::{
        decision::{Ask, CallAsk, CallEnd, Decision, Marks},
        plan::Limited,
    },
    tenant::Standing,
    util::clock::Moment,
};

/// When to try again if only slots are missing: no one knows when a call ends.
const SLOT_RETRY: Duration = Duration::from_secs(1);

/// The bytes of a call in maps whose nodes are half full.
const CALL_BYTES: usize = 2 * (size_of::<(u64, Call)>() + size_of::<(Moment, u64)>());

/// The meters of a row that has open calls, or whose plan counts them.
pub(super) struct Calls {
    pub(super) meters: Vec<Meter>,
    /// The units and slots that are held of each quota.
    held: Vec<Held>,
    /// The open calls by their numbers. Each has a guard in this process, which takes more memory than this.
    open: BTreeMap<u64, Call>,
    /// When estimates that count expire, and the numbers of their calls.
    ends: BTreeSet<(Moment, u64)>,
}

#[derive(Clone, Default)]
struct Held {
    units: u64,
    calls: u32,
    /// The latest end of an estimate, if it was looked up since such an end has left.
    latest_end: Cell<Option<Moment>>,
}

impl Held {
    fn add(&mut self, call: &Call) {
        self.calls = self.calls.saturating_add(1);
        if call.is_held {
            let latest = if self.units == 0 { Some(call.ends) } else { self.latest_end.get() };
            self.latest_end.set(latest.map(|latest| latest.max(call.ends)));
        }
        self.units += u64::from(call.held_estimate());
    }

    fn release_estimate(&mut self, call: &Call) {
        self.units = self.units.saturating_sub(call.held_estimate().into());
        if self.latest_end.get().is_some_and(|latest| latest <= call.ends) {
            self.latest_end.set(None);
        }
    }
}

/// An open call.
#[derive(Clone, Copy)]
pub(super) struct Call {
    id: u64,
    /// The hash of its key, if it is in a bucket.
    tenant: u64,
    /// When the estimate expires.
    ends: Moment,
    estimate: u32,
    at_most: u32,
    /// Whether the estimate counts. It no longer does once it was charged or reset.
    is_held: bool,
    is_anonymous: bool,
    /// The bits of shadow quotas that would have refused the call, and so don't count it.
    uncounted: u8,
}

impl Call {
    fn open(ask: Ask, context: Context<'_>, uncounted: u8) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let (estimate, at_most, millis) = match ask.call {
            CallAsk::Hold { at_most, millis } => (ask.units, at_most, millis),
            CallAsk::Untracked | CallAsk::RatesOnly | CallAsk::AlreadyOpen | CallAsk::Slot => (0, 0, 0),
        };
        Self {
            id: NEXT_ID.fetch_add(1, Relaxed),
            tenant: 0,
            ends: context.now + Duration::from_millis(millis.into()),
            estimate,
            at_most,
            is_held: estimate > 0,
            is_anonymous: ask.is_anonymous,
            uncounted,
        }
    }

    fn counts_in(&self, limited: &Limited) -> bool {
        (self.is_anonymous || !limited.is_for_anonymous) && limited.bit & self.uncounted == 0
    }

    fn held_estimate(&self) -> u32 {
        if self.is_held { self.estimate } else { 0 }
    }
}

impl Calls {
    pub(super) fn new(meters: Vec<Meter>) -> Self {
        let held = vec![Held::default(); meters.len()];
        Self { meters, held, open: BTreeMap::new(), ends: BTreeSet::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Replaces the meters by those of another plan. The calls that are open count in all its quotas.
    pub(super) fn with_meters(mut self: Box<Self>, meters: Vec<Meter>, limits: &[Limited]) -> Box<Self> {
        self.held = vec![Held::default(); meters.len()];
        self.meters = meters;
        for call in self.open.values_mut() {
            call.uncounted = 0;
            hold(&mut self.held, limits, call);
        }
        self
    }

    /// Decides like [`charge_all`](super::charge::charge_all), and opens the call that the request asks for. Returns its number.
    pub(super) fn decide(
        &mut self,
        quotas: &[Limited],
        context: Context<'_>,
        ask: Ask,
        marks: &mut Marks,
        decision: &mut Decision,
    ) -> Option<u64> {
        self.settle(quotas, context);
        let is_untracked = ask.call == CallAsk::Untracked && !ask.is_admitted;
        if is_untracked && quotas.iter().any(Limited::needs_tracking) {
            *decision = Decision::UNTRACKED;
            return None;
        }
        let (mut refused, mut is_exact, mut shadow, mut would_refuse) = (None::<Standing>, true, None, 0);
        for (place, limited) in quotas.iter().enumerate().filter(|(_, limited)| limited.charges(ask)) {
            let Some(refusal) = self.refusal(place, limited, context, ask) else { continue };
            if limited.quota.is_shadow() {
                shadow = Some(refusal);
                would_refuse |= limited.bit;
            } else if !ask.is_admitted {
                is_exact &= refusal.is_exact();
                if refused.is_none_or(|other| other.reset() < refusal.reset()) {
                    refused = Some(refusal);
                }
            }
        }
        if let Some(latest) = refused {
            decision.refuse(if is_exact { latest } else { latest.inexact() });
            return None;
        }
        let charged = |limited: &Limited| limited.charges(ask) && limited.bit & would_refuse == 0;
        let opened = ask.call.opens_under(quotas).then(|| Call::open(ask, context, would_refuse));
        if let Some(call) = opened {
            self.insert(call, quotas);
            context.bytes.force(CALL_BYTES);
        }
        let now_charged = ask.units - ask.estimate();
        let meters = zip(zip(&mut self.meters, quotas), marks);
        for ((meter, limited), mark) in meters.filter(|((_, limited), _)| now_charged > 0 && charged(limited)) {
            *mark = meter.charge(limited.gauge, context, now_charged);
        }
        let enforced = quotas.iter().enumerate().filter(|(_, limited)| charged(limited) && !limited.quota.is_shadow());
        let standings = enforced.filter_map(|(place, limited)| {
            let standing = self.standing(place, limited, context)?;
            Some((limited.order(&standing), standing))
        });
        decision.standing = standings.min_by_key(|(order, _)| *order).map(|(_, standing)| standing);
        decision.shadow = shadow.map(Box::new);
        opened.map(|call| call.id)
    }

    /// Returns the standing of a quota if it has no room for this request.
    fn refusal(&mut self, place: usize, limited: &Limited, context: Context<'_>, ask: Ask) -> Option<Standing> {
        let (meter, held) = (self.meters.get_mut(place)?, self.held.get(place)?);
        meter.refresh(limited.gauge, context);
        let reset = if let Gauge::Concurrent = limited.gauge {
            (ask.call.opens() && held.calls >= limited.most).then(|| context.now + SLOT_RETRY)?
        } else if held.units == 0 {
            return limited.refusal(meter, context, ask.units);
        } else if ask.units > limited.most {
            Standing::NEVER
        } else {
            self.blocked_until(place, limited, context, ask.units)?
        };
        let standing = self.standing(place, limited, context)?.with_reset(reset);
        Some(if reset == Standing::NEVER { standing } else { standing.inexact() })
    }

    /// Returns when these units, at most the limit, may fit beside the estimates, or `None` if they fit now.
    fn blocked_until(&self, place: usize, limited: &Limited, context: Context<'_>, units: u32) -> Option<Moment> {
        let (meter, held) = (self.meters.get(place)?, clamp(self.held.get(place)?.units));
        let full_until = |units| meter.full_until(limited.gauge, limited.most, context, units);
        let both = units.saturating_add(held);
        match full_until(units) {
            _ if units == 0 => None,
            // the meter has room for both some time
            Some(_) if both <= limited.most => full_until(both),
            Some(own) => Some(own.max(self.latest_end(place, limited))),
            None if both > limited.most || full_until(both).is_some() => Some(self.latest_end(place, limited)),
            None => None,
        }
    }

    /// Returns the standing of a quota, with what the open calls hold.
    fn standing(&self, place: usize, limited: &Limited, context: Context<'_>) -> Option<Standing> {
        let (meter, held) = (self.meters.get(place)?, self.held.get(place)?);
        if let Gauge::Concurrent = limited.gauge {
            let reset = if held.calls > 0 { context.now + SLOT_RETRY } else { context.now };
            let standing = limited.standing_with(held.calls, reset, context);
            return Some(if held.calls > 0 { standing.inexact() } else { standing });
        }
        if held.units == 0 {
            return Some(limited.standing(meter, context));
        }
        let used = meter.used(limited.gauge, context.now);
        let reset = match used {
            0 => self.latest_end(place, limited),
            _ => meter.rises_at(limited.gauge, limited.most, context),
        };
        Some(limited.standing_with(used.saturating_add(clamp(held.units)), reset, context).inexact())
    }

    /// Returns when the last estimate expires. It is looked up once: there may be many calls that don't count in this quota.
    fn latest_end(&self, place: usize, limited: &Limited) -> Moment {
        let counts = |id| self.open.get(id).is_some_and(|call| call.counts_in(limited));
        let look_up = || self.ends.iter().rev().find(|(_, id)| counts(id)).map(|(ends, _)| *ends).unwrap_or_default();
        let Some(Held { latest_end, .. }) = self.held.get(place) else { return Moment::default() };
        let latest = latest_end.get().unwrap_or_else(look_up);
        latest_end.set(Some(latest));
        latest
    }

    /// Charges the estimates that have expired, each at its end.
    pub(super) fn settle(&mut self, limits: &[Limited], context: Context<'_>) {
        while let Some(&(ends, id)) = self.ends.first().filter(|(ends, _)| *ends <= context.now) {
            self.ends.pop_first();
            let Some(call) = self.open.get_mut(&id) else { continue };
            let expired = *call;
            call.is_held = false;
            self.charge(limits, &expired, context.at_earlier(ends), |_, _| expired.estimate);
        }
    }

    /// Releases the estimate of a call, and charges each quota what the function returns for what else counts there.
    fn charge(&mut self, limits: &[Limited], call: &Call, context: Context<'_>, units: impl Fn(&Limited, u64) -> u32) {
        let counting =
            zip(zip(&mut self.meters, &mut self.held), limits).filter(|(_, limited)| call.counts_in(limited));
        for ((meter, held), limited) in counting {
            held.release_estimate(call);
            meter.refresh(limited.gauge, context);
            let others = u64::from(meter.used(limited.gauge, context.now)) + held.units;
            meter.charge(limited.gauge, context, units(limited, others));
        }
    }

    /// Ends a call, and charges what it has used. Returns whether it was open here.
    pub(super) fn end(&mut self, limits: &[Limited], context: Context<'_>, id: u64, end: CallEnd) -> bool {
        self.settle(limits, context);
        let Some(call) = self.open.remove(&id) else { return false };
        self.ends.remove(&(call.ends, id));
        context.bytes.give_back(CALL_BYTES);
        let used = match end {
            CallEnd::Commit(actual) => actual.min(call.at_most),
            CallEnd::Estimate => call.estimate,
        };
        let (expected, excess) = (used.min(call.held_estimate()), used.saturating_sub(call.estimate));
        self.charge(limits, &call, context, |limited, others| {
            // a debt is at most as large as the limit
            let counts = others + u64::from(expected);
            expected + excess.min(clamp((2 * u64::from(limited.most)).saturating_sub(counts)))
        });
        for (held, _) in zip(&mut self.held, limits).filter(|(_, limited)| call.counts_in(limited)) {
            held.calls = held.calls.saturating_sub(1);
        }
        true
    }

    /// Forgets the estimates of the open calls. They keep their slots, and what they use beyond the estimate is charged.
    pub(super) fn forget_estimates(&mut self) {
        self.open.values_mut().for_each(|call| call.is_held = false);
        self.held.iter_mut().for_each(|held| *held = Held { calls: held.calls, ..Held::default() });
        self.ends.clear();
    }

    /// Notes the tenant of the call that was opened last.
    pub(super) fn name_newest(&mut self, tenant: u64) {
        if let Some(mut newest) = self.open.last_entry() {
            newest.get_mut().tenant = tenant;
        }
    }

    /// Returns the calls of this tenant, and removes them if it gets them.
    pub(super) fn of_tenant(
        &mut self,
        limits: &[Limited],
        context: Context<'_>,
        tenant: u64,
        removes: bool,
    ) -> Vec<Call> {
        let own: Vec<Call> = self.open.values().copied().filter(|call| call.tenant == tenant).collect();
        for call in own.iter().filter(|_| removes) {
            self.open.remove(&call.id);
            self.ends.remove(&(call.ends, call.id));
            context.bytes.give_back(CALL_BYTES);
            for (held, _) in zip(&mut self.held, limits).filter(|(_, limited)| call.counts_in(limited)) {
                held.calls = held.calls.saturating_sub(1);
                held.release_estimate(call);
            }
        }
        own
    }

    /// Adds calls that were opened in a bucket. They count in all quotas.
    pub(super) fn add(&mut self, calls: Vec<Call>, limits: &[Limited], context: Context<'_>) {
        context.bytes.force(calls.len() * CALL_BYTES);
        for call in calls {
            self.insert(Call { uncounted: 0, ..call }, limits);
        }
    }

    fn insert(&mut self, call: Call, limits: &[Limited]) {
        hold(&mut self.held, limits, &call);
        if call.is_held {
            self.ends.insert((call.ends, call.id));
        }
        self.open.insert(call.id, call);
    }

    /// Returns the bytes that this takes beyond those of its calls.
    pub(super) fn own_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&self.meters[..]) + size_of_val(&self.held[..])
    }

    /// Returns the bytes that the calls have taken from the budget.
    pub(super) fn bytes_of_calls(&self) -> usize {
        self.open.len() * CALL_BYTES
    }
}

/// Counts a call in its quotas.
fn hold(held: &mut [Held], limits: &[Limited], call: &Call) {
    for (held, _) in zip(held, limits).filter(|(_, limited)| call.counts_in(limited)) {
        held.add(call);
    }
}

fn clamp(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}
