//! Schedules: the steps that a test performs on an engine.

use std::{fmt::Debug, rc::Rc, time::Duration};

use proptest::{
    collection::vec,
    option::weighted,
    prelude::*,
    sample::select,
    strategy::Union,
    test_runner::{Config, RngSeed},
};
use tollgate::{Plan, Quota};

pub(crate) const TENANTS: usize = 3;
pub(crate) const NAMES: [&str; 3] = ["default", "burst", "long"];

const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLI;
const LONGEST: u64 = 366 * 24 * 3600 * SECOND;

#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    /// The window that determines the gaps, in nanoseconds.
    pub(crate) window: u64,
    pub(crate) plan: PlanSpec,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// `times` concurrent requests of `units` units each.
    Spend {
        tenant: usize,
        times: u32,
        units: u32,
    },
    /// Time passes.
    Pass(u64),
    /// Time passes until about one window after an admission.
    PassToEdge {
        of: prop::sample::Index,
        nudge: i64,
    },
    /// Time passes until about the reset that the tenant was given.
    PassToReset {
        tenant: usize,
        nudge: i64,
    },
    /// The forward-only clock steps back, which must not happen in practice.
    ClockBack(u64),
    /// The wall clock jumps.
    Wall(u64),
    /// A spend is refunded.
    Refund(prop::sample::Index),
    /// Retries just before the reset of a refusal, and at it.
    RetryAtReset {
        tenant: usize,
        units: u32,
    },
    /// Checks just before `remaining` should rise, and when it should.
    WatchRise {
        tenant: usize,
    },
    Plan {
        tenant: usize,
        plan: PlanSpec,
    },
    RemovePlan {
        tenant: usize,
    },
    DefaultPlan(PlanSpec),
    Void {
        tenant: usize,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PlanSpec {
    Limited(Vec<QuotaSpec>),
    Unlimited,
    Denied,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct QuotaSpec {
    /// The place in [`NAMES`].
    pub(crate) name: usize,
    pub(crate) limit: u32,
    pub(crate) window: u64,
    pub(crate) rule: RuleSpec,
    pub(crate) shadow: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RuleSpec {
    Window { slices: u16 },
    Smooth,
    Fixed,
}

impl QuotaSpec {
    pub(crate) fn slice(&self) -> Option<u64> {
        match self.rule {
            RuleSpec::Window { slices } => Some((self.window / u64::from(slices)).max(1)),
            RuleSpec::Smooth | RuleSpec::Fixed => None,
        }
    }

    fn quota(&self) -> Quota {
        let window = Duration::from_nanos(self.window);
        let quota = match self.rule {
            RuleSpec::Window { slices } => Quota::new(self.limit, window).and_then(|quota| quota.slices(slices)),
            // a burst that does not refill within a year is not a valid quota
            RuleSpec::Smooth => Quota::smooth(self.limit, window, self.limit)
                .or_else(|_| Quota::smooth(self.limit, Duration::from_secs(1), self.limit)),
            RuleSpec::Fixed => Quota::fixed(self.limit, window),
        };
        let quota = quota.unwrap().with_name(NAMES[self.name]).unwrap();
        if self.shadow { quota.shadow() } else { quota }
    }
}

impl PlanSpec {
    pub(crate) fn plan(&self) -> Plan {
        match self {
            Self::Limited(quotas) => Plan::new(quotas.iter().map(QuotaSpec::quota)).unwrap(),
            Self::Unlimited => Plan::unlimited(),
            Self::Denied => Plan::denied(),
        }
    }

    pub(crate) fn quotas(&self) -> &[QuotaSpec] {
        match self {
            Self::Limited(quotas) => quotas,
            Self::Unlimited | Self::Denied => &[],
        }
    }

    pub(crate) fn enforced(&self) -> impl Iterator<Item = &QuotaSpec> {
        self.quotas().iter().filter(|quota| !quota.shadow)
    }
}

/// The kinds of steps in a schedule, and their weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    pub(crate) changes: u32,
    /// Whether a change may change more than the limit.
    pub(crate) any_change: bool,
    pub(crate) clock_back: u32,
    pub(crate) refunds: u32,
    pub(crate) voids: u32,
}

impl Mix {
    /// Only requests and time.
    pub(crate) const CALM: Self = Self { changes: 0, any_change: false, clock_back: 0, refunds: 0, voids: 0 };
    pub(crate) const REFUNDS: Self = Self { refunds: 8, ..Self::CALM };
    pub(crate) const ALL: Self = Self { changes: 2, any_change: true, clock_back: 1, refunds: 4, voids: 1 };
}

pub(crate) fn schedules(mix: Mix) -> impl Strategy<Value = Schedule> {
    let windows = [1, 7, 1_000, 60_000, 3_600_000, 86_400_000, LONGEST / MILLI];
    select(windows.map(|millis| millis * MILLI).to_vec()).prop_flat_map(move |window| {
        (plans(window, false), vec(steps(window, mix), 1..100)).prop_map(move |(plan, steps)| Schedule {
            window,
            plan,
            steps,
        })
    })
}

fn steps(window: u64, mix: Mix) -> impl Strategy<Value = Step> {
    let tenant = || prop_oneof![3 => Just(0), 1 => 1..TENANTS];
    let units = || prop_oneof![6 => Just(1_u32), 2 => 1..6_u32, 1 => 0..60_u32];
    let nudge = || select(vec![0, 0, -1, 1, -1_000_000, 1_000_000_i64]);
    let change = move || match mix.any_change {
        true => plans(window, true).boxed(),
        false => limits(window).boxed(),
    };
    let index = any::<prop::sample::Index>;
    let steps = vec![
        (
            24,
            (tenant(), prop_oneof![3 => Just(1_u32), 2 => 1..50_u32], units())
                .prop_map(|(tenant, times, units)| Step::Spend { tenant, times, units })
                .boxed(),
        ),
        (16, gaps(window).prop_map(Step::Pass).boxed()),
        (6, (index(), nudge()).prop_map(|(of, nudge)| Step::PassToEdge { of, nudge }).boxed()),
        (3, (tenant(), nudge()).prop_map(|(tenant, nudge)| Step::PassToReset { tenant, nudge }).boxed()),
        (5, (tenant(), units()).prop_map(|(tenant, units)| Step::RetryAtReset { tenant, units }).boxed()),
        (3, tenant().prop_map(|tenant| Step::WatchRise { tenant }).boxed()),
        (1, (0..4_000_000_000_u64).prop_map(Step::Wall).boxed()),
        (mix.refunds, index().prop_map(Step::Refund).boxed()),
        (mix.clock_back, gaps(window).prop_map(Step::ClockBack).boxed()),
        (mix.voids, tenant().prop_map(|tenant| Step::Void { tenant }).boxed()),
        (2 * mix.changes, (tenant(), change()).prop_map(|(tenant, plan)| Step::Plan { tenant, plan }).boxed()),
        (mix.changes, tenant().prop_map(|tenant| Step::RemovePlan { tenant }).boxed()),
        (mix.changes, change().prop_map(Step::DefaultPlan).boxed()),
    ];
    some_of(steps)
}

/// Chooses among these by weight. A weight of zero means never.
fn some_of<T: Debug + 'static>(all: Vec<(u32, BoxedStrategy<T>)>) -> impl Strategy<Value = T> {
    Union::new_weighted(all.into_iter().filter(|(weight, _)| *weight > 0).collect())
}

/// Gaps from zero to a little more than a window.
fn gaps(window: u64) -> impl Strategy<Value = u64> {
    let part = move |parts: u64| window / 2_400 * parts;
    prop_oneof![
        2 => 0..3_u64,
        4 => (0..40_u64).prop_map(part),
        4 => (0..2_600_u64).prop_map(part),
        1 => select(vec![window - 1, window, window + 1, 2 * window]),
        1 => Just(MILLI),
    ]
}

/// Plans that differ only in the limit.
fn limits(window: u64) -> impl Strategy<Value = PlanSpec> {
    let rule = RuleSpec::Window { slices: 240 };
    (1..40_u32)
        .prop_map(move |limit| PlanSpec::Limited(vec![QuotaSpec { name: 0, limit, window, rule, shadow: false }]))
}

fn plans(base: u64, any_kind: bool) -> BoxedStrategy<PlanSpec> {
    let windows = [base, base, base / 10, base / 2, base * 2, base * 10].map(|w| w.clamp(MILLI, LONGEST));
    let slices = select(vec![240, 240, 1, 2, 7, 1000]);
    let other = u32::from(any_kind);
    let rule = Rc::new(some_of(vec![
        (12, slices.prop_map(|slices| RuleSpec::Window { slices }).boxed()),
        (other, Just(RuleSpec::Smooth).boxed()),
        (other, Just(RuleSpec::Fixed).boxed()),
    ]));
    let limit = prop_oneof![4 => 1..40_u32, 1 => 40..400_u32];
    let quota = (limit, select(windows.to_vec()), rule, proptest::bool::weighted(0.15))
        .prop_map(|(limit, window, rule, shadow)| QuotaSpec { name: 0, limit, window, rule, shadow });
    let limited =
        (weighted(0.8, quota.clone()), weighted(0.3, quota.clone()), quota).prop_map(|(first, second, last)| {
            let mut quotas: Vec<_> = [first, second].into_iter().flatten().collect();
            if quotas.is_empty() {
                quotas.push(last);
            }
            let names = quotas.iter_mut().zip(0..);
            names.for_each(|(quota, name)| quota.name = name);
            PlanSpec::Limited(quotas)
        });
    let renamed = limited.clone().prop_map(|plan| match plan {
        PlanSpec::Limited(mut quotas) => {
            quotas.iter_mut().for_each(|quota| quota.name = 2 - quota.name);
            PlanSpec::Limited(quotas)
        }
        other => other,
    });
    some_of(vec![
        (12, limited.boxed()),
        (2 * other, renamed.boxed()),
        (other, Just(PlanSpec::Unlimited).boxed()),
        (other, Just(PlanSpec::Denied).boxed()),
    ])
    .boxed()
}

/// The number of schedules. They are the same in every run. `PROPTEST_CASES` raises the number, and
/// `PROPTEST_RNG_SEED` chooses others.
pub(crate) fn cases(cases: u32) -> Config {
    let asked = Config::default();
    let rng_seed = match asked.rng_seed {
        RngSeed::Random => RngSeed::Fixed(0x7011_6A7E),
        chosen => chosen,
    };
    Config { cases: cases.max(asked.cases), rng_seed, failure_persistence: None, ..asked }
}
