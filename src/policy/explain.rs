//! Explains why a login has the steps that it has.

use std::fmt;

use super::{
    demand::Policy,
    method::MethodSet,
    plan::{LoginPlan, Unsatisfiable},
};
use crate::tenant::Tenant;

/// The origin of a policy.
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
            Self::Default => f.write_str("The default policy"),
            Self::Tenant(tenant) => write!(f, "Tenant {tenant}"),
            Self::Client => f.write_str("The client"),
            Self::Acr(name) => write!(f, "The requested acr \"{name}\""),
        }
    }
}

/// Explains a plan: which policies apply, how many steps they need and which methods are accepted,
/// one sentence per line.
///
/// ```
/// use tollgate::{Method, Policies, Policy, Tenant};
///
/// let policies = Policies::new(Policy::any(2)?);
/// let explanation = policies.explain(&Tenant::parse("acme")?, None, None, Method::Password | Method::Email);
/// assert_eq!(
///     explanation.to_string(),
///     "The default policy requires 2 steps: each by any method.\n\
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
            demands.iter().map(|(source, policy)| format!("{source} requires {policy}.")).collect();
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
                if !plan.asks_enrolled() {
                    lines.push("A second factor that the user has enrolled is not asked for.".to_owned());
                }
            }
            Err(_) => lines.push(why_not(demands, enabled)),
        }
        Self(lines.join("\n"))
    }
}

fn why_not(demands: &[(DemandSource<'_>, &Policy)], enabled: MethodSet) -> String {
    if !enabled.is_empty() && enabled.that_can_be_first().is_empty() {
        return "No enabled method can be the first step of a login.".to_owned();
    }
    let alone = demands.iter().find(|(_, policy)| !policy.is_met_by(enabled));
    let Some((source, policy)) = alone else {
        return "Each policy can be satisfied, but not all of them by methods of different factor classes.".to_owned();
    };
    match policy.sets().iter().find(|slot| slot.intersection(enabled).is_empty()) {
        Some(slot) => format!("{source} can't be satisfied: none of {slot} is enabled."),
        None => format!("{source} can't be satisfied: the enabled methods have too few different factor classes."),
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
