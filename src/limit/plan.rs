//! The quotas of one tenant.

#[cfg(feature = "redis")]
use std::sync::OnceLock;
use std::{
    collections::BTreeSet,
    fmt,
    hash::{BuildHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

#[cfg(feature = "redis")]
use bytes::Bytes;

use super::{
    engine::meter::Gauge,
    quota::{Quota, Rule},
};
use crate::util::error::ConfigError;

/// The quotas of a tenant: one or several, or none because the tenant is unlimited or denied. Clones share one plan.
///
/// Several quotas are checked all or nothing: a request is charged to each of them or to none. They need different
/// names: a quota is called `default` unless [`Quota::with_name`] sets another name.
///
/// ```
/// use tollgate::{Plan, Quota};
///
/// let gold = Plan::new([
///     Quota::per_second(50)?.with_name("burst")?,
///     Quota::per_minute(1200)?,
///     Quota::per_day(200_000)?.with_name("daily")?,
/// ])?;
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Plan(Arc<PlanKind>);

pub(super) enum PlanKind {
    Limited {
        id: u32,
        quotas: Box<[Limited]>,
        /// For layers in which each request costs one unit, and for others.
        ietf_policies: [Option<Arc<str>>; 2],
        /// The quotas as the script of a shared limiter reads them.
        #[cfg(feature = "redis")]
        packed: OnceLock<Bytes>,
    },
    Unlimited {
        kept: Option<Plan>,
    },
    Denied {
        kept: Option<Plan>,
    },
}

/// A quota and its gauge, or what anonymous requests may spend of it.
#[derive(Clone, Copy)]
pub(super) struct Limited {
    pub(super) quota: Quota,
    pub(super) gauge: Gauge,
    /// The most units that count.
    pub(super) most: u32,
    /// Whether only anonymous requests are charged here.
    pub(super) is_for_anonymous: bool,
    /// A bit that no other quota of the plan has.
    pub(super) bit: u8,
}

impl Limited {
    fn from_quota(quota: &Quota, bit: u8) -> Self {
        Self { quota: *quota, gauge: Gauge::new(quota), most: quota.limit(), is_for_anonymous: false, bit }
    }

    /// Returns whether only requests are admitted whose end is tracked.
    pub(super) fn needs_tracking(&self) -> bool {
        self.quota.rule() == Rule::Concurrent && !self.quota.is_shadow()
    }

    /// Returns the part of the quota that is not reserved, if some of it is.
    fn for_anonymous(&self) -> Option<Self> {
        let most = self.quota.limit() - self.quota.reserved();
        let gauge = Gauge::of_part(&self.quota, most);
        (self.quota.reserved() > 0).then_some(Self { gauge, most, is_for_anonymous: true, ..*self })
    }
}

impl Plan {
    /// The maximum number of quotas. One with a [reserve](Quota::reserve) counts twice.
    pub const MAX_QUOTAS: usize = 6;

    /// Creates a plan of 1 to 6 quotas with different names.
    ///
    /// # Errors
    ///
    /// Returns an error if there are too few or too many quotas, or if two have the same name.
    pub fn new(quotas: impl IntoIterator<Item = Quota>) -> Result<Self, ConfigError> {
        let quotas: Vec<Quota> = quotas.into_iter().collect();
        let reserves = quotas.iter().filter(|quota| quota.reserved() > 0).count();
        let is_refused = quotas.is_empty() || quotas.len() + reserves > Self::MAX_QUOTAS;
        let value = format_args!("{} quotas, {reserves} of them with a reserve", quotas.len());
        ConfigError::refuse_if(is_refused, "plan", value, "must have 1 to 6 quotas; one with a reserve counts twice")?;
        let mut names = BTreeSet::new();
        if let Some(twice) = quotas.iter().find(|quota| !names.insert(quota.name())) {
            return Err(ConfigError::new(
                "quota name",
                twice.name(),
                "is the name of two quotas in one plan: give them different names with Quota::with_name",
            ));
        }
        Ok(Self::from_quotas(&quotas))
    }

    /// Creates a plan without a limit.
    pub fn unlimited() -> Self {
        Self(Arc::new(PlanKind::Unlimited { kept: None }))
    }

    /// Creates a plan that refuses every request with a 403.
    pub fn denied() -> Self {
        Self(Arc::new(PlanKind::Denied { kept: None }))
    }

    fn from_quotas(quotas: &[Quota]) -> Self {
        static NEXT_ID: AtomicU32 = AtomicU32::new(1);
        let id = NEXT_ID.fetch_add(1, Relaxed);
        // if `qu` was left out, it would mean requests
        let ietf_policies = ["requests", "units"].map(|unit| ietf_policies(quotas, unit));
        let mut limits: Vec<Limited> =
            (0..).zip(quotas).map(|(place, quota)| Limited::from_quota(quota, 1 << place)).collect();
        let for_anonymous: Vec<Limited> = limits.iter().filter_map(Limited::for_anonymous).collect();
        limits.extend(for_anonymous);
        Self(Arc::new(PlanKind::Limited {
            id,
            quotas: limits.into(),
            ietf_policies,
            #[cfg(feature = "redis")]
            packed: OnceLock::new(),
        }))
    }

    /// Returns the quotas. Unlimited and denied plans have no quotas.
    pub fn quotas(&self) -> impl Iterator<Item = Quota> {
        self.limits().iter().filter(|limited| !limited.is_for_anonymous).map(|limited| limited.quota)
    }

    /// Returns whether anonymous requests may spend less than others.
    pub(super) fn has_reserve(&self) -> bool {
        self.limits().last().is_some_and(|limited| limited.is_for_anonymous)
    }

    /// Returns whether an enforced quota counts open calls.
    pub(super) fn counts_calls(&self) -> bool {
        self.limits().iter().any(Limited::needs_tracking)
    }

    pub(super) fn kind(&self) -> &PlanKind {
        &self.0
    }

    pub(super) fn limits(&self) -> &[Limited] {
        match self.kind() {
            PlanKind::Limited { quotas, .. } => quotas,
            PlanKind::Unlimited { kept } | PlanKind::Denied { kept } => kept.as_ref().map_or(&[], Self::limits),
        }
    }

    /// Returns the quotas as a shared limiter sends them. They are packed once.
    #[cfg(feature = "redis")]
    pub(super) fn packed(&self, pack: impl FnOnce(&[Limited]) -> Bytes) -> Bytes {
        match self.kind() {
            PlanKind::Limited { quotas, packed, .. } => packed.get_or_init(|| pack(quotas)).clone(),
            PlanKind::Unlimited { .. } | PlanKind::Denied { .. } => pack(self.limits()),
        }
    }

    /// Returns this plan as the successor of another. A plan without quotas keeps those of the other, so that what was
    /// spent still counts when they come back. If the quotas are equal, the plan with them stays.
    pub(super) fn after(self, other: &Self) -> Self {
        let kept = match other.kind() {
            PlanKind::Limited { .. } => Some(other.clone()),
            PlanKind::Unlimited { kept } | PlanKind::Denied { kept } => kept.clone(),
        };
        match self.kind() {
            PlanKind::Limited { .. } => kept.filter(|kept| *kept == self).unwrap_or(self),
            PlanKind::Unlimited { .. } => Self(Arc::new(PlanKind::Unlimited { kept })),
            PlanKind::Denied { .. } => Self(Arc::new(PlanKind::Denied { kept })),
        }
    }

    /// The id of plans without quotas.
    pub(super) const NO_ID: u32 = 0;

    /// Returns a number that differs between limited plans.
    pub(super) fn id(&self) -> u32 {
        match self.kind() {
            PlanKind::Limited { id, .. } => *id,
            PlanKind::Unlimited { .. } | PlanKind::Denied { .. } => Self::NO_ID,
        }
    }

    /// Returns a hash of the quotas. Equal plans have equal fingerprints.
    pub(super) fn fingerprint(&self, hasher: &impl BuildHasher) -> u64 {
        let mut state = hasher.build_hasher();
        self.quotas().for_each(|quota| quota.hash(&mut state));
        state.finish()
    }

    /// Returns the policies of all enforced quotas for `RateLimit-Policy`, without the partition key. Quotas without a unit
    /// count requests, or else units of an unknown kind.
    pub(super) fn ietf_policies(&self, count_requests: bool) -> Option<Arc<str>> {
        match self.kind() {
            PlanKind::Limited { ietf_policies: [of_requests, of_units], .. } => {
                if count_requests { of_requests } else { of_units }.clone()
            }
            PlanKind::Unlimited { .. } | PlanKind::Denied { .. } => None,
        }
    }
}

impl From<Quota> for Plan {
    fn from(quota: Quota) -> Self {
        Self::from_quotas(&[quota])
    }
}

impl PartialEq for Plan {
    fn eq(&self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        match (self.kind(), other.kind()) {
            (PlanKind::Limited { .. }, PlanKind::Limited { .. }) => self.quotas().eq(other.quotas()),
            (PlanKind::Unlimited { .. }, PlanKind::Unlimited { .. })
            | (PlanKind::Denied { .. }, PlanKind::Denied { .. }) => true,
            _ => false,
        }
    }
}

impl Eq for Plan {}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            PlanKind::Limited { .. } => f.debug_list().entries(self.quotas()).finish(),
            PlanKind::Unlimited { .. } => f.write_str("Unlimited"),
            PlanKind::Denied { .. } => f.write_str("Denied"),
        }
    }
}

/// Writes a list of names with `q`, `qu` and, if the window is a whole number of seconds, `w`, as in draft -10 of the IETF
/// rate limit fields. The partition key `pk` differs between tenants. Rates without a unit get this one.
fn ietf_policies(quotas: &[Quota], unit: &str) -> Option<Arc<str>> {
    let enforced = quotas.iter().filter(|quota| !quota.is_shadow());
    let policies: Vec<String> = enforced
        .map(|quota| {
            let unit =
                if quota.rule() == Rule::Concurrent { "concurrent-requests" } else { quota.unit().unwrap_or(unit) };
            let window = match quota.window() {
                Duration::ZERO => String::new(),
                window if window.subsec_nanos() == 0 => format!(";w={}", window.as_secs()),
                _ => String::new(),
            };
            format!("\"{}\";q={};qu=\"{unit}\"{window}", quota.name(), quota.limit())
        })
        .collect();
    (!policies.is_empty()).then(|| policies.join(", ").into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_plan_has_one_to_six_quotas_of_different_names() {
        let quota = || Quota::per_minute(1).unwrap();
        assert!(Plan::new([]).is_err());
        assert_eq!(Plan::new([quota(), quota()]).unwrap_err().value(), "default");
        let reserve = |n| quota().with_name(&format!("q{n}")).unwrap().reserve(0.5).unwrap();
        assert!(Plan::new((0..4).map(reserve)).is_err());
        assert_eq!(Plan::new((0..3).map(reserve)).unwrap().quotas().count(), 3);
        assert!(Plan::new((0..7).map(|n| quota().with_name(&format!("q{n}")).unwrap())).is_err());
        assert_eq!(Plan::new([quota()]).unwrap(), Plan::from(quota()));
    }

    #[test]
    fn the_policy_field_lists_what_is_enforced() {
        let plan = Plan::new([
            Quota::new(5, Duration::from_millis(100)).unwrap().with_name("burst").unwrap(),
            Quota::per_minute(600).unwrap(),
            Quota::per_day(9).unwrap().with_name("shadow").unwrap().shadow(),
        ])
        .unwrap();
        assert_eq!(
            &*plan.ietf_policies(true).unwrap(),
            r#""burst";q=5;qu="requests", "default";q=600;qu="requests";w=60"#
        );
    }
}
