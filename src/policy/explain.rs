//! [`Explanation`]: why a login has the steps that it has.

use std::fmt;

use super::{
    demand::Policy,
    method::MethodSet,
    plan::{LoginPlan, Unsatisfiable},
};
use crate::tenant::Tenant;

/// Who makes a demand.
#[derive(Clone, Copy)]
pub(super) enum DemandSource<'a> {
    Default,
    Tenant(&'a Tenant),
    Client,
    Acr(&'a str),
}

impl<'a> DemandSource<'a> {
    pub(super) fn acr(self) -> Option<&'a str> {
        match self {
            Self::Acr(name) => Some(name),
            Self::Default | Self::Tenant(_) | Self::Client => None,
        }
    }
}

impl fmt::Display for DemandSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("The default"),
            Self::Tenant(tenant) => write!(f, "Tenant {tenant}"),
            Self::Client => f.write_str("The client"),
            Self::Acr(name) => write!(f, "The requested acr \"{name}\""),
        }
    }
}

/// Who demanded what of a login, how many steps that makes and what is
/// accepted, one sentence a line.
///
/// ```
/// use tollgate::{Method, Policies, Policy, Tenant};
///
/// let policies = Policies::new(Policy::any(2)?);
/// let explanation = policies.explain(&Tenant::parse("acme")?, None, None, Method::Password | Method::Email);
/// assert_eq!(
///     explanation.to_string(),
///     "The default demands 2 steps: each by any method.\n\
///      Enabled: password, email.\n\
///      The login has 2 steps.\n\
///      Accepted: password and email."
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation(String);

impl Explanation {
    pub(super) fn new(
        demands: &[(DemandSource<'_>, &Policy)],
        enabled: MethodSet,
        plan: Result<LoginPlan, Unsatisfiable>,
    ) -> Self {
        let mut lines: Vec<String> =
            demands.iter().map(|(source, policy)| format!("{source} demands {policy}.")).collect();
        lines.push(match enabled {
            MethodSet::EMPTY => "No method is enabled.".to_owned(),
            some => format!("Enabled: {some}."),
        });
        match plan {
            Ok(plan) => {
                lines.push(match plan.steps() {
                    1 => "The login has 1 step.".to_owned(),
                    steps => format!("The login has {steps} steps."),
                });
                let sets: Vec<String> = plan.sets().iter().map(|set| set.to_string().replace(", ", " and ")).collect();
                lines.push(format!("Accepted: {}.", sets.join("; or ")));
            }
            Err(_) => lines.push(why_not(demands, enabled)),
        }
        Self(lines.join("\n"))
    }
}

fn why_not(demands: &[(DemandSource<'_>, &Policy)], enabled: MethodSet) -> String {
    let alone = demands.iter().find(|(_, policy)| !policy.is_met_by(enabled));
    let Some((source, policy)) = alone else {
        return "Each demand can be met, but not all of them by methods that prove different things.".to_owned();
    };
    match policy.sets().iter().find(|slot| slot.intersection(enabled).is_empty()) {
        Some(slot) => format!("{source} can't be met: none of {slot} is enabled."),
        None => format!("{source} can't be met: too few of the enabled methods prove different things."),
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
