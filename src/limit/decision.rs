//! What a limiter answers.

use std::time::Duration;

use http::Extensions;

use super::row::{Marks, NEVER, Past, Standing};
use crate::{
    tenant::Tenant,
    util::clock::{Moment, UnixTime},
};

/// How a tenant stands with the quota that matters: the one that refused, else
/// the one with the least left.
///
/// Layers put it in the extensions of the request; of several, the one with the
/// least left stays. Where no enforced quota applies, [`limit`](Self::limit) and
/// [`remaining`](Self::remaining) are `u32::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    facts: Facts,
    would_refuse: Option<&'static str>,
    charged: Charged,
}

/// What is told of one quota: the part of a [`RateLimit`] that travels with every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) policy: &'static str,
    pub(super) limit: u32,
    pub(super) remaining: u32,
    reset: Moment,
    reset_unix: UnixTime,
    wait: u64,
}

/// The limiters and tenants that a request was charged to, so that none is charged twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Charged([u64; 4]);

impl Charged {
    pub(super) fn contains(self, mark: u64) -> bool {
        self.0.contains(&mark)
    }

    /// With one mark more; a fifth takes the place of the oldest.
    pub(super) fn and(mut self, mark: u64) -> Self {
        self.0.rotate_right(1);
        self.0[0] = mark;
        self
    }
}

impl Facts {
    #[inline]
    pub(super) fn new(standing: Standing, now: Moment, unix_now: UnixTime) -> Self {
        let wait = standing.reset.as_nanos().saturating_sub(now.as_nanos());
        Self {
            policy: standing.policy,
            limit: standing.limit,
            remaining: standing.remaining,
            reset: standing.reset,
            reset_unix: UnixTime::from_nanos(unix_now.as_nanos().saturating_add(wait)),
            wait,
        }
    }

    /// Of a tenant that no enforced quota limits.
    pub(super) const UNLIMITED: Self = Self {
        policy: "unlimited",
        limit: u32::MAX,
        remaining: u32::MAX,
        reset: Moment::from_nanos(0),
        reset_unix: UnixTime::from_nanos(0),
        wait: 0,
    };

    pub(super) fn reset_unix(&self) -> Option<UnixTime> {
        (self.reset != NEVER).then_some(self.reset_unix)
    }

    pub(super) fn wait(&self) -> Duration {
        Duration::from_nanos(self.wait)
    }
}

impl RateLimit {
    pub(super) fn new(facts: Facts, would_refuse: Option<&'static str>, charged: Charged) -> Self {
        Self { facts, would_refuse, charged }
    }

    /// What the layers before a handler have left of it, outside axum.
    pub fn from_extensions(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// The name of the quota; `unlimited` where none applies.
    pub fn policy(&self) -> &'static str {
        self.facts.policy
    }

    /// Its limit.
    pub fn limit(&self) -> u32 {
        self.facts.limit
    }

    /// Units left now.
    pub fn remaining(&self) -> u32 {
        self.facts.remaining
    }

    /// When units come back: for a refused request the moment at which a retry
    /// is admitted, if the tenant spends nothing meanwhile; else the moment at
    /// which `remaining` rises.
    pub fn reset(&self) -> Moment {
        self.facts.reset
    }

    /// The same on the wall clock; `None` where no retry helps.
    pub fn reset_unix(&self) -> Option<UnixTime> {
        self.facts.reset_unix()
    }

    /// The same, counted from the decision.
    pub fn wait(&self) -> Duration {
        self.facts.wait()
    }

    /// A shadow quota that would have refused this request.
    pub fn would_refuse(&self) -> Option<&'static str> {
        self.would_refuse
    }

    pub(super) fn charged(&self) -> Charged {
        self.charged
    }

    /// Adds what a layer further in found.
    pub(super) fn narrowed(self, facts: Facts, would_refuse: Option<&'static str>, mark: u64) -> Self {
        let facts = if self.facts.remaining < facts.remaining { self.facts } else { facts };
        Self { facts, would_refuse: would_refuse.or(self.would_refuse), charged: self.charged.and(mark) }
    }
}

impl From<Facts> for RateLimit {
    fn from(facts: Facts) -> Self {
        Self::new(facts, None, Charged::default())
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

impl Refusal {
    /// How long until a retry may be admitted; nothing, where the tenant is denied.
    pub fn wait(&self) -> Duration {
        self.rate_limit.map(|limit| limit.wait()).unwrap_or_default()
    }
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

/// A [`Decision`] as the layer takes it: what only some requests need is not made yet.
pub(super) enum Outcome {
    Admitted { facts: Option<Facts>, would_refuse: Option<&'static str>, charge: Option<Box<Charge>> },
    Refused { reason: RefusalReason, facts: Option<Facts> },
}

impl From<Outcome> for Decision {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Admitted { facts, would_refuse, charge } => Self::Admitted(Admission {
                rate_limit: facts.map(|facts| RateLimit::new(facts, would_refuse, Charged::default())),
                would_refuse,
                spend: Spend(charge),
            }),
            Outcome::Refused { reason, facts } => {
                Self::Refused(Refusal { reason, rate_limit: facts.map(RateLimit::from) })
            }
        }
    }
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
    pub(super) limiter: u64,
    pub(super) tenant: Tenant,
    pub(super) past: Past,
    pub(super) units: u32,
    pub(super) marks: Marks,
}
