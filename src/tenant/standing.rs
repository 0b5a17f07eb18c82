use std::time::Duration;

use http::Extensions;

use super::{
    id::{LimitKey, Tenant},
    source::TenantName,
};
use crate::util::clock::{Moment, UnixTime};

/// The standing of a tenant in one quota at one moment.
///
/// The limiter returns it, and headers, events, handlers and responders show it. If several quotas apply, it
/// describes the one that refused, or the one with the least left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    policy: &'static str,
    limit: u32,
    remaining: u32,
    reset: Moment,
    /// When the decision was made. The highest bit is set if the reset is an estimate, so that this takes no room.
    now: Moment,
    unix_now: UnixTime,
}

impl Standing {
    /// The reset of a request that can never fit.
    pub(crate) const NEVER: Moment = Moment::from_nanos(u64::MAX);

    /// The bit of `now` that marks an estimate. No process runs for 292 years.
    const INEXACT: u64 = 1 << 63;

    /// The standing of a tenant without an enforced quota.
    pub(crate) const UNLIMITED: Self = Self {
        policy: "unlimited",
        limit: u32::MAX,
        remaining: u32::MAX,
        reset: Moment::from_nanos(0),
        now: Moment::from_nanos(0),
        unix_now: UnixTime::from_nanos(0),
    };

    #[inline]
    pub(crate) fn new(
        policy: &'static str,
        limit: u32,
        remaining: u32,
        reset: Moment,
        time: (Moment, UnixTime),
    ) -> Self {
        let (now, unix_now) = time;
        Self { policy, limit, remaining, reset, now, unix_now }
    }

    /// Replaces the reset.
    #[inline]
    pub(crate) fn with_reset(self, reset: Moment) -> Self {
        Self { reset, ..self }
    }

    /// Marks the reset as an estimate.
    pub(crate) fn inexact(self) -> Self {
        Self { now: Moment::from_nanos(self.now.as_nanos() | Self::INEXACT), ..self }
    }

    /// Returns when the decision was made.
    #[inline]
    pub(crate) fn now(&self) -> Moment {
        Moment::from_nanos(self.now.as_nanos() & !Self::INEXACT)
    }

    /// Returns the standing as it is shown at a later moment.
    #[cfg(feature = "redis")]
    pub(crate) fn read_at(self, now: Moment) -> Self {
        let read = Self { now, unix_now: self.unix_now + now.since(self.now()), ..self };
        if self.is_exact() { read } else { read.inexact() }
    }

    /// Returns the standing after these units have come back.
    #[cfg(feature = "redis")]
    pub(crate) fn with_more(self, units: u32) -> Self {
        Self { remaining: self.remaining.saturating_add(units).min(self.limit), ..self }
    }

    /// Returns the name of the quota, or `unlimited` if no enforced quota applies.
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// Returns the limit of the quota, or `u32::MAX` if no enforced quota applies.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the units that are left, or `u32::MAX` if no enforced quota applies.
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// Returns the moment at which units come back.
    ///
    /// For a refused request this is the moment at which a retry is admitted, if the tenant spends nothing in the
    /// meantime. Otherwise it is the moment at which [`remaining`](Self::remaining) rises.
    pub fn reset(&self) -> Moment {
        self.reset
    }

    /// Returns whether [`reset`](Self::reset) is known exactly.
    ///
    /// It is an estimate while open calls count: they may end earlier, and what they use is charged when they end, so
    /// even a retry at the reset may be refused. The estimate is the latest expiry of the open
    /// [holds](crate::limit::Hold) that block. If calls without an expiry block, it is one second from now.
    pub fn is_exact(&self) -> bool {
        self.now.as_nanos() & Self::INEXACT == 0
    }

    /// Returns [`reset`](Self::reset) in wall-clock time, or `None` if no retry helps.
    #[inline]
    pub fn reset_unix(&self) -> Option<UnixTime> {
        let wait = self.reset.as_nanos().saturating_sub(self.now().as_nanos());
        let reset = UnixTime::from_nanos(self.unix_now.as_nanos().saturating_add(wait));
        (self.reset != Self::NEVER).then_some(reset)
    }

    /// Returns the time from the decision until [`reset`](Self::reset). Centuries if no retry helps; then
    /// [`reset_unix`](Self::reset_unix) returns `None`.
    #[inline]
    pub fn time_until_reset(&self) -> Duration {
        self.reset.since(self.now())
    }
}

/// The value that [`RateLimitLayer`](crate::RateLimitLayer) puts into the extensions of a
/// request.
///
/// It holds the key that was charged, and a [`Standing`]. If a request passes several layers, the key is that of the tenant
/// that was proved last, and the standing is the one with the least left: they can come from different layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    charged: Charged,
    standing: Standing,
    /// The charge of the first limiter. A second layer of the same limiter charges only the difference.
    charge: LimiterCharge,
    /// Few requests have it, and this is moved several times.
    more: Option<Box<More>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Charged {
    Proved(Tenant),
    Claimed(LimitKey),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct More {
    would_refuse: Option<&'static str>,
    /// The charges of other limiters.
    charges: Vec<LimiterCharge>,
}

/// The units that a limiter has charged a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimiterCharge {
    pub(crate) payer: u64,
    pub(crate) units: u32,
    /// Whether a layer of the limiter tracks when the call ends.
    pub(crate) is_open: bool,
    /// Whether that layer charges what the call uses.
    pub(crate) is_metered: bool,
}

impl LimiterCharge {
    /// Adds another charge of the same limiter and payer.
    fn with(self, other: Self) -> Self {
        let units = self.units.saturating_add(other.units);
        let (is_open, is_metered) = (self.is_open || other.is_open, self.is_metered || other.is_metered);
        Self { units, is_open, is_metered, ..self }
    }
}

impl Tenant {
    /// Returns the tenant that your application has put into the request, or else the one that a rate limit has charged, if
    /// the request has proved it. With axum, use it as an extractor instead: it also knows the tenant of an access token and
    /// of a session.
    ///
    /// Layers that check a credential, such as `SessionLayer`, put no tenant into the request: without axum, use what
    /// they offer, such as `Session::tenant`.
    pub fn from_extensions(extensions: &Extensions) -> Option<&Self> {
        extensions.get().or_else(|| extensions.get().and_then(RateLimit::tenant))
    }
}

impl RateLimit {
    #[inline]
    pub(crate) fn new(
        key: LimitKey,
        is_claimed: bool,
        standing: Standing,
        charge: LimiterCharge,
        would_refuse: Option<&'static str>,
    ) -> Self {
        let more = would_refuse.map(|_| Box::new(More { would_refuse, charges: Vec::new() }));
        // an authenticated request may have no tenant, and spend the anonymous budget
        let charged = match is_claimed {
            true => Charged::Claimed(key),
            false => Tenant::of_key(key).map_or_else(Charged::Claimed, Charged::Proved),
        };
        Self { charged, standing, charge, more }
    }

    /// Returns the value that the layers in front of this service have put into the request.
    /// With axum, use it as an extractor instead.
    pub fn from_extensions(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// Returns the key that was charged. It may be an address, or a name that the caller has chosen.
    pub fn key(&self) -> &LimitKey {
        match &self.charged {
            Charged::Proved(tenant) => tenant,
            Charged::Claimed(key) => key,
        }
    }

    /// Returns the tenant that was charged, if the request has proved it, for example with an API key.
    pub fn tenant(&self) -> Option<&Tenant> {
        match &self.charged {
            Charged::Proved(tenant) => Some(tenant),
            Charged::Claimed(_) => None,
        }
    }

    /// Returns the standing of the tenant.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Returns the name of the quota; see [`Standing::policy`].
    pub fn policy(&self) -> &'static str {
        self.standing.policy
    }

    /// Returns the limit of the quota; see [`Standing::limit`].
    pub fn limit(&self) -> u32 {
        self.standing.limit
    }

    /// Returns the units that are left; see [`Standing::remaining`].
    pub fn remaining(&self) -> u32 {
        self.standing.remaining
    }

    /// Returns when units come back in wall-clock time; see [`Standing::reset_unix`].
    pub fn reset_unix(&self) -> Option<UnixTime> {
        self.standing.reset_unix()
    }

    /// Returns how long until units come back; see [`Standing::time_until_reset`].
    pub fn time_until_reset(&self) -> Duration {
        self.standing.time_until_reset()
    }

    /// Returns the name of a shadow quota that would have refused this request, if any.
    pub fn would_refuse(&self) -> Option<&'static str> {
        self.more.as_ref().and_then(|more| more.would_refuse)
    }

    /// Returns what the limiter has charged to this payer, or `None` if it has not seen the request.
    pub(crate) fn charged(&self, payer: u64) -> Option<LimiterCharge> {
        let more = self.more.iter().flat_map(|more| &more.charges);
        let charges = [&self.charge].into_iter().chain(more).filter(|charge| charge.payer == payer);
        charges.copied().reduce(LimiterCharge::with)
    }

    fn add_charge(&mut self, charge: LimiterCharge) {
        match self.charge.payer == charge.payer {
            true => self.charge = self.charge.with(charge),
            false => self.more.get_or_insert_default().charges.push(charge),
        }
    }

    /// Returns the finding of an inner layer that has nothing left to charge, if its source proves what was only claimed.
    pub(crate) fn proved_by(&self, name: &TenantName<'_>) -> Option<Self> {
        if name.is_claimed() || self.tenant().is_some() {
            return None;
        }
        let charge = LimiterCharge { units: 0, ..self.charge };
        Some(Self::new(name.to_known_key(), false, self.standing, charge, None))
    }

    /// Puts this into a request, or combines it with what an outer layer has put there.
    #[inline]
    pub(crate) fn put_into(self, extensions: &mut Extensions) {
        match extensions.get_mut::<Self>() {
            Some(outer) => outer.combine(self),
            None => _ = extensions.insert(self),
        }
    }

    /// Adds the finding of an inner layer. A claim never replaces a tenant that an outer layer has proved.
    fn combine(&mut self, inner: Self) {
        self.add_charge(inner.charge);
        if let Some(policy) = inner.would_refuse() {
            self.more.get_or_insert_default().would_refuse = Some(policy);
        }
        if self.tenant().is_none() || inner.tenant().is_some() {
            self.charged = inner.charged;
        }
        if self.standing.remaining >= inner.standing.remaining {
            self.standing = inner.standing;
        }
    }
}

#[cfg(feature = "axum")]
crate::http::missing_layer::extract_from_extensions!(
    RateLimit,
    "no RateLimitLayer covers this route, or its extensions are disabled"
);
