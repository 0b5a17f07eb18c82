//! The subjects of the measurements: a limiter around the trivial service, called by many tenants.

use std::time::{Duration, Instant};

use http::StatusCode;
use tollgate::{Limiter, Plans, Quota, RateLimitLayer, Tenant, limit::HeaderStyle, tenant::HeaderTenant};
use tower_layer::Layer;

use crate::{
    random::{Random, tenant_id},
    rivals,
    service::{Inner, Limited, TENANT, Workload, call, call_with_extension, respond},
};

/// The limiters that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimiterKind {
    /// No limiter.
    Inner,
    /// No limiter, but the headers of tollgate as constants. For refusals, its whole response.
    ConstantHeaders,
    /// Default settings: four headers, and an extension with the tenant and its standing.
    Tollgate,
    TollgateNoExtensions,
    /// Without headers, with the extension.
    TollgateNoHeaders,
    /// Without headers and extensions.
    TollgateBare,
    /// With its headers.
    TowerGovernor,
    TowerGovernorPlain,
    /// It has no headers.
    AxumGcra,
    /// The crate governor in a service of ten lines.
    Governor,
}

pub const ALL: [LimiterKind; 9] = [
    LimiterKind::Inner,
    LimiterKind::Tollgate,
    LimiterKind::TollgateNoExtensions,
    LimiterKind::TollgateNoHeaders,
    LimiterKind::TollgateBare,
    LimiterKind::TowerGovernor,
    LimiterKind::TowerGovernorPlain,
    LimiterKind::AxumGcra,
    LimiterKind::Governor,
];

impl LimiterKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Inner => "inner service alone",
            Self::Tollgate => "tollgate",
            Self::ConstantHeaders => "constant headers, no limiter",
            Self::TollgateNoExtensions => "tollgate, without extensions",
            Self::TollgateNoHeaders => "tollgate, without headers",
            Self::TollgateBare => "tollgate, without either",
            Self::TowerGovernor => "tower_governor",
            Self::TowerGovernorPlain => "tower_governor, without headers",
            Self::AxumGcra => "axum_gcra (has no headers)",
            Self::Governor => "governor by hand, without headers",
        }
    }

    /// The rival that it is compared with: tower_governor, with headers if this writes some.
    pub fn rival(self) -> Self {
        match self {
            Self::Tollgate | Self::TollgateNoExtensions | Self::TowerGovernor => Self::TowerGovernor,
            _ => Self::TowerGovernorPlain,
        }
    }

    /// The name for the command line of a child, and in figures.
    pub fn tag(self) -> String {
        format!("{self:?}")
    }

    pub fn by_tag(tag: &str) -> Option<Self> {
        ALL.into_iter().chain([Self::ConstantHeaders]).find(|kind| kind.tag() == tag)
    }
}

/// The budget of all tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetState {
    /// 9,999 units, which never run out. The headers contain numbers of realistic length.
    Ample,
    /// One unit an hour, which is already spent.
    Spent,
}

impl BudgetState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ample => "admitted",
            Self::Spent => "refused",
        }
    }

    pub fn of_tollgate(self) -> Quota {
        match self {
            Self::Ample => Quota::per_minute(9_999),
            Self::Spent => Quota::per_hour(1),
        }
        .expect("the limit is not zero")
    }
}

/// A task for a service of any type.
pub trait ServiceTask {
    type Output;

    fn run<S: Limited>(self, service: S, limiter: Option<Limiter>) -> Self::Output;
}

/// Builds the subject and passes it to the task.
pub fn with_service<V: ServiceTask>(kind: LimiterKind, budget: BudgetState, inner: Inner, task: V) -> V::Output {
    let limiter = Limiter::memory(Plans::new(budget.of_tollgate()));
    with_limiter(kind, budget, inner, limiter, task)
}

/// Does the same with an existing limiter of tollgate.
pub fn with_limiter<V: ServiceTask>(
    kind: LimiterKind,
    budget: BudgetState,
    inner: Inner,
    limiter: Limiter,
    task: V,
) -> V::Output {
    let source = || HeaderTenant::new(TENANT.as_str()).expect("it is a name of a header");
    let layer = || RateLimitLayer::new(source(), limiter.clone());
    let ours = Some(limiter.clone());
    match kind {
        LimiterKind::Inner => task.run(inner, None),
        LimiterKind::ConstantHeaders => {
            let (mut service, tenant) = (layer().layer(Inner::default()), tenant_id(0));
            let mut sample = respond(&mut service, &tenant);
            if budget == BudgetState::Spent {
                sample = respond(&mut service, &tenant);
            }
            task.run(rivals::constant(inner, sample), None)
        }
        LimiterKind::Tollgate => task.run(layer().layer(inner), ours),
        LimiterKind::TollgateNoExtensions => task.run(layer().without_extensions().layer(inner), ours),
        LimiterKind::TollgateNoHeaders => task.run(layer().headers(HeaderStyle::none()).layer(inner), ours),
        LimiterKind::TollgateBare => {
            let layer = layer().headers(HeaderStyle::none()).without_extensions();
            task.run(layer.layer(inner), ours)
        }
        LimiterKind::TowerGovernor => task.run(rivals::tower_governor_with_headers(inner, budget), None),
        LimiterKind::TowerGovernorPlain => task.run(rivals::tower_governor_plain(inner, budget), None),
        LimiterKind::AxumGcra => task.run(rivals::axum_gcra(inner, budget, false), None),
        LimiterKind::Governor => task.run(rivals::governor_by_hand(inner, budget), None),
    }
}

/// A service of any type that many tenants call in random order.
pub trait Subject: Send {
    /// Makes calls and returns how long they took together.
    fn run(&mut self, calls: u64) -> Duration;

    /// Returns a subject with the same state, for another thread. It calls in another order.
    fn fork(&self, seed: u64) -> Box<dyn Subject>;

    /// Calls once for each tenant from `first` on.
    fn touch(&mut self, first: u64, count: u64);
}

/// Creates the subject. All tenants are known to it, and their budgets are in the given state.
pub fn subject(kind: LimiterKind, budget: BudgetState, tenants: u64, workload: Workload) -> Box<dyn Subject> {
    struct Drive {
        kind: LimiterKind,
        workload: Workload,
        tenants: u64,
        want: StatusCode,
    }
    impl ServiceTask for Drive {
        type Output = Box<dyn Subject>;

        fn run<S: Limited>(self, service: S, limiter: Option<Limiter>) -> Box<dyn Subject> {
            let Self { kind, workload, tenants, want } = self;
            Box::new(Driven { kind, workload, service, limiter, tenants, want, random: Random(1) })
        }
    }
    let want = match (kind, budget) {
        (LimiterKind::Inner, _) | (_, BudgetState::Ample) => StatusCode::OK,
        _ => StatusCode::TOO_MANY_REQUESTS,
    };
    let mut subject = with_service(kind, budget, workload.inner(), Drive { kind, workload, tenants, want });
    if kind != LimiterKind::Inner {
        subject.touch(0, tenants);
    }
    if kind == LimiterKind::AxumGcra && budget == BudgetState::Spent {
        // it admits one request more than its burst
        subject.touch(0, tenants);
    }
    subject
}

struct Driven<S> {
    kind: LimiterKind,
    workload: Workload,
    service: S,
    limiter: Option<Limiter>,
    tenants: u64,
    want: StatusCode,
    random: Random,
}

/// After this many calls of one tenant, its budget is reset outside of the measured time. Two threads together stay
/// below it.
const BEFORE_RESET: u64 = 4_000;

impl<S: Limited> Subject for Driven<S> {
    fn run(&mut self, calls: u64) -> Duration {
        let (mut took, mut left) = (Duration::ZERO, calls);
        while left > 0 {
            let lot = if self.tenants == 1 { left.min(BEFORE_RESET) } else { left };
            if self.tenants == 1
                && self.want == StatusCode::OK
                && let Some(limiter) = &self.limiter
            {
                limiter.reset(&Tenant::parse(tenant_id(0)).expect("it is a name of a tenant"));
            }
            let (service, random, tenants, want) = (&mut self.service, &mut self.random, self.tenants, self.want);
            let mut as_wanted = 0;
            let began = Instant::now();
            if self.workload.has_extension {
                for _ in 0..lot {
                    let tenant = tenant_id(random.below(tenants));
                    as_wanted += u64::from(call_with_extension(service, &tenant) == want);
                }
            } else {
                for _ in 0..lot {
                    let tenant = tenant_id(random.below(tenants));
                    as_wanted += u64::from(call(service, &tenant) == want);
                }
            }
            took += began.elapsed();
            // GCRA rivals may refuse a thread that loses its core between reading the clock and deciding
            let missing = if self.limiter.is_some() { 0 } else { lot / 20 };
            assert!(
                as_wanted >= lot - missing,
                "{}: {as_wanted} of {lot} responses are {}",
                self.kind.name(),
                self.want
            );
            left -= lot;
        }
        took
    }

    fn fork(&self, seed: u64) -> Box<dyn Subject> {
        let Self { kind, workload, service, limiter, tenants, want, .. } = self;
        Box::new(Self {
            kind: *kind,
            workload: *workload,
            service: service.clone(),
            limiter: limiter.clone(),
            tenants: *tenants,
            want: *want,
            random: Random(seed),
        })
    }

    fn touch(&mut self, first: u64, count: u64) {
        for tenant in first..first + count {
            call(&mut self.service, &tenant_id(tenant));
        }
    }
}
