//! The board against an oracle without one: refusals that share slots, refunds, resets, changed plans, sweeps and time.

use std::{cell::Cell, sync::atomic::Ordering::Relaxed, time::Duration};

use proptest::{
    collection::vec,
    prelude::*,
    sample::Index,
    test_runner::{Config, RngSeed, TestRunner},
};

use super::{Engine, SHARDS, board::home_of, meter::Context, spend::SpendRequest};
use crate::{
    limit::{
        decision::{Ask, Charge, Decision},
        plans::table::Plans,
        quota::Quota,
    },
    tenant::LimitKey,
    util::clock::{Moment, UnixTime},
};

/// Units that are spent in different minutes come back in different minutes.
const MINUTE: u64 = 60_000_000_000;
const HOUR: u64 = 60 * MINUTE;
const TENANTS: usize = 8;

#[derive(Clone, Debug)]
enum Step {
    Spend { tenant: usize, units: u32 },
    Refund(Index),
    Reset(usize),
    Limit { tenant: usize, limit: u32 },
    Pass(u64),
    Sweep,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let tenant = || prop_oneof![2 => Just(0), 1 => 0..TENANTS];
    let units = prop_oneof![2 => Just(2), 1 => 1..8_u32];
    let spend = (tenant(), units).prop_map(|(tenant, units)| Step::Spend { tenant, units });
    let step = prop_oneof![
        20 => spend,
        2 => any::<Index>().prop_map(Step::Refund),
        1 => tenant().prop_map(Step::Reset),
        1 => (tenant(), 5..15_u32).prop_map(|(tenant, limit)| Step::Limit { tenant, limit }),
        2 => (1..40_u64).prop_map(Step::Pass),
        1 => Just(Step::Sweep),
    ];
    vec(step, 1..150)
}

fn hourly(limit: u32) -> Quota {
    Quota::new(limit, Duration::from_nanos(HOUR)).and_then(|quota| quota.slices(60)).unwrap()
}

/// All that a tenant has spent: when, how many units, and by which charge.
struct Subject {
    tenant: LimitKey,
    limit: u32,
    spent: Vec<(u64, u32, Option<usize>)>,
}

impl Subject {
    fn used(&self, now: u64) -> u32 {
        self.spent.iter().filter(|(at, ..)| at + HOUR > now).map(|(_, units, _)| units).sum()
    }

    fn fits(&self, units: u32, now: u64) -> bool {
        self.used(now) + units <= self.limit
    }

    /// Returns when these units will fit.
    fn fits_at(&self, units: u32) -> u64 {
        let mut ends = self.spent.iter().map(|(at, ..)| at + HOUR);
        ends.find(|end| self.fits(units, *end)).unwrap()
    }

    /// Lets no refund find what was spent before.
    fn forget_charges(&mut self) {
        self.spent.iter_mut().for_each(|(.., charge)| *charge = None);
    }
}

struct World {
    engine: Engine,
    now: u64,
    subjects: Vec<Subject>,
    charges: Vec<(usize, usize, Box<Charge>)>,
    charged: usize,
    /// How many refusals the board has repeated.
    repeated: usize,
}

impl World {
    fn new() -> Self {
        let engine = Engine::new(Plans::new(hourly(9)), 1_000, usize::MAX);
        let group = |tenant: &LimitKey| home_of(engine.key(tenant).hash) / 4;
        let all = || (0..).map(|number| LimitKey::parse(format!("tenant-{number}")).unwrap());
        let first = all().next().unwrap();
        let shares_slots = |tenant: &LimitKey| group(tenant) == group(&first);
        let subject = |tenant| Subject { tenant, limit: 9, spent: Vec::new() };
        let subjects = all().filter(shares_slots).take(TENANTS).map(subject).collect();
        Self { engine, now: HOUR, subjects, charges: Vec::new(), charged: 0, repeated: 0 }
    }

    fn step(&mut self, step: &Step) {
        let Self { engine, now, subjects, charges, charged, repeated } = self;
        let time = (Moment::from_nanos(*now), UnixTime::from_nanos(*now));
        let context = Context { now: time.0, unix_now: time.1, swept_at: 0, bytes: &engine.bytes };
        match step {
            Step::Spend { tenant, units } => {
                let (units, subject) = (*units, &mut subjects[*tenant]);
                if units > subject.limit {
                    return;
                }
                let key = engine.key(&subject.tenant);
                let terms =
                    super::BoardTerms { units, epoch: engine.plans.epoch(), plan: None, is_anonymous: Some(false) };
                *repeated += usize::from(engine.known_refusal(key, terms, context).is_some());
                let ask = Ask { refundable: true, ..Ask::new(units, false) };
                let mut decision = Decision::UNLIMITED;
                engine.spend(SpendRequest { key, context, ask, began: &Cell::new(false) }, &mut decision).unwrap();
                let standing = decision.standing.unwrap();
                assert_eq!(decision.is_admitted(), subject.fits(units, *now));
                if decision.is_admitted() {
                    *charged += 1;
                    subject.spent.push((*now, units, Some(*charged)));
                    charges.push((*tenant, *charged, decision.spend.0.unwrap()));
                } else {
                    assert_eq!(standing.reset().as_nanos(), subject.fits_at(units));
                }
                assert_eq!(standing.remaining(), subject.limit.saturating_sub(subject.used(*now)));
            }
            Step::Refund(which) if !charges.is_empty() => {
                let (tenant, charged, charge) = charges.swap_remove(which.index(charges.len()));
                engine.refund(&charge, context);
                subjects[tenant].spent.retain(|(at, _, by)| *by != Some(charged) || at + HOUR <= *now);
            }
            Step::Refund(_) => {}
            Step::Reset(tenant) => {
                engine.reset(engine.key(&subjects[*tenant].tenant), context);
                subjects[*tenant].spent.clear();
            }
            Step::Limit { tenant, limit } => {
                let subject = &mut subjects[*tenant];
                engine.plans.set(subject.tenant.clone(), hourly(*limit));
                if *limit != subject.limit {
                    subject.limit = *limit;
                    subject.forget_charges();
                }
                // the row gets the plan at the next use
                engine.peek(&subject.tenant, context);
            }
            Step::Pass(minutes) => *now += minutes * MINUTE,
            Step::Sweep => {
                for _ in 0..=SHARDS / 32 {
                    engine.sweep_at.store(0, Relaxed);
                    engine.sweep(context);
                }
            }
        }
    }
}

#[test]
fn refusals_that_share_slots_are_those_of_an_oracle() {
    let repeated = Cell::new(0);
    let config = Config { rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&steps(), |steps| {
            let mut world = World::new();
            steps.iter().for_each(|step| world.step(step));
            repeated.set(repeated.get() + world.repeated);
            Ok(())
        })
        .unwrap();
    assert!(repeated.get() > 500, "the board has repeated {} refusals", repeated.get());
}
