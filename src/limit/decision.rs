//! The outcome of a rate-limit check.

use std::{fmt, time::Duration};

#[cfg(feature = "redis")]
use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::plan::{Limited, Plan};
use crate::{
    tenant::{LimitKey, Standing},
    util::clock::Moment,
};

/// The outcome of a rate-limit check.
#[derive(Debug)]
#[must_use]
pub struct Decision {
    pub(super) refused: Option<RefusalReason>,
    pub(super) standing: Option<Standing>,
    /// The standing in a shadow quota that would have refused; boxed, because it is rare.
    pub(super) shadow: Option<Box<Standing>>,
    pub(super) spend: Spend,
    /// The call that was opened, if one was asked for; boxed, because it is rare.
    pub(super) call: Option<Box<OpenCall>>,
}

impl Decision {
    /// Admits a request that no enforced quota limits.
    pub(super) const UNLIMITED: Self =
        Self { refused: None, standing: None, shadow: None, spend: Spend(None), call: None };

    /// Refuses a request of a denied tenant.
    pub(super) const DENIED: Self = Self { refused: Some(RefusalReason::Denied), ..Self::UNLIMITED };

    /// Refuses a request that nothing tracks, because its plan counts open calls.
    pub(super) const UNTRACKED: Self = Self { refused: Some(RefusalReason::Untracked), ..Self::UNLIMITED };

    /// Refuses a request for which no budget can be determined.
    pub(super) const UNAVAILABLE: Self = Self { refused: Some(RefusalReason::Unavailable), ..Self::UNLIMITED };

    #[cfg(feature = "redis")]
    pub(super) fn admitted(standing: Option<Standing>, shadow: Option<Box<Standing>>) -> Self {
        Self { standing, shadow, ..Self::UNLIMITED }
    }

    /// Refuses the request with this standing.
    #[inline]
    pub(super) fn refuse(&mut self, standing: Standing) {
        self.refused = Some(match standing.reset() {
            Standing::NEVER => RefusalReason::Impossible,
            _ => RefusalReason::Spent,
        });
        self.standing = Some(standing);
    }

    #[cfg(feature = "redis")]
    pub(super) fn refused_by(standing: Standing) -> Self {
        let mut refusal = Self::UNLIMITED;
        refusal.refuse(standing);
        refusal
    }

    /// Returns whether the request was admitted and charged.
    pub fn is_admitted(&self) -> bool {
        self.refused.is_none()
    }

    /// Returns why the request was refused, or `None` if it was admitted. A refused
    /// request is charged nothing.
    pub fn refusal_reason(&self) -> Option<RefusalReason> {
        self.refused
    }

    /// Returns the current standing of the tenant, or `None` if no enforced quota applies.
    pub fn standing(&self) -> Option<&Standing> {
        self.standing.as_ref()
    }

    /// Returns the name of a shadow quota that would have refused the request, if any.
    pub fn would_refuse(&self) -> Option<&'static str> {
        self.shadow.as_ref().map(|standing| standing.policy())
    }

    /// Returns how long to wait before retrying a refused request. Zero if no quota refused the request. Centuries if
    /// no retry helps; see [`Standing::reset_unix`](crate::tenant::Standing::reset_unix).
    pub fn retry_after(&self) -> Duration {
        let standing = self.standing.filter(|_| !self.is_admitted());
        standing.map(|standing| standing.time_until_reset()).unwrap_or_default()
    }

    /// Returns the charge, for [`Limiter::refund`](super::Limiter::refund).
    /// Empty if the request was refused.
    pub fn into_spend(self) -> Spend {
        self.spend
    }
}

/// A request to spend units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ask {
    pub(super) units: u32,
    /// Whether the request must leave what is reserved for others, because it has not proved its tenant.
    pub(super) is_anonymous: bool,
    /// Whether the spend may be refunded.
    pub(super) refundable: bool,
    /// Whether the request can wait until the plan of its tenant is looked up, or until units come back. Its refusal is not
    /// reported.
    pub(super) can_wait: bool,
    /// Whether a shared server has admitted the request, so that it is charged even if it does not fit.
    pub(super) is_admitted: bool,
    /// The call that an admission opens.
    pub(super) call: CallAsk,
}

impl Ask {
    /// Asks for units that are never refunded, and that can't wait. Nothing tracks when the request ends. Zero units only look at
    /// the rates, unless the request of a layer costs nothing.
    #[inline]
    pub(super) fn new(units: u32, is_anonymous: bool) -> Self {
        let call = if units > 0 { CallAsk::Untracked } else { CallAsk::RatesOnly };
        Self { units, is_anonymous, refundable: false, can_wait: false, is_admitted: false, call }
    }

    /// Returns the units that count while the call is open.
    pub(super) fn estimate(self) -> u32 {
        match self.call {
            CallAsk::Hold { .. } => self.units,
            _ => 0,
        }
    }

    /// Asks for a hold of at least one unit. The estimate raises a smaller maximum.
    pub(super) fn hold(estimate: u32, at_most: u32, lifetime: Duration, is_anonymous: bool) -> Self {
        let units = estimate.max(1);
        let lifetime = lifetime.clamp(Duration::from_millis(1), LONGEST_LIFETIME);
        let millis = u32::try_from(lifetime.as_millis()).unwrap_or(u32::MAX);
        Self { call: CallAsk::Hold { at_most: at_most.max(units), millis }, ..Self::new(units, is_anonymous) }
    }
}

/// The longest time that a hold can stay open.
const LONGEST_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The call that an admission opens. It counts until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CallAsk {
    /// Nothing tracks when the request ends. A plan that counts open calls refuses it.
    Untracked,
    /// Only the units are charged. The request takes no slot, and is not refused because of that.
    RatesOnly,
    /// An outer layer of the same limiter has opened the call already: only the units are charged.
    AlreadyOpen,
    /// The units are charged now. The call takes a slot of each concurrency quota until it ends.
    Slot,
    /// The units are an estimate. They count while the call is open, and are charged when it ends. It takes slots, too.
    Hold {
        at_most: u32,
        /// How long the estimate counts at most.
        millis: u32,
    },
}

/// A call that was opened.
#[derive(Debug)]
pub(super) enum OpenCall {
    Memory(CallInMemory),
    #[cfg(feature = "redis")]
    Shared(Box<dyn EndCall>),
}

/// Identifies an open call in memory.
#[derive(Debug)]
pub(super) struct CallInMemory {
    pub(super) key: LimitKey,
    /// The bucket that has admitted it. If the key gets a row of its own, its calls move there.
    pub(super) bucket: Option<BucketId>,
    pub(super) id: u64,
}

/// Ends an open call, wherever it is counted.
pub(super) trait EndCall: fmt::Debug + Send + Sync {
    fn end(self: Box<Self>, end: CallEnd);

    /// Refuses the call if an enforced quota counts it as open, because nothing tracks when it ends. Returns whether one does.
    fn refuse_untracked(&self) -> bool;
}

/// Decides by the response whether a request is charged.
pub(super) type ChargeRule = dyn Fn(StatusCode, &HeaderMap) -> bool + Send + Sync;

/// How a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEnd {
    /// It has used these units.
    Commit(u32),
    /// It has used its estimate, as far as is known.
    Estimate,
}

impl CallAsk {
    #[inline]
    pub(super) fn is_hold(self) -> bool {
        matches!(self, Self::Hold { .. })
    }

    /// Returns whether this layer or an outer one tracks when the request ends.
    #[inline]
    pub(super) fn is_tracked(self) -> bool {
        !matches!(self, Self::Untracked | Self::RatesOnly)
    }

    /// Returns whether the end of the call is tracked.
    #[inline]
    pub(super) fn opens(self) -> bool {
        matches!(self, Self::Slot | Self::Hold { .. })
    }

    /// Returns whether an admission opens a call. Nothing counts a slot under a plan without a quota of concurrent calls.
    #[inline]
    pub(super) fn opens_under(self, limits: &[Limited]) -> bool {
        match self {
            Self::Untracked | Self::RatesOnly | Self::AlreadyOpen => false,
            Self::Slot => limits.iter().any(|limited| !limited.gauge.counts_units()),
            Self::Hold { .. } => true,
        }
    }
}

/// Why a limiter refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The quota has too few units left at the moment.
    Spent,
    /// The request costs more than the quota allows, so no retry helps.
    Impossible,
    /// The plan of the tenant is [`Plan::denied`].
    Denied,
    /// The plan of the tenant can't be looked up, or the shared server does not answer, and the limiter is set to
    /// refuse requests in that case.
    Unavailable,
    /// The plan has a quota of [concurrent](crate::Quota::concurrent) calls, and nothing tracks when this call ends.
    /// Use [`tracking_bodies`](super::RateLimitLayer::tracking_bodies) or [`Limiter::hold`](super::Limiter::hold).
    Untracked,
}

/// Units that were charged and can be refunded once.
///
/// It can't be copied, so it can't be refunded twice. Dropping it keeps the charge.
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

#[cfg(feature = "redis")]
impl Spend {
    /// Returns how many units were charged.
    pub(super) fn units(&self) -> u32 {
        self.0.as_ref().map_or(0, |charge| charge.units)
    }
}

#[derive(Debug)]
pub(super) struct Charge {
    pub(super) limiter: u64,
    pub(super) payer: Payer,
    pub(super) past: Past,
    pub(super) units: u32,
    pub(super) is_anonymous: bool,
    pub(super) marks: Marks,
}

/// Identifies a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BucketId {
    pub(super) number: u16,
    /// A hash of the quotas of the plan. `None` for the default plan.
    pub(super) plan: Option<u64>,
}

/// The row that was charged.
#[derive(Debug)]
pub(super) enum Payer {
    Tenant(LimitKey),
    Bucket(BucketId),
    /// The state on a shared server.
    #[cfg(feature = "redis")]
    Shared(SharedPast),
}

/// The state on a shared server that a spend belongs to.
#[cfg(feature = "redis")]
#[derive(Debug)]
pub(super) struct SharedPast {
    pub(super) tenant: LimitKey,
    /// The quotas as the script reads them. Empty if the fallback has admitted the spend.
    pub(super) quotas: Bytes,
    /// The generation of the state, or the turn in which the fallback has admitted the spend.
    pub(super) generation: u64,
    /// The number of the lease that was used, or zero.
    pub(super) lease: u64,
    /// The charge in memory.
    pub(super) mirrored: Spend,
}

/// The moments that identify a spend, one for each quota of the plan.
pub(super) type Marks = [Moment; Plan::MAX_QUOTAS];

/// The mark of a quota that was not charged.
pub(super) const UNCHARGED: Moment = Moment::from_nanos(u64::MAX);

pub(super) const NO_MARKS: Marks = [UNCHARGED; Plan::MAX_QUOTAS];

/// The state that a spend belongs to: a plan, and a generation of the row, which a reset and other quotas end. A refund affects
/// no other state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Past {
    pub(super) plan: u32,
    pub(super) generation: u32,
}
