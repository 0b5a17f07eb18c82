//! Drives an engine through a schedule and compares each result with the log.

use proptest::sample::Index;
use tollgate::{
    Plan, Tenant,
    clock::{Clock, Moment, UnixTime},
    limit::{RefusalReason, Spend, Standing},
    testing::ManualClock,
};

use crate::{
    engine::{Claims, Engine, advance_to, nanos, tenant},
    oracle::{Log, Now},
    schedule::{PlanSpec, QuotaSpec, Schedule, Step, TENANTS},
};

/// Runs one schedule on a fresh engine.
pub(crate) fn run<E: Engine>(make: impl Fn(ManualClock, Plan) -> E, claims: Claims, schedule: &Schedule) {
    let mut drive = Drive::new(make, claims, schedule);
    for step in &schedule.steps {
        drive.step(step);
    }
}

struct Drive<E> {
    engine: E,
    claims: Claims,
    window: u64,
    tenants: Vec<Subject>,
    default: PlanSpec,
    real: u64,
    latest_clock: u64,
    spends: Vec<(usize, usize, Spend)>,
}

struct Subject {
    tenant: Tenant,
    own: Option<PlanSpec>,
    plan: PlanSpec,
    log: Log,
}

impl<E: Engine> Drive<E> {
    fn new(make: impl Fn(ManualClock, Plan) -> E, claims: Claims, schedule: &Schedule) -> Self {
        let engine = make(ManualClock::new(), schedule.plan.plan());
        engine.set_plan(&unlimited(), Plan::unlimited());
        let subject = |number: usize| Subject {
            tenant: tenant(&format!("tenant-{number}")),
            own: None,
            plan: schedule.plan.clone(),
            log: Log::new(&schedule.plan),
        };
        Self {
            engine,
            claims,
            window: schedule.window,
            tenants: (0..TENANTS).map(subject).collect(),
            default: schedule.plan.clone(),
            real: 0,
            latest_clock: 0,
            spends: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Spend { tenant, times, units } => {
                for _ in 0..*times {
                    self.spend(*tenant, *units);
                }
            }
            Step::Pass(gap) => self.pass_to(self.now().clock.saturating_add(*gap)),
            Step::PassToEdge { of, nudge } => {
                if let Some(spent) = self.an_admission(of) {
                    let edge = spent.as_nanos().saturating_add(self.window);
                    self.pass_to(edge.saturating_add_signed(*nudge));
                }
            }
            Step::PassToReset { tenant, nudge } => {
                if let Some(told) = self.engine.peek(&self.tenants[*tenant].tenant) {
                    self.pass_to(told.reset().as_nanos().saturating_add_signed(*nudge));
                }
            }
            Step::ClockBack(gap) => {
                let back = self.now().clock.saturating_sub(*gap);
                self.engine.clock().set(Moment::from_nanos(back));
                // the rows of buckets stay, so a refund finds its spend by the moment alone. A steady clock shows none twice
                if !self.claims.lower_bound {
                    self.spends.clear();
                }
                let latest = self.latest_clock;
                self.tenants.iter_mut().for_each(|subject| subject.log.blur(latest));
            }
            Step::Wall(seconds) => self.engine.clock().set_wall(UnixTime::from_secs(*seconds)),
            Step::Refund(which) => self.refund(which),
            Step::RetryAtReset { tenant, units } => self.retry_at_reset(*tenant, *units),
            Step::WatchRise { tenant } => self.watch_rise(*tenant),
            Step::Plan { tenant, plan } => {
                self.engine.set_plan(&self.tenants[*tenant].tenant, plan.plan());
                self.tenants[*tenant].own = Some(plan.clone());
                self.plans_changed();
            }
            Step::RemovePlan { tenant } => {
                self.engine.remove_plan(&self.tenants[*tenant].tenant);
                self.tenants[*tenant].own = None;
                self.plans_changed();
            }
            Step::DefaultPlan(plan) => {
                self.engine.set_default_plan(plan.plan());
                self.default = plan.clone();
                self.plans_changed();
            }
            Step::Void { tenant } => {
                let subject = &mut self.tenants[*tenant];
                self.engine.reset(&subject.tenant);
                subject.log.void();
                if let Some(standing) = self.engine.peek(&subject.tenant) {
                    assert_eq!(standing.remaining(), standing.limit(), "a reset clears the past");
                }
            }
        }
    }

    fn now(&self) -> Now {
        Now { clock: self.engine.clock().now().as_nanos(), real: self.real }
    }

    /// Lets time pass until the clock shows this, if it is later.
    fn pass_to(&mut self, clock: u64) {
        let before = self.now().clock;
        // any later, the arithmetic saturates at the end of time
        let clock = clock.min(u64::MAX / 2);
        if clock > before {
            advance_to(self.engine.clock(), Moment::from_nanos(clock));
            self.real += clock - before;
            self.latest_clock = self.latest_clock.max(clock);
        }
    }

    fn an_admission(&self, which: &Index) -> Option<Moment> {
        let mut all = self.tenants.iter().flat_map(|subject| subject.log.admissions());
        let count = self.tenants.iter().map(|subject| subject.log.admissions().len()).sum();
        if count == 0 { None } else { all.nth(which.index(count)) }
    }

    /// Sends one request and checks everything about its result. Returns when to retry, or `None` if it was admitted.
    fn spend(&mut self, number: usize, units: u32) -> Option<Moment> {
        let now = self.now();
        // a check removes idle rows first. If it is the row of this tenant, and there is no room for the next one, what was
        // spent from its bucket counts again
        _ = self.engine.check(&unlimited(), 0);
        let subject = &mut self.tenants[number];
        let before = self.engine.peek(&subject.tenant);
        assert_eq!(before, self.engine.peek(&subject.tenant), "a peek changes nothing");
        let decision = self.engine.check(&subject.tenant, units);
        match decision.refusal_reason() {
            None => {
                assert_admitted_as_peeked(before, decision.standing().copied(), units);
                if let PlanSpec::Limited(quotas) = &subject.plan {
                    let place = subject.log.add(now, units);
                    if units > 0 {
                        assert_bound(quotas, &subject.log, now);
                    }
                    self.spends.push((number, place, decision.into_spend()));
                } else {
                    assert_eq!(subject.plan, PlanSpec::Unlimited);
                }
                None
            }
            Some(reason) => {
                assert_eq!(reason, reason_to_refuse(&subject.plan, units));
                let after = self.engine.peek(&subject.tenant);
                assert_eq!(before, after, "a refused request spends nothing");
                let Some(told) = decision.standing().copied() else {
                    assert_eq!(reason, RefusalReason::Denied);
                    return None;
                };
                // a refusal may be remembered until its reset, even if its cause had left before the clock stepped back
                if now.clock == self.latest_clock {
                    assert!(before.is_some_and(|before| before.remaining() < units));
                }
                assert_eq!(told.reset_unix().is_none(), reason == RefusalReason::Impossible);
                if reason == RefusalReason::Impossible {
                    return None;
                }
                assert!(told.reset().as_nanos() > now.clock, "the reset is in the past");
                assert_eq!(told.time_until_reset(), told.reset().since(Moment::from_nanos(now.clock)));
                if self.claims.lower_bound {
                    assert_no_room(&subject.plan, &subject.log, now, units);
                }
                Some(told.reset())
            }
        }
    }

    fn refund(&mut self, which: &Index) {
        if self.spends.is_empty() {
            return;
        }
        let (number, place, spend) = self.spends.swap_remove(which.index(self.spends.len()));
        let subject = &mut self.tenants[number];
        let remaining = |engine: &E| engine.peek(&subject.tenant).map(|told| told.remaining());
        let before = remaining(&self.engine);
        self.engine.refund(spend);
        assert!(before <= remaining(&self.engine), "a refund takes nothing away");
        subject.log.refund(place);
    }

    /// Asserts that a retry is refused a millisecond and a nanosecond before the reset, and admitted at it.
    fn retry_at_reset(&mut self, number: usize, units: u32) {
        let Some(reset) = self.spend(number, units).filter(|_| self.claims.exact_reset) else {
            return;
        };
        for before in [1_000_000, 1] {
            let (retry, now) = (reset - nanos(before), self.now().clock);
            // a refusal that is remembered from before the clock stepped back may end earlier
            if retry > Moment::from_nanos(now) && now == self.latest_clock {
                self.pass_to(retry.as_nanos());
                let again = self.spend(number, units);
                assert_eq!(again, Some(reset), "{before} ns before the reset");
            }
        }
        self.pass_to(reset.as_nanos());
        assert_eq!(self.spend(number, units), None, "at the reset");
    }

    /// Asserts that `remaining` stays the same until the reset, and rises then.
    fn watch_rise(&mut self, number: usize) {
        let peek = |drive: &Self| drive.engine.peek(&drive.tenants[number].tenant);
        let Some(before) = peek(self).filter(|told| told.remaining() < told.limit()) else {
            return;
        };
        if !self.claims.exact_reset {
            return;
        }
        assert!(before.reset().as_nanos() > self.now().clock);
        self.pass_to(before.reset().as_nanos() - 1);
        assert_eq!(peek(self).unwrap().remaining(), before.remaining(), "before the reset");
        self.pass_to(before.reset().as_nanos());
        assert!(peek(self).unwrap().remaining() > before.remaining(), "at the reset");
    }

    /// Records a change of plan. It applies the next time a tenant is seen, which is at once.
    fn plans_changed(&mut self) {
        let now = self.now();
        for subject in &mut self.tenants {
            let plan = subject.own.as_ref().unwrap_or(&self.default);
            if *plan != subject.plan {
                subject.plan = plan.clone();
                subject.log.change_plan(now, self.latest_clock, plan);
            }
            _ = self.engine.check(&subject.tenant, 0);
        }
    }
}

/// A tenant without a limit, whose requests change nothing but remove idle rows.
fn unlimited() -> Tenant {
    tenant("unlimited")
}

fn assert_admitted_as_peeked(before: Option<Standing>, after: Option<Standing>, units: u32) {
    let remaining = |told: Option<Standing>| told.map(|told| told.remaining());
    assert_eq!(
        remaining(before).map(|before| before.checked_sub(units)),
        remaining(after).map(Some),
        "a peek predicts the next request"
    );
}

/// Asserts that the window that ends now contains no more than the limit. If this holds at each admission, it holds in
/// every window, because the fullest windows end with an admission.
fn assert_bound(quotas: &[QuotaSpec], log: &Log, now: Now) {
    for quota in quotas.iter().filter(|quota| !quota.shadow && quota.slice().is_some()) {
        let counted = log.must_count(quota, now);
        assert!(counted <= u64::from(quota.limit), "{counted} admitted in a window of {quota:?}");
    }
}

fn assert_no_room(plan: &PlanSpec, log: &Log, now: Now, units: u32) {
    let has_no_room = |quota: &QuotaSpec| {
        quota.slice().is_none()
            || log.may_count(quota, now).is_none_or(|counted| counted + u64::from(units) > u64::from(quota.limit))
    };
    assert!(plan.enforced().any(has_no_room), "refused {units} where there was room: {plan:?}");
}

fn reason_to_refuse(plan: &PlanSpec, units: u32) -> RefusalReason {
    match plan {
        PlanSpec::Denied => RefusalReason::Denied,
        plan if plan.enforced().any(|quota| units > quota.limit) => RefusalReason::Impossible,
        _ => RefusalReason::Spent,
    }
}
