//! [`Plan`]: the quotas of one tenant, or that it has none, or that it is denied.

use std::{
    collections::BTreeSet,
    fmt,
    hash::{BuildHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use http::HeaderValue;

use super::{meter::Gauge, quota::Quota};
use crate::util::error::ConfigError;

/// What applies to a tenant. A clone is the same plan.
///
/// Several quotas are checked all or nothing: a request is charged to each of
/// them or to none.
///
/// ```
/// use tollgate::{Plan, Quota};
///
/// let gold = Plan::new([
///     Quota::per_second(50)?.named("burst")?,
///     Quota::per_minute(1200)?,
///     Quota::per_day(200_000)?.named("daily")?,
/// ])?;
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Plan(Arc<Terms>);

pub(super) enum Terms {
    Limited { id: u32, quotas: Box<[Measured]>, policy_header: Option<HeaderValue> },
    Unlimited { held: Option<Plan> },
    Denied { held: Option<Plan> },
}

/// A quota and its measures.
#[derive(Clone, Copy)]
pub(super) struct Measured {
    pub(super) quota: Quota,
    pub(super) gauge: Gauge,
}

impl Plan {
    /// The most quotas that a plan may have.
    pub const MAX_QUOTAS: usize = 6;

    /// Several quotas, each of another name.
    pub fn new(quotas: impl IntoIterator<Item = Quota>) -> Result<Self, ConfigError> {
        let quotas: Vec<Quota> = quotas.into_iter().collect();
        if quotas.is_empty() || quotas.len() > Self::MAX_QUOTAS {
            return Err(ConfigError::new("plan", format!("{} quotas", quotas.len()), "must have 1 to 6 quotas"));
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = quotas.iter().find(|quota| !names.insert(quota.name())) {
            return Err(ConfigError::new("quota name", twice.name(), "names two quotas of one plan"));
        }
        Ok(Self::of(&quotas))
    }

    /// No limit.
    pub fn unlimited() -> Self {
        Self(Arc::new(Terms::Unlimited { held: None }))
    }

    /// No request at all: each gets a 403.
    pub fn denied() -> Self {
        Self(Arc::new(Terms::Denied { held: None }))
    }

    fn of(quotas: &[Quota]) -> Self {
        static NEXT_ID: AtomicU32 = AtomicU32::new(1);
        let id = NEXT_ID.fetch_add(1, Relaxed);
        let policy_header = policy_header(quotas);
        let quotas = quotas.iter().map(|quota| Measured { quota: *quota, gauge: Gauge::new(quota) }).collect();
        Self(Arc::new(Terms::Limited { id, quotas, policy_header }))
    }

    /// The quotas; none where the tenant is not limited or denied.
    pub fn quotas(&self) -> impl Iterator<Item = Quota> {
        self.measured().iter().map(|measured| measured.quota)
    }

    pub(super) fn terms(&self) -> &Terms {
        &self.0
    }

    pub(super) fn measured(&self) -> &[Measured] {
        match self.terms() {
            Terms::Limited { quotas, .. } => quotas,
            Terms::Unlimited { held } | Terms::Denied { held } => held.as_ref().map_or(&[], Self::measured),
        }
    }

    /// This plan, in place of another whose quotas are kept where this one has none: so what was spent of them still
    /// counts when they come back.
    pub(super) fn after(self, other: &Self) -> Self {
        let held = match other.terms() {
            Terms::Limited { .. } => Some(other.clone()),
            Terms::Unlimited { held } | Terms::Denied { held } => held.clone(),
        };
        match self.terms() {
            Terms::Limited { .. } => self,
            Terms::Unlimited { .. } => Self(Arc::new(Terms::Unlimited { held })),
            Terms::Denied { .. } => Self(Arc::new(Terms::Denied { held })),
        }
    }

    /// Tells limited plans apart.
    pub(super) fn id(&self) -> u32 {
        match self.terms() {
            Terms::Limited { id, .. } => *id,
            Terms::Unlimited { .. } | Terms::Denied { .. } => 0,
        }
    }

    /// A number that stands for what the plan says, whoever made it and when.
    pub(super) fn fingerprint(&self, hasher: &impl BuildHasher) -> u64 {
        let mut state = hasher.build_hasher();
        self.quotas().for_each(|quota| quota.hash(&mut state));
        state.finish()
    }

    /// The field `RateLimit-Policy` for all quotas that are enforced.
    pub(super) fn policy_header(&self) -> Option<&HeaderValue> {
        match self.terms() {
            Terms::Limited { policy_header, .. } => policy_header.as_ref(),
            Terms::Unlimited { .. } | Terms::Denied { .. } => None,
        }
    }
}

impl From<Quota> for Plan {
    fn from(quota: Quota) -> Self {
        Self::of(&[quota])
    }
}

impl PartialEq for Plan {
    fn eq(&self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        match (self.terms(), other.terms()) {
            (Terms::Limited { .. }, Terms::Limited { .. }) => self.quotas().eq(other.quotas()),
            (Terms::Unlimited { .. }, Terms::Unlimited { .. }) | (Terms::Denied { .. }, Terms::Denied { .. }) => true,
            _ => false,
        }
    }
}

impl Eq for Plan {}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.terms() {
            Terms::Limited { .. } => f.debug_list().entries(self.quotas()).finish(),
            Terms::Unlimited { .. } => f.write_str("Unlimited"),
            Terms::Denied { .. } => f.write_str("Denied"),
        }
    }
}

/// Draft -10 of the IETF rate limit fields: a list of names with `q` and, where the window is whole seconds, `w`.
fn policy_header(quotas: &[Quota]) -> Option<HeaderValue> {
    let enforced = quotas.iter().filter(|quota| !quota.is_shadow());
    let policies: Vec<String> = enforced
        .map(|quota| {
            let window = match quota.window() {
                window if window.subsec_nanos() == 0 => format!(";w={}", window.as_secs()),
                _ => String::new(),
            };
            format!("\"{}\";q={}{window}", quota.name(), quota.limit())
        })
        .collect();
    if policies.is_empty() {
        return None;
    }
    HeaderValue::try_from(policies.join(", ")).ok()
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
        assert!(Plan::new((0..7).map(|n| quota().named(&format!("q{n}")).unwrap())).is_err());
        assert_eq!(Plan::new([quota()]).unwrap(), Plan::from(quota()));
    }

    #[test]
    fn the_policy_field_lists_what_is_enforced() {
        let plan = Plan::new([
            Quota::new(5, Duration::from_millis(100)).unwrap().named("burst").unwrap(),
            Quota::per_minute(600).unwrap(),
            Quota::per_day(9).unwrap().named("shadow").unwrap().shadow(),
        ])
        .unwrap();
        assert_eq!(plan.policy_header().unwrap(), r#""burst";q=5, "default";q=600;w=60"#);
    }
}
