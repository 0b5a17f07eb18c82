//! Compares an engine with a twin that never sees refused requests. Both must give the same results: refusals, peeks
//! and jumps of the wall clock change nothing, in any quota.

use proptest::{prelude::*, sample::Index};
use tollgate::{
    Plan, Tenant,
    clock::{Clock, Moment, UnixTime},
    limit::{Decision, Spend},
    testing::ManualClock,
};

use crate::{
    engine::{Engine, InMemory, advance_to, nanos, tenant},
    schedule::{Mix, Schedule, Step, cases, schedules},
};

/// Everything that an admission returns.
type Answer = Option<(&'static str, u32, u32, Moment, Option<&'static str>)>;

struct Twins<E> {
    sees_all: E,
    sees_admitted: E,
    spends: Vec<(Spend, Spend)>,
    admitted_at: Vec<Moment>,
}

impl<E: Engine> Twins<E> {
    fn new(make: impl Fn(ManualClock, Plan) -> E, schedule: &Schedule) -> Self {
        let make = || make(ManualClock::new(), schedule.plan.plan());
        let (sees_all, sees_admitted) = (make(), make());
        Self { sees_all, sees_admitted, spends: Vec::new(), admitted_at: Vec::new() }
    }

    fn spend(&mut self, tenant: &Tenant, units: u32) {
        self.sees_all.peek(tenant);
        let first = self.sees_all.check(tenant, units);
        if !first.is_admitted() {
            return;
        }
        let second = self.sees_admitted.check(tenant, units);
        assert!(second.is_admitted(), "the twin refused {units}");
        let answer = |decision: &Decision| -> Answer {
            let standing = decision.standing()?;
            let (policy, shadow) = (standing.policy(), decision.would_refuse());
            Some((policy, standing.limit(), standing.remaining(), standing.reset(), shadow))
        };
        assert_eq!(answer(&first), answer(&second));
        self.spends.push((first.into_spend(), second.into_spend()));
        self.admitted_at.push(self.sees_all.clock().now());
    }

    fn pass_to(&self, moment: Moment) {
        advance_to(self.sees_all.clock(), moment);
        advance_to(self.sees_admitted.clock(), moment);
    }

    fn refund(&mut self, which: &Index) {
        if !self.spends.is_empty() {
            let (first, second) = self.spends.swap_remove(which.index(self.spends.len()));
            self.sees_all.refund(first);
            self.sees_admitted.refund(second);
        }
    }

    fn step(&mut self, step: &Step, window: u64) {
        let name = |number: &usize| tenant(&format!("tenant-{number}"));
        let now = self.sees_all.clock().now();
        match step {
            Step::Spend { tenant, times, units } => {
                (0..*times).for_each(|_| self.spend(&name(tenant), *units));
            }
            Step::RetryAtReset { tenant, units } => self.spend(&name(tenant), *units),
            Step::Pass(gap) => self.pass_to(now + nanos(*gap)),
            Step::PassToEdge { of, nudge } if !self.admitted_at.is_empty() => {
                let spent = self.admitted_at[of.index(self.admitted_at.len())];
                let edge = (spent + nanos(window)).as_nanos().saturating_add_signed(*nudge);
                self.pass_to(Moment::from_nanos(edge));
            }
            Step::PassToReset { tenant, nudge } => {
                if let Some(told) = self.sees_all.peek(&name(tenant)) {
                    let reset = told.reset().as_nanos().saturating_add_signed(*nudge);
                    self.pass_to(Moment::from_nanos(reset));
                }
            }
            Step::Refund(which) => self.refund(which),
            Step::Wall(seconds) => self.sees_all.clock().set_wall(UnixTime::from_secs(*seconds)),
            Step::Plan { tenant, plan } => {
                self.sees_all.set_plan(&name(tenant), plan.plan());
                self.sees_admitted.set_plan(&name(tenant), plan.plan());
            }
            Step::Void { tenant } => {
                self.sees_all.reset(&name(tenant));
                self.sees_admitted.reset(&name(tenant));
            }
            // these depend on when a tenant was last seen
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn refusals_and_peeks_leave_no_trace(
        schedule in schedules(Mix { voids: 1, ..Mix::REFUNDS }),
    ) {
        let mut twins = Twins::new(InMemory::new, &schedule);
        for step in &schedule.steps {
            twins.step(step, schedule.window);
        }
    }
}
