//! What a limiter answers.

use std::time::Duration;

use super::row::{Marks, NEVER, Past, Standing};
use crate::{
    clock::{Moment, UnixTime, saturating_nanos},
    tenant::Tenant,
};

/// How a tenant stands with the quota that matters: the one that refused, else
/// the one with the least left.
///
/// The layer puts it in the extensions of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    policy: &'static str,
    limit: u32,
    remaining: u32,
    reset: Moment,
    reset_unix: UnixTime,
    wait: u64,
    would_refuse: Option<&'static str>,
    charged: Charged,
}

/// The limiters and tenants that a request was charged to, so that none is charged twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Charged([u64; 4]);

impl Charged {
    pub(super) fn contains(self, mark: u64) -> bool {
        self.0.contains(&mark)
    }

    /// A fifth mark takes the place of the oldest.
    pub(super) fn add(&mut self, mark: u64) {
        self.0.rotate_right(1);
        self.0[0] = mark;
    }
}

impl RateLimit {
    pub(super) fn new(standing: Standing, now: Moment, unix_now: UnixTime) -> Self {
        let wait = standing.reset.since(now);
        Self {
            policy: standing.policy,
            limit: standing.limit,
            remaining: standing.remaining,
            reset: standing.reset,
            reset_unix: unix_now + wait,
            wait: saturating_nanos(wait),
            would_refuse: None,
            charged: Charged::default(),
        }
    }

    pub(super) fn with_shadow(self, policy: Option<&'static str>) -> Self {
        Self { would_refuse: policy, ..self }
    }

    /// The name of the quota.
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// Its limit.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Units left now.
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// When units come back: for a refused request the moment at which a retry
    /// is admitted, if the tenant spends nothing meanwhile; else the moment at
    /// which `remaining` rises.
    pub fn reset(&self) -> Moment {
        self.reset
    }

    /// The same on the wall clock; `None` where no retry helps.
    pub fn reset_unix(&self) -> Option<UnixTime> {
        (self.reset != NEVER).then_some(self.reset_unix)
    }

    /// The same, counted from the decision.
    pub fn wait(&self) -> Duration {
        Duration::from_nanos(self.wait)
    }

    pub(super) fn charged(&self) -> Charged {
        self.charged
    }

    pub(super) fn set_charged(&mut self, charged: Charged) {
        self.charged = charged;
    }

    /// A shadow quota that would have refused this request.
    pub fn would_refuse(&self) -> Option<&'static str> {
        self.would_refuse
    }
}

/// What a limiter decided about one request.
#[derive(Debug)]
#[must_use]
pub enum Decision {
    /// It may come through, and was charged.
    Admitted(Admission),
    /// It may not, and was charged nothing.
    Refused(Refusal),
}

impl Decision {
    /// Whether the request may come through.
    pub fn is_admitted(&self) -> bool {
        matches!(self, Self::Admitted(_))
    }

    /// How the tenant stands, where a quota that is enforced applies.
    pub fn rate_limit(&self) -> Option<&RateLimit> {
        match self {
            Self::Admitted(admission) => admission.rate_limit.as_ref(),
            Self::Refused(refusal) => refusal.rate_limit.as_ref(),
        }
    }
}

/// An admitted request.
#[derive(Debug)]
pub struct Admission {
    /// How the tenant stands now; `None` where no enforced quota applies.
    pub rate_limit: Option<RateLimit>,
    /// A shadow quota that would have refused.
    pub would_refuse: Option<&'static str>,
    /// What was spent, to be taken back if need be.
    pub spend: Spend,
}

/// A refused request.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// Why.
    pub reason: RefusalReason,
    /// How the tenant stands with the quota that refused; `None` where it is denied.
    pub rate_limit: Option<RateLimit>,
}

/// Why a limiter refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The quota is spent for now.
    Spent,
    /// The request costs more than the whole quota: no retry helps.
    Impossible,
    /// The tenant is denied.
    Denied,
}

impl Refusal {
    pub(super) fn by_quota(reset: Moment, rate_limit: RateLimit) -> Self {
        let reason = if reset == NEVER { RefusalReason::Impossible } else { RefusalReason::Spent };
        Self { reason, rate_limit: Some(rate_limit) }
    }

    pub(super) const DENIED: Self = Self { reason: RefusalReason::Denied, rate_limit: None };
}

/// Units that were spent. It can't be copied, so it is refunded at most once;
/// dropped, it stays spent.
///
/// ```compile_fail,E0382
/// # use tollgate::{Limiter, limit::Spend};
/// fn refund_twice(limiter: &Limiter, spend: Spend) {
///     limiter.refund(spend);
///     limiter.refund(spend);
/// }
/// ```
#[derive(Debug, Default)]
pub struct Spend(pub(super) Option<Box<Charge>>);

#[derive(Debug)]
pub(super) struct Charge {
    pub(super) tenant: Tenant,
    pub(super) past: Past,
    pub(super) units: u32,
    pub(super) marks: Marks,
}
