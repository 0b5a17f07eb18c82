//! What is measured: a limiter over the trivial service, and tenants that call it.

use std::time::{Duration, Instant};

use http::StatusCode;
use tollgate::{HeaderStyle, Limiter, Quota, Quotas, RateLimitLayer, Tenant, tenant::HeaderTenant};
use tower_layer::Layer;

use crate::{
    random::{Random, tenant_id},
    rivals,
    service::{Inner, Limited, TENANT, call},
};

/// The limiters that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No limiter.
    Inner,
    /// With its four headers, without extensions.
    Tollgate,
    /// With its four headers, and the tenant and how it stands in the extensions: the default.
    TollgateExtensions,
    /// Without headers and extensions.
    TollgatePlain,
    /// Without headers, with extensions.
    TollgatePlainExtensions,
    /// With its headers.
    TowerGovernor,
    TowerGovernorPlain,
    /// It has no headers.
    AxumGcra,
    /// The crate governor in a service of ten lines.
    Governor,
}

pub const ALL: [Kind; 9] = [
    Kind::Inner,
    Kind::Tollgate,
    Kind::TollgateExtensions,
    Kind::TollgatePlain,
    Kind::TollgatePlainExtensions,
    Kind::TowerGovernor,
    Kind::TowerGovernorPlain,
    Kind::AxumGcra,
    Kind::Governor,
];

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Inner => "inner service alone",
            Self::Tollgate => "tollgate",
            Self::TollgateExtensions => "tollgate, extensions",
            Self::TollgatePlain => "tollgate, no headers",
            Self::TollgatePlainExtensions => "tollgate, no headers, extensions",
            Self::TowerGovernor => "tower_governor, headers",
            Self::TowerGovernorPlain => "tower_governor, no headers",
            Self::AxumGcra => "axum_gcra (no headers)",
            Self::Governor => "governor by hand (no headers)",
        }
    }

    /// The name for the command line of a child.
    pub fn tag(self) -> String {
        format!("{self:?}")
    }

    pub fn by_tag(tag: &str) -> Option<Self> {
        ALL.into_iter().find(|kind| kind.tag() == tag)
    }
}

/// Whether the requests fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// 9,999 units, of which some are always left: so the headers hold numbers of real size.
    Never,
    /// One unit an hour, and it is gone.
    Spent,
}

impl Budget {
    pub fn name(self) -> &'static str {
        match self {
            Self::Never => "admitted",
            Self::Spent => "refused",
        }
    }

    pub fn of_tollgate(self) -> Quota {
        match self {
            Self::Never => Quota::per_minute(9_999),
            Self::Spent => Quota::per_hour(1),
        }
        .expect("the limit is not zero")
    }
}

/// Something to do with a service of a type of its own.
pub trait Visit {
    type Output;

    fn visit<S: Limited>(self, service: S, limiter: Option<Limiter>) -> Self::Output;
}

/// Builds the subject and hands it over.
pub fn with_service<V: Visit>(kind: Kind, budget: Budget, inner: Inner, visit: V) -> V::Output {
    let limiter = Limiter::memory(Quotas::new(budget.of_tollgate()));
    with_limiter(kind, budget, inner, limiter, visit)
}

/// As [`with_service`], with a limiter of tollgate that is set up already.
pub fn with_limiter<V: Visit>(kind: Kind, budget: Budget, inner: Inner, limiter: Limiter, visit: V) -> V::Output {
    let source = || HeaderTenant::new(TENANT.as_str()).expect("it is a name of a header");
    let layer = || RateLimitLayer::new(source(), limiter.clone());
    let ours = Some(limiter.clone());
    match kind {
        Kind::Inner => visit.visit(inner, None),
        Kind::Tollgate => visit.visit(layer().without_extensions().layer(inner), ours),
        Kind::TollgateExtensions => visit.visit(layer().layer(inner), ours),
        Kind::TollgatePlain => {
            let layer = layer().headers(HeaderStyle::none()).without_extensions();
            visit.visit(layer.layer(inner), ours)
        }
        Kind::TollgatePlainExtensions => visit.visit(layer().headers(HeaderStyle::none()).layer(inner), ours),
        Kind::TowerGovernor => visit.visit(rivals::tower_governor_with_headers(inner, budget), None),
        Kind::TowerGovernorPlain => visit.visit(rivals::tower_governor_plain(inner, budget), None),
        Kind::AxumGcra => visit.visit(rivals::axum_gcra(inner, budget, false), None),
        Kind::Governor => visit.visit(rivals::governor_by_hand(inner, budget), None),
    }
}

/// A service that so many tenants call at random, whatever its type.
pub trait Subject: Send {
    /// Makes so many calls and says how long they took together.
    fn run(&mut self, calls: u64) -> Duration;

    /// The same state, called by another thread in another order.
    fn fork(&self, seed: u64) -> Box<dyn Subject>;

    /// Calls once for each tenant from `first` on.
    fn touch(&mut self, first: u64, count: u64);
}

/// The subject, with every tenant known to it and as poor as the budget says.
pub fn subject(kind: Kind, budget: Budget, tenants: u64, inner: Inner) -> Box<dyn Subject> {
    struct Drive {
        kind: Kind,
        tenants: u64,
        want: StatusCode,
    }
    impl Visit for Drive {
        type Output = Box<dyn Subject>;

        fn visit<S: Limited>(self, service: S, limiter: Option<Limiter>) -> Box<dyn Subject> {
            let Self { kind, tenants, want } = self;
            Box::new(Driven { kind, service, limiter, tenants, want, random: Random(1) })
        }
    }
    let want = match (kind, budget) {
        (Kind::Inner, _) | (_, Budget::Never) => StatusCode::OK,
        _ => StatusCode::TOO_MANY_REQUESTS,
    };
    let mut subject = with_service(kind, budget, inner, Drive { kind, tenants, want });
    if kind != Kind::Inner {
        subject.touch(0, tenants);
    }
    if kind == Kind::AxumGcra && budget == Budget::Spent {
        // it lets one more through than its burst
        subject.touch(0, tenants);
    }
    subject
}

struct Driven<S> {
    kind: Kind,
    service: S,
    limiter: Option<Limiter>,
    tenants: u64,
    want: StatusCode,
    random: Random,
}

/// After so many calls of one tenant its budget is made whole again, off the clock. Two threads together stay below it.
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
            let mut as_wanted = 0;
            let began = Instant::now();
            for _ in 0..lot {
                let tenant = tenant_id(self.random.below(self.tenants));
                as_wanted += u64::from(call(&mut self.service, &tenant) == self.want);
            }
            took += began.elapsed();
            // GCRA rivals may refuse a thread that loses its core between reading the clock and deciding
            let missing = if self.limiter.is_some() { 0 } else { lot / 100 };
            assert!(as_wanted >= lot - missing, "{}: {as_wanted} of {lot} are {}", self.kind.name(), self.want);
            left -= lot;
        }
        took
    }

    fn fork(&self, seed: u64) -> Box<dyn Subject> {
        let Self { kind, service, limiter, tenants, want, .. } = self;
        Box::new(Self {
            kind: *kind,
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
