//! The policies in the file of `--config`.

use std::{collections::BTreeMap, error::Error};

use serde::Deserialize;
use tollgate::{
    Policies, Tenant,
    policy::{Method, MethodSet, Policy},
};

/// The section `[policies]`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WrittenPolicies {
    default: Option<WrittenPolicy>,
    tenants: BTreeMap<String, WrittenPolicy>,
    acr: BTreeMap<String, WrittenPolicy>,
}

/// A [`Policy`]: `{ steps = 2 }` or `{ slots = [["password"], ["sms", "email"]] }`, each also with
/// `self_enrolment = false` and `enrolled_second_factor = false`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenPolicy {
    steps: Option<usize>,
    slots: Option<Vec<Vec<String>>>,
    self_enrolment: Option<bool>,
    enrolled_second_factor: Option<bool>,
}

impl WrittenPolicies {
    pub(crate) fn read(&self) -> Result<Policies, String> {
        let at =
            |place: &str, policy: &WrittenPolicy| policy.read().map_err(|error| format!("policies: {place}: {error}"));
        let default = self.default.as_ref().map(|policy| at("default", policy)).transpose()?;
        let mut policies = Policies::new(default.unwrap_or_default());
        for (name, policy) in &self.tenants {
            let place = format!("tenants.{name:?}");
            let tenant = Tenant::parse(name).map_err(|error| format!("policies: {place}: {error}"))?;
            policies = policies.tenant(tenant, at(&place, policy)?);
        }
        for (name, policy) in &self.acr {
            let policy = at(&format!("acr.{name:?}"), policy)?;
            policies = policies.acr(name, policy).map_err(|error| format!("policies: {error}"))?;
        }
        Ok(policies)
    }
}

impl WrittenPolicy {
    pub(crate) fn read(&self) -> Result<Policy, Box<dyn Error>> {
        let policy = match (self.steps, &self.slots) {
            (Some(steps), None) => Policy::any(steps)?,
            (None, Some(slots)) => {
                Policy::slots(slots.iter().map(|slot| methods(slot)).collect::<Result<Vec<_>, _>>()?)?
            }
            _ => return Err("must have either `steps` or `slots`".into()),
        };
        let policy = if self.self_enrolment == Some(false) { policy.without_self_enrolment() } else { policy };
        Ok(match self.enrolled_second_factor {
            Some(false) => policy.without_enrolled_second_factor(),
            Some(true) | None => policy,
        })
    }
}

fn methods(names: &[String]) -> Result<MethodSet, String> {
    names.iter().try_fold(MethodSet::EMPTY, |set, name| {
        let method = Method::from_name(name).ok_or_else(|| format!("{name:?} is not a known method"))?;
        if set.contains(method) { Err(format!("{name:?} is listed twice")) } else { Ok(set.with(method)) }
    })
}
