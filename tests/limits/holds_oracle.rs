//! Random histories of holds, slots and requests, compared with lists of what was charged and of what is open.

use std::time::Duration;

use proptest::{collection::vec, prelude::*, sample::Index};
use tollgate::{
    Limiter, Plan, Plans, Quota,
    clock::{Clock, Moment},
    limit::{Hold, Standing},
    testing::ManualClock,
};

use crate::{
    engine::{Engine, InMemory, tenant},
    schedule::cases,
};

const MILLI: u64 = 1_000_000;

#[derive(Clone, Debug)]
enum Step {
    Check(u32),
    Open {
        estimate: u32,
        more: u32,
        millis: u64,
    },
    Commit(Index, u32),
    Drop(Index),
    Pass(u64),
    /// Passes to the reset of the standing.
    ToReset,
    Reset,
    /// Changes the plan. Only for the bound.
    Plan(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let open = (prop_oneof![3 => 1..4_u32, 1 => 0..9_u32], prop_oneof![Just(0), 1..30_u32], 1..4_000_u64)
        .prop_map(|(estimate, more, millis)| Step::Open { estimate, more, millis });
    let step = prop_oneof![
        5 => (0..5_u32).prop_map(Step::Check),
        8 => open,
        5 => (any::<Index>(), 0..20_u32).prop_map(|(which, actual)| Step::Commit(which, actual)),
        2 => any::<Index>().prop_map(Step::Drop),
        5 => prop_oneof![1..100_u64, 100..3_000_u64].prop_map(Step::Pass),
        2 => Just(Step::ToReset),
        1 => Just(Step::Reset),
        1 => (0..100_usize).prop_map(Step::Plan),
    ];
    vec(step, 1..60)
}

/// A rule whose figures are whole milliseconds, so that the model needs no slices.
#[derive(Clone, Copy, Debug)]
enum Rule {
    Window,
    Fixed,
    /// One unit in so many milliseconds.
    #[cfg_attr(not(feature = "smooth"), allow(dead_code, reason = "needs the feature"))]
    Smooth(u64),
    Concurrent,
}

#[derive(Clone, Copy, Debug)]
struct Spec {
    rule: Rule,
    limit: u32,
    millis: u64,
}

impl Spec {
    fn quota(&self, place: usize) -> Quota {
        let window = Duration::from_millis(self.millis);
        let quota = match self.rule {
            Rule::Window => Quota::new(self.limit, window).unwrap().slices(1000).unwrap(),
            Rule::Fixed => Quota::fixed(self.limit, window).unwrap(),
            #[cfg(feature = "smooth")]
            Rule::Smooth(interval) => Quota::smooth(1, Duration::from_millis(interval), self.limit).unwrap(),
            #[cfg(not(feature = "smooth"))]
            Rule::Smooth(_) => unreachable!(),
            Rule::Concurrent => Quota::concurrent(self.limit).unwrap(),
        };
        quota.with_name(&format!("q{place}")).unwrap()
    }
}

fn plan(specs: &[Spec]) -> Plan {
    Plan::new(specs.iter().enumerate().map(|(place, spec)| spec.quota(place))).unwrap()
}

fn specs() -> impl Strategy<Value = Vec<Spec>> {
    let spec = |rule| (1..15_u32, Just(rule)).prop_map(|(limit, rule)| Spec { rule, limit, millis: 1_000 });
    let one = prop_oneof![
        3 => spec(Rule::Window),
        1 => spec(Rule::Fixed),
        2 => (1..6_u32).prop_map(|limit| Spec { rule: Rule::Concurrent, limit, millis: 0 }),
    ];
    #[cfg(feature = "smooth")]
    let one = prop_oneof![6 => one, 1 => spec(Rule::Smooth(150))];
    vec(one, 1..4)
}

/// Plans of which each has a window at some place, so that no plan forgets units.
fn plans_with_windows() -> impl Strategy<Value = Vec<Vec<Spec>>> {
    let is_window = |spec: &Spec| matches!(spec.rule, Rule::Window | Rule::Concurrent);
    let specs = (specs(), 1..15_u32, 0..4_usize).prop_map(move |(mut specs, limit, place)| {
        specs.retain(is_window);
        specs.insert(place.min(specs.len()), Spec { rule: Rule::Window, limit, millis: 1_000 });
        specs
    });
    vec(specs, 1..4)
}

/// What one quota has charged: when and how much, in milliseconds.
#[derive(Debug)]
struct Counted {
    spec: Spec,
    charges: Vec<(u64, u64)>,
    /// Only of a smooth quota: when all is back.
    whole_at: u64,
}

#[derive(Debug)]
struct Open {
    ends: u64,
    estimate: u64,
    at_most: u64,
    is_held: bool,
}

/// The obviously right model.
#[derive(Debug)]
struct Model {
    quotas: Vec<Counted>,
    open: Vec<Open>,
    /// What the wall clock shows at the begin, in milliseconds.
    wall: u64,
}

impl Model {
    /// Charges estimates that have expired by now, the earliest first.
    fn settle(&mut self, now: u64) {
        let mut expired: Vec<usize> =
            (0..self.open.len()).filter(|place| self.open[*place].is_held && self.open[*place].ends <= now).collect();
        expired.sort_by_key(|place| self.open[*place].ends);
        for place in expired {
            self.open[place].is_held = false;
            let (ends, estimate) = (self.open[place].ends, self.open[place].estimate);
            (0..self.quotas.len()).for_each(|quota| self.charge(quota, ends, estimate));
        }
    }

    fn charge(&mut self, quota: usize, at: u64, units: u64) {
        let own = &mut self.quotas[quota];
        own.charges.push((at, units));
        if let Rule::Smooth(interval) = own.spec.rule {
            own.whole_at = own.whole_at.max(at) + interval * units;
        }
    }

    /// Returns what counts at a time, without what is held.
    fn used(&self, quota: usize, now: u64) -> u64 {
        let Counted { spec, charges, whole_at } = &self.quotas[quota];
        let period = |at: u64| (self.wall + at) / spec.millis;
        let sum =
            |counts: &dyn Fn(u64) -> bool| charges.iter().filter(|(at, _)| counts(*at)).map(|(_, units)| units).sum();
        match spec.rule {
            Rule::Window => sum(&|at| now < at + spec.millis),
            Rule::Fixed => sum(&|at| period(at) == period(now)),
            Rule::Smooth(interval) => whole_at.saturating_sub(now).div_ceil(interval),
            Rule::Concurrent => self.open.len() as u64,
        }
    }

    fn held(&self, quota: usize) -> u64 {
        match self.quotas[quota].spec.rule {
            Rule::Concurrent => 0,
            _ => self.open.iter().filter(|open| open.is_held).map(|open| open.estimate).sum(),
        }
    }

    fn counts(&self, quota: usize, now: u64) -> u64 {
        self.used(quota, now) + self.held(quota)
    }

    fn fits(&self, now: u64, units: u64, opens: bool) -> bool {
        (0..self.quotas.len()).all(|quota| {
            let Spec { rule, limit, .. } = self.quotas[quota].spec;
            let wanted = if let Rule::Concurrent = rule { u64::from(opens) } else { units };
            match rule {
                Rule::Concurrent if !opens => units == 0,
                _ if wanted == 0 => true,
                // a unit that comes back in a moment counts in full, but can be a part of the room
                Rule::Smooth(interval) => {
                    let whole = self.quotas[quota].whole_at.max(now) + (self.held(quota) + wanted) * interval;
                    whole <= now + u64::from(limit) * interval
                }
                _ => self.counts(quota, now) + wanted <= u64::from(limit),
            }
        })
    }

    fn end(&mut self, place: usize, now: u64, used: Option<u64>) {
        let Open { estimate, at_most, is_held, .. } = self.open.remove(place);
        let used = used.map_or(estimate, |used| used.min(at_most));
        let expected = if is_held { used.min(estimate) } else { 0 };
        let excess = used.saturating_sub(estimate);
        for quota in 0..self.quotas.len() {
            let room =
                (2 * u64::from(self.quotas[quota].spec.limit)).saturating_sub(self.counts(quota, now) + expected);
            self.charge(quota, now, expected + excess.min(room));
        }
    }

    fn reset(&mut self) {
        for own in &mut self.quotas {
            own.charges.clear();
            own.whole_at = 0;
        }
        self.open.iter_mut().for_each(|open| open.is_held = false);
    }

    /// Returns the least that a rate has left, or else a quota of concurrent calls.
    fn left(&self, now: u64) -> u64 {
        let left = |quota: usize| u64::from(self.quotas[quota].spec.limit).saturating_sub(self.counts(quota, now));
        let is_rate = |quota: usize| !matches!(self.quotas[quota].spec.rule, Rule::Concurrent);
        (0..self.quotas.len()).map(|quota| (!is_rate(quota), left(quota))).min().unwrap().1
    }
}

struct World {
    engine: InMemory,
    begin: Moment,
    holds: Vec<Hold>,
}

impl World {
    fn new(specs: &[Spec]) -> Self {
        let engine = InMemory::new(ManualClock::new(), plan(specs));
        let begin = engine.clock().now();
        Self { engine, begin, holds: Vec::new() }
    }

    /// Returns the milliseconds since the begin.
    fn now(&self) -> u64 {
        self.engine.clock().now().since(self.begin).as_nanos() as u64 / MILLI
    }

    fn standing(&self) -> Standing {
        self.engine.peek(&tenant("acme")).unwrap()
    }

    fn open(&mut self, estimate: u32, at_most: u32, millis: u64) -> bool {
        let lifetime = Duration::from_millis(millis);
        let hold = self.engine.limiter.hold(&tenant("acme"), estimate, at_most, lifetime);
        let is_admitted = hold.is_ok();
        self.holds.extend(hold);
        is_admitted
    }

    fn pass_to_reset(&self) {
        let wait = self.standing().time_until_reset().as_nanos() as u64;
        self.engine.clock().advance(Duration::from_millis(wait.div_ceil(MILLI)));
    }
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn decisions_are_those_of_the_model(specs in specs(), steps in steps()) {
        let mut world = World::new(&specs);
        let wall = world.engine.clock().unix(world.begin).as_nanos();
        prop_assert_eq!(wall % MILLI, 0);
        let quotas = specs.iter().map(|spec| Counted { spec: *spec, charges: Vec::new(), whole_at: 0 }).collect();
        let mut model = Model { quotas, open: Vec::new(), wall: wall / MILLI };
        for step in steps {
            let now = world.now();
            model.settle(now);
            match step {
                Step::Check(units) => {
                    let expected = model.fits(now, units.into(), false);
                    let decision = world.engine.check(&tenant("acme"), units);
                    prop_assert_eq!(decision.is_admitted(), expected, "{:?} {:?}", &model, decision);
                    if expected {
                        (0..specs.len()).for_each(|quota| model.charge(quota, now, units.into()));
                    } else if let Some(standing) = decision.standing().filter(|standing| standing.reset_unix().is_some()) {
                        let holds = model.open.iter().any(|open| open.is_held);
                        prop_assert_eq!(standing.is_exact(), !holds);
                        if holds {
                            let latest = model.open.iter().filter(|open| open.is_held).map(|open| open.ends).max();
                            let reset = standing.reset().since(world.begin).as_nanos() as u64 / MILLI;
                            prop_assert!(reset == latest.unwrap() || reset > now, "{} {:?}", reset, latest);
                        }
                    }
                }
                Step::Open { estimate, more, millis } => {
                    let (units, at_most) = (u64::from(estimate.max(1)), u64::from(estimate + more).max(1));
                    let expected = model.fits(now, units, true);
                    prop_assert_eq!(world.open(estimate, estimate + more, millis), expected, "{:?}", &model);
                    if expected {
                        model.open.push(Open { ends: now + millis, estimate: units, at_most, is_held: true });
                    }
                }
                Step::Commit(which, actual) if !world.holds.is_empty() => {
                    let place = which.index(world.holds.len());
                    world.holds.remove(place).commit(actual);
                    model.end(place, now, Some(actual.into()));
                }
                Step::Drop(which) if !world.holds.is_empty() => {
                    let place = which.index(world.holds.len());
                    drop(world.holds.remove(place));
                    model.end(place, now, None);
                }
                Step::Pass(millis) => world.engine.clock().advance(Duration::from_millis(millis)),
                Step::ToReset => world.pass_to_reset(),
                Step::Reset => {
                    world.engine.reset(&tenant("acme"));
                    model.reset();
                }
                Step::Commit(..) | Step::Drop(_) | Step::Plan(_) => {}
            }
            let now = world.now();
            model.settle(now);
            prop_assert_eq!(u64::from(world.standing().remaining()), model.left(now), "{:?}", &model);
        }
    }

    /// Also while plans change and tenants share a bucket: at each admission, what was charged of estimates and requests in
    /// each window, and what is held, is at most the limit.
    #[test]
    fn no_window_has_more_than_the_limit_and_debts(
        all in plans_with_windows(),
        shares_a_bucket in any::<bool>(),
        steps in steps(),
    ) {
        let mut world = World::new(&all[0]);
        if shares_a_bucket {
            let builder = Limiter::builder(Plans::new(plan(&all[0]))).max_tenants(1);
            world.engine = InMemory::of(builder, ManualClock::new());
            let first = world.engine.limiter.hold(&tenant("first"), 1, 1, Duration::from_secs(1));
            drop(first.expect("it takes the only row"));
        }
        world.begin = world.engine.clock().now();
        let (mut current, mut charged) = (0, Vec::<(u64, u64)>::new());
        // when they expire, and their estimates, if they still count
        let mut open: Vec<(u64, u64)> = Vec::new();
        for step in steps {
            let mut settle = |now: u64, open: &mut Vec<(u64, u64)>| {
                for own in open.iter_mut().filter(|own| own.1 > 0 && own.0 <= now) {
                    charged.push(*own);
                    own.1 = 0;
                }
            };
            let now = world.now();
            settle(now, &mut open);
            let mut is_admitted = false;
            match step {
                Step::Check(units) => {
                    is_admitted = units > 0 && world.engine.check(&tenant("acme"), units).is_admitted();
                    if is_admitted {
                        charged.push((now, units.into()));
                    }
                }
                Step::Open { estimate, more, millis } => {
                    is_admitted = world.open(estimate, estimate + more, millis);
                    if is_admitted {
                        open.push((now + millis, estimate.max(1).into()));
                    }
                }
                Step::Commit(which, actual) if !open.is_empty() => {
                    let place = which.index(open.len());
                    world.holds.remove(place).commit(actual);
                    charged.push((now, open.remove(place).1.min(actual.into())));
                }
                Step::Drop(which) if !open.is_empty() => {
                    let place = which.index(open.len());
                    drop(world.holds.remove(place));
                    charged.push((now, open.remove(place).1));
                }
                Step::Pass(millis) => world.engine.clock().advance(Duration::from_millis(millis)),
                Step::ToReset => world.pass_to_reset(),
                Step::Plan(which) => {
                    current = which % all.len();
                    world.engine.set_plan(&tenant("acme"), plan(&all[current]));
                }
                Step::Reset | Step::Commit(..) | Step::Drop(_) => {}
            }
            let held: u64 = open.iter().map(|own| own.1).sum();
            for Spec { rule, limit, millis } in all[current].iter().filter(|_| is_admitted) {
                match rule {
                    Rule::Window => {
                        let in_window = charged.iter().filter(|(at, _)| now < at + millis);
                        let counts = held + in_window.map(|(_, units)| units).sum::<u64>();
                        prop_assert!(counts <= u64::from(*limit), "{} of {}", counts, limit);
                    }
                    Rule::Concurrent => prop_assert!(open.len() as u64 <= u64::from(*limit)),
                    Rule::Fixed | Rule::Smooth(_) => {}
                }
            }
        }
    }
}
